/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* vsock.c and vsock_host.c: how connections begin and end. */
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

/* -------------------------------------------------------------------- connections */

static void test_bytes(void **state)
{
    char text[32] = {0};
    struct id c;
    int fd;

    (void)state;
    ready();
    assert_int_equal(drv_get(&w.d, VIRTIO_MMIO_CONFIG), 3);
    c = connected(&fd);
    assert_int_equal(send(fd, "ping", 4, 0), 4);
    expect(VIRTIO_VSOCK_OP_RW);
    assert_int_equal(w.h.len, 4);
    assert_memory_equal(w.data, "ping", 4);
    say(&c, VIRTIO_VSOCK_OP_RW, 0, "pong!", 5);
    assert_int_equal(have(fd, text, sizeof(text)), 5);
    assert_string_equal(text, "pong!");
    assert_int_equal(send(fd, "again", 5, 0), 5);
    expect(VIRTIO_VSOCK_OP_RW);
    assert_int_equal(w.h.fwd_cnt, 5); /* the guest knows that its bytes are gone */
    close(fd);
    expect(VIRTIO_VSOCK_OP_SHUTDOWN);
    if (w.h.flags != 3) /* half first, when that was seen first */
        expect(VIRTIO_VSOCK_OP_SHUTDOWN);
    assert_int_equal(w.h.flags, 3);
    say(&c, VIRTIO_VSOCK_OP_RST, 0, NULL, 0);
    nothing();
}

static void test_lines(void **state)
{
    static const char *bad[] = {"CONNECT \n",
                                "CONNECT 12x\n",
                                "CONNECT 4294967296\n",
                                "connect 5\n",
                                "CONNECT  5\n",
                                "\n",
                                "CONNECT 000000000000000000000000000005\n",
                                "CONNECT -1\n"};
    size_t i;
    int fd;

    (void)state;
    ready();
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_closed(client(bad[i]));
    nothing();
    fd = client("CONN"); /* in pieces, and with the first bytes behind it */
    turn(20);
    assert_int_equal(send(fd, "ECT 4294967295\nxyz", 18, 0), 18);
    expect(VIRTIO_VSOCK_OP_REQUEST);
    assert_int_equal(w.h.dst_port, UINT32_MAX);
    struct id c = this();
    say(&c, VIRTIO_VSOCK_OP_RESPONSE, 0, NULL, 0);
    expect(VIRTIO_VSOCK_OP_RW);
    assert_memory_equal(w.data, "xyz", 3);
    close(fd);
}

static void test_refused(void **state)
{
    struct id c;
    int fd;

    (void)state;
    assert_closed(client("CONNECT 1024\n")); /* no driver */
    ready();
    fd = client("CONNECT 77\n");
    expect(VIRTIO_VSOCK_OP_REQUEST);
    c = this();
    say(&c, VIRTIO_VSOCK_OP_RST, 0, NULL, 0);
    assert_closed(fd);
    fd = client("CONNECT 77\n"); /* hangs up before the answer */
    expect(VIRTIO_VSOCK_OP_REQUEST);
    c = this();
    close(fd);
    expect(VIRTIO_VSOCK_OP_RST);
    say(&c, VIRTIO_VSOCK_OP_RESPONSE, 0, NULL, 0);
    expect(VIRTIO_VSOCK_OP_RST);
}

/* PORT: before the driver, refused twice, then accepted; nothing is ever said to the client. */
static void test_patient(void **state)
{
    char text[8] = {0};
    struct id c;
    int fd = client("PORT 1025\nearly"), i;

    (void)state;
    assert_open(fd);
    ready();
    for (i = 0; i < 8; i++) {
        expect(VIRTIO_VSOCK_OP_REQUEST);
        c = this();
        assert_int_equal(c.guest, 1025);
        say(&c, VIRTIO_VSOCK_OP_RST, 0, NULL, 0);
    }
    expect(VIRTIO_VSOCK_OP_REQUEST);
    c = this();
    drv_set(&w.d, VIRTIO_MMIO_STATUS, 0); /* the driver goes, and comes again */
    assert_open(fd);
    ready();
    expect(VIRTIO_VSOCK_OP_REQUEST);
    c = this();
    say(&c, VIRTIO_VSOCK_OP_RESPONSE, 0, NULL, 0);
    expect(VIRTIO_VSOCK_OP_RW);
    assert_memory_equal(w.data, "early", 5);
    say(&c, VIRTIO_VSOCK_OP_RW, 0, "hi", 2);
    assert_int_equal(have(fd, text, sizeof(text)), 2);
    assert_string_equal(text, "hi");
    say(&c, VIRTIO_VSOCK_OP_RST, 0, NULL, 0);
    assert_closed(fd);
}

