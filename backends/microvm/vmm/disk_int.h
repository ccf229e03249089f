/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* disk_int - what disk.c (ring, flush, life) and disk_walk.c (a request's way over its range) share. */
#ifndef CELLA_VMM_DISK_INT_H
#define CELLA_VMM_DISK_INT_H

#include <liburing.h>

#include "disk.h"

#define ZEROS_PIECES (DISK_ZEROES_MAX / LAYER_CLUSTER)
#define BOUNCES 16u

enum stage {
    PLAIN,      /* one operation on a piece with one owner */
    NEW,        /* whole clusters are written, or punched, for the first time */
    COPY_READ,  /* the cluster as it was goes to the bounce buffer */
    COPY_WRITE, /* and with what is new to the highest layer */
    FLUSH_DATA,
    FLUSH_BITS,
    FLUSH_END
};

struct disk {
    struct loop *loop;
    struct io_uring ring;
    struct layers l;
    uint64_t bytes;
    uint32_t running, bounces;
    int unsent, read_only, flushing, finished, submitting;
    struct disk_io *parked, **parked_end;
    struct disk_io *flushes, **flushes_end;
    uint8_t *bits; /* the flush's copy of the bitmap's dirty blocks */
    struct iovec zeros[ZEROS_PIECES];
    uint8_t *zero_cluster;
    void (*idle)(void *);
    void *self;
};

struct io_uring_sqe *disk_entry(struct disk *d);
void disk_send(struct disk *d, struct disk_io *io, struct io_uring_sqe *e);
void disk_park(struct disk *d, struct disk_io *io);
void disk_unpark(struct disk *d);
void disk_finish(struct disk *d, struct disk_io *io, int code);
void disk_step(struct disk *d, struct disk_io *io);
void disk_flush_start(struct disk *d, struct disk_io *io);
void disk_write_zeros(struct disk *d, struct disk_io *io);
/* What the ring says of the operation of a request that is no flush. */
void disk_came(struct disk *d, struct disk_io *io, int res);

#endif
