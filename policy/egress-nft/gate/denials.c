/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * denials - every packet the kernel refused becomes one event, or is counted.
 *
 * The kernel says only "refused"; why is worked out here from the same table the relay uses, so the
 * reason a reader sees and the decision cannot come from two places. Messages are numbered: a gap
 * is the number of packets that the log socket had no room for. A retransmitted SYN is the same
 * attempt. A flood costs a bounded share of time: after a full turn without a pause the socket is
 * left alone for a while, and the kernel drops and numbers.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "gate.h"

#define SEEN_MAX 64u
#define NAP_NS 20000000u
#define FLUSH_MAX 4096u

struct seen {
    uint32_t src, dst, seq;
    uint16_t sport, dport;
};

/* 1: this SYN was here before. */
static int retransmitted(const struct packet *p)
{
    static struct seen ring[SEEN_MAX];
    static unsigned next;
    unsigned i;

    for (i = 0; i < SEEN_MAX; i++)
        if (ring[i].sport == p->sport && ring[i].dport == p->dport && ring[i].dst == p->dst &&
            ring[i].src == p->src && ring[i].seq == p->seq && p->sport)
            return 1;
    ring[next++ % SEEN_MAX] = (struct seen){p->src, p->dst, p->seq, p->sport, p->dport};
    return 0;
}

static void deny_ipv6(struct gate *g, const struct packet *p)
{
    char text[INET6_ADDRSTRLEN] = "";

    inet_ntop(AF_INET6, p->dst6, text, sizeof(text));
    gate_deny(g, 0, 0, 0, REASON_IPV6_CLOSED, NULL, text, 0);
}

/* A packet for an address that stands for a name, on a port that no rule of the kernel has open. 0: it is
   no such address. */
static int deny_named(struct gate *g, const struct packet *p)
{
    const struct name *n = is_synthetic(p->dst) ? name_at(p->dst) : NULL;
    enum policy_proto proto = p->proto == IPPROTO_UDP ? POLICY_UDP : POLICY_TCP;
    const struct policy_rule *r = NULL;
    uint32_t reason;

    if (!n || p->src != slot_cell(g->slot))
        return 0;
    reason = p->fragment || (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP)
                 ? REASON_PROTO_BLOCKED
                 : name_check(g, name_text(n), p->dport, proto, &r);
    if (reason == REASON_NONE) /* allowed by now, was not when the packet came */
        reason = REASON_POLICY_CHANGED;
    gate_deny(g, p->proto, p->dst, p->dport, reason, r && reason == REASON_DENY_RULE ? r->id : NULL,
              name_text(n), 0);
    return 1;
}

static void deny_packet(struct gate *g, const struct packet *p)
{
    const struct policy_entry *e = NULL;
    uint32_t reason;

    if (p->version == 6) {
        deny_ipv6(g, p);
        return;
    }
    if (p->proto == IPPROTO_TCP && p->syn && retransmitted(p))
        return;
    if (deny_named(g, p))
        return;
    if (p->src != slot_cell(g->slot))
        reason = REASON_SOURCE_SPOOFED;
    else
        reason = relay_check(g, p->dst, p->dport, &e);
    if (p->proto != IPPROTO_TCP && reason != REASON_SOURCE_SPOOFED && reason != REASON_HARD_DENY)
        reason = REASON_PROTO_BLOCKED;
    if (reason == REASON_NONE) /* allowed by now, was not when the packet came */
        reason = p->fragment ? REASON_PROTO_BLOCKED : REASON_POLICY_CHANGED;
    gate_deny(g, p->proto, p->dst, p->dport, reason,
              e && reason == REASON_DENY_RULE ? policy_table_rule(&g->table, e->rule) : NULL, NULL,
              0);
}

static void one_message(struct gate *g, const struct nflog_msg *m)
{
    struct packet p;

    if (m->has_seq) {
        if (g->log_seq_known && m->seq - g->log_seq < 1u << 30)
            gate_suppressed(g, m->seq - g->log_seq);
        else if (!g->log_seq_known)
            gate_suppressed(g, m->seq);
        g->log_seq = m->seq + 1;
        g->log_seq_known = 1;
    }
    if (m->marker)
        return;
    if (packet_parse(m->payload, m->len, &p) == 0) {
        g->attempt = p.sport;
        deny_packet(g, &p);
        g->attempt = 0;
    } else
        gate_deny(g, 0, 0, 0, REASON_PROTO_BLOCKED, NULL, NULL, 0);
}

/* One more log message, whose number tells how many were lost before it: a datagram to ourselves,
   which the output chain of the gate namespace logs with a prefix and drops. */
static void send_marker(struct gate *g)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(slot_gateway(g->slot))}};

    sendto(g->dns_udp.fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&a, sizeof(a));
}

/* At most `max` datagrams. 1: there may be more. */
static int drain(struct gate *g, unsigned max)
{
    uint8_t buf[4096];

    for (; max; max--) {
        struct nflog_msg m;
        size_t at = 0;
        ssize_t n = recv(g->nflog.fd, buf, sizeof(buf), MSG_DONTWAIT);
        if (n < 0 && errno == ENOBUFS) {
            g->log_lost = 1;
            continue;
        }
        if (n <= 0)
            return 0;
        while (nflog_next(buf, (size_t)n, &at, &m) > 0)
            one_message(g, &m);
    }
    return 1;
}

void nflog_ready(struct gate *g, struct watch *w, uint32_t ready)
{
    (void)ready;
    if (drain(g, TURN_MAX * 4)) {
        g->nap_until = watch_now() + NAP_NS;
        watch_set(g, w, 0);
    } else if (g->log_lost) {
        g->log_lost = 0;
        send_marker(g);
    }
}

void nflog_flush(struct gate *g)
{
    drain(g, FLUSH_MAX);
    g->log_lost = 0;
    send_marker(g);
    drain(g, TURN_MAX);
}
