/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* expect - rows of the reach matrix; shared by expect.c (rules by address, the host), expect_ways.c (the catalogue),
   expect_names.c (rules by name) and expect_acts.c (what takes two acts). */
#ifndef CELLA_EGRESS_EXPECT_H
#define CELLA_EGRESS_EXPECT_H

#include <arpa/inet.h>

#include "egress.h"

struct out {
    struct egress *e;
    void *ctx;
    void (*row)(void *, const struct cella_reach_row *);
    unsigned n;
};

struct way {
    const char *id, *group, *kind, *address;
    uint16_t port;
    const char *name, *options;
    uint32_t proof;
    const char *why;
    const char *twin;
};

#define OUTSIDE "203.0.113.1" /* any public address */
#define GATEWAY "@gateway"
#define NEIGHBOUR "@neighbour"

/* What the table says of the point: 1 allowed; *ret_rule is never NULL. */
int expect_allowed(const struct egress *e, int udp, uint32_t addr, uint16_t port,
                   const char **ret_rule);
/* 1: some rule by name, of whatever verdict, covers it. Worked out here, not by the lookup that is measured. */
int expect_covered(const struct egress *e, const char *name);
/* GATEWAY and NEIGHBOUR as addresses; others are themselves. */
const char *expect_place(const struct out *o, const char *address, char buf[INET_ADDRSTRLEN]);
const char *expect_dotted(uint32_t a, char buf[INET_ADDRSTRLEN]);
void expect_put(struct out *o, const struct way *w, const char *address, int allow,
                const char *rule);
void expect_rest(struct out *o, unsigned n, const char *what);
void expect_ways(struct out *o);
void expect_names(struct out *o);
void expect_acts(struct out *o);

#endif
