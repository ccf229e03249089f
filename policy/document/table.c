/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * table - networks: lookup, and the algebra of whole tables.
 *
 * Lives apart from the compiler because the gate and the setup helper need it without a JSON
 * parser. Entries are disjoint and sorted by (lo, port_lo); entries of one address range ("slab")
 * have identical lo and hi, and slabs do not overlap. Every function relies on that; load checks
 * it (wire.c). Threads: none; a table is immutable once built.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "table_int.h"

/* The entries of one protocol. */
struct set {
    const struct policy_entry *e;
    uint32_t n;
};

static struct set set_of(const struct policy_table *t, int udp)
{
    return udp ? (struct set){t->udp, t->head.n_udp} : (struct set){t->entries, t->head.n_entries};
}

/* Index of the first entry whose slab ends at or after `addr`. */
static uint32_t first_slab(struct set s, uint32_t addr)
{
    uint32_t lo = 0, hi = s.n;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (s.e[mid].hi < addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static const struct policy_entry *find(struct set s, uint32_t addr, uint16_t port)
{
    uint32_t lo = first_slab(s, addr), hi = s.n;

    while (lo < hi) { /* first entry at or after (addr, port) in (slab, port_hi) order */
        uint32_t mid = lo + (hi - lo) / 2;
        const struct policy_entry *e = &s.e[mid];
        if (e->lo <= addr && e->port_hi < port)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < s.n) {
        const struct policy_entry *e = &s.e[lo];
        if (e->lo <= addr && addr <= e->hi && e->port_lo <= port && port <= e->port_hi)
            return e;
    }
    return NULL;
}

const struct policy_entry *policy_table_find(const struct policy_table *t, uint32_t addr,
                                             uint16_t port)
{
    return find(set_of(t, 0), addr, port);
}

const struct policy_entry *policy_table_find_udp(const struct policy_table *t, uint32_t addr,
                                                 uint16_t port)
{
    return find(set_of(t, 1), addr, port);
}

const struct policy_rule *policy_addr_denied(const struct policy_table *t, uint32_t addr,
                                             uint16_t port, enum policy_proto proto)
{
    const struct policy_entry *e = find(set_of(t, proto == POLICY_UDP), addr, port);

    return e && e->verdict == POLICY_DENY ? &t->rules[e->rule] : NULL;
}

const char *policy_table_rule(const struct policy_table *t, uint16_t rule)
{
    return rule < t->head.n_rules ? t->rules[rule].id : "";
}

/* ---------------------------------------------------------------- algebra */

static int overlap(const struct policy_entry *a, const struct policy_entry *b,
                   struct policy_entry *ret)
{
    *ret = *a;
    ret->lo = a->lo > b->lo ? a->lo : b->lo;
    ret->hi = a->hi < b->hi ? a->hi : b->hi;
    ret->port_lo = a->port_lo > b->port_lo ? a->port_lo : b->port_lo;
    ret->port_hi = a->port_hi < b->port_hi ? a->port_hi : b->port_hi;
    return ret->lo <= ret->hi && ret->port_lo <= ret->port_hi;
}

static int entry_order(const void *pa, const void *pb)
{
    const struct policy_entry *a = pa, *b = pb;

    if (a->lo != b->lo)
        return a->lo < b->lo ? -1 : 1;
    return a->port_lo < b->port_lo ? -1 : a->port_lo > b->port_lo;
}

struct grown {
    struct policy_entry *e;
    size_t n, cap;
};

static int grow(struct grown *g, const struct policy_entry *e)
{
    if (g->n == POLICY_ENTRIES_MAX)
        return -E2BIG;
    if (g->n == g->cap) {
        size_t want = g->cap ? g->cap * 2 : 64;
        struct policy_entry *p = realloc(g->e, want * sizeof(*p));
        if (!p)
            return -ENOMEM;
        g->e = p;
        g->cap = want;
    }
    g->e[g->n++] = *e;
    return 0;
}

/* What both sets do with a point that `a` mentions: allowed by both, or denied by a rule of `a`. */
static int intersect_sets(struct set a, struct set b, struct grown *out)
{
    struct policy_entry e;
    uint32_t i, j;
    int r = 0;

    for (i = 0; r == 0 && i < a.n; i++) {
        if (a.e[i].verdict != POLICY_ALLOW)
            continue;
        for (j = first_slab(b, a.e[i].lo); r == 0 && j < b.n && b.e[j].lo <= a.e[i].hi; j++)
            if (b.e[j].verdict == POLICY_ALLOW && overlap(&a.e[i], &b.e[j], &e))
                r = grow(out, &e);
    }
    if (r == 0 && out->n)
        qsort(out->e, out->n, sizeof(*out->e), entry_order);
    return r;
}

static void add_rules(struct policy_builder *b, const struct policy_table *t, uint32_t stratum)
{
    uint32_t i;

    for (i = 0; i < t->head.n_rules; i++) {
        struct policy_rule r = t->rules[i];
        r.stratum = (uint8_t)(r.stratum + stratum);
        policy_builder_rule(b, &r);
    }
}

/* An empty stratum allows nothing: the way to close all names where the two cannot be joined. */
static int joinable(const struct policy_table *a, const struct policy_table *b)
{
    return a->head.dns.mode == b->head.dns.mode &&
           a->head.n_strata + b->head.n_strata <= POLICY_STRATA_MAX &&
           a->head.n_rules + b->head.n_rules <= POLICY_RULES_MAX;
}

static uint64_t tighter(uint64_t a, uint64_t b)
{
    return !a ? b : !b ? a : a < b ? a : b;
}

static struct policy_head joined_head(const struct policy_table *a, const struct policy_table *b)
{
    struct policy_head h = a->head;
    const struct policy_head *o = &b->head;

    h.limits.tx_bytes = tighter(h.limits.tx_bytes, o->limits.tx_bytes);
    h.limits.rx_bytes = tighter(h.limits.rx_bytes, o->limits.rx_bytes);
    h.limits.conns = tighter(h.limits.conns, o->limits.conns);
    h.limits.tx_bps = tighter(h.limits.tx_bps, o->limits.tx_bps);
    h.limits.rx_bps = tighter(h.limits.rx_bps, o->limits.rx_bps);
    h.dns.types &= o->dns.types;
    h.dns.log_allowed |= o->dns.log_allowed;
    h.dns.max_label = (uint8_t)tighter(h.dns.max_label, o->dns.max_label);
    h.dns.max_qps = (uint32_t)tighter(h.dns.max_qps, o->dns.max_qps);
    h.n_strata += joinable(a, b) ? o->n_strata : h.n_strata < POLICY_STRATA_MAX;
    return h;
}

/* Too many strata to add even an empty one: `a` has been joined seven times. Drop its rules by name. */
static int closed_rules(struct policy_builder *b, const struct policy_table *a)
{
    uint32_t i;

    for (i = 0; i < a->head.n_rules; i++) {
        struct policy_rule r = a->rules[i];
        if (r.kind != POLICY_HOST_NONE)
            r.verdict = POLICY_DENY;
        policy_builder_rule(b, &r);
    }
    return 0;
}

int policy_table_intersect(const struct policy_table *a, const struct policy_table *b,
                           struct policy_table *ret)
{
    struct policy_head head = joined_head(a, b);
    struct policy_builder *nb;
    struct grown set[2] = {{0}};
    size_t i;
    int udp, r = 0;

    for (udp = 0; r == 0 && udp < 2; udp++)
        r = intersect_sets(set_of(a, udp), set_of(b, udp), &set[udp]);
    nb = r == 0 ? policy_builder_new(&head) : NULL;
    if (r == 0 && !nb)
        r = -ENOMEM;
    if (r == 0) {
        if (joinable(a, b) || a->head.n_strata < POLICY_STRATA_MAX)
            add_rules(nb, a, 0);
        else
            closed_rules(nb, a);
        if (joinable(a, b))
            add_rules(nb, b, a->head.n_strata);
        for (udp = 0; udp < 2; udp++)
            for (i = 0; i < set[udp].n; i++)
                policy_builder_entry(nb, udp, &set[udp].e[i]);
        r = policy_builder_finish(nb, ret);
    }
    free(set[0].e);
    free(set[1].e);
    return r;
}

static int entries_within(struct set a, struct set b)
{
    struct grown both = {0};
    uint64_t points[2] = {0, 0};
    struct set sets[2];
    uint32_t i, k;
    int r = intersect_sets(a, b, &both);

    sets[0] = a;
    sets[1] = (struct set){both.e, (uint32_t)both.n};
    for (k = 0; r == 0 && k < 2; k++)
        for (i = 0; i < sets[k].n; i++) {
            const struct policy_entry *e = &sets[k].e[i];
            if (e->verdict == POLICY_ALLOW)
                points[k] += ((uint64_t)e->hi - e->lo + 1) * (e->port_hi - e->port_lo + 1u);
        }
    free(both.e);
    return r == 0 && points[0] == points[1];
}

static int ports_within(const struct policy_table *a, const struct policy_table *b,
                        enum policy_proto proto)
{
    struct policy_ports *pa = NULL, *pb = NULL;
    size_t na = 0, nb = 0, i, j = 0;
    int within =
        policy_name_ports(a, proto, &pa, &na) == 0 && policy_name_ports(b, proto, &pb, &nb) == 0;

    for (i = 0; within && i < na; i++) {
        while (j < nb && pb[j].hi < pa[i].lo)
            j++;
        within = j < nb && pb[j].lo <= pa[i].lo && pa[i].hi <= pb[j].hi;
    }
    if (within && na && a->head.dns.mode != b->head.dns.mode)
        within = 0;
    free(pa);
    free(pb);
    return within;
}

int policy_table_within(const struct policy_table *a, const struct policy_table *b)
{
    return entries_within(set_of(a, 0), set_of(b, 0)) &&
           entries_within(set_of(a, 1), set_of(b, 1)) && ports_within(a, b, POLICY_TCP) &&
           ports_within(a, b, POLICY_UDP);
}
