/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* TCP and UDP over the loopback, on the host's kernel and on ours. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "world.h"

static char bytes[1 << 17];

static struct sockaddr_in address(uint32_t host, unsigned port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(host), .sin_port = htons((uint16_t)port)};
}

static int inet(int type)
{
    return (int)call(SYS_socket, AF_INET, type, 0);
}

static unsigned port_of(int fd)
{
    struct sockaddr_in6 a = {0};
    int length = sizeof(a);

    call(SYS_getsockname, fd, &a, &length);
    return ntohs(a.sin6_port);
}

static void say_name(long number, int fd)
{
    struct sockaddr_in a = {0};
    int length = sizeof(a);
    int64_t r = call(number, fd, &a, &length);

    note("name %ld %d %d %x %d", (long)r, length, (int)a.sin_family, ntohl(a.sin_addr.s_addr),
         a.sin_port != 0);
}

/* What is sent lies in the host's queues for a moment, for longer when others use its network, too. */
static void settle(unsigned ms)
{
    pause_ms(ours ? ms : ms * host_run);
}

static void say_poll(int fd)
{
    struct pollfd p = {.fd = fd, .events = 0x3fff};
    int64_t r;

    settle(5);
    r = call(SYS_poll, &p, 1, 0);
    note("poll %ld %x", (long)r, (unsigned)p.revents);
}

static void say_error(int fd)
{
    int value = -1, length = 4;

    call(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &value, &length);
    note("SO_ERROR %d", value);
}

static void send_(int fd, size_t n)
{
    note("send %zu %ld", n, (long)call(SYS_sendto, fd, bytes, n, MSG_NOSIGNAL, NULL, 0));
}

static void recv_(int fd, size_t n, int flags)
{
    settle(3);
    note("recv %zu %ld", n, (long)call(SYS_recvfrom, fd, bytes, n, flags, NULL, NULL));
}

static int listener(int family, unsigned *ret_port)
{
    struct sockaddr_in a = address(INADDR_LOOPBACK, 0);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    int l = (int)call(SYS_socket, family, SOCK_STREAM, 0);

    if (family == AF_INET)
        note("bind %ld", (long)call(SYS_bind, l, &a, sizeof(a)));
    else
        note("bind %ld", (long)call(SYS_bind, l, &six, sizeof(six)));
    note("listen %ld", (long)call(SYS_listen, l, 5));
    *ret_port = port_of(l);
    return l;
}

static void stream(void)
{
    unsigned port;
    int l = listener(AF_INET, &port), c = inet(SOCK_STREAM), s;
    struct sockaddr_in a = address(INADDR_LOOPBACK, port), from;
    int length = sizeof(from);

    say_poll(l);
    say_poll(c);
    say_name(SYS_getpeername, c);
    note("connect %ld", (long)call(SYS_connect, c, &a, sizeof(a)));
    say_poll(l);
    s = (int)call(SYS_accept4, l, &from, &length, SOCK_NONBLOCK);
    note("accept %d %d %x %d", s > 0, length, ntohl(from.sin_addr.s_addr),
         ntohs(from.sin_port) == port_of(c));
    say_name(SYS_getsockname, c);
    say_name(SYS_getpeername, c);
    say_name(SYS_getsockname, s);
    say_name(SYS_getpeername, s);
    note("same port %d", port_of(s) == port);
    say_poll(c);
    send_(c, 1000);
    say_poll(s);
    recv_(s, 300, MSG_PEEK);
    recv_(s, 300, 0);
    recv_(s, 3000, 0);
    recv_(s, 3000, 0);
    note("again %ld", (long)call(SYS_connect, c, &a, sizeof(a)));
    note("shutdown %ld", (long)call(SYS_shutdown, c, SHUT_WR));
    say_poll(s);
    say_poll(c);
    recv_(s, 10, 0);
    send_(s, 10);
    recv_(c, 100, 0);
    send_(c, 1);
    call(SYS_close, s);
    say_poll(c);
    recv_(c, 100, 0);
    call(SYS_close, c);
    call(SYS_close, l);
}

