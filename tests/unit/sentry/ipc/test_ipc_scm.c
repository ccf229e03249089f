/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What goes beside the bytes of Unix sockets, on the host's kernel and on ours. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "world.h"

static int fds[2];
static char bytes[4096];
static union {
    struct cmsghdr header;
    char bytes[2048];
} control;

static void pair(int type)
{
    note("socketpair %ld", (long)call(SYS_socketpair, AF_UNIX, type | SOCK_NONBLOCK, 0, fds));
}

/* Sends n bytes with these descriptors. */
static int64_t send_files(int fd, size_t n, const int *files, unsigned n_files)
{
    struct iovec v = {bytes, n};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = CMSG_SPACE(n_files * 4)};

    memset(&control, 0, sizeof(control));
    control.header = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(n_files * 4), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), files, n_files * 4);
    return call(SYS_sendmsg, fd, &m, 0);
}

static int received[300];

/* Receives; says what came beside. The descriptors are in received[]. */
static unsigned recv_(int fd, size_t n, size_t room, int flags)
{
    struct sockaddr_un name;
    struct iovec v = {bytes, n};
    struct msghdr m = {.msg_name = &name,
                       .msg_namelen = sizeof(name),
                       .msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = room ? &control : NULL,
                       .msg_controllen = room};
    struct cmsghdr *c;
    unsigned n_files = 0;
    int64_t r;

    memset(&control, 0, sizeof(control));
    r = call(SYS_recvmsg, fd, &m, flags);
    if (r < 0) {
        note("recvmsg %ld", (long)r);
        return 0;
    }
    note("recvmsg %ld flags %x control %zu name %u", (long)r, (unsigned)m.msg_flags,
         m.msg_controllen, m.msg_namelen);
    for (c = m.msg_controllen >= sizeof(*c) ? &control.header : NULL; c; c = CMSG_NXTHDR(&m, c)) {
        note(" %zu %d %d", c->cmsg_len, c->cmsg_level, c->cmsg_type);
        if (c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len == CMSG_LEN(sizeof(struct ucred)))
            note(" mine %d",
                 memcmp(CMSG_DATA(c), (uint32_t[3]){(uint32_t)getpid(), getuid(), getgid()}, 12) ==
                     0);
        if (c->cmsg_type != SCM_RIGHTS)
            continue;
        n_files = (unsigned)((c->cmsg_len - sizeof(*c)) / 4);
        memcpy(received, CMSG_DATA(c), n_files * 4ul);
    }
    return n_files;
}

static void close_received(unsigned n)
{
    while (n-- > 0)
        call(SYS_close, received[n]);
}

static void one_descriptor(int type)
{
    int p[2];
    unsigned n;

    pair(type);
    call(SYS_pipe2, p, O_NONBLOCK);
    note("send %ld", (long)send_files(fds[0], 3, p, 1));
    call(SYS_close, p[0]);
    note("write %ld", (long)call(SYS_write, p[1], "abc", 3));
    n = recv_(fds[1], 10, sizeof(control), MSG_CMSG_CLOEXEC);
    note("got %u cloexec %ld", n, (long)call(SYS_fcntl, received[0], F_GETFD));
    note("read %ld", (long)call(SYS_read, received[0], bytes, 10));
    close_received(n);
    note("closed %ld", (long)call(SYS_write, p[1], "abc", 3));
    note("send %ld", (long)send_files(fds[0], 2, p + 1, 1));
    n = recv_(fds[1], 10, sizeof(control), MSG_PEEK);
    close_received(n);
    n = recv_(fds[1], 10, sizeof(control), 0);
    note("again %u cloexec %ld", n, (long)call(SYS_fcntl, received[0], F_GETFD));
    close_received(n);
    note("bad %ld", (long)send_files(fds[0], 1, (int[]){777}, 1));
    call(SYS_close, fds[0]);
    call(SYS_close, fds[1]);
}

static void descriptors(void)
{
    one_descriptor(SOCK_STREAM);
    one_descriptor(SOCK_DGRAM);
    one_descriptor(SOCK_SEQPACKET);
}

static void little_room(void)
{
    int many[300], i;
    static const size_t rooms[] = {0, 1, 15, 16, 17, 19, 20, 23, 24, 27, 28, 31, 32, 200};

    for (i = 0; i < 300; i++)
        many[i] = 1;
    pair(SOCK_STREAM);
    call(SYS_dup, fds[0]);
    for (i = 0; i < 300; i++)
        many[i] = fds[0];
    note("most %ld", (long)send_files(fds[0], 1, many, 253));
    note("more %ld", (long)send_files(fds[0], 1, many, 254));
    close_received(recv_(fds[1], 10, sizeof(control), 0));
    for (i = 0; i < (int)(sizeof(rooms) / sizeof(rooms[0])); i++) {
        note("send %ld room %zu", (long)send_files(fds[0], 1, many, 3), rooms[i]);
        close_received(recv_(fds[1], 10, rooms[i], 0));
    }
    note("read %ld", (long)send_files(fds[0], 1, many, 3));
    note("read %ld", (long)call(SYS_read, fds[1], bytes, 10));
}

