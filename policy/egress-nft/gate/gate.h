/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * gate - the process that carries all traffic of one cell. One thread, level-triggered epoll.
 *
 * main.c    start, privilege, loop        relay.c   TCP flows
 * events.c  what the warden is told       dns.c     DNS wire format      resolver.c  DNS sockets
 * packet.c  NFLOG and IP headers          denials.c kernel denials to events
 */
#ifndef CELLA_GATE_H
#define CELLA_GATE_H

#include <stddef.h>
#include <stdint.h>

#include "../ctl.h"
#include "table.h"

#define FLOWS_MAX 256u
#define DNS_CONNS_MAX 16u
#define TURN_MAX                                                                                   \
    16u /* accepts, datagrams or log messages handled before other descriptors get their turn */

struct gate;
struct watch {
    void (*fn)(struct gate *g, struct watch *w, uint32_t ready);
    int fd;
    uint32_t want; /* EPOLL* bits registered; 0 = none but errors */
    int armed;
};

struct flow;
struct dns_conn;
struct events;

struct gate {
    int ep;
    uint32_t slot;
    struct policy_table table;
    struct watch ctl, relay, dns_udp, dns_tcp, nflog;
    struct flow *flows, *dead;
    unsigned n_flows, n_connecting;
    struct dns_conn *dns_conns, *dns_dead;
    unsigned n_dns_conns;
    struct events *events;
    uint32_t log_seq;
    int log_seq_known;
    int log_lost;       /* the log socket overflowed; how much is not known yet */
    uint64_t nap_until; /* NFLOG is not read before */
    uint16_t attempt;   /* source port of the attempt being judged, for gate_deny(); 0 = none */
    int quit;
};

/* ---- main.c ---- */
uint64_t gate_now(void); /* CLOCK_MONOTONIC, ns */
void watch_set(struct gate *g, struct watch *w, uint32_t want);
void watch_del(struct gate *g, struct watch *w);

/* ---- events.c ---- */
void events_init(struct gate *g);
/* A refused attempt. `rule` and `name` may be NULL. */
void gate_deny(struct gate *g, uint32_t proto, uint32_t dst, uint16_t port, uint32_t reason,
               const char *rule, const char *name, uint16_t qtype);
/* Lost by the kernel or by rate: only counted. */
void gate_suppressed(struct gate *g, uint64_t n);
/* Queues m; -EAGAIN when the warden does not keep up. */
int gate_tell(struct gate *g, const struct ctl_msg *m);
void events_drain(struct gate *g);
/* What was suppressed and not said yet. */
void events_close_account(struct gate *g);

/* ---- relay.c ---- */
void relay_ready(struct gate *g, struct watch *w, uint32_t ready);
void relay_tick(struct gate *g);      /* connect deadlines */
void relay_reap(struct gate *g);      /* frees what died in this turn */
uint64_t relay_judge(struct gate *g); /* after a publication: kills, returns how many */
void relay_progress(struct gate *g);
void relay_end_all(struct gate *g);
/* Reason to refuse the destination, or REASON_NONE and the entry. */
uint32_t relay_check(const struct gate *g, uint32_t dst, uint16_t port,
                     const struct policy_entry **ret_entry);
/* 1: the address is one of the uplink namespace's own. */
int uplink_owns(uint32_t addr);

/* ---- dns.c ---- */
#define DNS_MSG_MAX 1232u
#define DNS_REPLY_MAX 512u
struct dns_query {
    char name[CTL_NAME_MAX]; /* presentation form; "" when unparsable */
    uint16_t qtype;
    int refused; /* 1: REFUSED; 0: FORMERR or NOTIMP */
};
/* Builds the one answer there is. Returns its length, or -1: no answer (not a query). */
int dns_refuse(const uint8_t *msg, size_t len, uint8_t out[DNS_REPLY_MAX], struct dns_query *ret);

/* ---- resolver.c ---- */
void dns_udp_ready(struct gate *g, struct watch *w, uint32_t ready);
void dns_tcp_ready(struct gate *g, struct watch *w, uint32_t ready);
void dns_tick(struct gate *g);
void dns_reap(struct gate *g);

/* ---- packet.c ---- */
struct packet {
    uint32_t proto; /* IP protocol; 0 for IPv6, whose chain is not walked */
    uint32_t src, dst;
    uint16_t sport, dport;
    uint32_t seq;
    int version, syn, fragment;
    uint8_t dst6[16];
};
int packet_parse(const uint8_t *p, size_t n, struct packet *ret);

struct nflog_msg {
    const uint8_t *payload;
    size_t len;
    uint32_t seq;
    int has_seq;
    int marker; /* sent by the gate itself */
};
/* Next packet message in a netlink datagram; *at starts at 0. 1, 0 at the end, -EBADMSG. */
int nflog_next(const uint8_t *buf, size_t len, size_t *at, struct nflog_msg *ret);

/* ---- denials.c ---- */
void nflog_ready(struct gate *g, struct watch *w, uint32_t ready);
void nflog_flush(struct gate *g);

/* ---- reach.c: source ports of a measurement ---- */
/* 1: a flow from this source port must end in reach_sink() and nowhere else. */
int reach_diverts(struct gate *g, uint16_t sport);
/* 1: and whatever the policy says. */
int reach_twin(struct gate *g, uint16_t sport);
/* The near end of a new sink, connected; -errno. */
int reach_sink(struct gate *g, uint16_t sport);
void reach_carried(struct gate *g, uint16_t sport);
/* Counts g->attempt as refused and forgets it. 1: it was of a measurement. */
int reach_refused(struct gate *g);
/* -1: handle the datagram as always; else it was the sink's, and `out` holds so many bytes of answer. */
int reach_udp(struct gate *g, uint16_t sport, uint16_t dport, const uint8_t *msg, size_t len,
              uint8_t out[DNS_REPLY_MAX]);
void reach_control(struct gate *g, const struct ctl_msg *m);

/* ---- filter.c ---- */
int filter_install(void);

#endif
