/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * compile - one phase of a document, under an operator's ceiling, to a policy table.
 *
 * A sweep over addresses cuts the rules into slabs inside which the set of rules that apply is
 * constant; inside a slab the same is done with ports. Each resulting rectangle gets one verdict by
 * precedence, so both walls later look up one answer and cannot disagree about order.
 *
 * Invariants: what no allow rule covers has no entry; the result satisfies table.h. Work is bounded
 * (WORK_MAX) because overlapping rules multiply and the author may be hostile. Threads: none.
 */
#include "document.h"

#define WORK_MAX 200000000u

enum rank { CEILING_DENY, DOC_DENY, DOC_ALLOW, CEILING_ALLOW, RANKS };

struct item {
    uint32_t lo, hi;
    uint16_t port_lo, port_hi;
    uint16_t rule;
    uint16_t rank;
};

struct sweep {
    struct item *items; /* sorted by lo */
    struct item **active;
    size_t n_items, n_active, next;
    uint64_t *cuts;  /* addresses where the active set may change */
    uint32_t *ports; /* the same inside a slab */
    size_t n_cuts;
    int ceiling;
    enum policy_proto proto;
    uint64_t work;
    size_t n_entries;
    struct policy_entry last; /* not yet handed over: the next may extend it */
    int has_last;
    struct policy_builder *out;
};

static int item_order(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;

    return a->lo < b->lo ? -1 : a->lo > b->lo;
}

static int u64_order(const void *pa, const void *pb)
{
    const uint64_t *a = pa, *b = pb;

    return *a < *b ? -1 : *a > *b;
}

static int u32_order(const void *pa, const void *pb)
{
    const uint32_t *a = pa, *b = pb;

    return *a < *b ? -1 : *a > *b;
}

/* The parts of network rules that speak of one protocol. `stratum` 1 is the operator's. */
static void take(struct sweep *s, const struct document_phase *phase, size_t base, int stratum)
{
    size_t i, j;

    for (i = 0; i < phase->n_rules; i++) {
        const struct document_rule *r = &phase->rules[i];
        int deny = r->rule.verdict == POLICY_DENY;
        if (r->rule.kind != POLICY_HOST_NONE || !(r->rule.proto & s->proto))
            continue;
        for (j = 0; j < r->rule.n_ports; j++) {
            struct item *it = &s->items[s->n_items++];
            *it = (struct item){
                r->lo, r->hi, r->rule.ports[j].lo, r->rule.ports[j].hi, (uint16_t)(base + i), 0};
            if (stratum)
                it->rank = deny ? CEILING_DENY : CEILING_ALLOW;
            else
                it->rank = deny ? DOC_DENY : DOC_ALLOW;
            s->cuts[s->n_cuts++] = it->lo;
            s->cuts[s->n_cuts++] = (uint64_t)it->hi + 1;
        }
    }
}

/* Keeps `active` the items that cover all of the slab that begins at `at`. */
static void advance(struct sweep *s, uint64_t at)
{
    size_t i, n = 0;

    for (i = 0; i < s->n_active; i++)
        if (s->active[i]->hi >= at)
            s->active[n++] = s->active[i];
    s->n_active = n;
    while (s->next < s->n_items && s->items[s->next].lo <= at)
        s->active[s->n_active++] = &s->items[s->next++];
}

/* The verdict for one port inside the slab: 0 = no entry. The lowest rule number names it. */
static int judge(const struct sweep *s, uint32_t port, struct policy_entry *e)
{
    uint16_t best[RANKS] = {POLICY_NO_RULE, POLICY_NO_RULE, POLICY_NO_RULE, POLICY_NO_RULE};
    size_t i;

    for (i = 0; i < s->n_active; i++) {
        const struct item *it = s->active[i];
        if (it->port_lo <= port && port <= it->port_hi && it->rule < best[it->rank])
            best[it->rank] = it->rule;
    }
    e->verdict = POLICY_DENY;
    for (i = CEILING_DENY; i <= DOC_DENY; i++)
        if (best[i] != POLICY_NO_RULE) {
            e->rule = best[i];
            return 1;
        }
    if (best[DOC_ALLOW] == POLICY_NO_RULE || (s->ceiling && best[CEILING_ALLOW] == POLICY_NO_RULE))
        return 0;
    e->verdict = POLICY_ALLOW;
    e->rule = best[DOC_ALLOW];
    return 1;
}

