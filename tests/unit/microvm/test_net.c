/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* net.c over a pair of datagram sockets, which keep frames apart as a tap does. test_tap.c has a real one. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/virtio_net.h>

#include "driver.h"
#include "net.h"

#define HDR sizeof(struct virtio_net_hdr_v1)
#define BIT(f) (1ull << (f))
#define ALL (~0ull)
#define RX_AT(i) (DRV_BUFFERS + 0x20000ull * (i))
#define TX_AT (DRV_BUFFERS + 0x400000ull)

static const uint8_t mac[6] = {2, 0, 0, 0, 0, 7};
static struct drv d;
static int pair[2];
static struct net *n;

static int setup(void **state)
{
    (void)state;
    n = NULL;
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -1;
    return drv_init(&d);
}

static int teardown(void **state)
{
    (void)state;
    net_free(n);
    close(pair[0]);
    close(pair[1]);
    drv_fini(&d);
    return 0;
}

static void start(int headers, int offloads, uint64_t want)
{
    n = net_on(&d.bind, DEV_NET, pair[0], mac, headers, offloads);
    assert_non_null(n);
    drv_start(&d, net_virtio(n), want, 2);
}

static void rx_buffer(unsigned i, uint32_t len)
{
    struct piece p = {RX_AT(i), len, 1};

    memset(drv_at(&d, RX_AT(i)), 0xee, len);
    drv_add(&d, 0, &p, 1);
    drv_kick(&d, 0);
}

static void frame_in(char c, size_t len)
{
    static char f[70000];

    memset(f, c, len);
    assert_int_equal(send(pair[1], f, len, 0), (ssize_t)len);
}

static void turn(unsigned ms)
{
    drv_run(&d, ms, NULL, NULL);
}

static uint16_t buffers_of(unsigned i)
{
    struct virtio_net_hdr_v1 h;

    memcpy(&h, drv_at(&d, RX_AT(i)), HDR);
    return h.num_buffers;
}

/* What the guest sends; 1 = it came out, with so many bytes. */
static ssize_t send_out(struct virtio_net_hdr_v1 h, size_t len, char *out, size_t room)
{
    struct piece p[] = {{TX_AT, HDR, 0}, {TX_AT + 64, (uint32_t)len, 0}};
    uint32_t used;

    memcpy(drv_at(&d, TX_AT), &h, HDR);
    memset(drv_at(&d, TX_AT + 64), 't', len);
    drv_add(&d, 1, p, 2);
    drv_kick(&d, 1);
    assert_true(drv_wait(&d, 1, &used) >= 0);
    return recv(pair[1], out, room, MSG_DONTWAIT);
}

static void test_frames(void **state)
{
    static const struct virtio_net_hdr_v1 plain;
    char out[2000];
    uint32_t len;

    (void)state;
    start(0, 0, ALL);
    assert_int_equal(drv_get(&d, VIRTIO_MMIO_CONFIG), 2);
    assert_int_equal(drv_get(&d, VIRTIO_MMIO_CONFIG + 4), 0x0700);
    assert_false(net_virtio(n)->driver_features &
                 BIT(VIRTIO_NET_F_CSUM)); /* no headers, no offloads */
    rx_buffer(0, 2048);
    frame_in('r', 100);
    assert_true(drv_wait(&d, 0, &len) >= 0);
    assert_int_equal(len, 112);
    assert_int_equal(buffers_of(0), 1);
    assert_int_equal(*(char *)drv_at(&d, RX_AT(0) + HDR), 'r');
    assert_int_equal(*(uint8_t *)drv_at(&d, RX_AT(0) + 112), 0xee);
    assert_int_equal(send_out(plain, 60, out, sizeof(out)), 60);
    assert_int_equal(out[59], 't');
    assert_int_equal(send_out(plain, 13, out, sizeof(out)), -1); /* no frame */
    assert_int_equal(send_out(plain, 14, out, sizeof(out)), 14);
    assert_true(drv_irqs(&d) > 0);
}

