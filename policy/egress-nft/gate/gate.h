/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * gate - the process that carries all traffic of one cell. One thread, level-triggered epoll.
 *
 * main.c      start, privilege, loop         events.c    what the warden is told
 * relay.c     TCP flows and their states     verdict.c   whether a destination is allowed
 * flight.c    a flow's name and first bytes  lane.c      bytes through pipes
 * limits.c    what each rule has used up     handover.c  connections for the HTTP engine
 * names.c     names and their addresses      upstream.c  resolving, by c-ares
 * dns.c       DNS wire format                resolver.c  the cell's port 53
 * clienthello.c, name.c  TLS server names    udp.c       relayed datagrams
 * packet.c    NFLOG and IP headers           denials.c   kernel denials to events
 * ../watch.c  descriptors and the clock      ../filter.c  system calls
 * reach.c     measurements, and their sink   answer.c    what the sink says
 */
#ifndef CELLA_GATE_H
#define CELLA_GATE_H

#include <stddef.h>
#include <stdint.h>

#define WATCH_OWNER gate
#include "../ctl.h"
#include "../watch.h"
#include "hello.h"
#include "table.h"

#define FLOWS_MAX 256u
#define DNS_CONNS_MAX 16u
#define NAMES_MAX 4096u
#define ADDRS_MAX 8u /* of one name */
#define TURN_MAX                                                                                   \
    16u /* accepts, datagrams or log messages handled before other descriptors get their turn */

struct flow;
struct dns_conn;
struct dns_wait;
struct events;
struct use;
struct ledger;

struct gate {
    int ep;
    uint32_t slot;
    struct policy_table table;
    struct watch ctl, relay, dns_udp, dns_tcp, nflog, udp, engine;
    int raw_fd; /* datagrams to the cell with a header of our own */
    struct flow *flows, *dead;
    unsigned n_flows, n_measured; /* measured: not among the flows */
    unsigned n_pending;           /* with a deadline */
    unsigned n_paused;            /* out of tokens */
    unsigned n_assocs;            /* UDP */
    struct dns_conn *dns_conns, *dns_dead;
    unsigned n_dns_conns;
    struct dns_wait *dns_waits;
    unsigned n_dns_waits;
    uint64_t dns_tokens, dns_refilled; /* questions, in thousandths */
    struct events *events;
    struct use *uses; /* by rule; the first is everything */
    struct ledger *ledger;
    uint32_t log_seq;
    int log_seq_known;
    int log_lost;       /* the log socket overflowed; how much is not known yet */
    uint64_t nap_until; /* NFLOG is not read before */
    uint16_t attempt;   /* source port of the attempt being judged, for gate_deny(); 0 = none */
    int quit;
};

/* ---- events.c ---- */
void events_init(struct gate *g);
/* A refused attempt. `rule` and `name` may be NULL. */
void gate_deny(struct gate *g, uint32_t proto, uint32_t dst, uint16_t port, uint32_t reason,
               const char *rule, const char *name, uint16_t qtype);
/* The same with a word of help. */
void gate_deny_hint(struct gate *g, const struct ctl_msg *m);
/* An answered question, when the policy wants those recorded. */
void gate_answered(struct gate *g, uint32_t proto, uint32_t dst, const char *name, uint16_t qtype);
/* Lost by the kernel or by rate: only counted. */
void gate_suppressed(struct gate *g, uint64_t n);
/* Queues m; -EAGAIN when the warden does not keep up. */
int gate_tell(struct gate *g, const struct ctl_msg *m);
void events_drain(struct gate *g);
/* What was suppressed and not said yet. */
void events_close_account(struct gate *g);

/* ---- relay.c ---- */
void relay_ready(struct gate *g, struct watch *w, uint32_t ready);
void relay_tick(struct gate *g);   /* deadlines */
void relay_resume(struct gate *g); /* flows that waited for tokens */
void relay_reap(struct gate *g);   /* frees what died in this turn */
/* After a publication: kills, returns how many. `held`: only what a measurement holds. */
uint64_t relay_judge(struct gate *g, int held);
void relay_progress(struct gate *g);
void relay_end_all(struct gate *g);

