/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * resolver - the cell's port 53, whatever address it asked, over UDP and TCP.
 *
 * Should: answer every query at once and tell the warden. Mustn't: open a socket, keep a query,
 * send more bytes than a small constant per query. TCP connections are few, short and bounded; one
 * that does not behave is closed. UDP answers leave from the address that was asked.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gate.h"

#define CONN_NS 5000000000u
#define CONN_QUERIES_MAX 16u

struct dns_conn {
    struct watch w;
    struct dns_conn *next;
    uint64_t deadline;
    uint32_t dst;
    uint16_t sport;
    unsigned queries;
    size_t n;
    uint8_t buf[2 + DNS_MSG_MAX];
};

static int answer(struct gate *g, uint32_t proto, uint32_t dst, const uint8_t *msg, size_t len,
                  uint8_t out[DNS_REPLY_MAX])
{
    struct dns_query q;
    int n = dns_refuse(msg, len, out, &q);

    gate_deny(g, proto, dst, 53, REASON_DNS_REFUSED, NULL, q.name, q.qtype);
    return n;
}

static struct sockaddr_in asked_address(struct msghdr *m)
{
    struct cmsghdr *c;
    struct sockaddr_in a = {.sin_family = AF_INET};

    for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
        if (c->cmsg_level == SOL_IP && c->cmsg_type == IP_ORIGDSTADDR &&
            c->cmsg_len >= CMSG_LEN(sizeof(a))) {
            memcpy(&a, CMSG_DATA(c), sizeof(a));
            break;
        }
    return a;
}

union info {
    char bytes[CMSG_SPACE(sizeof(struct in_pktinfo))];
    struct cmsghdr align;
};

static void udp_reply(int fd, const struct sockaddr_in *to, uint32_t from, uint8_t *p, size_t n)
{
    struct in_pktinfo info = {.ipi_spec_dst = {htonl(from)}};
    struct iovec iov = {p, n};
    union info control;
    struct msghdr m = {.msg_name = (void *)(uintptr_t)to,
                       .msg_namelen = sizeof(*to),
                       .msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof(control)};

    memset(&control, 0, sizeof(control));
    control.align.cmsg_level = SOL_IP;
    control.align.cmsg_type = IP_PKTINFO;
    control.align.cmsg_len = CMSG_LEN(sizeof(info));
    memcpy(CMSG_DATA(&control.align), &info, sizeof(info));
    sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL); /* lost like any datagram when there is no room */
}

void dns_udp_ready(struct gate *g, struct watch *w, uint32_t ready)
{
    uint8_t buf[DNS_MSG_MAX + 1], out[DNS_REPLY_MAX];
    unsigned turn;

    (void)ready;
    for (turn = 0; turn < TURN_MAX; turn++) {
        char control[128];
        struct sockaddr_in from;
        struct iovec iov = {buf, sizeof(buf)};
        struct msghdr m = {.msg_name = &from,
                           .msg_namelen = sizeof(from),
                           .msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof(control)};
        ssize_t n = recvmsg(w->fd, &m, MSG_DONTWAIT);
        struct sockaddr_in to;
        uint32_t asked;
        int len;

        if (n < 0)
            return;
        to = asked_address(&m);
        asked = ntohl(to.sin_addr.s_addr);
        g->attempt = ntohs(from.sin_port);
        len = reach_udp(g, g->attempt, ntohs(to.sin_port), buf, (size_t)n, out);
        if (len < 0)
            len = answer(g, IPPROTO_UDP, asked, buf, (size_t)n, out);
        g->attempt = 0;
        if (len > 0 && ntohl(from.sin_addr.s_addr) == slot_cell(g->slot))
            udp_reply(w->fd, &from, asked, out, (size_t)len);
    }
}

static void conn_kill(struct gate *g, struct dns_conn *c)
{
    struct dns_conn **p;

    for (p = &g->dns_conns; *p && *p != c; p = &(*p)->next)
        ;
    if (*p)
        *p = c->next;
    watch_del(g, &c->w);
    close(c->w.fd);
    c->next = g->dns_dead;
    g->dns_dead = c;
    g->n_dns_conns--;
}

/* Answers every complete query in the buffer. 0, or -1: close. */
static int conn_queries(struct gate *g, struct dns_conn *c)
{
    uint8_t out[2 + DNS_REPLY_MAX];

    while (c->n >= 2) {
        size_t len = (size_t)c->buf[0] << 8 | c->buf[1];
        int n;

        if (len > DNS_MSG_MAX || c->queries == CONN_QUERIES_MAX)
            return -1;
        if (c->n < 2 + len)
            return 0;
        c->queries++;
        g->attempt = c->sport;
        n = answer(g, IPPROTO_TCP, c->dst, c->buf + 2, len, out + 2);
        if (n < 0)
            return -1;
        out[0] = (uint8_t)(n >> 8);
        out[1] = (uint8_t)n;
        if (send(c->w.fd, out, (size_t)n + 2, MSG_DONTWAIT | MSG_NOSIGNAL) != n + 2)
            return -1;
        c->n -= 2 + len;
        memmove(c->buf, c->buf + 2 + len, c->n);
    }
    return 0;
}

static void conn_ready(struct gate *g, struct watch *w, uint32_t ready)
{
    struct dns_conn *c = (struct dns_conn *)(void *)w;
    ssize_t n = recv(w->fd, c->buf + c->n, sizeof(c->buf) - c->n, MSG_DONTWAIT);

    (void)ready;
    if (n < 0 && errno == EAGAIN)
        return;
    if (n > 0)
        c->n += (size_t)n;
    if (n <= 0 || conn_queries(g, c) < 0)
        conn_kill(g, c);
}

static void conn_new(struct gate *g, int own_fd, uint16_t sport)
{
    struct sockaddr_in a;
    socklen_t len = sizeof(a);
    struct dns_conn *c = g->n_dns_conns < DNS_CONNS_MAX ? calloc(1, sizeof(*c)) : NULL;

    if (!c || getsockname(own_fd, (struct sockaddr *)&a, &len) < 0) {
        free(c);
        close(own_fd);
        gate_deny(g, IPPROTO_TCP, 0, 53, REASON_LIMIT, NULL, NULL, 0);
        return;
    }
    c->w = (struct watch){.fn = conn_ready, .fd = own_fd};
    c->dst = ntohl(a.sin_addr.s_addr);
    c->sport = sport;
    reach_carried(g, sport);
    c->deadline = gate_now() + CONN_NS;
    c->next = g->dns_conns;
    g->dns_conns = c;
    g->n_dns_conns++;
    watch_set(g, &c->w, EPOLLIN);
}

void dns_tcp_ready(struct gate *g, struct watch *w, uint32_t ready)
{
    unsigned turn;

    (void)ready;
    for (turn = 0; turn < TURN_MAX; turn++) {
        struct sockaddr_in peer = {0};
        socklen_t len = sizeof(peer);
        int fd = accept4(w->fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        conn_new(g, fd, ntohs(peer.sin_port));
    }
}

void dns_tick(struct gate *g)
{
    struct dns_conn *c, *next;
    uint64_t now = gate_now();

    for (c = g->dns_conns; c; c = next) {
        next = c->next;
        if (now >= c->deadline)
            conn_kill(g, c);
    }
}

void dns_reap(struct gate *g)
{
    while (g->dns_dead) {
        struct dns_conn *c = g->dns_dead;
        g->dns_dead = c->next;
        free(c);
    }
}
