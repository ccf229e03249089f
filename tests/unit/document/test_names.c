/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Rules by name: which names a pattern covers, which rule counts, what strata and intersections do,
 * and that a table survives being saved. In the texts ' stands for ".
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#undef fail
#include "document.h"
#undef fail /* both call it so */
#define fail() _fail(__FILE__, __LINE__)

static void compile(const char *text, const char *ceiling, struct policy_table *ret)
{
    auto_free char *own = strdup(text), *limit = strdup(ceiling ? ceiling : "");
    struct document d, c = {0};
    struct errbuf eb;
    char *p;

    for (p = own; (p = strchr(p, '\'')); p++)
        *p = '"';
    for (p = limit; (p = strchr(p, '\'')); p++)
        *p = '"';
    if (document_parse("p", own, strlen(own), &d, errbuf_init(&eb)) < 0)
        fail_msg("%s", eb.text);
    if (ceiling && document_parse("c", limit, strlen(limit), &c, &eb.err) < 0)
        fail_msg("%s", eb.text);
    if (document_compile(&d, d.active, ceiling ? &c : NULL, 7, ret, &eb.err) < 0)
        fail_msg("%s", eb.text);
    document_fini(&d);
    document_fini(&c);
}

/* "rule/layer" when allowed, "!rule" when a rule denies, "" when none speaks. */
static const char *ask(const struct policy_table *t, const char *name, uint16_t port)
{
    static const char layers[] = "rth";
    static char out[80];
    const struct policy_rule *r;

    if (policy_name_find(t, name, port, POLICY_TCP, &r) == POLICY_ALLOW)
        snprintf(out, sizeof(out), "%s/%c", r->id, layers[r->layer]);
    else
        snprintf(out, sizeof(out), "%s%s", r ? "!" : "", r ? r->id : "");
    return out;
}

static const char *request(const struct policy_table *t, const char *name, const char *method,
                           const char *path, int websocket)
{
    static char out[80];
    const struct policy_rule *r;
    int v = policy_http_find(t, name, 443, method, path, websocket, &r);

    snprintf(out, sizeof(out), "%s%s", v == POLICY_DENY && r ? "!" : "", r ? r->id : "");
    assert_true(v == POLICY_DENY || r);
    return out;
}

#define R(id, host, more) "{'id':'" id "','host':'" host "','ports':[443]" more "}"
#define ALLOW(rules) "{'version':1,'allow':[" rules "]}"
#define H ",'layer':'http'"
#define HTTP(text) ",'layer':'http','http':{" text "}"

/* ---------------------------------------------------------------- matcher */

static void test_matcher(void **state)
{
    static const struct {
        const char *name, *rule;
    } rows[] = {
        {"example.com", "exact/t"},
        {"EXAMPLE.com", "exact/t"},
        {"eXaMpLe.CoM", "exact/t"},
        {"example.com.", "exact/t"},
        {"example.com..", ""},
        {".example.com", ""},
        {"..example.com", ""},
        {"www.example.com", ""},
        {"evil-example.com", ""},
        {"evilexample.com", ""},
        {"example.com.evil.com", ""},
        {"example.comm", ""},
        {"example.co", ""},
        {"xample.com", ""},
        {"example-com", ""},
        {"example..com", ""},
        {"example.com:443", ""},
        {"example.com/", ""},
        {"example.com ", ""},
        {" example.com", ""},
        {"example.com\t", ""},
        {"user@example.com", ""},
        {"example.com%00.evil.com", ""},
        {"example\\.com", ""},
        {"*.example.com", ""},
        {"", ""},
        {".", ""},
        {"com", ""},
        {"a.sub.example.net", "wild/t"},
        {"A.Sub.Example.Net", "wild/t"},
        {"a.b.sub.example.net", "wild/t"},
        {"a.b.c.d.e.f.g.sub.example.net", "wild/t"},
        {"a.sub.example.net.", "wild/t"},
        {"sub.example.net", ""}, /* the apex is not covered */
        {".sub.example.net", ""},
        {"asub.example.net", ""},
        {"a-sub.example.net", ""},
        {"example.net", ""},
        {"a.example.net", ""},
        {"a.sub.example.net.evil.com", ""},
        {"sub.example.net.a", ""},
        {"-.sub.example.net", ""},
        {"-a.sub.example.net", ""},
        {"a_b.sub.example.net", ""},
        {"b\xc3\xbc.sub.example.net", ""},
        {"xn--b-xga.sub.example.net", "wild/t"},
        {"*.sub.example.net", ""},
        {"169.254.169.254", ""},
        {"a.0x7f", ""},
    };
    struct policy_table t;
    size_t i;

    (void)state;
    compile(ALLOW(R("exact", "example.com", "") "," R("wild", "*.sub.example.net", "")), NULL, &t);
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        if (strcmp(ask(&t, rows[i].name, 443), rows[i].rule) != 0)
            fail_msg("\"%s\": \"%s\", not \"%s\"", rows[i].name, ask(&t, rows[i].name, 443),
                     rows[i].rule);
        assert_int_equal(policy_name_listed(&t, rows[i].name), *rows[i].rule != 0);
        assert_string_equal(ask(&t, rows[i].name, 444), "");
    }
    assert_true(ARRAY_LEN(rows) >= 40);
    policy_table_fini(&t);
}

