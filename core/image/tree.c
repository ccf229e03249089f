/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * tree - a digest over everything in a directory, in the order of names.
 *
 * By content, so that two copies of a tree can be told to be one (the directory that a container
 * sees and the disk that a machine boots), or by what stat() says, so that a change of a large
 * directory is noticed without reading it. Nothing of the file system's own is in the first: no
 * inode numbers, no sizes of directories, no times. Threads: none.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <sodium.h>

#include "tree.h"

#define ENTRIES_MAX 2000000u
#define DEPTH_MAX 256u

struct walk {
    enum tree_how how;
    struct tree_facts *facts;
    struct cella_error *err;
    crypto_hash_sha256_state hash;
    dev_t dev;
    char path[PATH_MAX];
    uint8_t chunk[1 << 16];
};

static int walk_fail(struct walk *w, int code)
{
    return fail(w->err, code, "/%s: %s", w->path, strerror(-code));
}

static void record(struct walk *w, const struct stat *st, const void *content, size_t len)
{
    char line[256];
    int n = snprintf(line, sizeof(line), "%o %u %u %llu %u:%u", (unsigned)st->st_mode, st->st_uid,
                     st->st_gid, S_ISDIR(st->st_mode) ? 0 : (unsigned long long)st->st_size,
                     S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode) ? major(st->st_rdev) : 0,
                     S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode) ? minor(st->st_rdev) : 0);

    crypto_hash_sha256_update(&w->hash, (const uint8_t *)w->path, strlen(w->path) + 1);
    crypto_hash_sha256_update(&w->hash, (const uint8_t *)line, (size_t)n + 1);
    if (w->how == TREE_STAT) {
        n = snprintf(line, sizeof(line), "%llu %llu %lld.%09ld %lld.%09ld",
                     (unsigned long long)st->st_dev, (unsigned long long)st->st_ino,
                     (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
                     (long long)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
        crypto_hash_sha256_update(&w->hash, (const uint8_t *)line, (size_t)n + 1);
    }
    crypto_hash_sha256_update(&w->hash, content, len);
}

static int file_digest(struct walk *w, int dir, const char *name, uint8_t out[32])
{
    crypto_hash_sha256_state h;
    auto_close int fd =
        openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t n;

    if (fd < 0)
        return walk_fail(w, -errno);
    crypto_hash_sha256_init(&h);
    while ((n = read(fd, w->chunk, sizeof(w->chunk))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return walk_fail(w, -errno);
        crypto_hash_sha256_update(&h, w->chunk, (size_t)n);
    }
    crypto_hash_sha256_final(&h, out);
    return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_dots(const struct dirent *e)
{
    return strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
}

static int walk_entry(struct walk *w, int dir, const char *name, unsigned depth);

static int walk_directory(struct walk *w, int fd, unsigned depth)
{
    struct dirent **list = NULL;
    size_t len = strlen(w->path);
    int n = scandirat(fd, ".", &list, not_dots, by_name), i, r = n < 0 ? walk_fail(w, -errno) : 0;

    for (i = 0; i < n; i++) {
        if (r == 0 && snprintf(w->path + len, sizeof(w->path) - len, "%s%s", len ? "/" : "",
                               list[i]->d_name) >= (int)(sizeof(w->path) - len))
            r = fail(w->err, -ENAMETOOLONG, "/%s: the path is too long", w->path);
        if (r == 0)
            r = walk_entry(w, fd, list[i]->d_name, depth);
        w->path[len] = 0;
        free(list[i]);
    }
    free(list);
    return r;
}

static void count(struct walk *w, const struct stat *st)
{
    if (!S_ISREG(st->st_mode))
        return;
    w->facts->bytes += (uint64_t)st->st_size;
    w->facts->disk += (uint64_t)st->st_blocks * 512 / (st->st_nlink ? st->st_nlink : 1);
}

static int walk_entry(struct walk *w, int dir, const char *name, unsigned depth)
{
    uint8_t content[PATH_MAX];
    auto_close int fd = -1;
    struct stat st;
    ssize_t n = 0;
    int r = 0;

    if (depth > DEPTH_MAX || ++w->facts->entries > ENTRIES_MAX)
        return fail(w->err, -EFBIG, "/%s: more than %u entries, or deeper than %u", w->path,
                    ENTRIES_MAX, DEPTH_MAX);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return walk_fail(w, -errno);
    if (S_ISDIR(st.st_mode) && st.st_dev != w->dev) /* of files overlayfs tells another one */
        return fail(w->err, -EXDEV, "/%s: another file system is mounted there", w->path);
    if (S_ISLNK(st.st_mode)) {
        n = readlinkat(dir, name, (char *)content, sizeof(content));
        if (n < 0)
            return walk_fail(w, -errno);
    } else if (S_ISREG(st.st_mode) && w->how == TREE_CONTENT) {
        r = file_digest(w, dir, name, content);
        n = 32;
    }
    if (r < 0)
        return r;
    count(w, &st);
    record(w, &st, content, (size_t)n);
    if (!S_ISDIR(st.st_mode))
        return 0;
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? walk_fail(w, -errno) : walk_directory(w, fd, depth + 1);
}

int tree_digest(int dirfd_, enum tree_how how, struct tree_facts *ret, struct cella_error *err)
{
    auto_free struct walk *w = calloc(1, sizeof(*w));
    struct tree_facts facts = {0};
    uint8_t digest[crypto_hash_sha256_BYTES];
    struct stat st;
    int r;

    if (!w || sodium_init() < 0)
        return fail(err, -ENOMEM, "out of memory");
    if (fstat(dirfd_, &st) < 0)
        return fail(err, -errno, "%s", strerror(errno));
    *w = (struct walk){.how = how, .facts = &facts, .err = err, .dev = st.st_dev};
    crypto_hash_sha256_init(&w->hash);
    record(w, &st, NULL, 0);
    r = walk_directory(w, dirfd_, 0);
    if (r < 0)
        return r;
    crypto_hash_sha256_final(&w->hash, digest);
    hex_encode(digest, sizeof(digest), facts.sha256);
    *ret = facts;
    return 0;
}
