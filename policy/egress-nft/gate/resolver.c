/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * resolver - the cell's port 53, whatever address it asked, over UDP and TCP.
 *
 * Only names the policy lists are answered, only for address types; everything else is REFUSED with
 * a reason where the question speaks EDNS, and is an event. In mode "synthetic" no question leads
 * to an upstream packet; in mode "real" only one for a listed name does, and what comes back is
 * checked before the cell learns it. Mustn't: send more bytes than a small constant per query.
 * Questions under way are few and bounded, so are TCP connections; one that does not behave is
 * closed. UDP answers leave from the address that was asked.
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

#define WAITS_MAX 64u
#define TTL_MAX 30u
#define PIN_SECS_MIN 60u
#define EDE_BLOCKED 15
#define EDE_FILTERED 17
#define EDE_NETWORK 23
#define EDE_NONE 255
#define TYPE_A 1
#define TYPE_AAAA 28
#define TYPE_SVCB 64
#define TYPE_HTTPS 65
#define CLASS_IN 1
#define RCODE_SERVFAIL 2
#define RCODE_NXDOMAIN 3
#define RCODE_REFUSED 5

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

/* Where a question came from. */
struct asker {
    uint32_t proto, dst;
    uint16_t sport;
    struct sockaddr_in from; /* UDP */
    struct dns_conn *conn;   /* TCP; NULL when it is gone */
};

/* A question that waits for the upstream. */
struct dns_wait {
    struct dns_wait *next;
    struct asker asker;
    struct name *name;
    struct dns_query q;
    uint8_t head[DNS_QUESTION_MAX];
};

/* ---------------------------------------------------------------- verdicts */

static void refuse(struct gate *g, const struct asker *from, const struct dns_query *q,
                   uint32_t reason, uint8_t ede, struct dns_answer *a)
{
    *a = (struct dns_answer){.rcode = q->rcode ? q->rcode : RCODE_REFUSED, .ede = ede};
    g->attempt = from->sport;
    gate_deny(g, from->proto, from->dst, 53, reason, NULL, q->name, q->qtype);
}

static int take_question(struct gate *g)
{
    uint64_t now = watch_now(), most = (uint64_t)g->table.head.dns.max_qps * 1000u,
             passed = now - g->dns_refilled;

    if (!most)
        return 1;
    g->dns_refilled = now;
    g->dns_tokens += passed > 1000000000u ? most : passed / 1000u * most / 1000000u;
    if (g->dns_tokens > most)
        g->dns_tokens = most;
    if (g->dns_tokens < 1000)
        return 0;
    g->dns_tokens -= 1000;
    return 1;
}

/* A name that stands in a rule as it is carries no data of the cell's. */
static int named_exactly(const struct policy_table *t, const char *host)
{
    uint32_t i;

    for (i = 0; i < t->head.n_rules; i++)
        if (t->rules[i].kind == POLICY_EXACT && !strcmp(t->rules[i].host, host))
            return 1;
    return 0;
}

static int suspect(const struct gate *g, const char *host)
{
    size_t longest;
    int data = name_suspect(host, &longest), cap = g->table.head.dns.max_label;

    return (data || (cap && longest > (size_t)cap)) && !named_exactly(&g->table, host);
}

/* 0: *a is refused or complete; 1: the addresses of *ret_name must be found first. */
static int decide(struct gate *g, const struct asker *from, const struct dns_query *q,
                  struct dns_answer *a, struct name **ret_name)
{
    struct name *n = NULL;
    uint32_t reason = REASON_NONE;
    uint8_t ede = EDE_BLOCKED;

