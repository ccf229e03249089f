/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* option: every type of a plugin's table, given, defaulted and wrong, with the exact message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include "config.h"

static const struct cella_option table[] = {
    {.name = "quiet", .help = "say less", .def = "false", .type = CELLA_OPT_BOOL},
    {.name = "pool", .help = "spare cells", .def = "4", .type = CELLA_OPT_INT, .min = 0, .max = 64},
    {.name = "cache",
     .help = "cache",
     .def = "64M",
     .type = CELLA_OPT_SIZE,
     .min = 1 << 20,
     .max = 1 << 30},
    {.name = "grace", .help = "wait", .def = "250ms", .type = CELLA_OPT_DURATION},
    {.name = "label", .help = "label", .def = "", .type = CELLA_OPT_STRING},
    {.name = "sync",
     .help = "when",
     .def = "none",
     .choices = "none|close|always",
     .type = CELLA_OPT_ENUM},
    {.name = "path", .help = "where", .def = "", .type = CELLA_OPT_PATH},
    {.name = "token", .help = "name of the token", .def = NULL, .type = CELLA_OPT_STRING},
};

static int parse(const char *text, struct json_at *doc, struct option_set **ret, struct errbuf *eb)
{
    assert_int_equal(json_at_parse("f", text, strlen(text), doc, errbuf_init(eb)), 0);
    return option_set_parse(table, ARRAY_LEN(table), sizeof(table[0]), doc, "/o",
                            json_object_get(doc->root, "o"), ret, errbuf_init(eb));
}

static int64_t number(const struct option_set *s, const char *name)
{
    const struct cella_option_value *v = cella_options_get(option_set_get(s), name);

    assert_non_null(v);
    assert_null(v->str);
    return v->i64;
}

static const char *text(const struct option_set *s, const char *name)
{
    const struct cella_option_value *v = cella_options_get(option_set_get(s), name);

    assert_non_null(v);
    return v->str;
}

static void test_defaults(void **state)
{
    struct option_set *s = NULL;
    struct json_at doc;
    struct errbuf eb;

    (void)state;
    assert_int_equal(parse("{\"o\": {\"token\": \"t\"}}", &doc, &s, &eb), 0);
    assert_int_equal(option_set_get(s)->n_values, ARRAY_LEN(table));
    assert_int_equal(option_set_get(s)->hdr.kind, CELLA_KIND_OPTIONS);
    assert_int_equal(number(s, "quiet"), 0);
    assert_int_equal(number(s, "pool"), 4);
    assert_int_equal(number(s, "cache"), 64 << 20);
    assert_int_equal(number(s, "grace"), 250000000);
    assert_string_equal(text(s, "label"), "");
    assert_string_equal(text(s, "sync"), "none");
    assert_string_equal(text(s, "path"), "");
    json_at_fini(&doc); /* the set owns its strings */
    assert_string_equal(text(s, "token"), "t");
    assert_null(cella_options_get(option_set_get(s), "tok"));
    option_set_free(s);
    option_set_free(NULL);
}

static void test_given(void **state)
{
    struct option_set *s = NULL;
    struct json_at doc;
    struct errbuf eb;

    (void)state;
    assert_int_equal(parse("{\"o\": {\"token\": \"\", \"quiet\": true, \"pool\": 64, \"cache\": "
                           "\"1G\", \"grace\": 2,"
                           " \"label\": \"x y\", \"sync\": \"always\", \"path\": \"/a\"}}",
                           &doc, &s, &eb),
                     0);
    assert_int_equal(number(s, "quiet"), 1);
    assert_int_equal(number(s, "pool"), 64);
    assert_int_equal(number(s, "cache"), 1 << 30);
    assert_int_equal(number(s, "grace"), 2000000000);
    assert_string_equal(text(s, "label"), "x y");
    assert_string_equal(text(s, "sync"), "always");
    assert_string_equal(text(s, "path"), "/a");
    option_set_free(s);
    json_at_fini(&doc);
}

struct bad {
    const char *text, *message;
};

