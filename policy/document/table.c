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

/* The entries of the slab at `i` that follow one another. */
static struct set slab_at(struct set s, uint32_t i)
{
    struct set slab = {s.e + i, 0};

    while (i + slab.n < s.n && s.e[i + slab.n].lo == s.e[i].lo)
        slab.n++;
    return slab;
}

/* What two entries, either of which may be missing, say together; 0 = nothing. */
static int both_say(const struct policy_entry *a, const struct policy_entry *b, uint16_t b_rules,
                    struct policy_entry *ret)
{
    ret->verdict = POLICY_DENY;
    if (a && a->verdict == POLICY_DENY) {
        ret->rule = a->rule;
        return 1;
    }
    if (b && b->verdict == POLICY_DENY) {
        ret->rule = (uint16_t)(b->rule + b_rules);
        return b_rules != POLICY_NO_RULE;
    }
    if (!a || !b)
        return 0;
    ret->verdict = POLICY_ALLOW;
    ret->rule = a->rule;
    return 1;
}

/* Steps through one dimension of two sorted lists: whether each covers `at`, and up to where that
   stays so. *lo and *hi are an entry's ends, or 1 and 0 at the end of a list. */
static uint32_t stretch(uint32_t at, const uint32_t lo[2], const uint32_t hi[2], int covers[2])
{
    uint32_t end = UINT32_MAX;
    int k;

    for (k = 0; k < 2; k++) {
        covers[k] = lo[k] <= at && at <= hi[k];
        if (covers[k] && hi[k] < end)
            end = hi[k];
        else if (lo[k] > at && lo[k] <= hi[k] && lo[k] - 1 < end)
            end = lo[k] - 1;
    }
    return end;
}

/* One elementary address range: both port lists merged. */
static int merge_ports(struct set a, struct set b, uint16_t b_rules, uint32_t lo, uint32_t hi,
                       struct grown *out)
{
    struct policy_entry e = {.lo = lo, .hi = hi};
    size_t first = out->n;
    uint32_t i = 0, j = 0, at = 0, end;
    int covers[2], r = 0;

    for (; r == 0 && at <= UINT16_MAX && (i < a.n || j < b.n); at = end + 1) {
        uint32_t plo[2] = {i < a.n ? a.e[i].port_lo : 1, j < b.n ? b.e[j].port_lo : 1};
        uint32_t phi[2] = {i < a.n ? a.e[i].port_hi : 0, j < b.n ? b.e[j].port_hi : 0};
        struct policy_entry *last = out->n > first ? &out->e[out->n - 1] : NULL;
        end = stretch(at, plo, phi, covers);
        e.port_lo = (uint16_t)at;
        e.port_hi = (uint16_t)(end > UINT16_MAX ? UINT16_MAX : end);
        if (both_say(covers[0] ? &a.e[i] : NULL, covers[1] ? &b.e[j] : NULL, b_rules, &e)) {
            if (last && last->port_hi + 1u == at && last->rule == e.rule &&
                last->verdict == e.verdict)
                last->port_hi = e.port_hi;
            else
                r = grow(out, &e);
        }
        i += i < a.n && a.e[i].port_hi <= end;
        j += j < b.n && b.e[j].port_hi <= end;
    }
    return r;
}

/* Allowed by both, denied by either. b_rules: what to add to the rule numbers of `b`;
   POLICY_NO_RULE leaves its denials out. */
static int intersect_sets(struct set a, struct set b, uint16_t b_rules, struct grown *out)
{
    uint32_t i = 0, j = 0, at = 0, end;
    int covers[2], r = 0;

    while (r == 0 && (i < a.n || j < b.n)) {
        struct set sa = i < a.n ? slab_at(a, i) : (struct set){NULL, 0};
        struct set sb = j < b.n ? slab_at(b, j) : (struct set){NULL, 0};
        uint32_t lo[2] = {sa.n ? sa.e->lo : 1, sb.n ? sb.e->lo : 1};
        uint32_t hi[2] = {sa.n ? sa.e->hi : 0, sb.n ? sb.e->hi : 0};
        struct set none = {NULL, 0};
        end = stretch(at, lo, hi, covers);
        r = merge_ports(covers[0] ? sa : none, covers[1] ? sb : none, b_rules, at, end, out);
        i += sa.n && hi[0] <= end ? sa.n : 0;
        j += sb.n && hi[1] <= end ? sb.n : 0;
        if (end == UINT32_MAX)
            break;
        at = end + 1;
    }
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

/* Too many strata to add even an empty one: `a` has been joined again and again. Names are closed. */
static void closed_rules(struct policy_builder *b, const struct policy_table *a)
{
    uint32_t i;

    for (i = 0; i < a->head.n_rules; i++) {
        struct policy_rule r = a->rules[i];
        if (r.kind != POLICY_HOST_NONE) {
            r.verdict = POLICY_DENY;
            r.n_inject = 0;
        }
        policy_builder_rule(b, &r);
    }
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
        r = intersect_sets(set_of(a, udp), set_of(b, udp),
                           joinable(a, b) ? (uint16_t)a->head.n_rules : POLICY_NO_RULE, &set[udp]);
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
    int r = intersect_sets(a, b, POLICY_NO_RULE, &both);

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
