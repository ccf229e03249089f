/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Host names in one spelling, and ClientHellos: OpenSSL's own, and what a hostile client makes of
 * them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/ssl.h>

#include "hello.h"

/* ------------------------------------------------------------------- names */

static void test_names(void **state)
{
    static const char *const good[][2] = {
        {"example.com", "example.com"},
        {"EXAMPLE.Com", "example.com"},
        {"a.b", "a.b"},
        {"1.example", "1.example"},
        {"xn--bcher-kva.example", "xn--bcher-kva.example"},
        {"0x7f.1.com", "0x7f.1.com"},
        {"a-b.c-d.e1", "a-b.c-d.e1"},
    };
    static const char *const bad[] = {
        "",          ".",           "example.com.", ".example.com", "a..b",
        "-a.com",    "a-.com",      "a_b.com",      "1.2.3.4",      "1",
        "a.0x7f",    "127.0.0.0x1", "a b.com",      "a%2e.com",     "a\tb.com",
        "a\r\n.com", "*.a.com",     "[::1]",        "::1",          "b\xc3\xbc.de",
        "a.com:443", "a/b",         "a.com-",       "user@a.com",
    };
    char out[NAME_MAX_LEN + 1], text[300];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(name_canon(good[i][0], strlen(good[i][0]), out), 0);
        assert_string_equal(out, good[i][1]);
    }
    snprintf(out, sizeof(out), "untouched");
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (name_canon(bad[i], strlen(bad[i]), out) == 0)
            fail_msg("\"%s\" passed", bad[i]);
    assert_int_equal(name_canon("evil\0.example.com", 17, out), -1);
    assert_string_equal(out, "untouched");
    memset(text, 'a', sizeof(text));
    text[1] = '.';
    assert_int_equal(name_canon(text, 65, out), 0);
    assert_int_equal(name_canon(text, 66, out), -1);
    for (i = 65; i < 253; i += 64)
        text[i] = '.';
    assert_int_equal(name_canon(text, 253, out), 0);
    assert_int_equal(name_canon(text, 254, out), -1);
}

/* ------------------------------------------------------------------ hellos */

struct bytes {
    uint8_t p[120000];
    size_t n;
};

/* What OpenSSL sends first. `pad` bytes of protocol names make it longer. */
static void openssl_hello(struct bytes *b, const char *name, int version, size_t pad)
{
    static uint8_t protos[32768];
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl;
    BIO *out = BIO_new(BIO_s_mem());
    size_t n = 12;

    memcpy(protos, "\2h2\10http/1.1", 12);
    while (n < pad) {
        protos[n] = 200;
        memset(protos + n + 1, 'x', 200);
        n += 201;
    }
    assert_true(SSL_CTX_set_max_proto_version(ctx, version));
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    ssl = SSL_new(ctx);
    SSL_set_alpn_protos(ssl, protos, (unsigned)n);
    if (name)
        SSL_set_tlsext_host_name(ssl, name);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
    SSL_connect(ssl);
    b->n = (size_t)BIO_read(out, b->p, sizeof(b->p));
    SSL_free(ssl);
    SSL_CTX_free(ctx);
}

/* The same handshake message in records of `size` bytes. */
static void cut(const struct bytes *in, struct bytes *ret, size_t size)
{
    static uint8_t message[70000];
    size_t at = 0, n = 0, len;

    for (at = 0; at < in->n; at += 5 + len) {
        len = (size_t)in->p[at + 3] << 8 | in->p[at + 4];
        memcpy(message + n, in->p + at + 5, len);
        n += len;
    }
    ret->n = 0;
    for (at = 0; at < n; at += len) {
        uint8_t *p = ret->p + ret->n;
        len = n - at < size ? n - at : size;
        p[0] = 22;
        p[1] = 3;
        p[2] = 1;
        p[3] = (uint8_t)(len >> 8);
        p[4] = (uint8_t)len;
        memcpy(p + 5, message + at, len);
        ret->n += 5 + len;
    }
}

