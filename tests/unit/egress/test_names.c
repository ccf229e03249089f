/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Egress by name, through the enforcer's entry point, in namespaces of the test's own (zone.h): DNS,
 * raw and TLS connections, both modes. Each denial has its positive twin, and "nothing went
 * upstream" is read from the servers' counters.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/ssl.h>

#include "zone.h"

/* -------------------------------------------------------------------- DNS */

static void test_dns_answers(void **state)
{
    static const uint16_t empty[] = {28, 65, 64}, refused[] = {16, 255, 12, 15, 2, 33, 5, 10, 99};
    struct ask tcp = {"good.test.example", 1, 1};
    char first[16], second[16];
    size_t i;

    (void)state;
    up_with(WIDE);
    shared->queries = 0;
    assert_int_equal(lookup("Good.TEST.example", 1), 0);
    assert_int_equal(shared->answers, 1);
    assert_true(shared->ttl > 0 && shared->ttl <= 30);
    assert_true(shared->case_kept);
    memcpy(first, shared->addr[0], 16);
    assert_string_equal(first, "198.18.0.1");
    assert_int_equal(lookup("a.wild.example", 1), 0);
    memcpy(second, shared->addr[0], 16);
    assert_string_equal(second, "198.18.0.2");
    assert_int_equal(in_ns(world.cell_ns[0], lookup_child, &tcp), 0);
    assert_string_equal(shared->addr[0], first); /* stable, over TCP too */
    for (i = 0; i < sizeof(empty) / sizeof(empty[0]); i++) {
        assert_int_equal(lookup("good.test.example", empty[i]), 0);
        assert_int_equal(shared->answers, 0);
    }
    for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_int_equal(lookup("good.test.example", refused[i]), 5);
        assert_int_equal(shared->ede, 17);
        assert_int_equal(shared->answers, 0);
    }
    host_turn(30);
    assert_int_equal(event("net.deny", "dns_refused", "good.test.example")->qtype, 99);
    assert_int_equal(shared->queries, 0); /* no question of the cell went anywhere */
    done();
}

static void test_dns_unlisted(void **state)
{
    static const char *const names[] = {
        "evil.example",
        "test.example",
        "wild.example",
        "evilwild.example",
        "xgood.test.example",
        "a.good.test.example",
        "good.test.example.evil.example",
        "a.wild.example.attacker.example",
        "localhost",
        "metadata.google.internal",
        "10.in-addr.arpa",
        "good_.test.example",
        "203.0.113.10",
    };
    size_t i;

    (void)state;
    up_with(WIDE);
    shared->queries = 0;
    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (lookup(names[i], 1) != 5 || shared->ede != 15 || shared->answers)
            fail_msg("%s: rcode %d ede %d", names[i], shared->rcode, shared->ede);
        host_turn(20);
        if (!event("net.deny", "dns_refused", names[i]))
            fail_msg("%s: no event", names[i]);
    }
    assert_int_equal(lookup("deep.a.wild.example", 1), 0); /* the twin */
    assert_int_equal(shared->queries, 0);
    done();
}

/* Of 60 that one process asks, as fast as it can: the rate is what a second has. */
static int refused_of_many(void *ask)
{
    int i, n = 0;

    for (i = 0; i < 60; i++)
        n += lookup_child(ask) == 0 && shared->rcode == 5;
    return n;
}