static void test_lengths(void **state)
{
    char name[600], canon[POLICY_NAME_MAX + 1];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(name) - 1; i++)
        name[i] = i % 50 == 49 ? '.' : 'a';
    name[253] = 0;
    assert_int_equal(policy_name_canon(name, canon), 0);
    name[253] = '.';
    name[254] = 0;
    assert_int_equal(policy_name_canon(name, canon), 0);
    assert_int_equal(strlen(canon), 253);
    name[253] = 'a';
    assert_int_equal(policy_name_canon(name, canon), -EINVAL);
    memset(name, 'a', sizeof(name));
    strcpy(name + 63, ".com");
    assert_int_equal(policy_name_canon(name, canon), 0);
    memset(name, 'a', sizeof(name));
    strcpy(name + 64, ".com");
    assert_int_equal(policy_name_canon(name, canon), -EINVAL);
}

/* ---------------------------------------------------------- which rule counts */

static void test_precedence(void **state)
{
    struct policy_table t;

    (void)state;
    compile("{'version':1,'allow':[" R("all", "*.example.com", "") "," R(
                "api", "api.example.com",
                H) "," R("raw", "raw.example.com",
                         ",'layer':'raw'") "," R("second", "api.example.com",
                                                 H) ","
                                                    "{'id':'ssh','host':'git.example.com','ports':["
                                                    "22],'layer':'raw'}],"
                                                    "'deny':[{'id':'no','host':'bad.example.com'},"
                                                    "{'id':'port','host':'*.example.com','ports':['"
                                                    "8000-9000',22]},"
                                                    "{'id':'tree','host':'*.bad.example.com'}]}",
            NULL, &t);
    assert_string_equal(ask(&t, "www.example.com", 443), "all/t");
    assert_string_equal(ask(&t, "api.example.com", 443), "api/h"); /* strictest, then first */
    assert_string_equal(ask(&t, "raw.example.com", 443), "all/t");
    assert_string_equal(ask(&t, "bad.example.com", 443), "!no"); /* deny beats any allow */
    assert_string_equal(ask(&t, "bad.example.com", 1), "!no");
    assert_string_equal(ask(&t, "a.bad.example.com", 443), "!tree");
    assert_string_equal(ask(&t, "git.example.com", 22), "!port");
    assert_false(policy_name_listed(&t, "bad.example.com"));
    assert_true(policy_name_listed(&t, "git.example.com")); /* 443 by "all" */
    assert_string_equal(ask(&t, "www.example.com", 25), "");
    assert_string_equal(ask(&t, "www.example.com", 0), "");
    policy_table_fini(&t);
}

