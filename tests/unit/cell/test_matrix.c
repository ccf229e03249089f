/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* matrix - what a row of a reach measurement needs to pass, and that nothing else makes it pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#undef fail

#include "reach.h"

static struct reach_matrix m;

static void add_row(const char *id, const char *kind, const char *options, uint32_t expected,
                    uint32_t proof)
{
    struct cella_reach_row row = {.hdr =
                                      CELLA_HDR_INIT(struct cella_reach_row, CELLA_KIND_REACH_ROW),
                                  .id = id,
                                  .group = "g",
                                  .kind = kind,
                                  .address = "203.0.113.1",
                                  .twin_address = "",
                                  .name = "",
                                  .options = options,
                                  .rule = "",
                                  .why = "why not",
                                  .port = 80,
                                  .expected = expected,
                                  .proof = proof};

    matrix_row(&m, &row);
}

static void add(const char *id, const char *kind, uint32_t expected, uint32_t proof)
{
    add_row(id, kind, "sport=53", expected, proof);
}

static void add_with(const char *id, const char *kind, const char *options, uint32_t expected)
{
    add_row(id, kind, options, expected, CELLA_REACH_BY_SINK);
}

/* One row and its twin, nothing known yet. */
static struct reach_row *one(uint32_t expected, uint32_t proof)
{
    matrix_fini(&m);
    add("x", "tcp", expected, proof);
    assert_int_equal(matrix_plan(&m), 0);
    m.first = m.count = 0;
    assert_int_equal(matrix_next(&m), 1);
    return &m.rows[0];
}

static enum reach_result judged(void)
{
    matrix_judge(&m);
    return m.rows[0].result;
}

static int setup(void **state)
{
    (void)state;
    m = (struct reach_matrix){0};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    matrix_fini(&m);
    return 0;
}

/* ---- a row that must be closed ---- */

static struct reach_row *closed_row(void)
{
    struct reach_row *r = one(CELLA_REACH_DENY, CELLA_REACH_BY_SINK);

    r->try = (struct reach_try){.told = 1, .errnum = 111, .refused = 1};
    r->twin = (struct reach_try){.told = 1, .got = 9, .bytes = 9, .carried = 1};
    return r;
}

static void closed_needs_refusal_and_twin(void **state)
{
    struct reach_row *r = closed_row();

    (void)state;
    assert_int_equal(judged(), REACH_PASS);
    assert_string_equal(matrix_verdict(&m), "pass");
    r->twin.bytes = 0; /* the probe says it got through; the sink did not see it */
    assert_int_equal(judged(), REACH_NOT_MEASURED);
    assert_string_equal(matrix_verdict(&m), "not_measured");
    r = closed_row();
    r->try.refused = 0;
    assert_int_equal(judged(), REACH_PASS); /* the cell's own kernel said ECONNREFUSED */
    r->try.errnum = ETIMEDOUT;
    assert_int_equal(judged(), REACH_NOT_MEASURED); /* silence that nobody caused */
    r->try.errnum = 0;
    assert_int_equal(judged(), REACH_NOT_MEASURED);
    r->try.carried = 1; /* it came to the enforcer, which said something */
    assert_int_equal(judged(), REACH_PASS);
    r->try.errnum = ETIMEDOUT; /* and said nothing: not known what it did with it */
    assert_int_equal(judged(), REACH_NOT_MEASURED);
}

static void twin_by_name_needs_more_than_its_question(void **state)
{
    struct reach_row *r;

    (void)state;
    matrix_fini(&m);
    add_with("n", "tls", "lookup", CELLA_REACH_DENY);
    assert_int_equal(matrix_plan(&m), 0);
    m.first = m.count = 0;
    assert_int_equal(matrix_next(&m), 1);
    r = &m.rows[0];
    r->try = (struct reach_try){.told = 1, .errnum = 111, .refused = 1};
    r->twin =
        (struct reach_try){.told = 1, .bytes = 30, .carried = 1}; /* the question for the name */
    assert_int_equal(judged(), REACH_NOT_MEASURED);
    r->twin.got = 9;
    assert_int_equal(judged(), REACH_PASS);
}

