/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* layers.c and disk_walk.c: a writable file over others. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/io_uring.h>
#include <linux/virtio_blk.h>

#include "disk_world.h"

/* --------------------------------------------------------------------------- layers */

static void test_layers(void **state)
{
    struct world w;
    uint8_t bits = 0;
    char c = 0;

    (void)state;
    start(&w, 3, 0);
    assert_bytes(&w, 0, 1 * MIB, 'a');
    assert_int_equal(write_bytes(&w, 65536 + 4096, 512, 'b'), 0); /* within a cluster */
    assert_bytes(&w, 65536, 4096, 'a');
    assert_bytes(&w, 65536 + 4096, 512, 'b');
    assert_bytes(&w, 65536 + 4608, 65536 - 4608, 'a');
    assert_int_equal(write_bytes(&w, 3 * 65536 - 512, 2 * 65536 + 1024, 'c'), 0); /* over four */
    assert_bytes(&w, 2 * 65536, 65536 - 512, 'a');
    assert_bytes(&w, 3 * 65536 - 512, 2 * 65536 + 1024, 'c');
    assert_bytes(&w, 5 * 65536 + 512, 65536 - 512, 'a');
    assert_int_equal(write_bytes(&w, DISK - 512, 512, 'd'), 0); /* the short last one */
    assert_bytes(&w, DISK - 512, 512, 'd');
    /* nobody below was touched */
    assert_int_equal(pread(w.fd[0], &c, 1, 65536 + 4096), 1);
    assert_int_equal(c, 'a');
    assert_true(used(w.fd[1]) <= 65536);
    /* the bitmap is the file's only after a flush */
    assert_int_equal(pread(w.fd[2], &bits, 1, LAYER_BLOCK), 1);
    assert_int_equal(bits, 0);
    assert_int_equal(request(&w, VIRTIO_BLK_T_FLUSH, 0, 0, 0), VIRTIO_BLK_S_OK);
    assert_int_equal(pread(w.fd[2], &bits, 1, LAYER_BLOCK), 1);
    assert_int_equal(bits, 0x3e);
    reopen(&w);
    assert_bytes(&w, 65536 + 4096, 512, 'b');
    assert_bytes(&w, 65536, 4096, 'a');
    assert_bytes(&w, 3 * 65536 - 512, 2 * 65536 + 1024, 'c');
    assert_bytes(&w, DISK - 512, 512, 'd');
    stop(&w);
}

static int ring_of_this(void)
{
    char path[32], target[64];
    int fd, ring = -1;

    for (fd = 3; fd < 100; fd++) {
        ssize_t n;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        n = readlink(path, target, sizeof(target) - 1);
        if (n > 0 && !strncmp(target, "anon_inode:[io_uring]", (size_t)n))
            ring = fd;
    }
    assert_true(ring >= 0);
    return ring;
}

static long ring_register(unsigned what)
{
    int none = -1;
    struct io_uring_files_update up = {.offset = 15, .fds = (uintptr_t)&none};
    struct iovec buffer = {&none, sizeof(none)};

    return syscall(SYS_io_uring_register, ring_of_this(), what,
                   what == IORING_REGISTER_BUFFERS ? (void *)&buffer : (void *)&up, 1);
}

/* What the ring may still be given, by whoever has taken the program over. */
static void test_layers_ring(void **state)
{
    struct world w;

    (void)state;
    start(&w, 2, 0);
    assert_int_equal(ring_register(IORING_REGISTER_FILES_UPDATE), -1);
    assert_int_equal(errno, EACCES);
    stop(&w);
    memset(&w, 0, sizeof(w));
    assert_int_equal(drv_init(&w.d), 0);
    open_disk(&w, 0, 0);
    assert_int_equal(ring_register(IORING_REGISTER_FILES_UPDATE), 1);
    assert_int_equal(ring_register(IORING_REGISTER_BUFFERS), -1);
    assert_int_equal(errno, EACCES);
    stop(&w);
}

