/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * net - a private internet for the egress tests: a "host" namespace the test itself moves into, an
 * uplink namespace with servers on documentation addresses, and cells. Nothing is connected to the
 * machine's own network, so no test packet can leave it, whatever breaks.
 */
#ifndef EGRESS_TEST_NET_H
#define EGRESS_TEST_NET_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/time.h>

#include <cella/enforcer.h>

/* Counters the servers keep; shared with the test. */
struct sinks {
    atomic_int conns;
    atomic_llong bytes;
    atomic_int datagrams;
    atomic_int hold;  /* 1: the bulk server does not read */
    char report[256]; /* what a probe wants to tell */
};

struct seen {
    char kind[32], verdict[16], reason[32], rule[64], proto[16], dst[64], name[320];
    char hint[160];
    int64_t port, gen, count, suppressed, tx, rx, qtype;
};

struct world {
    int host_ns, uplink_ns, cell_ns[2];
    pid_t server;
    struct sinks *sinks;
    struct seen seen[8192];
    size_t n_seen;
    int emit_result;
    const char *setup;       /* instead of the built cella-gate-setup */
    const char *resolvers;   /* option of the enforcer; NULL = none */
    const char *upstream_ca; /* likewise */
    struct cella_host host;
    const struct cella_enforcer_ops *ops;
};
extern struct world world;

void world_up(void);
void world_down(void);
/* The same as fixtures of a group of tests. */
int group_up(void **state);
int group_down(void **state);
/* Runs fn in a child inside the namespace; returns its return value (0…255), -1 when it did not
 * end. */
int in_ns(int ns, int (*fn)(void *arg), void *arg);
pid_t spawn_in_ns(int ns, int (*fn)(void *arg), void *arg);
int wait_child(pid_t pid);
/* A connection of cell 0 to 203.0.113.10:80, over which `text` has gone and its first byte come back. The child returns
   the errno that ends it; 250 and more: it did not come so far, or ended without one. */
pid_t flow_start(const char *text);

/* A new namespace for cell `i`. */
void fresh_cell(int i);
/* Attaches cell `i` (slot i) with the document; aborts the test on failure. */
void *attach_cell(int i, const char *document, struct cella_attached *ret);
/* Another document; what was wrong with it is printed. */
int apply_to(void *cell, const char *document, uint64_t gen, struct cella_applied *ret);
/* Lets the host loop run until nothing came for `ms`. */
void host_turn(int ms);
/* Waits for it, 10 s at most. */
const struct seen *find_event(const char *kind, const char *reason, const char *dst, int port);
int turns_most(void); /* how often such a wait turns the host's loop for 20 ms */
/* The limit of a socket whose answer must come: 20 s, less under tests/mutants/run. */
struct timeval patience(void);
void wait_events(size_t n); /* until so many were seen, the same */
void forget_events(void);

/* Probes, for in_ns. */
struct target {
    const char *addr;
    int port;
    const char *data;
    int expect; /* errno */
};
int probe_tcp(void *target);  /* errno of connect, 0 when it connected */
int probe_echo(void *target); /* 0: `data` came back; else errno or 254 */
int probe_udp(
    void *target); /* errno of the answer to one datagram, 0: data came back, 253: silence */
/* Sends one IPv4 or IPv6 packet out of eth0 as it is. */
struct frame {
    const uint8_t *ip;
    size_t len;
};
int probe_frame(void *frame);
size_t make_ip(uint8_t out[128], const char *src, const char *dst, uint8_t proto, const void *l4,
               size_t len);

#endif
