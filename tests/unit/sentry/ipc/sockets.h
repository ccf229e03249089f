/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* sockets.h - steps of scenarios about Unix sockets. */
#ifndef TEST_IPC_SOCKETS_H
#define TEST_IPC_SOCKETS_H

#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "world.h"

static int fds[2];
static char bytes[1 << 19];

__attribute__((unused)) static void pair(int type)
{
    note("socketpair %x %ld", type, (long)call(SYS_socketpair, AF_UNIX, type, 0, fds));
}

__attribute__((unused)) static void say_poll(int fd)
{
    struct pollfd p = {.fd = fd, .events = 0x3fff};
    int64_t r = call(SYS_poll, &p, 1, 0);

    note("poll %ld %x", (long)r, (unsigned)p.revents);
}

__attribute__((unused)) static void polls(void)
{
    say_poll(fds[0]);
    say_poll(fds[1]);
}

__attribute__((unused)) static void send_(int fd, size_t n, int flags)
{
    note("send %zu %ld", n, (long)call(SYS_sendto, fd, bytes, n, flags, NULL, 0));
}

__attribute__((unused)) static void recv_(int fd, size_t n, int flags)
{
    note("recv %zu %x %ld", n, flags, (long)call(SYS_recvfrom, fd, bytes, n, flags, NULL, NULL));
}

__attribute__((unused)) static void say_option(int fd, int name)
{
    int value = -1, length = sizeof(value);
    int64_t r = call(SYS_getsockopt, fd, SOL_SOCKET, name, &value, &length);

    note("option %d %ld %d %d", name, (long)r, value, length);
}

__attribute__((unused)) static void say_waiting(int fd)
{
    int n = -1;
    int64_t r = call(SYS_ioctl, fd, FIONREAD, &n);

    note("FIONREAD %ld %d", (long)r, n);
}

__attribute__((unused)) static int unix_socket(int type)
{
    return (int)call(SYS_socket, AF_UNIX, type, 0);
}

__attribute__((unused)) static int64_t with_name(long number, int fd, const char *name,
                                                 size_t length)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    memcpy(a.sun_path, name, length);
    return call(number, fd, &a, offsetof(struct sockaddr_un, sun_path) + length);
}

/* Abstract, and the process's own. */
__attribute__((unused)) static int64_t abstract(long number, int fd, int which)
{
    char name[64];
    int n = snprintf(name, sizeof(name), "%ccella-test-%d-%d", 0, which, (int)getpid());

    return with_name(number, fd, name, (size_t)n);
}

__attribute__((unused)) static void say_name(long number, int fd)
{
    struct sockaddr_un a = {.sun_family = 77};
    int length = sizeof(a);
    int64_t r = call(number, fd, &a, &length);

    note("name %ld %d %d %d", (long)r, (int)a.sun_family, length, a.sun_path[0]);
}

#endif
