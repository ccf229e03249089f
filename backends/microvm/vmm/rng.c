/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * rng - virtio-rng (VIRTIO 1.2, 5.4): the kernel's random bytes, at most CHUNK for one request and RATE a second, so
 * that a guest cannot keep the VMM thread busy with it. What the rate does not allow yet stays in the ring. The rate
 * counts bytes, and a request for one takes longer than that byte is worth: so BUDGET bounds the requests, too.
 * Threads: the caller has the machine's lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <linux/virtio_ids.h>

#include "devices.h"
#include "limiter.h"

#define CHUNK 4096u
#define RATE (1u << 20)
#define BUDGET 48u /* requests before others have their turn */

struct rng {
    struct virtio v;
    struct limiter limit;
    struct chain c;
};

/* @seccomp vmm: getrandom */
static void run(void *self)
{
    struct rng *r = self;
    uint8_t bytes[CHUNK];
    uint64_t n, wait;
    uint32_t served = 0;
    int got = 0;

    if (!virtio_live(&r->v))
        return;
    while (served < BUDGET && (got = virtq_pop(&r->v.q[0], &r->c)) == 1) {
        if (r->c.n_out > 0 || r->c.n_in == 0) { /* 5.4.6.1 */
            virtio_broken(&r->v, "a request with something to read, or nothing to fill");
            return;
        }
        n = r->c.in_bytes < CHUNK ? r->c.in_bytes : CHUNK;
        wait = limiter_take(&r->limit, n, limiter_now());
        if (wait > 0) {
            virtq_unpop(&r->v.q[0]);
            (void)loop_timer(r->v.loop, wait, run, r);
            break;
        }
        if (getrandom(bytes, n, 0) != (ssize_t)n || chain_put(&r->c, 0, bytes, n) < 0)
            n = 0;
        virtq_push(&r->v.q[0], r->c.head, (uint32_t)n);
        served++;
    }
    if (got < 0)
        virtio_broken(&r->v, "a descriptor chain that breaks the rules");
    else if (served == BUDGET)
        (void)loop_timer(r->v.loop, 1, run, r);
    explicit_bzero(bytes, sizeof(bytes));
    virtio_irq_queue(&r->v, 0);
}

static uint64_t features(void *self)
{
    (void)self;
    return 0;
}

static void config_read(void *self, uint32_t offset, void *out, unsigned len)
{
    (void)self;
    (void)offset;
    memset(out, 0, len);
}

static void reset(void *self)
{
    struct rng *r = self;

    (void)loop_timer(r->v.loop, 0, run, r);
}

static void kick(void *self, uint32_t queue)
{
    (void)queue;
    run(self);
}

static const struct virtio_ops ops = {.name = "rng",
                                      .id = VIRTIO_ID_RNG,
                                      .n_queues = 1,
                                      .queue_max = 64,
                                      .config_len = 0,
                                      .features = features,
                                      .config_read = config_read,
                                      .reset = reset,
                                      .kick = kick};

struct rng *rng_new(const struct virtio_bind *bind, uint32_t number)
{
    struct rng *r = calloc(1, sizeof(*r));
    int e;

    if (!r)
        return NULL;
    limiter_set(&r->limit, RATE, limiter_now());
    e = virtio_init(&r->v, &ops, r, number, bind);
    if (e == 0)
        return r;
    free(r);
    errno = -e;
    return NULL;
}

struct virtio *rng_virtio(struct rng *r)
{
    return &r->v;
}

void rng_free(struct rng *r)
{
    if (!r)
        return;
    reset(r);
    virtio_fini(&r->v);
    free(r);
}