    if (q->rcode || q->qclass != CLASS_IN || !q->host[0] ||
        !policy_name_listed(&g->table, q->host)) {
        refuse(g, from, q, REASON_DNS_REFUSED, EDE_BLOCKED, a);
        return 0;
    }
    ede = EDE_FILTERED;
    if (q->qtype != TYPE_A && q->qtype != TYPE_AAAA && q->qtype != TYPE_HTTPS &&
        q->qtype != TYPE_SVCB)
        reason = REASON_DNS_REFUSED;
    else if (suspect(g, q->host))
        reason = REASON_DNS_SUSPECT;
    else if ((!reach_diverts(g, from->sport) &&
              !take_question(g)) || /* one that goes nowhere is free */
             (q->qtype == TYPE_A && !(n = name_get(q->host))))
        reason = REASON_LIMIT;
    if (reason != REASON_NONE) {
        refuse(g, from, q, reason, ede, a);
        return 0;
    }
    *a = (struct dns_answer){.ede = EDE_NONE, .ttl = TTL_MAX};
    *ret_name = n;
    if (q->qtype == TYPE_A && g->table.head.dns.types & POLICY_DNS_A)
        return 1;
    gate_answered(g, from->proto, from->dst, q->name, q->qtype);
    return 0;
}

/* What came back for mode "real": only addresses that could be dialled, each pinned to the name. */
static void answer_real(struct gate *g, const struct dns_wait *w, const struct resolved *r,
                        uint32_t addrs[ADDRS_MAX], struct dns_answer *a)
{
    unsigned i;
    uint8_t n = 0;

    *a = (struct dns_answer){.ede = EDE_NONE, .ttl = r->ttl < TTL_MAX ? r->ttl : TTL_MAX};
    for (i = 0; i < r->n; i++)
        if (!policy_hard(r->addr[i], r->addr[i]) && !uplink_owns(r->addr[i]) &&
            pin_add(r->addr[i], w->name, r->ttl > PIN_SECS_MIN ? r->ttl : PIN_SECS_MIN) == 0)
            addrs[n++] = r->addr[i];
    a->addr = addrs;
    a->n = n;
    if (r->status == UPSTREAM_OK && !n) {
        *a = (struct dns_answer){.rcode = RCODE_REFUSED, .ede = EDE_FILTERED};
        gate_deny(g, w->asker.proto, r->addr[0], 53, REASON_RESOLVED_PRIVATE, NULL, w->q.name,
                  w->q.qtype);
    } else if (r->status == UPSTREAM_NXNAME) {
        a->rcode = RCODE_NXDOMAIN;
    } else if (r->status != UPSTREAM_OK && r->status != UPSTREAM_NONE) {
        *a = (struct dns_answer){.rcode = RCODE_SERVFAIL, .ede = EDE_NETWORK};
        gate_deny(g, w->asker.proto, w->asker.dst, 53,
                  r->status == UPSTREAM_BUSY      ? REASON_LIMIT
                  : r->status == UPSTREAM_NOWHERE ? REASON_BROKER_DOWN
                                                  : REASON_UPSTREAM,
                  NULL, w->q.name, w->q.qtype);
    }
    if (!a->rcode)
        gate_answered(g, w->asker.proto, w->asker.dst, w->q.name, w->q.qtype);
}

/* ------------------------------------------------------------------ sending */

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

