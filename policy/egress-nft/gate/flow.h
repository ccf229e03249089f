/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* flow - one TCP connection of the cell, shared by relay.c, flight.c, lane.c and handover.c. */
#ifndef CELLA_GATE_FLOW_H
#define CELLA_GATE_FLOW_H

#include "gate.h"

enum flow_state {
    FLOW_PEEK,    /* the first bytes are looked at; nothing upstream exists */
    FLOW_RESOLVE, /* waiting for addresses */
    FLOW_CONNECT, /* dialled */
    FLOW_OPEN,    /* bytes flow */
    FLOW_ENGINE,  /* the HTTP engine has it; both descriptors are kept to reset it */
};

struct pipes {
    int fd[2];
    unsigned class;
};

/* Bytes of one direction, on their way from one side to the other. */
struct lane {
    struct pipes pipe; /* only while it holds bytes */
    size_t held;
    uint64_t moved, told;
    int tx; /* 1: from the cell */
    int eof, done;
    int paused; /* until there are tokens */
    uint64_t
        charged; /* FLOW_ENGINE: bytes counted against the limits; what it may move when it is limited */
};

struct flow {
    struct watch cell, up; /* first two members: callbacks find the flow from them */
    struct flow *next;
    struct lane tx, rx; /* cell to upstream, and back */
    enum flow_state state;
    uint32_t asked; /* what the cell dialled */
    uint32_t dst;   /* what is dialled for it; 0 before */
    uint16_t port;
    uint16_t sport; /* of a reach measurement: this flow ends in the sink; else 0 */
    uint16_t dead;
    uint8_t layer;  /* enum policy_layer */
    uint8_t tls;    /* a ClientHello came first */
    uint8_t told;   /* CTL_ALLOW was */
    uint8_t pinned; /* mode "real": asked is an address of the name */
    uint32_t id;
    uint64_t deadline, gen;
    struct name *name; /* NULL: allowed by network */
    uint32_t addr[ADDRS_MAX];
    unsigned n_addrs, next_addr;
    struct flow_limits limits;
    char rule[POLICY_ID_MAX + 1];
};

/* ---- relay.c ---- */
/* Ends the flow; `hard` sends RST both ways. */
void flow_end(struct gate *g, struct flow *f, int hard, uint32_t reason);
/* Another state, with this long to leave it; 0: no deadline. */
void flow_state(struct gate *g, struct flow *f, enum flow_state state, uint64_t ns);
/* Dials the next address. The flow may be gone afterwards. */
void flow_dial(struct gate *g, struct flow *f);
/* The rule that counts from here on. */
void flow_rule(struct gate *g, struct flow *f, const struct policy_rule *r);

/* ---- flight.c ---- */
/* A connection to an address that stands for a name. */
void flight_begin(struct gate *g, struct flow *f);
void flight_ready(struct gate *g, struct flow *f, uint32_t ready);
/* By name: REASON_NONE, *ret and f->name set, or why not. */
uint32_t flight_name(struct gate *g, struct flow *f, const struct policy_rule **ret);

/* ---- lane.c ---- */
/* -errno: broken; -EDQUOT: a limit. */
int lanes_pump(struct gate *g, struct flow *f);
void lane_drop(struct gate *g, struct lane *l);
void lane_pause(struct gate *g, struct lane *l, int on);

/* ---- handover.c ---- */
int engine_here(const struct gate *g);
/* 0, or -errno: it did not take the flow. */
int engine_give(struct gate *g, const struct flow *f);
/* FLOW_ENGINE: grants what it waits for, as far as there are tokens. The flow may be gone afterwards. */
void engine_grant(struct gate *g, struct flow *f);
/* Its limits may be others now. */
void engine_relimit(struct gate *g, struct flow *f);
/* At its end: what was granted and not moved. */
void engine_refund(struct gate *g, struct flow *f);

#endif