static void refused(void)
{
    unsigned port;
    int l = listener(AF_INET, &port), c = inet(SOCK_STREAM), d = inet(SOCK_STREAM | SOCK_NONBLOCK);
    struct sockaddr_in a = address(INADDR_LOOPBACK, port), any = address(INADDR_ANY, port);

    note("in use %ld", (long)call(SYS_bind, c, &a, sizeof(a)));
    note("in use %ld", (long)call(SYS_bind, c, &any, sizeof(any)));
    note("to any %ld", (long)call(SYS_connect, c, &any, sizeof(any)));
    note("nonblocking %ld", (long)call(SYS_connect, d, &a, sizeof(a)));
    say_poll(d);
    say_error(d);
    note("then %ld", (long)call(SYS_connect, d, &a, sizeof(a)));
    note("then %ld", (long)call(SYS_connect, d, &a, sizeof(a)));
    call(SYS_close, l);
    c = inet(SOCK_STREAM);
    note("refused %ld", (long)call(SYS_connect, c, &a, sizeof(a)));
    d = inet(SOCK_STREAM | SOCK_NONBLOCK);
    note("refused %ld", (long)call(SYS_connect, d, &a, sizeof(a)));
    say_error(d);
    say_error(d);
    note("short %ld", (long)call(SYS_connect, c, &a, 8));
    a.sin_family = 99;
    note("family %ld", (long)call(SYS_connect, c, &a, sizeof(a)));
    send_(c, 1);
    recv_(c, 1, 0);
    note("shutdown %ld", (long)call(SYS_shutdown, c, SHUT_WR));
    a = address(0x08080808, 53);
    note("not ours %ld", (long)call(SYS_bind, c, &a, sizeof(a)));
}

static void six(void)
{
    unsigned port;
    int l = listener(AF_INET6, &port), c = inet(SOCK_STREAM),
        d = (int)call(SYS_socket, AF_INET6, SOCK_STREAM, 0), length;
    struct sockaddr_in a = address(INADDR_LOOPBACK, port);
    struct sockaddr_in6 b = {.sin6_family = AF_INET6,
                             .sin6_port = htons((uint16_t)port),
                             .sin6_addr = IN6ADDR_LOOPBACK_INIT},
                        from;

    note("by four %ld", (long)call(SYS_connect, c, &a, sizeof(a)));
    length = sizeof(from);
    note("accept %d", call(SYS_accept, l, &from, &length) > 0);
    note("mapped %d %d", length, IN6_IS_ADDR_V4MAPPED(&from.sin6_addr));
    note("by six %ld", (long)call(SYS_connect, d, &b, sizeof(b)));
    length = sizeof(from);
    note("accept %d", call(SYS_accept, l, &from, &length) > 0);
    note("six %d %d", length, IN6_IS_ADDR_LOOPBACK(&from.sin6_addr));
    note("mixed %ld", (long)call(SYS_connect, inet(SOCK_STREAM), &b, sizeof(b)));
}

static void options(void)
{
    int s = inet(SOCK_STREAM), u = inet(SOCK_DGRAM), one = 1, value, length = 4;
    static const int names[][2] = {
        {IPPROTO_TCP, TCP_NODELAY}, {IPPROTO_TCP, TCP_KEEPIDLE}, {IPPROTO_TCP, TCP_KEEPCNT},
        {SOL_SOCKET, SO_KEEPALIVE}, {SOL_SOCKET, SO_REUSEPORT},  {SOL_SOCKET, SO_TYPE},
        {SOL_SOCKET, SO_PROTOCOL},  {SOL_SOCKET, SO_DOMAIN},     {IPPROTO_TCP, 9999}};
    unsigned i;
    int64_t r;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        value = -1;
        r = call(SYS_getsockopt, s, names[i][0], names[i][1], &value, &length);
        note("get %ld %d", (long)r, value);
        note("set %ld", (long)call(SYS_setsockopt, s, names[i][0], names[i][1], &one, 4));
        r = call(SYS_getsockopt, s, names[i][0], names[i][1], &value, &length);
        note("get %ld %d", (long)r, value);
    }
    note("no stream %ld", (long)call(SYS_setsockopt, u, IPPROTO_TCP, TCP_NODELAY, &one, 4));
    note("bad %ld %ld %ld", (long)call(SYS_socket, AF_INET, SOCK_SEQPACKET, 0),
         (long)call(SYS_socket, AF_INET, SOCK_STREAM, 17),
         (long)call(SYS_socketpair, AF_INET, SOCK_STREAM, 0, bytes));
}