/* Files that come after the disk was made: it is as if it had had them from the start. */
static void test_layers_late(void **state)
{
    struct world w;
    int bad[3];

    (void)state;
    start(&w, 2, 0);
    assert_int_equal(write_bytes(&w, 65536, 512, 'b'), 0);
    assert_int_equal(block_fill(w.b, w.fd, 2), -EALREADY);
    block_free(w.b);
    w.fd[2] = new_file(0);
    assert_int_equal(layer_create(w.fd[2], DISK), 0);
    open_disk(&w, 0, 0);
    assert_int_equal(block_fill(w.b, w.fd, 0), -EINVAL);
    memcpy(bad, w.fd, sizeof(bad));
    bad[1] = w.fd[0]; /* no layer */
    assert_int_equal(block_fill(w.b, bad, 3), -EUCLEAN);
    assert_int_equal(block_fill(w.b, w.fd, 3), 0);
    assert_bytes(&w, 65536, 512, 'b');
    assert_bytes(&w, 65536 + 512, 65536, 'a');
    assert_int_equal(write_bytes(&w, 65536 + 512, 512, 'c'), 0);
    assert_int_equal(request(&w, VIRTIO_BLK_T_FLUSH, 0, 0, 0), VIRTIO_BLK_S_OK);
    w.n = 3;
    reopen(&w);
    assert_bytes(&w, 65536, 512, 'b');
    assert_bytes(&w, 65536 + 512, 512, 'c');
    stop(&w);
    memset(&w, 0, sizeof(w)); /* one that never gets any can go */
    assert_int_equal(drv_init(&w.d), 0);
    open_disk(&w, 0, 0);
    stop(&w);
}

/* A copy of a copy: the former top is read-only below the next. */
static void test_layers_of_layers(void **state)
{
    struct world w;

    (void)state;
    start(&w, 2, 0);
    assert_int_equal(write_bytes(&w, 0, 65536, 'b'), 0);
    assert_int_equal(write_bytes(&w, 65536, 512, 'b'), 0);
    block_free(w.b); /* makes durable */
    w.fd[2] = new_file(0);
    assert_int_equal(layer_create(w.fd[2], DISK), 0);
    open_disk(&w, 3, 0);
    assert_bytes(&w, 0, 65536 + 512, 'b');
    assert_int_equal(write_bytes(&w, 512, 512, 'c'), 0);
    assert_bytes(&w, 0, 512, 'b');
    assert_bytes(&w, 512, 512, 'c');
    assert_bytes(&w, 1024, 65536 - 512, 'b');
    assert_bytes(&w, 65536 + 512, 65536, 'a');
    stop(&w);
}

static void test_layers_at_once(void **state)
{
    struct world w;
    uint32_t i, len;

    (void)state;
    start(&w, 2, 0);
    memset(drv_at(&w.d, DATA), 'b', 512 * 20);
    for (i = 0; i < 20; i++) /* all of one cluster, none owned yet */
        add(&w, VIRTIO_BLK_T_OUT, 2 * i, DATA + 512 * i, 512);
    drv_kick(&w.d, 0);
    for (i = 0; i < 20; i++)
        assert_true(drv_wait(&w.d, 0, &len) >= 0);
    for (i = 0; i < 20; i++) {
        assert_bytes(&w, 1024 * i, 512, 'b');
        assert_bytes(&w, 1024 * i + 512, 512, 'a');
    }
    for (i = 0; i < 20; i++) /* more copies than there are buffers for */
        add(&w, VIRTIO_BLK_T_OUT, 128 * (i + 1) + 3, DATA, 512);
    memset(drv_at(&w.d, DATA), 'c', 512);
    drv_kick(&w.d, 0);
    for (i = 0; i < 20; i++)
        assert_true(drv_wait(&w.d, 0, &len) >= 0);
    for (i = 0; i < 20; i++) {
        assert_bytes(&w, 65536 * (i + 1), 512, 'a');
        assert_bytes(&w, 65536 * (i + 1) + 1536, 512, 'c');
    }
    stop(&w);
}

