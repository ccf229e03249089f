/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Every pair of state and operation, against the diagram of <cella/backend.h> written out by hand.
 */
#include "harness.h"

/* Rows: operation. Columns: none created running paused stopped prepared. '-' refused, else the next state.
 */
static const char *const expected[BACKEND_OP_COUNT] = {
    [BACKEND_OP_CREATE] = "c-----",  [BACKEND_OP_START] = "-r----",
    [BACKEND_OP_STOP] = "-sss-s",    [BACKEND_OP_CONNECT] = "--r---",
    [BACKEND_OP_PAUSE] = "--p---",   [BACKEND_OP_RESUME] = "---r--",
    [BACKEND_OP_STATS] = "--rps-",   [BACKEND_OP_RESIZE] = "--rp--",
    [BACKEND_OP_DESTROY] = "-nnnnn", [BACKEND_OP_SNAPSHOT] = "--rp--",
    [BACKEND_OP_RESTORE] = "c-----", [BACKEND_OP_PREPARE] = "e-----",
    [BACKEND_OP_LOAD] = "-----c",
};
static const char letters[] = "ncrpse";

static void table(void **state)
{
    struct errbuf eb;
    unsigned op, s;

    (void)state;
    for (op = 0; op < BACKEND_OP_COUNT; op++)
        for (s = 0; s < 6; s++) {
            enum backend_state next = 99;
            int r = lifecycle_check("p", s, op, &next, errbuf_init(&eb));
            char got = r < 0 ? '-' : letters[next];
            if (got != expected[op][s])
                fail_msg_("%s while %s: got %c, expected %c", backend_op_name(op),
                          backend_state_name(s), got, expected[op][s]);
            if (r < 0) {
                assert_int_equal(r, -EPROTO);
                assert_int_equal(next, 99);
                assert_says(eb.text, backend_op_name(op));
                assert_says(eb.text, backend_state_name(s));
            }
        }
}

static void out_of_table(void **state)
{
    enum backend_state next;

    (void)state;
    assert_int_equal(lifecycle_check("p", 17, BACKEND_OP_START, &next, NULL), -EPROTO);
    assert_int_equal(lifecycle_check("p", BACKEND_NONE, 99, &next, NULL), -EPROTO);
}

/* ---- through the wrappers: a refused operation never reaches the plugin ---- */
static int calls, answer;

static int count_start(void *self, struct cella_started *st, struct cella_error *err)
{
    (void)self, (void)st, (void)err;
    calls++;
    return answer;
}

static int count_simple(void *self, struct cella_error *err)
{
    (void)self, (void)err;
    calls++;
    return answer;
}

static int count_stop(void *self, uint32_t how, uint64_t timeout_ns, struct cella_error *err)
{
    (void)self, (void)how, (void)timeout_ns, (void)err;
    calls++;
    return answer;
}

static void never_reaches(void **state)
{
    struct plugin p = {.kind = CELLA_KIND_BACKEND,
                       .name = "counting",
                       .ops.backend = {.start = count_start,
                                       .pause = count_simple,
                                       .resume = count_simple,
                                       .stop = count_stop}};
    struct backend b = {.plugin = &p, .self = &calls, .state = BACKEND_CREATED};
    struct cella_started st;
    struct errbuf eb;

    (void)state;
    calls = 0;
    assert_int_equal(backend_pause(&b, errbuf_init(&eb)), -EPROTO);
    assert_int_equal(backend_resume(&b, NULL), -EPROTO);
    assert_int_equal(calls, 0);
    b.state = BACKEND_RUNNING;
    assert_int_equal(backend_start(&b, &st, NULL), -EPROTO);
    assert_int_equal(calls, 0);
    answer = -EIO; /* a refusal of the plugin does not change the state */
    assert_int_equal(backend_pause(&b, errbuf_init(&eb)), -EIO);
    assert_says(eb.text, "counting: pause failed: Input/output error");
    assert_int_equal(b.state, BACKEND_RUNNING);
    assert_int_equal(backend_stop(&b, CELLA_STOP_KILL, 0, NULL), -EIO);
    assert_int_equal(b.state, BACKEND_RUNNING);
    answer = 0;
    assert_int_equal(backend_pause(&b, NULL), 0);
    assert_int_equal(b.state, BACKEND_PAUSED);
    assert_int_equal(backend_resume(&b, NULL), 0);
    assert_int_equal(backend_stop(&b, 7, 0, errbuf_init(&eb)), -EINVAL);
    assert_int_equal(backend_stop(&b, CELLA_STOP_GRACEFUL, UINT64_MAX, NULL), 0);
    calls = 0;
    assert_int_equal(backend_stop(&b, CELLA_STOP_KILL, 0, NULL), 0);
    assert_int_equal(calls, 0);
}

