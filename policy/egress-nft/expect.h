/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* expect - rows of the reach matrix; shared by expect.c (addresses, the catalogue) and expect_names.c. */
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

const char *expect_dotted(uint32_t a, char buf[INET_ADDRSTRLEN]);
void expect_put(struct out *o, const struct way *w, const char *address, int allow,
                const char *rule);
void expect_rest(struct out *o, unsigned n, const char *what);
void expect_names(struct out *o);

#endif