/* Adjacent port ranges with one verdict become one entry. */
static int keep(struct sweep *s, const struct policy_entry *e)
{
    struct policy_entry *last = &s->last;

    if (s->has_last && last->lo == e->lo && last->rule == e->rule && last->verdict == e->verdict &&
        last->port_hi + 1u == e->port_lo) {
        last->port_hi = e->port_hi;
        return 0;
    }
    if (s->n_entries++ == POLICY_ENTRIES_MAX)
        return -E2BIG;
    if (s->has_last)
        policy_builder_entry(s->out, s->proto == POLICY_UDP, last);
    s->last = *e;
    s->has_last = 1;
    return 0;
}

static int slab(struct sweep *s, uint32_t lo, uint32_t hi)
{
    struct policy_entry e = {.lo = lo, .hi = hi};
    size_t i, n = 0;
    int r = 0;

    for (i = 0; i < s->n_active; i++) {
        s->ports[n++] = s->active[i]->port_lo;
        s->ports[n++] = s->active[i]->port_hi + 1u;
    }
    qsort(s->ports, n, sizeof(*s->ports), u32_order);
    for (i = 0; r == 0 && i + 1 < n; i++) {
        if (s->ports[i] == s->ports[i + 1])
            continue;
        s->work += s->n_active;
        if (s->work > WORK_MAX)
            return -E2BIG;
        e.port_lo = (uint16_t)s->ports[i];
        e.port_hi = (uint16_t)(s->ports[i + 1] - 1);
        if (judge(s, s->ports[i], &e))
            r = keep(s, &e);
    }
    return r;
}

static int sweep_run(struct sweep *s)
{
    size_t i;
    int r = 0;

    qsort(s->items, s->n_items, sizeof(*s->items), item_order);
    qsort(s->cuts, s->n_cuts, sizeof(*s->cuts), u64_order);
    for (i = 0; r == 0 && i + 1 < s->n_cuts; i++) {
        if (s->cuts[i] == s->cuts[i + 1])
            continue;
        advance(s, s->cuts[i]);
        r = slab(s, (uint32_t)s->cuts[i], (uint32_t)(s->cuts[i + 1] - 1));
    }
    return r;
}

/* One protocol's rectangles. */
static int networks(struct sweep *s, const struct document_phase *phase,
                    const struct document_phase *limit)
{
    size_t n = (phase ? phase->n_ranges : 0) + (limit ? limit->n_ranges : 0);
    int r = 0;

    s->items = calloc(n + 1, sizeof(*s->items));
    s->active = calloc(n + 1, sizeof(struct item *));
    s->cuts = calloc(2 * n + 1, sizeof(*s->cuts));
    s->ports = calloc(2 * n + 1, sizeof(*s->ports));
    if (!s->items || !s->active || !s->cuts || !s->ports)
        r = -ENOMEM;
    if (r == 0 && phase)
        take(s, phase, 0, 0);
    if (r == 0 && limit)
        take(s, limit, phase ? phase->n_rules : 0, 1);
    if (r == 0)
        r = sweep_run(s);
    if (r == 0 && s->has_last)
        policy_builder_entry(s->out, s->proto == POLICY_UDP, &s->last);
    free(s->items);
    free(s->active);
    free(s->cuts);
    free(s->ports);
    return r;
}

static void add_rules(struct policy_builder *b, const struct document_phase *phase, int stratum)
{
    char id[POLICY_ID_MAX + 1];
    size_t i;

    for (i = 0; phase && i < phase->n_rules; i++) {
        struct policy_rule r = phase->rules[i].rule;
        r.stratum = (uint8_t)stratum;
        if (stratum) {
            snprintf(id, sizeof(id), "operator.%.54s", r.id);
            r.id = id;
        }
        policy_builder_rule(b, &r);
    }
}

