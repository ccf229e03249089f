/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* queue.c, mmio.c and mmio_state.c under a device that keeps what it gets and answers with 'A's. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "driver.h"
#include "limiter.h"

#define EVENT_IDX (1ull << VIRTIO_RING_F_EVENT_IDX)
#define INDIRECT (1ull << VIRTIO_RING_F_INDIRECT_DESC)
#define RUNNING                                                                                    \
    (VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK |          \
     VIRTIO_CONFIG_S_DRIVER_OK)

struct toy {
    struct virtio v;
    int served, kicks, resets, activations, hold;
    struct chain last;
    char got[64];
    uint32_t config[2], saved;
};

static uint64_t toy_features(void *self)
{
    (void)self;
    return 1ull << 3;
}

static void toy_config_read(void *self, uint32_t offset, void *out, unsigned len)
{
    memcpy(out, (uint8_t *)((struct toy *)self)->config + offset, len);
}

static void toy_config_write(void *self, uint32_t offset, const void *in, unsigned len)
{
    memcpy((uint8_t *)((struct toy *)self)->config + offset, in, len);
}

static int toy_activate(void *self)
{
    ((struct toy *)self)->activations++;
    return 0;
}

static void toy_reset(void *self)
{
    ((struct toy *)self)->resets++;
}

static void toy_kick(void *self, uint32_t queue)
{
    struct toy *t = self;
    int r = 0;

    t->kicks++;
    while (!t->hold && (r = virtq_pop(&t->v.q[queue], &t->last)) == 1) {
        uint64_t n = t->last.out_bytes < 63 ? t->last.out_bytes : 63;
        char a[512];
        memset(a, 'A', sizeof(a));
        memset(t->got, 0, sizeof(t->got));
        assert_int_equal(chain_get(&t->last, 0, t->got, n), 0);
        if (t->last.in_bytes <= sizeof(a))
            assert_int_equal(chain_put(&t->last, 0, a, t->last.in_bytes), 0);
        t->served++;
        virtq_push(&t->v.q[queue], t->last.head, (uint32_t)t->last.in_bytes);
    }
    if (r < 0)
        virtio_broken(&t->v, "rules");
    virtio_irq_queue(&t->v, queue);
}

static void toy_save(void *self, struct state_out *o)
{
    state_put_u32(o, ((struct toy *)self)->saved);
}

static void toy_load(void *self, struct state_in *i)
{
    ((struct toy *)self)->saved = state_get_u32(i);
}

static const struct virtio_ops toy_ops = {.name = "toy",
                                          .id = 42,
                                          .n_queues = 2,
                                          .queue_max = 128,
                                          .config_len = 8,
                                          .features = toy_features,
                                          .config_read = toy_config_read,
                                          .config_write = toy_config_write,
                                          .activate = toy_activate,
                                          .reset = toy_reset,
                                          .kick = toy_kick,
                                          .save = toy_save,
                                          .load = toy_load};

struct world {
    struct drv d;
    struct toy t;
};

static int setup(void **state)
{
    static struct world w;

    memset(&w, 0, sizeof(w));
    assert_int_equal(drv_init(&w.d), 0);
    assert_int_equal(virtio_init(&w.t.v, &toy_ops, &w.t, 2, &w.d.bind), 0);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    virtio_fini(&w->t.v);
    drv_fini(&w->d);
    return 0;
}

static const struct piece hello[] = {{DRV_BUFFERS, 5, 0}, {DRV_BUFFERS + 4096, 8, 1}};

static void put_hello(struct world *w)
{
    memcpy(drv_at(&w->d, DRV_BUFFERS), "hello", 5);
    memset(drv_at(&w->d, DRV_BUFFERS + 4096), 0, 16);
}