static void test_protocols(void **state)
{
    const struct policy_rule *r;
    struct policy_table t;

    (void)state;
    compile("{'version':1,'allow':[{'id':'ntp','host':'time.example.com','ports':[123],'proto':"
            "'udp','layer':'raw'},{'id':'net','cidr':'203.0.113.0/"
            "24','ports':[123],'proto':'udp','layer':'raw'}]}",
            NULL, &t);
    assert_int_equal(policy_name_find(&t, "time.example.com", 123, POLICY_UDP, &r), POLICY_ALLOW);
    assert_string_equal(r->id, "ntp");
    assert_int_equal(policy_name_find(&t, "time.example.com", 123, POLICY_TCP, &r), POLICY_DENY);
    assert_true(policy_name_listed(&t, "time.example.com"));
    assert_null(policy_table_find(&t, 0xcb007101u, 123));
    assert_non_null(policy_table_find_udp(&t, 0xcb007101u, 123));
    policy_table_fini(&t);
}

/* What only a denial of the whole of it can close. */
static void test_denied_requests(void **state)
{
    struct policy_table t;

    (void)state;
    compile("{'version':1,'allow':[" R("web", "web.example.com", H) "," R(
                "tls", "tls.example.com",
                "") "],"
                    "'deny':[{'id':'admin','host':'*.example.com','layer':'http','http':{'paths':["
                    "'/admin/**']}},{'id':'del','host':'web.example.com','layer':'http','http':{"
                    "'methods':['DELETE']}}]}",
            NULL, &t);
    assert_string_equal(ask(&t, "web.example.com", 443), "web/h");
    assert_string_equal(ask(&t, "tls.example.com", 443), "!admin"); /* cannot tell: closed */
    assert_string_equal(request(&t, "web.example.com", "GET", "/", 0), "web");
    assert_string_equal(request(&t, "web.example.com", "DELETE", "/", 0), "!del");
    assert_string_equal(request(&t, "web.example.com", "GET", "/admin/x", 0), "!admin");
    assert_string_equal(request(&t, "web.example.com", "GET", "/%61dmin/x", 0), "!admin");
    assert_string_equal(request(&t, "web.example.com", "GET", "/y/../admin/x", 0), "!admin");
    assert_string_equal(request(&t, "web.example.com", "GET", "//admin/x", 0), "!admin");
    assert_string_equal(request(&t, "web.example.com", "GET", "/admin", 0), "web");
    policy_table_fini(&t);
}

/* --------------------------------------------------------------- requests */

static void test_paths(void **state)
{
    static const struct {
        const char *path, *rule;
    } rows[] = {
        {"/v1/messages", "exact"},
        {"/v1/messages?beta=true", "exact"},
        {"/v1/messages/", ""},
        {"/v1/messagesx", ""},
        {"/V1/messages", ""},
        {"/v1/%6dessages", "exact"},
        {"/v1/m%65ssages?x=/../", "exact"},
        {"/v1%2fmessages", ""},
        {"/v1%2Fmessages", ""},
        {"/v1//messages", ""},
        {"/v1/./messages", ""},
        {"/v1/x/../messages", ""},
        {"/v1/x/%2e%2e/messages", ""},
        {"/v1/x/..;/messages", ""},
        {"/v1\\messages", ""},
        {"/v1%5cmessages", ""},
        {"/v1/messages%00", ""},
        {"/v1/messages#x", ""},
        {"/v1/messages%", ""},
        {"/v1/messages%4", ""},
        {"/v1/messages%zz", ""},
        {"/v1/%2566", ""},
        {"/v1/mess ages", ""},
        {"v1/messages", ""},
        {"", ""},
        {"*", ""},
        {"http://api.example.com/v1/messages", ""},
        {"/files/a", "below"},
        {"/files/a/b/c", "below"},
        {"/files/", "below"},
        {"/files", ""},
        {"/files/../v2", ""},
        {"/files/a%20b", "below"},
        {"/files/a%2fb", ""},
        {"/files/..%2f..%2fv2", ""},
        {"/files/a%5c..%5cb", ""},
        {"/files/%252e%252e/x", ""},
        {"/files/a\\b", ""},
        {"/files/a%09b", ""},
        {"/files/...", "below"},
        {"/files/.git", "below"},
        {"/files/;x", "below"},
        {"/files/a%3fb", "below"},
        {"/users/7/keys", "segment"},
        {"/users/a.b/keys", "segment"},
        {"/users//keys", ""},
        {"/users/7/8/keys", ""},
        {"/users/7", ""},
        {"/users/../keys", ""},
    };
    struct policy_table t;
    size_t i;

    (void)state;
    compile(ALLOW(R("exact", "api.example.com", HTTP("'paths':['/v1/messages']")) "," R(
                "below", "api.example.com", HTTP("'paths':['/files/**']")) "," R("segment",
                                                                                 "api.example.com",
                                                                                 HTTP("'paths':['/"
                                                                                      "users/*/"
                                                                                      "keys']"))),
            NULL, &t);
    for (i = 0; i < ARRAY_LEN(rows); i++)
        if (strcmp(request(&t, "api.example.com", "GET", rows[i].path, 0), rows[i].rule) != 0)
            fail_msg("\"%s\": \"%s\", not \"%s\"", rows[i].path,
                     request(&t, "api.example.com", "GET", rows[i].path, 0), rows[i].rule);
    policy_table_fini(&t);
}

