/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The policy document: what is refused, where the complaint points, and what the compiled table answers.
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#undef fail
#include "document.h"
#undef fail /* both call it so */
#define fail() _fail(__FILE__, __LINE__)

#define RULE(cidr, ports)                                                                          \
    "{\"id\":\"r\",\"cidr\":\"" cidr "\",\"ports\":" ports ",\"layer\":\"raw\"}"
#define ALLOW(rules) "{\"version\":1,\"allow\":[" rules "]}"
#define CIDR(text) ALLOW(RULE(text, "[80]"))
#define PORTS(text) ALLOW(RULE("203.0.113.0/24", text))

struct row {
    const char *text;
    const char *says; /* part of the message; NULL = accepted */
};

static const struct row rows[] = {
    /* nothing is deny */
    {"", NULL},
    {" \n", NULL},
    {"{}", NULL},
    {"[]", NULL},
    {"{\"version\":1}", NULL},
    {"{\"version\":1,\"allow\":[]}", NULL},
    {CIDR("203.0.113.0/24"), NULL},
    {CIDR("192.0.2.1/32"), NULL},
    {CIDR("198.51.100.0/25"), NULL},
    /* shape */
    {"{", "p:1:"},
    {"[1]", "expected the policy document"},
    {"7", "p:1:1"},
    {"{\"version\":1,\"version\":1}", "duplicate"},
    {"{\"allow\":[]}", "\"version\""},
    {"{\"version\":2}", "p:1:12: /version: expected 1"},
    {"{\"version\":\"1\"}", "/version"},
    {"{\"version\":1,\"default\":\"allow\"}", "/default: expected \"deny\""},
    {"{\"version\":1,\"alow\":[]}", "p:1:14: /alow"},
    {"{\"version\":1,\"allow\":{}}", "/allow: expected a list"},
    {"{\"version\":1,\"allow\":[7]}", "/allow/0: expected a rule"},
    {"{\"version\":1,\"revision\":-1}", "/revision"},
    {"{\"version\":1,\"reopen\":1}", "/reopen"},
    /* rules */
    {ALLOW("{\"cidr\":\"203.0.113.0/24\",\"ports\":[1],\"layer\":\"raw\"}"), "no \"id\""},
    {ALLOW("{\"id\":\"a b\",\"cidr\":\"203.0.113.0/24\",\"ports\":[1],\"layer\":\"raw\"}"),
     "/allow/0/id"},
    {ALLOW(RULE("203.0.113.0/24", "[1]") "," RULE("198.51.100.0/24", "[1]")),
     "/allow/1/id: the id \"r\""},
    {ALLOW("{\"id\":\"a\",\"cidr\":\"203.0.113.0/24\",\"ports\":[1],\"layer\":\"raw\",\"x\":1}"),
     "/allow/0/x: a rule has no member"},
    {ALLOW("{\"id\":\"a\",\"host\":\"example.com\",\"ports\":[1],\"layer\":\"raw\"}"), NULL},
    {ALLOW("{\"id\":\"a\",\"cidr\":\"203.0.113.0/24\",\"ports\":[1],\"layer\":\"tls\"}"),
     "needs \"layer\": \"raw\""},
    {ALLOW("{\"id\":\"a\",\"cidr\":\"203.0.113.0/24\",\"ports\":[1]}"), "needs \"layer\""},
    {ALLOW("{\"id\":\"a\",\"cidr\":\"203.0.113.0/"
           "24\",\"ports\":[25],\"layer\":\"raw\",\"proto\":\"udp\"}"),
     NULL},
    {ALLOW("{\"id\":\"a\",\"ports\":[1],\"layer\":\"raw\"}"), "names nothing"},
    /* ports */
    {ALLOW("{\"id\":\"a\",\"cidr\":\"203.0.113.0/24\",\"layer\":\"raw\"}"), "\"ports\""},
    {PORTS("[]"), "\"ports\""},
    {PORTS("80"), "\"ports\""},
    {PORTS("[0]"), "/allow/0/ports/0: expected a port"},
    {PORTS("[80,65536]"), "/allow/0/ports/1: expected a port"},
    {PORTS("[-1]"), "expected a port"},
    {PORTS("[80.5]"), "expected a port"},
    {PORTS("[\"80\"]"), "expected a port"},
    {PORTS("[\"90-80\"]"), "expected a port"},
    {PORTS("[\"080-90\"]"), "expected a port"},
    {PORTS("[\"80-\"]"), "expected a port"},
    {PORTS("[\"80-90-95\"]"), "expected a port"},
    {PORTS("[\" 80-90\"]"), "expected a port"},
    {PORTS("[\"https\"]"), "expected a port"},
    {PORTS("[25]"), "TCP port 25"},
    {PORTS("[\"1-65535\"]"), "TCP port 25"},
    {PORTS("[\"1-24\",\"26-65535\",443]"), NULL},
    /* spellings of a network */
    {CIDR("203.0.113.0"), "canonical"},
    {CIDR("203.0.113.0/33"), "canonical"},
    {CIDR("203.0.113.0/024"), "canonical"},
    {CIDR("203.0.113.1/24"), "bits set behind"},
    {CIDR("203.0.113.256/32"), "canonical"},
    {CIDR("203.0.113/24"), "canonical"},
    {CIDR("203.0.113.0/24 "), "canonical"},
    {CIDR(" 203.0.113.0/24"), "canonical"},
    {CIDR("203.0.0113.0/24"), "canonical"},
    {CIDR("0xcb.0.113.0/24"), "canonical"},
    {CIDR("example.com/32"), "canonical"},
    {CIDR("2001:db8::/32"), "IPv6 is closed in this version"},
    {CIDR("::/0"), "IPv6 is closed in this version"},
    {CIDR("203.0.113.0\\u0000/24"), "p:1:"},
    /* the metadata address, spelled */
    {CIDR("169.254.169.254/32"), "p:1:40: /allow/0/cidr: overlaps 169.254.0.0/16"},
    {CIDR("169.254.0.0/16"), "overlaps 169.254.0.0/16"},
    {CIDR("168.63.129.0/24"), "overlaps 168.63.129.16/32"},
    {CIDR("0xA9FEA9FE/32"), "canonical"},
    {CIDR("2852039166/32"), "canonical"},
    {CIDR("0251.0376.0251.0376/32"), "canonical"},
    {CIDR("169.254.43518/32"), "canonical"},
    {CIDR("169.16689662/32"), "canonical"},
    {CIDR("::ffff:169.254.169.254/128"), "IPv6 is closed"},
    {CIDR("::ffff:a9fe:a9fe/128"), "IPv6 is closed"},
    {CIDR("64:ff9b::a9fe:a9fe/128"), "IPv6 is closed"},
    {CIDR("[::ffff:169.254.169.254]/32"), "IPv6 is closed"},
    {CIDR("169.254.169.254\\u3002/32"), "canonical"},
    /* hard-deny set */
    {CIDR("0.0.0.0/0"), "overlaps 0.0.0.0/8"},
    {CIDR("128.0.0.0/1"), "overlaps 168.63.129.16/32"},
    {CIDR("0.0.0.0/32"), "overlaps 0.0.0.0/8"},
    {CIDR("10.0.0.0/8"), "overlaps 10.0.0.0/8"},
    {CIDR("10.200.0.1/32"), "links of cells"},
    {CIDR("100.64.0.0/10"), "overlaps 100.64.0.0/10"},
    {CIDR("100.100.100.200/32"), "overlaps 100.64.0.0/10"},
    {CIDR("127.0.0.1/32"), "overlaps 127.0.0.0/8"},
    {CIDR("172.16.0.0/12"), "overlaps 172.16.0.0/12"},
    {CIDR("192.0.0.192/32"), "overlaps 192.0.0.0/24"},
    {CIDR("192.168.1.1/32"), "overlaps 192.168.0.0/16"},
    {CIDR("198.18.0.0/15"), "overlaps 198.18.0.0/15"},
    {CIDR("224.0.0.1/32"), "overlaps 224.0.0.0/4"},
    {CIDR("255.255.255.255/32"), "overlaps 240.0.0.0/4"},
    /* the neighbours of those ranges */
    {CIDR("9.255.255.255/32"), NULL},
    {CIDR("11.0.0.0/8"), NULL},
    {CIDR("100.128.0.0/9"), NULL},
    {CIDR("172.32.0.0/11"), NULL},
    {CIDR("198.20.0.0/14"), NULL},
    /* a denial may name anything */
    {"{\"version\":1,\"deny\":[{\"id\":\"a\",\"cidr\":\"10.0.0.0/8\",\"ports\":[\"1-65535\"]}]}",
     NULL},
    /* phases */
    {"{\"version\":1,\"phases\":{}}", "/phases"},
    {"{\"version\":1,\"phases\":{\"a\":{},\"b\":{}}}", "\"active\""},
    {"{\"version\":1,\"active\":\"c\",\"phases\":{\"a\":{},\"b\":{}}}", "/active"},
    {"{\"version\":1,\"active\":\"\",\"allow\":[]}", "/active"},
    {"{\"version\":1,\"phases\":{\"a\":{}},\"allow\":[]}", "/phases"},
    {"{\"version\":1,\"phases\":{\"a\":{\"alow\":[]}}}", "/phases/a/alow"},
    {"{\"version\":1,\"phases\":{\"a/b\":{}}}", "/phases/a~1b"},
    {"{\"version\":1,\"active\":\"b\",\"phases\":{\"a\":{},\"b\":{}}}", NULL},
};

