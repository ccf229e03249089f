/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * wire_check - what has been loaded, judged: every invariant of table.h, because what passes here is enforced.
 * Threads: no state.
 */
#include <string.h>

#include "table_int.h"

static int printable(const char *s)
{
    for (; *s; s++)
        if (*s < ' ' || *s > '~')
            return 0;
    return 1;
}

static int ports_valid(const struct policy_rule *r)
{
    size_t i;

    for (i = 0; i < r->n_ports; i++) {
        if (r->ports[i].lo > r->ports[i].hi || (i && r->ports[i].lo <= r->ports[i - 1].hi) ||
            (r->verdict == POLICY_ALLOW && r->ports[i].lo == 0))
            return 0;
    }
    return r->n_ports > 0;
}

static int inject_valid(const struct policy_rule *r)
{
    size_t i;

    if (r->n_inject &&
        (r->kind != POLICY_EXACT || r->layer != POLICY_HTTP || r->verdict != POLICY_ALLOW))
        return 0;
    for (i = 0; i < r->n_inject; i++) {
        const struct policy_inject *j = &r->inject[i];
        if (j->surface < POLICY_SURFACE_HEADER || j->surface > POLICY_SURFACE_BASIC ||
            j->require > 1 || !*j->secret || !printable(j->secret) || !printable(j->name) ||
            !printable(j->placeholder) || !printable(j->prefix) ||
            (j->surface == POLICY_SURFACE_HEADER) != (*j->name != 0) ||
            (*j->placeholder && *j->prefix) || (j->require && !*j->placeholder))
            return 0;
    }
    return 1;
}

int policy_rule_valid(const struct policy_table *t, const struct policy_rule *r)
{
    size_t i;

    if (!*r->id || strlen(r->id) > POLICY_ID_MAX || !printable(r->id) ||
        r->stratum >= t->head.n_strata || r->verdict > POLICY_ALLOW || !r->proto ||
        r->proto > (POLICY_TCP | POLICY_UDP) || r->layer > POLICY_HTTP || r->kind > POLICY_SUFFIX ||
        r->websocket > 1 || r->methods > 255)
        return 0;
    if (r->kind == POLICY_HOST_NONE ? *r->host != 0 : !policy_host_valid(r->host, r->kind))
        return 0;
    if ((r->kind == POLICY_HOST_NONE || r->proto & POLICY_UDP) && r->verdict == POLICY_ALLOW &&
        r->layer != POLICY_RAW)
        return 0;
    if (r->layer != POLICY_HTTP && (r->methods || r->n_methods || r->n_paths || r->websocket))
        return 0;
    for (i = 0; i < r->n_methods; i++)
        if (!*r->method[i] || !printable(r->method[i]))
            return 0;
    for (i = 0; i < r->n_paths; i++)
        if (policy_path_pattern(r->path[i]))
            return 0;
    return ports_valid(r) && inject_valid(r);
}

static int order_valid(const struct policy_entry *prev, const struct policy_entry *e)
{
    if (!prev || prev->hi < e->lo)
        return 1;
    return prev->lo == e->lo && prev->hi == e->hi && prev->port_hi < e->port_lo;
}

int policy_entries_valid(const struct policy_table *t, const struct policy_entry *e, uint32_t n)
{
    uint32_t i;

    for (i = 0; i < n; i++, e++)
        if (e->lo > e->hi || e->port_lo > e->port_hi || e->rule >= t->head.n_rules ||
            e->verdict > POLICY_ALLOW || !order_valid(i ? e - 1 : NULL, e))
            return 0;
    return 1;
}

int policy_head_valid(const struct policy_head *h, size_t len)
{
    size_t entries = ((size_t)h->n_entries + h->n_udp) * sizeof(struct policy_entry);

    return h->magic == POLICY_MAGIC && h->n_entries <= POLICY_ENTRIES_MAX &&
           h->n_udp <= POLICY_ENTRIES_MAX && h->n_rules <= POLICY_RULES_MAX &&
           h->blob_len <= POLICY_BLOB_MAX && h->n_strata >= 1 && h->n_strata <= POLICY_STRATA_MAX &&
           h->dns.mode <= POLICY_REAL && h->dns.types <= (POLICY_DNS_A | POLICY_DNS_AAAA) &&
           h->dns.max_label <= 63 && h->dns.log_allowed <= 1 &&
           len == sizeof(*h) + entries + h->blob_len;
}
