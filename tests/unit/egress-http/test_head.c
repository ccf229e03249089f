/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* Heads and chunks of HTTP/1.1: what is one message, and everything that could be two. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "head.h"

static struct head h;

static int request(const char *text)
{
    size_t scanned = 0, n = strlen(text);
    long len = head_scan(text, n, &scanned);

    return len <= 0 ? (int)len : head_request(text, (size_t)len, &h);
}

static int response(const char *text)
{
    size_t scanned = 0;
    long len = head_scan(text, strlen(text), &scanned);

    return len <= 0 ? (int)len : head_response(text, (size_t)len, &h);
}

static void test_request(void **state)
{
    (void)state;
    assert_int_equal(request("GET /a HTTP/1.1\r\nHost: \tx.y \r\nEmpty:\r\n\r\n"), 0);
    assert_true(slice_is(h.line.name, h.line.name_len, "GET"));
    assert_true(slice_is(h.line.value, h.line.value_len, "/a"));
    assert_int_equal(h.fields.n, 2);
    assert_true(slice_is(h.fields.f[0].value, h.fields.f[0].value_len, "x.y"));
    assert_int_equal(h.fields.f[1].value_len, 0);
    assert_int_equal(h.minor, 1);
    assert_int_equal(h.close, 0);
    assert_int_equal(h.body, BODY_NONE);
    assert_int_equal(request("GET / HTTP/1.0\r\n\r\n"), 0);
    assert_int_equal(h.close, 1);
    assert_int_equal(request("GET / HTTP/1.0\r\nConnection: x, Keep-Alive\r\n\r\n"), 0);
    assert_int_equal(h.close, 0);
    assert_int_equal(request("GET / HTTP/1.1\r\nConnection: foo, CLOSE\r\n\r\n"), 0);
    assert_int_equal(h.close, 1);
    assert_int_equal(request("PUT / HTTP/1.1\r\nContent-Length: 18\r\n\r\n"), 0);
    assert_int_equal(h.length, 18);
    assert_int_equal(request("PUT / HTTP/1.1\r\nTransfer-Encoding: CHUNKED\r\n\r\n"), 0);
    assert_int_equal(h.body, BODY_CHUNKED);
}

static void test_upgrade(void **state)
{
    (void)state;
    assert_int_equal(request("GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n"),
                     0);
    assert_int_equal(h.websocket, 1);
    assert_int_equal(request("GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"), 0);
    assert_int_equal(h.websocket, 0);
    assert_int_equal(
        request(
            "GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n\r\n"),
        0);
    assert_int_equal(h.websocket, 0);
}

