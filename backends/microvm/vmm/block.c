/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * block - virtio-blk (VIRTIO 1.2, 5.2): the image, read-only, and the writable disk, write-back with FLUSH.
 *
 * A request is a header of 16 bytes, data, and one byte of status at the very end, wherever the guest cut it (5.2.6).
 * Its sectors are judged before anything else; what does not fit on the disk, or would write to a disk that is
 * read-only, is answered with an error and reaches no file. Only a request without room for a status breaks the device.
 *
 * At most DEPTH requests run; the rest stays in the ring, untouched. So does what the rate does not allow yet:
 * before a save nothing is in flight and nothing is half read. A guest that did not negotiate FLUSH has its writes
 * made durable before they are answered (5.2.6.2). Threads: the caller has the machine's lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <linux/virtio_blk.h>
#include <linux/virtio_ids.h>

#include "devices.h"
#include "disk.h"
#include "limiter.h"

#define DEPTH 64u
#define SEGMENTS (CHAIN_MAX - 2u)
#define SECTOR_BITS 9u
#define BUDGET 256u                /* requests that need no I/O, before others have their turn */
#define DISCARD_SECTORS (1u << 22) /* 2 GiB a request */
#define PAGE_SECTORS 8u

struct request {
    struct disk_io io; /* first: what done() gets */
    struct block *b;
    uint32_t type;
    uint64_t bytes;
    uint8_t *status; /* in the guest's RAM */
    struct chain c;
};

struct block {
    struct virtio v;
    struct disk *disk;
    struct virtio_blk_config config;
    char serial[VIRTIO_BLK_ID_BYTES];
    int read_only, running;
    struct request *r;
    uint8_t free[DEPTH]; /* a stack, so that few of the requests are ever touched */
    uint32_t n_free;
    struct limiter reads, writes;
    uint64_t bytes_read, bytes_written;
};

static void run(struct block *b);

/* ----------------------------------------------------------------------- answers */

static void answer(struct block *b, struct request *r, uint8_t status, uint64_t written)
{
    *r->status = status;
    virtq_push(&b->v.q[0], r->c.head, (uint32_t)written + 1);
    b->free[b->n_free++] = (uint8_t)(r - b->r);
}

static void on_done(struct disk_io *io, int code)
{
    struct request *r = (struct request *)io;
    struct block *b = r->b;
    int writes = r->type == VIRTIO_BLK_T_OUT || r->type == VIRTIO_BLK_T_WRITE_ZEROES;

    if (code == 0 && writes && io->op != DISK_FLUSH &&
        !(b->v.driver_features & 1ull << VIRTIO_BLK_F_FLUSH)) {
        io->op = DISK_FLUSH;
        disk_start(b->disk, io);
        return;
    }
    if (code == 0 && r->type == VIRTIO_BLK_T_IN)
        b->bytes_read += r->bytes;
    if (code == 0 && r->type == VIRTIO_BLK_T_OUT)
        b->bytes_written += r->bytes;
    answer(b, r, code == 0 ? VIRTIO_BLK_S_OK : VIRTIO_BLK_S_IOERR,
           code == 0 && r->type == VIRTIO_BLK_T_IN ? r->bytes : 0);
}

/* After a batch of on_done(): requests that had no room, one interrupt for all. */
static void on_idle(void *self)
{
    struct block *b = self;

    run(b);
    virtio_irq_queue(&b->v, 0);
}

/* ---------------------------------------------------------------------- requests */

/* [sector, sector + n) is on the disk. */
static int on_disk(const struct block *b, uint64_t sector, uint64_t n)
{
    return sector <= b->config.capacity && n <= b->config.capacity - sector;
}

static int range(struct request *r, uint64_t sector, uint64_t bytes)
{
    const struct block *b = r->b;

    if (bytes % (1u << SECTOR_BITS) != 0 || !on_disk(b, sector, bytes >> SECTOR_BITS))
        return VIRTIO_BLK_S_IOERR;
    r->bytes = bytes;
    r->io.pos = sector << SECTOR_BITS;
    r->io.end = r->io.pos + bytes;
    return -1;
}

/* Takes the header's and the status byte out of the chain; the data is what is left. */
static void trim(struct chain *c, uint64_t head)
{
    struct iovec *v = c->iov;
    uint32_t i;

    for (i = 0; i < c->n_out && head > 0; i++) {
        uint64_t n = v[i].iov_len < head ? v[i].iov_len : head;
        v[i].iov_base = (uint8_t *)v[i].iov_base + n;
        v[i].iov_len -= n;
        head -= n;
    }
    v[c->n_out + c->n_in - 1].iov_len--;
}

