/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* queue.c under a device that keeps what it gets. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "toy.h"

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

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, toy_setup, toy_teardown)
    const struct CMUnitTest tests[] = {
        T(test_requests), T(test_indices_wrap), T(test_event_idx),           T(test_bad_chains),
        T(test_indirect), T(test_unpop),        cmocka_unit_test(test_slice)};
    alarm(60); /* a loop of the guest's must not become one of ours */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
