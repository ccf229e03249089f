/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * tar - an archive named by digest: hashed first, unpacked once, then shared by every cell.
 *
 * "tar:FILE" or "tar:FILE@sha256:HEX". The file is opened once; the digest found by the first pass
 * names the directory, and the second pass, which unpacks, computes it again over the bytes it
 * really used: a file that changes in between is refused. Threads: none.
 */
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <sodium.h>

#include "artefact.h"

static const struct unpack_limits limits = {
    .entries = 1000000, .bytes = 16ull << 30, .ratio = 250, .ratio_from = 256u << 20};

/* Splits "FILE@sha256:HEX". */
static int split_name(const char *arg, char file[PATH_MAX], uint8_t *want, int *ret_wanted)
{
    const char *at = strstr(arg, "@sha256:");
    size_t n = at ? (size_t)(at - arg) : strlen(arg);

    if (n == 0 || n >= PATH_MAX)
        return -EINVAL;
    memcpy(file, arg, n);
    file[n] = 0;
    *ret_wanted = at != NULL;
    return at ? hex_decode(at + 8, want, crypto_hash_sha256_BYTES) : 0;
}

static int check_space(const struct image_dir *d, const char *source, uint64_t size,
                       struct cella_error *err)
{
    struct statvfs v;

    if (fstatvfs(d->fd, &v) < 0 || (uint64_t)v.f_bavail * v.f_frsize >= size)
        return 0;
    return fail(err, -ENOSPC,
                "image %s: %s has less free space than the archive alone takes; free some", source,
                d->path);
}

static int describe(struct image_dir *d, const char *tmp, const char *key, const char *source,
                    struct cella_error *err)
{
    auto_close int fd = openat(d->fd, tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char digest[80];

    snprintf(digest, sizeof(digest), "sha256:%s", key);
    return fd < 0 ? fail(err, -errno, "%s: %s", tmp, strerror(errno))
                  : artefact_describe(fd, digest, source, err);
}

static int tar_make(struct image_dir *d, int fd, const char *source, const char *key,
                    struct cella_error *err)
{
    uint8_t again[crypto_hash_sha256_BYTES];
    char hex[2 * crypto_hash_sha256_BYTES + 1], tmp[32];
    auto_close int rootfd = -1;
    int r = image_tmp_new(d, tmp, &rootfd, err);

    if (r < 0)
        return r;
    r = unpack_spawn(fd, rootfd, &limits, again, err);
    hex_encode(again, sizeof(again), hex);
    if (r < 0)
        r = fail_wrap(err, "image %s", source);
    else if (strcmp(key, hex))
        r = fail(err, -ESTALE, "image %s: the file changed while it was read; try again", source);
    else
        r = describe(d, tmp, key, source, err);
    if (r == 0)
        r = image_tmp_commit(d, tmp, key, err);
    if (r < 0)
        image_tmp_drop(d, tmp);
    return r;
}

static int tar_ensure(const char *state_dir, int fd, const char *source, const char *key,
                      struct cella_error *err)
{
    struct image_dir d;
    struct stat st;
    int r = image_dir_open(state_dir, &d, err);

    if (r < 0)
        return r;
    if (!image_ready(&d, key)) {
        r = fstat(fd, &st) < 0 ? fail(err, -errno, "image %s: %s", source, strerror(errno))
                               : check_space(&d, source, (uint64_t)st.st_size, err);
        if (r == 0)
            r = tar_make(&d, fd, source, key, err);
    }
    image_dir_close(&d);
    return r;
}

static int tar_keyed(const char *state_dir, int fd, const char *source, const char *key,
                     struct image *img, struct cella_error *err)
{
    int tries, r = 0;

    for (tries = 0; tries < 3; tries++) { /* it may be removed between the two steps */
        r = tar_ensure(state_dir, fd, source, key, err);
        if (r == 0)
            r = image_by_key(state_dir, key, img, err);
        if (r != -ENOENT)
            break;
    }
    return r;
}

int image_tar_fd(const char *state_dir, int fd, const char *source, struct image *img,
                 struct cella_error *err)
{
    char key[65];
    int r = file_sha256(fd, key);

    if (r < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return fail(err, r < 0 ? r : -errno, "image %s: %s", source, strerror(r < 0 ? -r : errno));
    return tar_keyed(state_dir, fd, source, key, img, err);
}

int image_tar(const char *state_dir, const char *arg, struct image *img, struct cella_error *err)
{
    uint8_t want[crypto_hash_sha256_BYTES];
    char file[PATH_MAX], key[65], asked[65], source[PATH_MAX + 8];
    auto_close int fd = -1;
    struct stat st;
    int r, wanted;

    if (split_name(arg, file, want, &wanted) < 0)
        return fail(err, -EINVAL,
                    "image tar:%s: expected tar:FILE or tar:FILE@sha256:<64 hex digits>", arg);
    fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail(err, -errno, "image tar:%s: %s", file, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(err, -EINVAL, "image tar:%s: not a regular file%s", file,
                    S_ISDIR(st.st_mode) ? "; a directory is named dir:PATH" : "");
    r = file_sha256(fd, key);
    if (r < 0)
        return fail(err, r, "image tar:%s: %s", file, strerror(-r));
    hex_encode(want, sizeof(want), asked);
    if (wanted && strcmp(key, asked))
        return fail(err, -EBADMSG, "image tar:%s: its digest is sha256:%s, not the one asked for",
                    file, key);
    snprintf(source, sizeof(source), "tar:%s", file);
    return tar_keyed(state_dir, fd, source, key, img, err);
}
