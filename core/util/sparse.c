/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * sparse - see sparse.h. The digest is over {offset, block} of each block that is not all zeros, so a copy that filled
 * the holes, or made more of them, has the same. Threads: no state.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <sodium.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "sparse.h"

#define BLOCK 65536u
#define CHUNK (8u << 20)

_Static_assert(SPARSE_DIGEST == crypto_generichash_BYTES, "a BLAKE2b digest");

/* The next data at or after `at`; 0 when there is none. Without support everything is data. */
static int next_data(int fd, uint64_t at, uint64_t size, uint64_t *ret_from, uint64_t *ret_to)
{
    off_t from = lseek(fd, (off_t)at, SEEK_DATA), to;

    if (from < 0 && errno == ENXIO)
        return 0;
    if (from < 0) {
        *ret_from = at;
        *ret_to = size;
        return at < size;
    }
    to = lseek(fd, from, SEEK_HOLE);
    *ret_from = (uint64_t)from;
    *ret_to = to < 0 || (uint64_t)to > size ? size : (uint64_t)to;
    return (uint64_t)from < size;
}

static int copy_by_hand(int from, int to, uint64_t at, uint64_t end)
{
    char *room = malloc(BLOCK);
    int r = room ? 0 : -ENOMEM;

    while (r == 0 && at < end) {
        size_t want = end - at < BLOCK ? (size_t)(end - at) : BLOCK;
        ssize_t n = pread(from, room, want, (off_t)at), w;
        if (n <= 0) {
            r = n < 0 ? -errno : -EIO;
            break;
        }
        w = pwrite(to, room, (size_t)n, (off_t)at);
        if (w != n)
            r = w < 0 ? -errno : -ENOSPC;
        at += (uint64_t)n;
    }
    free(room);
    return r;
}

static int copy_range(int from, int to, uint64_t at, uint64_t end)
{
    while (at < end) {
        off64_t in = (off64_t)at, out = (off64_t)at;
        size_t want = end - at < CHUNK ? (size_t)(end - at) : CHUNK;
        ssize_t n = copy_file_range(from, &in, to, &out, want, 0);
        if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS))
            return copy_by_hand(from, to, at, end);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += (uint64_t)n;
    }
    return 0;
}

int sparse_copy(int from, int to, uint64_t size)
{
    uint64_t at = 0, end;
    int r = 0;

    if (ioctl(to, FICLONE, from) == 0)
        return 0;
    if (ftruncate(to, (off_t)size) < 0)
        return -errno;
    while (r == 0 && next_data(from, at, size, &at, &end)) {
        r = copy_range(from, to, at, end);
        at = end;
    }
    return r;
}

static int all_zero(const char *p, size_t n)
{
    return n == 0 || (p[0] == 0 && !memcmp(p, p + 1, n - 1));
}

int sparse_digest(int fd, uint64_t size, unsigned char ret[SPARSE_DIGEST])
{
    crypto_generichash_state state;
    char *room = malloc(BLOCK);
    uint64_t at = 0, end = 0;
    int r = room ? 0 : -ENOMEM;

    crypto_generichash_init(&state, NULL, 0, SPARSE_DIGEST);
    crypto_generichash_update(&state, (const unsigned char *)&size, sizeof(size));
    while (r == 0 && next_data(fd, at, size, &at, &end)) {
        at -= at % BLOCK;
        while (r == 0 && at < end) {
            size_t want = size - at < BLOCK ? (size_t)(size - at) : BLOCK;
            ssize_t n = pread(fd, room, want, (off_t)at);
            if (n != (ssize_t)want) {
                r = n < 0 ? -errno : -EIO;
            } else if (!all_zero(room, want)) {
                crypto_generichash_update(&state, (const unsigned char *)&at, sizeof(at));
                crypto_generichash_update(&state, (const unsigned char *)room, want);
            }
            at += want;
        }
    }
    free(room);
    crypto_generichash_final(&state, ret, SPARSE_DIGEST);
    return r;
}
