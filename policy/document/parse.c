/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * parse - JSON text of a policy document to struct document.
 *
 * The author of a document is hostile: he may be the workload's owner, not the operator. So every
 * member is known or refused, every number has a range, every array a limit, and nothing has a
 * default that opens anything. What a later version will know (host rules, tls, http) is refused by
 * name, so that nobody believes it is in force. Threads: none; no state outlives a call.
 */
#include <stdarg.h>

#include "document.h"
#include "json_at.h"

struct reader {
    const struct json_at *json;
    struct cella_error *err;
    struct document_phase *phase;
    unsigned order; /* rules read in this phase */
    int deny;
    char at[512]; /* JSON pointer of the value being read */
};

/* Pointer to a member or element below r->at; the text of a hostile key is bounded. */
static void below(const struct reader *r, const char *key, char out[768])
{
    char esc[160];
    size_t n = 0;

    for (; *key && n < sizeof(esc) - 3; key++) { /* RFC 6901 */
        if (*key == '~' || *key == '/') {
            esc[n++] = '~';
            esc[n++] = *key == '~' ? '0' : '1';
        } else {
            esc[n++] = *key;
        }
    }
    esc[n] = 0;
    snprintf(out, 768, "%s/%s", r->at, esc);
}

#define reject(r, key, ...)                                                                        \
    __extension__({                                                                                \
        char at_[768];                                                                             \
        below((r), (key), at_);                                                                    \
        json_at_fail((r)->json, at_, 0, (r)->err, __VA_ARGS__);                                    \
    })

/* Refuses members that `known` (ends with NULL) does not name. */
static int keys_known(struct reader *r, json_t *object, const char *const *known, const char *what)
{
    const char *key;
    json_t *value;
    char at[768];
    size_t i;

    json_object_foreach(object, key, value)
    {
        for (i = 0; known[i] && strcmp(known[i], key); i++)
            ;
        if (known[i])
            continue;
        below(r, key, at);
        return json_at_fail(r->json, at, 1, r->err, "%s has no member of this name; remove it",
                            what);
    }
    return 0;
}

static int id_valid(const char *s)
{
    return name_valid(s) && strlen(s) <= POLICY_ID_MAX;
}

static int rule_id(struct reader *r, json_t *rule, struct document_rule *out)
{
    const json_t *v = json_object_get(rule, "id");
    size_t i;

    if (!v)
        return json_at_fail(r->json, r->at, 0, r->err,
                            "the rule has no \"id\"; events and reports name rules by it, add one");
    if (!json_is_string(v) || !id_valid(json_string_value(v)))
        return reject(r, "id",
                      "a rule id is a string of 1 to %u letters, digits, '.', '_' and '-', "
                      "starting with a letter or digit",
                      POLICY_ID_MAX);
    snprintf(out->id, sizeof(out->id), "%s", json_string_value(v));
    for (i = 0; i < r->phase->n_rules; i++)
        if (!strcmp(r->phase->rules[i].id, out->id))
            return reject(r, "id", "the id \"%s\" is used twice in this phase; ids must be unique",
                          out->id);
    return 0;
}

static int rule_unsupported(struct reader *r, json_t *rule)
{
    static const char *const later[] = {"host", "http", "inject", "limits", "tls", "any"};
    const char *layer = json_string_value(json_object_get(rule, "layer"));
    char at[768];
    size_t i;

    for (i = 0; i < ARRAY_LEN(later); i++) {
        if (!json_object_get(rule, later[i]))
            continue;
        below(r, later[i], at);
        return json_at_fail(r->json, at, 1, r->err,
                            "\"%s\" rules are not supported by egress-nft in this version: use "
                            "cidr+ports+layer raw",
                            later[i]);
    }
    if (!json_object_get(rule, "layer") && r->deny)
        return 0;
    if (!json_object_get(rule, "layer"))
        return json_at_fail(
            r->json, r->at, 0, r->err,
            "the rule has no \"layer\", which means \"tls\", and that is not supported "
            "by egress-nft in this version: use cidr+ports+layer raw");
    if (layer && (!strcmp(layer, "tls") || !strcmp(layer, "http")))
        return reject(r, "layer",
                      "layer \"%s\" is not supported by egress-nft in this version: use "
                      "cidr+ports+layer raw",
                      layer);
    if (!layer || strcmp(layer, "raw"))
        return reject(r, "layer", "expected \"raw\"");
    return 0;
}

