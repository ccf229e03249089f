/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * balloon - virtio-balloon (VIRTIO 1.2, 5.5): inflate, deflate, and the reporting of free pages.
 *
 * Every page number of the guest is judged by itself: one that is no RAM breaks the device before anything is
 * given back. Pages that follow each other are given back together: of a private mapping each hole costs the host
 * a mapping of its own. What is given back is only ever the guest's: it reads zeros there.
 *
 * Free pages are reported on queue 4 (5.5.2); drivers that count only the queues that they have use 2 for it. No driver uses
 * both, and neither the statistics nor the hints that the other could be for are offered, so both are served.
 *
 * What a guest says of its balloon is a figure, no promise. Threads: the caller has the machine's lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <linux/virtio_balloon.h>
#include <linux/virtio_ids.h>

#include "devices.h"

#define PAGE_BITS VIRTIO_BALLOON_PFN_SHIFT
#define LIST_MAX 4096u /* page numbers in one request */
#define BUDGET 64u     /* requests at once */
#define AGAIN_NS 1u

enum queue { INFLATE, DEFLATE, REPORT_PACKED, HINT, REPORT, N_QUEUES };

struct balloon {
    struct virtio v;
    uint64_t ram_pages, taken; /* taken: what was inflated and not deflated */
    uint32_t num_pages, actual;
    struct chain c;
};

/* Judges all of the list, then gives it back in runs. */
static int inflate(struct balloon *b, const uint32_t *pfn, uint32_t n)
{
    uint32_t i, run;

    for (i = 0; i < n; i++)
        if (!ram_at(b->v.ram, (uint64_t)pfn[i] << PAGE_BITS, 1u << PAGE_BITS))
            return -EPROTO;
    for (i = 0; i < n; i += run) {
        for (run = 1; i + run < n && pfn[i + run] == pfn[i] + run; run++)
            ;
        /* What cannot be given back now stays the guest's memory. */
        if (!ram_at(b->v.ram, (uint64_t)pfn[i] << PAGE_BITS, (uint64_t)run << PAGE_BITS))
            run = 1; /* from low to high memory */
        (void)ram_discard(b->v.ram, (uint64_t)pfn[i] << PAGE_BITS, (uint64_t)run << PAGE_BITS);
    }
    b->taken = b->taken + n < b->ram_pages ? b->taken + n : b->ram_pages;
    return 0;
}

static int list(struct balloon *b, uint32_t queue)
{
    uint32_t pfn[LIST_MAX], n = (uint32_t)(b->c.out_bytes / sizeof(*pfn));

    if (b->c.out_bytes % sizeof(*pfn) != 0 || b->c.out_bytes > sizeof(pfn) || n == 0 ||
        chain_get(&b->c, 0, pfn, b->c.out_bytes) < 0)
        return -EPROTO;
    if (queue == INFLATE)
        return inflate(b, pfn, n);
    b->taken = b->taken > n ? b->taken - n : 0;
    return 0;
}

/* 5.5.6.7: the buffers are the free pages themselves. ram_discard() takes whole pages only. */
static int report(struct balloon *b)
{
    uint32_t i;

    if (b->c.n_out > 0)
        return -EPROTO;
    for (i = 0; i < b->c.n_in; i++)
        (void)ram_discard(b->v.ram, ram_gpa(b->v.ram, b->c.iov[i].iov_base), b->c.iov[i].iov_len);
    return 0;
}

static void run_queue(struct balloon *b, uint32_t queue);

static void on_again(void *self)
{
    struct balloon *b = self;
    uint32_t i;

    for (i = 0; i < N_QUEUES; i++)
        if (virtio_live(&b->v))
            run_queue(b, i);
}