static void test_dns_caps(void **state)
{
    static const char doc[] =
        "{\"version\":1,\"dns\":{\"max_label\":20,\"max_qps\":5},\"allow\":["
        "{\"id\":\"w\",\"host\":\"*.wild.example\",\"ports\":[80],\"layer\":\"raw\"},"
        "{\"id\":\"e\",\"host\":\"a-rather-long-but-listed-label.test.example\",\"ports\":[80],"
        "\"layer\":\"raw\"}]}";
    struct ask wild = {"a.wild.example", 1, 0};

    (void)state;
    up_with(doc);
    assert_int_equal(lookup("abcdefghijklmnopqrst.wild.example", 1), 0);
    assert_int_equal(lookup("abcdefghijklmnopqrstu.wild.example", 1), 5);
    assert_int_equal(lookup("a-rather-long-but-listed-label.test.example", 1), 0);
    host_turn(30);
    assert_non_null(event("net.deny", "dns_suspect", "abcdefghijklmnopqrstu.wild.example"));
    assert_true(in_ns(world.cell_ns[0], refused_of_many, &wild) > 10);
    host_turn(30);
    assert_non_null(event("net.deny", "limit", "a.wild.example"));
    done();
    up_with(DOC(RAW("w", "*.wild.example", "80")));
    /* random bytes in base32; a digest and words of the same length pass */
    assert_int_equal(lookup("mzxw6ytboi2gk3thk5qxg43xn5zgi4tf.wild.example", 1), 5);
    assert_int_equal(lookup("d41d8cd98f00b204e9800998ecf8427e.wild.example", 1), 0);
    assert_int_equal(lookup("the-quick-service-of-the-north-one.wild.example", 1), 0);
    host_turn(30);
    assert_non_null(
        event("net.deny", "dns_suspect", "mzxw6ytboi2gk3thk5qxg43xn5zgi4tf.wild.example"));
    done();
}

/* --------------------------------------------------------------------- TCP */

static void test_raw(void **state)
{
    const char *addr;
    const struct seen *s;
    int conns;

    (void)state;
    up_with(WIDE);
    addr = address_of("good.test.example");
    shared->queries = 0;
    conns = world.sinks->conns;
    assert_true(echoed(addr, 80, "hello", 5, 0));
    assert_int_equal(shared->queries, 1);
    assert_string_equal(shared->last, "good.test.example");
    host_turn(50);
    s = event("net.allow", "", "good.test.example");
    assert_non_null(s);
    assert_string_equal(s->dst, "203.0.113.10");
    assert_string_equal(s->rule, "raw");
    s = event("net.flow", "", "good.test.example");
    assert_int_equal(s->tx, 5);
    assert_int_equal(s->rx, 5);
    assert_true(echoed(addr, 80, "again", 5, 0)); /* from the cache of the name */
    assert_int_equal(shared->queries, 1);
    assert_int_equal(world.sinks->conns, conns + 2);
    assert_true(echoed(address_of("cut.test.example"), 80, "x", 1, 0)); /* resolved over TCP */
    conns++;
    /* a port that this name does not have, but another rule has: the gate decides */
    assert_int_equal(talk(address_of("a.wild.example"), 7000, "x", 1, 0), ECONNRESET);
    assert_non_null(event("net.deny", "no_rule", "a.wild.example"));
    /* a port that no name has: the kernel does */
    assert_int_equal(talk(addr, 9999, "x", 1, 0), ECONNREFUSED);
    assert_int_equal(event("net.deny", "no_rule", "good.test.example")->port, 9999);
    /* an address that stands for nothing; the real address */
    assert_int_equal(talk("198.18.9.9", 80, "x", 1, 0), ECONNRESET);
    assert_int_equal(talk("203.0.113.10", 80, "x", 1, 0), ECONNREFUSED);
    /* nobody there: refused upstream */
    assert_int_equal(talk(addr, 8081, "x", 1, 0), ECONNRESET);
    assert_non_null(event("net.flow", "upstream_failed", "good.test.example"));
    assert_int_equal(world.sinks->conns, conns + 2);
    done();
}

