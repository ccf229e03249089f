/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * limits - what each rule, and the cell as a whole, has used up.
 *
 * Totals count for the rule's id over the life of the cell, through policy changes: a document put
 * in force again does not fill a quota up again. Rates are token buckets that hold a quarter of a
 * second; who gets no token stops reading, so the sender is slowed by TCP itself. The account of
 * the whole cell is the first one, its limits are those of the table in force. What is used up
 * stands in the ledger, which outlives this process: a gate that takes the place of a dead one goes on from
 * there. The ledger is bounded; a rule without room in it has no connections. One thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ledger.h"
#include "gate.h"

#define BURST_PARTS 4u /* of a second */
#define BURST_MIN 1500u

struct bucket {
    int64_t tokens; /* below 0: moved before it was counted */
    uint64_t at;
};

struct use {
    struct use *next;
    struct ledger_use *kept; /* bytes; rule, "" for everything */
    struct bucket bucket[2];
    uint64_t conns;
};

/* A line of the ledger that somebody wrote, or the next free one. */
static struct use *use_add(struct gate *g, struct ledger_use *kept)
{
    struct use *u = calloc(1, sizeof(*u));

    if (!u)
        return NULL;
    u->kept = kept;
    if (g->uses) {
        u->next = g->uses->next;
        g->uses->next = u;
    } else {
        g->uses = u;
    }
    return u;
}

struct use *use_get(struct gate *g, const char *rule)
{
    struct ledger *l = g->ledger;
    struct ledger_use *kept;
    struct use *u;

    for (u = g->uses; u; u = u->next)
        if (!strcmp(u->kept->rule, rule))
            return u;
    if (l->n_uses >= LEDGER_USES_MAX || strlen(rule) >= sizeof(kept->rule))
        return NULL;
    kept = &l->uses[l->n_uses];
    *kept = (struct ledger_use){.bytes = {0, 0}};
    snprintf(kept->rule, sizeof(kept->rule), "%s", rule);
    u = use_add(g, kept);
    if (u)
        __atomic_store_n(&l->n_uses, l->n_uses + 1, __ATOMIC_RELEASE);
    return u;
}

int uses_restore(struct gate *g)
{
    struct ledger *l = g->ledger;
    uint32_t i;

    if (l->n_uses > LEDGER_USES_MAX)
        return -1;
    for (i = 0; i < l->n_uses; i++)
        if (!memchr(l->uses[i].rule, 0, sizeof(l->uses[i].rule)) || !*l->uses[i].rule != !i ||
            !use_add(g, &l->uses[i]))
            return -1;
    return use_get(g, "") ? 0 : -1;
}

static uint64_t burst(uint64_t bps)
{
    return bps / BURST_PARTS > BURST_MIN ? bps / BURST_PARTS : BURST_MIN;
}

static uint64_t tokens(struct bucket *b, uint64_t bps)
{
    uint64_t now = watch_now();
    double most = (double)burst(bps),
           have = (double)b->tokens + (double)(now - b->at) * (double)bps / 1e9;

    if (!b->at || have > most)
        have = most;
    b->tokens = (int64_t)have;
    b->at = now;
    return b->tokens > 0 ? (uint64_t)b->tokens : 0;
}

static long budget(struct use *u, const struct policy_limits *l, int tx, size_t want)
{
    uint64_t total = tx ? l->tx_bytes : l->rx_bytes, bps = tx ? l->tx_bps : l->rx_bps, n = want;

    if (total && u->kept->bytes[tx] >= total)
        return -1;
    if (total && total - u->kept->bytes[tx] < n)
        n = total - u->kept->bytes[tx];
    if (bps) {
        uint64_t t = tokens(&u->bucket[tx], bps);
        n = t < n ? t : n;
    }
    return (long)n;
}

long limits_budget(struct gate *g, const struct flow_limits *l, int tx, size_t want)
{
    long of_rule, of_all;

    if (l->free)
        return (long)want;
    of_rule = l->rule ? budget(l->rule, &l->of_rule, tx, want) : -1;
    of_all = budget(g->uses, &g->table.head.limits, tx, want);

    return of_rule < of_all ? of_rule : of_all;
}

static void spend(struct use *u, int tx, size_t n)
{
    u->kept->bytes[tx] += n;
    u->bucket[tx].tokens -= (int64_t)n;
}

void limits_spend(struct gate *g, const struct flow_limits *l, int tx, size_t n)
{
    if (l->free)
        return;
    if (l->rule)
        spend(l->rule, tx, n);
    spend(g->uses, tx, n);
}

static void refund(struct use *u, int tx, size_t n)
{
    u->kept->bytes[tx] -= n < u->kept->bytes[tx] ? n : u->kept->bytes[tx];
    u->bucket[tx].tokens += (int64_t)n;
}

void limits_refund(struct gate *g, const struct flow_limits *l, int tx, size_t n)
{
    if (l->free)
        return;
    if (l->rule)
        refund(l->rule, tx, n);
    refund(g->uses, tx, n);
}

int limits_any(const struct gate *g, const struct flow_limits *l, int tx)
{
    const struct policy_limits *all = &g->table.head.limits, *of = &l->of_rule;

    if (l->free)
        return 0;
    return tx ? (all->tx_bytes || all->tx_bps || of->tx_bytes || of->tx_bps)
              : (all->rx_bytes || all->rx_bps || of->rx_bytes || of->rx_bps);
}

int limits_open(struct gate *g, struct flow_limits *l, const char *rule,
                const struct policy_limits *of_rule)
{
    const struct policy_limits *all = &g->table.head.limits;

    if (l->free)
        return 1;
    l->rule = use_get(g, rule);
    l->of_rule = *of_rule;
    if (!l->rule || (of_rule->conns && l->rule->conns >= of_rule->conns) ||
        (all->conns && g->uses->conns >= all->conns) || budget(l->rule, of_rule, 1, 1) < 0 ||
        budget(l->rule, of_rule, 0, 1) < 0 || budget(g->uses, all, 1, 1) < 0 ||
        budget(g->uses, all, 0, 1) < 0)
        return 0;
    l->rule->conns++;
    g->uses->conns++;
    l->counted = 1;
    return 1;
}

void limits_close(struct gate *g, struct flow_limits *l)
{
    if (!l->counted)
        return;
    l->rule->conns--;
    g->uses->conns--;
    l->counted = 0;
}

void limits_move(struct gate *g, struct flow_limits *l, const char *rule,
                 const struct policy_limits *of_rule)
{
    struct use *to;

    if (l->free)
        return;
    to = use_get(g, rule);
    l->of_rule = *of_rule;
    if (!to)
        return;
    if (l->counted) {
        l->rule->conns--;
        to->conns++;
    }
    l->rule = to;
}
