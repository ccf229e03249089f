/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * file_change - remove, rename, mkdir: in a worker of file.c. What is removed or renamed is the last component itself; removing
 * enters no mount and ends at a depth. Threads: one.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "agent.h"
#include "file.h"

#define DEPTH_MAX 200u
#define STATX_ATTR_MOUNT_ROOT_ 0x2000u

/* struct statx of the kernel, as far as it is needed; musl 1.2.3 has none. */
struct statx_ {
    uint32_t mask, blksize;
    uint64_t attributes;
    uint8_t rest[256 - 16];
};

static int is_mount(int dir, const char *name)
{
    struct statx_ x = {0};

    return syscall(SYS_statx, dir, name, AT_SYMLINK_NOFOLLOW, 0, &x) == 0 &&
           (x.attributes & STATX_ATTR_MOUNT_ROOT_);
}

static int remove_at(int dir, const char *name, dev_t dev, unsigned depth);

/* Empties an open directory. Removing while listing may skip entries, so it lists again until
 * nothing went. */
static int remove_inside(int dir, dev_t dev, unsigned depth)
{
    _Alignas(8) char buf[2048];
    long n, at, removed = 1;
    int r;

    while (removed) {
        removed = 0;
        if (lseek(dir, 0, SEEK_SET) < 0)
            return -errno;
        while ((n = syscall(SYS_getdents64, dir, buf, sizeof(buf))) > 0)
            for (at = 0; at < n;) {
                struct dir_entry *e = (void *)(buf + at);
                at += e->reclen;
                if (is_dot(e->name))
                    continue;
                r = remove_at(dir, e->name, dev, depth + 1);
                if (r < 0)
                    return r;
                removed++;
            }
        if (n < 0)
            return -errno;
    }
    return 0;
}

static int remove_at(int dir, const char *name, dev_t dev, unsigned depth)
{
    struct stat st;
    int fd, r;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT && depth ? 0 : -errno;
    if (is_mount(dir, name) || (depth && st.st_dev != dev))
        return -EXDEV;
    if (!S_ISDIR(st.st_mode))
        return unlinkat(dir, name, 0) < 0 && errno != ENOENT ? -errno : 0;
    if (depth >= DEPTH_MAX)
        return -ELOOP;
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = remove_inside(fd, st.st_dev, depth);
    close(fd);
    if (r < 0)
        return r;
    return unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

_Noreturn void file_remove(const struct job *j)
{
    struct stat st;
    char *name;
    int dir = open_parent(j->path, &name), r;

    if (dir < 0)
        job_fail(errno, "open the directory of", j->path);
    if (j->flag)
        r = remove_at(dir, name, 0, 0);
    else if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    else
        r = unlinkat(dir, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0 ? -errno : 0;
    if (r == -EXDEV)
        job_fail(EXDEV, "something is mounted in or on", j->path);
    if (r < 0)
        job_fail(-r, "remove", j->path);
    job_done(NULL);
}

_Noreturn void file_rename(const struct job *j)
{
    char *name, *name2;
    int dir = open_parent(j->path, &name), dir2;

    if (dir < 0)
        job_fail(errno, "open the directory of", j->path);
    dir2 = open_parent(j->path2, &name2);
    if (dir2 < 0)
        job_fail(errno, "open the directory of", j->path2);
    if (renameat(dir, name, dir2, name2) < 0)
        job_fail(errno, "rename", j->path);
    job_done(NULL);
}

_Noreturn void file_mkdir(const struct job *j)
{
    mode_t mode = j->has_mode ? j->mode & 07777 : 0755;
    struct stat st;
    char *p;

    for (p = j->path + 1; j->flag && *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        if (mkdir(j->path, 0755) < 0 && errno != EEXIST)
            job_fail(errno, "make the directory", j->path);
        *p = '/';
    }
    if (mkdir(j->path, mode) < 0) {
        int e = errno;
        if (e == EEXIST && j->flag && stat(j->path, &st) == 0 && S_ISDIR(st.st_mode))
            job_done(NULL);
        job_fail(e, "make the directory", j->path);
    }
    if (j->has_mode &&
        chmod(j->path, mode) < 0) /* the umask does not apply to what was asked for */
        job_fail(errno, "set the mode of", j->path);
    job_done(NULL);
}
