/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * expect_names - rows for rules by name: what they answer, open, and refuse in their neighbourhood. What a rule opens
 * is asked of the compiled table, so another rule that opens it is expected to; which names no rule covers is worked out
 * here, because a mistake of the table's own lookup would expect itself. Threads: none; no effect.
 */
#include "expect.h"

#define NAME_RULES_MAX 1500u /* some ten to twenty rows each; the gate remembers each name */
#define NAME_FULL_MAX 200u   /* rules with every row; of more, the nearest ways past each */
#define NAME_PORTS_MAX 8u    /* ranges of ports of a rule, each by its first */

static int covers(const struct policy_rule *r, const char *name)
{
    size_t n = strlen(name), h = strlen(r->host);

    if (r->kind == POLICY_EXACT)
        return !strcmp(r->host, name);
    return r->kind == POLICY_SUFFIX && n > h + 1 && name[n - h - 1] == '.' &&
           !strcmp(name + n - h, r->host);
}

int expect_covered(const struct egress *e, const char *name)
{
    uint32_t i;

    for (i = 0; i < e->table.head.n_rules; i++)
        if (covers(&e->table.rules[i], name))
            return 1;
    return 0;
}

static void put_as(struct out *o, const char *as, const char *kind, const char *name, uint16_t port,
                   const char *options, int allow, const char *rule, const char *why)
{
    char id[64], buf[INET_ADDRSTRLEN];
    struct way w = {.id = id,
                    .group = "names",
                    .kind = kind,
                    .port = port,
                    .name = name,
                    .options = options,
                    .why = why,
                    .twin = ""};

    /* answers are the gate's own; what they lead to ends in the sink */
    w.proof = allow && !strcmp(kind, "dns-udp") ? CELLA_REACH_BY_CELL : CELLA_REACH_BY_SINK;
    snprintf(id, sizeof(id), "%s.%u", as, o->n);
    expect_put(o, &w, expect_dotted(slot_gateway(o->e->slot), buf), allow, rule);
}

static void put_name(struct out *o, const char *kind, const char *name, uint16_t port,
                     const char *options, int allow, const char *rule, const char *why)
{
    put_as(o, "names", kind, name, port, options, allow, rule, why);
}

/* Must not be answered, unless another rule names it. */
static void put_question(struct out *o, const char *why, const char *before, const char *host,
                         const char *after)
{
    char name[POLICY_NAME_MAX + 64];

    snprintf(name, sizeof(name), "%s%s%s", before, host, after);
    if (strlen(name) > POLICY_NAME_MAX || expect_covered(o->e, name))
        return;
    put_name(o, "dns-udp", name, 53, "type=A;exact", 0, "", why);
}

/* A port that no rule by name opens for this protocol and the kernel refuses. */
static uint16_t closed_port(const struct egress *e, const char *host)
{
    const struct policy_rule *r;
    uint16_t port;

    for (port = 9; port < 1024; port++)
        if (port != POLICY_HARD_PORT && port != 53 &&
            policy_name_find(&e->table, host, port, POLICY_TCP, &r) != POLICY_ALLOW)
            return port;
    return 0;
}

/* ---- layer "http": plain HTTP/1.1, which the engine judges by the same rules as what it decrypts ---- */

struct ask {
    const char *host, *method, *path;
    uint16_t port;
    int websocket;
};

static int ask_allowed(const struct egress *e, const struct ask *a)
{
    const struct policy_rule *r;

    return policy_http_find(&e->table, a->host, a->port, a->method, a->path, a->websocket, &r) ==
           POLICY_ALLOW;
}

static void put_http(struct out *o, const struct ask *a, const char *more, int allow,
                     const char *rule, const char *why)
{
    char options[240];

    if ((size_t)snprintf(options, sizeof(options), "method=%s;path=%s%s", a->method, a->path,
                         more) < sizeof(options))
        put_name(o, "http", a->host, a->port, options, allow, rule, why);
}

/* A request that the rule allows, and on its connection another. */
static void put_second(struct out *o, const char *as, const struct ask *a, const char *more,
                       const char *value, int allow, const char *rule, const char *why)
{
    char options[240];

    if ((size_t)snprintf(options, sizeof(options), "reuse;method=%s;path=%s%s%s", a->method,
                         a->path, more, value) < sizeof(options))
        put_as(o, as, "http", a->host, a->port, options, allow, rule, why);
}

