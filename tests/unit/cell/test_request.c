/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* request - what a create request may hold, and how limits merge. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#undef fail

#include "warden.h"

static struct errbuf eb;

static int parse(const char *text, struct request *ret)
{
    json_t *o = json_loads(text, JSON_ALLOW_NUL, NULL);
    int r;

    assert_non_null(o);
    r = request_parse(o, ret, errbuf_init(&eb));
    json_decref(o);
    return r;
}

static void takes_every_member(void **state)
{
    struct request req;

    (void)state;
    assert_int_equal(parse("{\"name\":\"x\",\"class\":\"c\",\"backend\":null,\"image\":\"host\","
                           "\"policy\":\"deny\","
                           "\"env\":[\"A=b\"],\"argv\":[\"true\"],\"user\":\"0:0\",\"workdir\":\"/"
                           "w\",\"hostname\":\"h\","
                           "\"readonly\":true,\"detach\":true,\"mounts\":[],\"options\":{},"
                           "\"limits\":{\"pids\":3}}",
                           &req),
                     0);
    assert_string_equal(req.name, "x");
    assert_null(req.backend);
    assert_int_equal(req.readonly, 1);
    assert_int_equal(json_array_size(req.argv), 1);
    request_fini(&req);
}

static void refuses_by_name(void **state)
{
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"{\"nmae\":\"x\"}", "\"nmae\""},      {"{\"name\":3}", "\"name\""},
        {"{\"name\":\"../x\"}", "../x"},       {"{\"name\":\"a\\u0000b\"}", "\"name\""},
        {"{\"env\":[\"=x\"]}", "NAME=value"},  {"{\"env\":[\"NOVALUE\"]}", "NAME=value"},
        {"{\"env\":[1]}", "strings"},          {"{\"argv\":[\"a\\u0000\"]}", "strings"},
        {"{\"workdir\":\"rel\"}", "absolute"}, {"{\"hostname\":\"a b\"}", "hostname"},
        {"{\"user\":\"a b\"}", "user"},        {"{\"detach\":true}", "command"},
        {"{\"limits\":[]}", "limits"},         {"[]", "object"},
    };
    struct request req;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        assert_true(parse(bad[i].text, &req) < 0);
        if (!strstr(eb.text, bad[i].word))
            print_error("%s gave: %s\n", bad[i].text, eb.text);
        assert_non_null(strstr(eb.text, bad[i].word));
    }
}

static void too_many_mounts(void **state)
{
    json_t *o = json_object(), *a = json_array();
    struct request req;
    int i;

    (void)state;
    for (i = 0; i < CELL_MOUNTS_MAX + 1; i++)
        json_array_append_new(a, json_object());
    json_object_set_new(o, "mounts", a);
    assert_int_equal(request_parse(o, &req, errbuf_init(&eb)), -E2BIG);
    json_decref(o);
}

static void limits_request_over_class_over_default(void **state)
{
    struct config_class class = {.name = (char *)(uintptr_t) "c",
                                 .limits = {.memory = 7, .pids = 9}};
    struct request req;

    (void)state;
    assert_int_equal(parse("{\"limits\":{\"pids\":3,\"disk\":0}}", &req), 0);
    assert_int_equal(request_limits(&req, &class, errbuf_init(&eb)), 0);
    assert_int_equal(req.limits.pids, 3);
    assert_int_equal(req.limits.memory, 7);
    assert_true(req.limits.disk > 0); /* 0 = not given */
    request_fini(&req);
    assert_int_equal(parse("{\"limits\":{\"memroy\":3}}", &req), 0);
    assert_int_equal(request_limits(&req, &class, errbuf_init(&eb)), -EINVAL);
    assert_non_null(strstr(eb.text, "memroy"));
    request_fini(&req);
    assert_int_equal(parse("{\"limits\":{\"memory\":-1}}", &req), 0);
    assert_int_equal(request_limits(&req, &class, errbuf_init(&eb)), -EINVAL);
    request_fini(&req);
}

static int change(const char *text, struct config_limits *l)
{
    json_t *o = json_loads(text, 0, NULL);
    int r;

    assert_non_null(o);
    r = limits_change(o, l, errbuf_init(&eb));
    json_decref(o);
    return r;
}

static void limits_of_a_running_cell(void **state)
{
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"{}", "no limit"},
        {"{\"memory\":67108864,\"disk\":67108864}", "limits.disk"},
        {"{\"pids\":9,\"wall_ns\":5000000}", "limits.wall_ns"},
        {"{\"pids\":9,\"idle_ns\":5000000}", "limits.idle_ns"},
        {"{\"pids\":9,\"memroy\":1}", "memroy"},
        {"{\"pids\":9,\"memory\":1}", "smallest"},
        {"{\"pids\":9,\"cpu_millis\":-1}", "cpu_millis"},
    };
    struct config_limits l = {.memory = 1 << 26, .pids = 5, .cpu_millis = 1000};
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        assert_true(change(bad[i].text, &l) < 0);
        assert_non_null(strstr(eb.text, bad[i].word));
        assert_int_equal(l.pids, 5); /* all of it or nothing */
    }
    assert_int_equal(change("{\"pids\":9,\"io_read_bps\":8192,\"cpu_millis\":0}", &l), 0);
    assert_int_equal(l.pids, 9);
    assert_int_equal(l.io_read_bps, 8192);
    assert_int_equal(l.cpu_millis, 1000);
    assert_int_equal(l.memory, 1 << 26);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_every_member),
        cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(too_many_mounts),
        cmocka_unit_test(limits_request_over_class_over_default),
        cmocka_unit_test(limits_of_a_running_cell),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