static void test_merged(void **state)
{
    uint32_t len, i, head;
    char want[5000];

    (void)state;
    start(1, 1, ALL);
    memset(want, 0, HDR);
    memset(want + HDR, 'm', 4000);
    for (i = 0; i < 3; i++)
        rx_buffer(i, 1500);
    assert_int_equal(send(pair[1], want, 4012, 0), 4012);
    turn(20);
    for (i = 0; i < 3; i++) {
        assert_int_equal(drv_used(&d, 0, &head, &len), 1);
        assert_int_equal(len, i < 2 ? 1500 : 1012);
    }
    assert_int_equal(buffers_of(0), 3);
    assert_memory_equal(drv_at(&d, RX_AT(0) + HDR), want + HDR, 1500 - HDR);
    assert_memory_equal(drv_at(&d, RX_AT(1)), want + HDR, 1500);
    assert_memory_equal(drv_at(&d, RX_AT(2)), want + HDR, 1012);
    assert_int_equal(*(uint8_t *)drv_at(&d, RX_AT(2) + 1012), 0xee);
}

/* What does not fit now is held, and the rest stays outside; what can never fit is dropped. */
static void test_no_room(void **state)
{
    uint32_t len, head, i;

    (void)state;
    start(0, 0, ALL);
    frame_in('1', 3000);
    frame_in('2', 100);
    turn(20);
    rx_buffer(0, 2048);
    turn(20);
    assert_int_equal(drv_used(&d, 0, &head, &len), 0);
    rx_buffer(1, 2048);
    turn(20);
    assert_int_equal(drv_used(&d, 0, &head, &len), 1);
    assert_int_equal(drv_used(&d, 0, &head, &len), 1);
    assert_int_equal(buffers_of(0), 2);
    assert_int_equal(drv_used(&d, 0, &head, &len), 0);
    rx_buffer(2, 2048);
    turn(20);
    assert_int_equal(drv_used(&d, 0, &head, &len), 1);
    assert_int_equal(*(char *)drv_at(&d, RX_AT(2) + HDR), '2');
    /* a full ring of small buffers */
    for (i = 0; i < DRV_SIZE; i++)
        rx_buffer(i % 16, 12);
    frame_in('3', 3000);
    frame_in('4', 50);
    turn(20);
    for (i = 0; i < 6; i++)
        assert_int_equal(drv_used(&d, 0, &head, &len), 1);
    assert_int_equal(drv_used(&d, 0, &head, &len), 0);
    /* without MRG_RXBUF a frame has one buffer */
    drv_start(&d, net_virtio(n), 0, 2);
    rx_buffer(0, 1000);
    frame_in('5', 1500);
    frame_in('6', 988);
    assert_true(drv_wait(&d, 0, &len) >= 0);
    assert_int_equal(len, 1000);
    assert_int_equal(*(char *)drv_at(&d, RX_AT(0) + HDR), '6');
    assert_int_equal(buffers_of(0), 1);
}

static void test_rules(void **state)
{
    struct piece in = {TX_AT, 64, 1}, little = {TX_AT, HDR - 1, 0}, out = {RX_AT(0), 2048, 0};
    uint32_t len;

    (void)state;
    start(0, 0, ALL);
    drv_add(&d, 1, &in, 1);
    drv_kick(&d, 1);
    assert_true(net_virtio(n)->broken);
    drv_start(&d, net_virtio(n), ALL, 2);
    drv_add(&d, 1, &little, 1);
    drv_kick(&d, 1);
    assert_true(net_virtio(n)->broken);
    drv_start(&d, net_virtio(n), ALL, 2);
    drv_add(&d, 0, &out, 1);
    drv_kick(&d, 0);
    frame_in('x', 60);
    turn(20);
    assert_true(net_virtio(n)->broken);
    drv_start(&d, net_virtio(n), ALL, 2);
    rx_buffer(0, 11); /* not even a header */
    frame_in('x', 60);
    turn(20);
    assert_true(net_virtio(n)->broken);
    drv_start(&d, net_virtio(n), ALL, 2);
    rx_buffer(0, 2048);
    frame_in('y', 60);
    assert_true(drv_wait(&d, 0, &len) >= 0);
}

