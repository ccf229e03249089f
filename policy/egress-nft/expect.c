/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * expect - what the policy in force says can be reached, as rows for the probe.
 *
 * Every allow rule gives a row that must pass and its neighbours just outside that must not; every deny rule a row;
 * besides a catalogue of ways out (expect_ways.c), what goes by name (expect_names.c), and what takes two acts
 * (expect_acts.c). What is of a fixed number comes first, so that it is measured whatever time the rules take.
 * Threads: none; no effect.
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "expect.h"

#define RULE_ROWS_MAX 2000u /* and two neighbours each, for TCP and for UDP */
#define ROWS_OF_RULE 64u    /* one after the other; a network with holes is many rectangles */
#define HOST_ROWS_MAX 4
const char *expect_dotted(uint32_t a, char buf[INET_ADDRSTRLEN])
{
    struct in_addr in = {htonl(a)};

    inet_ntop(AF_INET, &in, buf, INET_ADDRSTRLEN);
    return buf;
}

const char *expect_place(const struct out *o, const char *address, char buf[INET_ADDRSTRLEN])
{
    if (!strcmp(address, GATEWAY))
        return expect_dotted(slot_gateway(o->e->slot), buf);
    if (!strcmp(address, NEIGHBOUR))
        return expect_dotted(slot_cell((o->e->slot + 1) % (SLOT_MAX + 1)), buf);
    return address;
}

int expect_allowed(const struct egress *e, int udp, uint32_t addr, uint16_t port,
                   const char **ret_rule)
{
    const struct policy_entry *p = udp ? policy_table_find_udp(&e->table, addr, port)
                                       : policy_table_find(&e->table, addr, port);

    *ret_rule = "";
    if (e->link == CELLA_LINK_NONE || policy_hard(addr, addr) ||
        (!udp && port == POLICY_HARD_PORT) || port == 53 || !p)
        return 0;
    *ret_rule = policy_table_rule(&e->table, p->rule);
    return p->verdict == POLICY_ALLOW;
}

void expect_put(struct out *o, const struct way *w, const char *address, int allow,
                const char *rule)
{
    /* Without a device nothing but loopback can show that the probe would see success. */
    int none = o->e->link == CELLA_LINK_NONE;
    int second = !strncmp(w->options, "reuse", 5); /* without a first there is none */
    struct cella_reach_row row = {.hdr =
                                      CELLA_HDR_INIT(struct cella_reach_row, CELLA_KIND_REACH_ROW),
                                  .id = w->id,
                                  .group = w->group,
                                  .kind = w->kind,
                                  .address = address,
                                  .twin_address = w->twin,
                                  .name = w->name,
                                  .options = none && second ? "" : w->options,
                                  .rule = rule,
                                  .why = w->why,
                                  .port = w->port,
                                  .expected = allow ? CELLA_REACH_ALLOW : CELLA_REACH_DENY,
                                  .proof = none ? CELLA_REACH_BY_CELL : w->proof};

    o->row(o->ctx, &row);
    o->n++;
}

/* What a measurement has no room for is said, and is not measured. */
void expect_rest(struct out *o, unsigned n, const char *what)
{
    char id[48], why[96];
    struct way w = {.id = id,
                    .group = "rule",
                    .kind = "none",
                    .name = "",
                    .options = "",
                    .proof = CELLA_REACH_BY_CELL,
                    .why = why,
                    .twin = ""};

    snprintf(id, sizeof(id), "rest.%s", what);
    snprintf(why, sizeof(why), "%u more networks or names of %s rules than one measurement holds",
             n, what);
    expect_put(o, &w, "", 1, "");
}

/* One point, whatever the table says of it. */
static void put_point(struct out *o, const char *group, int udp, uint32_t addr, uint16_t port,
                      const char *why)
{
    char id[48], buf[INET_ADDRSTRLEN];
    const char *rule;
    int allow = expect_allowed(o->e, udp, addr, port, &rule);
    struct way w = {.id = id,
                    .group = group,
                    .kind = udp ? "udp" : "tcp",
                    .port = port,
                    .name = "",
                    .options = "",
                    .proof = CELLA_REACH_BY_SINK,
                    .why = why,
                    .twin = ""};

    snprintf(id, sizeof(id), "%s.%u", group, o->n);
    expect_put(o, &w, expect_dotted(addr, buf), allow, rule);
}