static void datagrams(void)
{
    int s = inet(SOCK_DGRAM | SOCK_NONBLOCK), c = inet(SOCK_DGRAM | SOCK_NONBLOCK), length, other;
    struct sockaddr_in a = address(INADDR_ANY, 0), to, from;

    say_poll(s);
    note("bind %ld", (long)call(SYS_bind, s, &a, sizeof(a)));
    to = address(INADDR_LOOPBACK, port_of(s));
    note("sendto %ld", (long)call(SYS_sendto, c, bytes, 10, 0, &to, sizeof(to)));
    note("has a port %d", port_of(c) != 0);
    say_poll(s);
    length = sizeof(from);
    note("recvfrom %ld", (long)call(SYS_recvfrom, s, bytes, 4, MSG_TRUNC, &from, &length));
    note("from %d %x %d", length, ntohl(from.sin_addr.s_addr), ntohs(from.sin_port) == port_of(c));
    recv_(s, 10, 0);
    send_(c, 10);
    note("connect %ld", (long)call(SYS_connect, c, &to, sizeof(to)));
    say_name(SYS_getsockname, c);
    say_name(SYS_getpeername, c);
    send_(c, 0);
    send_(c, 20);
    recv_(s, 100, 0);
    recv_(s, 100, 0);
    note("back %ld", (long)call(SYS_sendto, s, bytes, 30, 0, &from, sizeof(from)));
    recv_(c, 100, 0);
    other = inet(SOCK_DGRAM);
    from = address(INADDR_LOOPBACK, port_of(c));
    note("not heard %ld", (long)call(SYS_sendto, other, bytes, 40, 0, &from, sizeof(from)));
    recv_(c, 100, 0);
    note("large %ld", (long)call(SYS_sendto, other, bytes, 65508, 0, &to, sizeof(to)));
    call(SYS_close, s);
    send_(c, 5);
    say_poll(c);
    send_(c, 5);
    recv_(c, 5, 0);
    say_error(c);
    note("listen %ld accept %ld", (long)call(SYS_listen, c, 1),
         (long)call(SYS_accept, c, NULL, NULL));
}

static void nothing_else(void)
{
    struct sockaddr_in far = address(0x08080808, 53);
    int s = inet(SOCK_STREAM), u = inet(SOCK_DGRAM);

    note("far %ld %ld %ld", (long)call(SYS_connect, s, &far, sizeof(far)),
         (long)call(SYS_connect, u, &far, sizeof(far)),
         (long)call(SYS_sendto, u, bytes, 1, 0, &far, sizeof(far)));
    note("raw %ld", (long)call(SYS_socket, AF_INET, SOCK_RAW, 1));
}

static void much(void)
{
    unsigned port;
    int l = listener(AF_INET, &port), c = inet(SOCK_STREAM), s;
    struct sockaddr_in a = address(INADDR_LOOPBACK, port);
    struct other *o;

    call(SYS_connect, c, &a, sizeof(a));
    s = (int)call(SYS_accept, l, NULL, NULL);
    o = begin(SYS_recvfrom, s, bytes, 100000, MSG_WAITALL, NULL, NULL);
    note("waits %d", waits(o));
    send_(c, 60000);
    send_(c, 60000);
    note("recv %ld", (long)end(o));
    recv_(s, 100000, 0);
    o = begin(SYS_recvfrom, s, bytes, 10, 0, NULL, NULL);
    note("waits %d", waits(o));
    call(SYS_close, c);
    note("end %ld", (long)end(o));
}

#define BOTH(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        both_sometimes(name);                                                                      \
    }
BOTH(stream)
BOTH(refused)
BOTH(six)
BOTH(options)
BOTH(datagrams)
BOTH(much)

static void test_nothing_else(void **state)
{
    (void)state;
    ours_alone(nothing_else, "far -101 -101 -101\nraw -1\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_six),          cmocka_unit_test(test_options),
        cmocka_unit_test(test_datagrams),    cmocka_unit_test(test_much),
        cmocka_unit_test(test_nothing_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