static void test_headers_judged(void **state)
{
    struct virtio_net_hdr_v1 tso = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                    .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
                                    .hdr_len = 54,
                                    .gso_size = 1000,
                                    .csum_start = 34,
                                    .csum_offset = 16,
                                    .num_buffers = 99},
                             h;
    char out[9000];

    (void)state;
    start(1, 1, ALL);
    assert_int_equal(send_out(tso, 5000, out, sizeof(out)), 5012);
    memcpy(&h, out, HDR);
    assert_int_equal(h.gso_type, VIRTIO_NET_HDR_GSO_TCPV4);
    assert_int_equal(h.gso_size, 1000);
    assert_int_equal(h.csum_offset, 16);
    assert_int_equal(h.num_buffers, 0);
#define BAD(change)                                                                                \
    do {                                                                                           \
        h = tso;                                                                                   \
        change;                                                                                    \
        assert_int_equal(send_out(h, 5000, out, sizeof(out)), -1);                                 \
    } while (0)
    BAD(h.csum_start = 4990; h.csum_offset = 9);
    BAD(h.csum_start = 0xffff; h.csum_offset = 0xffff);
    BAD(h.gso_size = 0);
    BAD(h.hdr_len = 5001);
    BAD(h.gso_type = VIRTIO_NET_HDR_GSO_UDP);
    BAD(h.gso_type |= VIRTIO_NET_HDR_GSO_ECN);
    BAD(h.gso_type = 77);
    BAD(h.flags = 0);
    h = (struct virtio_net_hdr_v1){
        .flags = 0xfe}; /* what nobody has defined for this way is not passed on */
    assert_int_equal(send_out(h, 60, out, sizeof(out)), 72);
    assert_int_equal(out[0], 0);
    /* and nothing that was not negotiated */
    drv_start(&d, net_virtio(n), BIT(VIRTIO_NET_F_CSUM), 2);
    BAD((void)0);
    h = (struct virtio_net_hdr_v1){.flags = 1, .csum_start = 14, .csum_offset = 2};
    assert_int_equal(send_out(h, 60, out, sizeof(out)), 72);
    drv_start(&d, net_virtio(n), 0, 2);
    assert_int_equal(send_out(h, 60, out, sizeof(out)), -1);
    h.flags = 0;
    assert_int_equal(send_out(h, 60, out, sizeof(out)), 72);
}

static void test_features_depend(void **state)
{
    (void)state;
    start(1, 1, BIT(VIRTIO_NET_F_HOST_TSO4));
    assert_true(net_virtio(n)->broken);
    drv_start(&d, net_virtio(n), BIT(VIRTIO_NET_F_GUEST_TSO6), 2);
    assert_true(net_virtio(n)->broken);
    drv_start(&d, net_virtio(n), BIT(VIRTIO_NET_F_GUEST_TSO6) | BIT(VIRTIO_NET_F_GUEST_CSUM), 2);
    assert_false(net_virtio(n)->broken);
}

/* Without GUEST_CSUM no header field of the tap reaches the guest. */
static void test_rx_header(void **state)
{
    struct virtio_net_hdr_v1 h = {.flags = 2, .gso_type = 1, .gso_size = 5, .num_buffers = 3};
    char f[100] = {0};
    uint32_t len;

    (void)state;
    memcpy(f, &h, HDR);
    start(1, 1, 0);
    rx_buffer(0, 2048);
    assert_int_equal(send(pair[1], f, sizeof(f), 0), sizeof(f));
    assert_true(drv_wait(&d, 0, &len) >= 0);
    memcpy(&h, drv_at(&d, RX_AT(0)), HDR);
    assert_int_equal(h.flags | h.gso_type | h.gso_size, 0);
    assert_int_equal(h.num_buffers, 1);
    drv_start(&d, net_virtio(n), ALL, 2);
    rx_buffer(0, 2048);
    assert_int_equal(send(pair[1], f, sizeof(f), 0), sizeof(f));
    assert_true(drv_wait(&d, 0, &len) >= 0);
    memcpy(&h, drv_at(&d, RX_AT(0)), HDR);
    assert_int_equal(h.gso_size, 5);
}

