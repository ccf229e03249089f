/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * udp - datagrams of explicit UDP rules, relayed by one connected socket per (source port,
 * destination).
 *
 * The checks are those of TCP: network or name, resolved address, hard-deny set, the policy again
 * at each publication. The upstream socket is connected, so only the address that was checked is
 * heard. Answers go to the cell with a header written here, because they come from whatever the
 * cell sent to; the kernel rules let such packets go to the cell and nowhere else. Port 53 never
 * gets here. Should: keep one datagram while a name is resolved. Mustn't: keep more; hold an
 * association that is idle; send more to the cell than came for it. One thread.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gate.h"

#define ASSOCS_MAX 64u
#define IDLE_NS 30000000000u
#define DATAGRAM_MAX 1472u /* what fits the link in one packet */
#define HEADERS (sizeof(struct iphdr) + sizeof(struct udphdr))

struct assoc {
    struct watch up; /* first member */
    struct assoc *next;
    uint32_t asked, dst; /* dst 0: not resolved yet */
    uint16_t port, sport;
    uint8_t dead, told, pinned;
    uint64_t idle_at, gen;
    uint64_t tx, rx, tx_told, rx_told;
    struct name *name;
    struct flow_limits limits;
    size_t n_held;
    uint8_t *held;
    char rule[POLICY_ID_MAX + 1];
};

static struct assoc *assocs, *dead;

static void prohibit(struct gate *g, const struct assoc *a);

/* ------------------------------------------------------------------ events */

static void tell(struct gate *g, struct assoc *a, uint32_t type, uint32_t reason)
{
    struct ctl_msg m = {.type = type,
                        .reason = reason,
                        .proto = IPPROTO_UDP,
                        .dst = a->dst ? a->dst : a->asked,
                        .port = a->port,
                        .count = 1,
                        .gen = a->gen,
                        .tx = a->tx,
                        .rx = a->rx,
                        .tx_delta = a->tx - a->tx_told,
                        .rx_delta = a->rx - a->rx_told};

    snprintf(m.rule, sizeof(m.rule), "%s", a->rule);
    snprintf(m.name, sizeof(m.name), "%s", a->name ? name_text(a->name) : "");
    if (type == CTL_DENY) {
        gate_deny_hint(g, &m);
        return;
    }
    if (gate_tell(g, &m) < 0) {
        gate_suppressed(g, 1);
        return;
    }
    a->tx_told = a->tx;
    a->rx_told = a->rx;
}

static void end(struct gate *g, struct assoc *a, uint32_t reason)
{
    struct assoc **p;

    if (a->dead)
        return;
    a->dead = 1;
    for (p = &assocs; *p && *p != a; p = &(*p)->next)
        ;
    if (*p)
        *p = a->next;
    if (!a->dst)
        upstream_cancel(a);
    if (a->told)
        tell(g, a, CTL_FLOW, reason);
    else if (reason != REASON_NONE)
        tell(g, a, CTL_DENY, reason);
    if (reason != REASON_NONE)
        prohibit(g, a);
    watch_del(g, &a->up);
    if (a->up.fd >= 0)
        close(a->up.fd);
    limits_close(g, &a->limits);
    g->n_assocs--;
    a->next = dead;
    dead = a;
}

/* ------------------------------------------------------------------- bytes */

/* Internet checksum of an even number of bytes on top of `sum`. */
static uint16_t checksum(const void *data, size_t n, uint32_t sum)
{
    const uint8_t *p = data;
    size_t i;

    for (i = 0; i + 1 < n; i += 2)
        sum += (uint32_t)p[i] << 8 | p[i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return htons((uint16_t)~sum);
}

/* `p` has HEADERS bytes of room in front of the data. */
static void to_cell(struct gate *g, const struct assoc *a, uint8_t *p, size_t n)
{
    uint32_t cell = slot_cell(g->slot);
    struct iphdr ip = {.version = 4,
                       .ihl = 5,
                       .ttl = 64,
                       .protocol = IPPROTO_UDP,
                       .tot_len = htons((uint16_t)(HEADERS + n)),
                       .saddr = htonl(a->asked),
                       .daddr = htonl(cell)};
    struct udphdr udp = {.source = htons(a->port),
                         .dest = htons(a->sport),
                         .len = htons((uint16_t)(sizeof(udp) + n))};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(cell)}};
    uint32_t pseudo = (a->asked >> 16) + (a->asked & 0xffff) + (cell >> 16) + (cell & 0xffff) +
                      IPPROTO_UDP + (uint32_t)(sizeof(udp) + n);

    ip.check = checksum(&ip, sizeof(ip), 0);
    memcpy(p, &ip, sizeof(ip));
    memcpy(p + sizeof(ip), &udp, sizeof(udp));
    p[HEADERS + n] = 0; /* an odd byte counts with a zero behind it */
    udp.check = checksum(p + sizeof(ip), sizeof(udp) + n + (n & 1), pseudo);
    if (!udp.check)
        udp.check = 0xffff;
    memcpy(p + sizeof(ip), &udp, sizeof(udp));
    sendto(g->raw_fd, p, HEADERS + n, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to,
           sizeof(to));
}

