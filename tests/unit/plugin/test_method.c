/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Signatures, arguments and calls of typed methods. */
#include "harness.h"

/* ---- signatures ---- */
static void accepts(void **state)
{
    struct signature s;
    struct errbuf eb;

    (void)state;
    assert_ok(signature_parse("->i32", &s, errbuf_init(&eb)), eb);
    assert_int_equal(s.n_params, 0);
    assert_int_equal(s.result, SIG_RESULT_I32);
    assert_ok(signature_parse(" u64 bytes ,\tstr why_2\n-> json ", &s, errbuf_init(&eb)), eb);
    assert_int_equal(s.n_params, 2);
    assert_int_equal(s.params[0].type, SIG_U64);
    assert_string_equal(s.params[1].name, "why_2");
    assert_int_equal(s.result, SIG_RESULT_JSON);
    assert_ok(signature_parse("i32 a,u32 b,i64 c,u64 d,f64 e,bool f,str g,i32 h->i64", &s,
                              errbuf_init(&eb)),
              eb);
    assert_int_equal(s.n_params, 8);
}

static void refuses_text(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "column 1: a type"},
        {"u32", "a parameter name"},
        {"u32 a", "\",\" or \"->\""},
        {"u32 a,", "a type"},
        {"u32 a, -> i32", "a type"},
        {"u32 a -> ", "a result type"},
        {"u32 a -> u32", "i32 i64 json"},
        {"u32 a -> i32 x", "column 14: the end"},
        {"u16 a -> i32", "one of the types"},
        {"u32 A -> i32", "a parameter name"},
        {"u32 a, i32 a -> i32", "\"a\" appears twice"},
        {"u32 a b -> i32", "\",\" or \"->\""},
        {"u32 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa -> i32", "at most 31"},
        {"i32 a,i32 b,i32 c,i32 d,i32 e,i32 f,i32 g,i32 h,i32 i->i32", "more than 8"},
        {"- > i32", "\"->\""},
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        struct signature s = {.n_params = 77};
        struct errbuf eb;
        assert_int_equal(signature_parse(bad[i].text, &s, errbuf_init(&eb)), -EINVAL);
        assert_says(eb.text, bad[i].says);
        assert_int_equal(s.n_params, 77);
    }
}

/* ---- arguments ---- */
static int convert(const char *sig, const char *json, union arg out[CELLA_METHOD_PARAMS_MAX],
                   struct errbuf *eb, json_t **ret_keep)
{
    struct signature s;

