/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * files - whole-file reads and writes, atomic replace, tree removal.
 * remove_tree_at() works by descriptor: it never follows a symbolic link and never leaves the file
 * system it started on, so a mount left inside a dead cell's directory is not emptied.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "util.h"

int read_file_at(int dirfd, const char *path, size_t max, char **ret_text, size_t *ret_len)
{
    auto_close int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    auto_buf struct buf b = BUF_INIT;
    char chunk[16384];
    ssize_t n;

    if (fd < 0)
        return -errno;
    while ((n = read(fd, chunk, sizeof(chunk))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (b.len + (size_t)n > max)
            return -EFBIG;
        if (buf_add(&b, chunk, (size_t)n) < 0)
            return -ENOMEM;
    }
    if (buf_add(&b, "", 0) < 0)
        return -ENOMEM;
    if (ret_len)
        *ret_len = b.len;
    *ret_text = steal_ptr(&b.ptr);
    return 0;
}

int write_file_at(int dirfd, const char *path, const char *text)
{
    auto_close int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    size_t len = strlen(text);
    ssize_t n;

    if (fd < 0)
        return -errno;
    do
        n = write(fd, text, len);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : (size_t)n == len ? 0 : -EIO;
}

int write_all(int fd, const void *buf, size_t len)
{
    const char *p = buf;

    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Renaming over a file makes ext4 write the new one out at once, which takes milliseconds;
   exchanging the two and removing the old one is as atomic for readers and waits for nothing. */
static int put_in_place(int dirfd, const char *tmp, const char *path)
{
    if (renameat2(dirfd, tmp, dirfd, path, RENAME_EXCHANGE) == 0)
        return unlinkat(dirfd, tmp, 0) < 0 ? -errno : 0;
    return renameat(dirfd, tmp, dirfd, path) < 0 ? -errno : 0;
}

int create_file_at(int dirfd, const char *path, const char *text, size_t len, unsigned mode)
{
    auto_close int fd =
        openat(dirfd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);

    if (fd < 0 || fchmod(fd, mode) < 0) /* whatever the umask is */
        return -errno;
    return write_all(fd, text, len);
}

int replace_file_at(int dirfd, const char *path, const char *text, size_t len, unsigned mode)
{
    char tmp[4096], id[CELLA_ID_LEN + 1];
    int r = random_id(id);

    if (r < 0)
        return r;
    if ((size_t)snprintf(tmp, sizeof(tmp), "%s.%s", path, id) >= sizeof(tmp))
        return -ENAMETOOLONG;
    r = create_file_at(dirfd, tmp, text, len, mode);
    if (r == -EEXIST)
        return r; /* it is not ours to remove */
    if (r == 0)
        r = put_in_place(dirfd, tmp, path);
    if (r < 0)
        unlinkat(dirfd, tmp, 0);
    return r;
}

int mkdir_p(const char *path, unsigned mode)
{
    char copy[4096];
    char *p;

    if ((size_t)snprintf(copy, sizeof(copy), "%s", path) >= sizeof(copy))
        return -ENAMETOOLONG;
    if (mkdir(copy, mode) == 0 || errno == EEXIST) /* nearly always */
        return 0;
    if (errno != ENOENT)
        return -errno;
    for (p = copy + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        if (mkdir(copy, 0755) < 0 && errno != EEXIST)
            return -errno;
        *p = '/';
    }
    return mkdir(copy, mode) < 0 && errno != EEXIST ? -errno : 0;
}

DIR *dir_open_at(int dirfd_, const char *path)
{
    auto_close int fd = openat(dirfd_, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (d)
        steal_fd(&fd);
    return d;
}

void close_fds(const int *own_fds, size_t n)
{
    while (n--)
        if (own_fds[n] >= 0)
            close(own_fds[n]);
}

static int remove_tree_dev(int dirfd, const char *name, dev_t dev, unsigned depth);

/* Empties the open directory (takes fd). */
static int remove_entries(int own_fd, dev_t dev, unsigned depth)
{
    DIR *d = fdopendir(own_fd);
    struct dirent *e;
    int r = 0;

    if (!d) {
        close(own_fd);
        return -ENOMEM;
    }
    while (r == 0 && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            r = remove_tree_dev(dirfd(d), e->d_name, dev, depth + 1);
    closedir(d);
    return r;
}

static int remove_tree_dev(int dirfd, const char *name, dev_t dev, unsigned depth)
{
    struct stat st;
    int fd, r;

    if (depth > 256)
        return -ELOOP;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISDIR(st.st_mode))
        return unlinkat(dirfd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
    if (st.st_dev != dev)
        return -EXDEV;
    fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    r = remove_entries(fd, dev, depth);
    if (r < 0)
        return r;
    return unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

int remove_tree_at(int dirfd, const char *path)
{
    struct stat st;

    if (fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    return remove_tree_dev(dirfd, path, st.st_dev, 0);
}

char *path_join(const char *a, const char *b)
{
    size_t n = strlen(a);
    char *p = NULL;

    if (asprintf(&p, "%s%s%s", a, n && a[n - 1] == '/' ? "" : "/", b) < 0)
        return NULL;
    return p;
}
