/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Rules by name: which names a pattern covers, which rule counts, what strata and intersections do,
 * and that a table survives being saved. In the texts ' stands for ".
 */
#include "names_world.h"

/* ---------------------------------------------------------------- matcher */

static const struct {
    const char *name, *rule;
} matches[] = {
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

static void test_matcher(void **state)
{
    struct policy_table t;
    size_t i;

    (void)state;
    compile(ALLOW(R("exact", "example.com", "") "," R("wild", "*.sub.example.net", "")), NULL, &t);
    for (i = 0; i < ARRAY_LEN(matches); i++) {
        if (strcmp(ask(&t, matches[i].name, 443), matches[i].rule) != 0)
            fail_msg("\"%s\": \"%s\", not \"%s\"", matches[i].name, ask(&t, matches[i].name, 443),
                     matches[i].rule);
        assert_int_equal(policy_name_listed(&t, matches[i].name), *matches[i].rule != 0);
        assert_string_equal(ask(&t, matches[i].name, 444), "");
    }
    assert_true(ARRAY_LEN(matches) >= 40);
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

static const struct {
    const char *path, *rule;
} paths[] = {
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

static void test_paths(void **state)
{
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
    for (i = 0; i < ARRAY_LEN(paths); i++)
        if (strcmp(request(&t, "api.example.com", "GET", paths[i].path, 0), paths[i].rule) != 0)
            fail_msg("\"%s\": \"%s\", not \"%s\"", paths[i].path,
                     request(&t, "api.example.com", "GET", paths[i].path, 0), paths[i].rule);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matcher),         cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_precedence),      cmocka_unit_test(test_protocols),
        cmocka_unit_test(test_denied_requests), cmocka_unit_test(test_paths),
        cmocka_unit_test(test_methods),         cmocka_unit_test(test_ceiling),
        cmocka_unit_test(test_ceiling_refused), cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_ports),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