/* A ceiling narrows; what only an allowed flow could obey would be in no force there. */
static int ceiling_valid(const struct document_phase *phase, struct cella_error *err)
{
    static const struct policy_limits none;
    size_t i;

    for (i = 0; phase && i < phase->n_rules; i++) {
        const struct policy_rule *r = &phase->rules[i].rule;
        if (r->n_inject)
            return fail(err, -EINVAL,
                        "rule \"%s\" of the operator's ceiling has \"inject\"; only the document's "
                        "own rules inject, move it there",
                        r->id);
        if (memcmp(&r->limits, &none, sizeof(none)) != 0)
            return fail(err, -EINVAL,
                        "rule \"%s\" of the operator's ceiling has \"limits\"; a ceiling limits "
                        "all flows together, move them to the top of the ceiling",
                        r->id);
    }
    return 0;
}

static uint64_t tighter(uint64_t a, uint64_t b)
{
    return !a ? b : !b ? a : a < b ? a : b;
}

static struct policy_head make_head(const struct document *d, const struct document *ceiling,
                                    uint64_t generation)
{
    struct policy_head h = {
        .generation = generation, .n_strata = ceiling ? 2 : 1, .limits = d->limits, .dns = d->dns};

    if (!ceiling)
        return h;
    h.limits.tx_bytes = tighter(h.limits.tx_bytes, ceiling->limits.tx_bytes);
    h.limits.rx_bytes = tighter(h.limits.rx_bytes, ceiling->limits.rx_bytes);
    h.limits.conns = tighter(h.limits.conns, ceiling->limits.conns);
    h.limits.tx_bps = tighter(h.limits.tx_bps, ceiling->limits.tx_bps);
    h.limits.rx_bps = tighter(h.limits.rx_bps, ceiling->limits.rx_bps);
    h.dns.types &= ceiling->dns.types;
    h.dns.max_label = (uint8_t)tighter(h.dns.max_label, ceiling->dns.max_label);
    h.dns.max_qps = (uint32_t)tighter(h.dns.max_qps, ceiling->dns.max_qps);
    h.dns.log_allowed |= ceiling->dns.log_allowed;
    return h;
}

static const struct document_phase *phase_at(const struct document *d, size_t i)
{
    return d && i < d->n_phases ? &d->phases[i] : NULL;
}

int document_compile(const struct document *d, size_t phase, const struct document *ceiling,
                     uint64_t generation, struct policy_table *ret, struct cella_error *err)
{
    const struct document_phase *own = phase_at(d, phase);
    const struct document_phase *limit = phase_at(ceiling, ceiling ? ceiling->active : 0);
    struct policy_head head = make_head(d, ceiling, generation);
    struct policy_builder *b;
    struct policy_table t = {0};
    int r = ceiling_valid(limit, err), finished, proto;

    if (r < 0)
        return r;
    b = policy_builder_new(&head);
    if (!b)
        return fail(err, -ENOMEM, "out of memory while compiling the policy");
    add_rules(b, own, 0);
    add_rules(b, limit, 1);
    for (proto = POLICY_TCP; r == 0 && proto <= POLICY_UDP; proto++) {
        struct sweep s = {.out = b, .ceiling = ceiling != NULL, .proto = (enum policy_proto)proto};
        r = networks(&s, own, limit);
    }
    finished = policy_builder_finish(b, &t);
    if (r == 0 && finished == 0) {
        *ret = t;
        return 0;
    }
    policy_table_fini(&t);
    r = r < 0 ? r : finished;
    if (r == -E2BIG)
        return fail(err, r,
                    "the rules overlap so much that the policy expands beyond %u entries; write "
                    "fewer or disjoint rules",
                    POLICY_ENTRIES_MAX);
    return fail(err, r, "compiling the policy: %s", strerror(-r));
}
