/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* block.c and disk.c over one file. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/virtio_blk.h>

#include "disk.h"
#include "disk_world.h"

/* ------------------------------------------------------------------------- one file */

static void test_read_write(void **state)
{
    struct world w;
    uint64_t r, n;
    char c;

    (void)state;
    start(&w, 1, 0);
    assert_bytes(&w, 0, 4096, 'a');
    assert_int_equal(write_bytes(&w, 4096, 65536, 'b'), 0);
    assert_bytes(&w, 4096, 65536, 'b');
    assert_bytes(&w, 0, 4096, 'a');
    assert_bytes(&w, 4096 + 65536, 4096, 'a');
    assert_int_equal(pread(w.fd[0], &c, 1, 4096), 1);
    assert_int_equal(c, 'b');
    assert_true(drv_irqs(&w.d) > 0);
    block_figures(w.b, &r, &n);
    assert_int_equal(n, 65536);
    assert_int_equal(r, 3 * 4096 + 65536);
    assert_int_equal(request(&w, VIRTIO_BLK_T_FLUSH, 0, 0, 0), VIRTIO_BLK_S_OK);
    assert_int_equal(request(&w, 99, 0, DATA, 512), VIRTIO_BLK_S_UNSUPP);
    stop(&w);
}

static void test_bounds(void **state)
{
    struct world w;
    uint64_t last = DISK / 512 - 1;

    (void)state;
    start(&w, 1, 0);
    assert_int_equal(request(&w, VIRTIO_BLK_T_IN, last, DATA, 512), VIRTIO_BLK_S_OK);
    assert_int_equal(request(&w, VIRTIO_BLK_T_IN, last, DATA, 1024), VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(&w, VIRTIO_BLK_T_IN, last + 1, DATA, 512), VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(&w, VIRTIO_BLK_T_IN, 0, DATA, 511), VIRTIO_BLK_S_IOERR);
    /* where sector << 9, or sector + count, would come round to the disk again */
    assert_int_equal(request(&w, VIRTIO_BLK_T_IN, 1ull << 55, DATA, 512), VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(&w, VIRTIO_BLK_T_OUT, 1ull << 55, DATA, 512), VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(&w, VIRTIO_BLK_T_OUT, UINT64_MAX, DATA, 1024), VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(&w, VIRTIO_BLK_T_OUT, last, DATA, 1024), VIRTIO_BLK_S_IOERR);
    assert_int_equal(zero_request(&w, VIRTIO_BLK_T_DISCARD, DISK - 512, 1024, 0),
                     VIRTIO_BLK_S_IOERR);
    assert_int_equal(zero_request(&w, VIRTIO_BLK_T_WRITE_ZEROES, DISK - 512, 1024, 0),
                     VIRTIO_BLK_S_IOERR);
    assert_int_equal(zero_request(&w, VIRTIO_BLK_T_WRITE_ZEROES, 0, 17 * MIB, 0),
                     VIRTIO_BLK_S_IOERR);
    assert_int_equal(zero_request(&w, VIRTIO_BLK_T_DISCARD, 0, 512, 1), VIRTIO_BLK_S_UNSUPP);
    assert_int_equal(zero_request(&w, VIRTIO_BLK_T_WRITE_ZEROES, 0, 512, 2), VIRTIO_BLK_S_UNSUPP);
    assert_bytes(&w, 0, 4096, 'a');
    assert_bytes(&w, DISK - 512, 512, 'a');
    stop(&w);
}

static void test_read_only(void **state)
{
    struct world w;

    (void)state;
    start(&w, 1, 1);
    assert_true(block_virtio(w.b)->driver_features & 1ull << VIRTIO_BLK_F_RO);
    assert_bytes(&w, 0, 4096, 'a');
    assert_int_equal(write_bytes(&w, 0, 4096, 'b'), VIRTIO_BLK_S_IOERR);
    assert_int_equal(zero_request(&w, VIRTIO_BLK_T_DISCARD, 0, 4096, 0), VIRTIO_BLK_S_IOERR);
    assert_int_equal(zero_request(&w, VIRTIO_BLK_T_WRITE_ZEROES, 0, 4096, 1), VIRTIO_BLK_S_IOERR);
    assert_bytes(&w, 0, 4096, 'a');
    assert_int_equal(request(&w, VIRTIO_BLK_T_FLUSH, 0, 0, 0), VIRTIO_BLK_S_OK);
    stop(&w);
}

static void test_identity(void **state)
{
    struct world w;
    struct virtio_blk_config c;
    unsigned i;

    (void)state;
    start(&w, 1, 0);
    assert_int_equal(request(&w, VIRTIO_BLK_T_GET_ID, 0, DATA, 20), VIRTIO_BLK_S_OK);
    assert_string_equal(drv_at(&w.d, DATA), "cella-rw");
    assert_int_equal(request(&w, VIRTIO_BLK_T_GET_ID, 0, DATA, 19), VIRTIO_BLK_S_IOERR);
    for (i = 0; i < sizeof(c); i += 4)
        bus_read(&w.d.bus, w.d.base + VIRTIO_MMIO_CONFIG + i, (uint8_t *)&c + i, 4);
    assert_int_equal(c.capacity, DISK / 512);
    stop(&w);
}

