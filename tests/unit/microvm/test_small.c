/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* rng.c, balloon.c and limiter.c. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <linux/virtio_balloon.h>

#include "driver.h"
#include "limiter.h"

#define PAGE 4096ull
#define PFN(at) ((uint32_t)((at) / PAGE))
#define AREA (8ull << 20) /* pages that the tests give away */

static struct drv d;

static int setup(void **state)
{
    (void)state;
    return drv_init(&d);
}

static int teardown(void **state)
{
    (void)state;
    drv_fini(&d);
    return 0;
}

static uint64_t held(void)
{
    struct stat st;

    assert_int_equal(fstat(d.ram_fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

/* ------------------------------------------------------------------------------ rng */

static void test_rng(void **state)
{
    struct rng *r = rng_new(&d.bind, DEV_RNG);
    struct piece p = {DRV_BUFFERS, 64, 1}, large = {DRV_BUFFERS, 65536, 1};
    uint8_t before[64];
    uint32_t len;

    (void)state;
    assert_non_null(r);
    drv_start(&d, rng_virtio(r), 0, 1);
    drv_add(&d, 0, &p, 1);
    drv_kick(&d, 0);
    assert_true(drv_wait(&d, 0, &len) >= 0);
    assert_int_equal(len, 64);
    memcpy(before, drv_at(&d, DRV_BUFFERS), 64);
    drv_add(&d, 0, &p, 1);
    drv_kick(&d, 0);
    assert_true(drv_wait(&d, 0, &len) >= 0);
    assert_memory_not_equal(before, drv_at(&d, DRV_BUFFERS), 64);
    drv_add(&d, 0, &large, 1); /* as much as one request may have */
    drv_kick(&d, 0);
    assert_true(drv_wait(&d, 0, &len) >= 0);
    assert_int_equal(len, 4096);
    assert_true(drv_irqs(&d) > 0);
    rng_free(r);
}

static void test_rng_rate(void **state)
{
    struct rng *r = rng_new(&d.bind, DEV_RNG);
    struct piece large = {DRV_BUFFERS, 65536, 1};
    uint32_t len, head;
    int i, n = 0;

    (void)state;
    drv_start(&d, rng_virtio(r), 0, 1);
    for (i = 0; i < 50; i++)
        drv_add(&d, 0, &large, 1);
    drv_kick(&d, 0);
    while (drv_used(&d, 0, &head, &len))
        n++;
    assert_in_range(n, 20, 40); /* a tenth of a MiB at once */
    for (; n < 50; n++)
        assert_true(drv_wait(&d, 0, &len) >= 0); /* the rest in its time */
    rng_free(r);
}

/* Requests for a byte each, which the rate alone would let through for ever. */
static void test_rng_turns(void **state)
{
    struct rng *r = rng_new(&d.bind, DEV_RNG);
    struct piece one = {DRV_BUFFERS, 1, 1};
    uint32_t len, head;
    int i, n = 0;

    (void)state;
    drv_start(&d, rng_virtio(r), 0, 1);
    for (i = 0; i < 50; i++)
        drv_add(&d, 0, &one, 1);
    drv_kick(&d, 0);
    while (drv_used(&d, 0, &head, &len))
        n++;
    assert_int_equal(n, 48); /* others have their turn */
    for (; n < 50; n++)
        assert_true(drv_wait(&d, 0, &len) >= 0);
    rng_free(r);
}

static void test_rng_rules(void **state)
{
    struct rng *r = rng_new(&d.bind, DEV_RNG);
    struct piece out = {DRV_BUFFERS, 64, 0}, in = {DRV_BUFFERS, 64, 1};
    uint32_t len;

    (void)state;
    drv_start(&d, rng_virtio(r), 0, 1);
    drv_add(&d, 0, &out, 1);
    drv_kick(&d, 0);
    assert_true(rng_virtio(r)->broken);
    drv_start(&d, rng_virtio(r), 0, 1);
    drv_add(&d, 0, &in, 1);
    drv_kick(&d, 0);
    assert_true(drv_wait(&d, 0, &len) >= 0);
    rng_free(r);
}

/* -------------------------------------------------------------------------- balloon */

static int give(uint32_t queue, const uint32_t *pfn, uint32_t n)
{
    struct piece p = {DRV_BUFFERS, 4 * n, 0};
    uint32_t head, len;

    memcpy(drv_at(&d, DRV_BUFFERS), pfn, 4ull * n);
    drv_add(&d, queue, &p, 1);
    drv_kick(&d, queue);
    return drv_used(&d, queue, &head, &len);
}

static struct balloon *start(void)
{
    struct balloon *b = balloon_new(&d.bind, DEV_BALLOON, DRV_RAM);

    assert_non_null(b);
    drv_start(&d, balloon_virtio(b), ~0ull, 5);
    memset(drv_at(&d, AREA), 'x', 64 * PAGE);
    memset(drv_at(&d, DRV_BUFFERS), 0, 8 * PAGE);
    return b;
}

static void test_inflate(void **state)
{
    struct balloon *b = start();
    uint32_t pfn[] = {PFN(AREA), PFN(AREA) + 1, PFN(AREA) + 2, PFN(AREA) + 9};
    uint64_t before = held();

    (void)state;
    assert_int_equal(give(0, pfn, 4), 1);
    assert_int_equal(held(), before - 4 * PAGE);
    assert_int_equal(balloon_taken(b), 4 * PAGE);
    assert_int_equal(*(char *)drv_at(&d, AREA + 2 * PAGE), 0);
    assert_int_equal(*(char *)drv_at(&d, AREA + 3 * PAGE), 'x'); /* the neighbours' are kept */
    assert_int_equal(*(char *)drv_at(&d, AREA + 8 * PAGE + PAGE - 1), 'x');
    assert_int_equal(*(char *)drv_at(&d, AREA + 10 * PAGE), 'x');
    assert_int_equal(give(1, pfn, 3), 1);
    assert_int_equal(balloon_taken(b), PAGE);
    assert_int_equal(give(1, pfn, 4), 1); /* more than there was */
    assert_int_equal(balloon_taken(b), 0);
    balloon_free(b);
}

static void test_inflate_private(void **state)
{
    struct balloon *b = start();
    uint32_t pfn[] = {PFN(AREA), PFN(AREA) + 1};

    (void)state;
    assert_int_equal(ram_detach(&d.ram), 0);
    memset(drv_at(&d, AREA), 'y', 3 * PAGE);
    assert_int_equal(give(0, pfn, 2), 1);
    assert_int_equal(*(char *)drv_at(&d, AREA), 'x'); /* our copies are gone, the file's are not */
    assert_int_equal(*(char *)drv_at(&d, AREA + PAGE), 'x');
    assert_int_equal(*(char *)drv_at(&d, AREA + 2 * PAGE), 'y');
    balloon_free(b);
}

static void test_inflate_judged(void **state)
{
    struct balloon *b = start();
    uint32_t past[] = {PFN(AREA), PFN(DRV_RAM)}, far[] = {PFN(AREA), 0xffffffff};
    uint32_t good[] = {PFN(AREA)}, many[4097] = {0};
    uint64_t before = held();
    struct piece odd = {DRV_BUFFERS, 6, 0};

    (void)state;
    assert_int_equal(give(0, past, 2), 0);
    assert_true(balloon_virtio(b)->broken);
    assert_int_equal(*(char *)drv_at(&d, AREA), 'x'); /* nothing of the list */
    drv_start(&d, balloon_virtio(b), ~0ull, 5);
    assert_int_equal(give(0, far, 2), 0);
    assert_true(balloon_virtio(b)->broken);
    drv_start(&d, balloon_virtio(b), ~0ull, 5);
    assert_int_equal(give(0, many, 4097), 0);
    assert_true(balloon_virtio(b)->broken);
    drv_start(&d, balloon_virtio(b), ~0ull, 5);
    drv_add(&d, 0, &odd, 1);
    drv_kick(&d, 0);
    assert_true(balloon_virtio(b)->broken);
    drv_start(&d, balloon_virtio(b), ~0ull, 5);
    assert_int_equal(give(3, good, 1), 0); /* hints were not offered */
    assert_true(balloon_virtio(b)->broken);
    drv_start(&d, balloon_virtio(b), ~0ull, 5);
    assert_true(held() >= before);
    assert_int_equal(give(0, good, 1), 1);
    assert_int_equal(*(char *)drv_at(&d, AREA), 0);
    balloon_free(b);
}

static void report(uint32_t queue)
{
    struct balloon *b = start();
    struct piece p[] = {{AREA, 8 * PAGE, 1}, {AREA + 16 * PAGE + 1, 2 * PAGE, 1}};
    uint32_t head, len;
    uint64_t before = held();

    drv_add(&d, queue, p, 2);
    drv_kick(&d, queue);
    assert_int_equal(drv_used(&d, queue, &head, &len), 1);
    assert_int_equal(held(), before - 9 * PAGE);
    assert_int_equal(*(char *)drv_at(&d, AREA + 7 * PAGE), 0);
    assert_int_equal(*(char *)drv_at(&d, AREA + 8 * PAGE), 'x');
    assert_int_equal(*(char *)drv_at(&d, AREA + 16 * PAGE + 1), 'x'); /* not a whole page */
    assert_int_equal(*(char *)drv_at(&d, AREA + 17 * PAGE), 0);
    assert_int_equal(*(char *)drv_at(&d, AREA + 18 * PAGE), 'x');
    assert_int_equal(balloon_taken(b), 0);
    balloon_free(b);
}

static void test_report(void **state)
{
    (void)state;
    report(4);
}

static void test_report_packed(void **state)
{
    (void)state;
    report(2);
}

static void test_target(void **state)
{
    struct balloon *b = start();
    uint32_t actual = 77;

    (void)state;
    assert_int_equal(drv_get(&d, VIRTIO_MMIO_CONFIG), 0);
    assert_int_equal(balloon_leave(b, DRV_RAM - 10 * PAGE), 0);
    assert_int_equal(drv_get(&d, VIRTIO_MMIO_CONFIG), 10);
    assert_int_equal(drv_get(&d, VIRTIO_MMIO_INTERRUPT_STATUS), 2);
    assert_int_equal(balloon_leave(b, DRV_RAM * 2), 0);
    assert_int_equal(drv_get(&d, VIRTIO_MMIO_CONFIG), 0);
    drv_set(&d, VIRTIO_MMIO_CONFIG + 4, actual);
    assert_int_equal(drv_get(&d, VIRTIO_MMIO_CONFIG + 4), 77);
    drv_set(&d, VIRTIO_MMIO_CONFIG, 5); /* not the guest's */
    assert_int_equal(drv_get(&d, VIRTIO_MMIO_CONFIG), 0);
    balloon_free(b);
}

static void test_balloon_save_load(void **state)
{
    struct balloon *b = start(), *c;
    uint32_t pfn[] = {PFN(AREA), PFN(AREA) + 1};
    struct state_out o = {0};
    struct state_in i;

    (void)state;
    balloon_leave(b, DRV_RAM - 4 * PAGE);
    assert_int_equal(give(0, pfn, 2), 1);
    virtio_save(balloon_virtio(b), &o);
    balloon_free(b);
    memset(&d.bus, 0, sizeof(d.bus));
    c = balloon_new(&d.bind, DEV_BALLOON, DRV_RAM);
    state_open(&i, o.data, o.len);
    assert_int_equal(virtio_load(balloon_virtio(c), &i), 0);
    assert_int_equal(balloon_taken(c), 2 * PAGE);
    assert_int_equal(drv_get(&d, VIRTIO_MMIO_CONFIG), 4);
    balloon_free(c);
    memset(&d.bus, 0, sizeof(d.bus));
    c = balloon_new(&d.bind, DEV_BALLOON, DRV_RAM);
    memset(o.data + o.len - 8, 0x7f, 8); /* more taken than there is */
    state_open(&i, o.data, o.len);
    assert_int_equal(virtio_load(balloon_virtio(c), &i), -EINVAL);
    balloon_free(c);
    state_out_free(&o);
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
    const struct CMUnitTest tests[] = {T(test_rng),
                                       T(test_rng_rate),
                                       T(test_rng_turns),
                                       T(test_rng_rules),
                                       T(test_inflate),
                                       T(test_inflate_private),
                                       T(test_inflate_judged),
                                       T(test_report),
                                       T(test_report_packed),
                                       T(test_target),
                                       T(test_balloon_save_load),
                                       cmocka_unit_test(test_limiter)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