static void test_methods(void **state)
{
    struct policy_table t;

    (void)state;
    compile(ALLOW(R("read", "api.example.com", HTTP("'methods':['GET','HEAD','PROPFIND']")) "," R(
                "ws", "api.example.com",
                HTTP("'paths':['/ws'],'websocket':true")) "," R("any", "any.example.com", H)),
            NULL, &t);
    assert_string_equal(request(&t, "api.example.com", "GET", "/x", 0), "read");
    assert_string_equal(request(&t, "api.example.com", "PROPFIND", "/x", 0), "read");
    assert_string_equal(request(&t, "api.example.com", "get", "/x", 0), "");
    assert_string_equal(request(&t, "api.example.com", "POST", "/x", 0), "");
    assert_string_equal(request(&t, "api.example.com", "MKCOL", "/x", 0), "");
    assert_string_equal(request(&t, "api.example.com", "POST", "/ws", 0), "ws");
    assert_string_equal(request(&t, "api.example.com", "GET", "/ws", 0), "read");
    assert_string_equal(request(&t, "api.example.com", "GET", "/ws", 1), "ws");
    assert_string_equal(request(&t, "api.example.com", "GET", "/x", 1), "");
    assert_string_equal(request(&t, "any.example.com", "TRACE", "/x", 0), "any");
    assert_string_equal(request(&t, "any.example.com", "GET", "/a//../b", 0), "any");
    assert_string_equal(request(&t, "any.example.com", "CONNECT", "/x", 0), "");
    assert_true(policy_needs_http(&t));
    policy_table_fini(&t);
}

/* ---------------------------------------------------------------- ceiling */

static void test_ceiling(void **state)
{
    static const char own[] = "{'version':1,'allow':[" R("api", "api.example.com", H) "," R(
        "tls", "tls.example.com", "") "," R("raw", "db.example.com",
                                            ",'layer':'raw'") "," R("wild", "*.example.net",
                                                                    "") "," R("out", "example.org",
                                                                              "") "]}";
    static const char limit[] =
        "{'version':1,'limits':{'conns':5},'dns':{'types':['A'],'max_qps':3},'allow':[" R(
            "a", "*.example.com",
            "") "," R("b", "api.example.com",
                      HTTP("'methods':['GET'],'paths':['/v1/**']")) "," R("c", "one.example.net",
                                                                          "") "],"
                                                                              "'deny':[{'id':'d','"
                                                                              "host':'tls.example."
                                                                              "com','ports':[444]}]"
                                                                              "}";
    struct policy_table t;

    (void)state;
    compile(own, limit, &t);
    assert_string_equal(ask(&t, "api.example.com", 443), "api/h");
    assert_string_equal(request(&t, "api.example.com", "GET", "/v1/x", 0), "api");
    assert_string_equal(request(&t, "api.example.com", "GET", "/v2/x", 0), "");
    assert_string_equal(request(&t, "api.example.com", "POST", "/v1/x", 0), "");
    assert_string_equal(ask(&t, "tls.example.com", 443), "tls/t");
    assert_string_equal(ask(&t, "tls.example.com", 444), "!operator.d");
    assert_string_equal(ask(&t, "db.example.com", 443), ""); /* the ceiling wants TLS */
    assert_string_equal(ask(&t, "one.example.net", 443), "wild/t");
    assert_string_equal(ask(&t, "two.example.net", 443), "");
    assert_string_equal(ask(&t, "example.org", 443), "");
    assert_false(policy_name_listed(&t, "example.org"));
    assert_int_equal(t.head.limits.conns, 5);
    assert_int_equal(t.head.dns.types, POLICY_DNS_A);
    assert_int_equal(t.head.dns.max_qps, 3);
    policy_table_fini(&t);
    compile(own, "{}", &t);
    assert_string_equal(ask(&t, "api.example.com", 443), "");
    policy_table_fini(&t);
}