static void test_resolved(void **state)
{
    static const struct {
        const char *name, *reason, *dst;
    } rows[] = {
        {"rebind.test.example", "resolved_private", "10.1.2.3"},
        {"meta.test.example", "resolved_private", "169.254.169.254"},
        {"loop.test.example", "resolved_private", "127.0.0.1"},
        {"pool.test.example", "resolved_private", "198.18.0.1"},
        {"own.test.example", "resolved_private", "8.8.4.4"},
        {"nx.test.example", "upstream_failed", NULL},
    };
    int conns = world.sinks->conns;
    const char *addr;
    size_t i;

    (void)state;
    up_with(WIDE);
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct seen *s;
        if (talk(address_of(rows[i].name), 80, "x", 1, 0) != ECONNRESET)
            fail_msg("%s: %d", rows[i].name, shared->err);
        s = event("net.deny", rows[i].reason, rows[i].name);
        if (!s || (rows[i].dst && strcmp(s->dst, rows[i].dst) != 0))
            fail_msg("%s: no event with reason %s and dst", rows[i].name, rows[i].reason);
    }
    assert_int_equal(world.sinks->conns, conns);
    /* of two answers only the public one is dialled */
    assert_true(echoed(address_of("mixed.test.example"), 80, "x", 1, 0));
    assert_string_equal(event("net.allow", "", "mixed.test.example")->dst, "203.0.113.10");
    /* the address changes between two connections */
    addr = address_of("flip.test.example");
    shared->flips = 0;
    assert_true(echoed(addr, 80, "x", 1, 0));
    assert_int_equal(talk(addr, 80, "x", 1, 0), ECONNRESET);
    assert_string_equal(event("net.deny", "resolved_private", "flip.test.example")->dst,
                        "10.1.2.3");
    assert_int_equal(world.sinks->conns, conns + 2);
    done();
    /* a denied network cannot be reached by a name either */
    up_with("{\"version\":1,\"allow\":[" RAW(
        "d", "denied.test.example", "80") "],\"deny\":["
                                          "{\"id\":\"net\",\"cidr\":\"203.0.113.64/26\"}]}");
    assert_int_equal(talk(address_of("denied.test.example"), 80, "x", 1, 0), ECONNRESET);
    assert_string_equal(event("net.deny", "resolved_private", "denied.test.example")->dst,
                        "203.0.113.66");
    done();
}

/* --------------------------------------------------------------------- TLS */

static uint8_t hello[20000], records[100000];

static int handshake(void *arg)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(8443)};
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    int n, fd = socket(AF_INET, SOCK_STREAM, 0);

    inet_pton(AF_INET, arg, &to.sin_addr);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        return 1;
    SSL_set_tlsext_host_name(ssl, "good.test.example");
    SSL_set_fd(ssl, fd);
    if (SSL_connect(ssl) != 1)
        return 2;
    n = SSL_read(ssl, shared->bytes, 100);
    return n > 0 && !memcmp(shared->bytes, "good.test.example", 17) ? 0 : 3;
}

static void test_tls(void **state)
{
    static const size_t sizes[] = {1, 7, 100};
    const char *addr;
    char text[16];
    size_t n, k, i;
    int conns;

    (void)state;
    up_with(WIDE);
    addr = address_of("good.test.example");
    snprintf(text, sizeof(text), "%s", addr);
    assert_int_equal(in_ns(world.cell_ns[0], handshake, text), 0);
    host_turn(50);
    assert_string_equal(event("net.flow", "", "good.test.example")->rule, "tls");
    conns = world.sinks->conns;
    /* the echo server on 443 shows that not a byte is lost, however the hello was cut */
    n = hello_for("GOOD.test.example", hello, sizeof(hello));
    assert_true(echoed(addr, 443, hello, n, 0));
    assert_true(echoed(addr, 443, hello, n, 1));
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        k = cut(hello, n, sizes[i], records);
        assert_true(echoed(addr, 443, records, k, 0));
        assert_true(echoed(addr, 443, records, k, 3));
    }
    assert_int_equal(world.sinks->conns, conns + 8);
    done();
}

static void test_tls_refused(void **state)
{
    const char *addr;
    size_t n;
    int conns = world.sinks->conns;

    (void)state;
    up_with(WIDE);
    addr = address_of("good.test.example");
    address_of("other.test.example");
    shared->queries = 0;
    n = hello_for("other.test.example", hello, sizeof(hello)); /* listed, and at the same address */
    talk(addr, 443, hello, n, 0);
    alert("other name", 112);
    assert_non_null(event("net.deny", "sni_mismatch", "good.test.example"));
    talk(addr, 443, hello, n, 1);
    alert("other name, byte by byte", 112);
    talk(addr, 443, records, cut(hello, n, 40, records), 0);
    alert("other name, in records", 112);
    n = hello_for("a.good.test.example", hello, sizeof(hello));
    talk(addr, 443, hello, n, 0);
    alert("longer name", 112);
    n = hello_for(NULL, hello, sizeof(hello));
    talk(addr, 443, hello, n, 0);
    alert("no name", 49);
    assert_non_null(event("net.deny", "sni_missing", "good.test.example"));
    n = hello_for("203.0.113.10", hello, sizeof(hello));
    talk(addr, 443, hello, n, 0);
    alert("address literal", 112);
    n = hello_for("good.test.example.", hello, sizeof(hello));
    talk(addr, 443, hello, n, 0);
    alert("trailing dot", 112);
    assert_non_null(event("net.deny", "name_invalid", "good.test.example"));
    assert_int_equal(talk(addr, 443, "SSH-2.0-x\r\n", 11, 0), ECONNRESET);
    assert_int_equal(shared->n, 0);
    assert_non_null(event("net.deny", "not_tls", "good.test.example"));
    assert_int_equal(talk(addr, 443, "GET / HTTP/1.1\r\nHost: good.test.example\r\n\r\n", 43, 0),
                     ECONNRESET);
    n = hello_for("good.test.example", hello, sizeof(hello));
    { /* half a hello and then the end */
        struct talk half = {addr, 443, hello, n / 2, 0, 1, 100};
        in_ns(world.cell_ns[0], talk_child, &half);
        assert_int_equal(shared->err, ECONNRESET);
    }
    assert_int_equal(shared->queries, 0); /* no packet upstream before the verdict, not even DNS */
    assert_int_equal(world.sinks->conns, conns);
    assert_true(echoed(addr, 443, hello, n, 0));
    assert_int_equal(world.sinks->conns, conns + 1);
    done();
}

