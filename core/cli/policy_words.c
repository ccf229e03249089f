/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * policy_words - what a document opens, for a reader who has not read it.
 *
 * One line for each rule, so that a document of usual size fits a screen; of a long phase the first
 * rules are shown and the rest counted. What a document says but does not do (a rule that another
 * one denies, a look that a stricter rule takes over) is said, because nobody finds it by reading.
 * Everything printed was validated: ids, names and patterns are printable ASCII.
 */
#include <stdarg.h>

#include "cli.h"
#include "policy_words.h"

#define RULES_SHOWN 16u /* of each phase */

static const char *const method_names[] = {"GET",    "HEAD",    "POST",  "PUT",
                                           "DELETE", "OPTIONS", "PATCH", "TRACE"};

static void add_ports(struct buf *b, const struct policy_rule *r)
{
    size_t i;

    if (r->n_ports == 1 && r->ports[0].lo == 0 && r->ports[0].hi == 65535) {
        buf_addf(b, "any port");
        return;
    }
    for (i = 0; i < r->n_ports; i++) {
        if (i == 4) {
            buf_addf(b, ",+%u", r->n_ports - 4u);
            break;
        }
        buf_addf(b, i ? ",%u" : "%u", r->ports[i].lo);
        if (r->ports[i].hi > r->ports[i].lo)
            buf_addf(b, "-%u", r->ports[i].hi);
    }
}

static void add_target(struct buf *b, const struct document_rule *r)
{
    uint32_t size = r->hi - r->lo;
    unsigned bits = 32;

    if (r->rule.kind != POLICY_HOST_NONE) {
        buf_addf(b, "%s%s", r->rule.kind == POLICY_SUFFIX ? "*." : "", r->rule.host);
        return;
    }
    for (; size; size >>= 1)
        bits--;
    buf_addf(b, "%u.%u.%u.%u/%u", r->lo >> 24, r->lo >> 16 & 255, r->lo >> 8 & 255, r->lo & 255,
             bits);
}

static void add_requests(struct buf *b, const struct policy_rule *r)
{
    size_t i, n = 0;

    for (i = 0; i < ARRAY_LEN(method_names); i++)
        if (r->methods & 1u << i)
            buf_addf(b, n++ ? " %s" : "%s", method_names[i]);
    for (i = 0; i < r->n_methods; i++)
        buf_addf(b, n++ ? " %s" : "%s", r->method[i]);
    buf_addf(b, n ? " on " : "any method on ");
    for (i = 0; i < r->n_paths; i++) {
        if (i == 3) {
            buf_addf(b, " and %u more", r->n_paths - 3u);
            break;
        }
        buf_addf(b, i ? ", %s" : "%s", r->path[i]);
    }
    buf_addf(b, "%s%s", r->n_paths ? "" : "any path", r->websocket ? ", WebSocket too" : "");
}

static void add_limits(struct buf *b, const struct policy_limits *l)
{
    const struct {
        uint64_t value;
        const char *what;
    } bytes[] = {{l->tx_bytes, "out"},
                 {l->rx_bytes, "in"},
                 {l->tx_bps, "a second out"},
                 {l->rx_bps, "a second in"}};
    char size[32];
    size_t i;

    for (i = 0; i < ARRAY_LEN(bytes); i++) {
        if (!bytes[i].value)
            continue;
        human_size(bytes[i].value, size);
        buf_addf(b, "; at most %s %s", size, bytes[i].what);
    }
    if (l->conns)
        buf_addf(b, "; at most %llu connections", (unsigned long long)l->conns);
}

static void add_look(struct buf *b, const struct policy_rule *r)
{
    size_t i;

    if (r->verdict == POLICY_DENY && r->layer != POLICY_HTTP) {
        buf_addf(b, "denied, whatever else allows it");
        return;
    }
    if (r->layer == POLICY_RAW)
        buf_addf(b, "raw: an opaque tunnel");
    else if (r->layer == POLICY_TLS)
        buf_addf(b, "tls: to that server name, not looked into");
    else
        buf_addf(b, r->verdict == POLICY_DENY ? "denied: " : "http: ");
    if (r->layer == POLICY_HTTP)
        add_requests(b, r);
    for (i = 0; i < r->n_inject; i++)
        buf_addf(b, "; secret \"%s\" goes into %s%s%s", r->inject[i].secret,
                 *r->inject[i].name ? r->inject[i].name : "basic authorization",
                 *r->inject[i].placeholder ? " for its placeholder" : "",
                 r->inject[i].require ? ", which is required" : "");
    add_limits(b, &r->limits);
}

/* A remark about an allow rule that does less than it says; "" for none. */
static void add_remark(struct buf *b, const struct policy_table *t, const struct policy_rule *r)
{
    static const char *const layers[] = {"raw", "tls", "http"};
    const struct policy_rule *counts;
    enum policy_proto proto = r->proto & POLICY_TCP ? POLICY_TCP : POLICY_UDP;

    if (r->verdict != POLICY_ALLOW || r->kind != POLICY_EXACT)
        return;
    if (policy_name_find(t, r->host, r->ports[0].lo, proto, &counts) == POLICY_DENY)
        buf_addf(b, "  ! in no force: \"%s\" denies it", counts ? counts->id : "another rule");
    else if (counts->layer > r->layer)
        buf_addf(b, "  ! in no force: \"%s\" is stricter (%s), and the strictest counts",
                 counts->id, layers[counts->layer]);
}

struct widths {
    int id, target, ports;
};