static int conn_reply(struct dns_conn *c, uint8_t *framed, size_t n)
{
    framed[0] = (uint8_t)(n >> 8);
    framed[1] = (uint8_t)n;
    return send(c->w.fd, framed, n + 2, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n + 2 ? 0 : -1;
}

static int reply(struct gate *g, const struct asker *to, const uint8_t *msg,
                 const struct dns_query *q, const struct dns_answer *a)
{
    uint8_t framed[2 + DNS_REPLY_MAX];
    size_t n = dns_write(msg, q, a, framed + 2);

    if (to->proto == IPPROTO_TCP)
        return to->conn ? conn_reply(to->conn, framed, n) : 0;
    if (ntohl(to->from.sin_addr.s_addr) == slot_cell(g->slot))
        udp_reply(g->dns_udp.fd, &to->from, to->dst, framed + 2, n);
    return 0;
}

static void wait_over(struct gate *g, void *data, const struct resolved *r)
{
    struct dns_wait *w = data, **p;
    uint32_t addrs[ADDRS_MAX];
    struct dns_answer a;

    for (p = &g->dns_waits; *p && *p != w; p = &(*p)->next)
        ;
    if (*p)
        *p = w->next;
    g->n_dns_waits--;
    if (policy_name_listed(&g->table, w->q.host))
        answer_real(g, w, r, addrs, &a);
    else /* not any more */
        refuse(g, &w->asker, &w->q, REASON_DNS_REFUSED, EDE_BLOCKED, &a);
    if (reply(g, &w->asker, w->head, &w->q, &a) < 0 && w->asker.conn)
        w->asker.conn->deadline = 0;
    free(w);
}

static int wait_for(struct gate *g, const struct asker *from, const uint8_t *msg,
                    const struct dns_query *q, struct name *n)
{
    struct dns_wait *w = g->n_dns_waits < WAITS_MAX ? malloc(sizeof(*w)) : NULL;
    struct dns_answer a;

    if (!w) {
        refuse(g, from, q, REASON_LIMIT, EDE_FILTERED, &a);
        return reply(g, from, msg, q, &a);
    }
    *w = (struct dns_wait){.next = g->dns_waits, .asker = *from, .name = n, .q = *q};
    memcpy(w->head, msg, q->end);
    g->dns_waits = w;
    g->n_dns_waits++;
    upstream_ask(g, n, wait_over, w);
    return 0;
}

/* One question, answered or kept. -1: the connection is no good. */
static int question(struct gate *g, const struct asker *from, const uint8_t *msg, size_t len)
{
    struct dns_query q;
    struct dns_answer a;
    struct name *n = NULL;
    uint32_t addr;
    int r;

    if (dns_read(msg, len, &q) < 0) {
        g->attempt = from->sport;
        gate_deny(g, from->proto, from->dst, 53, REASON_DNS_REFUSED, NULL, NULL, 0);
        return -1;
    }
    if (decide(g, from, &q, &a, &n)) {
        r = policy_mode(&g->table) == POLICY_REAL;
        if (r && !reach_diverts(g, from->sport))
            return wait_for(g, from, msg, &q, n);
        addr = r ? reach_addr(n) : name_addr(n);
        a.addr = &addr;
        a.n = 1;
        gate_answered(g, from->proto, from->dst, q.name, q.qtype);
    }
    return reply(g, from, msg, &q, &a);
}

void dns_udp_ready(struct gate *g, struct watch *w, uint32_t ready)
{
    uint8_t buf[DNS_MSG_MAX + 1], out[DNS_REPLY_MAX];
    unsigned turn;

    (void)ready;
    for (turn = 0; turn < TURN_MAX; turn++) {
        struct asker from = {.proto = IPPROTO_UDP};
        char control[128];
        struct iovec iov = {buf, sizeof(buf)};
        struct msghdr m = {.msg_name = &from.from,
                           .msg_namelen = sizeof(from.from),
                           .msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof(control)};
        ssize_t n = recvmsg(w->fd, &m, MSG_DONTWAIT);
        struct sockaddr_in to;
        int len;

        if (n < 0)
            return;
        to = asked_address(&m);
        from.dst = ntohl(to.sin_addr.s_addr);
        from.sport = ntohs(from.from.sin_port);
        len = reach_udp(g, from.sport, from.dst, ntohs(to.sin_port), buf, (size_t)n, out);
        if (len < 0)
            question(g, &from, buf, (size_t)n);
        else if (len > 0 && ntohl(from.from.sin_addr.s_addr) == slot_cell(g->slot))
            udp_reply(w->fd, &from.from, from.dst, out, (size_t)len);
    }
}

static void conn_kill(struct gate *g, struct dns_conn *c)
{
    struct dns_conn **p;
    struct dns_wait *wait;

    for (wait = g->dns_waits; wait; wait = wait->next)
        if (wait->asker.conn == c)
            wait->asker.conn = NULL;
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

/* Takes every complete query out of the buffer. 0, or -1: close. */
static int conn_queries(struct gate *g, struct dns_conn *c)
{
    struct asker from = {.proto = IPPROTO_TCP, .dst = c->dst, .sport = c->sport, .conn = c};

    while (c->n >= 2) {
        size_t len = (size_t)c->buf[0] << 8 | c->buf[1];

        if (len > DNS_MSG_MAX || c->queries == CONN_QUERIES_MAX)
            return -1;
        if (c->n < 2 + len)
            return 0;
        c->queries++;
        if (question(g, &from, c->buf + 2, len) < 0)
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
    c->deadline = watch_now() + CONN_NS;
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
    uint64_t now = watch_now();

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