static void test_rows(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        struct errbuf eb;
        struct document d;
        int r = document_parse("p", rows[i].text, strlen(rows[i].text), &d, errbuf_init(&eb));
        if (!rows[i].says) {
            if (r < 0)
                fail_msg("%s: %s", rows[i].text, eb.text);
            document_fini(&d);
        } else if (r >= 0) {
            fail_msg("accepted: %s", rows[i].text);
        } else if (!strstr(eb.text, rows[i].says)) {
            fail_msg("%s: says \"%s\", not \"%s\"", rows[i].text, eb.text, rows[i].says);
        }
    }
}

static void compile(const char *text, const char *ceiling, size_t phase, struct policy_table *ret)
{
    struct errbuf eb;
    struct document d, c = {0};

    assert_int_equal(document_parse("p", text, strlen(text), &d, errbuf_init(&eb)), 0);
    if (ceiling)
        assert_int_equal(document_parse("c", ceiling, strlen(ceiling), &c, &eb.err), 0);
    assert_int_equal(document_compile(&d, phase, ceiling ? &c : NULL, 7, ret, &eb.err), 0);
    document_fini(&d);
    document_fini(&c);
}

/* Rule that allows the point, "!rule" that denies it, "" when none speaks. */
static const char *ask(const struct policy_table *t, const char *addr, uint16_t port)
{
    static char out[80];
    const struct policy_entry *e;
    struct in_addr a;

    inet_pton(AF_INET, addr, &a);
    e = policy_table_find(t, ntohl(a.s_addr), port);
    snprintf(out, sizeof(out), "%s%s", e && e->verdict == POLICY_DENY ? "!" : "",
             e ? policy_table_rule(t, e->rule) : "");
    return out;
}

