/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* One multiplexer, one guest, any number of clients. Threads: one. */
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

struct world w;

void post(uint32_t i)
{
    struct piece p = {RX_AT(i), RX_LEN, 1};

    drv_add(&w.d, 0, &p, 1);
}

void ready(void)
{
    struct piece e = {EVENT_AT, 8, 1};
    uint32_t i;

    drv_start(&w.d, vsock_virtio(w.v), 1ull << VIRTIO_RING_F_EVENT_IDX, 3);
    for (i = 0; i < RX_BUFFERS; i++)
        post(i);
    drv_add(&w.d, 2, &e, 1);
    drv_kick(&w.d, 0);
}

int setup(void **state)
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

int teardown(void **state)
{
    (void)state;
    vsock_free(w.v);
    close(w.listen_fd);
    drv_fini(&w.d);
    return 0;
}

void turn(unsigned ms)
{
    drv_run(&w.d, ms, NULL, NULL);
}

int client(const char *line)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&w.addr, w.addr_len), 0);
    assert_int_equal(send(fd, line, strlen(line), 0), (ssize_t)strlen(line));
    return fd;
}

/* The next packet to the guest, in w.h and w.data; its buffer is given back. */
int next(void)
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

void expect(uint16_t op)
{
    assert_true(next());
    assert_int_equal(w.h.op, op);
    assert_int_equal(w.h.type, VIRTIO_VSOCK_TYPE_STREAM);
}

void nothing(void)
{
    uint32_t head, len;

    turn(30);
    assert_int_equal(drv_used(&w.d, 0, &head, &len), 0);
}

void packet(struct virtio_vsock_hdr h, const void *data)
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

struct id this(void)
{
    return (struct id){.host = w.h.src_port, .guest = w.h.dst_port};
}

void say(const struct id *c, uint16_t op, uint32_t flags, const void *data, uint32_t len)
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
ssize_t have(int fd, char *out, size_t len)
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

void assert_closed(int fd)
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

void assert_open(int fd)
{
    char c;

    turn(30);
    assert_int_equal(recv(fd, &c, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

struct id connected(int *ret_fd)
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