/* The ring still works: a whole request goes through. */
static void assert_works(struct world *w)
{
    uint32_t head, len;
    int before = w->t.served;

    put_hello(w);
    drv_add(&w->d, 0, hello, 2);
    drv_kick(&w->d, 0);
    assert_int_equal(w->t.served, before + 1);
    assert_string_equal(w->t.got, "hello");
    assert_int_equal(drv_used(&w->d, 0, &head, &len), 1);
    assert_int_equal(len, 8);
    assert_memory_equal(drv_at(&w->d, DRV_BUFFERS + 4096), "AAAAAAAA\0", 9);
}

/* It does not any more, and does after a reset. */
static void assert_broken(struct world *w)
{
    int before = w->t.served;

    assert_true(w->t.v.broken);
    assert_true(drv_get(&w->d, VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_NEEDS_RESET);
    drv_kick(&w->d, 0);
    assert_int_equal(w->t.served, before);
    drv_start(&w->d, &w->t.v, EVENT_IDX | INDIRECT, 2);
    assert_works(w);
}

static void test_identity(void **state)
{
    struct world *w = *state;
    uint64_t v64;
    uint8_t v8;
    uint16_t v16 = 0x1122;

    drv_negotiate(&w->d, &w->t.v, 0);
    assert_int_equal(drv_get(&w->d, VIRTIO_MMIO_MAGIC_VALUE), 0x74726976);
    assert_int_equal(drv_get(&w->d, VIRTIO_MMIO_VERSION), 2);
    assert_int_equal(drv_get(&w->d, VIRTIO_MMIO_DEVICE_ID), 42);
    drv_set(&w->d, VIRTIO_MMIO_QUEUE_SEL, 1);
    assert_int_equal(drv_get(&w->d, VIRTIO_MMIO_QUEUE_NUM_MAX), 128);
    drv_set(&w->d, VIRTIO_MMIO_QUEUE_SEL, 2);
    assert_int_equal(drv_get(&w->d, VIRTIO_MMIO_QUEUE_NUM_MAX), 0);
    drv_set(&w->d, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 7);
    assert_int_equal(drv_get(&w->d, VIRTIO_MMIO_DEVICE_FEATURES), 0);
    /* registers are 32 bits wide, and aligned; the configuration is bytes, and as long as it is */
    bus_read(&w->d.bus, w->d.base + VIRTIO_MMIO_MAGIC_VALUE, &v8, 1);
    assert_int_equal(v8, 0);
    bus_read(&w->d.bus, w->d.base + 2, &v64, 4);
    assert_int_equal((uint32_t)v64, 0);
    bus_write(&w->d.bus, w->d.base + VIRTIO_MMIO_CONFIG + 2, &v16, 2);
    assert_int_equal(w->t.config[0], 0x11220000);
    bus_read(&w->d.bus, w->d.base + VIRTIO_MMIO_CONFIG, &v64, 8);
    assert_int_equal(v64, 0x11220000);
    bus_write(&w->d.bus, w->d.base + VIRTIO_MMIO_CONFIG + 7, &v16, 2);
    bus_read(&w->d.bus, w->d.base + VIRTIO_MMIO_CONFIG + 4, &v64, 8);
    assert_int_equal(v64, 0);
    assert_int_equal(w->t.config[1], 0);
}

static void test_status_in_order(void **state)
{
    struct world *w = *state;
    struct drv *d = &w->d;

    d->base = VIRTIO_MMIO_BASE + 2 * VIRTIO_MMIO_SIZE;
    drv_set(d, VIRTIO_MMIO_STATUS, VIRTIO_CONFIG_S_DRIVER);
    assert_int_equal(drv_get(d, VIRTIO_MMIO_STATUS), 0);
    drv_set(d, VIRTIO_MMIO_STATUS, RUNNING);
    assert_int_equal(drv_get(d, VIRTIO_MMIO_STATUS), 0);
    drv_set(d, VIRTIO_MMIO_STATUS, 3);
    drv_set(d, VIRTIO_MMIO_STATUS, RUNNING & ~VIRTIO_CONFIG_S_FEATURES_OK);
    assert_int_equal(drv_get(d, VIRTIO_MMIO_STATUS), 3);
    drv_set(d, VIRTIO_MMIO_STATUS, 1); /* nothing is taken back */
    assert_int_equal(drv_get(d, VIRTIO_MMIO_STATUS), 3);
    /* without VERSION_1, or with what nobody offered, there is no FEATURES_OK */
    drv_set(d, VIRTIO_MMIO_STATUS, 11);
    assert_int_equal(drv_get(d, VIRTIO_MMIO_STATUS), 3);
    drv_set(d, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
    drv_set(d, VIRTIO_MMIO_DRIVER_FEATURES, 1);
    drv_set(d, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
    drv_set(d, VIRTIO_MMIO_DRIVER_FEATURES, 1 << 4);
    drv_set(d, VIRTIO_MMIO_STATUS, 11);
    assert_int_equal(drv_get(d, VIRTIO_MMIO_STATUS), 3);
    drv_set(d, VIRTIO_MMIO_DRIVER_FEATURES, 1 << 3);
    drv_set(d, VIRTIO_MMIO_STATUS, 11);
    assert_int_equal(drv_get(d, VIRTIO_MMIO_STATUS), 11);
    /* fixed from here on */
    drv_set(d, VIRTIO_MMIO_DRIVER_FEATURES, 0);
    assert_int_equal(w->t.v.driver_features, 1ull << VIRTIO_F_VERSION_1 | 1 << 3);
    assert_int_equal(w->t.activations, 0);
    drv_set(d, VIRTIO_MMIO_STATUS, RUNNING);
    assert_int_equal(w->t.activations, 1);
    drv_set(d, VIRTIO_MMIO_STATUS, RUNNING);
    assert_int_equal(w->t.activations, 1);
    drv_set(d, VIRTIO_MMIO_STATUS, 0);
    assert_int_equal(drv_get(d, VIRTIO_MMIO_STATUS), 0);
    assert_int_equal(w->t.v.active, 0);
}

static void test_queue_fields_when_allowed(void **state)
{
    struct world *w = *state;
    struct drv *d = &w->d;

    d->base = VIRTIO_MMIO_BASE + 2 * VIRTIO_MMIO_SIZE;
    drv_queue(d, 0, 64); /* before FEATURES_OK: ignored */
    assert_int_equal(w->t.v.q[0].size, 0);
    assert_int_equal(w->t.v.q[0].ready, 0);
    drv_start(d, &w->t.v, 0, 2);
    assert_int_equal(w->t.v.q[0].size, 64);
    drv_queue(d, 0, 32); /* after DRIVER_OK: ignored, too */
    assert_int_equal(w->t.v.q[0].size, 64);
    drv_set(d, VIRTIO_MMIO_QUEUE_READY, 0);
    assert_int_equal(drv_get(d, VIRTIO_MMIO_QUEUE_READY), 0);
    drv_set(d, VIRTIO_MMIO_QUEUE_NUM, 32);
    drv_set(d, VIRTIO_MMIO_QUEUE_READY, 1);
    assert_int_equal(w->t.v.q[0].size, 64);
    assert_int_equal(drv_get(d, VIRTIO_MMIO_QUEUE_READY), 0);
    put_hello(w);
    drv_add(d, 0, hello, 2);
    drv_kick(d, 0);
    assert_int_equal(w->t.served, 0); /* a queue that was taken back */
    drv_start(d, &w->t.v, 0, 2);
    assert_works(w);
}

static void bad_queue(struct world *w, uint64_t reg, uint32_t value)
{
    struct drv *d = &w->d;

    drv_negotiate(d, &w->t.v, 0);
    drv_queue(d, 1, 64);
    drv_queue(d, 0, 64);
    drv_set(d, VIRTIO_MMIO_QUEUE_READY, 0);
    drv_set(d, reg, value);
    drv_set(d, VIRTIO_MMIO_QUEUE_READY, 1);
    drv_set(d, VIRTIO_MMIO_STATUS, RUNNING);
    assert_int_equal(w->t.v.active, 0);
    assert_broken(w);
}

static void test_queue_judged(void **state)
{
    struct world *w = *state;
    uint32_t end = (uint32_t)DRV_RAM;

    bad_queue(w, VIRTIO_MMIO_QUEUE_NUM, 0);
    bad_queue(w, VIRTIO_MMIO_QUEUE_NUM, 63);
    bad_queue(w, VIRTIO_MMIO_QUEUE_NUM, 256);
    bad_queue(w, VIRTIO_MMIO_QUEUE_NUM, 65536 + 64);
    bad_queue(w, VIRTIO_MMIO_QUEUE_DESC_LOW, 0x100008);
    bad_queue(w, VIRTIO_MMIO_QUEUE_DESC_LOW, end - 64 * 16 + 16);
    bad_queue(w, VIRTIO_MMIO_QUEUE_DESC_HIGH, 1);
    bad_queue(w, VIRTIO_MMIO_QUEUE_AVAIL_LOW, 0x104001);
    bad_queue(w, VIRTIO_MMIO_QUEUE_AVAIL_LOW, end - 6 - 2 * 64 + 2);
    bad_queue(w, VIRTIO_MMIO_QUEUE_AVAIL_HIGH, 0xffffffff);
    bad_queue(w, VIRTIO_MMIO_QUEUE_USED_LOW, 0x108002);
    bad_queue(w, VIRTIO_MMIO_QUEUE_USED_LOW, end - 6 - 8 * 64 + 4);
    bad_queue(w, VIRTIO_MMIO_QUEUE_USED_LOW, 0xfffffffc);
}

static void test_requests(void **state)
{
    struct world *w = *state;
    int i;

    drv_start(&w->d, &w->t.v, 0, 2);
    for (i = 0; i < 40; i++) /* twice round the descriptors */
        assert_works(w);
    assert_int_equal(drv_irqs(&w->d), 40);
    assert_int_equal(drv_get(&w->d, VIRTIO_MMIO_INTERRUPT_STATUS), 1);
    drv_set(&w->d, VIRTIO_MMIO_INTERRUPT_ACK, 1);
    assert_int_equal(drv_get(&w->d, VIRTIO_MMIO_INTERRUPT_STATUS), 0);
    *(uint16_t *)drv_at(&w->d, DRV_QUEUE_AT(0) + 0x4000) = VRING_AVAIL_F_NO_INTERRUPT;
    assert_works(w);
    assert_int_equal(drv_irqs(&w->d), 0);
}

static void test_indices_wrap(void **state)
{
    struct world *w = *state;
    struct drv *d = &w->d;
    uint32_t i;

    drv_start(d, &w->t.v, EVENT_IDX, 2);
    for (i = 0; i < 65536 + 10; i++) {
        uint32_t head, len;
        uint16_t *used_event = drv_at(d, DRV_QUEUE_AT(0) + 0x4000 + 4 + 2 * DRV_SIZE);
        *used_event = (uint16_t)i;
        drv_add(d, 0, hello, 2);
        drv_kick(d, 0);
        if (!drv_used(d, 0, &head, &len) || drv_irqs(d) != 1)
            fail();
    }
    assert_int_equal(w->t.served, 65536 + 10);
}

static void test_event_idx(void **state)
{
    struct world *w = *state;
    struct drv *d = &w->d;
    uint16_t *used_event = drv_at(d, DRV_QUEUE_AT(0) + 0x4000 + 4 + 2 * DRV_SIZE);
    uint16_t *avail_event = drv_at(d, DRV_QUEUE_AT(0) + 0x8000 + 4 + 8 * DRV_SIZE);

    drv_start(d, &w->t.v, EVENT_IDX, 2);
    *used_event = 2; /* interrupt when the third is used */
    assert_works(w);
    assert_works(w);
    assert_int_equal(drv_irqs(d), 0);
    assert_works(w);
    assert_int_equal(drv_irqs(d), 1);
    assert_works(w);
    assert_int_equal(drv_irqs(d), 0);
    assert_int_equal(*avail_event, 4); /* a kick for the fifth, please */
}

static void bad_chain(struct world *w)
{
    drv_offer(&w->d, 0, 0);
    drv_kick(&w->d, 0);
    assert_int_equal(w->t.served, 0);
    assert_broken(w);
    w->t.served = 0;
    drv_start(&w->d, &w->t.v, INDIRECT, 2);
}

static void test_bad_chains(void **state)
{
    struct world *w = *state;
    struct drv *d = &w->d;

    drv_start(d, &w->t.v, INDIRECT, 2);
    drv_desc(d, 0, 0, DRV_RAM - 4, 5, 0, 0); /* one byte too far */
    bad_chain(w);
    drv_desc(d, 0, 0, 0xfffffffffffffff0ull, 32, 0, 0);
    bad_chain(w);
    drv_desc(d, 0, 0, RAM_HOLE + 0x1000, 4, VRING_DESC_F_WRITE, 0);
    bad_chain(w);
    drv_desc(d, 0, 0, DRV_BUFFERS, 4, VRING_DESC_F_NEXT, 64); /* past the table */
    bad_chain(w);
    drv_desc(d, 0, 0, DRV_BUFFERS, 4, VRING_DESC_F_NEXT, 0); /* a loop */
    bad_chain(w);
    drv_desc(d, 0, 0, DRV_BUFFERS, 0, VRING_DESC_F_NEXT, 1); /* a loop of nothing */
    drv_desc(d, 0, 1, DRV_BUFFERS, 0, VRING_DESC_F_NEXT, 0);
    bad_chain(w);
    drv_desc(d, 0, 0, DRV_BUFFERS, 4, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE, 1);
    drv_desc(d, 0, 1, DRV_BUFFERS, 4, 0, 0); /* to read, after to write */
    bad_chain(w);
    drv_offer(d, 0, 64); /* a head past the table */
    drv_kick(d, 0);
    assert_int_equal(w->t.served, 0);
    assert_broken(w);
    drv_start(d, &w->t.v, 0, 2);
    *(uint16_t *)drv_at(d, DRV_QUEUE_AT(0) + 0x4002) = 65; /* more than the ring can hold */
    w->t.served = 0;
    drv_kick(d, 0);
    assert_int_equal(w->t.served, 0);
    assert_broken(w);
    /* The longest chain that there may be, with pieces of length 0 that are dropped */
    drv_start(d, &w->t.v, 0, 2);
    w->t.served = 0;
    for (uint16_t i = 0; i < 64; i++)
        drv_desc(d, 0, i, i % 2 ? DRV_BUFFERS : 0xffffffffffffffffull, i % 2,
                 i < 63 ? VRING_DESC_F_NEXT : 0, i + 1);
    drv_offer(d, 0, 0);
    drv_kick(d, 0);
    assert_int_equal(w->t.served, 1);
    assert_int_equal(w->t.last.n_out, 32);
    assert_int_equal(w->t.last.out_bytes, 32);
}

static void indirect_entry(struct drv *d, uint32_t i, uint64_t at, uint32_t len, uint16_t flags,
                           uint16_t next)
{
    struct vring_desc v = {.addr = at, .len = len, .flags = flags, .next = next};

    memcpy(drv_at(d, DRV_BUFFERS + 0x8000 + 16ull * i), &v, sizeof(v));
}

static void test_indirect(void **state)
{
    struct world *w = *state;
    struct drv *d = &w->d;
    uint64_t table = DRV_BUFFERS + 0x8000;
    uint32_t i;

    drv_start(d, &w->t.v, INDIRECT, 2);
    for (i = 0; i < CHAIN_MAX; i++)
        indirect_entry(d, i, DRV_BUFFERS, 1, i + 1 < CHAIN_MAX ? VRING_DESC_F_NEXT : 0,
                       (uint16_t)(i + 1));
    drv_desc(d, 0, 0, table, 16 * CHAIN_MAX, VRING_DESC_F_INDIRECT | VRING_DESC_F_WRITE, 0);
    drv_offer(d, 0, 0);
    drv_kick(d, 0);
    assert_int_equal(w->t.served, 1);
    assert_int_equal(w->t.last.n_out, CHAIN_MAX);
    /* a chain may have an indirect table at its end */
    indirect_entry(d, 0, DRV_BUFFERS, 3, VRING_DESC_F_WRITE, 0);
    drv_desc(d, 0, 1, DRV_BUFFERS, 2, VRING_DESC_F_NEXT, 0);
    drv_desc(d, 0, 0, table, 16, VRING_DESC_F_INDIRECT, 0);
    drv_offer(d, 0, 1);
    drv_kick(d, 0);
    assert_int_equal(w->t.served, 2);
    assert_int_equal(w->t.last.in_bytes, 3);
    w->t.served = 0;
    drv_start(d, &w->t.v, INDIRECT, 2);
    indirect_entry(d, 0, table, 16, VRING_DESC_F_INDIRECT, 0); /* two levels */
    drv_desc(d, 0, 0, table, 16, VRING_DESC_F_INDIRECT, 0);
    bad_chain(w);
    drv_desc(d, 0, 0, table, 0, VRING_DESC_F_INDIRECT, 0);
    bad_chain(w);
    drv_desc(d, 0, 0, table, 17, VRING_DESC_F_INDIRECT, 0);
    bad_chain(w);
    drv_desc(d, 0, 0, table, 16 * (CHAIN_MAX + 1), VRING_DESC_F_INDIRECT, 0);
    bad_chain(w);
    drv_desc(d, 0, 0, DRV_RAM - 16, 32, VRING_DESC_F_INDIRECT, 0);
    bad_chain(w);
    indirect_entry(d, 0, DRV_BUFFERS, 1, VRING_DESC_F_NEXT, 1); /* past its table */
    drv_desc(d, 0, 0, table, 16, VRING_DESC_F_INDIRECT, 0);
    bad_chain(w);
    indirect_entry(d, 0, DRV_BUFFERS, 1, 0, 0);
    drv_desc(d, 0, 0, table, 16, VRING_DESC_F_INDIRECT | VRING_DESC_F_NEXT, 0);
    bad_chain(w);
    drv_start(d, &w->t.v, 0, 2); /* nor without having asked for it */
    drv_desc(d, 0, 0, table, 16, VRING_DESC_F_INDIRECT, 0);
    drv_offer(d, 0, 0);
    drv_kick(d, 0);
    assert_int_equal(w->t.served, 0);
    assert_broken(w);
}

static void test_unpop(void **state)
{
    struct world *w = *state;
    struct chain c;

    drv_start(&w->d, &w->t.v, 0, 2);
    w->t.hold = 1;
    drv_add(&w->d, 0, hello, 2);
    assert_int_equal(virtq_pop(&w->t.v.q[0], &c), 1);
    virtq_unpop(&w->t.v.q[0]);
    w->t.hold = 0;
    drv_kick(&w->d, 0);
    assert_int_equal(w->t.served, 1);
}

static void test_pending_before_start(void **state)
{
    struct world *w = *state;
    struct drv *d = &w->d;

    drv_negotiate(d, &w->t.v, 0);
    drv_queue(d, 1, 64);
    drv_queue(d, 0, 64);
    drv_add(d, 0, hello, 2);
    drv_kick(d, 0);
    assert_int_equal(w->t.served, 0);
    drv_set(d, VIRTIO_MMIO_STATUS, RUNNING);
    assert_int_equal(w->t.served, 1);
    drv_kick(d, 77); /* no such queue */
    assert_int_equal(w->t.v.broken, 0);
}

static void test_quiet(void **state)
{
    struct world *w = *state;

    drv_start(&w->d, &w->t.v, 0, 2);
    assert_int_equal(virtio_drain(&w->t.v), 0);
    put_hello(w);
    drv_add(&w->d, 0, hello, 2);
    drv_kick(&w->d, 0);
    assert_int_equal(w->t.served, 0);
    virtio_resume(&w->t.v);
    assert_int_equal(w->t.served, 1);
    assert_int_equal(virtio_drain(&w->t.v), 0);
    drv_start(&w->d, &w->t.v, 0, 2); /* a reset is a new life */
    assert_works(w);
}

static int bound_queues, bound_irq;
static int bind_kick(void *ctx, uint64_t address, uint32_t queue, int fd)
{
    (void)ctx;
    (void)fd;
    assert_int_equal(address, VIRTIO_MMIO_BASE + 3 * VIRTIO_MMIO_SIZE + 0x50);
    assert_int_equal(queue, bound_queues++);
    return 0;
}

static int bind_irq(void *ctx, uint32_t gsi, int fd)
{
    (void)ctx;
    (void)fd;
    assert_int_equal(gsi, VIRTIO_GSI_BASE + 3);
    bound_irq++;
    return 0;
}

static int has_served(void *ctx)
{
    return ((struct toy *)ctx)->served > 0;
}

static void test_ioeventfd(void **state)
{
    struct world *w = *state;
    struct toy t = {0};
    uint64_t one = 1;

    w->d.bind.kick_bind = bind_kick;
    w->d.bind.irq_bind = bind_irq;
    assert_int_equal(virtio_init(&t.v, &toy_ops, &t, 3, &w->d.bind), 0);
    assert_int_equal(bound_queues, 2);
    assert_int_equal(bound_irq, 1);
    drv_start(&w->d, &t.v, 0, 2);
    drv_run(&w->d, 20, NULL, NULL);
    t.kicks = 0;
    drv_add(&w->d, 0, hello, 2);
    assert_int_equal(write(t.v.q[0].kick_fd, &one, 8), 8);
    drv_run(&w->d, 1000, has_served, &t);
    assert_int_equal(t.served, 1);
    assert_int_equal(t.kicks, 1);
    virtio_fini(&t.v);
    w->d.bind.kick_bind = NULL;
    w->d.bind.irq_bind = NULL;
}

static void test_config_interrupt(void **state)
{
    struct world *w = *state;
    uint32_t before;

    drv_start(&w->d, &w->t.v, 0, 2);
    before = drv_get(&w->d, VIRTIO_MMIO_CONFIG_GENERATION);
    virtio_irq_config(&w->t.v);
    assert_int_equal(drv_get(&w->d, VIRTIO_MMIO_CONFIG_GENERATION), before + 1);
    assert_int_equal(drv_get(&w->d, VIRTIO_MMIO_INTERRUPT_STATUS), 2);
    assert_int_equal(drv_irqs(&w->d), 1);
}

/* The device after a load in the place of w->t; the guest's memory is the same. */
static int load(struct world *w, struct toy *t, const struct state_out *o, size_t len)
{
    static struct bus bus;
    struct virtio_bind b = w->d.bind;
    struct state_in i;

    memset(&bus, 0, sizeof(bus));
    b.bus = &bus;
    memset(t, 0, sizeof(*t));
    assert_int_equal(virtio_init(&t->v, &toy_ops, t, 2, &b), 0);
    state_open(&i, o->data, len);
    return virtio_load(&t->v, &i);
}

static void test_save_load(void **state)
{
    struct world *w = *state;
    struct state_out o = {0};
    struct toy t;
    uint32_t head, len;
    size_t n, bad = 0;

    drv_start(&w->d, &w->t.v, EVENT_IDX | INDIRECT, 2);
    assert_works(w);
    assert_works(w);
    w->t.saved = 4711;
    w->t.hold = 1;
    drv_add(&w->d, 0, hello, 2);
    drv_kick(&w->d, 0); /* seen by the old one, served by the new one */
    virtio_save(&w->t.v, &o);
    assert_int_equal(load(w, &t, &o, o.len), 0);
    assert_int_equal(t.saved, 4711);
    assert_int_equal(t.activations, 1);
    assert_int_equal(t.served, 0);
    assert_true(t.v.quiet);
    virtio_resume(&t.v);
    assert_int_equal(t.served, 1);
    assert_int_equal(drv_used(&w->d, 0, &head, &len), 1);
    virtio_fini(&t.v);
    for (n = 0; n < o.len; n++) { /* cut short */
        assert_int_equal(load(w, &t, &o, n), -EINVAL);
        virtio_fini(&t.v);
    }
    for (n = 0; n < o.len * 8; n++) { /* one bit wrong: refused, or harmless */
        o.data[n / 8] ^= (uint8_t)(1 << (n % 8));
        if (load(w, &t, &o, o.len) == 0)
            virtio_resume(&t.v);
        else
            bad++;
        virtio_fini(&t.v);
        o.data[n / 8] ^= (uint8_t)(1 << (n % 8));
    }
    assert_true(bad > o.len * 8 / 2);
    state_out_free(&o);
}

static void test_load_judged(void **state)
{
    struct world *w = *state;
    struct state_out o = {0};
    struct toy t;

    drv_start(&w->d, &w->t.v, 0, 2);
    w->t.v.q[0].desc = DRV_RAM - 16;
    virtio_save(&w->t.v, &o);
    assert_int_equal(load(w, &t, &o, o.len), -EINVAL);
    assert_int_equal(t.v.active, 0);
    virtio_fini(&t.v);
    state_out_free(&o);
    drv_start(&w->d, &w->t.v, 0, 2);
    virtio_broken(&w->t.v, "test");
    virtio_save(&w->t.v, &o);
    assert_int_equal(load(w, &t, &o, o.len), 0);
    assert_int_equal(t.v.broken, 1);
    virtio_resume(&t.v);
    assert_int_equal(t.kicks, 0);
    virtio_fini(&t.v);
    state_out_free(&o);
}

static void test_slice(void **state)
{
    char a[10], b[10];
    struct iovec v[2] = {{a, 10}, {b, 10}}, out[2];

    (void)state;
    assert_int_equal(iov_slice(v, 2, 5, 10, out), 2);
    assert_ptr_equal(out[0].iov_base, a + 5);
    assert_int_equal(out[0].iov_len, 5);
    assert_ptr_equal(out[1].iov_base, b);
    assert_int_equal(out[1].iov_len, 5);
    assert_int_equal(iov_slice(v, 2, 10, 3, out), 1);
    assert_ptr_equal(out[0].iov_base, b);
    assert_int_equal(iov_slice(v, 2, 20, 3, out), 0);
}

static void test_limiter(void **state)
{
    struct limiter l = {0};
    uint64_t now = 1000, wait;
    uint64_t taken = 0, end;

    (void)state;
    assert_int_equal(limiter_take(&l, 1u << 30, now), 0); /* no limit */
    limiter_set(&l, 1000000, now);
    for (end = now + 2000000000u; now < end;) {
        wait = limiter_take(&l, 65536, now);
        if (wait == 0)
            taken += 65536;
        else
            now += wait;
    }
    assert_in_range(taken, 1950000,
                    2300000); /* two seconds, a tenth in advance, one request of debt */
    limiter_set(&l, 10, now); /* so slow that a call gains less than a byte */
    while (limiter_take(&l, 1, now) == 0)
        ;
    for (end = now + 1000000000u, taken = 0; now < end; now += 1000000)
        if (limiter_take(&l, 1, now) == 0)
            taken++;
    assert_in_range(taken, 8, 11);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {T(test_identity),
                                       T(test_status_in_order),
                                       T(test_queue_fields_when_allowed),
                                       T(test_queue_judged),
                                       T(test_requests),
                                       T(test_indices_wrap),
                                       T(test_event_idx),
                                       T(test_bad_chains),
                                       T(test_indirect),
                                       T(test_unpop),
                                       T(test_pending_before_start),
                                       T(test_quiet),
                                       T(test_ioeventfd),
                                       T(test_config_interrupt),
                                       T(test_save_load),
                                       T(test_load_judged),
                                       cmocka_unit_test(test_slice),
                                       cmocka_unit_test(test_limiter)};
    alarm(60); /* a loop of the guest's must not become one of ours */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