/* Byte by byte: nothing is decided before the last one. */
static void good_hello(const struct bytes *b, const char *name)
{
    struct hello h;
    size_t i;

    for (i = 0; i < b->n; i++) {
        assert_int_equal(hello_read(b->p, i, &h), HELLO_MORE);
        assert_true(h.need > i && h.need <= b->n);
    }
    assert_int_equal(hello_read(b->p, b->n, &h), HELLO_OK);
    assert_string_equal(h.sni, name);
    assert_true(h.alpn & HELLO_ALPN_H2 && h.alpn & HELLO_ALPN_H1);
}

static struct bytes hello, other;

static void test_openssl(void **state)
{
    static const size_t records[] = {1, 2, 3, 5, 40, 100, 16384};
    struct hello h;
    size_t i;

    (void)state;
    openssl_hello(&hello, "API.Example.com", TLS1_3_VERSION, 0);
    good_hello(&hello, "api.example.com");
    assert_true(hello_read(hello.p, hello.n, &h) == HELLO_OK && !(h.alpn & HELLO_ALPN_OTHER));
    for (i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        cut(&hello, &other, records[i]);
        good_hello(&other, "api.example.com");
    }
    openssl_hello(&hello, "api.example.com", TLS1_2_VERSION, 0);
    good_hello(&hello, "api.example.com");
    openssl_hello(&hello, NULL, TLS1_3_VERSION, 0);
    assert_int_equal(hello_read(hello.p, hello.n, &h), HELLO_NO_SNI);
    /* early data or the next flight behind it changes nothing */
    openssl_hello(&hello, "api.example.com", TLS1_3_VERSION, 0);
    memcpy(hello.p + hello.n, "\x17\3\3\0\1x", 6);
    assert_int_equal(hello_read(hello.p, hello.n + 6, &h), HELLO_OK);
}

static void test_long_hello(void **state)
{
    struct hello h;

    (void)state;
    openssl_hello(&hello, "api.example.com", TLS1_3_VERSION, 16100);
    assert_true(hello.n > 16384);
    good_hello(&hello, "api.example.com");
    cut(&hello, &other, 700);
    good_hello(&other, "api.example.com");
    cut(&hello, &other, 1); /* 5 bytes of head for each byte: more than a first flight may be */
    assert_int_equal(hello_read(other.p, HELLO_WIRE_MAX, &h), HELLO_BAD);
    /* a message that says it is longer than any hello */
    memcpy(other.p, "\x16\3\1\0\4\1\1\0\0", 9);
    assert_int_equal(hello_read(other.p, 9, &h), HELLO_BAD);
}

static void test_not_tls(void **state)
{
    static const struct {
        const char *p;
        size_t n;
        enum hello_result want;
    } rows[] = {
        {"S", 1, HELLO_NOT_TLS},
        {"GET / HTTP/1.1\r\n", 16, HELLO_NOT_TLS},
        {"\x80\x2e\1\3\1", 5, HELLO_NOT_TLS}, /* SSLv2 */
        {"\0", 1, HELLO_NOT_TLS},
        {"\x15\3\1\0\2\1\0", 7, HELLO_NOT_TLS},
        {"\x17\3\3\0\1x", 6, HELLO_NOT_TLS},
        {"\x16\2", 2, HELLO_NOT_TLS},
        {"\x16\3\0", 3, HELLO_NOT_TLS},
        {"\x16\3\1\0\0", 5, HELLO_NOT_TLS},
        {"\x16\3\1\x40\1", 5, HELLO_NOT_TLS},
        {"\x16\3\1\0\1\2", 6, HELLO_BAD},
        {"\x16\3\1\1\0\2", 6, HELLO_BAD}, /* a server's hello, before all of it is there */
        {"\x16\3\1\0\1\1\x17\3\3\0\1", 11, HELLO_BAD}, /* another type in the middle */
        {"", 0, HELLO_MORE},
        {"\x16\3\1\0\1\1", 6, HELLO_MORE},
    };
    struct hello h;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum hello_result r = hello_read((const uint8_t *)rows[i].p, rows[i].n, &h);
        if (r != rows[i].want)
            fail_msg("row %zu: %d", i, (int)r);
    }
}

/* A hello of our own, with these extensions. */
static enum hello_result with_extensions(const void *ext, size_t n, struct hello *h)
{
    uint8_t *p = other.p;
    size_t body = 2 + 32 + 1 + 4 + 2 + 2 + n;

