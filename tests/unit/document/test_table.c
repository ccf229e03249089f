/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Tables as a whole: intersections against both of their sides, saved and loaded again, what a builder refuses, many rules. */
#include "names_world.h"

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
        cmocka_unit_test(test_intersection), cmocka_unit_test(test_intersection_ends),
        cmocka_unit_test(test_saved),        cmocka_unit_test(test_builder_refuses),
        cmocka_unit_test(test_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
