/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* disk - reading and writing the layers of a disk through io_uring, never waiting but in disk_drain(). */
#ifndef CELLA_VMM_DISK_H
#define CELLA_VMM_DISK_H

#include <stdint.h>
#include <sys/uio.h>

#include "layers.h"
#include "loop.h"

#define DISK_PART 64u
#define DISK_ZEROES_MAX (16ull << 20) /* bytes that one DISK_ZERO may be long */

enum disk_op { DISK_READ, DISK_WRITE, DISK_FLUSH, DISK_DISCARD, DISK_ZERO };

/* One request. The caller fills the first part; it and what iov points to are the disk's until done(). */
struct disk_io {
    enum disk_op op;
    uint64_t pos, end; /* of READ, WRITE, DISCARD and ZERO: inside the disk */
    const struct iovec *iov;
    uint32_t n_iov;
    int may_punch; /* of ZERO: holes will do */
    void (*done)(struct disk_io *io, int code);

    /* disk.c's */
    uint32_t stage, layer;
    uint64_t from;         /* in iov: the byte for pos */
    uint64_t seg, seg_end; /* the piece in flight, and where on it we are */
    uint8_t *bounce;
    uint64_t *blocks; /* of a flush: which blocks of the bitmap */
    uint64_t n_blocks;
    struct iovec part[DISK_PART];
    struct disk_io *next;
};

struct disk;
/* At most `depth` requests at once. idle() after each batch of done(). Without files (n is 0) no request may come before
   disk_fill(). NULL and errno. */
struct disk *disk_new(struct loop *loop, const int *borrow_fds, uint32_t n, uint64_t bytes,
                      uint32_t depth, int read_only, void (*idle)(void *), void *self);
/* Its files, of a disk that was made without any. */
int disk_fill(struct disk *d, const int *borrow_fds, uint32_t n);
void disk_start(struct disk *d, struct disk_io *io);
void disk_submit(struct disk *d); /* after one or more disk_start(): now they run */
/* Waits for all that has been started; done() is called for each. idle() is not. */
void disk_drain(struct disk *d);
/* Drains; then whoever reads the files finds the whole disk in them. What of it is durable, only a flush says: a raw file
   needs nothing, a layer its bitmap, which comes after its data is durable. */
int disk_settle(struct disk *d);
void disk_free(struct disk *d);

#endif
