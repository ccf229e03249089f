/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Unix sockets, on the host's kernel and on ours: pairs, names, connections, ends, what polls show. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "sockets.h"
#include "world.h"

static void ends_of(int type)
{
    pair(type | SOCK_NONBLOCK);
    polls();
    send_(fds[0], 10, 0);
    send_(fds[0], 0, 0);
    polls();
    say_waiting(fds[1]);
    recv_(fds[1], 4, MSG_PEEK);
    recv_(fds[1], 4, 0);
    say_waiting(fds[1]);
    recv_(fds[1], 100, MSG_TRUNC);
    recv_(fds[1], 100, 0);
    recv_(fds[1], 100, 0);
    send_(fds[1], 5, MSG_NOSIGNAL);
    note("shutdown %ld", (long)call(SYS_shutdown, fds[0], SHUT_WR));
    polls();
    send_(fds[0], 1, 0);
    send_(fds[0], 1, MSG_NOSIGNAL);
    note("SIGPIPE %u", sigpipes());
    recv_(fds[1], 100, 0);
    recv_(fds[0], 100, 0);
    recv_(fds[0], 100, 0);
    note("shutdown %ld %ld", (long)call(SYS_shutdown, fds[0], SHUT_RD),
         (long)call(SYS_shutdown, fds[0], 3));
    polls();
    send_(fds[1], 1, 0);
    note("SIGPIPE %u", sigpipes());
    recv_(fds[1], 1, 0);
    call(SYS_close, fds[0]);
    polls();
    recv_(fds[1], 1, 0);
    send_(fds[1], 1, 0);
    note("SIGPIPE %u", sigpipes());
    say_option(fds[1], SO_ERROR);
    say_poll(fds[1]);
}

static void closed_with_unread(int type)
{
    pair(type | SOCK_NONBLOCK);
    send_(fds[0], 10, 0);
    send_(fds[1], 10, 0);
    call(SYS_close, fds[0]);
    polls();
    recv_(fds[1], 100, 0);
    recv_(fds[1], 100, 0);
    polls();
    send_(fds[1], 1, 0);
    send_(fds[1], 1, 0);
    say_option(fds[1], SO_ERROR);
    note("SIGPIPE %u", sigpipes());
}

static void all_ends(void)
{
    ends_of(SOCK_STREAM);
    ends_of(SOCK_DGRAM);
    ends_of(SOCK_SEQPACKET);
    closed_with_unread(SOCK_STREAM);
    closed_with_unread(SOCK_DGRAM);
    closed_with_unread(SOCK_SEQPACKET);
}

static void fill(int type, size_t size)
{
    int64_t r;
    int n = 0;

    pair(type | SOCK_NONBLOCK);
    while ((r = call(SYS_sendto, fds[0], bytes, size, 0, NULL, 0)) == (int64_t)size)
        n++;
    note("full after %d of %zu: %ld", n, size, (long)r);
    polls();
    recv_(fds[1], size, 0);
    polls();
    while (call(SYS_recvfrom, fds[1], bytes, sizeof(bytes), 0, NULL, NULL) > 0)
        ;
    polls();
    call(SYS_close, fds[0]);
    call(SYS_close, fds[1]);
}

static void how_much_fits(void)
{
    fill(SOCK_STREAM, 1);
    fill(SOCK_STREAM, 100);
    fill(SOCK_STREAM, 4096);
    fill(SOCK_STREAM, 300000);
    fill(SOCK_SEQPACKET, 1);
    fill(SOCK_SEQPACKET, 1000);
    fill(SOCK_SEQPACKET, 200000);
    pair(SOCK_DGRAM | SOCK_NONBLOCK);
    send_(fds[0], 212960, 0);
    send_(fds[0], 212961, 0);
}