/* ---- lane.c ---- */
int lanes_keep(void);  /* 1: empty pipes are kept, and lanes_tick() wants to be called */
void lanes_tick(void); /* closes those nobody used since the last call */

/* ---- handover.c ---- */
/* Takes own_fd; -1: no engine any more. */
void engine_set(struct gate *g, int own_fd);

/* ---- verdict.c ---- */
/* Reason to refuse the destination, or REASON_NONE and the entry. */
uint32_t relay_check(const struct gate *g, uint32_t dst, uint16_t port,
                     const struct policy_entry **ret_entry);
uint32_t udp_check(const struct gate *g, uint32_t dst, uint16_t port,
                   const struct policy_entry **ret_entry);
/* REASON_NONE and the rule that counts. */
uint32_t name_check(const struct gate *g, const char *name, uint16_t port, enum policy_proto proto,
                    const struct policy_rule **ret);
/* 1: an address a name resolved to may be dialled. */
int addr_usable(const struct gate *g, uint32_t addr, uint16_t port, enum policy_proto proto);
/* 1: the address is one of the uplink namespace's own. */
int uplink_owns(uint32_t addr);
static inline int is_synthetic(uint32_t addr)
{
    return addr >= POLICY_SYNTHETIC_LO && addr <= POLICY_SYNTHETIC_HI;
}

/* ---- names.c ---- */
/* A name of this cell; lives as long as the gate. NULL: no room for another. */
struct name;
struct name *name_get(const char *host);
/* The names of the gate before this one, at their addresses; new ones are kept there too. 0, or -1: the
   ledger is no ledger. */
int names_restore(struct ledger *l);
struct name *name_known(const char *host);
const char *name_text(const struct name *n);
uint32_t name_addr(const struct name *n);
struct name *name_at(uint32_t addr); /* by synthetic address; NULL */
/* Real addresses: pinned for `secs`. 0, or -1: no room. */
int pin_add(uint32_t addr, struct name *n, uint32_t secs);
/* Names pinned to addr, one after the other; *at starts at 0. */
struct name *pin_next(uint32_t addr, unsigned *at);
/* What was resolved, while it is fresh. */
unsigned name_cached(const struct name *n, uint32_t addrs[ADDRS_MAX], uint32_t *ret_ttl);
void name_cache(struct name *n, const uint32_t *addrs, unsigned n_addrs, uint32_t ttl);
/* Longest label, and 1 when one of them looks like data rather than a word. */
int name_suspect(const char *host, size_t *ret_longest);

/* ---- upstream.c ---- */
enum upstream_status {
    UPSTREAM_OK,      /* n > 0 */
    UPSTREAM_NONE,    /* the name exists and has no IPv4 address */
    UPSTREAM_NXNAME,  /* no such name */
    UPSTREAM_FAILED,  /* no answer, or one that says so */
    UPSTREAM_BUSY,    /* too many questions at once */
    UPSTREAM_NOWHERE, /* no resolver is configured */
};
struct resolved {
    enum upstream_status status;
    unsigned n;
    uint32_t ttl;
    uint32_t addr[ADDRS_MAX]; /* unchecked */
};
typedef void (*upstream_fn)(struct gate *g, void *data, const struct resolved *r);
/* Before the filter: it reads a key. `resolvers`: "a.b.c.d[:port],…" or "". 0 or -1. */
int upstream_init(struct gate *g, const char *resolvers);
/* Calls fn once, perhaps at once. `n` is listed: the caller has looked. */
void upstream_ask(struct gate *g, struct name *n, upstream_fn fn, void *data);
void upstream_cancel(const void *data);
int upstream_patience(void); /* ms, -1 */
void upstream_tick(void);

/* ---- udp.c ---- */
void udp_ready(struct gate *g, struct watch *w, uint32_t ready);
void udp_tick(struct gate *g); /* idle associations */
void udp_reap(struct gate *g);
uint64_t udp_judge(struct gate *g);
void udp_progress(struct gate *g);
void udp_end_all(struct gate *g);
/* Sends a datagram back to the cell's port, from where it went. */
void udp_echo(struct gate *g, uint16_t sport, uint32_t asked, uint16_t port, const uint8_t *p,
              size_t n);

