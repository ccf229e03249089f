/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * rule - one rule of a document.
 *
 * A rule names a host or a network, never both, and its ports. Nothing has a default that opens:
 * an allow rule without ports is refused, a denial without ports denies all. Layer: tls for hosts
 * unless said otherwise; networks have no name to check, so they are raw and must say so.
 * Threads: none needed.
 */
#include <stdlib.h>

#define HASH_NONFATAL_OOM 1 /* a plugin does not end the process it is in */
#include <uthash.h>

#include "parse_int.h"
#include "table_int.h"

struct seen {
    const char *id;
    UT_hash_handle hh;
};

void seen_clear(struct reader *r)
{
    struct seen *s, *next;

    HASH_ITER(hh, r->seen, s, next)
    {
        HASH_DEL(r->seen, s);
        free(s);
    }
}

static int rule_id(struct reader *r, json_t *rule, struct policy_rule *out)
{
    const json_t *v = json_object_get(rule, "id");
    const char *s = json_string_value(v);
    struct seen *seen;

    if (!v)
        return reject(r, "",
                      "the rule has no \"id\"; events and reports name rules by it, add one");
    if (!s || !name_valid(s) || strlen(s) > POLICY_ID_MAX)
        return reject(r, "id",
                      "a rule id is a string of 1 to %u letters, digits, '.', '_' and '-', "
                      "starting with a letter or digit",
                      POLICY_ID_MAX);
    HASH_FIND_STR(r->seen, s, seen);
    if (seen)
        return reject(r, "id", "the id \"%s\" is used twice in this phase; ids must be unique", s);
    out->id = keep_text(r, s);
    seen = out->id ? calloc(1, sizeof(*seen)) : NULL;
    if (!seen)
        return fail(r->err, -ENOMEM, "out of memory while reading the policy");
    seen->id = out->id;
    HASH_ADD_KEYPTR(hh, r->seen, seen->id, strlen(seen->id), seen);
    if (!seen->hh.tbl) { /* not taken in */
        free(seen);
        return fail(r->err, -ENOMEM, "out of memory while reading the policy");
    }
    return 0;
}

static int rule_proto(struct reader *r, json_t *rule, struct policy_rule *out)
{
    const json_t *v = json_object_get(rule, "proto");
    const char *s = json_string_value(v);

    out->proto = r->deny ? POLICY_TCP | POLICY_UDP : POLICY_TCP;
    if (!v)
        return 0;
    if (!s || (strcmp(s, "tcp") && strcmp(s, "udp")))
        return reject(r, "proto", "expected \"tcp\" or \"udp\"; no other protocol can be opened");
    out->proto = !strcmp(s, "tcp") ? POLICY_TCP : POLICY_UDP;
    return 0;
}

static int rule_cidr(struct reader *r, const json_t *v, struct document_rule *out)
{
    const struct policy_hard_range *hard;
    const char *why;

    if (!json_is_string(v))
        return reject(r, "cidr", "expected a string such as \"203.0.113.0/28\"");
    if (document_cidr(json_string_value(v), &out->lo, &out->hi, &why) < 0)
        return reject(r, "cidr", "%s", why);
    hard = r->deny ? NULL : policy_hard(out->lo, out->hi);
    if (hard)
        return reject(r, "cidr", "overlaps %s (%s), which no document can open; leave it out",
                      hard->cidr, hard->what);
    out->rule.host = "";
    out->rule.kind = POLICY_HOST_NONE;
    return 0;
}

static int rule_host(struct reader *r, const json_t *v, struct policy_rule *out)
{
    char why[DOCUMENT_WHY_MAX];
    const char *host;
    int kind;

    if (!json_is_string(v))
        return reject(r, "host",
                      "expected a string such as \"api.example.com\" or "
                      "\"*.example.com\"");
    if (host_read(json_string_value(v), r->deny ? NULL : &r->suffixes, &kind, &host, why) < 0)
        return reject(r, "host", "%s", why);
    out->kind = (uint8_t)kind;
    out->host = keep_text(r, host);
    return out->host ? 0 : -ENOMEM;
}

