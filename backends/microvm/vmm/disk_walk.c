/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * disk_walk - a request walks over its range piece by piece; each piece has one owner and is one operation of the ring,
 * or several when the kernel does less than it was asked for.
 *
 * The first write of a cluster of a layered disk: the cluster becomes busy, what the write does not cover is read from
 * the layer that has it, and the whole cluster is written to the highest layer, which owns it from then on. While a cluster
 * is busy, readers have the old bytes, which nobody can change; writers wait, in order. When it fails, the old
 * bytes are still the disk's. Threads: the caller has the machine's lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "disk_int.h"

#define HOLE (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

/* The guest's pieces for [seg, seg_end), or as much of it as fits into part[]. */
static uint32_t pieces(struct disk_io *io)
{
    uint64_t skip = io->from + (io->seg - io->pos), want = io->seg_end - io->seg;
    uint32_t i, k = 0;

    for (i = 0; i < io->n_iov && want > 0 && k < DISK_PART; i++) {
        uint64_t have = io->iov[i].iov_len;
        if (skip >= have) {
            skip -= have;
            continue;
        }
        have = have - skip < want ? have - skip : want;
        io->part[k].iov_base = (uint8_t *)io->iov[i].iov_base + skip;
        io->part[k++].iov_len = have;
        want -= have;
        skip = 0;
    }
    return k;
}

static uint64_t cluster_start(uint64_t pos)
{
    return pos / LAYER_CLUSTER * LAYER_CLUSTER;
}

static uint64_t cluster_end(const struct disk *d, uint64_t pos)
{
    uint64_t end = cluster_start(pos) + LAYER_CLUSTER;

    return end < d->l.bytes ? end : d->l.bytes;
}

static void unbusy(struct disk *d, struct disk_io *io, int owned)
{
    uint64_t from = io->pos / LAYER_CLUSTER;
    uint64_t to = (io->seg_end + LAYER_CLUSTER - 1) / LAYER_CLUSTER;

    if (io->stage == PLAIN)
        return;
    layers_busy(&d->l, from, to, 0);
    if (owned)
        layers_own(&d->l, from, to);
}

/* The operation of [seg, seg_end), again after a short one. */
static void transfer(struct disk *d, struct disk_io *io)
{
    uint64_t top = d->l.n - 1, at, in;
    struct io_uring_sqe *e = disk_entry(d);

    if (!e) {
        unbusy(d, io, 0);
        disk_finish(d, io, -EAGAIN);
        return;
    }
    at = d->l.data_at[io->layer] + io->seg;
    in = io->seg - cluster_start(io->pos);
    if (io->stage == COPY_READ)
        io_uring_prep_read(e, (int)io->layer, io->bounce + in, (unsigned)(io->seg_end - io->seg),
                           at);
    else if (io->stage == COPY_WRITE)
        io_uring_prep_write(e, (int)top, io->bounce + in, (unsigned)(io->seg_end - io->seg),
                            d->l.data_at[top] + io->seg);
    else if (io->op == DISK_READ)
        io_uring_prep_readv(e, (int)io->layer, io->part, pieces(io), at);
    else if (io->op == DISK_WRITE)
        io_uring_prep_writev(e, (int)top, io->part, pieces(io), d->l.data_at[top] + io->seg);
    else
        io_uring_prep_fallocate(e, (int)top, HOLE, (off_t)(d->l.data_at[top] + io->seg),
                                (off_t)(io->seg_end - io->seg));
    disk_send(d, io, e);
}

/* ----------------------------------------------------------------- piece by piece */

/* What a cluster that the highest layer does not have yet needs. */
static void first_write(struct disk *d, struct disk_io *io)
{
    uint64_t end = cluster_end(d, io->pos), next;
    uint64_t k = io->pos / LAYER_CLUSTER;

    if (io->pos % LAYER_CLUSTER == 0 && io->end >= end) {
        io->stage = NEW;
        for (next = end; next < io->end && cluster_end(d, next) <= io->end &&
                         d->l.owner[next / LAYER_CLUSTER] < d->l.n - 1;
             next = end)
            end = cluster_end(d, next);
        io->seg = io->pos;
    } else {
        if (d->bounces == BOUNCES) {
            disk_park(d, io);
            return;
        }
        io->bounce = malloc(LAYER_CLUSTER);
        if (!io->bounce) {
            disk_finish(d, io, -ENOMEM);
            return;
        }
        d->bounces++;
        io->stage = COPY_READ;
        io->seg = cluster_start(io->pos);
    }
    io->seg_end = end;
    layers_busy(&d->l, k, (end + LAYER_CLUSTER - 1) / LAYER_CLUSTER, 1);
    transfer(d, io);
}

