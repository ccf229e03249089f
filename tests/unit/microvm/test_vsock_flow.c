/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* vsock.c and vsock_host.c: credit, buffers, and what becomes of connections in a snapshot. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/virtio_vsock.h>

#include "vsock_world.h"

/* ------------------------------------------------------------------------- credit */

static void test_credit_to_guest(void **state)
{
    static char big[100000];
    uint32_t got = 0;
    struct id c;
    int fd;

    (void)state;
    ready();
    w.alloc = 10000;
    c = connected(&fd);
    assert_true(send(fd, big, sizeof(big), 0) > 20000);
    while (got < 10000) {
        assert_true(next());
        assert_int_equal(w.h.op, VIRTIO_VSOCK_OP_RW);
        got += w.h.len;
    }
    assert_int_equal(got, 10000);
    expect(VIRTIO_VSOCK_OP_CREDIT_REQUEST);
    nothing();
    c.fwd = 4000;
    say(&c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0, NULL, 0);
    while (got < 14000) {
        expect(VIRTIO_VSOCK_OP_RW);
        got += w.h.len;
    }
    assert_int_equal(got, 14000);
    expect(VIRTIO_VSOCK_OP_CREDIT_REQUEST);
    c.fwd = 0xffff0000; /* makes no sense: no credit */
    say(&c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0, NULL, 0);
    nothing();
    say(&c, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 0, NULL, 0);
    expect(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
    close(fd);
}

/* A client that does not read: the guest's bytes wait, up to the credit and no further. */
static void test_credit_of_guest(void **state)
{
    static char block[4000], text[300000];
    uint32_t sent = 0, told = 0;
    ssize_t n, all = 0;
    struct id c;
    int fd, small = 4096, i;

    (void)state;
    ready();
    c = connected(&fd);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    for (i = 0; i < 200; i++) {
        struct pollfd none = {.fd = -1};
        uint32_t head, len;
        if (sent + sizeof(block) - told > ALLOC)
            break;
        memset(block, 'a' + i % 26, sizeof(block));
        say(&c, VIRTIO_VSOCK_OP_RW, 0, block, sizeof(block));
        sent += sizeof(block);
        while (drv_used(&w.d, 0, &head, &len)) { /* credit updates on the way */
            struct vring_desc desc;
            memcpy(&desc, drv_at(&w.d, DRV_QUEUE_AT(0) + 16ull * head), sizeof(desc));
            memcpy(&w.h, drv_at(&w.d, desc.addr), HDR);
            told = w.h.fwd_cnt;
            post((uint32_t)((desc.addr - RX_AT(0)) / 0x2000));
        }
        (void)poll(&none, 0, 0);
    }
    assert_true(sent + sizeof(block) - told > ALLOC);
    assert_true(sent > ALLOC); /* the socket took some */
    while ((n = have(fd, text + all, sizeof(text) - (size_t)all)) > 0)
        all += n;
    assert_int_equal(all, sent);
    for (i = 0; i < (int)sent; i++)
        if (text[i] != 'a' + i / 4000 % 26)
            fail_msg("byte %d", i);
    expect(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
    assert_int_equal(c.host, w.h.src_port);
    close(fd);
}

static void test_credit_broken(void **state)
{
    static char block[40000];
    struct id c;
    int fd, i;

    (void)state;
    ready();
    c = connected(&fd);
    for (i = 0; i < 20; i++) { /* whatever the socket takes: in the end too much */
        uint32_t head, len;
        say(&c, VIRTIO_VSOCK_OP_RW, 0, block, sizeof(block));
        if (drv_used(&w.d, 0, &head, &len)) {
            struct vring_desc desc;
            memcpy(&desc, drv_at(&w.d, DRV_QUEUE_AT(0) + 16ull * head), sizeof(desc));
            memcpy(&w.h, drv_at(&w.d, desc.addr), HDR);
            if (w.h.op == VIRTIO_VSOCK_OP_RST)
                break;
        }
    }
    assert_int_equal(w.h.op, VIRTIO_VSOCK_OP_RST);
    assert_false(vsock_virtio(w.v)->broken);
    close(fd);
}

/* A packet that says it is longer than it is. */
static void test_length(void **state)
{
    struct piece p = {TX_AT, HDR + 4, 0}, little = {TX_AT, HDR - 1, 0};
    struct virtio_vsock_hdr h = {.src_cid = 3, .dst_cid = 2, .type = 1, .op = VIRTIO_VSOCK_OP_RW};
    uint32_t len;
    struct id c;
    int fd;

    (void)state;
    ready();
    c = connected(&fd);
    h.src_port = c.guest;
    h.dst_port = c.host;
    h.len = 5;
    memcpy(drv_at(&w.d, TX_AT), &h, HDR);
    drv_add(&w.d, 1, &p, 1);
    drv_kick(&w.d, 1);
    assert_true(drv_wait(&w.d, 1, &len) >= 0);
    expect(VIRTIO_VSOCK_OP_RST);
    assert_closed(fd);
    drv_add(&w.d, 1, &little, 1);
    drv_kick(&w.d, 1);
    assert_true(vsock_virtio(w.v)->broken);
    ready();
    c = connected(&fd);
    assert_int_not_equal(c.host, 0);
    close(fd);
}

/* A guest without buffers: nothing is lost, and nothing keeps the loop awake. */
static void test_starved(void **state)
{
    static char big[80000];
    uint32_t i, len, head, got = 0, n = 0;
    struct id c;
    int fd;

    (void)state;
    ready();
    c = connected(&fd);
    memset(big, 'z', sizeof(big));
    assert_int_equal(send(fd, big, sizeof(big), 0), sizeof(big));
    turn(30);
    while (drv_used(&w.d, 0, &head, &len)) {
        got += len - HDR;
        n++;
    }
    assert_int_equal(n, RX_BUFFERS);
    for (i = 0; i < RX_BUFFERS; i++)
        post(i);
    drv_kick(&w.d, 0);
    turn(30);
    while (drv_used(&w.d, 0, &head, &len))
        got += len - HDR;
    assert_true(got > RX_BUFFERS * (RX_LEN - HDR) && got <= sizeof(big));
    assert_int_equal(c.guest, 1024);
    close(fd);
}

static void test_many_clients(void **state)
{
    uint32_t head, len;
    int fd[80], i;

    (void)state;
    ready();
    for (i = 0; i < 80; i++) /* more than there are places: they wait */
        fd[i] = client("PORT 9\n");
    turn(20);
    for (i = 0; i < 64; i++)
        expect(VIRTIO_VSOCK_OP_REQUEST);
    for (i = 0; i < 80; i++) {
        close(fd[i]);
        turn(1);
    }
    do
        turn(200);
    while (drv_used(&w.d, 0, &head, &len)); /* what was on its way to them */
    ready();
    connected(&fd[0]);
    close(fd[0]);
}

/* ----------------------------------------------------------------- save and load */

static void test_transport_reset(void **state)
{
    struct piece e = {EVENT_AT, 8, 1};
    struct state_out o = {0};
    struct state_in i;
    uint32_t head, len;
    struct id c;
    int fd, early, late;

    (void)state;
    ready();
    c = connected(&fd);
    assert_int_equal(virtio_drain(vsock_virtio(w.v)), 0);
    virtio_save(vsock_virtio(w.v), &o);
    virtio_resume(vsock_virtio(w.v)); /* the source goes on with its connections */
    assert_int_equal(drv_used(&w.d, 2, &head, &len), 0);
    assert_open(fd);
    vsock_free(w.v);
    close(fd);
    memset(&w.d.bus, 0, sizeof(w.d.bus));
    w.v = vsock_new(&w.d.bind, DEV_VSOCK, w.listen_fd);
    early = client("PORT 1025\n");
    turn(10);
    state_open(&i, o.data, o.len);
    assert_int_equal(virtio_load(vsock_virtio(w.v), &i), 0);
    w.d.v = vsock_virtio(w.v);
    turn(10);
    *(uint32_t *)drv_at(&w.d, EVENT_AT) = 77;
    virtio_resume(vsock_virtio(w.v));
    assert_true(drv_wait(&w.d, 2, &len) >= 0);
    assert_int_equal(len, 4);
    assert_int_equal(*(uint32_t *)drv_at(&w.d, EVENT_AT), VIRTIO_VSOCK_EVENT_TRANSPORT_RESET);
    late = client("CONNECT 7\n");
    nothing(); /* until the guest has taken that in */
    say(&c, VIRTIO_VSOCK_OP_RW, 0, "old", 3);
    expect(VIRTIO_VSOCK_OP_RST);
    drv_add(&w.d, 2, &e, 1);
    drv_kick(&w.d, 2);
    expect(VIRTIO_VSOCK_OP_REQUEST);
    assert_int_equal(w.h.dst_port, 1025);
    c = this();
    expect(VIRTIO_VSOCK_OP_REQUEST);
    assert_int_equal(w.h.dst_port, 7);
    assert_int_not_equal(w.h.src_port, c.host);
    say(&c, VIRTIO_VSOCK_OP_RST, 0, NULL, 0);
    expect(VIRTIO_VSOCK_OP_REQUEST);
    assert_int_equal(w.h.dst_port, 1025);
    close(early);
    close(late);
    state_out_free(&o);
}

/* A guest that never gives the event's buffer back does not keep its clients waiting for ever. */
static void test_reset_unanswered(void **state)
{
    struct state_out o = {0};
    struct state_in i;
    uint32_t len;
    int fd;

    (void)state;
    ready();
    virtio_save(vsock_virtio(w.v), &o);
    vsock_free(w.v);
    memset(&w.d.bus, 0, sizeof(w.d.bus));
    w.v = vsock_new(&w.d.bind, DEV_VSOCK, w.listen_fd);
    w.v->reset_most = 2000 * MS; /* more than a late host takes to come to nothing() */
    state_open(&i, o.data, o.len);
    assert_int_equal(virtio_load(vsock_virtio(w.v), &i), 0);
    w.d.v = vsock_virtio(w.v);
    virtio_resume(vsock_virtio(w.v));
    assert_true(drv_wait(&w.d, 2, &len) >= 0);
    fd = client("CONNECT 7\n");
    nothing();
    expect(VIRTIO_VSOCK_OP_REQUEST);
    close(fd);
    state_out_free(&o);
}

/* Between a save and the resume nothing reaches the guest, and nothing is lost. */
static void test_quiet(void **state)
{
    int fd, late, i, data = 0, requests = 0;
    struct id c;

    (void)state;
    ready();
    c = connected(&fd);
    assert_int_equal(virtio_drain(vsock_virtio(w.v)), 0);
    assert_int_equal(send(fd, "wait", 4, 0), 4);
    late = client("CONNECT 9\n");
    nothing();
    virtio_resume(vsock_virtio(w.v));
    for (i = 0; i < 2; i++) {
        assert_true(next());
        data += w.h.op == VIRTIO_VSOCK_OP_RW && w.h.src_port == c.host;
        requests += w.h.op == VIRTIO_VSOCK_OP_REQUEST && w.h.dst_port == 9;
    }
    assert_int_equal(data, 1);
    assert_int_equal(requests, 1);
    close(fd);
    close(late);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_credit_to_guest), T(test_credit_of_guest), T(test_credit_broken),
        T(test_length),          T(test_starved),         T(test_many_clients),
        T(test_transport_reset), T(test_quiet),           T(test_reset_unanswered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