/* ---- limits.c ---- */
/* The account of a rule, made when needed; NULL: out of memory, or of room in the ledger. */
struct use *use_get(struct gate *g, const char *rule);
/* The accounts of the gate before this one, and that of everything. 0, or -1: the ledger is no ledger. */
int uses_restore(struct gate *g);
struct flow_limits {
    struct use *rule; /* NULL: none yet */
    struct policy_limits of_rule;
    int counted; /* among the connections */
    int free;    /* of a measurement: neither bounded nor counted, that is no use of the network */
};
/* 1: another connection is allowed, and is counted. */
int limits_open(struct gate *g, struct flow_limits *l, const char *rule,
                const struct policy_limits *of_rule);
void limits_close(struct gate *g, struct flow_limits *l);
/* Another rule counts from here on. */
void limits_move(struct gate *g, struct flow_limits *l, const char *rule,
                 const struct policy_limits *of_rule);
/* Bytes that may be read now in this direction, at most `want`. 0: wait for tokens; -1: no more. */
long limits_budget(struct gate *g, const struct flow_limits *l, int tx, size_t want);
void limits_spend(struct gate *g, const struct flow_limits *l, int tx, size_t n);
void limits_refund(struct gate *g, const struct flow_limits *l, int tx, size_t n);
/* 1: bytes in this direction are limited at all. */
int limits_any(const struct gate *g, const struct flow_limits *l, int tx);

/* ---- dns.c ---- */
#define DNS_MSG_MAX 1232u
#define DNS_REPLY_MAX 512u
#define DNS_QUESTION_MAX (12u + 255u + 4u)
struct dns_query {
    char name[CTL_NAME_MAX];     /* presentation form; "" when unparsable */
    char host[NAME_MAX_LEN + 1]; /* canonical; "" when it is no host name */
    uint16_t qtype, qclass;
    uint16_t end; /* header and question: so many bytes of the message */
    uint8_t edns;
    uint8_t rcode; /* not 0: what the message itself deserves */
};
struct dns_answer {
    uint8_t rcode;
    uint8_t ede; /* extended error, RFC 8914; 255 = none */
    uint8_t n;
    uint32_t ttl;
    const uint32_t *addr;
};
/* 0, or -1: not a query, no answer. */
int dns_read(const uint8_t *msg, size_t len, struct dns_query *ret);
/* `msg`: at least q->end bytes of the query. Returns the answer's length. */
size_t dns_write(const uint8_t *msg, const struct dns_query *q, const struct dns_answer *a,
                 uint8_t out[DNS_REPLY_MAX]);

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

/* ---- answer.c: what the sink says ---- */
#define ANSWER_MAX 384u
/* To the bytes so far: the length of an answer; 0: they are echoed; -1: the request is not whole yet. */
int answer_write(const uint8_t *p, size_t n, char out[ANSWER_MAX]);

/* ---- reach.c: source ports of a measurement ---- */
/* 1: a flow from this source port must end in reach_sink() and nowhere else. */
int reach_diverts(struct gate *g, uint16_t sport);
/* 1: and whatever the policy says: a twin, or a port that is held and not tightened yet. */
int reach_twin(struct gate *g, uint16_t sport);
/* 1: a port that is held, tightened or not. */
int reach_held(struct gate *g, uint16_t sport);
/* The near end of a new sink, connected; -errno. */
int reach_sink(struct gate *g, uint16_t sport);
void reach_carried(struct gate *g, uint16_t sport);
/* An allowed datagram arrived, here instead of anywhere else. */
void reach_datagram(struct gate *g, uint16_t sport, const uint8_t *p, size_t n);
/* Counts g->attempt as refused and forgets it. 1: it was of a measurement. */
int reach_refused(struct gate *g);
/* -1: handle the datagram as always; else it was the sink's, and `out` holds so many bytes of answer. */
int reach_udp(struct gate *g, uint16_t sport, uint32_t dst, uint16_t dport, const uint8_t *msg,
              size_t len, uint8_t out[DNS_REPLY_MAX]);
/* For mode "real": a documentation address pinned to the name for as long as a measurement takes,
   because a measurement must not ask upstream. */
uint32_t reach_addr(struct name *n);
void reach_control(struct gate *g, const struct ctl_msg *m);

/* ---- ../filter.c ---- */
int filter_install(void);

#endif