#define NESTED                                                                                     \
    "{\"version\":1,\"allow\":["                                                                   \
    "{\"id\":\"net\",\"cidr\":\"203.0.113.0/24\",\"ports\":[80,\"100-200\"],\"layer\":\"raw\"},"   \
    "{\"id\":\"host\",\"cidr\":\"203.0.113.7/32\",\"ports\":[443,150],\"layer\":\"raw\"}],"        \
    "\"deny\":[{\"id\":\"no\",\"cidr\":\"203.0.113.8/29\",\"ports\":[\"120-130\"]}]}"

static void test_precedence(void **state)
{
    struct policy_table t;

    (void)state;
    compile(NESTED, NULL, 0, &t);
    assert_int_equal(t.head.generation, 7);
    assert_string_equal(ask(&t, "203.0.113.7", 80), "net");
    assert_string_equal(ask(&t, "203.0.113.7", 443), "host");
    assert_string_equal(ask(&t, "203.0.113.6", 443), "");
    assert_string_equal(ask(&t, "203.0.113.7", 150), "net"); /* the first that says so */
    assert_string_equal(ask(&t, "203.0.113.8", 120), "!no");
    assert_string_equal(ask(&t, "203.0.113.15", 130), "!no");
    assert_string_equal(ask(&t, "203.0.113.15", 131), "net");
    assert_string_equal(ask(&t, "203.0.113.16", 125), "net");
    assert_string_equal(ask(&t, "203.0.113.7", 125), "net");
    assert_string_equal(ask(&t, "203.0.113.8", 99), "");
    assert_string_equal(ask(&t, "203.0.114.0", 80), "");
    assert_string_equal(ask(&t, "203.0.112.255", 80), "");
    policy_table_fini(&t);
}