/* The end of the clusters from pos that a writer can treat alike. */
static uint64_t writable_run(const struct disk *d, const struct disk_io *io, uint8_t *ret_who)
{
    uint64_t k = io->pos / LAYER_CLUSTER;

    if (d->l.n == 1) {
        *ret_who = 0;
        return io->end;
    }
    *ret_who = d->l.owner[k];
    do
        k++;
    while (k * LAYER_CLUSTER < io->end && d->l.owner[k] == *ret_who);
    return k * LAYER_CLUSTER < io->end ? k * LAYER_CLUSTER : io->end;
}

static void step_write(struct disk *d, struct disk_io *io)
{
    uint8_t who;

    while (io->pos < io->end) {
        uint64_t end = writable_run(d, io, &who);
        if (who & LAYER_BUSY) {
            disk_park(d, io);
            return;
        }
        if (who == d->l.n - 1) {
            io->stage = PLAIN;
            io->layer = who;
            io->seg = io->pos;
            io->seg_end = end;
            transfer(d, io);
            return;
        }
        if (io->op != DISK_DISCARD) {
            io->layer = who;
            first_write(d, io);
            return;
        }
        io->pos = end; /* another's cluster: there is no space to give back */
    }
    disk_finish(d, io, 0);
}

static void step_read(struct disk *d, struct disk_io *io)
{
    if (io->pos == io->end) {
        disk_finish(d, io, 0);
        return;
    }
    io->stage = PLAIN;
    io->seg = io->pos;
    io->seg_end = layers_run(&d->l, io->pos, io->end, &io->layer);
    transfer(d, io);
}

void disk_step(struct disk *d, struct disk_io *io)
{
    if (io->op == DISK_FLUSH)
        disk_flush_start(d, io);
    else if (io->op == DISK_READ)
        step_read(d, io);
    else
        step_write(d, io);
}

void disk_write_zeros(struct disk *d, struct disk_io *io)
{
    io->op = DISK_WRITE;
    io->iov = d->zeros;
    io->n_iov = ZEROS_PIECES;
    io->from = 0;
}

/* What the request has of this cluster goes over what the cluster was. */
static void merge(struct disk_io *io)
{
    uint64_t in = io->pos - cluster_start(io->pos), len, from = io->from;
    uint32_t i;
    uint8_t *to = io->bounce + in;

    len = (io->end < io->seg_end ? io->end : io->seg_end) - io->pos;
    if (io->op == DISK_ZERO) {
        memset(to, 0, len);
        return;
    }
    for (i = 0; i < io->n_iov && len > 0; i++) {
        uint64_t have = io->iov[i].iov_len;
        if (from >= have) {
            from -= have;
            continue;
        }
        have = have - from < len ? have - from : len;
        memcpy(to, (const uint8_t *)io->iov[i].iov_base + from, have);
        to += have;
        len -= have;
        from = 0;
    }
}

/* The piece is through. */
static void piece_done(struct disk *d, struct disk_io *io)
{
    uint64_t end = io->seg_end < io->end ? io->seg_end : io->end;

    if (io->stage == COPY_READ) {
        merge(io);
        io->stage = COPY_WRITE;
        io->seg = cluster_start(io->pos);
        transfer(d, io);
        return;
    }
    unbusy(d, io, 1);
    if (io->stage == COPY_WRITE) {
        free(io->bounce);
        io->bounce = NULL;
        d->bounces--;
    }
    io->from += end - io->pos;
    io->pos = end;
    if (io->stage == PLAIN) {
        disk_step(d, io);
        return;
    }
    disk_step(d, io);
    disk_unpark(d);
}

static int punches(const struct disk_io *io)
{
    return (io->op == DISK_DISCARD || io->op == DISK_ZERO) &&
           (io->stage == PLAIN || io->stage == NEW);
}

void disk_came(struct disk *d, struct disk_io *io, int res)
{
    if (res == -EAGAIN || res == -EINTR) {
        transfer(d, io);
        return;
    }
    if (punches(io) && res == 0)
        res = (int)(io->seg_end - io->seg < INT32_MAX ? io->seg_end - io->seg : INT32_MAX);
    else if (res == 0)
        res = -EIO; /* an end of file where there is none */
    if (res == -EOPNOTSUPP && punches(io)) {
        /* The file system makes no holes. A discard is a hint; zeros must be written. */
        unbusy(d, io, 0);
        if (io->op == DISK_DISCARD)
            disk_finish(d, io, 0);
        else {
            disk_write_zeros(d, io);
            disk_step(d, io);
        }
        return;
    }
    if (res < 0) {
        unbusy(d, io, 0);
        disk_finish(d, io, res);
        return;
    }
    io->seg = punches(io) ? io->seg_end : io->seg + (uint64_t)res;
    if (io->seg < io->seg_end)
        transfer(d, io);
    else
        piece_done(d, io);
}