    memset(p, 0, 100);
    memcpy(p, "\x16\3\1", 3);
    p[3] = (uint8_t)((body + 4) >> 8);
    p[4] = (uint8_t)(body + 4);
    p[5] = 1;
    p[7] = (uint8_t)(body >> 8);
    p[8] = (uint8_t)body;
    p[9] = p[10] = 3;
    p += 9 + 34 + 1;
    memcpy(p, "\0\2\x13\1\1\0", 6);
    p[6] = (uint8_t)(n >> 8);
    p[7] = (uint8_t)n;
    memcpy(p + 8, ext, n);
    other.n = 5 + 4 + body;
    return hello_read(other.p, other.n, h);
}

static void test_strict(void **state)
{
#define ROW(bytes, want)                                                                           \
    {                                                                                              \
        bytes, sizeof(bytes) - 1, want                                                             \
    }
    static const struct {
        const char *p;
        size_t n;
        enum hello_result want;
    } rows[] = {
        ROW("\0\0\0\x0a\0\x08\0\0\5ab.cd", HELLO_OK),
        ROW("\x0a\x0a\0\0\0\0\0\x0a\0\x08\0\0\5ab.cd\xfe\x0d\0\2xx", HELLO_OK), /* GREASE and ECH */
        ROW("\0\0\0\x0a\0\x08\0\0\5ab.cd\0\0\0\x0a\0\x08\0\0\5ef.gh", HELLO_BAD),
        ROW("\0\0\0\x12\0\x10\0\0\5ab.cd\0\0\5ef.gh", HELLO_BAD), /* two names in one list */
        ROW("\0\0\0\x0a\0\x08\1\0\5ab.cd", HELLO_BAD),            /* not a host_name */
        ROW("\0\0\0\x0b\0\x08\0\0\5ab.cdx", HELLO_BAD),
        ROW("\0\0\0\x0a\0\x07\0\0\5ab.cd", HELLO_BAD),
        ROW("\0\0\0\x0a\0\x08\0\0\4ab.cd", HELLO_BAD),
        ROW("\0\0\0\x0a\0\x08\0\0\6ab.cd", HELLO_BAD),
        ROW("\0\0\0\0", HELLO_BAD),
        ROW("\0\0\0\2\0\0", HELLO_BAD),
        ROW("\0\0\0\5\0\3\0\0\0", HELLO_BAD_NAME),
        ROW("\0\0\0\x0a\0\x08\0\0\5ab.c.", HELLO_BAD_NAME),
        ROW("\0\0\0\x0a\0\x08\0\0\5a\0.cd", HELLO_BAD_NAME),
        ROW("\0\0\0\x0c\0\x0a\0\0\0071.2.3.4", HELLO_BAD_NAME),
        ROW("\0\0\0\x0a\0\x08\0\0\5a_.cd", HELLO_BAD_NAME),
        ROW("\0\x10\0\5\0\3\2h2", HELLO_NO_SNI),
        ROW("\0\x10\0\5\0\3\3h2", HELLO_BAD),
        ROW("\0\x10\0\2\0\0", HELLO_BAD),
        ROW("\0\x10\0\3\0\1\0", HELLO_BAD),
        ROW("\0\x10\0\5\0\3\2h2\0\x10\0\5\0\3\2h2", HELLO_BAD),
        ROW("\0\0\0\x0a\0\x08\0\0\5ab.cd\0", HELLO_BAD),
        ROW("", HELLO_NO_SNI),
    };
    struct hello h;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum hello_result r = with_extensions(rows[i].p, rows[i].n, &h);
        if (r != rows[i].want)
            fail_msg("row %zu: %d", i, (int)r);
    }
    /* bytes behind the message in its record */
    with_extensions("\0\0\0\x0a\0\x08\0\0\5ab.cd", 14, &h);
    other.p[4]++;
    assert_int_equal(hello_read(other.p, other.n + 1, &h), HELLO_BAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),      cmocka_unit_test(test_openssl),
        cmocka_unit_test(test_long_hello), cmocka_unit_test(test_not_tls),
        cmocka_unit_test(test_strict),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