static void test_ceiling(void **state)
{
    static const char ceiling[] =
        "{\"version\":1,\"allow\":[{\"id\":\"c\",\"cidr\":\"203.0.113.0/28\",\"ports\":[80,"
        "120],\"layer\":\"raw\"}],\"deny\":[{\"id\":\"d\",\"cidr\":\"203.0.113.3/32\","
        "\"ports\":[80]}]}";
    struct policy_table t;

    (void)state;
    compile(NESTED, ceiling, 0, &t);
    assert_string_equal(ask(&t, "203.0.113.1", 80), "net");
    assert_string_equal(ask(&t, "203.0.113.3", 80), "!operator.d");
    assert_string_equal(ask(&t, "203.0.113.1", 100), "");    /* document only */
    assert_string_equal(ask(&t, "203.0.113.16", 80), "");    /* document only */
    assert_string_equal(ask(&t, "203.0.113.9", 120), "!no"); /* a ceiling opens nothing */
    policy_table_fini(&t);
    compile(NESTED, "{}", 0, &t);
    assert_string_equal(ask(&t, "203.0.113.1", 80), "");
    policy_table_fini(&t);
}

/* Every point of a grid against the rules read naively. */
static void test_against_naive(void **state)
{
    struct errbuf eb;
    struct document d;
    struct policy_table t;
    uint32_t a, p;
    size_t i;

    (void)state;
    assert_int_equal(document_parse("p", NESTED, strlen(NESTED), &d, errbuf_init(&eb)), 0);
    assert_int_equal(document_compile(&d, 0, NULL, 1, &t, &eb.err), 0);
    for (a = 0xcb007100u - 4; a < 0xcb007200u + 4; a++)
        for (p = 70; p < 500; p++) {
            int allow = 0, deny = 0;
            const struct policy_entry *e = policy_table_find(&t, a, (uint16_t)p);
            for (i = 0; i < d.phases[0].n_rules; i++) {
                const struct document_rule *r = &d.phases[0].rules[i];
                size_t j;
                for (j = 0; j < r->rule.n_ports; j++) {
                    if (a < r->lo || a > r->hi || p < r->rule.ports[j].lo ||
                        p > r->rule.ports[j].hi)
                        continue;
                    deny |= r->rule.verdict == POLICY_DENY;
                    allow |= r->rule.verdict == POLICY_ALLOW;
                }
            }
            assert_int_equal(e && e->verdict == POLICY_ALLOW, allow && !deny);
        }
    policy_table_fini(&t);
    document_fini(&d);
}

