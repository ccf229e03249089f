/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * expect_acts - rows of two acts: connections that were there before the rules tightened, and what a redirect leads to.
 *
 * Held rows begin as under a policy that opens everything, which is one of the measurement alone, and meet the policy in force when
 * the host tightens: what it does not allow must end, what it allows must live. A redirect is answered by the sink, at a
 * destination opened likewise; where it leads to is judged as any other destination. Without a device there is no first act;
 * then the destination alone is tried. Threads: none; no effect.
 */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "expect.h"

struct act {
    const char *id, *address; /* redirects: where to, or a name */
    uint16_t port;
    const char *why;
};

static const struct act held_tcp[] = {
    {"tighten.tcp", OUTSIDE, 443, "a connection from before the rules tightened"},
    {"tighten.port", OUTSIDE, 8443, "a connection from before the rules tightened"},
    {"tighten.metadata", "169.254.169.254", 80, "one to a metadata service"},
    {"tighten.private", "10.0.0.1", 80, "one to a private network"},
    {"tighten.gateway", GATEWAY, 22, "one to the gateway"},
    {"tighten.neighbour", NEIGHBOUR, 80, "one to the next cell"},
};

static const struct act held_udp[] = {
    {"tighten.udp", OUTSIDE, 40000, "datagrams that went before the rules tightened"},
    {"tighten.quic", OUTSIDE, 443, "QUIC from before the rules tightened"},
};

static const struct act redirects[] = {
    {"redirect.address", "203.0.113.2", 80, "an address that a redirect names"},
    {"redirect.port", OUTSIDE, 8443, "a port that a redirect names"},
    {"redirect.metadata", "169.254.169.254", 80, "a metadata service that a redirect names"},
    {"redirect.private", "10.0.0.1", 80, "a private network that a redirect names"},
    {"redirect.gateway", GATEWAY, 80, "the gateway, named by a redirect"},
    {"redirect.neighbour", NEIGHBOUR, 80, "the next cell, named by a redirect"},
};

static const struct act redirects_by_name[] = {
    {"redirect.name", "cella-reach.example", 80, "a name of no rule that a redirect names"},
    {"redirect.metadata-name", "metadata.google.internal", 80,
     "the name of a metadata service that a redirect names"},
};

static int allows(const struct out *o, int udp, const char *address, uint16_t port,
                  const char **ret_rule)
{
    struct in_addr in;

    return inet_pton(AF_INET, address, &in) == 1 &&
           expect_allowed(o->e, udp, ntohl(in.s_addr), port, ret_rule);
}

static void put_held(struct out *o, const struct act *a, int udp)
{
    char buf[INET_ADDRSTRLEN];
    const char *address = expect_place(o, a->address, buf), *rule = "";
    int allow = allows(o, udp, address, a->port, &rule);
    struct way w = {.id = a->id,
                    .group = "tighten",
                    .kind = udp ? "udp" : "tcp",
                    .port = a->port,
                    .name = "",
                    .options = o->e->link == CELLA_LINK_NONE ? "" : "held",
                    .proof = CELLA_REACH_BY_SINK,
                    .why = a->why,
                    .twin = ""};

    expect_put(o, &w, address, allow, rule);
}

/* The first network that a rule allows, and the first that one denies: one must live, the other end. */
static void put_held_rules(struct out *o, int udp)
{
    static const char *const ids[2][2] = {{"tighten.denied", "tighten.kept"},
                                          {"tighten.denied-udp", "tighten.kept-udp"}};
    const struct policy_entry *p = udp ? o->e->table.udp : o->e->table.entries;
    uint32_t n = udp ? o->e->table.head.n_udp : o->e->table.head.n_entries, i;
    int have[2] = {0, 0};

    for (i = 0; i < n && !(have[0] && have[1]); i++) {
        char buf[INET_ADDRSTRLEN];
        const char *rule;
        uint16_t port = p[i].port_lo ? p[i].port_lo : 1;
        int allow = expect_allowed(o->e, udp, p[i].lo, port, &rule);
        struct act a = {ids[udp][allow], expect_dotted(p[i].lo, buf), port,
                        allow ? "what both policies allow lives on" : "what a rule denies ends"};
        if (have[allow]++ || port == 53)
            continue;
        put_held(o, &a, udp);
    }
}

static void put_redirect(struct out *o, const struct act *a, int by_name)
{
    char buf[INET_ADDRSTRLEN], gateway[INET_ADDRSTRLEN], options[256];
    const char *to = expect_place(o, a->address, buf), *rule = "";
    int none = o->e->link == CELLA_LINK_NONE, allow = 0;
    struct way w = {.id = a->id,
                    .group = "redirects",
                    .kind = none ? "tcp" : "redirect",
                    .port = 80,
                    .name = "",
                    .options = none ? "" : options,
                    .proof = CELLA_REACH_BY_SINK,
                    .why = a->why,
                    .twin = ""};

    if (by_name && expect_covered(o->e, to))
        return;
    if (!by_name)
        allow = allows(o, 0, to, a->port, &rule);
    snprintf(options, sizeof(options), "to=%s:%u%s%s", to, a->port, by_name ? ";dns=" : "",
             by_name ? expect_dotted(slot_gateway(o->e->slot), gateway) : "");
    expect_put(o, &w, none && !by_name ? to : OUTSIDE, allow, rule);
}

void expect_acts(struct out *o)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(held_tcp); i++)
        put_held(o, &held_tcp[i], 0);
    for (i = 0; i < ARRAY_LEN(held_udp); i++)
        put_held(o, &held_udp[i], 1);
    if (o->e->link != CELLA_LINK_NONE) {
        put_held_rules(o, 0);
        put_held_rules(o, 1);
    }
    for (i = 0; i < ARRAY_LEN(redirects); i++)
        put_redirect(o, &redirects[i], 0);
    for (i = 0; i < ARRAY_LEN(redirects_by_name); i++)
        put_redirect(o, &redirects_by_name[i], 1);
}