/* NULL operations get the default that the table in kinds.c names. */
static void defaults(void **state)
{
    struct plugin p = {.kind = CELLA_KIND_BACKEND, .name = "bare"};
    struct plugin en = {.kind = CELLA_KIND_ENFORCER, .name = "bare"};
    struct plugin si = {.kind = CELLA_KIND_SINK, .name = "bare"};
    struct backend b = {.plugin = &p, .self = &p, .state = BACKEND_RUNNING};
    struct enforcer e = {.plugin = &en, .self = &en};
    struct cella_limits l = {.hdr = CELLA_HDR_INIT(struct cella_limits, CELLA_KIND_LIMITS)};
    struct cella_stats stats;
    struct cella_applied applied;
    struct errbuf eb;

    (void)state;
    assert_int_equal(backend_pause(&b, errbuf_init(&eb)), -EOPNOTSUPP);
    assert_says(eb.text, "backend bare has no pause");
    assert_int_equal(backend_resize(&b, &l, NULL), -EOPNOTSUPP);
    assert_int_equal(backend_stats(&b, &stats, NULL), 0);
    assert_int_equal(stats.unknown, 0x7ff);
    assert_int_equal(enforcer_check(&en, NULL, NULL), 0);
    assert_int_equal(enforcer_apply(&e, NULL, &applied, NULL), -EOPNOTSUPP);
    assert_int_equal(enforcer_phase(&e, "x", 1, &applied, NULL), -EOPNOTSUPP);
    assert_int_equal(enforcer_report(&e, NULL, NULL, NULL), 0);
    assert_int_equal(sink_flush(&si, &si, NULL), 0);
    assert_int_equal(sink_flush(&si, NULL, errbuf_init(&eb)), -EPROTO);
}

/* ---- snapshot and restore: the directory as it is, the instance that comes of it ---- */
static int seen_dir;
static void *made;

static int take_snapshot(void *self, const struct cella_snapshot *to, struct cella_error *err)
{
    (void)self, (void)err;
    calls++;
    seen_dir = to->borrow_dir_fd;
    return answer;
}

static int take_restore(const struct cella_host *host, const struct cella_spec *spec,
                        const struct cella_snapshot *from, void **ret_self, struct cella_error *err)
{
    (void)host, (void)spec, (void)err;
    calls++;
    seen_dir = from->borrow_dir_fd;
    *ret_self = made;
    return answer;
}

static void copies(void **state)
{
    struct plugin p = {.kind = CELLA_KIND_BACKEND,
                       .name = "copying",
                       .ops.backend = {.snapshot = take_snapshot, .restore = take_restore}};
    struct plugin bare = {.kind = CELLA_KIND_BACKEND, .name = "bare"};
    struct cella_spec spec = {.hdr = CELLA_HDR_INIT(struct cella_spec, CELLA_KIND_SPEC)};
    struct backend b = {.plugin = &p, .self = &calls, .state = BACKEND_CREATED},
                   copy = {.self = NULL};
    struct errbuf eb;

    (void)state;
    calls = answer = 0;
    assert_int_equal(backend_snapshot(&b, 5, 0, NULL, NULL, errbuf_init(&eb)), -EPROTO);
    assert_int_equal(calls, 0);
    b.state = BACKEND_RUNNING;
    assert_int_equal(backend_snapshot(&b, 5, 0, NULL, NULL, NULL), 0);
    assert_int_equal(seen_dir, 5);
    assert_int_equal(b.state, BACKEND_RUNNING);
    answer = -ENOSPC;
    assert_int_equal(backend_snapshot(&b, 5, 0, NULL, NULL, errbuf_init(&eb)), -ENOSPC);
    assert_says(eb.text, "copying: snapshot failed");
    assert_int_equal(b.state, BACKEND_RUNNING);
    assert_int_equal(backend_restore(&p, NULL, &spec, 6, &copy, NULL), -ENOSPC);
    assert_null(copy.self);
    answer = 0;
    made = NULL; /* no instance is no success */
    assert_true(backend_restore(&p, NULL, &spec, 6, &copy, errbuf_init(&eb)) < 0);
    assert_says(eb.text, "without an instance");
    made = &calls;
    assert_int_equal(backend_restore(&p, NULL, &spec, 6, &copy, NULL), 0);
    assert_int_equal(seen_dir, 6);
    assert_ptr_equal(copy.self, &calls);
    assert_int_equal(copy.state, BACKEND_CREATED);
    b.plugin = &bare;
    assert_int_equal(backend_snapshot(&b, 5, 0, NULL, NULL, errbuf_init(&eb)), -EOPNOTSUPP);
    assert_says(eb.text, "backend bare has no snapshot");
    assert_int_equal(backend_restore(&bare, NULL, &spec, 6, &copy, errbuf_init(&eb)), -EOPNOTSUPP);
}

