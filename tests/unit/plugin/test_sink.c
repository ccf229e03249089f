/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The wrappers of sinks, the rest of the decider's, and where plugins are looked for. */
#include <limits.h>

#include "harness.h"

static int answer, events, closes, give_self = 1;
static char kept[64];

static int s_open(const struct cella_host *host, const struct cella_options *options,
                  void **ret_self, struct cella_error *err)
{
    (void)host, (void)options;
    if (answer)
        return cella_error_set(err, answer, 2, "no directory");
    if (give_self)
        *ret_self = kept;
    return 0;
}

static int s_event(void *self, const struct cella_record *record, struct cella_error *err)
{
    events++;
    if (answer)
        return cella_error_set(err, answer, 3, "the disk is full");
    memcpy(self, record->line.ptr, record->line.len);
    return 0;
}

static int s_flush(void *self, struct cella_error *err)
{
    (void)self, (void)err;
    return answer;
}

static void s_close(void *self)
{
    (void)self;
    closes++;
}

static const struct plugin sink = {
    .kind = CELLA_KIND_SINK,
    .name = "tape",
    .ops.sink = {.open = s_open, .event = s_event, .flush = s_flush, .close = s_close}};

static void sinks(void **state)
{
    struct cella_record rec = {.hdr = CELLA_HDR_INIT(struct cella_record, CELLA_KIND_RECORD),
                               .chain = "host",
                               .seq = 1,
                               .kind = "x",
                               .line = {"{}", 2}};
    void *self = NULL;
    struct errbuf eb;

    (void)state;
    answer = -ENOENT;
    assert_int_equal(sink_open(&sink, &test_host, NULL, &self, errbuf_init(&eb)), -ENOENT);
    assert_string_equal(eb.text, "tape: open: no directory");
    assert_null(self);
    answer = give_self = 0;
    assert_int_equal(sink_open(&sink, &test_host, NULL, &self, errbuf_init(&eb)), -EPROTO);
    assert_says(eb.text, "plugin tape broke the contract in open: it succeeded without");
    assert_int_equal(sink_event(&sink, NULL, &rec, errbuf_init(&eb)), -EPROTO);
    assert_int_equal(events, 0);
    sink_close(&sink, NULL);
    assert_int_equal(closes, 0);
    give_self = 1;
    assert_ok(sink_open(&sink, &test_host, NULL, &self, errbuf_init(&eb)), eb);
    assert_ok(sink_event(&sink, self, &rec, errbuf_init(&eb)), eb);
    assert_string_equal(kept, "{}");
    answer = -ENOSPC;
    assert_int_equal(sink_event(&sink, self, &rec, errbuf_init(&eb)), -ENOSPC);
    assert_string_equal(eb.text, "tape: event: the disk is full");
    assert_int_equal(eb.err.step, 3);
    answer = 5;
    assert_int_equal(sink_flush(&sink, self, errbuf_init(&eb)), -EPROTO);
    answer = 0;
    assert_ok(sink_flush(&sink, self, errbuf_init(&eb)), eb);
    sink_close(&sink, self);
    assert_int_equal(closes, 1);
}

/* ---- combination of verdicts ---- */
static int d_decide(void *self, const struct cella_request *request, struct cella_verdict *ret,
                    struct cella_error *err)
{
    (void)request, (void)err;
    ret->value = *(uint32_t *)self;
    return 0;
}

static void combination(void **state)
{
    static const struct {
        uint32_t a, b, c, result;
    } rows[] = {
        {CELLA_ABSTAIN, CELLA_ABSTAIN, CELLA_ABSTAIN, CELLA_DENY},
        {CELLA_ABSTAIN, CELLA_ALLOW, CELLA_ABSTAIN, CELLA_ALLOW},
        {CELLA_ALLOW, CELLA_ALLOW, CELLA_DENY, CELLA_DENY},
        {CELLA_DENY, CELLA_ALLOW, CELLA_ALLOW, CELLA_DENY},
        {CELLA_ALLOW, CELLA_ALLOW, 0, CELLA_DENY},
        {CELLA_ALLOW, 1, CELLA_ALLOW, CELLA_DENY},
    };
    struct plugin p = {
        .kind = CELLA_KIND_DECIDER, .name = "d", .ops.decider = {.decide = d_decide}};
    struct cella_request q = {.hdr = CELLA_HDR_INIT(struct cella_request, CELLA_KIND_REQUEST),
                              .operation = "cell.create"};
    struct cella_verdict v;
    const char *who;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        uint32_t values[3] = {rows[i].a, rows[i].b, rows[i].c};
        struct decider chain[3] = {{&p, &values[0]}, {&p, &values[1]}, {&p, &values[2]}};
        deciders_decide(chain, 3, &q, &v, &who);
        assert_int_equal(v.value, rows[i].result);
    }
    {
        struct decider none = {&p, NULL}; /* configured, but it could not be created */
        deciders_decide(&none, 1, &q, &v, &who);
        assert_int_equal(v.value, CELLA_DENY);
    }
}

static void directory(void **state)
{
    const char *d;

    (void)state;
    unsetenv("CELLA_PLUGIN_DIR");
    d = plugin_dir();
    assert_int_equal(d[0], '/');
    assert_ptr_equal(plugin_dir(), d);
    setenv("CELLA_PLUGIN_DIR", "relative/dir", 1); /* not taken */
    assert_string_equal(plugin_dir(), d);
    setenv("CELLA_PLUGIN_DIR", "/some/dir", 1);
    assert_string_equal(plugin_dir(), "/some/dir");
    unsetenv("CELLA_PLUGIN_DIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sinks),
        cmocka_unit_test(combination),
        cmocka_unit_test(directory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
