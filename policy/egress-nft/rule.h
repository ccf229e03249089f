/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* rule - a rule of the gate's table as a list of steps, and its form for the kernel. */
#ifndef CELLA_EGRESS_RULE_H
#define CELLA_EGRESS_RULE_H

#include <stdint.h>

struct nftnl_rule;

enum step_kind {
    STEP_END = 0, /* of a rule; a rule of nothing ends a chain */
    /* the rest of the rule is for: */
    IN_IS,           /* packets that came by the cell's link */
    IN_IS_NOT,       /* by another */
    OUT_IS,          /* leave by the cell's link */
    FRAME_IPV4,      /* frames of type IPv4, before the network layer */
    IPV4,            /* IPv4 */
    IPV4_NOT,        /* anything else */
    PROTO,           /* value: IPPROTO_… */
    SOURCE_NOT_CELL, /* another source than the cell's address */
    DEST_CELL,       /* to the cell's address */
    DEST_SYNTHETIC,  /* to POLICY_SYNTHETIC_LO … HI */
    DEST_IN,         /* to an address of the set */
    DEST_PORT_IN,    /* to an address and port of the set */
    LATER_FRAGMENT,  /* fragments without the transport header */
    PORT,            /* value: destination port */
    PORT_IN,         /* destination port in the set */
    FROM_PORT_IN,    /* source port in the set */
    MARK_IS,         /* value */
    /* and does: */
    SET_MARK, /* value */
    COUNT,
    LOG,        /* to the gate's NFLOG group */
    LOG_MARKED, /* the same with prefix "m": what the gate's own side sent */
    TO_GATE,    /* value: port of the gate; tproxy, the gate's mark, accept */
    ACCEPT,
    DROP,
    GOTO,       /* chain `name` */
    TCP_RESET,  /* answer with RST */
    PROHIBITED, /* answer with ICMP admin-prohibited */
};

struct step {
    enum step_kind kind;
    uint32_t value;
    const char *name; /* of a set or chain */
};

/* malloc'ed by libnftnl; NULL: out of memory. `cell`: the cell's address. */
struct nftnl_rule *rule_build(const struct step *steps, uint32_t cell);

#endif