static void between_bytes(void)
{
    int p[2];

    pair(SOCK_STREAM);
    call(SYS_pipe2, p, 0);
    call(SYS_write, fds[0], bytes, 5);
    note("send %ld", (long)send_files(fds[0], 5, p, 1));
    call(SYS_write, fds[0], bytes, 5);
    note("send %ld", (long)send_files(fds[0], 5, p, 2));
    note("send %ld", (long)send_files(fds[0], 5, p, 1));
    close_received(recv_(fds[1], 3, 200, MSG_PEEK));
    close_received(recv_(fds[1], 100, 200, MSG_PEEK));
    close_received(recv_(fds[1], 8, 200, 0));
    close_received(recv_(fds[1], 8, 200, 0));
    close_received(recv_(fds[1], 100, 200, 0));
    close_received(recv_(fds[1], 100, 200, 0));
    close_received(recv_(fds[1], 100, 200, 0));
    close_received(recv_(fds[1], 100, 200, 0));
}

static int64_t send_cred(uint32_t pid, uint32_t uid, size_t size)
{
    struct iovec v = {bytes, 1};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = CMSG_SPACE(size)};
    const uint32_t cred[3] = {pid, uid, getgid()};

    control.header = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(size), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS};
    memcpy(CMSG_DATA(&control.header), cred, size);
    return call(SYS_sendmsg, fds[0], &m, 0);
}

static void credentials(int type)
{
    int on = 1, length = 12;
    uint32_t cred[3] = {0};

    pair(type);
    note("passcred %ld", (long)call(SYS_setsockopt, fds[1], SOL_SOCKET, SO_PASSCRED, &on, 4));
    note("send %ld", (long)call(SYS_sendto, fds[0], bytes, 2, 0, NULL, 0));
    recv_(fds[1], 10, 200, 0);
    note("send %ld", (long)call(SYS_sendto, fds[0], bytes, 2, 0, NULL, 0));
    recv_(fds[1], 10, 20, 0);
    note("send %ld", (long)call(SYS_sendto, fds[0], bytes, 2, 0, NULL, 0));
    recv_(fds[1], 10, 0, 0);
    note("own %ld", (long)send_cred((uint32_t)getpid(), getuid(), 12));
    recv_(fds[1], 10, 200, 0);
    note("short %ld", (long)send_cred((uint32_t)getpid(), getuid(), 8));
    note("nobody %ld", (long)send_cred(99999999, getuid(), 12));
    note("files %ld", (long)send_files(fds[0], 1, fds, 2));
    close_received(recv_(fds[1], 10, 200, 0));
    note("peer %ld", (long)call(SYS_getsockopt, fds[0], SOL_SOCKET, SO_PEERCRED, cred, &length));
    note("mine %d %d", length, cred[0] == (uint32_t)getpid() && cred[1] == getuid());
    call(SYS_close, fds[0]);
    call(SYS_close, fds[1]);
}

static void all_credentials(void)
{
    credentials(SOCK_STREAM);
    credentials(SOCK_DGRAM);
    credentials(SOCK_SEQPACKET);
}

static void odd_headers(void)
{
    struct iovec v = {bytes, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control};
    static const struct {
        size_t room, length;
        int level, type;
    } odd[] = {{15, 20, 1, 1}, {16, 15, 1, 1}, {16, 17, 1, 1}, {16, 16, 1, 1},
               {24, 20, 2, 1}, {24, 20, 1, 7}, {24, 24, 1, 1}, {24, 19, 1, 1},
               {40, 16, 1, 1}, {8, 0, 0, 0},   {24, 0, 1, 1}};
    unsigned i;

    pair(SOCK_STREAM);
    for (i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        memset(&control, 0, sizeof(control));
        control.header = (struct cmsghdr){
            .cmsg_len = odd[i].length, .cmsg_level = odd[i].level, .cmsg_type = odd[i].type};
        memcpy(CMSG_DATA(&control.header), (int[]){fds[0], fds[0]}, 8);
        m.msg_controllen = odd[i].room;
        note("%u: %ld", i, (long)call(SYS_sendmsg, fds[0], &m, 0));
    }
    m.msg_controllen = 0;
    m.msg_iovlen = 1025;
    note("iov %ld", (long)call(SYS_sendmsg, fds[0], &m, 0));
    m.msg_iovlen = 0;
    note("nothing %ld", (long)call(SYS_sendmsg, fds[0], &m, 0));
    m.msg_iovlen = 1;
    m.msg_iov = (struct iovec *)8;
    note("fault %ld", (long)call(SYS_sendmsg, fds[0], &m, 0));
    note("fault %ld", (long)call(SYS_sendmsg, fds[0], 8, 0));
    m.msg_iov = &v;
    m.msg_name = bytes;
    m.msg_namelen = (socklen_t)-1;
    note("name %ld", (long)call(SYS_sendmsg, fds[0], &m, 0));
}

