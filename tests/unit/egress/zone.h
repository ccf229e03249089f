/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * zone - what the tests of egress by name share: a DNS server that knows zones of its own (some of
 * them hostile), servers that count what reaches them, and the cell's side of a conversation.
 */
#ifndef EGRESS_TEST_ZONE_H
#define EGRESS_TEST_ZONE_H

#include "net.h"

#define RESOLVER "198.51.100.7:5353"
#define DEAD_RESOLVER "198.51.100.7:5399"
#define BLOCK 64000

/* What processes share. */
struct shared {
    atomic_int queries, flips;
    char last[256];
    /* a lookup */
    int rcode, answers, ede, ttl, case_kept;
    char addr[8][16];
    /* a conversation */
    int err;
    size_t n;
    uint8_t bytes[70000];
};
extern struct shared *shared;

int zone_up(void **state);
int zone_down(void **state);

/* ---- the cell: one at a time ---- */
extern void *zone_cell;
extern struct cella_attached attached;
extern uint8_t block[BLOCK];
void up_with(const char *document);
void done(void);
int apply(const char *document, uint64_t gen, struct cella_applied *ret);
const struct seen *event(const char *kind, const char *reason,
                         const char *name); /* the last; waits for it */

/* ---- DNS ---- */
struct ask {
    const char *name; /* dots separate labels */
    uint16_t type;
    int tcp;
};
int lookup_child(void *ask);
/* RCODE of the answer; 99 without one. */
int lookup(const char *name, uint16_t type);
/* The synthetic address of a name. */
const char *address_of(const char *name);

/* ---- TCP ---- */
struct talk {
    const char *addr;
    int port;
    const uint8_t *bytes;
    size_t n, piece; /* piece: bytes in one segment; 0 = all */
    int finish;      /* FIN after the bytes */
    size_t want;     /* read so many, or to the end */
};
int talk_child(void *talk);
/* Sends bytes, reads until something ends it. 0: all came back. Else errno, or -1 for FIN. */
int talk(const char *addr, int port, const void *bytes, size_t n, size_t piece);
int echoed(const char *addr, int port, const void *bytes, size_t n, size_t piece);
/* A ClientHello of OpenSSL for `name`; NULL: without one. */
size_t hello_for(const char *name, uint8_t *p, size_t cap);
/* The conversation ended with this TLS alert and a reset. */
void alert(const char *what, uint8_t description);
/* One record becomes records of `size` bytes. */
size_t cut(const uint8_t *in, size_t n, size_t size, uint8_t *out);

/* ---- documents ---- */
#define RULE(layer, id, host, ports)                                                               \
    "{\"id\":\"" id "\",\"host\":\"" host "\",\"ports\":[" ports "],\"layer\":\"" layer "\"}"
#define RAW(id, host, ports) RULE("raw", id, host, ports)
#define TLS(id, host, ports) RULE("tls", id, host, ports)
#define DOC(rules) "{\"version\":1,\"allow\":[" rules "]}"
extern const char WIDE[];

#endif
