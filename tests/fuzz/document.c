/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Any text is a policy document: it parses or is refused, and what compiles never opens the
 * hard-deny set, survives a round trip and intersects with itself to the same. Any bytes are a
 * serialised table, a name and a path too.
 */
#include "document.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_networks(const struct policy_table *t)
{
    uint32_t i;

    for (i = 0; i < t->head.n_entries; i++) {
        const struct policy_entry *e = &t->entries[i];
        if (e->verdict == POLICY_ALLOW &&
            (policy_hard(e->lo, e->hi) ||
             (e->port_lo <= POLICY_HARD_PORT && POLICY_HARD_PORT <= e->port_hi)))
            abort();
        if (policy_table_find(t, e->lo, e->port_hi) != e)
            abort();
    }
    for (i = 0; i < t->head.n_udp; i++)
        if (policy_table_find_udp(t, t->udp[i].hi, t->udp[i].port_lo) != &t->udp[i] ||
            (t->udp[i].verdict == POLICY_ALLOW && policy_hard(t->udp[i].lo, t->udp[i].hi)))
            abort();
}

/* What each rule says about a name that it covers, in two tables that must agree. */
static void check_names(const struct policy_table *t, const struct policy_table *same)
{
    uint32_t i;

    for (i = 0; i < t->head.n_rules && i < 64; i++) {
        const struct policy_rule *r = &t->rules[i], *a, *b;
        char name[POLICY_NAME_MAX + 3];
        enum policy_proto proto = r->proto & POLICY_TCP ? POLICY_TCP : POLICY_UDP;
        int v;
        if (r->kind == POLICY_HOST_NONE)
            continue;
        snprintf(name, sizeof(name), "%s%s", r->kind == POLICY_SUFFIX ? "x." : "", r->host);
        v = policy_name_find(t, name, r->ports[0].lo, proto, &a);
        if (v != policy_name_find(same, name, r->ports[0].lo, proto, &b) ||
            (a ? !b || strcmp(a->id, b->id) != 0 : b != NULL))
            abort();
        if (v == POLICY_ALLOW &&
            (!a || a->verdict != POLICY_ALLOW || a->stratum != 0 || !policy_name_listed(t, name)))
            abort();
        if (policy_http_find(t, name, r->ports[0].lo, "GET", "/a/b?c", 0, &a) !=
            policy_http_find(same, name, r->ports[0].lo, "GET", "/a/b?c", 0, &b))
            abort();
    }
}

static void check_table(const struct policy_table *t)
{
    struct policy_table copy, both;
    void *bytes = NULL;
    size_t len;

    check_networks(t);
    if (policy_table_save(t, &bytes, &len) < 0)
        return;
    if (policy_table_load(bytes, len, &copy) < 0 || !policy_table_within(t, &copy) ||
        !policy_table_within(&copy, t))
        abort();
    check_names(t, &copy);
    if (policy_table_intersect(t, &copy, &both) == 0) {
        check_networks(&both);
        if (!policy_table_within(&both, t) || !policy_table_within(t, &both))
            abort();
        policy_table_fini(&both);
    }
    policy_table_fini(&copy);
    free(bytes);
}

static void as_name(const uint8_t *data, size_t size)
{
    char text[400], once[POLICY_NAME_MAX + 1], again[POLICY_NAME_MAX + 1];
    char why[DOCUMENT_WHY_MAX];
    const char *host;
    int kind;

    snprintf(text, sizeof(text), "%.*s", (int)(size < 399 ? size : 399), (const char *)data);
    if (policy_name_canon(text, once) == 0 &&
        (policy_name_canon(once, again) < 0 || strcmp(once, again) != 0))
        abort();
    if (strncmp(text, "*.", 2) != 0 && document_host(text, 0, &kind, &host, why) == 0 &&
        (policy_name_canon(text, once) < 0 || strcmp(once, host) != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct errbuf eb;
    struct document d;
    struct policy_table t;
    size_t phase = 0;

    if (policy_table_load(data, size, &t) == 0) {
        check_names(&t, &t);
        policy_table_fini(&t);
    }
    as_name(data, size);
    if (document_parse("<fuzz>", (const char *)data, size, &d, errbuf_init(&eb)) < 0)
        return 0;
    do {
        if (document_compile(&d, phase, phase ? &d : NULL, 1, &t, &eb.err) == 0) {
            check_table(&t);
            policy_table_fini(&t);
        }
    } while (++phase < d.n_phases);
    document_fini(&d);
    return 0;
}