static void test_ceiling_refused(void **state)
{
    static const char text[] =
        "{\"version\":1,\"allow\":[{\"id\":\"a\",\"host\":\"a.example.com\",\"ports\":[1],"
        "\"limits\":{\"conns\":1}}]}";
    struct policy_table t;
    struct document d;
    struct errbuf eb;

    (void)state;
    assert_int_equal(document_parse("c", text, strlen(text), &d, errbuf_init(&eb)), 0);
    assert_int_equal(document_compile(&d, 0, &d, 1, &t, &eb.err), -EINVAL);
    assert_non_null(strstr(eb.text, "rule \"a\" of the operator's ceiling has \"limits\""));
    document_fini(&d);
}

/* A network denial holds for the addresses that names resolve to, also in an intersection. */
static void test_addresses(void **state)
{
    static const char a[] = "{'version':1,'allow':[" R(
        "web", "web.example.com", "") "],"
                                      "'deny':[{'id':'net','cidr':'203.0.113.0/28'}]}";
    static const char b[] = "{'version':1,'allow':[" R(
        "web", "web.example.com",
        "") "],"
            "'deny':[{'id':'other','cidr':'203.0.113.8/29','ports':[443]}]}";
    struct policy_table ta, tb, both;
    const struct policy_rule *r;

    (void)state;
    compile(a, NULL, &ta);
    compile(b, NULL, &tb);
    r = policy_addr_denied(&ta, 0xcb007101u, 443, POLICY_TCP);
    assert_non_null(r);
    assert_string_equal(r->id, "net");
    assert_non_null(policy_addr_denied(&ta, 0xcb007101u, 1, POLICY_UDP));
    assert_null(policy_addr_denied(&ta, 0xcb007110u, 443, POLICY_TCP));
    assert_int_equal(policy_table_intersect(&tb, &ta, &both), 0);
    assert_string_equal(policy_addr_denied(&both, 0xcb007101u, 443, POLICY_TCP)->id, "net");
    assert_string_equal(policy_addr_denied(&both, 0xcb007109u, 443, POLICY_TCP)->id, "other");
    assert_string_equal(policy_addr_denied(&both, 0xcb007109u, 444, POLICY_TCP)->id, "net");
    assert_null(policy_addr_denied(&both, 0xcb007110u, 443, POLICY_TCP));
    policy_table_fini(&ta);
    policy_table_fini(&tb);
    policy_table_fini(&both);
}

/* ------------------------------------------------------------------ ports */

static void test_ports(void **state)
{
    struct policy_ports *p;
    struct policy_table t;
    size_t n;

    (void)state;
    compile("{'version':1,'allow':[{'id':'a','host':'a.example.com','ports':[443,'8000-8010']},"
            "{'id':'b','host':'b.example.com','ports':[444,8005,'8011-8020',22]},"
            "{'id':'c','cidr':'203.0.113.0/24','ports':[9999],'layer':'raw'}]}",
            "{'version':1,'allow':[{'id':'x','host':'*.example.com','ports':[443,'444-8015']}]}",
            &t);
    assert_int_equal(policy_name_ports(&t, POLICY_TCP, &p, &n), 0);
    assert_int_equal(n, 2);
    assert_true(p[0].lo == 443 && p[0].hi == 444 && p[1].lo == 8000 && p[1].hi == 8015);
    free(p);
    assert_int_equal(policy_name_ports(&t, POLICY_UDP, &p, &n), 0);
    assert_int_equal(n, 0);
    free(p);
    policy_table_fini(&t);
}

