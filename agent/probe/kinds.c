/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* kinds - one row from its socket to its end. A row is over with the first answer or the first error. Threads: none. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "probe.h"

#define is(r, k) (!strcmp((r)->kind, (k)))
#define FASTOPEN 0x20000000
#define TLS_ALERT 21

int option(const struct row *r, const char *name, const char **ret_value)
{
    static char value[4][256];
    static unsigned turn;
    const char *at = r->options;
    size_t n = strlen(name);

    while (*at) {
        size_t len = strcspn(at, ";");
        if (len >= n && !strncmp(at, name, n) && (len == n || at[n] == '=')) {
            if (ret_value && len > n) {
                char *v = value[turn++ % 4];
                snprintf(v, 256, "%.*s", (int)(len - n - 1), at + n + 1);
                *ret_value = v;
            }
            return 1;
        }
        at += len + (at[len] == ';');
    }
    return 0;
}

void row_end(struct row *r, int err)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
    r->err = err;
    if (row_two_acts(r) && !r->act)
        r->got = -1;
    r->phase = ROW_DONE;
    r->ended = now_us();
}

int address_parse(const char *text, uint16_t port, struct sockaddr_storage *ret, socklen_t *len)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 b = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    char copy[256], *scope;

    memset(ret, 0, sizeof(*ret));
    if (inet_pton(AF_INET, text, &a.sin_addr) == 1) {
        memcpy(ret, &a, sizeof(a));
        *len = sizeof(a);
        return 0;
    }
    snprintf(copy, sizeof(copy), "%s", text);
    scope = strchr(copy, '%');
    if (scope)
        *scope++ = 0;
    if (inet_pton(AF_INET6, copy, &b.sin6_addr) != 1)
        return -EINVAL;
    if (scope && !(b.sin6_scope_id = if_nametoindex(scope)))
        return -ENODEV;
    memcpy(ret, &b, sizeof(b));
    *len = sizeof(b);
    return 0;
}

/* Now; a row that still asks for its address does so with a datagram. */
int row_stream(const struct row *r)
{
    return !r->lookup &&
           (is(r, "tcp") || is(r, "dns-tcp") || is(r, "tls") || is(r, "http") || is(r, "redirect"));
}

static int row_socket(const struct row *r, int family)
{
    const char *v = "0";
    int type = SOCK_DGRAM, proto = 0;

    if (row_stream(r))
        type = SOCK_STREAM;
    if (is(r, "icmp")) {
        type = option(r, "raw", NULL) ? SOCK_RAW : SOCK_DGRAM;
        proto = family == AF_INET6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP;
    }
    if (is(r, "ip")) {
        type = SOCK_RAW;
        option(r, "proto", &v);
        proto = atoi(v);
    }
    return socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, proto);
}

/* 0, or -errno: then the row cannot be tried as asked. */
static int row_bind(const struct row *r, int family)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    struct sockaddr_in6 b = {.sin6_family = AF_INET6};
    const char *v;
    uint16_t port = r->sport;
    int on = 1, n;

    if (option(r, "sport", &v) || (!r->act && option(r, "via", &v)))
        port = (uint16_t)atoi(v);
    if (!port || is(r, "icmp") || is(r, "ip"))
        return 0;
    setsockopt(r->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    a.sin_port = b.sin6_port = htons(port);
    n = family == AF_INET ? bind(r->fd, (struct sockaddr *)&a, sizeof(a))
                          : bind(r->fd, (struct sockaddr *)&b, sizeof(b));
    return n < 0 ? -errno : 0;
}

void row_say(struct row *r)
{
    static uint8_t out[PAYLOAD_MAX];
    size_t n = payload(r, out);

    r->phase = ROW_READ;
    if (send(r->fd, out, n, MSG_NOSIGNAL) < 0 && errno != EAGAIN)
        row_end(r, errno);
}

static void row_socket_only(struct row *r)
{
    int f = 0, t = 0, p = 0, fd;

    if (sscanf(r->options, "%d,%d,%d", &f, &t, &p) != 3) {
        r->got = -1;
        row_end(r, EINVAL);
        return;
    }
    fd = socket(f, t | SOCK_CLOEXEC, p);
    r->got = fd >= 0;
    row_end(r, fd < 0 ? errno : 0);
    if (fd >= 0)
        close(fd);
}

