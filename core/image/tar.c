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

#include "image_int.h"

static const struct unpack_limits limits = {
    .entries = 1000000, .bytes = 16ull << 30, .ratio = 250, .ratio_from = 256u << 20};

static int hash_file(int fd, uint8_t out[crypto_hash_sha256_BYTES])
{
    crypto_hash_sha256_state h;
    static const size_t cap = 1u << 18;
    auto_free uint8_t *chunk = malloc(cap);
    ssize_t n;

    if (!chunk)
        return -ENOMEM;
    crypto_hash_sha256_init(&h);
    while ((n = read(fd, chunk, cap)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        crypto_hash_sha256_update(&h, chunk, (size_t)n);
    }
    crypto_hash_sha256_final(&h, out);
    return lseek(fd, 0, SEEK_SET) < 0 ? -errno : 0;
}

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

static int check_space(const struct image_dir *d, const char *file, uint64_t size,
                       struct cella_error *err)
{
    struct statvfs v;

    if (fstatvfs(d->fd, &v) < 0 || (uint64_t)v.f_bavail * v.f_frsize >= size)
        return 0;
    return fail(err, -ENOSPC,
                "image tar:%s: %s has less free space than the archive alone takes; free some",
                file, d->path);
}

static int tar_make(struct image_dir *d, int fd, const char *file, const uint8_t *digest,
                    const char *key, struct cella_error *err)
{
    uint8_t again[crypto_hash_sha256_BYTES];
    auto_close int rootfd = -1;
    char tmp[32];
    int r = image_tmp_new(d, tmp, &rootfd, err);

    if (r < 0)
        return r;
    r = unpack_spawn(fd, rootfd, &limits, again, err);
    if (r < 0)
        r = fail_wrap(err, "image tar:%s", file);
    else if (memcmp(digest, again, sizeof(again)))
        r = fail(err, -ESTALE, "image tar:%s: the file changed while it was read; try again", file);
    else
        r = image_tmp_commit(d, tmp, key, err);
    if (r < 0)
        image_tmp_drop(d, tmp);
    return r;
}

static int tar_ensure(const char *state_dir, int fd, const char *file, uint64_t size,
                      const uint8_t *digest, const char *key, struct cella_error *err)
{
    struct image_dir d;
    int r = image_dir_open(state_dir, &d, err);

    if (r < 0)
        return r;
    if (!image_ready(&d, key)) {
        r = check_space(&d, file, size, err);
        if (r == 0)
            r = tar_make(&d, fd, file, digest, key, err);
    }
    image_dir_close(&d);
    return r;
}

int image_tar(const char *state_dir, const char *arg, struct image *img, struct cella_error *err)
{
    uint8_t digest[crypto_hash_sha256_BYTES], want[crypto_hash_sha256_BYTES];
    char file[PATH_MAX], key[2 * crypto_hash_sha256_BYTES + 1];
    auto_close int fd = -1;
    struct stat st;
    int r, wanted;

    if (sodium_init() < 0)
        return fail(err, -EIO, "image tar: libsodium does not start");
    if (split_name(arg, file, want, &wanted) < 0)
        return fail(err, -EINVAL,
                    "image tar:%s: expected tar:FILE or tar:FILE@sha256:<64 hex digits>", arg);
    fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail(err, -errno, "image tar:%s: %s", file, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(err, -EINVAL, "image tar:%s: not a regular file%s", file,
                    S_ISDIR(st.st_mode) ? "; a directory is named dir:PATH" : "");
    r = hash_file(fd, digest);
    if (r < 0)
        return fail(err, r, "image tar:%s: %s", file, strerror(-r));
    hex_encode(digest, sizeof(digest), key);
    if (wanted && memcmp(digest, want, sizeof(want)))
        return fail(err, -EBADMSG, "image tar:%s: its digest is sha256:%s, not the one asked for",
                    file, key);
    r = tar_ensure(state_dir, fd, file, (uint64_t)st.st_size, digest, key, err);
    if (r < 0)
        return r;
    if (asprintf(&img->root, "%s/images/%s/root", state_dir, key) < 0)
        img->root = NULL;
    if (asprintf(&img->digest, "sha256:%s", key) < 0)
        img->digest = NULL;
    return img->root && img->digest ? 0 : fail(err, -ENOMEM, "out of memory");
}