static void test_refused(void **state)
{
    static const char *const bad[] = {
        "GET / HTTP/1.1\nHost: x\n\n",
        "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
        "GET / HTTP/1.1\r\nA : b\r\n\r\n",
        "GET / HTTP/1.1\r\n: b\r\n\r\n",
        "GET / HTTP/1.1\r\nA\r\n\r\n",
        "GET / HTTP/1.1\r\nA: \x01\r\n\r\n",
        "GET / HTTP/1.1\r\nA: \x7f\r\n\r\n",
        "GET  / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1 \r\n\r\n",
        "GET / HTTP/2.0\r\n\r\n",
        "GET / http/1.1\r\n\r\n",
        "GET /\r\n\r\n",
        " GET / HTTP/1.1\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\n\r\n",
        "AMETHODTHATISFARTOOLONGFORUS / HTTP/1.1\r\n\r\n",
        "P / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "P / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "P / HTTP/1.1\r\nContent-Length: 0x1\r\n\r\n",
        "P / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "P / HTTP/1.1\r\nContent-Length:\r\n\r\n",
        "P / HTTP/1.1\r\nContent-Length: 1111111111111111111\r\n\r\n",
        "P / HTTP/1.1\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        "P / HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n",
        "P / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "P / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "P / HTTP/1.1\r\nContent_Length: 1\r\n\r\n",
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (request(bad[i]) != -EBADMSG)
            fail_msg("accepted: %s", bad[i]);
}

static void test_pieces(void **state)
{
    static const char text[] = "GET / HTTP/1.1\r\nA: b\r\n\r\nrest";
    size_t scanned = 0, i;
    long len = 0;

    (void)state;
    for (i = 1; !len && i < sizeof(text); i++)
        len = head_scan(text, i, &scanned);
    assert_int_equal(len, sizeof(text) - 5);
    scanned = 0;
    assert_int_equal(head_scan("GET / HT\0P", 10, &scanned), -EBADMSG);
}

static void test_response(void **state)
{
    (void)state;
    assert_int_equal(response("HTTP/1.1 200 OK\r\n\r\n"), 0);
    assert_int_equal(h.body, BODY_TO_EOF);
    assert_int_equal(response("HTTP/1.1 204\r\nContent-Length: 5\r\n\r\n"), 0);
    assert_int_equal(h.body, BODY_NONE);
    assert_int_equal(response("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"), 0);
    assert_int_equal(h.body, BODY_NONE);
    assert_int_equal(response("HTTP/1.0 200 \r\nContent-Length: 5\r\n\r\n"), 0);
    assert_int_equal(h.length, 5);
    assert_int_equal(response("HTTP/1.1 20 OK\r\n\r\n"), -EBADMSG);
    assert_int_equal(response("HTTP/1.1 2000\r\n\r\n"), -EBADMSG);
    assert_int_equal(response("HTTP/1.1 099 x\r\n\r\n"), -EBADMSG);
    assert_int_equal(response("HTTP/1.1  200 x\r\n\r\n"), -EBADMSG);
    assert_int_equal(response("ICY 200 OK\r\n\r\n"), -EBADMSG);
    assert_int_equal(
        response("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
        -EBADMSG);
}

static int authority(const char *text)
{
    return authority_is(text, strlen(text), "api.example", 8443);
}

static void test_names(void **state)
{
    const char *p = "https://api.example:8443/x?y", *a;
    size_t n = strlen(p), len;

    (void)state;
    assert_true(authority("api.example"));
    assert_true(authority("API.Example:8443"));
    assert_false(authority("api.example.") || authority("api.example:443") ||
                 authority("api.example:") || authority("api.example:08443") ||
                 authority("xapi.example") || authority("u@api.example") ||
                 authority("api.exampl") || authority("api.example:8443x") ||
                 authority("api.example:84430"));
    assert_true(target_absolute(&p, &n, &a, &len));
    assert_true(slice_is(a, len, "api.example:8443"));
    assert_true(slice_is(p, n, "/x?y"));
    assert_true(target_valid("/a%00", 5, 0));
    assert_false(target_valid("a", 1, 0) || target_valid("/a b", 4, 0) ||
                 target_valid("/#", 2, 0) || target_valid("*", 1, 0) || target_valid("", 0, 1));
    assert_true(target_valid("*", 1, 1));
}

static void test_chunks(void **state)
{
    static const char text[] = "5;x=y\r\nhello\r\n0\r\n";
    struct chunk c = {0};
    const char *data;
    size_t used, len;

    (void)state;
    assert_int_equal(chunk_next(&c, text, sizeof(text) - 1, &used, &data, &len), CHUNK_DATA);
    assert_int_equal(len, 5);
    assert_memory_equal(data, "hello", 5);
    assert_int_equal(chunk_next(&c, text + used, sizeof(text) - 1 - used, &used, &data, &len),
                     CHUNK_LAST);
    c = (struct chunk){0};
    assert_int_equal(chunk_next(&c, "5\r\nhell", 7, &used, &data, &len), CHUNK_DATA);
    assert_int_equal(len, 4);
    assert_int_equal(chunk_next(&c, "oX", 2, &used, &data, &len), CHUNK_DATA);
    assert_int_equal(chunk_next(&c, "X", 1, &used, &data, &len), -EBADMSG);
}

static int chunk_bad(const char *text)
{
    struct chunk c = {0};
    const char *data;
    size_t used, len;

    return chunk_next(&c, text, strlen(text), &used, &data, &len) == -EBADMSG;
}

static void test_chunks_refused(void **state)
{
    (void)state;
    assert_true(chunk_bad("\r\n"));
    assert_true(chunk_bad("g\r\n"));
    assert_true(chunk_bad("5\n"));
    assert_true(chunk_bad("5 \r\n"));
    assert_true(chunk_bad(" 5\r\n"));
    assert_true(chunk_bad("0x5\r\n"));
    assert_true(chunk_bad("5\rX"));
    assert_true(chunk_bad("5;a\x01\r\n"));
    assert_true(chunk_bad("10000000000000000\r\n"));
}

static void test_trailers(void **state)
{
    static struct fields t;

    (void)state;
    assert_int_equal(fields_parse("a: b\r\n\r\n", 8, &t), 0);
    assert_int_equal(t.n, 1);
    assert_true(trailer_allowed(&t.f[0]));
    assert_int_equal(fields_parse("Host: b\r\n\r\n", 11, &t), 0);
    assert_false(trailer_allowed(&t.f[0]));
    assert_int_equal(fields_parse("a: b\r\n", 6, &t), -EBADMSG);
    assert_int_equal(fields_parse("a: b\r\n\r\nx", 9, &t), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request),  cmocka_unit_test(test_upgrade),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_response), cmocka_unit_test(test_names),
        cmocka_unit_test(test_chunks),   cmocka_unit_test(test_chunks_refused),
        cmocka_unit_test(test_trailers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
