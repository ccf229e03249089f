/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Unix sockets, on the host's kernel and on ours: edges that epoll sees, options, all of it at random. Long lists, on ours. */
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>

#include "sockets.h"
#include "task.h"

static void edges(void)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    int ep = (int)call(SYS_epoll_create1, 0), i;
    int64_t n;

    pair(SOCK_STREAM | SOCK_NONBLOCK);
    note("add %ld", (long)call(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, fds[0], &e));
    for (i = 0; i < 6; i++) {
        n = call(SYS_epoll_wait, ep, &e, 1, 0);
        note("%d: %ld %x", i, (long)n, n > 0 ? e.events : 0);
        n = call(SYS_epoll_wait, ep, &e, 1, 0);
        note("%d: %ld %x", i, (long)n, n > 0 ? e.events : 0);
        switch (i) {
        case 0:
            send_(fds[1], 10, 0);
            break;
        case 1:
            recv_(fds[0], 5, 0);
            break;
        case 2:
            send_(fds[1], 10, 0);
            break;
        case 3:
            call(SYS_shutdown, fds[1], SHUT_WR);
            break;
        case 4:
            call(SYS_close, fds[1]);
        }
    }
}

static void options(void)
{
    int value, length, s = unix_socket(SOCK_STREAM);
    static const int sizes[] = {0, 1000, 4096, 100000, 1 << 20, -1};
    unsigned i;

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        note("set %ld %ld", (long)call(SYS_setsockopt, s, SOL_SOCKET, SO_SNDBUF, &sizes[i], 4),
             (long)call(SYS_setsockopt, s, SOL_SOCKET, SO_RCVBUF, &sizes[i], 4));
        say_option(s, SO_SNDBUF);
        say_option(s, SO_RCVBUF);
    }
    value = 7;
    note("set %ld", (long)call(SYS_setsockopt, s, SOL_SOCKET, SO_PASSCRED, &value, 4));
    note("set %ld", (long)call(SYS_setsockopt, s, SOL_SOCKET, SO_KEEPALIVE, &value, 4));
    note("set %ld", (long)call(SYS_setsockopt, s, SOL_SOCKET, SO_REUSEADDR, &value, 4));
    say_option(s, SO_PASSCRED);
    say_option(s, SO_KEEPALIVE);
    say_option(s, SO_REUSEADDR);
    say_option(s, SO_LINGER);
    say_option(s, 9999);
    note("short %ld", (long)call(SYS_setsockopt, s, SOL_SOCKET, SO_PASSCRED, &value, 3));
    note("fault %ld", (long)call(SYS_setsockopt, s, SOL_SOCKET, SO_PASSCRED, 8, 4));
    note("type %ld", (long)call(SYS_setsockopt, s, SOL_SOCKET, SO_TYPE, &value, 4));
    note("level %ld", (long)call(SYS_setsockopt, s, 6, 1, &value, 4));
    length = 2;
    note("get short %ld", (long)call(SYS_getsockopt, s, SOL_SOCKET, SO_TYPE, &value, &length));
    note("%d", length);
    length = -1;
    note("get negative %ld", (long)call(SYS_getsockopt, s, SOL_SOCKET, SO_TYPE, &value, &length));
    note("get fault %ld", (long)call(SYS_getsockopt, s, SOL_SOCKET, SO_TYPE, 8, &length));
}

static void random_sockets(void)
{
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    uint32_t seed = seed_or(11), i, n;
    int open[2] = {0, 0};

    for (i = 0; i < 3000; i++) {
        seed = seed * 1664525 + 1013904223;
        n = seed >> 8 & 0xfff;
        if (!open[0] && !open[1]) {
            pair(types[(seed >> 20) % 3] | SOCK_NONBLOCK);
            open[0] = open[1] = 1;
        }
        switch (seed >> 24 & 15) {
        case 0:
            if (open[seed >> 28 & 1] && (seed >> 12 & 7) == 0) {
                call(SYS_close, fds[seed >> 28 & 1]);
                open[seed >> 28 & 1] = 0;
            }
            break;
        case 1:
            if ((seed >> 12 & 7) == 1)
                note("shutdown %ld",
                     (long)call(SYS_shutdown, fds[seed >> 28 & 1], (seed >> 29) % 3));
            break;
        case 2:
            if (open[0])
                say_poll(fds[0]);
            if (open[1])
                say_poll(fds[1]);
            break;
        case 3:
        case 4:
        case 5:
        case 6:
        case 7:
        case 8:
            send_(fds[seed >> 28 & 1], n, MSG_NOSIGNAL);
            break;
        default:
            recv_(fds[seed >> 28 & 1], n,
                  seed >> 27 & 1 ? 0 : (seed >> 22 & 1 ? MSG_PEEK : MSG_TRUNC));
        }
    }
}

/* Lists that cost the host more than a cell may have of it. */
static void long_lists(void)
{
    static struct pollfd list[1u << 20];
    static uint64_t bits[1u << 14];
    unsigned i;

    for (i = 0; i < 1u << 20; i++)
        list[i].fd = -1;
    current->process->limits[RLIMIT_NOFILE] = (struct rlimit){1u << 20, 1u << 20};
    note("long %ld", (long)call(SYS_poll, list, 100000, 0));
    note("longer %ld", (long)call(SYS_poll, list, 1u << 20, 0));
    note("again %ld", (long)call(SYS_poll, list, 100000, 0));
    memset(bits, 0xff, sizeof(bits));
    note("set %ld", (long)call(SYS_select, 1u << 20, bits, 0, 0, list));
    memset(bits, 0, sizeof(bits));
    note("empty %ld", (long)call(SYS_select, 1u << 20, bits, 0, 0, bits));
}

static void test_long_lists(void **state)
{
    (void)state;
    ours_alone(long_lists, "long 0\nlonger -12\nagain 0\nset -12\nempty 0\n");
}

#define BOTH(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        both(name);                                                                                \
    }
BOTH(edges)
BOTH(options)
BOTH(random_sockets)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_random_sockets),
        cmocka_unit_test(test_long_lists),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