static void closed_fails_on_any_byte(void **state)
{
    struct reach_row *r = closed_row();

    (void)state;
    r->try.bytes = 1;
    assert_int_equal(judged(), REACH_FAIL);
    assert_string_equal(matrix_verdict(&m), "fail");
    r = closed_row();
    r->try.got = 1;
    assert_int_equal(judged(), REACH_FAIL);
    r = closed_row();
    r->try.told = 0; /* the cell hid its line, the sink knows */
    r->try.bytes = 1;
    assert_int_equal(judged(), REACH_FAIL);
    r = closed_row();
    r->try.connected = 1; /* and the enforcer never saw the flow */
    assert_int_equal(judged(), REACH_FAIL);
    r->try.carried = 1;
    assert_int_equal(judged(), REACH_PASS); /* accepted, judged by the first bytes, refused */
}

static void closed_is_not_passed_untried(void **state)
{
    struct reach_row *r = closed_row();

    (void)state;
    r->try.told = 0;
    assert_int_equal(judged(), REACH_NOT_MEASURED);
    r = closed_row();
    r->try.got = -1;
    assert_int_equal(judged(), REACH_NOT_MEASURED);
    assert_string_equal(r->saw, "the probe could not try it");
    r->try.errnum = ETIMEDOUT; /* the probe's whole time was over */
    assert_int_equal(judged(), REACH_NOT_MEASURED);
    assert_string_equal(r->saw, "no time was left for it");
}

static void closed_inside_needs_its_twin(void **state)
{
    struct reach_row *r = one(CELLA_REACH_DENY, CELLA_REACH_BY_CELL);

    (void)state;
    r->try = (struct reach_try){.told = 1, .errnum = 1};
    assert_int_equal(judged(), REACH_NOT_MEASURED);
    r->twin = (struct reach_try){.told = 1, .got = 1};
    assert_int_equal(judged(), REACH_PASS);
    r->try.got = 1;
    assert_int_equal(judged(), REACH_FAIL);
}

/* ---- a row that must be open ---- */

static void open_needs_the_sink(void **state)
{
    struct reach_row *r = one(CELLA_REACH_ALLOW, CELLA_REACH_BY_SINK);

    (void)state;
    assert_int_equal(judged(), REACH_NOT_MEASURED);
    r->try = (struct reach_try){.told = 1, .connected = 1};
    assert_int_equal(judged(), REACH_FAIL);
    r->try.got = 100; /* a real server answered: it was not diverted */
    assert_int_equal(judged(), REACH_FAIL);
    r->try.bytes = 100;
    assert_int_equal(judged(), REACH_PASS);
}

/* ---- the probe's words ---- */

static void lines_are(const char *want)
{
    auto_buf struct buf b = BUF_INIT;

    assert_int_equal(matrix_lines(&m, 500, 900, &b), 0);
    buf_add(&b, "", 1);
    assert_string_equal(b.ptr, want);
}

static void lines_name_ports_and_twins(void **state)
{
    char want[512];

    (void)state;
    one(CELLA_REACH_DENY, CELLA_REACH_BY_SINK);
    add("y", "tcp", CELLA_REACH_ALLOW, CELLA_REACH_BY_SINK);
    m.count++;
    snprintf(want, sizeof(want),
             "cella-probe-2 %s 500 900\nr0 tcp 203.0.113.1 80 %u - sport=53\n"
             "t0 tcp 203.0.113.1 80 %u - -\nr1 tcp 203.0.113.1 80 %u - sport=53\n.\n",
             m.nonce, m.port, m.twin, m.port + 1);
    lines_are(want);
    assert_true(m.port >= REACH_PORT_LO && m.twin == m.port + REACH_BATCH);
    assert_true(m.held == m.twin + REACH_TWIN_PORTS && m.held + REACH_HELD_MAX <= REACH_PORT_HI);
}

