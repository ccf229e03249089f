/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * local - what happens within the cell. The same try over the cell's own loopback, where it must succeed: the twin of
 * rows that no sink outside can prove. What a cell may not even open (a raw socket) is shown with what it may. And what is
 * seen without a packet: a socket of the host, an address that should not be there. Threads: none.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "probe.h"

/* A datagram or a stream through 127.0.0.1 and back; bytes, or -errno. */
static long echo(int type)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(a);
    int s = socket(AF_INET, type | SOCK_CLOEXEC, 0), c = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    int peer = -1;
    char buf[128];
    long n = -EIO;

    if (s < 0 || c < 0 || bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 ||
        getsockname(s, (struct sockaddr *)&a, &len) < 0 ||
        (type == SOCK_STREAM && listen(s, 1) < 0) || connect(c, (struct sockaddr *)&a, len) < 0)
        goto out;
    peer = type == SOCK_STREAM ? accept4(s, NULL, NULL, SOCK_CLOEXEC) : dup(s);
    if (peer < 0 || send(c, probe_nonce, strlen(probe_nonce), MSG_NOSIGNAL) < 0)
        goto out;
    n = recv(peer, buf, sizeof(buf), 0);
out:
    if (n < 0)
        n = -errno;
    close(s);
    close(c);
    if (peer >= 0)
        close(peer);
    return n;
}

void row_local(struct row *r)
{
    long n;

    if (!strcmp(r->kind, "socket")) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        n = fd < 0 ? -errno : 1;
        if (fd >= 0)
            close(fd);
    } else if (!strcmp(r->kind, "unix")) {
        int pair[2];
        n = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ? -errno : 1;
        if (n == 1) {
            close(pair[0]);
            close(pair[1]);
        }
    } else {
        n = echo(!strcmp(r->kind, "tcp") || !strcmp(r->kind, "dns-tcp") ? SOCK_STREAM : SOCK_DGRAM);
    }
    r->got = n < 0 ? 0 : n;
    row_end(r, n < 0 ? (int)-n : 0);
}

/* An abstract name: "@name". */
void row_unix(struct row *r)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(r->address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0;

    if (r->address[0] != '@' || n >= sizeof(a.sun_path)) {
        r->got = -1;
        err = EINVAL;
    } else {
        memcpy(a.sun_path + 1, r->address + 1, n - 1);
        if (fd < 0 || connect(fd, (struct sockaddr *)&a,
                              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
            err = errno;
        r->got = !err;
    }
    if (fd >= 0)
        close(fd);
    row_end(r, err);
}

/* IPv6 addresses of anything but loopback. */
void row_address6(struct row *r)
{
    FILE *f = fopen("/proc/net/if_inet6", "re");
    char line[256], dev[32];

    if (!f) {
        row_end(r, errno);
        return;
    }
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "%*s %*s %*s %*s %*s %31s", dev) == 1 && strcmp(dev, "lo"))
            r->got++;
    fclose(f);
    row_end(r, r->got ? 0 : EADDRNOTAVAIL);
}