/* The other side does not read: frames wait in the ring, then go. */
static void test_full(void **state)
{
    struct piece p[] = {{TX_AT, HDR, 0}, {TX_AT + 64, 1000, 0}};
    uint32_t head, len, used = 0, got = 0;
    char out[2000];
    int i, small = 8192;

    (void)state;
    start(0, 0, ALL);
    assert_int_equal(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    memset(drv_at(&d, TX_AT), 0, HDR);
    for (i = 0; i < 32; i++)
        drv_add(&d, 1, p, 2);
    drv_kick(&d, 1);
    while (drv_used(&d, 1, &head, &len))
        used++;
    assert_in_range(used, 2, 31);
    while (got < 32) {
        ssize_t r = recv(pair[1], out, sizeof(out), MSG_DONTWAIT);
        if (r > 0)
            got++;
        else
            turn(5);
    }
    turn(5);
    while (drv_used(&d, 1, &head, &len))
        used++;
    assert_int_equal(used, 32);
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void test_limits(void **state)
{
    static const struct virtio_net_hdr_v1 plain;
    char out[2000];
    uint32_t len;
    uint64_t t;
    int i;

    (void)state;
    start(0, 0, ALL);
    net_limit(n, 40000, 40000);
    t = now_ms();
    for (i = 0; i < 12; i++) { /* 12000 bytes, a tenth of a second and a frame in advance */
        rx_buffer(0, 2048);
        frame_in('l', 1000);
        assert_true(drv_wait(&d, 0, &len) >= 0);
    }
    assert_in_range(now_ms() - t, 120, 5000);
    t = now_ms();
    for (i = 0; i < 12; i++)
        assert_int_equal(send_out(plain, 1000, out, sizeof(out)), 1000);
    assert_in_range(now_ms() - t, 120, 5000);
    net_limit(n, 0, 0);
    t = now_ms();
    for (i = 0; i < 1200; i++) /* thirty seconds' worth */
        assert_int_equal(send_out(plain, 1000, out, sizeof(out)), 1000);
    assert_true(now_ms() - t < 25000);
}

static void test_save_load(void **state)
{
    struct state_out o = {0};
    struct state_in i;
    uint32_t len;

    (void)state;
    start(1, 1, ALL);
    rx_buffer(0, 2048);
    assert_int_equal(virtio_drain(net_virtio(n)), 0);
    virtio_save(net_virtio(n), &o);
    net_free(n);
    memset(&d.bus, 0, sizeof(d.bus));
    n = net_on(&d.bind, DEV_NET, pair[0], mac, 1, 1);
    state_open(&i, o.data, o.len);
    assert_int_equal(virtio_load(net_virtio(n), &i), 0);
    d.v = net_virtio(n);
    virtio_resume(net_virtio(n));
    frame_in(0, 100);
    assert_true(drv_wait(&d, 0, &len) >= 0);
    net_free(n);
    memset(&d.bus, 0, sizeof(d.bus));
    n = net_on(&d.bind, DEV_NET, pair[0], mac, 0,
               0); /* a host that cannot what the guest was promised */
    state_open(&i, o.data, o.len);
    assert_int_equal(virtio_load(net_virtio(n), &i), -EINVAL);
    state_out_free(&o);
}

/* Between a save and the resume the guest's memory is as the snapshot has it. */
static void test_quiet(void **state)
{
    uint32_t head, len;

    (void)state;
    start(0, 0, ALL);
    rx_buffer(0, 2048);
    assert_int_equal(virtio_drain(net_virtio(n)), 0);
    frame_in('q', 100);
    turn(30);
    assert_int_equal(drv_used(&d, 0, &head, &len), 0);
    assert_int_equal(*(uint8_t *)drv_at(&d, RX_AT(0)), 0xee);
    virtio_resume(net_virtio(n));
    assert_true(drv_wait(&d, 0, &len) >= 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_frames),         T(test_merged),          T(test_no_room),   T(test_rules),
        T(test_headers_judged), T(test_features_depend), T(test_rx_header), T(test_full),
        T(test_limits),         T(test_save_load),       T(test_quiet)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
