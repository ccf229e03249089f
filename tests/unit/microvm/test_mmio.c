/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* mmio.c and mmio_state.c under a device that keeps what it gets. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "toy.h"

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

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, toy_setup, toy_teardown)
    const struct CMUnitTest tests[] = {
        T(test_identity),     T(test_status_in_order),      T(test_queue_fields_when_allowed),
        T(test_queue_judged), T(test_pending_before_start), T(test_quiet),
        T(test_ioeventfd),    T(test_config_interrupt),     T(test_save_load),
        T(test_load_judged)};
    alarm(60); /* a loop of the guest's must not become one of ours */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