/* ----------------------------------------------------------- intersection */

static unsigned rnd(unsigned *seed, unsigned n)
{
    *seed = *seed * 1103515245u + 12345u;
    return (*seed >> 16) % n;
}

static const char *const hosts[] = {"a.example.com",   "b.example.com",   "*.example.com",
                                    "x.a.example.com", "*.a.example.com", "example.com"};
static const char *const asked[] = {"a.example.com",   "b.example.com",   "c.example.com",
                                    "x.a.example.com", "y.a.example.com", "example.com"};
static const char *const paths[] = {"/", "/a", "/a/b", "/c"};

static void random_document(unsigned *seed, struct buf *b)
{
    static const char *const more[] = {"",
                                       ",'layer':'raw'",
                                       H,
                                       HTTP("'methods':['GET']"),
                                       HTTP("'paths':['/a/**']"),
                                       HTTP("'paths':['/a','/c']")};
    unsigned i, n = 1 + rnd(seed, 6);

    buf_addf(b, "{'version':1,'allow':[");
    for (i = 0; i < n; i++)
        buf_addf(b, "%s{'id':'a%u','host':'%s','ports':['%u-%u']%s}", i ? "," : "", i,
                 hosts[rnd(seed, 6)], 440 + rnd(seed, 3), 443 + rnd(seed, 3), more[rnd(seed, 6)]);
    buf_addf(b, "],'deny':[");
    for (i = 0; i < rnd(seed, 3); i++)
        buf_addf(b, "%s{'id':'d%u','host':'%s','ports':[%u]%s}", i ? "," : "", i,
                 hosts[rnd(seed, 6)], 440 + rnd(seed, 6),
                 rnd(seed, 2) ? "" : HTTP("'paths':['/c']"));
    buf_addf(b, "]}");
    buf_add(b, "", 1);
}

static int layer_of(const struct policy_table *t, const char *name, uint16_t port)
{
    const struct policy_rule *r;

    return policy_name_find(t, name, port, POLICY_TCP, &r) == POLICY_ALLOW ? r->layer : -1;
}

static int request_ok(const struct policy_table *t, const char *name, uint16_t port,
                      const char *path)
{
    const struct policy_rule *r;

    return policy_http_find(t, name, port, "GET", path, 0, &r) == POLICY_ALLOW;
}

/* `both` is never wider than either, and not tighter than it must be. */
static void check_both(const struct policy_table *a, const struct policy_table *b,
                       const struct policy_table *both)
{
    size_t i, k;
    uint16_t port;

    for (i = 0; i < ARRAY_LEN(asked); i++)
        for (port = 439; port < 448; port++) {
            int la = layer_of(a, asked[i], port), lb = layer_of(b, asked[i], port);
            int l = layer_of(both, asked[i], port);
            assert_int_equal(l, la >= 0 && lb >= 0 && la >= lb ? la : -1);
            for (k = 0; l == POLICY_HTTP && k < ARRAY_LEN(paths); k++)
                assert_int_equal(request_ok(both, asked[i], port, paths[k]),
                                 request_ok(a, asked[i], port, paths[k]) &&
                                     (lb < POLICY_HTTP || request_ok(b, asked[i], port, paths[k])));
            assert_true(l < 0 || policy_name_listed(both, asked[i]));
        }
}

