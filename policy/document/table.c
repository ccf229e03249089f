/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * table - lookup, intersection and serialisation of compiled policies.
 *
 * Lives apart from the compiler because the gate and the setup helper need it without a JSON
 * parser. Entries are disjoint and sorted by (lo, port_lo); entries of one address range ("slab")
 * have identical lo and hi, and slabs do not overlap. Every function relies on that; load() checks
 * it. Threads: none; a table is immutable once built.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "table.h"

void policy_table_fini(struct policy_table *t)
{
    if (!t)
        return;
    free(t->entries);
    free(t->ids);
    free(t->id);
    memset(t, 0, sizeof(*t));
}

/* Index of the first entry whose slab ends at or after `addr`. */
static uint32_t first_slab(const struct policy_table *t, uint32_t addr)
{
    uint32_t lo = 0, hi = t->head.n_entries;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (t->entries[mid].hi < addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const struct policy_entry *policy_table_find(const struct policy_table *t, uint32_t addr,
                                             uint16_t port)
{
    uint32_t lo = first_slab(t, addr), hi = t->head.n_entries;

    while (lo < hi) { /* first entry at or after (addr, port) in (slab, port_hi) order */
        uint32_t mid = lo + (hi - lo) / 2;
        const struct policy_entry *e = &t->entries[mid];
        if (e->lo <= addr && e->port_hi < port)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < t->head.n_entries) {
        const struct policy_entry *e = &t->entries[lo];
        if (e->lo <= addr && addr <= e->hi && e->port_lo <= port && port <= e->port_hi)
            return e;
    }
    return NULL;
}

const char *policy_table_rule(const struct policy_table *t, uint16_t rule)
{
    return rule < t->head.n_rules ? t->id[rule] : "";
}

static int index_ids(struct policy_table *t)
{
    uint32_t i, at = 0;

    t->id = calloc(t->head.n_rules + 1u, sizeof(*t->id));
    if (!t->id)
        return -ENOMEM;
    for (i = 0; i < t->head.n_rules; i++) {
        size_t n = at < t->head.ids_len ? strnlen(t->ids + at, t->head.ids_len - at) : 0;
        if (!n || n > POLICY_ID_MAX || at + n >= t->head.ids_len)
            return -EBADMSG;
        t->id[i] = t->ids + at;
        at += (uint32_t)n + 1;
    }
    return at == t->head.ids_len ? 0 : -EBADMSG;
}

static int order_valid(const struct policy_entry *prev, const struct policy_entry *e)
{
    if (!prev || prev->hi < e->lo)
        return 1;
    return prev->lo == e->lo && prev->hi == e->hi && prev->port_hi < e->port_lo;
}

static int entries_valid(const struct policy_table *t)
{
    uint32_t i;

    for (i = 0; i < t->head.n_entries; i++) {
        const struct policy_entry *e = &t->entries[i];
        if (e->lo > e->hi || e->port_lo > e->port_hi || e->rule >= t->head.n_rules ||
            e->verdict > POLICY_ALLOW || !order_valid(i ? e - 1 : NULL, e))
            return 0;
    }
    return 1;
}

int policy_table_load(const void *data, size_t len, struct policy_table *ret)
{
    struct policy_table t = {0};
    size_t bytes;
    int r;

    if (len < sizeof(t.head))
        return -EBADMSG;
    memcpy(&t.head, data, sizeof(t.head));
    if (t.head.magic != POLICY_MAGIC || t.head.n_entries > POLICY_ENTRIES_MAX ||
        t.head.n_rules > POLICY_RULES_MAX ||
        t.head.ids_len > POLICY_RULES_MAX * (POLICY_ID_MAX + 1))
        return -EBADMSG;
    bytes = t.head.n_entries * sizeof(*t.entries);
    if (len != sizeof(t.head) + bytes + t.head.ids_len)
        return -EBADMSG;
    t.entries = malloc(bytes + 1);
    t.ids = malloc(t.head.ids_len + 1u);
    r = t.entries && t.ids ? 0 : -ENOMEM;
    if (r == 0) {
        memcpy(t.entries, (const char *)data + sizeof(t.head), bytes);
        memcpy(t.ids, (const char *)data + sizeof(t.head) + bytes, t.head.ids_len);
        r = index_ids(&t);
    }
    if (r == 0 && !entries_valid(&t))
        r = -EBADMSG;
    if (r < 0)
        policy_table_fini(&t);
    else
        *ret = t;
    return r;
}

int policy_table_save(const struct policy_table *t, void **ret, size_t *ret_len)
{
    size_t bytes = t->head.n_entries * sizeof(*t->entries);
    size_t len = sizeof(t->head) + bytes + t->head.ids_len;
    char *p = malloc(len);

    if (!p)
        return -ENOMEM;
    memcpy(p, &t->head, sizeof(t->head));
    if (bytes)
        memcpy(p + sizeof(t->head), t->entries, bytes);
    if (t->head.ids_len)
        memcpy(p + sizeof(t->head) + bytes, t->ids, t->head.ids_len);
    *ret = p;
    *ret_len = len;
    return 0;
}

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

static int add_entry(struct policy_table *t, size_t *cap, const struct policy_entry *e)
{
    if (t->head.n_entries == POLICY_ENTRIES_MAX)
        return -E2BIG;
    if (t->head.n_entries == *cap) {
        size_t want = *cap ? *cap * 2 : 64;
        struct policy_entry *p = realloc(t->entries, want * sizeof(*p));
        if (!p)
            return -ENOMEM;
        t->entries = p;
        *cap = want;
    }
    t->entries[t->head.n_entries++] = *e;
    return 0;
}

int policy_table_intersect(const struct policy_table *a, const struct policy_table *b,
                           struct policy_table *ret)
{
    struct policy_table t = {.head = a->head};
    struct policy_entry e;
    size_t cap = 0;
    uint32_t i, j;
    int r = 0;

    t.head.n_entries = 0;
    t.ids = malloc(a->head.ids_len + 1u);
    if (!t.ids)
        return -ENOMEM;
    if (a->head.ids_len)
        memcpy(t.ids, a->ids, a->head.ids_len);
    for (i = 0; r == 0 && i < a->head.n_entries; i++) {
        if (a->entries[i].verdict != POLICY_ALLOW)
            continue;
        for (j = first_slab(b, a->entries[i].lo);
             r == 0 && j < b->head.n_entries && b->entries[j].lo <= a->entries[i].hi; j++)
            if (b->entries[j].verdict == POLICY_ALLOW &&
                overlap(&a->entries[i], &b->entries[j], &e))
                r = add_entry(&t, &cap, &e);
    }
    if (r == 0 && t.head.n_entries)
        qsort(t.entries, t.head.n_entries, sizeof(*t.entries), entry_order);
    if (r == 0)
        r = index_ids(&t);
    if (r < 0)
        policy_table_fini(&t);
    else
        *ret = t;
    return r;
}

static uint64_t allowed_points(const struct policy_table *t)
{
    uint64_t n = 0;
    uint32_t i;

    for (i = 0; i < t->head.n_entries; i++) {
        const struct policy_entry *e = &t->entries[i];
        if (e->verdict == POLICY_ALLOW)
            n += ((uint64_t)e->hi - e->lo + 1) * (e->port_hi - e->port_lo + 1u);
    }
    return n;
}

int policy_table_within(const struct policy_table *a, const struct policy_table *b)
{
    struct policy_table both;
    int within;

    if (policy_table_intersect(a, b, &both) < 0)
        return 0;
    within = allowed_points(&both) == allowed_points(a);
    policy_table_fini(&both);
    return within;
}
