/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* json_at: exact messages for texts that are not JSON, exact places for those that are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include "json_at.h"

struct bad {
    const char *text, *message;
};

static const struct bad bads[] = {
    {"{\"a\": 1,\n}",
     "f:2:1: not valid JSON: string or '}' expected near '}'; JSON has no trailing comma: "
     "remove the ',' before this bracket"},
    {"[1, 2, ]",
     "f:1:8: not valid JSON: unexpected token near ']'; JSON has no trailing comma: remove the "
     "',' before this bracket"},
    {"{\n  // limits\n  \"a\": 1}", "f:2:3: not valid JSON: string or '}' expected near '/'; JSON "
                                    "has no comments: remove this one"},
    {"{\"a\": 1 # x\n}",
     "f:1:9: not valid JSON: '}' expected near '#'; JSON has no comments: remove this one"},
    {"{'a': 1}",
     "f:1:2: not valid JSON: string or '}' expected near '''; JSON strings are written with "
     "double quotes"},
    {"{\"a\": 1, \"a\": 2}", "f:1:10: not valid JSON: duplicate object key near '\"a\"'"},
    {"{\"a\": 1} {}", "f:1:10: not valid JSON: end of file expected near '{'"},
    {"", "f:1:1: not valid JSON: '[' or '{' expected near end of file"},
    {"3", "f:1:1: not valid JSON: '[' or '{' expected near '3'"},
    {"{\"a\"", "f:1:5: not valid JSON: ':' expected near end of file"},
    {"{\"a\": \"\xff\"}", "f:1:7: not valid JSON: unable to decode byte 0xff near '\"'"},
    {"{\"a\": \"\\u0000\"}", "f:1:7: not valid JSON: \\u0000 is not allowed"},
    {"\xef\xbb\xbf{}", "f:1:1: not valid JSON: '[' or '{' expected near '??"
                       "?'; remove the byte order mark "
                       "at the start of the file"},
    {"{\"a\": 99999999999999999999}",
     "f:1:7: not valid JSON: too big integer near '99999999999999999999'"},
};

static void test_syntax(void **state)
{
    struct errbuf eb;
    struct json_at j;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(bads); i++) {
        const char *t = bads[i].text;
        assert_int_equal(json_at_parse("f", t, strlen(t), &j, errbuf_init(&eb)), -EINVAL);
        assert_string_equal(eb.text, bads[i].message);
        assert_int_equal(eb.err.code, -EINVAL);
    }
}

static void test_bounds(void **state)
{
    size_t len = JSON_AT_MAX + 1;
    char *text = malloc(len);
    struct errbuf eb;
    struct json_at j;

    (void)state;
    memset(text, ' ', len);
    text[0] = '[';
    text[1] = ']';
    assert_int_equal(json_at_parse("f", text, len, &j, errbuf_init(&eb)), -EFBIG);
    assert_string_equal(eb.text, "f: is 4194305 bytes long; at most 4194304 are accepted");
    assert_int_equal(json_at_parse("f", text, len - 1, &j, errbuf_init(&eb)), 0);
    json_at_fini(&j);
    memset(text, '[', len);
    assert_int_equal(json_at_parse("f", text, 100000, &j, errbuf_init(&eb)), -EINVAL);
    free(text);
}

static const char *const doc =
    "{\n"
    "  \"one\": 1, \"two\": [10, \"x\\\"]\", {\"k\": [true, null]}],\n"
    "\t\"a/b\": {\"~t\": -2.5e3}, \"\": {\"\": []},\n"
    "  \"gr\\u00fc\\u00dfe\\n\\ud83d\\ude00\": 7, \"caf\xc3\xa9\": 8, \"e\": {}, \"z\": [ ]\n"
    "}\n";

struct found {
    const char *pointer;
    unsigned line, col, key_line, key_col; /* line 0: nowhere */
};

static const struct found founds[] = {
    {"", 1, 1, 1, 1},
    {"/one", 2, 10, 2, 3},
    {"/two", 2, 20, 2, 13},
    {"/two/0", 2, 21, 2, 21},
    {"/two/1", 2, 25, 2, 25},
    {"/two/2", 2, 33, 2, 33},
    {"/two/2/k", 2, 39, 2, 34},
    {"/two/2/k/1", 2, 46, 2, 46},
    {"/a~1b", 3, 9, 3, 2},
    {"/a~1b/~0t", 3, 16, 3, 10},
    {"/", 3, 29, 3, 25},
    {"//", 3, 34, 3, 30},
    {"/gr\xc3\xbc\xc3\x9f"
     "e\n\xf0\x9f\x98\x80",
     4, 36, 4, 3},
    {"/caf\xc3\xa9", 4, 48, 4, 39},
    {"/three", 0, 0, 0, 0},
    {"/two/3", 0, 0, 0, 0},
    {"/two/00", 0, 0, 0, 0},
    {"/two/-", 0, 0, 0, 0},
    {"/two/99999999999999999999999", 0, 0, 0, 0},
    {"/two/", 0, 0, 0, 0},
    {"/one/x", 0, 0, 0, 0},
    {"/on", 0, 0, 0, 0},
    {"/onee", 0, 0, 0, 0},
    {"one", 0, 0, 0, 0},
    {"/e/x", 0, 0, 0, 0},
    {"/z/0", 0, 0, 0, 0},
    {"///0", 0, 0, 0, 0},
};

static void test_locate(void **state)
{
    struct errbuf eb;
    struct json_at j;
    unsigned line, col;
    size_t i;

    (void)state;
    assert_int_equal(json_at_parse("f", doc, strlen(doc), &j, errbuf_init(&eb)), 0);
    for (i = 0; i < ARRAY_LEN(founds); i++) {
        const struct found *f = &founds[i];
        int r = json_at_locate(&j, f->pointer, 0, &line, &col);
        if (!f->line) {
            assert_int_equal(r, -ENOENT);
            continue;
        }
        assert_int_equal(r, 0);
        assert_int_equal(line, f->line);
        assert_int_equal(col, f->col);
        assert_int_equal(json_at_locate(&j, f->pointer, 1, &line, &col), 0);
        assert_int_equal(line, f->key_line);
        assert_int_equal(col, f->key_col);
    }
    json_at_fini(&j);
    json_at_fini(NULL);
}

static void test_fail(void **state)
{
    struct errbuf eb;
    struct json_at j, none = {0};

    (void)state;
    assert_int_equal(json_at_parse("f", doc, strlen(doc), &j, errbuf_init(&eb)), 0);
    assert_int_equal(json_at_fail(&j, "/two/1", 0, &eb.err, "want %d", 3), -EINVAL);
    assert_string_equal(eb.text, "f:2:25: /two/1: want 3");
    json_at_fail(&j, "/one", 1, &eb.err, "no");
    assert_string_equal(eb.text, "f:2:3: /one: no");
    json_at_fail(&j, "/two/2/absent/more", 1, &eb.err, "no"); /* the nearest that exists */
    assert_string_equal(eb.text, "f:2:33: /two/2/absent/more: no");
    json_at_fail(&j, "/x\x1b[2J", 1, &eb.err, "no");
    assert_string_equal(eb.text, "f:1:1: /x?[2J: no");
    json_at_fail(&j, "", 0, &eb.err, "no");
    assert_string_equal(eb.text, "f:1:1: no");
    json_at_fail(NULL, "/a", 0, &eb.err, "no");
    assert_string_equal(eb.text, "/a: no");
    json_at_fail(&none, "", 0, &eb.err, "no");
    assert_string_equal(eb.text, "no");
    json_at_fini(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_syntax),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_locate),
        cmocka_unit_test(test_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