static void test_intersection(void **state)
{
    unsigned seed = 7, i;

    (void)state;
    for (i = 0; i < 3000; i++) {
        auto_buf struct buf ta = BUF_INIT, tb = BUF_INIT;
        struct policy_table a, b, both, ceiled;
        random_document(&seed, &ta);
        random_document(&seed, &tb);
        compile(ta.ptr, NULL, &a);
        compile(tb.ptr, NULL, &b);
        compile(ta.ptr, tb.ptr, &ceiled);
        assert_int_equal(policy_table_intersect(&a, &b, &both), 0);
        assert_true(policy_table_within(&both, &a) && policy_table_within(&both, &b));
        check_both(&a, &b, &both);
        check_both(&a, &b, &ceiled); /* a ceiling is an intersection */
        policy_table_fini(&a);
        policy_table_fini(&b);
        policy_table_fini(&both);
        policy_table_fini(&ceiled);
    }
}

static void test_intersection_ends(void **state)
{
    struct policy_table t, next, last;
    unsigned i;

    (void)state;
    compile(ALLOW(R("a", "a.example.com", "")), NULL, &t);
    compile("{'version':1,'dns':{'mode':'real'},'allow':[" R("a", "a.example.com", "") "]}", NULL,
            &next);
    assert_false(policy_table_within(&t, &next));
    assert_int_equal(policy_table_intersect(&t, &next, &last), 0);
    assert_string_equal(ask(&last, "a.example.com", 443), ""); /* modes differ: closed */
    policy_table_fini(&last);
    policy_table_fini(&next);
    compile(ALLOW(R("a", "a.example.com", "")), NULL, &next);
    for (i = 0; i < 20; i++) { /* strata run out: closed, never an error */
        assert_int_equal(policy_table_intersect(&next, &t, &last), 0);
        assert_string_equal(ask(&last, "a.example.com", 443), i + 2 <= POLICY_STRATA_MAX ? "a/t"
                                                              : i == 7                   ? "!a"
                                                                                         : "!a");
        policy_table_fini(&next);
        next = last;
    }
    policy_table_fini(&next);
    policy_table_fini(&t);
}

/* ------------------------------------------------------------------- saved */

static void test_saved(void **state)
{
    static const char text[] =
        "{'version':1,'dns':{'mode':'real','max_label':40,'max_qps':9,'log_allowed':false},"
        "'limits':{'tx_bytes':5,'rx_bps':2048},'allow':[{'id':'llm','host':'api.example.com',"
        "'ports':[443,'8000-8010'],'layer':'http','http':{'methods':['POST','PROPFIND'],'paths':["
        "'/v1/messages','/v1/**'],'websocket':true},'inject':[{'secret':'key','name':'X-Api-Key',"
        "'placeholder':'sk__K1__'},{'secret':'two','name':'authorization','prefix':'Bearer '}],"
        "'limits':{'tx_bytes':50,'rx_bytes':60,'conns':7,'tx_bps':1024,'rx_bps':4096}}]}";
    struct policy_table t, copy;
    const struct policy_rule *r;
    unsigned char *bytes;
    size_t len, i;

    (void)state;
    compile(text, NULL, &t);
    assert_int_equal(policy_table_save(&t, (void **)&bytes, &len), 0);
    policy_table_fini(&t);
    assert_int_equal(policy_table_load(bytes, len, &copy), 0);
    assert_int_equal(policy_mode(&copy), POLICY_REAL);
    assert_int_equal(copy.head.dns.max_label, 40);
    assert_int_equal(copy.head.dns.log_allowed, 0);
    assert_int_equal(copy.head.limits.tx_bytes, 5);
    assert_int_equal(copy.head.limits.rx_bps, 2048);
    r = &copy.rules[0];
    assert_string_equal(r->host, "api.example.com");
    assert_int_equal(r->methods, POLICY_POST);
    assert_string_equal(r->method[0], "PROPFIND");
    assert_string_equal(r->path[1], "/v1/**");
    assert_true(r->websocket && r->n_ports == 2 && r->ports[1].hi == 8010);
    assert_int_equal(r->n_inject, 2);
    assert_string_equal(r->inject[0].name, "x-api-key");
    assert_string_equal(r->inject[0].placeholder, "sk__K1__");
    assert_true(r->inject[0].require && !r->inject[1].require);
    assert_string_equal(r->inject[1].prefix, "Bearer ");
    assert_int_equal(r->limits.rx_bps, 4096);
    policy_table_fini(&copy);
    for (i = 0; i < len; i++)
        assert_int_equal(policy_table_load(bytes, i, &copy), -EBADMSG);
    for (i = 0; i < len; i++) { /* any changed byte: refused, or another valid table */
        unsigned char was = bytes[i];
        bytes[i] ^= 0x41;
        if (policy_table_load(bytes, len, &copy) == 0) {
            ask(&copy, "api.example.com", 443);
            policy_table_fini(&copy);
        }
        bytes[i] = was;
    }
    free(bytes);
}

