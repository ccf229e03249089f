/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* vsock.c and vsock_host.c: clients of a real unix socket on one side, a guest's packets on the other. */
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

#include "driver.h"

#define RX_BUFFERS 16u
#define RX_AT(i) (DRV_BUFFERS + 0x10000ull + 0x2000ull * (i))
#define RX_LEN 4096u
#define TX_AT DRV_BUFFERS
#define EVENT_AT (DRV_BUFFERS + 0x8000ull)
#define ALLOC 65536u
#define HDR sizeof(struct virtio_vsock_hdr)

struct world {
    struct drv d;
    struct vsock *v;
    int listen_fd;
    struct sockaddr_un addr;
    socklen_t addr_len;
    uint32_t alloc; /* what the guest says that it can take */
    struct virtio_vsock_hdr h;
    uint8_t data[RX_LEN];
};

static struct world w;

static void post(uint32_t i)
{
    struct piece p = {RX_AT(i), RX_LEN, 1};

    drv_add(&w.d, 0, &p, 1);
}

static void ready(void)
{
    struct piece e = {EVENT_AT, 8, 1};
    uint32_t i;

    drv_start(&w.d, vsock_virtio(w.v), 1ull << VIRTIO_RING_F_EVENT_IDX, 3);
    for (i = 0; i < RX_BUFFERS; i++)
        post(i);
    drv_add(&w.d, 2, &e, 1);
    drv_kick(&w.d, 0);
}

static int setup(void **state)
{
    (void)state;
    memset(&w, 0, sizeof(w));
    w.alloc = 262144;
    if (drv_init(&w.d) < 0)
        return -1;
    w.listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    w.addr.sun_family = AF_UNIX;
    w.addr_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                             (size_t)snprintf(w.addr.sun_path + 1, 60, "cella-test-vsock-%d",
                                              (int)getpid()));
    if (bind(w.listen_fd, (struct sockaddr *)&w.addr, w.addr_len) < 0 ||
        listen(w.listen_fd, 128) < 0)
        return -1;
    w.v = vsock_new(&w.d.bind, DEV_VSOCK, w.listen_fd);
    if (!w.v)
        return -1;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    vsock_free(w.v);
    close(w.listen_fd);
    drv_fini(&w.d);
    return 0;
}

static void turn(unsigned ms)
{
    drv_run(&w.d, ms, NULL, NULL);
}

static int client(const char *line)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&w.addr, w.addr_len), 0);
    assert_int_equal(send(fd, line, strlen(line), 0), (ssize_t)strlen(line));
    return fd;
}

/* The next packet to the guest, in w.h and w.data; its buffer is given back. */
static int next(void)
{
    struct vring_desc desc;
    uint32_t len;
    int head = drv_wait(&w.d, 0, &len);

    if (head < 0)
        return 0;
    memcpy(&desc, drv_at(&w.d, DRV_QUEUE_AT(0) + 16ull * (unsigned)head), sizeof(desc));
    memcpy(&w.h, drv_at(&w.d, desc.addr), HDR);
    assert_int_equal(len, HDR + w.h.len);
    memcpy(w.data, drv_at(&w.d, desc.addr + HDR), w.h.len);
    assert_int_equal(w.h.src_cid, 2);
    assert_int_equal(w.h.dst_cid, 3);
    post((uint32_t)((desc.addr - RX_AT(0)) / 0x2000));
    drv_kick(&w.d, 0);
    return 1;
}

static void expect(uint16_t op)
{
    assert_true(next());
    assert_int_equal(w.h.op, op);
    assert_int_equal(w.h.type, VIRTIO_VSOCK_TYPE_STREAM);
}

static void nothing(void)
{
    uint32_t head, len;

    turn(30);
    assert_int_equal(drv_used(&w.d, 0, &head, &len), 0);
}

static void packet(struct virtio_vsock_hdr h, const void *data)
{
    struct piece p[] = {{TX_AT, HDR, 0}, {TX_AT + HDR, h.len, 0}};
    uint32_t len;

    memcpy(drv_at(&w.d, TX_AT), &h, HDR);
    if (h.len)
        memcpy(drv_at(&w.d, TX_AT + HDR), data, h.len);
    drv_add(&w.d, 1, p, h.len ? 2 : 1);
    drv_kick(&w.d, 1);
    assert_true(drv_wait(&w.d, 1, &len) >= 0);
}

/* The connection that the last packet was of. */
struct id {
    uint32_t host, guest, fwd;
};

static struct id this(void)
{
    return (struct id){.host = w.h.src_port, .guest = w.h.dst_port};
}

static void say(const struct id *c, uint16_t op, uint32_t flags, const void *data, uint32_t len)
{
    packet((struct virtio_vsock_hdr){.src_cid = 3,
                                     .dst_cid = 2,
                                     .src_port = c->guest,
                                     .dst_port = c->host,
                                     .type = VIRTIO_VSOCK_TYPE_STREAM,
                                     .op = op,
                                     .flags = flags,
                                     .len = len,
                                     .buf_alloc = w.alloc,
                                     .fwd_cnt = c->fwd},
           data);
}

/* All that a client can have now. */
static ssize_t have(int fd, char *out, size_t len)
{
    size_t n = 0;
    ssize_t r = 0;

    turn(5);
    while (n < len && (r = recv(fd, out + n, len - n, MSG_DONTWAIT)) > 0)
        n += (size_t)r;
    if (n == 0 && r < 0)
        return -errno;
    return (ssize_t)n;
}

static void assert_closed(int fd)
{
    ssize_t n;
    char c;

    turn(30);
    n = recv(fd, &c, 1, MSG_DONTWAIT);
    if (n != 0) /* what the client had said was not read to its end */
        assert_int_equal(errno, ECONNRESET);
    assert_true(n <= 0);
    close(fd);
}

static void assert_open(int fd)
{
    char c;

    turn(30);
    assert_int_equal(recv(fd, &c, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

static struct id connected(int *ret_fd)
{
    char text[32] = {0};
    struct id c;
    int fd = client("CONNECT 1024\n");

    expect(VIRTIO_VSOCK_OP_REQUEST);
    c = this();
    assert_int_equal(c.guest, 1024);
    assert_int_equal(w.h.buf_alloc, ALLOC);
    say(&c, VIRTIO_VSOCK_OP_RESPONSE, 0, NULL, 0);
    assert_int_equal(have(fd, text, sizeof(text)), 8);
    assert_string_equal(text, "OK 1024\n");
    *ret_fd = fd;
    return c;
}

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
    ready();
    c = connected(&fd);
    close(fd);
    do
        expect(VIRTIO_VSOCK_OP_SHUTDOWN);
    while (w.h.flags != 3);
    turn(2100);
    expect(VIRTIO_VSOCK_OP_RST);
    assert_int_equal(w.h.src_port, c.host);
}

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
    turn(20);
    for (i = 0; i < 100 && drv_wait(&w.d, 0, &(uint32_t){0}) >= 0; i++)
        ;
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
    const struct CMUnitTest tests[] = {T(test_bytes),
                                       T(test_lines),
                                       T(test_refused),
                                       T(test_patient),
                                       T(test_patient_unanswered),
                                       T(test_unknown),
                                       T(test_half_close),
                                       T(test_linger),
                                       T(test_credit_to_guest),
                                       T(test_credit_of_guest),
                                       T(test_credit_broken),
                                       T(test_length),
                                       T(test_starved),
                                       T(test_many_clients),
                                       T(test_quiet),
                                       T(test_transport_reset)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