/* ---- a copy in two steps ---- */
static int stops;

static int take_prepare(const struct cella_host *host, const struct cella_spec *spec,
                        void **ret_self, struct cella_error *err)
{
    (void)host, (void)spec, (void)err;
    calls++;
    *ret_self = made;
    return answer;
}

static int take_load(void *self, const struct cella_snapshot *from, struct cella_error *err)
{
    (void)self, (void)err;
    calls++;
    seen_dir = from->borrow_dir_fd;
    return answer;
}

static int note_stop(void *self, uint32_t how, uint64_t timeout_ns, struct cella_error *err)
{
    (void)self, (void)how, (void)timeout_ns, (void)err;
    stops++;
    return 0;
}

static void in_two_steps(void **state)
{
    struct plugin p = {
        .kind = CELLA_KIND_BACKEND,
        .name = "preparing",
        .ops.backend = {.prepare = take_prepare, .load = take_load, .stop = note_stop}};
    struct plugin half = {
        .kind = CELLA_KIND_BACKEND, .name = "half", .ops.backend = {.prepare = take_prepare}};
    struct cella_spec spec = {.hdr = CELLA_HDR_INIT(struct cella_spec, CELLA_KIND_SPEC)};
    struct cella_started started;
    struct backend b = {.self = NULL};
    struct errbuf eb;

    (void)state;
    calls = answer = stops = 0;
    assert_int_equal(backend_prepare(&half, NULL, &spec, &b, errbuf_init(&eb)), -EOPNOTSUPP);
    assert_says(eb.text, "backend half has no prepare");
    assert_int_equal(calls, 0);
    made = NULL;
    assert_true(backend_prepare(&p, NULL, &spec, &b, errbuf_init(&eb)) < 0);
    assert_says(eb.text, "without an instance");
    made = &calls;
    assert_int_equal(backend_prepare(&p, NULL, &spec, &b, NULL), 0);
    assert_int_equal(b.state, BACKEND_PREPARED);
    assert_int_equal(backend_start(&b, &started, errbuf_init(&eb)), -EPROTO);
    assert_says(eb.text, "start is not possible while the cell is prepared");
    calls = 0;
    assert_int_equal(backend_load(&b, 7, NULL), 0);
    assert_int_equal(seen_dir, 7);
    assert_int_equal(b.state, BACKEND_CREATED);
    assert_int_equal(backend_load(&b, 7, errbuf_init(&eb)), -EPROTO); /* once */
    assert_int_equal(calls, 1);
    b.state = BACKEND_PREPARED;
    answer = -EBADMSG;
    assert_int_equal(backend_load(&b, 8, errbuf_init(&eb)), -EBADMSG);
    assert_int_equal(stops, 1);
    assert_int_equal(b.state, BACKEND_STOPPED); /* nothing but its end is left */
    answer = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),    cmocka_unit_test(out_of_table), cmocka_unit_test(never_reaches),
        cmocka_unit_test(defaults), cmocka_unit_test(copies),       cmocka_unit_test(in_two_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