static int rule_target(struct reader *r, json_t *rule, struct document_rule *out)
{
    const json_t *host = json_object_get(rule, "host"), *cidr = json_object_get(rule, "cidr");

    if (host && cidr)
        return reject_key(r, "cidr",
                          "a rule has \"host\" or \"cidr\", never both; write two "
                          "rules");
    if (!host && !cidr)
        return reject(r, "",
                      "the rule names nothing; add \"host\", such as \"api.example.com\", "
                      "or \"cidr\", such as \"203.0.113.7/32\"");
    return host ? rule_host(r, host, &out->rule) : rule_cidr(r, cidr, out);
}

static int layer_of_denial(struct reader *r, const json_t *v, const char *s,
                           struct policy_rule *out)
{
    out->layer = POLICY_RAW;
    if (!v || (s && !strcmp(s, "raw")))
        return 0;
    if (!s || strcmp(s, "http") || out->kind == POLICY_HOST_NONE)
        return reject(r, "layer",
                      "a denial holds on every layer; leave \"layer\" out, or say "
                      "\"http\" to deny some requests to a host");
    out->layer = POLICY_HTTP;
    return 0;
}

static int rule_layer(struct reader *r, json_t *rule, struct policy_rule *out)
{
    static const char *const names[] = {"raw", "tls", "http"};
    const json_t *v = json_object_get(rule, "layer");
    const char *s = json_string_value(v);
    size_t i;

    if (r->deny)
        return layer_of_denial(r, v, s, out);
    for (i = 0; s && i < ARRAY_LEN(names) && strcmp(names[i], s); i++)
        ;
    if (v && (!s || i == ARRAY_LEN(names)))
        return reject(r, "layer", "expected \"raw\", \"tls\" or \"http\"");
    out->layer = v ? (uint8_t)i : POLICY_TLS;
    if (out->kind == POLICY_HOST_NONE && out->layer != POLICY_RAW)
        return reject(r, v ? "layer" : "",
                      "a rule by \"cidr\" has no name to check and needs \"layer\": \"raw\"; what "
                      "passes is an opaque tunnel");
    if (out->proto == POLICY_UDP && out->layer != POLICY_RAW)
        return reject(r, v ? "layer" : "",
                      "UDP is not looked into; a rule with \"proto\": \"udp\" needs \"layer\": "
                      "\"raw\"");
    return 0;
}

/* 443 or "8000-8010". */
static int port_range(const json_t *v, struct policy_ports *ret)
{
    const char *s = json_string_value(v);
    unsigned long lo, hi;
    char *end;

    if (json_is_integer(v)) {
        json_int_t n = json_integer_value(v);
        if (n < 1 || n > 65535)
            return -EINVAL;
        ret->lo = ret->hi = (uint16_t)n;
        return 0;
    }
    if (!s || strlen(s) > 11 || strspn(s, "0123456789-") != strlen(s) || *s < '1' || *s > '9')
        return -EINVAL;
    lo = strtoul(s, &end, 10);
    if (*end != '-' || end[1] < '1' || end[1] > '9')
        return -EINVAL;
    hi = strtoul(end + 1, &end, 10);
    if (*end || lo > hi || hi > 65535)
        return -EINVAL;
    ret->lo = (uint16_t)lo;
    ret->hi = (uint16_t)hi;
    return 0;
}