static int discard(struct request *r)
{
    struct virtio_blk_discard_write_zeroes d;
    int zeroes = r->type == VIRTIO_BLK_T_WRITE_ZEROES;
    uint32_t flags, n;

    if (r->c.out_bytes != sizeof(struct virtio_blk_outhdr) + sizeof(d) ||
        chain_get(&r->c, sizeof(struct virtio_blk_outhdr), &d, sizeof(d)) < 0)
        return VIRTIO_BLK_S_IOERR;
    flags = d.flags;
    n = d.num_sectors;
    if (flags & ~(zeroes ? VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP : 0u)) /* 5.2.6.2 */
        return VIRTIO_BLK_S_UNSUPP;
    if (n > (zeroes ? DISK_ZEROES_MAX >> SECTOR_BITS : DISCARD_SECTORS))
        return VIRTIO_BLK_S_IOERR;
    r->io.op = zeroes ? DISK_ZERO : DISK_DISCARD;
    r->io.may_punch = (flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP) != 0;
    return range(r, d.sector, (uint64_t)n << SECTOR_BITS);
}

static int identify(struct request *r)
{
    if (chain_put(&r->c, 0, r->b->serial, sizeof(r->b->serial)) < 0 ||
        r->c.in_bytes == sizeof(r->b->serial)) /* the status needs a byte of its own */
        return VIRTIO_BLK_S_IOERR;
    r->bytes = sizeof(r->b->serial);
    return VIRTIO_BLK_S_OK;
}

/* A status, or -1: r->io is to be run. */
static int judge(struct request *r, const struct virtio_blk_outhdr *h)
{
    struct block *b = r->b;
    uint64_t data;

    if (b->read_only && (r->type == VIRTIO_BLK_T_OUT || r->type == VIRTIO_BLK_T_DISCARD ||
                         r->type == VIRTIO_BLK_T_WRITE_ZEROES))
        return VIRTIO_BLK_S_IOERR;
    switch (r->type) {
    case VIRTIO_BLK_T_IN:
        r->io.op = DISK_READ;
        data = r->c.in_bytes - 1;
        r->io.iov = r->c.iov + r->c.n_out;
        r->io.n_iov = r->c.n_in;
        trim(&r->c, 0);
        return range(r, h->sector, data);
    case VIRTIO_BLK_T_OUT:
        r->io.op = DISK_WRITE;
        data = r->c.out_bytes - sizeof(*h);
        r->io.iov = r->c.iov;
        r->io.n_iov = r->c.n_out;
        trim(&r->c, sizeof(*h));
        return range(r, h->sector, data);
    case VIRTIO_BLK_T_FLUSH:
        r->io.op = DISK_FLUSH;
        return -1;
    case VIRTIO_BLK_T_DISCARD:
    case VIRTIO_BLK_T_WRITE_ZEROES:
        return discard(r);
    case VIRTIO_BLK_T_GET_ID:
        return identify(r);
    default:
        return VIRTIO_BLK_S_UNSUPP;
    }
}

static void on_allowed(void *self)
{
    struct block *b = self;

    if (!virtio_live(&b->v))
        return;
    run(b);
    disk_submit(b->disk);
    virtio_irq_queue(&b->v, 0);
}

/* Is it for now? If not, a timer will ask again. */
static int allowed(struct request *r)
{
    struct block *b = r->b;
    uint64_t wait = 0;

    if (r->type == VIRTIO_BLK_T_IN)
        wait = limiter_take(&b->reads, r->bytes, limiter_now());
    else if (r->type == VIRTIO_BLK_T_OUT || (r->type == VIRTIO_BLK_T_WRITE_ZEROES))
        wait = limiter_take(&b->writes, r->bytes, limiter_now());
    if (wait > 0)
        (void)loop_timer(b->v.loop, wait, on_allowed, b);
    return wait == 0;
}

/* 1 = taken, 0 = stays in the ring */
static int serve(struct block *b, struct request *r)
{
    struct virtio_blk_outhdr h = {0};
    const struct iovec *last;
    int status;

    if (r->c.in_bytes == 0) {
        virtio_broken(&b->v, "a request without room for its status");
        return 0;
    }
    last = &r->c.iov[r->c.n_out + r->c.n_in - 1];
    r->status = (uint8_t *)last->iov_base + last->iov_len - 1;
    r->b = b;
    r->bytes = 0;
    r->io.done = on_done;
    if (chain_get(&r->c, 0, &h, sizeof(h)) < 0) {
        answer(b, r, VIRTIO_BLK_S_IOERR, 0);
        return 1;
    }
    r->type = h.type;
    status = judge(r, &h);
    if (status >= 0) {
        answer(b, r, (uint8_t)status, status == VIRTIO_BLK_S_OK ? r->bytes : 0);
        return 1;
    }
    if (!allowed(r)) {
        virtq_unpop(&b->v.q[0]);
        return 0;
    }
    disk_start(b->disk, &r->io);
    return 1;
}

static void run(struct block *b)
{
    uint32_t n = 0;
    int r = 0;

    if (b->running)
        return;
    b->running = 1; /* on_done() of what needs no I/O comes while this is on the stack */
    for (; n < BUDGET && b->n_free > 0 && virtio_live(&b->v); n++) {
        struct request *q = &b->r[b->free[b->n_free - 1]];

        r = virtq_pop(&b->v.q[0], &q->c);
        if (r <= 0)
            break;
        b->n_free--;
        if (serve(b, q) == 0) {
            b->free[b->n_free++] = (uint8_t)(q - b->r);
            break;
        }
    }
    b->running = 0;
    if (n == BUDGET)
        (void)loop_timer(b->v.loop, 1, on_allowed, b);
    if (r < 0)
        virtio_broken(&b->v, "a descriptor chain that breaks the rules");
}