static void row_connect(struct row *r, const struct sockaddr_storage *a, socklen_t len)
{
    static uint8_t out[PAYLOAD_MAX];
    int r0, stream = row_stream(r);

    if (stream && option(r, "fastopen", NULL)) {
        r0 = (int)sendto(r->fd, out, payload(r, out), FASTOPEN | MSG_NOSIGNAL,
                         (const struct sockaddr *)a, len);
        if (r0 < 0 && errno != EINPROGRESS) {
            row_end(r, errno);
            return;
        }
        r->phase = r0 < 0 ? ROW_CONNECT : ROW_READ;
        return;
    }
    r0 = connect(r->fd, (const struct sockaddr *)a, len);
    if (r0 < 0 && errno != EINPROGRESS) {
        row_end(r, errno);
        return;
    }
    if (stream)
        r->phase = ROW_CONNECT;
    else
        row_say(r);
}

void row_start(struct row *r, const struct sockaddr_storage *a, socklen_t len)
{
    int on = 1, family = a->ss_family, n;

    r->fd = row_socket(r, family);
    if (r->fd < 0) {
        row_end(r, errno);
        return;
    }
    if (option(r, "broadcast", NULL))
        setsockopt(r->fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on));
    n = row_bind(r, family);
    if (n < 0) {
        r->got = n == -EACCES ? 0 : -1; /* the cell may not have the port: closed */
        row_end(r, -n);
        return;
    }
    row_connect(r, a, len);
}

static int known(const struct row *r)
{
    static const char *const kinds[] = {"tcp",  "udp",  "dns-udp", "dns-tcp", "tls",
                                        "http", "icmp", "ip",      "redirect"};
    size_t i;

    for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (is(r, kinds[i]))
            return 1;
    return 0;
}

void row_open(struct row *r)
{
    struct sockaddr_storage a;
    socklen_t len;
    int n;

    r->began = now_us();
    if (option(r, "local", NULL)) {
        row_local(r);
        return;
    }
    if (is(r, "socket")) {
        row_socket_only(r);
        return;
    }
    if (is(r, "unix")) {
        row_unix(r);
        return;
    }
    if (is(r, "address6")) {
        row_address6(r);
        return;
    }
    if (!known(r)) {
        r->got = -1;
        row_end(r, EOPNOTSUPP);
        return;
    }
    r->lookup = is(r, "tls") || is(r, "http") || option(r, "lookup", NULL);
    n = address_parse(r->address, r->lookup ? 53 : r->port, &a, &len);
    if (n == -EINVAL)
        r->got = -1;
    if (n < 0)
        row_end(r, -n);
    else
        row_start(r, &a, len);
}

/* A name has its address: now what the row is about. */
static void row_found(struct row *r, uint32_t address)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(r->port), .sin_addr = {htonl(address)}};
    struct sockaddr_storage s = {0};

    close(r->fd);
    r->fd = -1;
    r->lookup = 0;
    memcpy(&s, &a, sizeof(a));
    row_start(r, &s, sizeof(a));
}

static void row_answered(struct row *r, long got)
{
    r->got = got;
    row_end(r, 0);
}

static void row_read(struct row *r)
{
    static uint8_t in[PAYLOAD_MAX];
    ssize_t n = recv(r->fd, in, sizeof(in), 0);
    size_t skip = is(r, "dns-tcp") ? 2 : 0;
    uint32_t address;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        row_end(r, n < 0 ? errno : 0);
        return;
    }
    if (!strncmp(r->kind, "dns", 3) || r->lookup) {
        long got = (size_t)n > skip ? dns_answers(in + skip, (size_t)n - skip, &address) : 0;
        if (r->lookup && got && address) {
            row_found(r, address);
            return;
        }
        if (!r->lookup && row_two_acts(r) && !r->act)
            row_first_answer(r, in, (size_t)n);
        else
            row_answered(r, r->lookup ? 0 : got);
        return;
    }
    if (row_two_acts(r) && !r->act) {
        row_first_answer(r, in, (size_t)n);
        return;
    }
    if (is(r, "icmp") || is(r, "ip")) {
        if (!memmem(in, (size_t)n, probe_nonce, strlen(probe_nonce)) ||
            (is(r, "icmp") && !option(r, "raw", NULL) && in[0] != 0 && in[0] != 129))
            return; /* somebody else's */
        row_answered(r, n);
    } else if (is(r, "tls") && in[0] == TLS_ALERT) {
        row_end(r, EPROTO); /* a refusal in words is still one */
    } else if (is(r, "http")) {
        row_answered(r, (size_t)n >= 12 && !memcmp(in, "HTTP/1.1 2", 10) ? n : 0);
    } else {
        row_answered(r, n);
    }
}

void row_ready(struct row *r, short events)
{
    int err = 0;
    socklen_t len = sizeof(err);

    if (r->phase == ROW_CONNECT) {
        if (getsockopt(r->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0 || err) {
            row_end(r, err ? err : errno);
            return;
        }
        r->connected = is(r, "tcp") || is(r, "tls") || is(r, "http");
        row_say(r);
        return;
    }
    (void)events;
    row_read(r);
}
