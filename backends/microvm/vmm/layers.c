/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * layers - the files of a disk, and which of them has which cluster.
 *
 * Why clusters of 64 KiB: the bitmap of a disk of 10 GiB is 20 KiB, so that all of it is in memory and a copy of a copy
 * of a copy is found without I/O (owner[], one byte a cluster, zero pages where the lowest layer has it); and
 * the copy that the first write of a cluster makes is still less than what a disk reads at once. Clusters lie in
 * their place in a sparse file, so there is no table of places that could point anywhere.
 *
 * Durability: a bit may be on the disk only when the cluster is (disk.c writes bitmaps, between two fdatasync()). A bit
 * that is missing after a crash costs what was not flushed; a bit too many would hide data that was.
 *
 * The highest layer may have been written by a VMM that its guest had taken over, and is a lower layer of the next:
 * everything in it is judged, and the file must be as long as it has to be.
 * Threads: the caller has the machine's lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layers.h"

static const char magic[8] = {'c', 'e', 'l', 'l', 'a', 'l', 'y', 'r'};
#define VERSION 1u

static uint64_t round_up(uint64_t v, uint64_t to)
{
    return (v + to - 1) / to * to;
}

static struct layer_head head_of(uint64_t bytes)
{
    struct layer_head h = {.version = VERSION, .cluster_bits = LAYER_CLUSTER_BITS, .bytes = bytes};

    memcpy(h.magic, magic, sizeof(magic));
    h.bitmap_bytes =
        round_up((round_up(bytes, LAYER_CLUSTER) / LAYER_CLUSTER + 7) / 8, LAYER_BLOCK);
    h.data_at = round_up(LAYER_BLOCK + h.bitmap_bytes, LAYER_CLUSTER);
    return h;
}

static int size_valid(uint64_t bytes)
{
    return bytes > 0 && bytes % 512 == 0 && bytes <= LAYER_DISK_MAX;
}

int layer_create(int borrow_fd, uint64_t bytes)
{
    struct layer_head h = head_of(bytes);
    struct stat st;

    if (!size_valid(bytes))
        return -EINVAL;
    if (fstat(borrow_fd, &st) < 0)
        return -errno;
    if (st.st_size != 0)
        return -EEXIST;
    if (ftruncate(borrow_fd, (off_t)(h.data_at + round_up(bytes, LAYER_CLUSTER))) < 0)
        return -errno;
    if (pwrite(borrow_fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h))
        return errno ? -errno : -EIO;
    return 0;
}

static int read_all(int fd, void *out, uint64_t len, uint64_t at)
{
    uint8_t *p = out;

    while (len > 0) {
        ssize_t n = pread(fd, p, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EUCLEAN;
        p += n;
        at += (uint64_t)n;
        len -= (uint64_t)n;
    }
    return 0;
}

/* There is one header that fits a disk of `bytes`, and this must be it, padding included. */
static int judge_head(struct layers *l, uint32_t i, struct layer_head *ret)
{
    uint8_t block[LAYER_BLOCK], want[LAYER_BLOCK] = {0};
    struct stat st;
    int r;

    *ret = head_of(l->bytes);
    memcpy(want, ret, sizeof(*ret));
    if (fstat(l->borrow_fd[i], &st) < 0)
        return -errno;
    if ((uint64_t)st.st_size != ret->data_at + round_up(l->bytes, LAYER_CLUSTER))
        return -EUCLEAN;
    r = read_all(l->borrow_fd[i], block, sizeof(block), 0);
    if (r < 0)
        return r;
    return memcmp(block, want, sizeof(want)) == 0 ? 0 : -EUCLEAN;
}

static int add_layer(struct layers *l, uint32_t i)
{
    struct layer_head h;
    uint64_t k;
    int r = judge_head(l, i, &h);

    if (r == 0)
        r = read_all(l->borrow_fd[i], l->bits, h.bitmap_bytes, LAYER_BLOCK);
    if (r < 0)
        return r;
    for (k = l->clusters; k < h.bitmap_bytes * 8; k++)
        if (l->bits[k / 8] >> (k % 8) & 1)
            return -EUCLEAN;
    for (k = 0; k < l->clusters; k++) {
        if (k % 8 == 0 && l->bits[k / 8] == 0) {
            k += 7;
            continue;
        }
        if (l->bits[k / 8] >> (k % 8) & 1)
            l->owner[k] = (uint8_t)i;
    }
    l->data_at[i] = h.data_at;
    return 0;
}

int layers_open(struct layers *l, const int *borrow_fds, uint32_t n, uint64_t bytes)
{
    struct stat st;
    uint32_t i;
    int r = 0;

    memset(l, 0, sizeof(*l));
    if (n == 0 || n > LAYERS_MAX || !size_valid(bytes))
        return -EINVAL;
    if (fstat(borrow_fds[0], &st) < 0)
        return -errno;
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size < bytes)
        return -EUCLEAN;
    l->n = n;
    l->bytes = bytes;
    memcpy(l->borrow_fd, borrow_fds, n * sizeof(*borrow_fds));
    if (n == 1)
        return 0;
    l->clusters = round_up(bytes, LAYER_CLUSTER) / LAYER_CLUSTER;
    l->blocks = head_of(bytes).bitmap_bytes / LAYER_BLOCK;
    l->owner = calloc(l->clusters, 1);
    l->bits = calloc(l->blocks, LAYER_BLOCK);
    l->dirty = calloc(l->blocks, 1);
    if (!l->owner || !l->bits || !l->dirty)
        r = -ENOMEM;
    for (i = 1; i < n && r == 0; i++)
        r = add_layer(l, i);
    if (r < 0)
        layers_close(l);
    return r;
}

void layers_close(struct layers *l)
{
    free(l->owner);
    free(l->bits);
    free(l->dirty);
    memset(l, 0, sizeof(*l));
}

uint64_t layers_run(const struct layers *l, uint64_t pos, uint64_t end, uint32_t *ret_layer)
{
    uint64_t k = pos / LAYER_CLUSTER;
    uint8_t who;

    if (l->n == 1) {
        *ret_layer = 0;
        return end;
    }
    who = l->owner[k] & (uint8_t)~LAYER_BUSY;
    *ret_layer = who;
    do
        k++;
    while (k * LAYER_CLUSTER < end && (l->owner[k] & (uint8_t)~LAYER_BUSY) == who);
    return k * LAYER_CLUSTER < end ? k * LAYER_CLUSTER : end;
}

void layers_own(struct layers *l, uint64_t from, uint64_t to)
{
    uint64_t k;

    for (k = from; k < to; k++) {
        l->owner[k] = (uint8_t)(l->n - 1);
        l->bits[k / 8] |= (uint8_t)(1u << (k % 8));
        l->dirty[k / 8 / LAYER_BLOCK] = 1;
    }
}

void layers_busy(struct layers *l, uint64_t from, uint64_t to, int busy)
{
    uint64_t k;

    for (k = from; k < to; k++)
        l->owner[k] = busy ? l->owner[k] | LAYER_BUSY : l->owner[k] & (uint8_t)~LAYER_BUSY;
}