/* --------------------------------------------------------------------- the device */

static uint64_t features(void *self)
{
    const struct block *b = self;
    uint64_t f = 1ull << VIRTIO_BLK_F_SEG_MAX | 1ull << VIRTIO_BLK_F_BLK_SIZE |
                 1ull << VIRTIO_BLK_F_TOPOLOGY;

    if (b->read_only)
        return f | 1ull << VIRTIO_BLK_F_RO;
    return f | 1ull << VIRTIO_BLK_F_FLUSH | 1ull << VIRTIO_BLK_F_DISCARD |
           1ull << VIRTIO_BLK_F_WRITE_ZEROES;
}

static void config_read(void *self, uint32_t offset, void *out, unsigned len)
{
    const struct block *b = self;

    memcpy(out, (const uint8_t *)&b->config + offset, len);
}

static void reset(void *self)
{
    struct block *b = self;

    (void)loop_timer(b->v.loop, 0, on_allowed, b);
    disk_drain(b->disk);
}

static void kick(void *self, uint32_t queue)
{
    struct block *b = self;

    (void)queue;
    run(b);
    disk_submit(b->disk);
    virtio_irq_queue(&b->v, 0);
}

static int drain(void *self)
{
    struct block *b = self;
    int r;

    (void)loop_timer(b->v.loop, 0, on_allowed, b);
    r = disk_settle(b->disk);
    virtio_irq_queue(&b->v, 0);
    return r;
}

static const struct virtio_ops ops = {.name = "disk",
                                      .id = VIRTIO_ID_BLOCK,
                                      .n_queues = 1,
                                      .queue_max = VIRTIO_QUEUE_MAX,
                                      .config_len = sizeof(struct virtio_blk_config),
                                      .features = features,
                                      .config_read = config_read,
                                      .reset = reset,
                                      .kick = kick,
                                      .drain = drain};

static void fill_config(struct block *b, uint64_t bytes)
{
    b->config.capacity = bytes >> SECTOR_BITS;
    b->config.seg_max = SEGMENTS;
    b->config.blk_size = 1u << SECTOR_BITS;
    b->config.physical_block_exp = 3; /* pages of the host */
    b->config.min_io_size = PAGE_SECTORS;
    b->config.opt_io_size = (uint32_t)(LAYER_CLUSTER >> SECTOR_BITS);
    if (b->read_only)
        return;
    b->config.max_discard_sectors = DISCARD_SECTORS;
    b->config.max_discard_seg = 1;
    b->config.discard_sector_alignment = PAGE_SECTORS;
    b->config.max_write_zeroes_sectors = DISK_ZEROES_MAX >> SECTOR_BITS;
    b->config.max_write_zeroes_seg = 1;
    b->config.write_zeroes_may_unmap = 1;
}

struct block *block_new(const struct virtio_bind *bind, uint32_t number, const char *serial,
                        const int *borrow_layer_fds, uint32_t n_layers, uint64_t bytes,
                        int read_only)
{
    struct block *b = calloc(1, sizeof(*b));
    uint32_t i;
    int r;

    if (!b)
        return NULL;
    b->read_only = read_only;
    strncpy(b->serial, serial, sizeof(b->serial) - 1);
    bytes &= ~(uint64_t)((1u << SECTOR_BITS) - 1);
    fill_config(b, bytes);
    b->r = calloc(DEPTH, sizeof(*b->r));
    if (b->r)
        b->disk =
            disk_new(bind->loop, borrow_layer_fds, n_layers, bytes, DEPTH, read_only, on_idle, b);
    if (!b->disk) {
        r = b->r ? errno : ENOMEM;
        block_free(b);
        errno = r;
        return NULL;
    }
    for (i = DEPTH; i > 0; i--)
        b->free[b->n_free++] = (uint8_t)(i - 1);
    r = virtio_init(&b->v, &ops, b, number, bind);
    if (r == 0)
        return b;
    block_free(b);
    errno = -r;
    return NULL;
}

int block_fill(struct block *b, const int *borrow_layer_fds, uint32_t n_layers)
{
    return disk_fill(b->disk, borrow_layer_fds, n_layers);
}

void block_limit(struct block *b, uint64_t read_bps, uint64_t write_bps)
{
    uint64_t now = limiter_now();

    limiter_set(&b->reads, read_bps, now);
    limiter_set(&b->writes, write_bps, now);
    on_allowed(b);
}

struct virtio *block_virtio(struct block *b)
{
    return &b->v;
}

void block_figures(const struct block *b, uint64_t *ret_read, uint64_t *ret_written)
{
    *ret_read = b->bytes_read;
    *ret_written = b->bytes_written;
}

void block_free(struct block *b)
{
    if (!b)
        return;
    if (b->v.ops)
        (void)loop_timer(b->v.loop, 0, on_allowed, b);
    disk_free(b->disk);
    virtio_fini(&b->v);
    free(b->r);
    free(b);
}