/* The texts of the first three columns. */
static void columns(const struct document_rule *r, struct buf *target, struct buf *ports)
{
    static const char *const protos[] = {"", "tcp ", "udp ", ""};

    add_target(target, r);
    buf_add(target, "", 1);
    buf_addf(ports, "%s", protos[r->rule.proto]);
    add_ports(ports, &r->rule);
    buf_add(ports, "", 1);
}

static int wider(int now, size_t len, int max)
{
    return (int)len > now ? ((int)len > max ? max : (int)len) : now;
}

static void measure(const struct document_phase *p, struct widths *w)
{
    size_t i;

    for (i = 0; i < p->n_rules && i < RULES_SHOWN; i++) {
        auto_buf struct buf target = BUF_INIT, ports = BUF_INIT;
        columns(&p->rules[i], &target, &ports);
        if (target.oom || ports.oom)
            return;
        w->id = wider(w->id, strlen(p->rules[i].rule.id), 20);
        w->target = wider(w->target, target.len - 1, 40);
        w->ports = wider(w->ports, ports.len - 1, 24);
    }
}

static void print_phase(const struct document *d, size_t at, const struct policy_table *t)
{
    const struct document_phase *p = &d->phases[at];
    struct widths w = {4, 8, 6};
    size_t i;

    if (*p->name)
        printf("\nphase \"%s\"%s%s\n", p->name, at == d->active ? ", the first in force" : "",
               p->n_rules ? ":" : ": nothing");
    else
        printf("\n%s\n", p->n_rules ? "rules:" : "no rules: nothing is reachable");
    measure(p, &w);
    for (i = 0; i < p->n_rules && i < RULES_SHOWN; i++) {
        auto_buf struct buf target = BUF_INIT, ports = BUF_INIT, look = BUF_INIT;
        columns(&p->rules[i], &target, &ports);
        add_look(&look, &p->rules[i].rule);
        add_remark(&look, t, &p->rules[i].rule);
        buf_add(&look, "", 1);
        if (target.oom || ports.oom || look.oom)
            return;
        printf("  %-5s %-*s  %-*s  %-*s  %s\n",
               p->rules[i].rule.verdict == POLICY_DENY ? "deny" : "allow", w.id,
               p->rules[i].rule.id, w.target, target.ptr, w.ports, ports.ptr, look.ptr);
    }
    if (i < p->n_rules)
        printf("  … and %zu rules more\n", p->n_rules - i);
}

static void print_head(const char *file, const struct document *d)
{
    auto_buf struct buf limits = BUF_INIT;

    print_safe(stdout, file, strlen(file));
    printf(": OK, revision %llu\n", (unsigned long long)d->revision);
    printf("dns: names that an allow rule lists, %s%s%s, %s addresses; at most %u questions a "
           "second%s\n",
           d->dns.types & POLICY_DNS_A ? "A" : "", d->dns.types == 3 ? " and " : "",
           d->dns.types & POLICY_DNS_AAAA ? "AAAA" : "",
           d->dns.mode == POLICY_REAL ? "real" : "synthetic", d->dns.max_qps,
           d->dns.log_allowed ? "" : "; answers are not logged");
    add_limits(&limits, &d->limits);
    buf_add(&limits, "", 1);
    if (!limits.oom && limits.len > 2)
        printf("all together: %s\n", limits.ptr + 2);
    if (d->n_phases > 1)
        printf("phases: %s\n",
               d->reopen ? "in any order (\"reopen\": true)" : "one way, in this order");
}

int policy_words(const char *file, const struct document *d)
{
    size_t i;
    int r = 0;

    print_head(file, d);
    for (i = 0; r == 0 && i < d->n_phases; i++) {
        struct policy_table t = {0};
        r = document_compile(d, i, NULL, 1, &t, cli_err);
        if (r == 0)
            print_phase(d, i, &t);
        policy_table_fini(&t);
    }
    if (r == 0)
        printf("\n%s is reachable; hard-denied ranges and TCP port 25 never are\n",
               d->n_phases ? "nothing else" : "nothing at all");
    return r;
}

/* ------------------------------------------------------------------- JSON */

static json_t *rule_json(const struct document_rule *r)
{
    static const char *const layers[] = {"raw", "tls", "http"};
    auto_buf struct buf target = BUF_INIT, ports = BUF_INIT, look = BUF_INIT;

    add_target(&target, r);
    add_ports(&ports, &r->rule);
    add_look(&look, &r->rule);
    buf_add(&target, "", 1);
    buf_add(&ports, "", 1);
    buf_add(&look, "", 1);
    if (target.oom || ports.oom || look.oom)
        return NULL;
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:s, s:s}", "id", r->rule.id, "verdict",
                     r->rule.verdict == POLICY_DENY ? "deny" : "allow", "target", target.ptr,
                     "ports", ports.ptr, "tcp", (r->rule.proto & POLICY_TCP) != 0, "udp",
                     (r->rule.proto & POLICY_UDP) != 0, "layer", layers[r->rule.layer], "words",
                     look.ptr);
}

int policy_json(const char *file, const struct document *d)
{
    json_t *j = json_pack("{s:b, s:s, s:I, s:b, s:o}", "ok", 1, "file", file, "revision",
                          (json_int_t)d->revision, "reopen", d->reopen, "phases", json_array());
    size_t i, k;
    int r;

    for (i = 0; i < d->n_phases; i++) {
        json_t *rules = json_array();
        for (k = 0; k < d->phases[i].n_rules; k++)
            json_array_append_new(rules, rule_json(&d->phases[i].rules[k]));
        json_array_append_new(json_object_get(j, "phases"),
                              json_pack("{s:s, s:b, s:o}", "name", d->phases[i].name, "active",
                                        i == d->active, "rules", rules));
    }
    r = print_json(j);
    json_decref(j);
    return r;
}
