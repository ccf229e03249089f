/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Operation tables and option tables as the loader takes them, without a file. */
#include "harness.h"

static int f_probe(const struct cella_host *h, const struct cella_probe_report *r,
                   struct cella_probe *p, struct cella_error *e)
{
    (void)h, (void)r, (void)p, (void)e;
    return 0;
}

static const struct cella_note note = {CELLA_NOTE_MAGIC, CELLA_KIND_BACKEND, CELLA_ABI_MAJOR, 0, 0};

/* A table with every required operation; never called. */
static struct cella_backend_ops full(void)
{
    struct cella_backend_ops o = {
        .hdr = CELLA_HDR_INIT(struct cella_backend_ops, CELLA_KIND_BACKEND),
        .name = "full",
        .version = "1",
        .summary = "s",
        .probe = f_probe,
    };
    const struct kind_info *k = kind_info_get(CELLA_KIND_BACKEND);
    uint32_t i;

    for (i = 0; i < k->n_ops; i++)
        memcpy((char *)&o + k->ops[i].offset, &o.probe, sizeof(o.probe));
    return o;
}

static void older_and_newer(void **state)
{
    struct {
        struct cella_backend_ops ops;
        void *newer[4];
    } t = {.ops = full(), .newer = {&t, &t, &t, &t}};
    struct plugin p = {.path = NULL};
    struct errbuf eb;

    (void)state;
    t.ops.hdr.size = sizeof(t); /* a newer plugin: its tail is ignored */
    t.ops.hdr.minor = 9;
    assert_ok(plugin_table_take(&p, &t, &note, errbuf_init(&eb)), eb);
    assert_non_null(p.ops.backend.recover);
    assert_int_equal(p.table_size, sizeof(t));
    method_set_free(p.method_set);

    memset(&p, 0, sizeof(p));
    t.ops.hdr.size = CELLA_BACKEND_OPS_BASELINE; /* an older one: what it does not know is NULL */
    assert_ok(plugin_table_take(&p, &t, &note, errbuf_init(&eb)), eb);
    assert_non_null(p.ops.backend.reap);
    assert_null(p.ops.backend.pause);
    assert_null(p.ops.backend.recover);
    method_set_free(p.method_set);

    memset(&p, 0, sizeof(p));
    t.ops.hdr.size = CELLA_BACKEND_OPS_BASELINE - 1;
    assert_int_equal(plugin_table_take(&p, &t, &note, errbuf_init(&eb)), -ENOEXEC);
}

/* Each required operation missing alone is named. */
static void each_required(void **state)
{
    const struct kind_info *k = kind_info_get(CELLA_KIND_BACKEND);
    uint32_t i;

    (void)state;
    for (i = 0; i < k->n_ops; i++) {
        struct cella_backend_ops o = full();
        struct plugin p = {.path = NULL};
        struct errbuf eb;
        char says[64];
        int r;
        memset((char *)&o + k->ops[i].offset, 0, sizeof(o.probe));
        r = plugin_table_take(&p, &o, &note, errbuf_init(&eb));
        assert_int_equal(r, k->ops[i].def ? 0 : -ENOEXEC);
        if (r < 0) {
            snprintf(says, sizeof(says), "required operation missing: %s", k->ops[i].name);
            assert_says(eb.text, says);
        }
        method_set_free(p.method_set);
    }
}

/* The kinds' tables name every operation: the last one ends where the struct ends, and none is
   skipped, since each follows the one before it. */
static void kinds_complete(void **state)
{
    uint32_t kind, i;

    (void)state;
    for (kind = CELLA_KIND_BACKEND; kind <= CELLA_KIND_SECRET; kind++) {
        const struct kind_info *k = kind_info_get(kind);
        assert_non_null(k);
        for (i = 1; i < k->n_ops; i++)
            assert_int_equal(k->ops[i].offset, k->ops[i - 1].offset + sizeof(void *));
        assert_int_equal(k->ops[k->n_ops - 1].offset + sizeof(void *), k->host_size);
        assert_true(k->baseline <= k->host_size);
    }
    assert_null(kind_info_get(0));
    assert_null(kind_info_get(CELLA_KIND_SECRET + 1));
}

static int options_of(const struct cella_option *o, uint32_t n, struct errbuf *eb)
{
    struct plugin p = {.options = o, .n_options = n, .option_stride = sizeof(*o)};

    return plugin_options_check(&p, errbuf_init(eb));
}