static int rule_cidr(struct reader *r, json_t *rule, struct document_rule *out)
{
    const json_t *v = json_object_get(rule, "cidr");
    const struct policy_hard_range *hard;
    const char *why;

    if (!v)
        return json_at_fail(r->json, r->at, 0, r->err,
                            "the rule has no \"cidr\"; add one, such as "
                            "\"203.0.113.7/32\"");
    if (!json_is_string(v))
        return reject(r, "cidr", "expected a string such as \"203.0.113.0/28\"");
    if (document_cidr(json_string_value(v), &out->lo, &out->hi, &why) < 0)
        return reject(r, "cidr", "%s", why);
    hard = out->deny ? NULL : policy_hard(out->lo, out->hi);
    if (hard)
        return reject(r, "cidr", "overlaps %s (%s), which no document can open; leave it out",
                      hard->cidr, hard->what);
    return 0;
}

/* 443 or "8000-8010". */
static int port_range(const json_t *v, uint16_t *ret_lo, uint16_t *ret_hi)
{
    const char *s = json_string_value(v);
    unsigned long lo, hi;
    char *end;

    if (json_is_integer(v)) {
        json_int_t n = json_integer_value(v);
        if (n < 1 || n > 65535)
            return -EINVAL;
        *ret_lo = *ret_hi = (uint16_t)n;
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
    *ret_lo = (uint16_t)lo;
    *ret_hi = (uint16_t)hi;
    return 0;
}

static int rule_keep(struct reader *r, const struct document_rule *rule)
{
    struct document_phase *p = r->phase;

    if (p->n_rules == DOCUMENT_RANGES_MAX)
        return json_at_fail(r->json, r->at, 0, r->err, "more than %u port ranges in one phase",
                            DOCUMENT_RANGES_MAX);
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

static int rule_ports(struct reader *r, json_t *rule, struct document_rule *out)
{
    json_t *ports = json_object_get(rule, "ports"), *v;
    size_t base = strlen(r->at), i;
    int e;

    if (!json_is_array(ports) || !json_array_size(ports))
        return json_at_fail(
            r->json, r->at, 0, r->err,
            "the rule needs \"ports\", a list such as [443, \"8000-8010\"]; there is no "
            "\"all ports\" default");
    json_array_foreach(ports, i, v)
    {
        snprintf(r->at + base, sizeof(r->at) - base, "/ports/%zu", i);
        if (port_range(v, &out->port_lo, &out->port_hi) < 0)
            return json_at_fail(r->json, r->at, 0, r->err,
                                "expected a port 1-65535 or a range such as \"8000-8010\"");
        if (!out->deny && out->port_lo <= POLICY_HARD_PORT && POLICY_HARD_PORT <= out->port_hi)
            return json_at_fail(
                r->json, r->at, 0, r->err,
                "contains TCP port %d (mail), which no document can open; leave it out "
                "(\"1-24\", \"26-65535\")",
                POLICY_HARD_PORT);
        e = rule_keep(r, out);
        if (e < 0)
            return e;
    }
    return 0;
}

static int rule_proto(struct reader *r, json_t *rule)
{
    const json_t *v = json_object_get(rule, "proto");

    if (!v || (json_is_string(v) && !strcmp(json_string_value(v), "tcp")))
        return 0;
    return reject(r, "proto", "only \"tcp\" can be opened in this version");
}

static int read_rule(struct reader *r, json_t *rule)
{
    static const char *const known[] = {"id",   "cidr",   "ports",  "proto", "layer", "host",
                                        "http", "inject", "limits", "tls",   "any",   NULL};
    struct document_rule out = {.deny = (uint16_t)r->deny};
    int e;

    if (!json_is_object(rule))
        return json_at_fail(r->json, r->at, 0, r->err, "expected a rule, an object");
    if (r->order >= POLICY_RULES_MAX / 2)
        return json_at_fail(r->json, r->at, 0, r->err, "more than %u rules in one phase",
                            POLICY_RULES_MAX / 2);
    out.order = (uint16_t)r->order++;
    e = keys_known(r, rule, known, "a rule");
    if (e == 0)
        e = rule_id(r, rule, &out);
    if (e == 0)
        e = rule_unsupported(r, rule);
    if (e == 0)
        e = rule_proto(r, rule);
    if (e == 0)
        e = rule_cidr(r, rule, &out);
    if (e == 0)
        e = rule_ports(r, rule, &out);
    return e;
}

/* The lists of one phase: `object` holds "allow" and "deny", r->at points to it. */
static int read_lists(struct reader *r, json_t *object)
{
    static const char *const lists[] = {"deny", "allow"};
    size_t base = strlen(r->at), l, i;
    json_t *rule;
    int e;

    for (l = 0; l < ARRAY_LEN(lists); l++) {
        json_t *list = json_object_get(object, lists[l]);
        if (!list)
            continue;
        if (!json_is_array(list))
            return reject(r, lists[l], "expected a list of rules");
        r->deny = l == 0;
        json_array_foreach(list, i, rule)
        {
            snprintf(r->at + base, sizeof(r->at) - base, "/%s/%zu", lists[l], i);
            e = read_rule(r, rule);
            if (e < 0)
                return e;
        }
        r->at[base] = 0;
    }
    return 0;
}

static int read_phases(struct reader *r, json_t *phases, struct document *d)
{
    static const char *const known[] = {"allow", "deny", NULL};
    const char *name;
    json_t *phase;
    int e;

    if (!json_is_object(phases) || !json_object_size(phases))
        return reject(r, "phases", "expected an object of at least one phase");
    if (json_object_size(phases) > DOCUMENT_PHASES_MAX)
        return reject(r, "phases", "more than %u phases", DOCUMENT_PHASES_MAX);
    d->phases = calloc(json_object_size(phases), sizeof(*d->phases));
    if (!d->phases)
        return fail(r->err, -ENOMEM, "out of memory while reading the policy");
    json_object_foreach(phases, name, phase)
    {
        snprintf(r->at, sizeof(r->at), "/phases");
        if (!id_valid(name))
            return reject(r, name, "a phase name is 1 to %u letters, digits, '.', '_' and '-'",
                          POLICY_ID_MAX);
        if (!json_is_object(phase))
            return reject(r, name, "expected an object with \"allow\" and \"deny\"");
        r->phase = &d->phases[d->n_phases++];
        r->order = 0;
        snprintf(r->phase->name, sizeof(r->phase->name), "%s", name);
        snprintf(r->at, sizeof(r->at), "/phases/%s", name);
        e = keys_known(r, phase, known, "a phase");
        if (e == 0)
            e = read_lists(r, phase);
        if (e < 0)
            return e;
    }
    r->at[0] = 0;
    return 0;
}

static int read_active(struct reader *r, json_t *root, struct document *d)
{
    const json_t *v = json_object_get(root, "active");
    int i;

    if (!v) {
        if (d->n_phases > 1)
            return reject(r, "phases", "\"active\" must name the phase to begin with");
        return 0;
    }
    i = json_is_string(v) ? document_phase_find(d, json_string_value(v)) : -ENOENT;
    if (i < 0 || !json_object_get(root, "phases"))
        return reject(r, "active", "expected the name of one of the phases of this document");
    d->active = (size_t)i;
    return 0;
}

static int read_scalars(struct reader *r, json_t *root, struct document *d)
{
    const json_t *v = json_object_get(root, "version");

    if (!v && json_object_size(root))
        return json_at_fail(r->json, "", 0, r->err,
                            "the document has no \"version\"; add "
                            "\"version\": 1");
    if (v && (!json_is_integer(v) || json_integer_value(v) != 1))
        return reject(r, "version", "expected 1, the only version known here");
    v = json_object_get(root, "default");
    if (v && (!json_is_string(v) || strcmp(json_string_value(v), "deny")))
        return reject(r, "default", "expected \"deny\"; there is no other default");
    v = json_object_get(root, "revision");
    if (v && (!json_is_integer(v) || json_integer_value(v) < 0))
        return reject(r, "revision", "expected a number, 0 or more");
    d->revision = v ? (uint64_t)json_integer_value(v) : 0;
    v = json_object_get(root, "reopen");
    if (v && !json_is_boolean(v))
        return reject(r, "reopen", "expected true or false");
    d->reopen = json_is_true(v);
    return 0;
}

static int read_root(struct reader *r, json_t *root, struct document *d)
{
    static const char *const known[] = {"version", "revision", "default", "active", "reopen",
                                        "phases",  "allow",    "deny",    NULL};
    int flat, e;

    if (json_is_array(root) && !json_array_size(root))
        return 0; /* [] denies as {} does */
    if (!json_is_object(root))
        return json_at_fail(r->json, "", 0, r->err, "expected the policy document, an object");
    e = keys_known(r, root, known, "the policy document");
    if (e == 0)
        e = read_scalars(r, root, d);
    if (e < 0)
        return e;
    flat = json_object_get(root, "allow") || json_object_get(root, "deny");
    if (json_object_get(root, "phases")) {
        if (flat)
            return reject(r, "phases",
                          "\"allow\" and \"deny\" belong into the phases when there are "
                          "phases");
        e = read_phases(r, json_object_get(root, "phases"), d);
    } else if (flat) {
        d->phases = calloc(1, sizeof(*d->phases));
        if (!d->phases)
            return fail(r->err, -ENOMEM, "out of memory while reading the policy");
        d->n_phases = 1;
        r->phase = d->phases;
        e = read_lists(r, root);
    }
    return e < 0 ? e : read_active(r, root, d);
}

static int blank(const char *text, size_t len)
{
    size_t i;

    for (i = 0; i < len; i++)
        if (!memchr(" \t\r\n", text[i], 4))
            return 0;
    return 1;
}

int document_parse(const char *file, const char *text, size_t len, struct document *ret,
                   struct cella_error *err)
{
    struct document d = {0};
    struct json_at json;
    struct reader r = {.json = &json, .err = err};
    int e;

    if (len > DOCUMENT_BYTES_MAX)
        return fail(err, -EFBIG, "%s: the policy is %zu bytes long; at most %u are accepted", file,
                    len, DOCUMENT_BYTES_MAX);
    if (blank(text, len)) {
        *ret = d;
        return 0;
    }
    e = json_at_parse(file, text, len, &json, err);
    if (e < 0)
        return e;
    e = read_root(&r, json.root, &d);
    json_at_fini(&json);
    if (e < 0) {
        document_fini(&d);
        return e;
    }
    *ret = d;
    return 0;
}

void document_fini(struct document *d)
{
    size_t i;

    if (!d)
        return;
    for (i = 0; i < d->n_phases; i++)
        free(d->phases[i].rules);
    free(d->phases);
    memset(d, 0, sizeof(*d));
}

int document_phase_find(const struct document *d, const char *name)
{
    size_t i;

    for (i = 0; i < d->n_phases; i++)
        if (!strcmp(d->phases[i].name, name))
            return (int)i;
    return -ENOENT;
}
