/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * ctl - what the plugin (in the warden), the setup helper and the gate say to each other.
 *
 * One SOCK_SEQPACKET pair per cell, one fixed-size message per packet. The warden trusts neither
 * the gate (it parses hostile bytes) nor the helper's output blindly: plugin.c checks every member.
 *
 * Fixed descriptors across exec:
 *   3 control   4 policy table (memfd)   5 cell or gate namespace   6 uplink namespace   7 ledger   (setup)
 *   3 control   4 policy table   5 relay listener   6 DNS/UDP   7 DNS/TCP listener   8 NFLOG
 *   9 relayed UDP   10 raw, towards the cell   11 ledger (gate)
 */
#ifndef CELLA_EGRESS_CTL_H
#define CELLA_EGRESS_CTL_H

#include <stdint.h>

enum {
    FD_CTL = 3,
    FD_POLICY = 4,
    FD_CELL =
        5, /* setup: the cell's namespace on attach, the gate's on apply; -1 is passed as absent */
    FD_UPLINK = 6,       /* setup: absent = the host's own */
    FD_LEDGER_SETUP = 7, /* passed on to the gate */
    FD_RELAY = 5,
    FD_DNS_UDP = 6,
    FD_DNS_TCP = 7,
    FD_NFLOG = 8,
    FD_UDP = 9,
    FD_RAW = 10,
    FD_LEDGER = 11,
    FD_GATE_END = 12
};

/* Addresses of slot n: 10.200.0.0 + 4n + {1: gate, 2: cell}, /30. */
#define SLOT_MAX 4095u
#define SLOT_NET 0x0ac80000u
#define slot_gateway(slot) (SLOT_NET + 4u * (slot) + 1u)
#define slot_cell(slot) (SLOT_NET + 4u * (slot) + 2u)
#define slot_mac(slot, host)                                                                       \
    {                                                                                              \
        0x02, 0xce, 0x11, (uint8_t)((slot) >> 8), (uint8_t)(slot), (host)                          \
    }

#define GATE_MARK 0x6361u
#define GATE_LOG_GROUP 1
#define GATE_RELAY_PORT 1 /* reached only by tproxy; ports of the gate namespace */
#define GATE_UDP_PORT 2

enum ctl_type {
    CTL_READY = 1, /* setup: fds {gate namespace[, tap]} */
    CTL_ERROR,     /* setup: name = text, count = errno */
    CTL_UP,        /* gate: filter installed, serving; gen */
    CTL_DENY,      /* gate: one refused attempt, or `count` of one kind */
    CTL_ALLOW,     /* gate: a flow was accepted and is about to be dialled */
    CTL_FLOW,      /* gate: a flow ended; tx, rx are totals, *_delta what was not yet reported */
    CTL_PROGRESS,  /* gate: bytes of a live flow since last reported */
    CTL_PUBLISH,   /* plugin: fd {policy table}; kill what it does not allow */
    CTL_PUBLISHED, /* gate: tx = flows killed, gen */
    CTL_FLUSH,     /* plugin: say everything you know now; count = 1: and end every flow */
    CTL_FLUSHED,   /* gate: it is said; count as in CTL_FLUSH */
    CTL_ENGINE, /* plugin: fd {the gate's end of engine.h}; without fd: there is no engine any more */
    CTL_REACH_BEGIN, /* plugin: name = nonce, ports [tx, rx], twin ports [tx_delta, rx_delta],
                         held ports [dst, port], 0 = none; count = ms */
    CTL_REACH_END,   /* plugin: it is over; again with tx = where to go on: the counters */
    CTL_REACH_TIGHT, /* plugin: from now on the policy holds for the held ports, and for what is open from them */
    CTL_REACH_SEEN, /* gate: name = `count` struct ctl_seen */
    CTL_ATTACH, /* plugin, to a setup that is ready: count = slot, tx = 1: with a tap; fds {policy table, cell
                   namespace or the table again, ledger} */
    CTL_REACH_DONE, /* gate: done as asked; tx = where to go on, 0: everything was told; count = 1: it had
                       ended by itself; suppressed = as in what was asked: the number of the question */
    CTL_TYPES
};

/* Reason words are part of the enforcer contract; plugin.c holds the strings. */
enum ctl_reason {
    REASON_NONE = 0,
    REASON_NO_RULE,
    REASON_DENY_RULE,
    REASON_HARD_DENY,
    REASON_DNS_REFUSED,
    REASON_PROTO_BLOCKED,
    REASON_IPV6_CLOSED,
    REASON_SOURCE_SPOOFED,
    REASON_LIMIT,
    REASON_POLICY_CHANGED,
    REASON_BROKER_DOWN,
    REASON_UPSTREAM,
    REASON_SNI_MISSING,
    REASON_SNI_MISMATCH,
    REASON_NOT_TLS,
    REASON_RESOLVED_PRIVATE,
    REASON_NAME_INVALID,
    REASON_DNS_SUSPECT,
    REASON_HOST_MISMATCH,
    REASON_METHOD_PATH,
    REASON_CREDENTIAL_MISMATCH,
    REASON_PLACEHOLDER_MISSING,
    REASON_BAD_REQUEST,
    REASONS
};

#define CTL_NAME_MAX 320

struct ctl_msg {
    uint32_t type;   /* enum ctl_type */
    uint32_t reason; /* enum ctl_reason */
    uint32_t proto;  /* IP protocol number */
    uint32_t dst;    /* host byte order */
    uint16_t port;
    uint16_t qtype; /* DNS */
    uint32_t count;
    uint64_t suppressed;
    uint64_t gen;
    uint64_t tx, rx, tx_delta, rx_delta;
    char rule[64];
    char name[CTL_NAME_MAX]; /* host name, IPv6 destination, error text */
    char hint[128];          /* what to do about it */
    char method[24];         /* HTTP requests only, as path_hash */
    char path_hash[20];      /* first 16 hex digits of SHA-256 over the path without its query */
    uint32_t probe;          /* CTL_DENY: 1 = from a source port of a reach measurement */
    uint32_t reserved0;
};

/* What the gate saw of one source port of a reach measurement. */
#define REACH_PORTS_MAX 2112u
#define REACH_HELD_MAX 32u
#define REACH_BATCH (CTL_NAME_MAX / sizeof(struct ctl_seen))
struct ctl_seen {
    uint16_t port, carried, refused, reserved0;
    uint32_t bytes;
};

#endif