static void several(void)
{
    struct iovec v[4];
    struct mmsghdr m[4] = {0};
    struct timespec bad = {0, 1000000000};
    int i;

    pair(SOCK_DGRAM);
    for (i = 0; i < 4; i++) {
        v[i] = (struct iovec){bytes + i * 100, (size_t)(10 + i)};
        m[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1};
    }
    note("sendmmsg %ld", (long)call(SYS_sendmmsg, fds[0], m, 3, 0));
    note("%u %u %u", m[0].msg_len, m[1].msg_len, m[2].msg_len);
    for (i = 0; i < 4; i++)
        v[i].iov_len = 100;
    note("recvmmsg %ld", (long)call(SYS_recvmmsg, fds[1], m, 2, 0, NULL));
    note("%u %u", m[0].msg_len, m[1].msg_len);
    note("recvmmsg %ld", (long)call(SYS_recvmmsg, fds[1], m, 4, MSG_WAITFORONE, NULL));
    note("recvmmsg %ld", (long)call(SYS_recvmmsg, fds[1], m, 4, 0, NULL));
    note("recvmmsg %ld", (long)call(SYS_recvmmsg, fds[1], m, 4, 0, &bad));
}

/* Sockets that only their own queues hold: fake_end() sees whether any is left. */
static void circles(void)
{
    int a[2], b[2], i, listener = (int)call(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    snprintf(name.sun_path + 1, 14, "cella-%07d", (int)getpid()); /* 16 bytes with the family */
    for (i = 0; i < 5; i++) {
        call(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, a);
        call(SYS_socketpair, AF_UNIX, i & 1 ? SOCK_DGRAM : SOCK_SEQPACKET, 0, b);
        note("into itself %ld", (long)send_files(a[0], 1, &a[1], 1));
        note("into another %ld %ld", (long)send_files(b[0], 1, &a[0], 1),
             (long)send_files(a[0], 1, b, 2));
        call(SYS_close, a[0]);
        call(SYS_close, a[1]);
        call(SYS_close, b[0]);
        call(SYS_close, b[1]);
    }
    fds[0] = fds[1] = -1;
    call(SYS_bind, listener, &name, 16);
    call(SYS_listen, listener, 5);
    a[0] = (int)call(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
    note("connect %ld", (long)call(SYS_connect, a[0], &name, 16));
    note("listener %ld", (long)send_files(a[0], 1, &listener, 1));
    call(SYS_close, listener);
    note("still there %ld",
         (long)call(SYS_connect, call(SYS_socket, AF_UNIX, SOCK_STREAM, 0), &name, 16) * 0);
    call(SYS_close, a[0]);
}

/* Each carries the one before it: when the last is let go, all are, however many. */
static void chain(void)
{
    int last[2], next[2], i, wrong = 0;

    call(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, last);
    for (i = 0; i < 5000; i++) {
        call(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, next);
        wrong += send_files(next[0], 1, last, 2) != 1;
        call(SYS_close, last[0]);
        call(SYS_close, last[1]);
        memcpy(last, next, sizeof(last));
    }
    call(SYS_close, last[0]);
    call(SYS_close, last[1]);
    note("wrong %d", wrong);
}

/* Circles of which no socket is ever released by itself, more of them than descriptors may be on their way. */
static void endless_circles(void)
{
    int a[2], i, wrong = 0;

    for (i = 0; i < 20000; i++) {
        call(SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, a);
        wrong += send_files(a[0], 1, a, 2) != 1;
        call(SYS_close, a[0]);
        call(SYS_close, a[1]);
    }
    note("wrong %d", wrong);
    call(SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0,
         a); /* one that is released: the rest goes with it */
    call(SYS_close, a[0]);
    call(SYS_close, a[1]);
}

static void bounds(void)
{
    int many[253];
    int64_t r = 1;
    unsigned i, n = 0;

    pair(SOCK_DGRAM);
    for (i = 0; i < 253; i++)
        many[i] = fds[0];
    while (r == 1 && n < 100) {
        if (n % 10 == 9)
            pair(SOCK_DGRAM);
        r = send_files(fds[0], 1, many, 253);
        n += r == 1;
    }
    note("%u times 253, then %ld", n, (long)r);
}

#define BOTH(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        both(name);                                                                                \
    }
BOTH(descriptors)
BOTH(little_room)
BOTH(between_bytes)
BOTH(all_credentials)
BOTH(odd_headers)
BOTH(several)
BOTH(circles)
BOTH(chain)

static void test_endless_circles(void **state)
{
    (void)state;
    ours_alone(endless_circles, "wrong 0\n"); /* the host takes a minute */
}

static void test_bounds(void **state)
{
    (void)state;
    ours_alone(
        bounds,
        "socketpair 0\nsocketpair 0\nsocketpair 0\nsocketpair 0\nsocketpair 0\nsocketpair 0\n"
        "socketpair 0\n64 times 253, then -109\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptors),   cmocka_unit_test(test_little_room),
        cmocka_unit_test(test_between_bytes), cmocka_unit_test(test_all_credentials),
        cmocka_unit_test(test_odd_headers),   cmocka_unit_test(test_several),
        cmocka_unit_test(test_circles),       cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_chain),         cmocka_unit_test(test_endless_circles),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