/* What load must refuse although the bytes are well formed. */
static void test_builder_refuses(void **state)
{
    static const struct policy_ports port = {443, 443}, zero = {0, 443}, twice[] = {{1, 5}, {5, 6}};
    static const char *const dots[] = {"/a/../b"};
    static const struct policy_inject bad = {"s", "x-k\r\nHost: evil", "", "", 1, 0};
    const struct policy_rule good = {.id = "r",
                                     .host = "a.example.com",
                                     .ports = &port,
                                     .n_ports = 1,
                                     .verdict = POLICY_ALLOW,
                                     .proto = POLICY_TCP,
                                     .layer = POLICY_HTTP,
                                     .kind = POLICY_EXACT};
    struct policy_rule rows[16];
    struct policy_head head = {.n_strata = 1};
    size_t i, n = 0;

    (void)state;
#define ROW(member, value) rows[n] = good, rows[n++].member = value
    ROW(id, "r"); /* the one that passes */
    ROW(id, "");
    ROW(host, "A.example.com");
    ROW(host, "localhost");
    ROW(host, "1.2.3.4");
    ROW(host, "");
    ROW(stratum, 1);
    ROW(verdict, 2);
    ROW(proto, 0);
    ROW(proto, POLICY_UDP); /* UDP is raw */
    ROW(layer, 3);
    ROW(kind, POLICY_HOST_NONE);
    ROW(ports, &zero);
    ROW(ports, twice);
    rows[n - 1].n_ports = 2;
    ROW(path, dots);
    rows[n - 1].n_paths = 1;
    ROW(inject, &bad);
    rows[n - 1].n_inject = 1;
    for (i = 0; i < n; i++) {
        struct policy_builder *b = policy_builder_new(&head);
        struct policy_table t;
        int r;
        assert_non_null(b);
        policy_builder_rule(b, &rows[i]);
        r = policy_builder_finish(b, &t);
        if (r != (i ? -EBADMSG : 0))
            fail_msg("row %zu: %d", i, r);
        if (r == 0)
            policy_table_fini(&t);
    }
}

static uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Asking does not get slower with the number of rules. */
static void test_many(void **state)
{
    auto_buf struct buf b = BUF_INIT;
    const struct policy_rule *r;
    struct policy_table t;
    uint64_t begin;
    unsigned i;

    (void)state;
    buf_addf(&b, "{'version':1,'allow':[");
    for (i = 0; i < 10000; i++)
        buf_addf(&b, "%s{'id':'r%u','host':'h%u.example.com','ports':[443]}", i ? "," : "", i, i);
    buf_addf(&b, "]}");
    buf_add(&b, "", 1);
    compile(b.ptr, NULL, &t);
    begin = cpu_ns();
    for (i = 0; i < 100000; i++) {
        assert_int_equal(policy_name_find(&t, i % 2 ? "h9999.example.com" : "h1.example.com", 443,
                                          POLICY_TCP, &r),
                         POLICY_ALLOW);
    }
    assert_true(cpu_ns() - begin <
                2000000000u); /* 20 µs each; a walk over all takes ten times that */
    assert_string_equal(ask(&t, "h9999.example.com", 443), "r9999/t");
    policy_table_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matcher),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_protocols),
        cmocka_unit_test(test_denied_requests),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_ceiling),
        cmocka_unit_test(test_ceiling_refused),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_intersection),
        cmocka_unit_test(test_intersection_ends),
        cmocka_unit_test(test_saved),
        cmocka_unit_test(test_builder_refuses),
        cmocka_unit_test(test_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