static int rule_ports(struct reader *r, json_t *rule, struct policy_rule *out)
{
    json_t *list = json_object_get(rule, "ports"), *v;
    size_t n = json_array_size(list), i;
    struct policy_ports *p;

    if ((list || !r->deny) && (!json_is_array(list) || !n || n > POLICY_LIST_MAX))
        return reject(r, list ? "ports" : "",
                      "the rule needs \"ports\", a list such as [443, \"8000-8010\"]; there is no "
                      "\"all ports\" default");
    p = keep(r, (n + 1) * sizeof(*p));
    if (!p)
        return -ENOMEM;
    if (!list)
        p[n++] = (struct policy_ports){0, 65535};
    json_array_foreach(list, i, v)
    {
        size_t mark = enter_at(r, "ports", i);
        if (port_range(v, &p[i]) < 0)
            return reject(r, "", "expected a port 1-65535 or a range such as \"8000-8010\"");
        if (!r->deny && out->proto == POLICY_TCP && p[i].lo <= POLICY_HARD_PORT &&
            POLICY_HARD_PORT <= p[i].hi)
            return reject(r, "",
                          "contains TCP port %d (mail), which no document can open; leave it out "
                          "(\"1-24\", \"26-65535\")",
                          POLICY_HARD_PORT);
        leave(r, mark);
    }
    out->ports = p;
    out->n_ports = (uint16_t)policy_ports_merge(p, n);
    return 0;
}

static int rule_limits(struct reader *r, json_t *rule, struct policy_rule *out)
{
    static const char *const known[] = {"tx_bytes", "rx_bytes", "conns", "tx_bps", "rx_bps", NULL};
    json_t *limits = json_object_get(rule, "limits");
    size_t mark;
    int e;

    if (!limits)
        return 0;
    if (!json_is_object(limits))
        return reject(r, "limits", "expected an object");
    mark = enter(r, "limits");
    e = keys_known(r, limits, known, "a rule's \"limits\"");
    if (e == 0)
        e = read_limits(r, limits, &out->limits);
    if (e == 0)
        leave(r, mark);
    return e;
}

static int rule_keep(struct reader *r, const struct document_rule *rule)
{
    struct document_phase *p = r->phase;

    p->n_ranges += rule->rule.n_ports;
    if (p->n_ranges > DOCUMENT_RANGES_MAX)
        return reject(r, "", "more than %u port ranges in one phase", DOCUMENT_RANGES_MAX);
    if (p->n_rules == p->cap_rules) {
        size_t cap = p->cap_rules ? p->cap_rules * 2 : 16;
        struct document_rule *grown = realloc(p->rules, cap * sizeof(*grown));
        if (!grown)
            return fail(r->err, -ENOMEM, "out of memory while reading the policy");
        p->rules = grown;
        p->cap_rules = cap;
    }
    p->rules[p->n_rules++] = *rule;
    return 0;
}

int read_rule(struct reader *r, json_t *rule)
{
    static const char *const known[] = {"id",    "host", "cidr",   "ports",  "proto",
                                        "layer", "http", "inject", "limits", NULL};
    static const char *const known_deny[] = {"id",    "host",  "cidr", "ports",
                                             "proto", "layer", "http", NULL};
    struct document_rule out = {.rule = {.verdict = r->deny ? POLICY_DENY : POLICY_ALLOW}};
    struct policy_rule *p = &out.rule;
    int e;

    if (!json_is_object(rule))
        return reject(r, "", "expected a rule, an object");
    if (r->phase->n_rules >= r->rules_max)
        return reject(r, "", "more than %zu rules in one phase", r->rules_max);
    e = keys_known(r, rule, r->deny ? known_deny : known, r->deny ? "a denial" : "a rule");
    if (e == 0)
        e = rule_id(r, rule, p);
    if (e == 0)
        e = rule_target(r, rule, &out);
    if (e == 0)
        e = rule_proto(r, rule, p);
    if (e == 0)
        e = rule_layer(r, rule, p);
    if (e == 0)
        e = rule_ports(r, rule, p);
    if (e == 0)
        e = read_http(r, rule, p);
    if (e == 0)
        e = read_inject(r, rule, p);
    if (e == 0)
        e = rule_limits(r, rule, p);
    return e < 0 ? e : rule_keep(r, &out);
}