/* What the rectangle is, for a person. */
static void put_allowed(struct out *o, int udp, const struct policy_entry *p, uint16_t port)
{
    char why[128], lo[INET_ADDRSTRLEN], hi[INET_ADDRSTRLEN];
    int one = p->lo == p->hi, all = !p->port_lo && p->port_hi == 65535;
    int n = snprintf(why, sizeof(why), "%s%s%s, ", expect_dotted(p->lo, lo), one ? "" : " to ",
                     one ? "" : expect_dotted(p->hi, hi));

    if (all)
        snprintf(why + n, sizeof(why) - (size_t)n, "every port, layer raw");
    else if (p->port_lo == p->port_hi)
        snprintf(why + n, sizeof(why) - (size_t)n, "port %u, layer raw", p->port_lo);
    else
        snprintf(why + n, sizeof(why) - (size_t)n, "ports %u to %u, layer raw", p->port_lo,
                 p->port_hi);
    put_point(o, "rule", udp, p->lo, port, why);
}

static void put_edges(struct out *o, int udp, const struct policy_entry *p)
{
    const char *rule;

    if (p->port_hi < 65535 && p->port_hi != 52 &&
        !expect_allowed(o->e, udp, p->lo, (uint16_t)(p->port_hi + 1), &rule))
        put_point(o, "edge", udp, p->lo, (uint16_t)(p->port_hi + 1),
                  "one port above what the rule allows");
    if (p->hi < UINT32_MAX && !expect_allowed(o->e, udp, p->hi + 1, p->port_lo, &rule))
        put_point(o, "edge", udp, p->hi + 1, p->port_lo, "one address above what the rule allows");
}

static void put_entries(struct out *o, int udp)
{
    const struct policy_entry *p = udp ? o->e->table.udp : o->e->table.entries;
    uint32_t n = udp ? o->e->table.head.n_udp : o->e->table.head.n_entries, i;
    uint16_t last = POLICY_NO_RULE;
    unsigned rows = 0, of_rule = 0, left = 0;

    for (i = 0; i < n; i++) {
        const char *rule;
        uint16_t port = p[i].port_lo ? p[i].port_lo : 1;
        of_rule = p[i].rule == last ? of_rule + 1 : 0;
        last = p[i].rule;
        if (port == 53)
            continue;
        if (of_rule >= ROWS_OF_RULE || rows++ >= RULE_ROWS_MAX) {
            left++;
            continue;
        }
        if (expect_allowed(o->e, udp, p[i].lo, port, &rule)) {
            put_allowed(o, udp, &p[i], port);
            put_edges(o, udp, &p[i]);
        } else {
            put_point(o, "deny-rule", udp, p[i].lo, port, "a rule denies it");
        }
    }
    if (left)
        expect_rest(o, left, udp ? "udp" : "tcp");
}

/* What listens on this host. */
static void put_hosts(struct out *o)
{
    struct ifaddrs *all = NULL, *i;
    unsigned n = 0;

    if (getifaddrs(&all) < 0)
        return;
    for (i = all; i && n < HOST_ROWS_MAX; i = i->ifa_next) {
        struct sockaddr_in a;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || i->ifa_flags & IFF_LOOPBACK)
            continue;
        memcpy(&a, i->ifa_addr, sizeof(a));
        put_point(o, "host", 0, ntohl(a.sin_addr.s_addr), 22, "an address of this host");
        put_point(o, "host", 0, ntohl(a.sin_addr.s_addr), 443, "an address of this host");
        n++;
    }
    freeifaddrs(all);
}

int egress_expect(void *self, void *ctx, void (*row)(void *, const struct cella_reach_row *),
                  struct cella_error *err)
{
    struct out o = {.e = self, .ctx = ctx, .row = row};

    (void)err;
    expect_acts(&o);
    expect_ways(&o);
    put_hosts(&o);
    if (o.e->link != CELLA_LINK_NONE) {
        put_entries(&o, 0);
        put_entries(&o, 1);
        expect_names(&o);
    }
    return 0;
}
