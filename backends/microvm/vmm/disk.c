/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * disk - the ring, flushes, and the life of a disk. disk_walk.c is a request's way over its range.
 *
 * A flush of a layered disk: data durable, then the bitmap's changed blocks as they were when the flush began, then
 * those durable. One flush at a time; what becomes dirty meanwhile is the next one's.
 *
 * The ring can do six operations on the registered files and nothing else: it was restricted before it was enabled,
 * because a ring is a way around the process's system call filter. The one of a disk whose files come later can be
 * given files, too.
 * Threads: the caller has the machine's lock.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "disk_int.h"

#define RETRY_NS 1000000u
#define ROUNDS 8 /* of requests and answers before others have their turn */

/* ------------------------------------------------------------------ to the ring */

struct io_uring_sqe *disk_entry(struct disk *d)
{
    struct io_uring_sqe *e = io_uring_get_sqe(&d->ring);

    if (!e) { /* full: the ring has as many entries as there are requests, but a submit may have failed */
        io_uring_submit(&d->ring);
        e = io_uring_get_sqe(&d->ring);
    }
    return e;
}

void disk_send(struct disk *d, struct disk_io *io, struct io_uring_sqe *e)
{
    e->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(e, io);
    d->unsent = 1;
}

void disk_park(struct disk *d, struct disk_io *io)
{
    io->next = NULL;
    *d->parked_end = io;
    d->parked_end = &io->next;
}

/* Those that still cannot go on park again, in the same order. */
void disk_unpark(struct disk *d)
{
    struct disk_io *io = d->parked, *next;

    d->parked = NULL;
    d->parked_end = &d->parked;
    for (; io; io = next) {
        next = io->next;
        disk_step(d, io);
    }
}

static void next_flush(struct disk *d)
{
    struct disk_io *io = d->flushes;

    if (d->flushing || !io)
        return;
    d->flushes = io->next;
    if (!d->flushes)
        d->flushes_end = &d->flushes;
    disk_step(d, io);
}

void disk_finish(struct disk *d, struct disk_io *io, int code)
{
    if (io->bounce) {
        free(io->bounce);
        io->bounce = NULL;
        d->bounces--;
    }
    if (io->blocks) {
        free(io->blocks);
        io->blocks = NULL;
        free(d->bits);
        d->bits = NULL;
        d->flushing = 0;
    }
    d->running--;
    d->finished = 1;
    io->done(io, code);
    next_flush(d);
    disk_unpark(d);
}

/* ------------------------------------------------------------------------- flush */

static void undo_flush(struct disk *d, const struct disk_io *io)
{
    uint64_t i;

    for (i = 0; i < io->n_blocks; i++)
        d->l.dirty[io->blocks[i]] = 1;
}

/* The bitmap as it is now; a cluster in it was written before this flush began. */
static int copy_bits(struct disk *d, struct disk_io *io)
{
    uint64_t i, n = 0;

    for (i = 0; i < d->l.blocks; i++)
        n += d->l.dirty[i];
    io->blocks = malloc((n + 1) * sizeof(*io->blocks));
    d->bits = malloc((n + 1) * LAYER_BLOCK);
    if (!io->blocks || !d->bits) {
        free(io->blocks);
        free(d->bits);
        io->blocks = NULL;
        d->bits = NULL;
        return -ENOMEM;
    }
    io->n_blocks = 0;
    for (i = 0; i < d->l.blocks; i++) {
        if (!d->l.dirty[i])
            continue;
        memcpy(d->bits + io->n_blocks * LAYER_BLOCK, d->l.bits + i * LAYER_BLOCK, LAYER_BLOCK);
        io->blocks[io->n_blocks++] = i;
        d->l.dirty[i] = 0;
    }
    return 0;
}

static void flush_send(struct disk *d, struct disk_io *io)
{
    struct io_uring_sqe *e = disk_entry(d);
    uint64_t i = io->pos;

    if (!e) {
        undo_flush(d, io);
        disk_finish(d, io, -EAGAIN);
        return;
    }
    if (io->stage == FLUSH_BITS)
        io_uring_prep_write(e, (int)d->l.n - 1, d->bits + i * LAYER_BLOCK, LAYER_BLOCK,
                            LAYER_BLOCK + io->blocks[i] * LAYER_BLOCK);
    else
        io_uring_prep_fsync(e, (int)d->l.n - 1, IORING_FSYNC_DATASYNC);
    disk_send(d, io, e);
}