/* A path that the pattern matches: "*" and "**" become a word. 0: it does not fit a row. */
static int path_of(const char *pattern, char out[128])
{
    size_t n = 0;

    for (; *pattern; pattern++) {
        if (*pattern == '*') {
            n += (size_t)snprintf(out + n, 128 - n, "reach");
            pattern += pattern[1] == '*';
        } else {
            out[n++] = *pattern;
        }
        if (n > 100 || *pattern <= ' ' || *pattern == ';')
            return 0;
    }
    out[n] = 0;
    return n > 0;
}

/* Ways past the rule that are tried of every rule: a whole other host, method and path. */
static void put_http_near(struct out *o, const struct ask *a, const struct policy_rule *rule,
                          int full)
{
    static const char *const methods[] = {"GET",    "HEAD",    "POST",  "PUT",
                                          "DELETE", "OPTIONS", "PATCH", "TRACE"};
    struct ask b = *a;
    size_t i;

    put_second(o, "reuse.host", a, ";host2=", "cella-reach.example", 0, rule->id,
               "a second request, for another host, on the same connection");
    for (i = 0; i < ARRAY_LEN(methods); i++) {
        b.method = methods[i];
        if (ask_allowed(o->e, &b))
            continue;
        put_http(o, &b, "", 0, rule->id, "a method that the rule does not allow");
        if (full)
            put_second(o, "reuse.method", a, ";method2=", b.method, 0, rule->id,
                       "a second request, with another method, on the same connection");
        break;
    }
    b = *a;
    b.path = "/cella-reach-outside";
    if (ask_allowed(o->e, &b))
        return;
    put_http(o, &b, "", 0, rule->id, "a path that the rule does not allow");
    if (full)
        put_second(o, "reuse.path", a, ";path2=", b.path, 0, rule->id,
                   "a second request, for another path, on the same connection");
}

static void put_http_far(struct out *o, const struct ask *a, const struct policy_rule *rule)
{
    struct ask b = *a;

    put_http(o, a, ";host=cella-reach.example", 0, rule->id, "a request for another host");
    put_http(o, a, ";smuggle", 0, rule->id, "a request with two lengths");
    put_second(o, "reuse.same", a, "", "", 1, rule->id, "a second request on the same connection");
    put_second(o, "reuse.redirect", a, ";redirect=", "cella-reach.example", 0, rule->id,
               "the host that a redirect names, on the same connection");
    b.websocket = 1;
    if (!ask_allowed(o->e, &b))
        put_http(o, &b, ";upgrade", 0, rule->id, "an upgrade that the rule does not allow");
    b = *a;
    b.path = "http://cella-reach.example/reach";
    put_http(o, &b, "", 0, rule->id, "a target that names another host");
    b = *a;
    b.method = "CONNECT";
    put_http(o, &b, "", 0, rule->id, "a tunnel through the relay");
}

static void put_http_ways(struct out *o, const char *host, uint16_t port,
                          const struct policy_rule *rule, int full)
{
    static const char *const methods[] = {"GET",    "HEAD",    "POST",  "PUT",
                                          "DELETE", "OPTIONS", "PATCH", "TRACE"};
    struct ask a = {host, "GET", "/reach", port, 0};
    char path[128];
    size_t i;

    if (rule->n_inject) /* never in the clear */
        return;
    if (rule->n_paths && path_of(rule->path[0], path))
        a.path = path;
    for (i = 0; i < ARRAY_LEN(methods) && !ask_allowed(o->e, &a); i++)
        a.method = methods[i];
    if (!ask_allowed(o->e, &a))
        return;
    put_http(o, &a, "", 1, rule->id, "a rule allows the request");
    put_http_near(o, &a, rule, full);
    if (full)
        put_http_far(o, &a, rule);
}

static void put_tls_ways(struct out *o, const char *host, uint16_t port,
                         const struct policy_rule *found, int full)
{
    const char *id = found->id;
    uint16_t other = closed_port(o->e, host);

    put_name(o, "tls", host, port, "lookup;sni=cella-reach.example", 0, id,
             "another server name than the one that was asked for");
    if (full) {
        put_name(o, "tls", host, port, "lookup;sni=-", 0, id, "TLS without a server name");
        put_name(o, "tls", host, port, "lookup;sni=198.18.0.1", 0, id, "an address as server name");
    }
    if (found->layer == POLICY_TLS)
        put_name(o, "tls", host, port, "lookup;plain", 0, id, "no TLS where the rule wants it");
    else
        put_http_ways(o, host, port, found, full);
    if (other)
        put_name(o, "tls", host, other, "lookup", 0, "", "a port that the rule does not open");
}