static void listening(void)
{
    int l = unix_socket(SOCK_STREAM | SOCK_NONBLOCK), c[4], s, i;

    say_poll(l);
    note("listen %ld", (long)call(SYS_listen, l, 1));
    note("accept %ld", (long)call(SYS_accept, l, NULL, NULL));
    note("bind %ld", (long)abstract(SYS_bind, l, 1));
    note("bind %ld", (long)abstract(SYS_bind, l, 2));
    say_name(SYS_getsockname, l);
    say_name(SYS_getpeername, l);
    s = unix_socket(SOCK_STREAM);
    note("in use %ld", (long)abstract(SYS_bind, s, 1));
    note("refused %ld", (long)abstract(SYS_connect, s, 1));
    note("listen %ld", (long)call(SYS_listen, l, 1));
    say_poll(l);
    say_option(l, SO_ACCEPTCONN);
    note("accept %ld", (long)call(SYS_accept4, l, NULL, NULL, 0));
    for (i = 0; i < 4; i++) {
        c[i] = unix_socket(SOCK_STREAM | SOCK_NONBLOCK);
        note("connect %ld", (long)abstract(SYS_connect, c[i], 1));
    }
    say_poll(l);
    say_poll(c[0]);
    send_(c[0], 5, 0);
    say_name(SYS_getpeername, c[0]);
    s = (int)call(SYS_accept4, l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    note("accept %d", s > 0);
    note("fl %lx %ld", (long)call(SYS_fcntl, s, F_GETFL), (long)call(SYS_fcntl, s, F_GETFD));
    say_name(SYS_getpeername, s);
    say_name(SYS_getsockname, s);
    recv_(s, 10, 0);
    note("again %ld", (long)abstract(SYS_connect, c[0], 1));
    note("to myself %ld", (long)abstract(SYS_connect, l, 1));
    note("bad %ld", (long)call(SYS_accept4, l, NULL, NULL, 1));
    note("recv %ld", (long)call(SYS_recvfrom, l, bytes, 1, 0, NULL, NULL));
    send_(l, 1, MSG_NOSIGNAL);
    say_waiting(l);
    call(SYS_close, l);
    say_poll(c[1]);
    recv_(c[1], 1, 0);
    recv_(c[1], 1, 0);
    send_(c[1], 1, MSG_NOSIGNAL);
    send_(s, 3, 0);
    recv_(c[0], 3, 0);
    note("gone %ld", (long)abstract(SYS_connect, c[3], 1));
}

static void unconnected(void)
{
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    unsigned i;
    int s;

    for (i = 0; i < 3; i++) {
        s = unix_socket(types[i] | SOCK_NONBLOCK);
        say_poll(s);
        send_(s, 1, MSG_NOSIGNAL);
        recv_(s, 1, 0);
        note("listen %ld accept %ld", (long)call(SYS_listen, s, 1),
             (long)call(SYS_accept, s, NULL, NULL));
        note("shutdown %ld", (long)call(SYS_shutdown, s, SHUT_RDWR));
        say_poll(s);
        recv_(s, 1, 0);
        say_name(SYS_getsockname, s);
        say_name(SYS_getpeername, s);
        note("nobody %ld", (long)abstract(SYS_connect, s, 99));
        note("nothing %ld", (long)with_name(SYS_connect, s, "/nowhere/x", 10));
        note("odd %ld %ld", (long)call(SYS_connect, s, bytes, 2),
             (long)call(SYS_bind, s, bytes, 1));
        say_option(s, SO_TYPE);
        say_option(s, SO_DOMAIN);
        say_option(s, SO_PROTOCOL);
    }
    note("bad %ld %ld %ld %ld", (long)call(SYS_socket, AF_UNIX, 9, 0),
         (long)call(SYS_socket, AF_UNIX, SOCK_STREAM, 5),
         (long)call(SYS_socket, 4711, SOCK_STREAM, 0),
         (long)call(SYS_socket, AF_UNIX, SOCK_STREAM | 0x100, 0));
    call(SYS_pipe2, fds, 0);
    note("no socket %ld %ld", (long)call(SYS_listen, fds[0], 1), (long)call(SYS_listen, 777, 1));
}

static void datagrams(void)
{
    int a = unix_socket(SOCK_DGRAM | SOCK_NONBLOCK), b = unix_socket(SOCK_DGRAM | SOCK_NONBLOCK), c,
        i, length;
    struct sockaddr_un to = {.sun_family = AF_UNIX}, from;
    int n = snprintf(to.sun_path, sizeof(to.sun_path), "%ccella-test-%d-%d", 0, 5, (int)getpid());
    size_t to_length = offsetof(struct sockaddr_un, sun_path) + (size_t)n;

    note("bind %ld", (long)abstract(SYS_bind, b, 5));
    note("sendto %ld", (long)call(SYS_sendto, a, "hello", 5, 0, &to, to_length));
    length = sizeof(from);
    note("from nobody %ld", (long)call(SYS_recvfrom, b, bytes, 10, 0, &from, &length));
    note("%d", length);
    note("bind %ld", (long)abstract(SYS_bind, a, 6));
    note("connect %ld", (long)abstract(SYS_connect, a, 5));
    send_(a, 7, 0);
    length = sizeof(from);
    note("from %ld", (long)call(SYS_recvfrom, b, bytes, 3, MSG_TRUNC, &from, &length));
    note("%d", length - (int)to_length);
    say_name(SYS_getpeername, a);
    say_name(SYS_getpeername, b);
    note("back %ld", (long)abstract(SYS_connect, b, 6));
    c = unix_socket(SOCK_DGRAM | SOCK_NONBLOCK);
    note("not to you %ld", (long)call(SYS_sendto, c, "x", 1, 0, &to, to_length));
    note("not to you %ld", (long)abstract(SYS_connect, c, 5));
    for (i = 0; i < 15; i++)
        send_(a, 1, 0);
    say_poll(a);
    recv_(b, 1, 0);
    say_poll(a);
    call(SYS_close, b);
    say_poll(a);
    send_(a, 1, 0);
    say_poll(a);
    send_(a, 1, 0);
    note("type %ld", (long)abstract(SYS_connect, unix_socket(SOCK_STREAM), 6));
    note("unspecified %ld", (long)call(SYS_connect, a, bytes, 16));
}

static void full_datagrams(void)
{
    int a = unix_socket(SOCK_DGRAM | SOCK_NONBLOCK), b = unix_socket(SOCK_DGRAM | SOCK_NONBLOCK), i;
    struct other *o;

    abstract(SYS_bind, b, 7);
    note("connect %ld", (long)abstract(SYS_connect, a, 7));
    for (i = 0; i < 2000; i++)
        if (call(SYS_sendto, a, "x", 1, 0, NULL, 0) != 1)
            break;
    note("full");
    say_poll(a);
    call(SYS_fcntl, a, F_SETFL, 0);
    o = begin(SYS_sendto, a, "yy", 2, 0, NULL, 0);
    note("waits %d", waits(o));
    recv_(b, 1, 0);
    note("sent %ld", (long)end(o));
    o = begin(SYS_sendto, a, "yy", 2, 0, NULL, 0);
    note("waits %d", waits(o));
    call(SYS_close, b);
    note("refused %ld", (long)end(o));
}

static void paths(void)
{
    int l = unix_socket(SOCK_STREAM), c = unix_socket(SOCK_STREAM);
    char name[64];
    size_t n = (size_t)snprintf(name, sizeof(name), "/tmp/cella-ipc-%d", (int)getpid());

    note("bind %ld", (long)with_name(SYS_bind, l, name, n));
    note("again %ld", (long)with_name(SYS_bind, c, name, n + 1));
    say_name(SYS_getsockname, l);
    note("refused %ld", (long)with_name(SYS_connect, c, name, n));
    note("listen %ld", (long)call(SYS_listen, l, 5));
    note("type %ld", (long)with_name(SYS_connect, unix_socket(SOCK_DGRAM), name, n));
    note("connect %ld", (long)with_name(SYS_connect, c, name, n + 1));
    say_name(SYS_getpeername, c);
    call(SYS_close, l);
    note("dead %ld", (long)with_name(SYS_connect, unix_socket(SOCK_STREAM), name, n));
    note("in use %ld", (long)with_name(SYS_bind, unix_socket(SOCK_STREAM), name, n));
    note("unlink %ld", (long)call(SYS_unlink, name));
    note("gone %ld", (long)with_name(SYS_connect, unix_socket(SOCK_STREAM), name, n));
}

static void waiting(void)
{
    struct timeval some = {0, 20000};
    int l = unix_socket(SOCK_STREAM), c, d;
    struct other *o;

    pair(SOCK_STREAM);
    o = begin(SYS_recvfrom, fds[0], bytes, 10, 0, NULL, NULL);
    note("waits %d", waits(o));
    send_(fds[1], 4, 0);
    note("recv %ld", (long)end(o));
    o = begin(SYS_recvfrom, fds[0], bytes, 10, MSG_WAITALL, NULL, NULL);
    send_(fds[1], 4, 0);
    note("waits %d", waits(o));
    send_(fds[1], 9, 0);
    note("recv %ld", (long)end(o));
    recv_(fds[0], 10, MSG_DONTWAIT);
    o = begin(SYS_sendto, fds[0], bytes, 400000, 0, NULL, 0);
    note("waits %d", waits(o));
    note("rest %ld", (long)call(SYS_recvfrom, fds[1], bytes, 400000, MSG_WAITALL, NULL, NULL));
    note("sent %ld", (long)end(o));
    note("time %ld",
         (long)call(SYS_setsockopt, fds[0], SOL_SOCKET, SO_RCVTIMEO, &some, sizeof(some)));
    recv_(fds[0], 10, 0);
    o = begin(SYS_recvfrom, fds[1], bytes, 10, 0, NULL, NULL);
    note("waits %d", waits(o));
    call(SYS_close, fds[0]);
    note("end %ld", (long)end(o));
    abstract(SYS_bind, l, 8);
    call(SYS_listen, l, 0);
    o = begin(SYS_accept, l, NULL, NULL);
    note("waits %d", waits(o));
    c = unix_socket(SOCK_STREAM);
    note("connect %ld", (long)abstract(SYS_connect, c, 8));
    note("accept %d", end(o) > 0);
    abstract(SYS_connect, unix_socket(SOCK_STREAM), 8);
    d = unix_socket(SOCK_STREAM | SOCK_NONBLOCK);
    note("full %ld", (long)abstract(SYS_connect, d, 8));
    o = begin(SYS_accept, l, NULL, NULL);
    note("accept %d", end(o) > 0);
    note("room %ld", (long)abstract(SYS_connect, d, 8));
    o = begin(SYS_accept, l, NULL, NULL);
    note("accept %d", end(o) > 0);
    o = begin(SYS_accept, l, NULL, NULL);
    note("waits %d", waits(o));
    note("shutdown %ld", (long)call(SYS_shutdown, l, SHUT_RDWR));
    note("accept %ld", (long)end(o));
}

#define BOTH(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        both(name);                                                                                \
    }
BOTH(all_ends)
BOTH(how_much_fits)
BOTH(listening)
BOTH(unconnected)
BOTH(datagrams)
BOTH(full_datagrams)
BOTH(paths)
BOTH(waiting)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ends),  cmocka_unit_test(test_how_much_fits),
        cmocka_unit_test(test_listening), cmocka_unit_test(test_unconnected),
        cmocka_unit_test(test_datagrams), cmocka_unit_test(test_full_datagrams),
        cmocka_unit_test(test_paths),     cmocka_unit_test(test_waiting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
