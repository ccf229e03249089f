/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* block.c, disk.c and layers.c: a driver's requests against real files. */
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

#include "driver.h"
#include "layers.h"

#define MIB (1ull << 20)
#define DISK (8 * MIB + 512) /* the last cluster is a short one */
#define ALL (~0ull)
#define HEAD DRV_BUFFERS
#define STATUS (DRV_BUFFERS + 64)
#define DATA (DRV_BUFFERS + 4096)

struct world {
    struct drv d;
    struct block *b;
    int fd[4];
    uint32_t n, slot; /* header and status of each of 32 requests have their own place */
};

static int new_file(uint64_t bytes)
{
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0)
        fd = memfd_create("disk", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

static void fill(int fd, uint64_t at, uint64_t len, char c)
{
    char *p = malloc(len);

    memset(p, c, len);
    assert_int_equal(pwrite(fd, p, len, (off_t)at), (ssize_t)len);
    free(p);
}

static void open_disk(struct world *w, uint32_t n, int read_only)
{
    static const uint64_t offered = ALL;

    memset(&w->d.bus, 0, sizeof(w->d.bus));
    w->b = block_new(&w->d.bind, DEV_RW, "cella-rw", w->fd, n, DISK, read_only);
    assert_non_null(w->b);
    w->n = n;
    drv_start(&w->d, block_virtio(w->b), offered, 1);
}

/* n files: a lowest one full of 'a', layers over it. */
static void start(struct world *w, uint32_t n, int read_only)
{
    uint32_t i;

    memset(w, 0, sizeof(*w));
    assert_int_equal(drv_init(&w->d), 0);
    w->fd[0] = new_file(DISK);
    fill(w->fd[0], 0, DISK, 'a');
    for (i = 1; i < n; i++) {
        w->fd[i] = new_file(0);
        assert_int_equal(layer_create(w->fd[i], DISK), 0);
    }
    open_disk(w, n, read_only);
}

static void stop(struct world *w)
{
    uint32_t i;

    block_free(w->b);
    for (i = 0; i < w->n; i++)
        close(w->fd[i]);
    drv_fini(&w->d);
}

static void reopen(struct world *w)
{
    block_free(w->b);
    open_disk(w, w->n, 0);
}

static void add(struct world *w, uint32_t type, uint64_t sector, uint64_t at, uint32_t len)
{
    struct virtio_blk_outhdr h = {.type = type, .sector = sector};
    int in = type == VIRTIO_BLK_T_IN || type == VIRTIO_BLK_T_GET_ID;
    uint64_t place = 128ull * (w->slot++ % 32);
    struct piece p[] = {{HEAD + place, sizeof(h), 0}, {at, len, in}, {STATUS + place, 1, 1}};

    memcpy(drv_at(&w->d, HEAD + place), &h, sizeof(h));
    *(uint8_t *)drv_at(&w->d, STATUS + place) = 0xee;
    if (len == 0)
        p[1] = p[2];
    drv_add(&w->d, 0, p, len ? 3 : 2);
}

/* One request; its status. */
static int request(struct world *w, uint32_t type, uint64_t sector, uint64_t at, uint32_t len)
{
    uint32_t written;

    add(w, type, sector, at, len);
    drv_kick(&w->d, 0);
    assert_true(drv_wait(&w->d, 0, &written) >= 0);
    assert_true(written >= 1);
    return *(uint8_t *)drv_at(&w->d, STATUS + 128ull * ((w->slot - 1) % 32));
}

static int write_bytes(struct world *w, uint64_t at, uint64_t len, char c)
{
    memset(drv_at(&w->d, DATA), c, len);
    return request(w, VIRTIO_BLK_T_OUT, at / 512, DATA, (uint32_t)len);
}

static void assert_bytes(struct world *w, uint64_t at, uint64_t len, char c)
{
    uint8_t *p = drv_at(&w->d, DATA);
    uint64_t i;

    memset(p, c + 1, len);
    assert_int_equal(request(w, VIRTIO_BLK_T_IN, at / 512, DATA, (uint32_t)len), 0);
    for (i = 0; i < len; i++)
        if (p[i] != (uint8_t)c)
            fail_msg("byte %llu is %02x, not %02x", (unsigned long long)(at + i), p[i], c);
}

static int zero_request(struct world *w, uint32_t type, uint64_t at, uint64_t len, uint32_t flags)
{
    struct virtio_blk_discard_write_zeroes z = {
        .sector = at / 512, .num_sectors = (uint32_t)(len / 512), .flags = flags};

    memcpy(drv_at(&w->d, DATA), &z, sizeof(z));
    return request(w, type, 0, DATA, sizeof(z));
}

static uint64_t used(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

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
    assert_in_range(t, 250, 1500);
    block_limit(w.b, 0, 0);
    t = now_ms();
    for (i = 0; i < 8; i++)
        assert_bytes(&w, i * 65536, 65536, 'a');
    assert_true(now_ms() - t < 250);
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
        cmocka_unit_test(test_read_write),     cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_read_only),      cmocka_unit_test(test_identity),
        cmocka_unit_test(test_framing),        cmocka_unit_test(test_space_given_back),
        cmocka_unit_test(test_many_at_once),   cmocka_unit_test(test_limit),
        cmocka_unit_test(test_save_load),      cmocka_unit_test(test_write_through),
        cmocka_unit_test(test_layers),         cmocka_unit_test(test_layers_of_layers),
        cmocka_unit_test(test_layers_at_once), cmocka_unit_test(test_layers_zeroes),
        cmocka_unit_test(test_layers_crash),   cmocka_unit_test(test_layer_judged),
        cmocka_unit_test(test_layers_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