void disk_flush_start(struct disk *d, struct disk_io *io)
{
    if (d->read_only) {
        disk_finish(d, io, 0);
        return;
    }
    if (d->l.n > 1 && d->flushing) {
        io->next = NULL;
        *d->flushes_end = io;
        d->flushes_end = &io->next;
        return;
    }
    io->n_blocks = io->pos = 0;
    if (d->l.n > 1) {
        if (copy_bits(d, io) < 0) {
            disk_finish(d, io, -ENOMEM);
            return;
        }
        d->flushing = 1;
    }
    io->stage = FLUSH_DATA;
    flush_send(d, io);
}

static void flush_came(struct disk *d, struct disk_io *io, int res)
{
    if (res == -EAGAIN || res == -EINTR) {
        flush_send(d, io);
        return;
    }
    if (io->stage == FLUSH_BITS && res >= 0 && res != (int)LAYER_BLOCK)
        res = -EIO;
    if (res < 0) {
        undo_flush(d, io);
        disk_finish(d, io, res);
        return;
    }
    if (io->stage == FLUSH_BITS)
        io->pos++;
    if (io->stage == FLUSH_END || io->n_blocks == 0) {
        disk_finish(d, io, 0);
        return;
    }
    io->stage = io->pos < io->n_blocks ? FLUSH_BITS : FLUSH_END;
    flush_send(d, io);
}

/* ---------------------------------------------------------------------- the ring */

static int reap(struct disk *d)
{
    struct io_uring_cqe *c;
    int n = 0;

    while (io_uring_peek_cqe(&d->ring, &c) == 0 && c) {
        struct disk_io *io = io_uring_cqe_get_data(c);
        int res = c->res;
        io_uring_cqe_seen(&d->ring, c);
        if (io->op == DISK_FLUSH)
            flush_came(d, io, res);
        else
            disk_came(d, io, res);
        n++;
    }
    return n;
}

/* Sends, and takes what is done already: from the page cache most is. */
/* @seccomp vmm vcpu: io_uring_enter */
static void turn(struct disk *d)
{
    do {
        if (d->unsent && io_uring_submit(&d->ring) >= 0)
            d->unsent = 0;
    } while (reap(d) > 0);
}

static void on_retry(void *self)
{
    disk_submit(self);
}

void disk_submit(struct disk *d)
{
    int some, rounds = 0;

    if (d->submitting) /* idle() has started more: the loop below goes round again */
        return;
    d->submitting = 1;
    do {
        turn(d);
        some = d->finished;
        d->finished = 0;
        if (some)
            d->idle(d->self);
    } while (some && ++rounds < ROUNDS); /* a guest may never stop asking */
    d->submitting = 0;
    if (d->unsent || some)
        (void)loop_timer(d->loop, some ? 1 : RETRY_NS, on_retry, d);
}

static void on_ready(void *self, int fd, uint32_t events)
{
    (void)fd;
    (void)events;
    disk_submit(self);
}

void disk_start(struct disk *d, struct disk_io *io)
{
    io->from = 0;
    io->bounce = NULL;
    io->blocks = NULL;
    io->stage = PLAIN;
    d->running++;
    if (io->op == DISK_ZERO && !io->may_punch)
        disk_write_zeros(d, io);
    disk_step(d, io);
}

/* @seccomp vmm vcpu: sched_yield */
void disk_drain(struct disk *d)
{
    struct io_uring_cqe *c;

    turn(d);
    while (d->running > 0) {
        if (d->unsent)
            sched_yield();
        else
            (void)io_uring_wait_cqe(&d->ring, &c);
        turn(d);
    }
}

struct sync {
    struct disk_io io;
    int code;
};

static void on_synced(struct disk_io *io, int code)
{
    ((struct sync *)io)->code = code;
}

int disk_settle(struct disk *d)
{
    struct sync s = {.io = {.op = DISK_FLUSH, .done = on_synced}};

    disk_drain(d);
    if (d->l.n <= 1)
        return 0;
    disk_start(d, &s.io);
    disk_drain(d);
    return s.code;
}