    *ret_keep = json_loads(json, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_non_null(*ret_keep);
    assert_int_equal(signature_parse(sig, &s, NULL), 0);
    return signature_args(&s, "box.poke", *ret_keep, out, errbuf_init(eb));
}

static void converts(void **state)
{
    union arg a[CELLA_METHOD_PARAMS_MAX];
    struct errbuf eb;
    json_t *keep;

    (void)state;
    assert_ok(convert("i32 a,u32 b,i64 c,u64 d,f64 e,bool f,str g -> i32",
                      "{\"g\":\"h\\u00e9\",\"a\":-2147483648,\"b\":4294967295,"
                      "\"c\":-9223372036854775808,\"d\":9223372036854775807,\"e\":3,\"f\":true}",
                      a, &eb, &keep),
              eb);
    assert_int_equal(a[0].i32, INT32_MIN);
    assert_int_equal(a[1].u32, UINT32_MAX);
    assert_true(a[2].i64 == INT64_MIN);
    assert_true(a[3].u64 == INT64_MAX);
    assert_true(a[4].f64 == 3.0);
    assert_int_equal(a[5].i32, 1);
    assert_string_equal(a[6].str, "h\xc3\xa9");
    json_decref(keep);
    assert_ok(convert("-> i32", "null", a, &eb, &keep), eb);
    json_decref(keep);
}

static void refuses_args(void **state)
{
    static const struct {
        const char *sig, *json, *says;
    } bad[] = {
        {"u32 mib -> i32", "{}", "box.poke: argument \"mib\" (u32) is missing"},
        {"u32 mib -> i32", "{\"mib\":1,\"x\":2}", "argument \"x\": unknown; it takes u32 mib"},
        {"-> i32", "{\"x\":2}", "it takes no argument"},
        {"u32 mib -> i32", "{\"mib\":-1}", "argument \"mib\": -1 is out of range for u32"},
        {"u32 mib -> i32", "{\"mib\":4294967296}", "out of range"},
        {"i32 n -> i32", "{\"n\":2147483648}", "out of range for i32"},
        {"i32 n -> i32", "{\"n\":-2147483649}", "out of range for i32"},
        {"u64 n -> i32", "{\"n\":-1}", "out of range for u64"},
        {"u32 mib -> i32", "{\"mib\":1.5}", "u32 is expected, got a number with a fraction"},
        {"u32 mib -> i32", "{\"mib\":\"1\"}", "got a string"},
        {"u32 mib -> i32", "{\"mib\":null}", "got null"},
        {"u32 mib -> i32", "{\"mib\":true}", "got a bool"},
        {"bool b -> i32", "{\"b\":1}", "bool is expected, got an integer"},
        {"str s -> i32", "{\"s\":[]}", "str is expected, got an array"},
        {"str s -> i32", "{\"s\":\"a\\u0000b\"}", "NUL character"},
        {"f64 x -> i32", "{\"x\":{}}", "f64 is expected, got an object"},
        {"u32 mib -> i32", "[1]", "must be a JSON object, got an array"},
    };
    union arg a[CELLA_METHOD_PARAMS_MAX];
    struct errbuf eb;
    json_t *keep;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        assert_true(convert(bad[i].sig, bad[i].json, a, &eb, &keep) < 0);
        assert_says(eb.text, bad[i].says);
        json_decref(keep);
    }
}

/* ---- calls ---- */
static int32_t sum32(void *self, int32_t a, uint32_t b, struct cella_error *err)
{
    (void)err;
    return *(int *)self + a + (int32_t)b;
}

static int64_t all(void *self, int32_t a, uint32_t b, int64_t c, uint64_t d, double e, int32_t f,
                   const char *g, int32_t h, struct cella_error *err)
{
    (void)self;
    assert_non_null(err);
    return a + b + c + (int64_t)d + (int64_t)e + f + (int64_t)strlen(g) + h;
}

static int64_t echo(void *self, const char *s, char *buf, uint64_t cap, struct cella_error *err)
{
    (void)self, (void)err;
    return snprintf(buf, cap, "%s", s);
}

static int64_t liar(void *self, char *buf, uint64_t cap, struct cella_error *err)
{
    (void)self, (void)err, (void)buf;
    return (int64_t)cap + 1;
}

static int32_t failing(void *self, struct cella_error *err)
{
    (void)self;
    return cella_error_set(err, -EBUSY, 3, "the cell is busy");
}

static int64_t huge_error(void *self, struct cella_error *err)
{
    (void)self, (void)err;
    return INT64_MIN;
}

#define METHOD(name, sig, fn)                                                                      \
    {                                                                                              \
        name, sig, "help", (cella_method_fn)fn, 0, 0                                               \
    }
static const struct cella_method methods[] = {
    METHOD("sum", "i32 a, u32 b -> i32", sum32),
    METHOD("all", "i32 a,u32 b,i64 c,u64 d,f64 e,bool f,str g,i32 h -> i64", all),
    METHOD("echo", "str s -> json", echo),
    METHOD("liar", "-> json", liar),
    METHOD("failing", "-> i32", failing),
    METHOD("huge-error", "-> i64", huge_error),
};
static struct plugin box = {.kind = CELLA_KIND_BACKEND,
                            .name = "box",
                            .methods = methods,
                            .n_methods = ARRAY_LEN(methods),
                            .method_stride = sizeof(methods[0])};
static int self_value = 1000;

