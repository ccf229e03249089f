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

static void add(const char *id, const char *kind, uint32_t expected, uint32_t proof)
{
    struct cella_reach_row row = {.hdr =
                                      CELLA_HDR_INIT(struct cella_reach_row, CELLA_KIND_REACH_ROW),
                                  .id = id,
                                  .group = "g",
                                  .kind = kind,
                                  .address = "203.0.113.1",
                                  .twin_address = "",
                                  .name = "",
                                  .options = "sport=53",
                                  .rule = "",
                                  .why = "why not",
                                  .port = 80,
                                  .expected = expected,
                                  .proof = proof};

    matrix_row(&m, &row);
}

/* One row and its twin, nothing known yet. */
static struct reach_row *one(uint32_t expected, uint32_t proof)
{
    matrix_fini(&m);
    add("x", "tcp", expected, proof);
    assert_int_equal(matrix_plan(&m), 0);
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

static void lines_name_ports_and_twins(void **state)
{
    auto_buf struct buf b = BUF_INIT;
    char want[256];

    (void)state;
    one(CELLA_REACH_DENY, CELLA_REACH_BY_SINK);
    add("y", "tcp", CELLA_REACH_ALLOW, CELLA_REACH_BY_SINK);
    assert_int_equal(matrix_lines(&m, 500, &b), 0);
    snprintf(want, sizeof(want),
             "cella-probe-1 %s 500\nr0 tcp 203.0.113.1 80 %u - sport=53\n"
             "t0 tcp 203.0.113.1 80 %u - -\nr1 tcp 203.0.113.1 80 %u - sport=53\n",
             m.nonce, m.port, m.twin, m.port + 1);
    assert_int_equal(b.len, strlen(want));
    assert_memory_equal(b.ptr, want, b.len);
    assert_true(m.port >= 20000 && m.twin + REACH_ROWS_MAX <= 32768);
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

static void too_many_rows_are_refused(void **state)
{
    unsigned i;

    (void)state;
    for (i = 0; i <= REACH_ROWS_MAX; i++)
        add("x", "tcp", CELLA_REACH_DENY, CELLA_REACH_BY_SINK);
    assert_int_equal(m.n, REACH_ROWS_MAX);
    assert_int_equal(matrix_plan(&m), -E2BIG);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(closed_needs_refusal_and_twin),
        T(closed_fails_on_any_byte),
        T(closed_is_not_passed_untried),
        T(closed_inside_needs_its_twin),
        T(open_needs_the_sink),
        T(lines_name_ports_and_twins),
        T(output_is_checked),
        T(seen_is_for_its_port),
        T(sockets_of_an_own_kernel_say_nothing),
        T(too_many_rows_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