/* ------------------------------------------------------------------ new and free */

/* By number: liburing 2.3 declares functions for this and for enabling a ring, and does not export them. */
static int restrict_ring(struct disk *d)
{
    static const uint8_t ops[] = {IORING_OP_READV, IORING_OP_WRITEV, IORING_OP_READ,
                                  IORING_OP_WRITE, IORING_OP_FSYNC,  IORING_OP_FALLOCATE};
    struct io_uring_restriction r[sizeof(ops) + 2];
    uint32_t i;

    memset(r, 0, sizeof(r));
    for (i = 0; i < sizeof(ops); i++) {
        r[i].opcode = IORING_RESTRICTION_SQE_OP;
        r[i].sqe_op = ops[i];
    }
    r[i].opcode = IORING_RESTRICTION_SQE_FLAGS_REQUIRED;
    r[i++].sqe_flags = IOSQE_FIXED_FILE;
    if (d->l.n == 0) {
        r[i].opcode = IORING_RESTRICTION_REGISTER_OP;
        r[i++].register_op = IORING_REGISTER_FILES_UPDATE;
    }
    return io_uring_register((unsigned)d->ring.ring_fd, IORING_REGISTER_RESTRICTIONS, r, i);
}

static int ring_new(struct disk *d, uint32_t depth)
{
    struct io_uring_params p = {.flags = IORING_SETUP_R_DISABLED};
    int none[LAYERS_MAX], e;

    e = io_uring_queue_init_params(depth + 1, &d->ring, &p);
    if (e < 0)
        return e;
    memset(none, -1, sizeof(none));
    e = io_uring_register_files(&d->ring, d->l.n ? d->l.borrow_fd : none,
                                d->l.n ? d->l.n : LAYERS_MAX);
    if (e >= 0)
        e = restrict_ring(d);
    if (e >= 0)
        e = io_uring_register((unsigned)d->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
    if (e >= 0)
        e = loop_watch(d->loop, d->ring.ring_fd, EPOLLIN, on_ready, d);
    if (e < 0)
        io_uring_queue_exit(&d->ring);
    return e < 0 ? e : 0;
}

struct disk *disk_new(struct loop *loop, const int *borrow_fds, uint32_t n, uint64_t bytes,
                      uint32_t depth, int read_only, void (*idle)(void *), void *self)
{
    struct disk *d = calloc(1, sizeof(*d));
    uint32_t i;
    int r;

    if (!d)
        return NULL;
    d->loop = loop;
    d->read_only = read_only;
    d->idle = idle;
    d->self = self;
    d->parked_end = &d->parked;
    d->flushes_end = &d->flushes;
    d->bytes = bytes;
    r = n ? layers_open(&d->l, borrow_fds, n, bytes) : 0;
    d->zero_cluster = calloc(1, LAYER_CLUSTER);
    if (r == 0 && !d->zero_cluster)
        r = -ENOMEM;
    for (i = 0; i < ZEROS_PIECES; i++)
        d->zeros[i] = (struct iovec){.iov_base = d->zero_cluster, .iov_len = LAYER_CLUSTER};
    if (r == 0)
        r = ring_new(d, depth);
    if (r == 0)
        return d;
    layers_close(&d->l);
    free(d->zero_cluster);
    free(d);
    errno = -r;
    return NULL;
}

/* @seccomp vmm: io_uring_register(1=IORING_REGISTER_FILES_UPDATE) */
int disk_fill(struct disk *d, const int *borrow_fds, uint32_t n)
{
    int r = d->l.n ? -EALREADY : layers_open(&d->l, borrow_fds, n, d->bytes);

    if (r < 0)
        return r;
    r = io_uring_register_files_update(&d->ring, 0, d->l.borrow_fd, n);
    if (r == (int)n)
        return 0;
    layers_close(&d->l);
    return r < 0 ? r : -EIO;
}

void disk_free(struct disk *d)
{
    if (!d)
        return;
    (void)disk_settle(d);
    (void)loop_timer(d->loop, 0, on_retry, d);
    loop_unwatch(d->loop, d->ring.ring_fd);
    io_uring_queue_exit(&d->ring);
    layers_close(&d->l);
    free(d->zero_cluster);
    free(d);
}