/* A guest that does not answer at all is asked again, and the former request taken back. */
static void test_patient_unanswered(void **state)
{
    struct id c;
    int fd;

    (void)state;
    w.v->answer_wait = 300 * MS;
    ready();
    fd = client("PORT 1025\n");
    expect(VIRTIO_VSOCK_OP_REQUEST);
    c = this();
    expect(VIRTIO_VSOCK_OP_RST);
    assert_int_equal(w.h.src_port, c.host);
    expect(VIRTIO_VSOCK_OP_REQUEST);
    assert_int_not_equal(w.h.src_port, c.host);
    close(fd);
}

static void test_unknown(void **state)
{
    struct id other = {.host = 5, .guest = 6};
    uint16_t op;
    struct id c;
    int fd;

    (void)state;
    ready();
    for (op = 0; op < 10; op++) { /* REQUEST is one of them: the guest connects to nobody */
        say(&other, op, 0, NULL, 0);
        if (op == VIRTIO_VSOCK_OP_RST) {
            nothing();
            continue;
        }
        expect(VIRTIO_VSOCK_OP_RST);
        assert_int_equal(w.h.src_port, 5);
        assert_int_equal(w.h.dst_port, 6);
    }
    packet((struct virtio_vsock_hdr){.src_cid = 3, .dst_cid = 2, .type = 2, .op = 1}, NULL);
    assert_true(next());
    assert_int_equal(w.h.op, VIRTIO_VSOCK_OP_RST);
    assert_int_equal(w.h.type, 2);
    packet((struct virtio_vsock_hdr){.src_cid = 4, .dst_cid = 2, .type = 1, .op = 1}, NULL);
    packet((struct virtio_vsock_hdr){.src_cid = 3, .dst_cid = 1, .type = 1, .op = 1}, NULL);
    nothing();
    c = connected(&fd); /* and what no connection may do */
    say(&c, VIRTIO_VSOCK_OP_REQUEST, 0, NULL, 0);
    expect(VIRTIO_VSOCK_OP_RST);
    assert_closed(fd);
    assert_false(vsock_virtio(w.v)->broken);
}

static void test_half_close(void **state)
{
    char text[8] = {0};
    struct id c;
    int fd;

    (void)state;
    ready();
    c = connected(&fd);
    assert_int_equal(send(fd, "last", 4, 0), 4);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    expect(VIRTIO_VSOCK_OP_RW);
    expect(VIRTIO_VSOCK_OP_SHUTDOWN);
    assert_int_equal(w.h.flags, VIRTIO_VSOCK_SHUTDOWN_SEND);
    say(&c, VIRTIO_VSOCK_OP_RW, 0, "answer", 6);
    assert_int_equal(have(fd, text, sizeof(text)), 6);
    say(&c, VIRTIO_VSOCK_OP_SHUTDOWN, 3, NULL, 0);
    expect(VIRTIO_VSOCK_OP_RST);
    assert_closed(fd);
    /* the other half */
    c = connected(&fd);
    say(&c, VIRTIO_VSOCK_OP_RW, 0, "end", 3);
    say(&c, VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_SHUTDOWN_SEND, NULL, 0);
    turn(10);
    assert_int_equal(recv(fd, text, 8, 0), 3);
    assert_int_equal(recv(fd, text, 8, 0), 0);
    assert_int_equal(send(fd, "more", 4, 0), 4);
    expect(VIRTIO_VSOCK_OP_RW);
    say(&c, VIRTIO_VSOCK_OP_RW, 0, "x", 1); /* after its end */
    expect(VIRTIO_VSOCK_OP_RST);
    close(fd);
    /* a guest that will not receive: the client is told */
    c = connected(&fd);
    say(&c, VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_SHUTDOWN_RCV, NULL, 0);
    turn(10);
    assert_int_equal(send(fd, "more", 4, MSG_NOSIGNAL), -1);
    close(fd);
}

/* A guest that does not answer the SHUTDOWN of a client that has gone. */
static void test_linger(void **state)
{
    struct id c;
    int fd;

    (void)state;
    w.v->linger_wait = 300 * MS;
    ready();
    c = connected(&fd);
    close(fd);
    do
        expect(VIRTIO_VSOCK_OP_SHUTDOWN);
    while (w.h.flags != 3);
    turn(350);
    expect(VIRTIO_VSOCK_OP_RST);
    assert_int_equal(w.h.src_port, c.host);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {T(test_bytes),
                                       T(test_lines),
                                       T(test_refused),
                                       T(test_patient),
                                       T(test_patient_unanswered),
                                       T(test_unknown),
                                       T(test_half_close),
                                       T(test_linger)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