/* --------------------------------------------------------------- real mode */

static void test_real(void **state)
{
    static const char doc[] = "{\"version\":1,\"dns\":{\"mode\":\"real\"},\"allow\":[" RAW(
        "raw", "a.wild.example",
        "80") "," TLS("tls", "good.test.example",
                      "443") "," RAW("rebind", "rebind.test.example",
                                     "80") "," TLS("other", "other.test.example",
                                                   "443") "," RAW("mixed", "mixed.test.example",
                                                                  "7000") "]}";
    int conns = world.sinks->conns;
    size_t n;

    (void)state;
    up_with(doc);
    shared->queries = 0;
    assert_int_equal(lookup("evil.example", 1), 5);
    assert_int_equal(shared->queries, 0);
    /* allowed, but not asked for by this cell: no pin */
    assert_int_equal(talk("203.0.113.11", 80, "x", 1, 0), ECONNRESET);
    assert_int_equal(lookup("a.wild.example", 1), 0);
    assert_string_equal(shared->addr[0], "203.0.113.11");
    assert_true(shared->ttl <= 30);
    assert_int_equal(shared->queries, 1);
    assert_true(echoed("203.0.113.11", 80, "x", 1, 0));
    assert_int_equal(talk("203.0.113.10", 80, "x", 1, 0), ECONNRESET); /* pinned to nothing */
    host_turn(30);
    assert_non_null(event("net.allow", "", "a.wild.example"));
    assert_int_equal(lookup("rebind.test.example", 1), 5);
    host_turn(30);
    assert_string_equal(event("net.deny", "resolved_private", "rebind.test.example")->dst,
                        "10.1.2.3");
    assert_int_equal(lookup("nx.wild.example", 1), 5);
    assert_int_equal(lookup("mixed.test.example", 1), 0);
    assert_int_equal(shared->answers, 1);
    assert_string_equal(shared->addr[0], "203.0.113.10");
    assert_int_equal(talk("10.1.2.3", 80, "x", 1, 0), ECONNREFUSED);
    /* the address is pinned to a name, but not to the one of the hello */
    assert_int_equal(lookup("good.test.example", 1), 0);
    n = hello_for("other.test.example", hello, sizeof(hello));
    talk("203.0.113.10", 443, hello, n, 0);
    alert("not pinned", 112);
    n = hello_for("good.test.example", hello, sizeof(hello));
    assert_true(echoed("203.0.113.10", 443, hello, n, 0));
    assert_int_equal(world.sinks->conns, conns + 2);
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dns_answers), cmocka_unit_test(test_dns_unlisted),
        cmocka_unit_test(test_dns_caps),    cmocka_unit_test(test_raw),
        cmocka_unit_test(test_resolved),    cmocka_unit_test(test_tls),
        cmocka_unit_test(test_tls_refused), cmocka_unit_test(test_real),
    };

    if (getuid()) {
        puts("needs root to make network namespaces");
        return 77;
    }
    cmocka_set_test_filter(getenv("EGRESS_TEST_ONLY"));
    return cmocka_run_group_tests(tests, zone_up, zone_down);
}
