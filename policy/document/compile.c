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
    size_t cap;
    struct policy_table *out;
    struct buf ids;
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

/* Takes the rules of one phase; `prefix` marks the operator's. */
static void take(struct sweep *s, const struct document_phase *phase, int operator_layer)
{
    uint16_t base = (uint16_t)s->out->head.n_rules;
    size_t i;

    for (i = 0; i < phase->n_rules; i++) {
        const struct document_rule *r = &phase->rules[i];
        struct item *it = &s->items[s->n_items++];
        *it = (struct item){r->lo, r->hi, r->port_lo, r->port_hi, (uint16_t)(base + r->order), 0};
        if (operator_layer)
            it->rank = r->deny ? CEILING_DENY : CEILING_ALLOW;
        else
            it->rank = r->deny ? DOC_DENY : DOC_ALLOW;
        s->cuts[s->n_cuts++] = it->lo;
        s->cuts[s->n_cuts++] = (uint64_t)it->hi + 1;
        if (i && phase->rules[i - 1].order == r->order)
            continue;
        if (operator_layer)
            buf_addf(&s->ids, "operator.%.50s", r->id);
        else
            buf_addf(&s->ids, "%s", r->id);
        buf_add(&s->ids, "", 1);
        s->out->head.n_rules++;
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

static int keep(struct sweep *s, const struct policy_entry *e)
{
    struct policy_table *t = s->out;
    struct policy_entry *last = t->head.n_entries ? &t->entries[t->head.n_entries - 1] : NULL;

    if (last && last->lo == e->lo && last->rule == e->rule && last->verdict == e->verdict &&
        last->port_hi + 1u == e->port_lo) {
        last->port_hi = e->port_hi;
        return 0;
    }
    if (t->head.n_entries == POLICY_ENTRIES_MAX)
        return -E2BIG;
    if (t->head.n_entries == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        struct policy_entry *grown = realloc(t->entries, cap * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        t->entries = grown;
        s->cap = cap;
    }
    t->entries[t->head.n_entries++] = *e;
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

static int finish_ids(struct sweep *s)
{
    struct policy_table *t = s->out;
    uint32_t i;
    char *p;

    if (s->ids.oom)
        return -ENOMEM;
    t->ids = steal_ptr(&s->ids.ptr);
    t->head.ids_len = (uint32_t)s->ids.len;
    t->id = calloc(t->head.n_rules + 1u, sizeof(*t->id));
    if (!t->id)
        return -ENOMEM;
    for (i = 0, p = t->ids; i < t->head.n_rules; i++, p += strlen(p) + 1)
        t->id[i] = p;
    return 0;
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
    if (r == 0)
        r = finish_ids(s);
    free(s->items);
    free(s->active);
    free(s->cuts);
    free(s->ports);
    buf_fini(&s->ids);
    return r;
}

int document_compile(const struct document *d, size_t phase, const struct document *ceiling,
                     uint64_t generation, struct policy_table *ret, struct cella_error *err)
{
    struct policy_table t = {.head = {.magic = POLICY_MAGIC, .generation = generation}};
    struct sweep s = {.out = &t, .ids = BUF_INIT, .ceiling = ceiling != NULL};
    int r;

    r = run(&s, phase < d->n_phases ? &d->phases[phase] : NULL,
            ceiling && ceiling->active < ceiling->n_phases ? &ceiling->phases[ceiling->active]
                                                           : NULL);
    if (r < 0) {
        policy_table_fini(&t);
        return r == -E2BIG ? fail(err, r,
                                  "the rules overlap so much that the policy expands beyond %u "
                                  "entries; write fewer or disjoint rules",
                                  POLICY_ENTRIES_MAX)
                           : fail(err, r, "out of memory while compiling the policy");
    }
    *ret = t;
    return 0;
}