/* 2.7.4: a request may be cut anywhere. */
static void test_framing(void **state)
{
    struct world w;
    struct virtio_blk_outhdr h = {.type = VIRTIO_BLK_T_OUT, .sector = 1};
    struct piece out[] = {{HEAD, 3, 0}, {HEAD + 3, 13 + 100, 0}, {DATA, 412, 0}, {STATUS, 1, 1}};
    struct piece in[] = {{HEAD, 16, 0}, {DATA, 100, 1}, {DATA + 100, 413, 1}};
    struct piece none[] = {{HEAD, 16, 0}}, little[] = {{HEAD, 15, 0}, {STATUS, 1, 1}};
    uint32_t len;

    (void)state;
    start(&w, 1, 0);
    memset(drv_at(&w.d, HEAD), 'x', 200);
    memset(drv_at(&w.d, DATA), 'y', 512);
    memcpy(drv_at(&w.d, HEAD), &h, sizeof(h));
    drv_add(&w.d, 0, out, 4);
    drv_kick(&w.d, 0);
    assert_true(drv_wait(&w.d, 0, &len) >= 0);
    assert_int_equal(*(uint8_t *)drv_at(&w.d, STATUS), 0);
    h.type = VIRTIO_BLK_T_IN;
    memcpy(drv_at(&w.d, HEAD), &h, sizeof(h));
    memset(drv_at(&w.d, DATA), 0x55, 513);
    drv_add(&w.d, 0, in, 3);
    drv_kick(&w.d, 0);
    assert_true(drv_wait(&w.d, 0, &len) >= 0);
    assert_int_equal(len, 513);
    assert_memory_equal(drv_at(&w.d, DATA + 98), "xxyy", 4);
    assert_int_equal(*(uint8_t *)drv_at(&w.d, DATA + 512), 0); /* the status */
    drv_add(&w.d, 0, little, 2);
    drv_kick(&w.d, 0);
    assert_true(drv_wait(&w.d, 0, &len) >= 0);
    assert_int_equal(*(uint8_t *)drv_at(&w.d, STATUS), VIRTIO_BLK_S_IOERR);
    assert_false(block_virtio(w.b)->broken);
    drv_add(&w.d, 0, none, 1);
    drv_kick(&w.d, 0);
    assert_true(block_virtio(w.b)->broken);
    drv_start(&w.d, block_virtio(w.b), ALL, 1);
    assert_bytes(&w, 0, 512, 'a');
    stop(&w);
}

static void test_space_given_back(void **state)
{
    struct world w;
    uint64_t before;

    (void)state;
    start(&w, 1, 0);
    before = used(w.fd[0]);
    assert_true(before >= 8 * MIB);
    assert_int_equal(zero_request(&w, VIRTIO_BLK_T_DISCARD, 0, 2 * MIB, 0), 0);
    assert_true(used(w.fd[0]) <= before - 2 * MIB);
    assert_int_equal(zero_request(&w, VIRTIO_BLK_T_WRITE_ZEROES, 2 * MIB, 2 * MIB, 1), 0);
    assert_true(used(w.fd[0]) <= before - 4 * MIB);
    assert_bytes(&w, 2 * MIB, 65536, 0);
    assert_int_equal(zero_request(&w, VIRTIO_BLK_T_WRITE_ZEROES, 4 * MIB, 2 * MIB, 0), 0);
    assert_true(used(w.fd[0]) > before - 5 * MIB); /* nothing to be given back */
    assert_bytes(&w, 5 * MIB, 65536, 0);
    assert_bytes(&w, 6 * MIB, 65536, 'a');
    stop(&w);
}