static void test_set_algebra(void **state)
{
    struct policy_table a, b, both;

    (void)state;
    compile(NESTED, NULL, 0, &a);
    compile(CIDR("203.0.113.0/25"), NULL, 0, &b);
    assert_true(policy_table_within(&b, &a));
    assert_false(policy_table_within(&a, &b));
    assert_int_equal(policy_table_intersect(&a, &b, &both), 0);
    assert_true(policy_table_within(&both, &a) && policy_table_within(&both, &b));
    assert_string_equal(ask(&both, "203.0.113.9", 80), "net");
    assert_string_equal(ask(&both, "203.0.113.9", 100), "");
    assert_string_equal(ask(&both, "203.0.113.200", 80), "");
    policy_table_fini(&a);
    policy_table_fini(&b);
    policy_table_fini(&both);
}

static void test_saved(void **state)
{
    struct policy_table t, copy;
    struct policy_entry *e;
    void *bytes;
    size_t len;

    (void)state;
    compile(NESTED, NULL, 0, &t);
    assert_int_equal(policy_table_save(&t, &bytes, &len), 0);
    assert_int_equal(policy_table_load(bytes, len, &copy), 0);
    assert_string_equal(ask(&copy, "203.0.113.8", 120), "!no");
    policy_table_fini(&copy);
    assert_int_equal(policy_table_load(bytes, len - 1, &copy), -EBADMSG);
    e = (struct policy_entry *)(void *)((char *)bytes + sizeof(struct policy_head));
    e[0].rule = 900;
    assert_int_equal(policy_table_load(bytes, len, &copy), -EBADMSG);
    e[0].rule = 0;
    e[1].lo = 1;
    assert_int_equal(policy_table_load(bytes, len, &copy), -EBADMSG);
    free(bytes);
    policy_table_fini(&t);
}

static void test_phase_choice(void **state)
{
    static const char doc[] =
        "{\"version\":1,\"active\":\"b\",\"phases\":{\"b\":{\"allow\":[{\"id\":\"x\",\"cidr\":"
        "\"203.0.113.0/24\",\"ports\":[80],\"layer\":\"raw\"}]},\"a\":{}}}";
    struct errbuf eb;
    struct document d;
    struct policy_table t;

    (void)state;
    assert_int_equal(document_parse("p", doc, strlen(doc), &d, errbuf_init(&eb)), 0);
    assert_int_equal(d.active, 0); /* phases keep the order of the text */
    assert_int_equal(document_phase_find(&d, "a"), 1);
    assert_int_equal(document_phase_find(&d, "c"), -ENOENT);
    document_fini(&d);
    compile(doc, NULL, 1, &t);
    assert_string_equal(ask(&t, "203.0.113.1", 80), "");
    policy_table_fini(&t);
}

/* Many overlapping rules are refused or compiled, in bounded time. */
static void test_overlap_is_bounded(void **state)
{
    auto_buf struct buf b = BUF_INIT;
    struct errbuf eb;
    struct document d;
    struct policy_table t;
    int i;

    (void)state;
    buf_addf(&b, "{\"version\":1,\"allow\":[");
    for (i = 0; i < 1000; i++)
        buf_addf(&b,
                 "%s{\"id\":\"a%d\",\"cidr\":\"200.0.0.0/8\",\"ports\":[%d],\"layer\":\"raw\"},"
                 "{\"id\":\"b%d\",\"cidr\":\"200.%d.%d.0/24\",\"ports\":[7],\"layer\":\"raw\"}",
                 i ? "," : "", i, 1000 + 2 * i, i, i / 250, i % 250);
    buf_addf(&b, "]}");
    assert_int_equal(document_parse("p", b.ptr, b.len, &d, errbuf_init(&eb)), 0);
    assert_int_equal(document_compile(&d, 0, NULL, 1, &t, &eb.err), -E2BIG);
    assert_non_null(strstr(eb.text, "overlap"));
    document_fini(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),         cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_ceiling),      cmocka_unit_test(test_against_naive),
        cmocka_unit_test(test_set_algebra),  cmocka_unit_test(test_saved),
        cmocka_unit_test(test_phase_choice), cmocka_unit_test(test_overlap_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
