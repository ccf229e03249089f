/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* line: the exact bytes of a record, and that no field can forge another, however hostile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include <jansson.h>

#include "chain.h"

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"
#define HEAD                                                                                       \
    "{\"v\":1,\"chain\":\"abc\",\"seq\":7,\"ts\":\"2026-01-02T03:04:05.000678Z\",\"prev\":"        \
    "\"" ZEROS "\",\"kind\":\"net.deny\""

static const struct line_head head = {"abc", 7, 1767323045000678999u, ZEROS, "net.deny"};

static struct cella_field str(const char *name, const char *value, size_t len)
{
    return (struct cella_field){.name = name, .type = CELLA_FIELD_STR, .str = {value, len}};
}

static char *render(const struct cella_field *fields, uint32_t n)
{
    struct buf b = BUF_INIT;

    assert_int_equal(line_render(&b, &head, fields, n, sizeof(*fields)), 0);
    assert_true(b.len <= LINE_MAX_BYTES);
    assert_null(strchr(b.ptr, '\n'));
    return b.ptr;
}

static void check(const struct cella_field *fields, uint32_t n, const char *expected)
{
    auto_free char *line = render(fields, n);

    assert_string_equal(line, expected);
}

static void test_types(void **state)
{
    const struct cella_field fields[] = {
        field_str("addr", "192.0.2.1"),
        field_int("port", 443),
        field_int("least", INT64_MIN),
        {.name = "yes", .type = CELLA_FIELD_BOOL, .i64 = 7},
        {.name = "no", .type = CELLA_FIELD_BOOL},
        str("empty", NULL, 0),
    };

    (void)state;
    check(NULL, 0, HEAD "}");
    check(fields, ARRAY_LEN(fields),
          HEAD ",\"addr\":\"192.0.2.1\",\"port\":443,\"least\":-9223372036854775808,\"yes\":true,"
               "\"no\":false,\"empty\":\"\"}");
}

static void test_hostile(void **state)
{
    const struct cella_field fields[] = {
        str("a", "x\",\"seq\":1,\"y\":\"\n\0\x1b[2J\xff\xe2\x80\xae", 26),
    };

    (void)state;
    check(fields, 1,
          HEAD
          ",\"a\":\"x\\\",\\\"seq\\\":1,\\\"y\\\":\\\"\\u000a\\u0000\\u001b[2J\\u00ff\\u202e\"}");
}

static void test_dropped(void **state)
{
    const struct cella_field fields[] = {
        field_int("seq", 1),       field_int("v", 1),
        field_int("truncated", 1), field_int("dropped_fields", 0),
        field_int("ok", 1),        field_int("ok", 2),
        field_int("Up", 1),        field_int("a\"b", 1),
        field_int("", 1),          {.type = CELLA_FIELD_INT},
        {.name = "t", .type = 7},  str("null", NULL, 3),
    };

    (void)state;
    check(fields, ARRAY_LEN(fields), HEAD ",\"ok\":1,\"dropped_fields\":11}");
}

static void test_many(void **state)
{
    struct cella_field fields[40];
    char names[40][8];
    size_t i;

    (void)state;
    for (i = 0; i < 40; i++) {
        snprintf(names[i], sizeof(names[i]), "f%zu", i);
        fields[i] = field_int(names[i], 0);
    }
    auto_free char *line = render(fields, 40);
    assert_non_null(strstr(line, "\"f31\":0,\"dropped_fields\":8}"));
    assert_null(strstr(line, "\"f32\""));
}

static void test_cut(void **state)
{
    char text[2048], expected[2048];
    struct cella_field fields[2];

    (void)state;
    memset(text, 'a', sizeof(text));
    fields[0] = str("arg", text, CELLA_EVENT_STR_MAX);
    memset(expected, 'a', sizeof(expected));
    expected[CELLA_EVENT_STR_MAX] = 0;
    {
        auto_free char *line = render(fields, 1);
        assert_null(strstr(line, "truncated"));
        assert_non_null(strstr(line, expected));
    }
    memcpy(text + CELLA_EVENT_STR_MAX - 2, "\xe2\x82\xac",
           3); /* a character over the edge goes whole */
    fields[0] = str("arg", text, sizeof(text));
    fields[1] = str("path", text, CELLA_EVENT_STR_MAX + 1);
    {
        auto_free char *line = render(fields, 2);
        expected[CELLA_EVENT_STR_MAX - 2] = 0;
        strcat(expected, "\"");
        assert_non_null(strstr(line, expected));
        assert_non_null(strstr(line, "\"truncated\":[\"arg\",\"path\"]}"));
    }
}

/* 32 strings of control characters would be 196 KiB; the line stays within its bound and says what is left out. */
static void test_bound(void **state)
{
    struct cella_field fields[32];
    char text[CELLA_EVENT_STR_MAX], names[32][8];
    json_t *o;
    size_t i;

    (void)state;
    memset(text, 1, sizeof(text));
    for (i = 0; i < 32; i++) {
        snprintf(names[i], sizeof(names[i]), "f%zu", i);
        fields[i] = str(names[i], text, sizeof(text));
    }
    auto_free char *line = render(fields, 32);
    o = json_loads(line, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    assert_non_null(o);
    assert_int_equal(json_integer_value(json_object_get(o, "dropped_fields")), 32 - 9);
    json_decref(o);
}

static void test_names(void **state)
{
    (void)state;
    assert_true(chain_name_valid("host"));
    assert_false(chain_name_valid(""));
    assert_false(chain_name_valid("a/b"));
    assert_false(chain_name_valid("A"));
    assert_true(kind_valid("net.deny"));
    assert_false(kind_valid(".x"));
    assert_false(kind_valid("x."));
    assert_false(kind_valid("a b"));
    assert_false(kind_valid(NULL));
    assert_false(kind_valid("0123456789012345678901234567890123456789012345678901234567890123"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),   cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_dropped), cmocka_unit_test(test_many),
        cmocka_unit_test(test_cut),     cmocka_unit_test(test_bound),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