static void test_many_at_once(void **state)
{
    struct world w;
    uint32_t len, i, round;

    (void)state;
    start(&w, 1, 0);
    for (round = 0; round < 20; round++) {
        for (i = 0; i < 21; i++) /* 63 of 64 descriptors */
            add(&w, VIRTIO_BLK_T_IN, i, DATA + 512 * i, 512);
        drv_kick(&w.d, 0);
        for (i = 0; i < 21; i++)
            assert_true(drv_wait(&w.d, 0, &len) >= 0);
        assert_int_equal(*(uint8_t *)drv_at(&w.d, DATA + 512 * 20), 'a');
    }
    /* reset and drain while requests run */
    for (i = 0; i < 21; i++)
        add(&w, VIRTIO_BLK_T_IN, i, DATA + 512 * i, 512);
    drv_kick(&w.d, 0);
    drv_start(&w.d, block_virtio(w.b), ALL, 1);
    for (i = 0; i < 21; i++)
        add(&w, VIRTIO_BLK_T_OUT, i, DATA + 512 * i, 512);
    drv_kick(&w.d, 0);
    assert_int_equal(virtio_drain(block_virtio(w.b)), 0);
    assert_true(drv_irqs(&w.d) > 0);
    for (i = 0; i < 21; i++) {
        uint32_t head;
        assert_int_equal(drv_used(&w.d, 0, &head, &len), 1);
    }
    stop(&w);
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void test_limit(void **state)
{
    struct world w;
    uint64_t t;
    uint32_t i;

    (void)state;
    start(&w, 1, 0);
    block_limit(w.b, 1 * MIB, 4 * MIB);
    t = now_ms();
    for (i = 0; i < 8; i++)
        assert_bytes(&w, i * 65536, 65536, 'a');
    t = now_ms() - t; /* 512 KiB, a tenth of a MiB and one request in advance */
    assert_in_range(t, 250, 5000);
    block_limit(w.b, 0, 0);
    t = now_ms();
    for (i = 0; i < 320; i++) /* twenty seconds' worth */
        assert_bytes(&w, i % 8 * 65536, 65536, 'a');
    assert_true(now_ms() - t < 18000);
    stop(&w);
}

static void test_save_load(void **state)
{
    struct world w;
    struct state_out o = {0};
    struct state_in i;
    uint32_t len;

    (void)state;
    start(&w, 1, 0);
    assert_int_equal(write_bytes(&w, 0, 4096, 'b'), 0);
    block_limit(w.b, 1, 1);
    assert_bytes(&w, 0, 512, 'b');
    add(&w, VIRTIO_BLK_T_IN, 0, DATA, 512); /* not allowed yet: stays in the ring */
    drv_kick(&w.d, 0);
    assert_int_equal(virtio_drain(block_virtio(w.b)), 0);
    virtio_save(block_virtio(w.b), &o);
    block_free(w.b);
    memset(&w.d.bus, 0, sizeof(w.d.bus));
    w.b = block_new(&w.d.bind, DEV_RW, "cella-rw", w.fd, 1, DISK, 0);
    state_open(&i, o.data, o.len);
    assert_int_equal(virtio_load(block_virtio(w.b), &i), 0);
    w.d.v = block_virtio(w.b);
    memset(drv_at(&w.d, DATA), 0, 512);
    virtio_resume(block_virtio(w.b));
    assert_true(drv_wait(&w.d, 0, &len) >= 0);
    assert_int_equal(*(uint8_t *)drv_at(&w.d, DATA), 'b');
    state_out_free(&o);
    stop(&w);
}

/* A guest that knows no FLUSH: each write is durable when it is answered. That it still is answered, once. */
static void test_write_through(void **state)
{
    struct world w;
    uint32_t len;

    (void)state;
    start(&w, 2, 0);
    drv_start(&w.d, block_virtio(w.b), 0, 1);
    assert_int_equal(write_bytes(&w, 0, 4096, 'b'), 0);
    assert_bytes(&w, 0, 4096, 'b');
    uint8_t bits;
    assert_int_equal(pread(w.fd[1], &bits, 1, LAYER_BLOCK), 1);
    assert_int_equal(bits, 1);
    assert_int_equal(drv_used(&w.d, 0, &len, &len), 0);
    stop(&w);
}

/* Who asks again whenever he is answered does not have the loop for himself. */
struct again {
    struct disk *d;
    struct disk_io io;
    struct iovec iov;
    char sector[512];
    int asked;
};

static void answered(struct disk_io *io, int code)
{
    (void)io;
    assert_int_equal(code, 0);
}

static void asks_again(void *self)
{
    struct again *a = self;

    if (a->asked++ > 1000)
        return;
    a->io =
        (struct disk_io){.op = DISK_READ, .end = 512, .iov = &a->iov, .n_iov = 1, .done = answered};
    disk_start(a->d, &a->io);
}

static int asked_enough(void *ctx)
{
    return ((struct again *)ctx)->asked > 1000;
}

static void test_never_ends(void **state)
{
    struct again a = {.iov = {a.sector, sizeof(a.sector)}};
    struct drv d;
    int fd = new_file(DISK);

    (void)state;
    assert_int_equal(drv_init(&d), 0);
    a.d = disk_new(d.loop, &fd, 1, DISK, 4, 1, asks_again, &a);
    assert_non_null(a.d);
    asks_again(&a);
    disk_submit(a.d);
    assert_in_range(a.asked, 1, 50);
    drv_run(&d, 60000, asked_enough, &a);
    assert_true(asked_enough(&a));
    disk_free(a.d);
    drv_fini(&d);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_write),   cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_read_only),    cmocka_unit_test(test_identity),
        cmocka_unit_test(test_framing),      cmocka_unit_test(test_space_given_back),
        cmocka_unit_test(test_many_at_once), cmocka_unit_test(test_limit),
        cmocka_unit_test(test_save_load),    cmocka_unit_test(test_write_through),
        cmocka_unit_test(test_never_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