static int name_of(const struct policy_rule *rule, char ret[POLICY_NAME_MAX + 16])
{
    return snprintf(ret, POLICY_NAME_MAX + 16, "%s%s", rule->kind == POLICY_SUFFIX ? "reach." : "",
                    rule->host) <= (int)POLICY_NAME_MAX;
}

/* What the rule is, for a person; of many ports the first. */
static void rule_text(const struct policy_rule *rule, char ret[200])
{
    static const char *const layers[] = {
        [POLICY_RAW] = "raw", [POLICY_TLS] = "tls", [POLICY_HTTP] = "http"};
    int n =
        snprintf(ret, 120, "%s%.80s, port", rule->kind == POLICY_SUFFIX ? "*." : "", rule->host);
    size_t i;

    for (i = 0; i < rule->n_ports && i < 4; i++)
        n += snprintf(ret + n, 200 - (size_t)n,
                      rule->ports[i].lo == rule->ports[i].hi ? " %u" : " %u to %u",
                      rule->ports[i].lo, rule->ports[i].hi);
    snprintf(ret + n, 200 - (size_t)n, "%s, layer %s", i < rule->n_ports ? " and more" : "",
             layers[rule->layer]);
}

/* What the rule says of its other ports. */
static void put_more_ports(struct out *o, const struct policy_rule *rule, const char *host,
                           enum policy_proto proto, const char *why)
{
    const struct policy_rule *found;
    size_t i;

    for (i = 1; i < rule->n_ports && i < NAME_PORTS_MAX; i++)
        put_name(o, proto == POLICY_TCP ? "tls" : "udp", host, rule->ports[i].lo, "lookup",
                 policy_name_find(&o->e->table, host, rule->ports[i].lo, proto, &found) ==
                     POLICY_ALLOW,
                 rule->id, why);
    if (i < rule->n_ports)
        expect_rest(o, (unsigned)(rule->n_ports - i), rule->id);
}

static void put_rule(struct out *o, const struct policy_rule *rule, int full)
{
    char host[POLICY_NAME_MAX + 16];
    const struct policy_rule *found;
    uint16_t port = rule->ports[0].lo;
    enum policy_proto proto = rule->proto & POLICY_TCP ? POLICY_TCP : POLICY_UDP;
    char why[200];
    int allow;

    if (!name_of(rule, host))
        return;
    allow = policy_name_find(&o->e->table, host, port, proto, &found) == POLICY_ALLOW;
    if (o->e->table.head.dns.types & POLICY_DNS_A)
        put_name(o, "dns-udp", host, 53, "type=A;exact", policy_name_listed(&o->e->table, host),
                 rule->id, "a rule names it");
    rule_text(rule, why);
    put_name(o, proto == POLICY_TCP ? "tls" : "udp", host, port, "lookup", allow, rule->id, why);
    put_more_ports(o, rule, host, proto, why);
    if (allow && proto == POLICY_TCP && found->layer != POLICY_RAW)
        put_tls_ways(o, host, port, found, full);
    if (rule->kind == POLICY_EXACT)
        put_question(o, "a name below it", "reach.", rule->host, "");
    else
        put_question(o, "the name above it", "", rule->host, "");
    put_question(o, "a name that ends like it", "evil", rule->host, "");
    if (full)
        put_question(o, "a name that begins like it", "", rule->host, ".evil.example");
}

/* A rule that denies: not even an address, unless another port of the name is open. */
static void put_denial(struct out *o, const struct policy_rule *rule)
{
    char host[POLICY_NAME_MAX + 16];
    const struct policy_rule *found;
    uint16_t port = rule->ports[0].lo;

    if (!name_of(rule, host) || !(rule->proto & POLICY_TCP))
        return;
    if (!policy_name_listed(&o->e->table, host))
        put_name(o, "dns-udp", host, 53, "type=A;exact", 0, rule->id, "a rule denies the name");
    else if (policy_name_find(&o->e->table, host, port, POLICY_TCP, &found) != POLICY_ALLOW)
        put_name(o, "tls", host, port, "lookup", 0, rule->id, "a rule denies the name");
}

void expect_names(struct out *o)
{
    uint32_t i, n = 0;

    for (i = 0; i < o->e->table.head.n_rules; i++) {
        const struct policy_rule *r = &o->e->table.rules[i];
        if (r->kind == POLICY_HOST_NONE || r->stratum || !r->n_ports || n++ >= NAME_RULES_MAX)
            continue;
        if (r->verdict == POLICY_ALLOW)
            put_rule(o, r, n <= NAME_FULL_MAX);
        else
            put_denial(o, r);
    }
    if (n > NAME_RULES_MAX)
        expect_rest(o, n - NAME_RULES_MAX, "name");
}