static int call(const char *method, const char *args, json_t **ret, struct errbuf *eb)
{
    json_t *j = args ? json_loads(args, 0, NULL) : NULL;
    int r;

    *ret = NULL;
    r = method_call(&box, &self_value, method, j, ret, errbuf_init(eb));
    json_decref(j);
    return r;
}

static void calls(void **state)
{
    struct errbuf eb;
    json_t *v;

    (void)state;
    assert_ok(call("box.sum", "{\"a\":-5,\"b\":7}", &v, &eb), eb);
    assert_int_equal(json_integer_value(v), 1002);
    json_decref(v);
    assert_ok(call("all",
                   "{\"a\":-1,\"b\":20,\"c\":300,\"d\":4000,\"e\":50000.0,\"f\":true,"
                   "\"g\":\"four\",\"h\":600000}",
                   &v, &eb),
              eb);
    assert_int_equal(json_integer_value(v), 654324);
    json_decref(v);
    assert_ok(call("box.echo", "{\"s\":\"{\\\"mounts\\\":[1,2]}\"}", &v, &eb), eb);
    assert_int_equal(json_array_size(json_object_get(v, "mounts")), 2);
    json_decref(v);
}

static void call_failures(void **state)
{
    struct errbuf eb;
    json_t *v;

    (void)state;
    assert_int_equal(call("box.nothing", NULL, &v, &eb), -ENOENT);
    assert_says(eb.text, "no method \"box.nothing\"");
    assert_says(eb.text, "box.sum");
    assert_int_equal(call("box.sum", "{\"a\":1}", &v, &eb), -EINVAL);
    assert_says(eb.text, "box.sum: argument \"b\" (u32) is missing");
    assert_int_equal(call("box.failing", NULL, &v, &eb), -EBUSY);
    assert_says(eb.text, "box: failing: the cell is busy");
    assert_int_equal(eb.err.step, 3);
    assert_int_equal(call("box.echo", "{\"s\":\"{nonsense\"}", &v, &eb), -EPROTO);
    assert_says(eb.text, "plugin box broke the contract in echo: its result is not JSON");
    assert_int_equal(call("box.liar", NULL, &v, &eb), -EPROTO);
    assert_says(eb.text, "length of 65537");
    assert_int_equal(call("box.huge-error", NULL, &v, &eb), -EPROTO);
    assert_null(v);
    assert_int_equal(method_call(&box, NULL, "box.sum", NULL, &v, errbuf_init(&eb)), -EPROTO);
}

static void set_checks(void **state)
{
    struct cella_method twice[] = {METHOD("a", "-> i32", failing), METHOD("a", "-> i32", failing)};
    struct plugin p = {
        .name = "t", .methods = twice, .n_methods = 2, .method_stride = sizeof(twice[0])};
    struct method_set *m;
    struct errbuf eb;

    (void)state;
    assert_int_equal(method_set_new(&p, &m, errbuf_init(&eb)), -EINVAL);
    assert_says(eb.text, "method \"a\" appears twice");
    twice[1].name = "B";
    assert_int_equal(method_set_new(&p, &m, errbuf_init(&eb)), -EINVAL);
    twice[1].name = "b";
    twice[1].fn = NULL;
    assert_int_equal(method_set_new(&p, &m, errbuf_init(&eb)), -EINVAL);
    p.n_methods = 1;
    p.method_stride = 12;
    assert_int_equal(method_set_new(&p, &m, errbuf_init(&eb)), -EINVAL);
    assert_says(eb.text, "stride");
    p.method_stride = sizeof(twice[0]);
    assert_ok(method_set_new(&p, &m, errbuf_init(&eb)), eb);
    method_set_free(m);
}

static int setup(void **state)
{
    (void)state;
    return method_set_new(&box, &box.method_set, NULL);
}

static int teardown(void **state)
{
    (void)state;
    method_set_free(box.method_set);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts),    cmocka_unit_test(refuses_text),
        cmocka_unit_test(converts),   cmocka_unit_test(refuses_args),
        cmocka_unit_test(calls),      cmocka_unit_test(call_failures),
        cmocka_unit_test(set_checks),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