static void test_layers_zeroes(void **state)
{
    struct world w;
    uint64_t before;

    (void)state;
    start(&w, 2, 0);
    /* a discard of what is another's gives nothing back and hides nothing */
    assert_int_equal(zero_request(&w, VIRTIO_BLK_T_DISCARD, 0, 1 * MIB, 0), 0);
    assert_true(used(w.fd[0]) >= 8 * MIB);
    assert_int_equal(write_bytes(&w, 0, 1 * MIB, 'b'), 0);
    fsync(w.fd[1]);
    before = used(w.fd[1]);
    assert_int_equal(zero_request(&w, VIRTIO_BLK_T_DISCARD, 0, 512 * 1024, 0), 0);
    assert_true(used(w.fd[1]) <= before - 512 * 1024);
    assert_bytes(&w, 0, 65536, 0);
    assert_bytes(&w, 512 * 1024, 65536, 'b');
    /* zeros: whole and partial, of ours and of the lower's */
    assert_int_equal(zero_request(&w, VIRTIO_BLK_T_WRITE_ZEROES, 1 * MIB - 4096, 2 * MIB, 1), 0);
    assert_bytes(&w, 1 * MIB - 8192, 4096, 'b');
    assert_bytes(&w, 1 * MIB - 4096, 2 * MIB, 0);
    assert_bytes(&w, 3 * MIB - 4096, 8192, 'a');
    assert_int_equal(zero_request(&w, VIRTIO_BLK_T_WRITE_ZEROES, 4 * MIB - 512, 1 * MIB, 0), 0);
    assert_bytes(&w, 4 * MIB - 1024, 512, 'a');
    assert_bytes(&w, 4 * MIB - 512, 1 * MIB, 0);
    assert_bytes(&w, 5 * MIB - 512, 512, 'a');
    assert_int_equal(request(&w, VIRTIO_BLK_T_FLUSH, 0, 0, 0), VIRTIO_BLK_S_OK);
    reopen(&w);
    assert_bytes(&w, 1 * MIB - 4096, 2 * MIB, 0);
    assert_bytes(&w, 3 * MIB, 8192, 'a');
    stop(&w);
}

/* What may be on the disk after a crash before the flush: data of clusters without their bits. */
static void test_layers_crash(void **state)
{
    struct world w;

    (void)state;
    start(&w, 2, 0);
    fill(w.fd[1], 65536 + 2 * 65536, 65536, 'x'); /* cluster 2 of the layer, no bit */
    assert_bytes(&w, 2 * 65536, 65536, 'a');
    assert_int_equal(zero_request(&w, VIRTIO_BLK_T_WRITE_ZEROES, 2 * 65536, 65536, 1), 0);
    assert_bytes(&w, 2 * 65536, 65536, 0);
    fill(w.fd[1], 65536 + 3 * 65536, 65536, 'x');
    assert_int_equal(write_bytes(&w, 3 * 65536, 512, 'b'), 0);
    assert_bytes(&w, 3 * 65536 + 512, 65536 - 512, 'a');
    stop(&w);
}

static int opens(int *fds, uint32_t n, uint64_t bytes)
{
    struct layers l;
    int r = layers_open(&l, fds, n, bytes);

    if (r == 0)
        layers_close(&l);
    return r;
}

static void corrupt(int *fds, uint64_t at, uint8_t value)
{
    uint8_t was;

    assert_int_equal(pread(fds[1], &was, 1, (off_t)at), 1);
    assert_int_equal(pwrite(fds[1], &value, 1, (off_t)at), 1);
    assert_int_equal(opens(fds, 2, DISK), -EUCLEAN);
    assert_int_equal(pwrite(fds[1], &was, 1, (off_t)at), 1);
    assert_int_equal(opens(fds, 2, DISK), 0);
}