static void option_tables(void **state)
{
    static const struct cella_option good[] = {
        {"a", "h", NULL, NULL, CELLA_OPT_STRING, 0, 0, 0},
        {"b", "h", "64M", NULL, CELLA_OPT_SIZE, 0, 1, 1ll << 40},
        {"c", "h", "250ms", NULL, CELLA_OPT_DURATION, 0, 0, 0},
        {"d", "h", "true", NULL, CELLA_OPT_BOOL, 0, 0, 0},
        {"e", "h", "two", "one|two", CELLA_OPT_ENUM, 0, 0, 0},
        {"f", "h", "/x", NULL, CELLA_OPT_PATH, 0, 0, 0},
        {"g", "h", "-3", NULL, CELLA_OPT_INT, 0, -5, 5},
    };
    static const struct {
        struct cella_option o;
        const char *says;
    } bad[] = {
        {{"A", "h", NULL, NULL, CELLA_OPT_STRING, 0, 0, 0}, "no valid name"},
        {{NULL, "h", NULL, NULL, CELLA_OPT_STRING, 0, 0, 0}, "no valid name"},
        {{"a", NULL, NULL, NULL, CELLA_OPT_STRING, 0, 0, 0}, "no help"},
        {{"a", "h", NULL, NULL, 1234, 0, 0, 0}, "unknown type 1234"},
        {{"a", "h", NULL, NULL, CELLA_OPT_STRING, 1, 0, 0}, "must be zero"},
        {{"a", "h", "three", "one|two", CELLA_OPT_ENUM, 0, 0, 0}, "\"three\" is not a valid enum"},
        {{"a", "h", "on", "one|two", CELLA_OPT_ENUM, 0, 0, 0}, "not a valid enum"},
        {{"a", "h", "x", NULL, CELLA_OPT_ENUM, 0, 0, 0}, "without choices"},
        {{"a", "h", "9", NULL, CELLA_OPT_INT, 0, 1, 5}, "not a valid int"},
        {{"a", "h", "1", NULL, CELLA_OPT_INT, 0, 5, 1}, "empty range"},
        {{"a", "h", "x", NULL, CELLA_OPT_SIZE, 0, 0, 0}, "not a valid size"},
        {{"a", "h", "maybe", NULL, CELLA_OPT_BOOL, 0, 0, 0}, "not a valid bool"},
        {{"a", "h", "x/y", NULL, CELLA_OPT_PATH, 0, 0, 0}, "not a valid path"},
        {{"a", "h", "", NULL, CELLA_OPT_PATH, 0, 0, 0}, "not a valid path"},
    };
    struct cella_option twice[2] = {good[0], good[0]};
    struct errbuf eb;
    size_t i;

    (void)state;
    assert_ok(options_of(good, ARRAY_LEN(good), &eb), eb);
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(options_of(&bad[i].o, 1, &eb), -EINVAL);
        assert_says(eb.text, bad[i].says);
    }
    assert_int_equal(options_of(twice, 2, &eb), -EINVAL);
    assert_says(eb.text, "appears twice");
    assert_int_equal(options_of(NULL, 1, &eb), -EINVAL);
    assert_int_equal(options_of(good, 65, &eb), -EINVAL);
}

static void data_structs(void **state)
{
    struct {
        struct cella_flow flow;
        uint64_t newer;
    } f = {{.hdr = {sizeof(f), CELLA_KIND_FLOW, CELLA_ABI_MAJOR, 3, 0}, .allowed = 4}, 0};
    struct cella_flow out;
    uint32_t least = sizeof(out);

    (void)state;
    assert_int_equal(data_take(&out, sizeof(out), least, CELLA_KIND_FLOW, &f), 0);
    assert_int_equal(out.allowed, 4);
    f.newer = 1;
    assert_int_equal(data_take(&out, sizeof(out), least, CELLA_KIND_FLOW, &f), -E2BIG);
    f.flow.hdr.size = sizeof(struct cella_flow) - 8;
    assert_int_equal(data_take(&out, sizeof(out), least, CELLA_KIND_FLOW, &f), -EPROTO);
    assert_int_equal(data_take(&out, sizeof(out), 24, CELLA_KIND_FLOW, &f), 0);
    assert_int_equal(data_take(&out, sizeof(out), 24, CELLA_KIND_EVENT, &f), -EPROTO);
    f.flow.hdr.flags = 1;
    assert_int_equal(data_take(&out, sizeof(out), 24, CELLA_KIND_FLOW, &f), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(older_and_newer), cmocka_unit_test(each_required),
        cmocka_unit_test(kinds_complete),  cmocka_unit_test(option_tables),
        cmocka_unit_test(data_structs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