/* "Administratively prohibited", as the kernel rules answer what they refuse. */
static void prohibit(struct gate *g, const struct assoc *a)
{
    struct {
        struct iphdr ip;
        struct icmphdr icmp;
        struct iphdr of_ip;
        struct udphdr of_udp;
    } p = {.ip = {.version = 4,
                  .ihl = 5,
                  .ttl = 64,
                  .protocol = IPPROTO_ICMP,
                  .tot_len = htons(sizeof(p)),
                  .saddr = htonl(slot_gateway(g->slot)),
                  .daddr = htonl(slot_cell(g->slot))},
           .icmp = {.type = ICMP_DEST_UNREACH, .code = ICMP_PKT_FILTERED},
           .of_ip = {.version = 4,
                     .ihl = 5,
                     .ttl = 64,
                     .protocol = IPPROTO_UDP,
                     .tot_len = htons(HEADERS),
                     .saddr = htonl(slot_cell(g->slot)),
                     .daddr = htonl(a->asked)},
           .of_udp = {.source = htons(a->sport),
                      .dest = htons(a->port),
                      .len = htons(sizeof(struct udphdr))}};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {p.ip.daddr}};

    p.of_ip.check = checksum(&p.of_ip, sizeof(p.of_ip), 0);
    p.icmp.checksum = checksum(&p.icmp, sizeof(p) - sizeof(p.ip), 0);
    p.ip.check = checksum(&p.ip, sizeof(p.ip), 0);
    sendto(g->raw_fd, &p, sizeof(p), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to,
           sizeof(to));
}

/* 1: so many bytes may pass now. 0: dropped, as a slower network would. At a total: the end. */
static int admit(struct gate *g, struct assoc *a, int tx, size_t n)
{
    long room = limits_budget(g, &a->limits, tx, n);

    if (room < 0)
        end(g, a, REASON_LIMIT);
    if (room < (long)n)
        return 0;
    limits_spend(g, &a->limits, tx, n);
    a->idle_at = watch_now() + IDLE_NS;
    return 1;
}

static void up_ready(struct gate *g, struct watch *w, uint32_t ready)
{
    static uint8_t buf[HEADERS + DATAGRAM_MAX + 2];
    struct assoc *a = (struct assoc *)(void *)w;
    unsigned turn;

    (void)ready;
    for (turn = 0; turn < TURN_MAX && !a->dead; turn++) {
        ssize_t n = recv(w->fd, buf + HEADERS, DATAGRAM_MAX + 1, MSG_DONTWAIT);
        if (n < 0)
            return; /* an ICMP error of the server is an error of this call, and over with it */
        if ((size_t)n > DATAGRAM_MAX || !admit(g, a, 0, (size_t)n))
            continue;
        a->rx += (uint64_t)n;
        to_cell(g, a, buf, (size_t)n);
    }
}