static void test_layer_judged(void **state)
{
    int fds[2] = {new_file(DISK), new_file(0)};
    uint64_t i;

    (void)state;
    assert_int_equal(layer_create(fds[1], 0), -EINVAL);
    assert_int_equal(layer_create(fds[1], 513), -EINVAL);
    assert_int_equal(layer_create(fds[1], LAYER_DISK_MAX + 512), -EINVAL);
    assert_int_equal(opens(fds, 2, DISK), -EUCLEAN); /* empty */
    assert_int_equal(layer_create(fds[1], DISK), 0);
    assert_int_equal(layer_create(fds[1], DISK), -EEXIST);
    assert_int_equal(opens(fds, 2, DISK), 0);
    assert_int_equal(opens(fds, 2, DISK - 512), -EUCLEAN);
    assert_int_equal(opens(fds, 2, DISK + 512), -EUCLEAN);
    assert_int_equal(opens(fds, 0, DISK), -EINVAL);
    assert_int_equal(opens(fds, 17, DISK), -EINVAL);
    for (i = 0; i < sizeof(struct layer_head) + 8; i++)
        corrupt(fds, i, 0xa5);
    corrupt(fds, LAYER_BLOCK - 1, 1);
    corrupt(fds, LAYER_BLOCK + 16, 2); /* a cluster past the end: there are 129 */
    corrupt(fds, LAYER_BLOCK + LAYER_BLOCK - 1, 0x80);
    assert_int_equal(ftruncate(fds[1], 65536 + DISK), 0);
    assert_int_equal(opens(fds, 2, DISK), -EUCLEAN);
    assert_int_equal(ftruncate(fds[0], DISK - 512), 0);
    assert_int_equal(opens(fds, 1, DISK), -EUCLEAN); /* the lowest is too short */
    close(fds[0]);
    close(fds[1]);
}

/* Random writes, zeros and discards of random lengths against a model, then the same after a reopen. */
static void test_layers_random(void **state)
{
    static uint8_t model[DISK], hidden[DISK / 512];
    struct world w;
    uint32_t round;
    uint64_t i;

    (void)state;
    start(&w, 3, 0);
    memset(model, 'a', sizeof(model));
    srandom(7);
    for (round = 0; round < 300; round++) {
        uint64_t at = (uint64_t)random() % (DISK / 512), n = 1 + (uint64_t)random() % 400;
        int what = (int)(random() % 4);
        if (n > DISK / 512 - at)
            n = DISK / 512 - at;
        if (what == 0) {
            assert_int_equal(
                zero_request(&w, VIRTIO_BLK_T_WRITE_ZEROES, at * 512, n * 512, round % 2), 0);
            memset(model + at * 512, 0, n * 512);
            memset(hidden + at, 0, n);
        } else if (what == 1) {
            assert_int_equal(zero_request(&w, VIRTIO_BLK_T_DISCARD, at * 512, n * 512, 0), 0);
            memset(hidden + at, 1, n);
        } else {
            char c = (char)('b' + round % 20);
            assert_int_equal(write_bytes(&w, at * 512, n * 512, c), 0);
            memset(model + at * 512, c, n * 512);
            memset(hidden + at, 0, n);
        }
        if (round == 150) {
            assert_int_equal(request(&w, VIRTIO_BLK_T_FLUSH, 0, 0, 0), 0);
            reopen(&w);
        }
    }
    for (i = 0; i < DISK / 512; i += 16) {
        uint64_t n = i + 16 <= DISK / 512 ? 16 : DISK / 512 - i, k;
        uint8_t *p = drv_at(&w.d, DATA);
        assert_int_equal(request(&w, VIRTIO_BLK_T_IN, i, DATA, (uint32_t)n * 512), 0);
        for (k = 0; k < n; k++)
            if (!hidden[i + k] && memcmp(p + k * 512, model + (i + k) * 512, 512) != 0)
                fail_msg("sector %llu", (unsigned long long)(i + k));
    }
    stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),         cmocka_unit_test(test_layers_late),
        cmocka_unit_test(test_layers_ring),    cmocka_unit_test(test_layers_of_layers),
        cmocka_unit_test(test_layers_at_once), cmocka_unit_test(test_layers_zeroes),
        cmocka_unit_test(test_layers_crash),   cmocka_unit_test(test_layer_judged),
        cmocka_unit_test(test_layers_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