/* First what others wait for; its tries have ports of their own, its twins do not. */
static void held_rows_come_first(void **state)
{
    struct cella_reach_seen s = {.bytes = 5};
    char want[512];

    (void)state;
    one(CELLA_REACH_ALLOW, CELLA_REACH_BY_SINK);
    add_with("h", "tcp", "held", CELLA_REACH_DENY);
    m.count = 2;
    snprintf(want, sizeof(want),
             "cella-probe-2 %s 500 900\nr1 tcp 203.0.113.1 80 %u - held\n"
             "t1 tcp 203.0.113.1 80 %u - held\nr0 tcp 203.0.113.1 80 %u - sport=53\n.\n",
             m.nonce, m.held, m.twin + 1, m.port);
    lines_are(want);
    s.port = m.held;
    matrix_seen(&m, &s);
    s.port = m.port + 1; /* nobody's */
    matrix_seen(&m, &s);
    assert_int_equal(m.rows[1].try.bytes, 5);
    assert_int_equal(m.rows[1].twin.bytes, 0);
}

/* The first hop of a redirect goes out where everything is open, both for the try and for the twin. */
static void redirects_have_a_port_for_the_first_hop(void **state)
{
    char want[512];

    (void)state;
    matrix_fini(&m);
    add_with("v", "redirect", "to=203.0.113.9", CELLA_REACH_DENY);
    assert_int_equal(matrix_plan(&m), 0);
    assert_int_equal(matrix_next(&m), 1);
    snprintf(want, sizeof(want),
             "cella-probe-2 %s 500 900\nr0 redirect 203.0.113.1 80 %u - to=203.0.113.9;via=%u\n"
             "t0 redirect 203.0.113.1 80 %u - to=203.0.113.9;via=%u\n.\n",
             m.nonce, m.port, m.twin + REACH_BATCH, m.twin, m.twin + REACH_BATCH + 1);
    lines_are(want);
}