static const struct bad bads[] = {
    {"{\"o\": {}}", "f:1:7: /o: option \"token\" is required: name of the token"},
    {"{}", "f:1:1: /o: option \"token\" is required: name of the token"},
    {"{\"o\": []}", "f:1:7: /o: expected an object, got an array"},
    {"{\"o\": {\"token\": \"t\",\n \"pol\": 3}}",
     "f:2:2: /o/pol: unknown option \"pol\"; did you mean \"pool\"?"},
    {"{\"o\": {\"zzzzzz\": 3}}",
     "f:1:8: /o/zzzzzz: unknown option \"zzzzzz\"; known: quiet, pool, cache, grace, "
     "label, sync, path, token"},
    {"{\"o\": {\"token\": 5}}", "f:1:17: /o/token: expected a string, got a number"},
    {"{\"o\": {\"quiet\": 1}}", "f:1:17: /o/quiet: expected true or false, got a number"},
    {"{\"o\": {\"pool\": 65}}", "f:1:16: /o/pool: 65 is out of range; allowed is 0 to 64"},
    {"{\"o\": {\"pool\": \"4\"}}", "f:1:16: /o/pool: expected a whole number, got a string"},
    {"{\"o\": {\"cache\": \"2G\"}}", "f:1:17: /o/cache: 2G is out of range; allowed is 1M to 1G"},
    {"{\"o\": {\"cache\": \"big\"}}",
     "f:1:17: /o/cache: \"big\" is not a size; write a whole number with K, M, G or "
     "T, such as \"64M\""},
    {"{\"o\": {\"grace\": -1}}",
     "f:1:17: /o/grace: -1 is out of range; allowed is 0 to 9223372036854775807ns"},
    {"{\"o\": {\"grace\": \"1w\"}}",
     "f:1:17: /o/grace: \"1w\" is not a duration; write a whole number with ns, us, "
     "ms, s, m, h or d, such as \"10m\""},
    {"{\"o\": {\"label\": null}}", "f:1:17: /o/label: expected a string, got null"},
    {"{\"o\": {\"sync\": \"allways\"}}",
     "f:1:16: /o/sync: \"allways\" is not one of none, close, always; did you mean \"always\"?"},
    {"{\"o\": {\"sync\": false}}", "f:1:16: /o/sync: expected a string, got false"},
    {"{\"o\": {\"path\": \"a/b\"}}",
     "f:1:16: /o/path: \"a/b\" is not an absolute path; it must start with '/'"},
    {"{\"o\": {\"path\": {}}}", "f:1:16: /o/path: expected an absolute path, got an object"},
};

static void test_bad(void **state)
{
    struct option_set *s = NULL;
    struct json_at doc;
    struct errbuf eb;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(bads); i++) {
        assert_int_equal(parse(bads[i].text, &doc, &s, &eb), -EINVAL);
        assert_string_equal(eb.text, bads[i].message);
        assert_null(s);
        json_at_fini(&doc);
    }
}

/* A table of a newer plugin: longer entries are walked by stride, unknown types and broken defaults
 * refused. */
static void test_table(void **state)
{
    struct {
        struct cella_option o;
        int64_t later;
    } newer[2] = {{.o = {.name = "a", .def = "1", .type = CELLA_OPT_INT}},
                  {.o = {.name = "b", .def = "x", .type = CELLA_OPT_STRING}}};
    struct option_set *s = NULL;
    struct errbuf eb;

    (void)state;
    assert_int_equal(
        option_set_parse(&newer[0].o, 2, sizeof(newer[0]), NULL, "/p", NULL, &s, errbuf_init(&eb)),
        0);
    assert_int_equal(number(s, "a"), 1);
    assert_string_equal(text(s, "b"), "x");
    option_set_free(s);
    s = NULL;
    newer[1].o.type = 9000;
    assert_int_equal(
        option_set_parse(&newer[0].o, 2, sizeof(newer[0]), NULL, "/p", NULL, &s, &eb.err), -EINVAL);
    assert_string_equal(eb.text, "/p: the plugin's option \"b\" has type 9000 and flags 0, unknown "
                                 "to this version of cella");
    newer[1].o.type = CELLA_OPT_SIZE;
    assert_int_equal(
        option_set_parse(&newer[0].o, 2, sizeof(newer[0]), NULL, "/p", NULL, &s, &eb.err), -EINVAL);
    assert_string_equal(
        eb.text,
        "/p: the plugin's own default \"x\" of option \"b\" cannot be read; the plugin is broken");
    assert_int_equal(option_set_parse(&newer[0].o, 2, 8, NULL, "/p", NULL, &s, &eb.err), -EINVAL);
    assert_string_equal(eb.text,
                        "/p: the plugin's option table (2 options, stride 8) is malformed");
    assert_int_equal(option_set_parse(NULL, 0, 0, NULL, "/p", NULL, &s, &eb.err), 0);
    assert_int_equal(option_set_get(s)->n_values, 0);
    option_set_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
