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
    uint64_t work;
    size_t n_entries;
    struct policy_entry last; /* not yet handed over: the next may extend it */
    int has_last;
    uint16_t base; /* number of the phase's first rule */
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

/* The port ranges of the rule that begins at `r`, sorted and disjoint. */
static size_t merged_ports(const struct document_rule *r, size_t n, struct policy_ports *out)
{
    size_t i, j, kept = 0;

    for (i = 0; i < n; i++) {
        struct policy_ports p = {r[i].port_lo, r[i].port_hi};
        for (j = i; j > 0 && out[j - 1].lo > p.lo; j--)
            out[j] = out[j - 1];
        out[j] = p;
    }
    for (i = 0; i < n; i++) {
        if (kept && out[i].lo <= out[kept - 1].hi + 1u) {
            if (out[i].hi > out[kept - 1].hi)
                out[kept - 1].hi = out[i].hi;
        } else {
            out[kept++] = out[i];
        }
    }
    return kept;
}

static void take_rule(struct sweep *s, const struct document_rule *r, size_t n, int stratum)
{
    struct policy_ports ports[POLICY_LIST_MAX];
    char id[POLICY_ID_MAX + 1];
    struct policy_rule p = {.id = id,
                            .host = "",
                            .ports = ports,
                            .n_ports = (uint16_t)merged_ports(r, n, ports),
                            .stratum = (uint8_t)stratum,
                            .verdict = r->deny ? POLICY_DENY : POLICY_ALLOW,
                            .proto = POLICY_TCP};

    if (stratum)
        snprintf(id, sizeof(id), "operator.%.54s", r->id);
    else
        snprintf(id, sizeof(id), "%s", r->id);
    policy_builder_rule(s->out, &p);
}

/* Takes the rules of one phase; `stratum` 1 marks the operator's. */
static void take(struct sweep *s, const struct document_phase *phase, int stratum)
{
    size_t i, first = 0;

    for (i = 0; i < phase->n_rules; i++) {
        const struct document_rule *r = &phase->rules[i];
        struct item *it = &s->items[s->n_items++];
        *it =
            (struct item){r->lo, r->hi, r->port_lo, r->port_hi, (uint16_t)(s->base + r->order), 0};
        if (stratum)
            it->rank = r->deny ? CEILING_DENY : CEILING_ALLOW;
        else
            it->rank = r->deny ? DOC_DENY : DOC_ALLOW;
        s->cuts[s->n_cuts++] = it->lo;
        s->cuts[s->n_cuts++] = (uint64_t)it->hi + 1;
        if (i + 1 < phase->n_rules && phase->rules[i + 1].order == r->order)
            continue;
        take_rule(s, &phase->rules[first], i + 1 - first, stratum);
        first = i + 1;
    }
    if (phase->n_rules)
        s->base = (uint16_t)(s->base + phase->rules[phase->n_rules - 1].order + 1);
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
        policy_builder_entry(s->out, 0, last);
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

static int run(struct sweep *s, const struct document_phase *phase,
               const struct document_phase *limit)
{
    size_t n = (phase ? phase->n_rules : 0) + (limit ? limit->n_rules : 0);
    int r = 0;

    s->items = calloc(n + 1, sizeof(*s->items));
    s->active = calloc(n + 1, sizeof(struct item *));
    s->cuts = calloc(2 * n + 1, sizeof(*s->cuts));
    s->ports = calloc(2 * n + 1, sizeof(*s->ports));
    if (!s->items || !s->active || !s->cuts || !s->ports)
        r = -ENOMEM;
    if (r == 0 && phase)
        take(s, phase, 0);
    if (r == 0 && limit)
        take(s, limit, 1);
    if (r == 0)
        r = sweep_run(s);
    if (r == 0 && s->has_last)
        policy_builder_entry(s->out, 0, &s->last);
    free(s->items);
    free(s->active);
    free(s->cuts);
    free(s->ports);
    return r;
}

int document_compile(const struct document *d, size_t phase, const struct document *ceiling,
                     uint64_t generation, struct policy_table *ret, struct cella_error *err)
{
    struct policy_head head = {.generation = generation,
                               .n_strata = ceiling ? 2 : 1,
                               .dns = {.types = POLICY_DNS_A | POLICY_DNS_AAAA}};
    struct sweep s = {.out = policy_builder_new(&head), .ceiling = ceiling != NULL};
    struct policy_table t = {0};
    int r = s.out ? 0 : -ENOMEM, finished = 0;

    if (r == 0)
        r = run(&s, phase < d->n_phases ? &d->phases[phase] : NULL,
                ceiling && ceiling->active < ceiling->n_phases ? &ceiling->phases[ceiling->active]
                                                               : NULL);
    if (s.out)
        finished = policy_builder_finish(s.out, &t);
    if (r == 0 && finished == 0) {
        *ret = t;
        return 0;
    }
    policy_table_fini(&t);
    r = r < 0 ? r : finished;
    return r == -E2BIG
               ? fail(err, r,
                      "the rules overlap so much that the policy expands beyond %u entries; write "
                      "fewer or disjoint rules",
                      POLICY_ENTRIES_MAX)
               : fail(err, r, "compiling the policy: %s", strerror(-r));
}