static void what_the_probe_has_no_room_for_is_not_tried(void **state)
{
    char longer[100], want[100];

    (void)state;
    matrix_fini(&m);
    memset(longer, 'k', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = 0;
    add_with("l", longer, "", CELLA_REACH_DENY);
    assert_int_equal(matrix_plan(&m), 0);
    assert_int_equal(matrix_next(&m), 1);
    snprintf(want, sizeof(want), "cella-probe-2 %s 500 900\n.\n", m.nonce);
    lines_are(want);
    matrix_judge(&m);
    assert_int_equal(m.rows[0].result, REACH_NOT_MEASURED);
}

static int output(const char *text)
{
    return matrix_output(&m, text, strlen(text));
}

static void output_is_checked(void **state)
{
    (void)state;
    one(CELLA_REACH_DENY, CELLA_REACH_BY_SINK);
    assert_int_equal(output("{\"id\":\"r0\",\"errno\":111,\"connected\":0,\"got\":0,\"us\":5}\n"
                            "{\"id\":\"t0\",\"errno\":0,\"connected\":1,\"got\":7,\"us\":5}\n"),
                     0);
    assert_int_equal(m.rows[0].try.errnum, 111);
    assert_int_equal(m.rows[0].twin.got, 7);
    assert_int_equal(output("{\"id\":\"r0\",\"errno\":0}\n"), -EPROTO); /* said twice */
    assert_int_equal(output("{\"id\":\"r1\",\"errno\":0}\n"), -EPROTO);
    assert_int_equal(output("{\"id\":\"r-1\",\"errno\":0}\n"), -EPROTO);
    assert_int_equal(output("{\"errno\":0}\n"), -EPROTO);
    one(CELLA_REACH_DENY, CELLA_REACH_BY_SINK);
    assert_int_equal(output("{\"id\":\"r0\",\"errno\":-1}\n"), -EPROTO);
    assert_int_equal(output("{\"id\":\"r0\",\"got\":-2}\n"), -EPROTO);
    assert_int_equal(output("hello\n"), -EPROTO);
    assert_int_equal(output(""), 0);
}

static void seen_is_for_its_port(void **state)
{
    struct cella_reach_seen s = {.bytes = 5, .carried = 1};

    (void)state;
    one(CELLA_REACH_DENY, CELLA_REACH_BY_SINK);
    s.port = m.port;
    matrix_seen(&m, &s);
    s.port = m.port + 1;
    matrix_seen(&m, &s);
    assert_int_equal(m.rows[0].try.bytes, 5);
    assert_int_equal(m.rows[0].twin.bytes, 0);
    s.port = m.twin;
    matrix_seen(&m, &s);
    assert_int_equal(m.rows[0].twin.bytes, 5);
}

static void sockets_of_an_own_kernel_say_nothing(void **state)
{
    (void)state;
    m.own_kernel = 1;
    add("s", "socket", CELLA_REACH_DENY, CELLA_REACH_BY_CELL);
    assert_int_equal(m.n, 0);
    assert_int_equal(matrix_plan(&m), -ENODATA);
    matrix_judge(&m);
    assert_string_equal(matrix_verdict(&m), "not_measured"); /* no rows prove nothing */
}

static void rows_come_in_batches(void **state)
{
    struct cella_reach_seen s = {.bytes = 5};
    unsigned i;

    (void)state;
    matrix_fini(&m);
    for (i = 0; i < REACH_BATCH + 3; i++)
        add("x", "tcp", CELLA_REACH_ALLOW, CELLA_REACH_BY_SINK);
    assert_int_equal(matrix_plan(&m), 0);
    assert_int_equal(matrix_next(&m), REACH_BATCH);
    s.port = m.port;
    matrix_seen(&m, &s);
    assert_int_equal(output("{\"id\":\"r0\",\"errno\":0,\"got\":5}\n"), 0);
    matrix_judge(&m); /* as if the time were over */
    assert_int_equal(m.pass, 1);
    assert_int_equal(m.not_measured + m.fail, REACH_BATCH + 2);
    assert_string_equal(m.rows[REACH_BATCH].saw, "no time was left for it");
    assert_int_equal(matrix_next(&m), 3);
    assert_int_equal(output("{\"id\":\"r0\",\"errno\":0}\n"), -EPROTO); /* of another batch */
    assert_int_equal(output("{\"id\":\"r2048\",\"errno\":0,\"got\":5}\n"), 0);
    matrix_seen(&m, &s);
    assert_int_equal(m.rows[0].try.bytes, 5);
    assert_int_equal(m.rows[REACH_BATCH].try.bytes, 5);
    assert_int_equal(matrix_next(&m), 0);
}

static void rows_beyond_the_most_are_no_pass(void **state)
{
    struct reach_row *r = closed_row();
    unsigned i;

    (void)state;
    assert_int_equal(judged(), REACH_PASS);
    (void)r;
    for (i = 0; i < REACH_ROWS_MAX; i++)
        add("x", "tcp", CELLA_REACH_DENY, CELLA_REACH_BY_SINK);
    assert_int_equal(m.n, REACH_ROWS_MAX);
    assert_int_equal(m.dropped, 1);
    for (i = 1; i < m.n; i++)
        m.rows[i].try = m.rows[0].try, m.rows[i].twin = m.rows[0].twin;
    m.first = 0;
    m.count = m.n;
    matrix_judge(&m);
    assert_int_equal(m.pass, m.n);
    assert_string_equal(matrix_verdict(&m), "not_measured");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(closed_needs_refusal_and_twin),
        T(twin_by_name_needs_more_than_its_question),
        T(closed_fails_on_any_byte),
        T(closed_is_not_passed_untried),
        T(closed_inside_needs_its_twin),
        T(open_needs_the_sink),
        T(lines_name_ports_and_twins),
        T(held_rows_come_first),
        T(redirects_have_a_port_for_the_first_hop),
        T(what_the_probe_has_no_room_for_is_not_tried),
        T(output_is_checked),
        T(seen_is_for_its_port),
        T(sockets_of_an_own_kernel_say_nothing),
        T(rows_come_in_batches),
        T(rows_beyond_the_most_are_no_pass),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