static void to_server(struct gate *g, struct assoc *a, const uint8_t *p, size_t n)
{
    if (admit(g, a, 1, n) && send(a->up.fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        a->tx += n;
}

/* ------------------------------------------------------------ associations */

static void open_up(struct gate *g, struct assoc *a, uint32_t dst)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(a->port), .sin_addr = {htonl(dst)}};
    struct ctl_msg m = {.type = CTL_ALLOW,
                        .proto = IPPROTO_UDP,
                        .dst = dst,
                        .port = a->port,
                        .count = 1,
                        .gen = a->gen};

    a->dst = dst;
    snprintf(m.rule, sizeof(m.rule), "%s", a->rule);
    snprintf(m.name, sizeof(m.name), "%s", a->name ? name_text(a->name) : "");
    if (gate_tell(g, &m) < 0) {
        end(g, a, REASON_LIMIT);
        return;
    }
    a->told = 1;
    a->up.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (a->up.fd < 0 || connect(a->up.fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
        end(g, a, REASON_UPSTREAM);
        return;
    }
    watch_set(g, &a->up, EPOLLIN);
    if (a->held)
        to_server(g, a, a->held, a->n_held);
    free(a->held);
    a->held = NULL;
}

static void resolved(struct gate *g, void *data, const struct resolved *r)
{
    struct assoc *a = data;
    unsigned i;

    for (i = 0; i < r->n; i++)
        if (addr_usable(g, r->addr[i], a->port, POLICY_UDP)) {
            open_up(g, a, r->addr[i]);
            return;
        }
    if (r->status == UPSTREAM_OK)
        a->dst = r->addr[0];
    end(g, a,
        r->status == UPSTREAM_OK        ? REASON_RESOLVED_PRIVATE
        : r->status == UPSTREAM_NOWHERE ? REASON_BROKER_DOWN
        : r->status == UPSTREAM_BUSY    ? REASON_LIMIT
                                        : REASON_UPSTREAM);
}

/* As for TCP: by network, else by the name the address stands for. */
static uint32_t judge(struct gate *g, struct assoc *a, const struct policy_rule **ret)
{
    const struct policy_entry *e;
    uint32_t reason;
    unsigned at = 0;

    *ret = NULL;
    a->name = NULL;
    if (is_synthetic(a->asked)) {
        a->name = policy_mode(&g->table) == POLICY_SYNTHETIC ? name_at(a->asked) : NULL;
        return a->name ? name_check(g, name_text(a->name), a->port, POLICY_UDP, ret)
                       : REASON_HARD_DENY;
    }
    reason = udp_check(g, a->asked, a->port, &e);
    if (e)
        *ret = &g->table.rules[e->rule];
    if (reason != REASON_NO_RULE || policy_mode(&g->table) != POLICY_REAL)
        return reason;
    while (reason != REASON_NONE && (a->name = pin_next(a->asked, &at)))
        reason = name_check(g, name_text(a->name), a->port, POLICY_UDP, ret);
    a->pinned = a->name != NULL;
    if (reason == REASON_NONE && !addr_usable(g, a->asked, a->port, POLICY_UDP))
        reason = REASON_RESOLVED_PRIVATE;
    return reason;
}

static void keep(struct assoc *a, const uint8_t *p, size_t n)
{
    a->held = malloc(n + 1);
    if (!a->held)
        return;
    memcpy(a->held, p, n);
    a->n_held = n;
}

static void begin(struct gate *g, struct assoc *a, const uint8_t *p, size_t n)
{
    const struct policy_rule *r;
    uint32_t reason = judge(g, a, &r);

    if (r)
        snprintf(a->rule, sizeof(a->rule), "%s", r->id);
    if (reason == REASON_NONE &&
        (g->n_assocs > ASSOCS_MAX || !r || !limits_open(g, &a->limits, r->id, &r->limits)))
        reason = REASON_LIMIT;
    if (reason != REASON_NONE) {
        end(g, a, reason);
        return;
    }
    keep(a, p, n);
    if (a->name && !a->pinned)
        upstream_ask(g, a->name, resolved, a);
    else
        open_up(g, a, a->asked);
}

static void datagram(struct gate *g, uint16_t sport, uint32_t asked, uint16_t port, uint8_t *p,
                     size_t n)
{
    struct assoc *a;

    for (a = assocs; a; a = a->next)
        if (a->sport == sport && a->asked == asked && a->port == port)
            break;
    if (a) {
        if (a->up.fd >= 0)
            to_server(g, a, p, n);
        return;
    }
    a = calloc(1, sizeof(*a));
    if (!a) {
        gate_deny(g, IPPROTO_UDP, asked, port, REASON_LIMIT, NULL, NULL, 0);
        return;
    }
    *a = (struct assoc){.up = {.fn = up_ready, .fd = -1},
                        .next = assocs,
                        .asked = asked,
                        .port = port,
                        .sport = sport,
                        .idle_at = watch_now() + IDLE_NS,
                        .gen = g->table.head.generation};
    assocs = a;
    g->n_assocs++;
    begin(g, a, p, n);
}

void udp_echo(struct gate *g, uint16_t sport, uint32_t asked, uint16_t port, const uint8_t *p,
              size_t n)
{
    struct assoc a = {.asked = asked, .port = port, .sport = sport};
    static uint8_t buf[HEADERS + DATAGRAM_MAX + 2];

    if (n > DATAGRAM_MAX)
        n = DATAGRAM_MAX;
    memcpy(buf + HEADERS, p, n);
    to_cell(g, &a, buf, n);
}

/* Of a measurement: judged like any other, and answered here instead of anywhere else. */
static int measured(struct gate *g, uint16_t sport, uint32_t asked, uint16_t port, uint8_t *buf,
                    size_t n)
{
    struct assoc a = {.asked = asked, .port = port, .sport = sport};
    const struct policy_rule *r;
    uint32_t reason;

    if (!reach_diverts(g, sport))
        return 0;
    reach_carried(g, sport);
    reason = judge(g, &a, &r);
    g->attempt = sport;
    if (reason != REASON_NONE)
        gate_deny(g, IPPROTO_UDP, asked, port, reason, NULL, NULL, 0);
    else {
        reach_datagram(g, sport, buf + HEADERS, n);
        to_cell(g, &a, buf, n);
    }
    g->attempt = 0;
    return 1;
}

static int original(struct msghdr *m, struct sockaddr_in *ret)
{
    struct cmsghdr *c;

    for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
        if (c->cmsg_level == SOL_IP && c->cmsg_type == IP_ORIGDSTADDR &&
            c->cmsg_len >= CMSG_LEN(sizeof(*ret))) {
            memcpy(ret, CMSG_DATA(c), sizeof(*ret));
            return 1;
        }
    return 0;
}

void udp_ready(struct gate *g, struct watch *w, uint32_t ready)
{
    static uint8_t buf[HEADERS + DATAGRAM_MAX + 2];
    unsigned turn;

    (void)ready;
    for (turn = 0; turn < TURN_MAX; turn++) {
        char control[128];
        struct sockaddr_in from, to;
        struct iovec iov = {buf + HEADERS, DATAGRAM_MAX + 1};
        struct msghdr m = {.msg_name = &from,
                           .msg_namelen = sizeof(from),
                           .msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof(control)};
        ssize_t n = recvmsg(w->fd, &m, MSG_DONTWAIT);
        uint16_t sport;

        if (n < 0)
            return;
        if ((size_t)n > DATAGRAM_MAX || !original(&m, &to) ||
            ntohl(from.sin_addr.s_addr) != slot_cell(g->slot))
            continue;
        sport = ntohs(from.sin_port);
        if (!measured(g, sport, ntohl(to.sin_addr.s_addr), ntohs(to.sin_port), buf, (size_t)n))
            datagram(g, sport, ntohl(to.sin_addr.s_addr), ntohs(to.sin_port), buf + HEADERS,
                     (size_t)n);
    }
}

/* --------------------------------------------------------------- as a whole */

void udp_tick(struct gate *g)
{
    struct assoc *a, *next;
    uint64_t now = watch_now();

    for (a = assocs; a; a = next) {
        next = a->next;
        if (now >= a->idle_at)
            end(g, a, a->dst ? REASON_NONE : REASON_UPSTREAM);
    }
}

uint64_t udp_judge(struct gate *g)
{
    const struct policy_rule *r;
    struct assoc *a, *next;
    uint64_t killed = 0;

    for (a = assocs; a; a = next) {
        const struct name *before = a->name;

        next = a->next;
        if (judge(g, a, &r) == REASON_NONE && r && a->name == before &&
            (!a->dst || !a->name || addr_usable(g, a->dst, a->port, POLICY_UDP))) {
            a->gen = g->table.head.generation;
            snprintf(a->rule, sizeof(a->rule), "%s", r->id);
            limits_move(g, &a->limits, r->id, &r->limits);
            continue;
        }
        end(g, a, REASON_POLICY_CHANGED);
        killed++;
    }
    return killed;
}

void udp_progress(struct gate *g)
{
    struct assoc *a;

    for (a = assocs; a; a = a->next)
        if (a->tx != a->tx_told || a->rx != a->rx_told)
            tell(g, a, CTL_PROGRESS, REASON_NONE);
}

void udp_end_all(struct gate *g)
{
    while (assocs)
        end(g, assocs, REASON_NONE);
}

void udp_reap(struct gate *g)
{
    (void)g;
    while (dead) {
        struct assoc *a = dead;
        dead = a->next;
        free(a->held);
        free(a);
    }
}