static void run_queue(struct balloon *b, uint32_t queue)
{
    uint32_t n = 0;
    int r = 0;

    while (n < BUDGET && (r = virtq_pop(&b->v.q[queue], &b->c)) == 1) {
        if (queue == INFLATE || queue == DEFLATE)
            r = list(b, queue);
        else
            r = queue == HINT ? -EPROTO : report(b);
        if (r < 0)
            break;
        virtq_push(&b->v.q[queue], b->c.head, 0);
        n++;
    }
    if (r < 0)
        virtio_broken(&b->v, "a list of pages that breaks the rules");
    else if (n == BUDGET)
        (void)loop_timer(b->v.loop, AGAIN_NS, on_again, b);
    virtio_irq_queue(&b->v, queue);
}

/* --------------------------------------------------------------------- the device */

static uint64_t features(void *self)
{
    (void)self;
    return 1ull << VIRTIO_BALLOON_F_DEFLATE_ON_OOM | 1ull << VIRTIO_BALLOON_F_REPORTING;
}

static void config_read(void *self, uint32_t offset, void *out, unsigned len)
{
    const struct balloon *b = self;
    struct virtio_balloon_config c = {.num_pages = b->num_pages, .actual = b->actual};

    memcpy(out, (const uint8_t *)&c + offset, len);
}

/* `actual` is the driver's, as a whole; the rest is not. */
static void config_write(void *self, uint32_t offset, const void *in, unsigned len)
{
    struct balloon *b = self;

    if (offset == offsetof(struct virtio_balloon_config, actual) && len == sizeof(b->actual))
        memcpy(&b->actual, in, sizeof(b->actual));
}

static void reset(void *self)
{
    struct balloon *b = self;

    (void)loop_timer(b->v.loop, 0, on_again, b);
    b->actual = 0;
    b->taken = 0; /* 5.5.6: the driver has the pages again */
}

static void kick(void *self, uint32_t queue)
{
    run_queue(self, queue);
}

static void save(void *self, struct state_out *o)
{
    const struct balloon *b = self;

    state_put_u32(o, b->num_pages);
    state_put_u32(o, b->actual);
    state_put_u64(o, b->taken);
}

static void load(void *self, struct state_in *i)
{
    struct balloon *b = self;

    b->num_pages = state_get_u32(i);
    b->actual = state_get_u32(i);
    b->taken = state_get_max(i, b->ram_pages);
    if (b->num_pages > b->ram_pages) {
        b->num_pages = 0;
        i->bad = 1;
    }
}

static const struct virtio_ops ops = {.name = "balloon",
                                      .id = VIRTIO_ID_BALLOON,
                                      .n_queues = N_QUEUES,
                                      .queue_max = VIRTIO_QUEUE_MAX,
                                      .config_len = 8,
                                      .features = features,
                                      .config_read = config_read,
                                      .config_write = config_write,
                                      .reset = reset,
                                      .kick = kick,
                                      .save = save,
                                      .load = load};

struct balloon *balloon_new(const struct virtio_bind *bind, uint32_t number, uint64_t ram_bytes)
{
    struct balloon *b = calloc(1, sizeof(*b));
    int r;

    if (!b)
        return NULL;
    b->ram_pages = ram_bytes >> PAGE_BITS;
    r = virtio_init(&b->v, &ops, b, number, bind);
    if (r == 0)
        return b;
    free(b);
    errno = -r;
    return NULL;
}

int balloon_leave(struct balloon *b, uint64_t bytes)
{
    uint64_t leave = bytes >> PAGE_BITS;

    if (b->ram_pages - (leave < b->ram_pages ? leave : b->ram_pages) > UINT32_MAX)
        return -ERANGE;
    b->num_pages = leave < b->ram_pages ? (uint32_t)(b->ram_pages - leave) : 0;
    virtio_irq_config(&b->v);
    return 0;
}

uint64_t balloon_taken(const struct balloon *b)
{
    return b->taken << PAGE_BITS;
}

struct virtio *balloon_virtio(struct balloon *b)
{
    return &b->v;
}

void balloon_free(struct balloon *b)
{
    if (!b)
        return;
    (void)loop_timer(b->v.loop, 0, on_again, b);
    virtio_fini(&b->v);
    free(b);
}
