/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * core/link against a hostile agent: this test is the other end of the socket and sends what no
 * agent may. Each row of `cases` must end the link with -EPROTO, a sentence that holds the given
 * words, and an EPIPE for every stream.
 */
#include "link_rig.h"

/* ---- violations ---- */

#define U(...) put_u32s(b, __VA_ARGS__)

static void v_hello_twice(struct buf *b)
{
    put_hello(b);
}
static void v_unknown_stream(struct buf *b)
{
    put(b, CELLA_FRAME_DATA, 1, 99, 0, "x", 1);
}
static void v_stream_zero(struct buf *b)
{
    put(b, CELLA_FRAME_DATA, 1, 0, 0, "x", 1);
}
static void v_unknown_type(struct buf *b)
{
    put(b, 77, 0, 1, 0, NULL, 0);
}
static void v_host_type(struct buf *b)
{
    put(b, CELLA_FRAME_OPEN, 0, 1, 0, NULL, 0);
}
static void v_signal(struct buf *b)
{
    U(CELLA_FRAME_SIGNAL, 0, 1, CELLA_TAG_SIGNAL, 9, 0, 0);
}
static void v_call(struct buf *b)
{
    put(b, CELLA_FRAME_CALL, 0, 1, 0, "{}", 2);
}
static void v_id(struct buf *b)
{
    put(b, CELLA_FRAME_DATA, 1, 1, 3, "x", 1);
}
static void v_too_long(struct buf *b)
{
    put(b, CELLA_FRAME_DATA, 1, 1, 0, NULL, CELLA_FRAME_MAX + 1);
}
static void v_huge(struct buf *b)
{
    put(b, CELLA_FRAME_DATA, 1, 1, 0, NULL, UINT32_MAX);
}
static void v_empty_data(struct buf *b)
{
    put(b, CELLA_FRAME_DATA, 1, 1, 0, NULL, 0);
}
static void v_data_on_in(struct buf *b)
{
    put(b, CELLA_FRAME_DATA, 0, 1, 0, "x", 1);
}
static void v_channel_9(struct buf *b)
{
    put(b, CELLA_FRAME_DATA, 9, 1, 0, "x", 1);
}
static void v_err_of_tty(struct buf *b)
{
    put(b, CELLA_FRAME_DATA, 2, 2, 0, "x", 1);
}
static void v_err_of_get(struct buf *b)
{
    put(b, CELLA_FRAME_DATA, 2, 5, 0, "x", 1);
}
static void v_data_of_put(struct buf *b)
{
    put(b, CELLA_FRAME_DATA, 1, 4, 0, "x", 1);
}
static void v_before_opened(struct buf *b)
{
    put(b, CELLA_FRAME_DATA, 1, 3, 0, "x", 1);
}
static void v_opened_twice(struct buf *b)
{
    U(CELLA_FRAME_OPENED, 0, 1, CELLA_TAG_PID, 5, 0, 0);
}
static void v_opened_get(struct buf *b)
{
    U(CELLA_FRAME_OPENED, 0, 5, CELLA_TAG_PID, 5, 0, 0);
}
static void v_opened_no_pid(struct buf *b)
{
    put(b, CELLA_FRAME_OPENED, 0, 3, 0, NULL, 0);
}
static void v_opened_pid_zero(struct buf *b)
{
    U(CELLA_FRAME_OPENED, 0, 3, CELLA_TAG_PID, 0, 0, 0);
}
static void v_opened_channel(struct buf *b)
{
    U(CELLA_FRAME_OPENED, 1, 3, CELLA_TAG_PID, 5, 0, 0);
}
static void v_credit_unsent(struct buf *b)
{
    U(CELLA_FRAME_CREDIT, 0, 1, CELLA_TAG_COUNT, 1, 0, 0);
}
static void v_credit_zero(struct buf *b)
{
    U(CELLA_FRAME_CREDIT, 0, 1, CELLA_TAG_COUNT, 0, 0, 0);
}
static void v_credit_no_in(struct buf *b)
{
    U(CELLA_FRAME_CREDIT, 0, 2, CELLA_TAG_COUNT, 1, 0, 0);
}
static void v_credit_on_out(struct buf *b)
{
    U(CELLA_FRAME_CREDIT, 1, 1, CELLA_TAG_COUNT, 1, 0, 0);
}
static void v_exit_of_get(struct buf *b)
{
    U(CELLA_FRAME_EXIT, 0, 5, CELLA_TAG_STATUS, 0, 0, 0);
}
static void v_exit_unopened(struct buf *b)
{
    U(CELLA_FRAME_EXIT, 0, 3, CELLA_TAG_STATUS, 0, 0, 0);
}
static void v_exit_empty(struct buf *b)
{
    put(b, CELLA_FRAME_EXIT, 0, 1, 0, NULL, 0);
}
static void v_exit_both(struct buf *b)
{
    U(CELLA_FRAME_EXIT, 0, 1, CELLA_TAG_STATUS, 0, CELLA_TAG_TERM_SIGNAL, 9);
}
static void v_exit_256(struct buf *b)
{
    U(CELLA_FRAME_EXIT, 0, 1, CELLA_TAG_STATUS, 256, 0, 0);
}
static void v_exit_sig_65(struct buf *b)
{
    U(CELLA_FRAME_EXIT, 0, 1, CELLA_TAG_TERM_SIGNAL, 65, 0, 0);
}
static void v_exit_timed_2(struct buf *b)
{
    U(CELLA_FRAME_EXIT, 0, 1, CELLA_TAG_STATUS, 0, CELLA_TAG_TIMED_OUT, 2);
}
static void v_exit_repeat(struct buf *b)
{
    U(CELLA_FRAME_EXIT, 0, 1, CELLA_TAG_STATUS, 0, CELLA_TAG_STATUS, 0);
}
static void v_exit_stray_field(struct buf *b)
{
    U(CELLA_FRAME_EXIT, 0, 1, CELLA_TAG_STATUS, 0, CELLA_TAG_UID, 0);
}
static void v_result_of_exec(struct buf *b)
{
    put(b, CELLA_FRAME_RESULT, 0, 1, 0, NULL, 0);
}
static void v_result_no_eof(struct buf *b)
{
    U(CELLA_FRAME_RESULT, 0, 6, CELLA_TAG_COUNT, 0, 0, 0);
}
static void v_result_missing(struct buf *b)
{
    put(b, CELLA_FRAME_RESULT, 0, 4, 0, NULL, 0);
}
static void v_stat_short(struct buf *b)
{
    U(CELLA_FRAME_RESULT, 0, 7, CELLA_TAG_TYPE, 0100000, 0, 0);
}
static void v_stat_mode(struct buf *b)
{
    U(CELLA_FRAME_RESULT, 0, 7, CELLA_TAG_MODE, 010000, 0, 0);
}
static void v_error_zero(struct buf *b)
{
    U(CELLA_FRAME_ERROR, 0, 4, CELLA_TAG_ERRNO, 0, 0, 0);
}
static void v_error_empty(struct buf *b)
{
    put(b, CELLA_FRAME_ERROR, 0, 4, 0, NULL, 0);
}
static void v_eof_payload(struct buf *b)
{
    put(b, CELLA_FRAME_EOF, 1, 1, 0, "x", 1);
}
static void v_eof_in(struct buf *b)
{
    put(b, CELLA_FRAME_EOF, 0, 1, 0, NULL, 0);
}
static void v_field_short(struct buf *b)
{
    put(b, CELLA_FRAME_ERROR, 0, 4, 0, "\106\0\0\0", 4);
}
static void v_field_reserved(struct buf *b)
{
    put(b, CELLA_FRAME_ERROR, 0, 4, 0, "\106\0\1\0\4\0\0\0\1\0\0\0", 12);
}
static void v_field_long(struct buf *b)
{
    put(b, CELLA_FRAME_ERROR, 0, 4, 0, "\106\0\0\0\5\0\0\0\1\0\0\0", 12);
}
static void v_field_width(struct buf *b)
{
    put(b, CELLA_FRAME_ERROR, 0, 4, 0, "\106\0\0\0\3\0\0\0\1\0\0", 11);
}

static void v_beyond_credit(struct buf *b)
{
    int i;

    for (i = 0; i < 4; i++)
        put(b, CELLA_FRAME_DATA, 1, 1, 0, zeros, CELLA_FRAME_MAX);
    put(b, CELLA_FRAME_DATA, 1, 1, 0, "x", 1);
}

static void v_data_after_eof(struct buf *b)
{
    put(b, CELLA_FRAME_EOF, 1, 1, 0, NULL, 0);
    put(b, CELLA_FRAME_DATA, 1, 1, 0, "x", 1);
}

static void v_eof_twice(struct buf *b)
{
    put(b, CELLA_FRAME_EOF, 2, 1, 0, NULL, 0);
    put(b, CELLA_FRAME_EOF, 2, 1, 0, NULL, 0);
}

static void v_after_terminal(struct buf *b)
{
    U(CELLA_FRAME_EXIT, 0, 1, CELLA_TAG_STATUS, 0, 0, 0);
    put(b, CELLA_FRAME_DATA, 1, 1, 0, "x", 1);
}

static void v_terminal_twice(struct buf *b)
{
    U(CELLA_FRAME_ERROR, 0, 4, CELLA_TAG_ERRNO, 5, 0, 0);
    U(CELLA_FRAME_ERROR, 0, 4, CELLA_TAG_ERRNO, 5, 0, 0);
}

static void v_message_long(struct buf *b)
{
    error_with(b, zeros, 513);
}
static void v_message_nul(struct buf *b)
{
    error_with(b, "a\0b", 3);
}

#define ROW(f, words)                                                                              \
    {                                                                                              \
#f, f, words                                                                               \
    }
static const struct {
    const char *name;
    void (*make)(struct buf *b);
    const char *words;
} cases[] = {
    ROW(v_hello_twice, "second time"),
    ROW(v_unknown_stream, "not open"),
    ROW(v_stream_zero, "not open"),
    ROW(v_unknown_type, "77"),
    ROW(v_host_type, "not one an agent"),
    ROW(v_signal, "not one an agent"),
    ROW(v_call, "not one an agent"),
    ROW(v_id, "id 3"),
    ROW(v_too_long, "longer"),
    ROW(v_huge, "longer"),
    ROW(v_empty_data, "empty"),
    ROW(v_data_on_in, "channel 0"),
    ROW(v_channel_9, "channel 9"),
    ROW(v_err_of_tty, "channel 2"),
    ROW(v_err_of_get, "channel 2"),
    ROW(v_data_of_put, "channel 1"),
    ROW(v_before_opened, "before OPENED"),
    ROW(v_opened_twice, "second time"),
    ROW(v_opened_get, "not an exec"),
    ROW(v_opened_no_pid, "missing"),
    ROW(v_opened_pid_zero, "outside"),
    ROW(v_opened_channel, "channel 1"),
    ROW(v_credit_unsent, "not sent"),
    ROW(v_credit_zero, "outside"),
    ROW(v_credit_no_in, "has not"),
    ROW(v_credit_on_out, "has not"),
    ROW(v_exit_of_get, "runs nothing"),
    ROW(v_exit_unopened, "runs nothing"),
    ROW(v_exit_empty, "either"),
    ROW(v_exit_both, "either"),
    ROW(v_exit_256, "256"),
    ROW(v_exit_sig_65, "65"),
    ROW(v_exit_timed_2, "outside"),
    ROW(v_exit_repeat, "twice"),
    ROW(v_exit_stray_field, "unexpected"),
    ROW(v_result_of_exec, "is an exec"),
    ROW(v_result_no_eof, "before EOF"),
    ROW(v_result_missing, "missing"),
    ROW(v_stat_short, "missing"),
    ROW(v_stat_mode, "outside"),
    ROW(v_error_zero, "outside"),
    ROW(v_error_empty, "missing"),
    ROW(v_eof_payload, "payload"),
    ROW(v_eof_in, "channel 0"),
    ROW(v_field_short, "malformed"),
    ROW(v_field_reserved, "malformed"),
    ROW(v_field_long, "malformed"),
    ROW(v_field_width, "wrong length"),
    ROW(v_beyond_credit, "credit of 0"),
    ROW(v_data_after_eof, "after EOF"),
    ROW(v_eof_twice, "after EOF"),
    ROW(v_after_terminal, "not open"),
    ROW(v_terminal_twice, "not open"),
    ROW(v_message_long, "at most 512"),
    ROW(v_message_nul, "NUL"),
};

static void test_violations(void **state)
{
    size_t i;
    int k;

    (void)state;
    for (i = 0; i < ARRAY_LEN(cases); i++) {
        auto_buf struct buf b = BUF_INIT;
        struct rig r;

        rig_new(&r);
        cases[i].make(&b);
        spill(&r, &b);
        if (r.seen.closed != 1 || r.seen.code != -EPROTO || !strstr(r.seen.why, cases[i].words))
            fail_msg("%s: closed %d, code %d, why '%s'; expected '%s'", cases[i].name,
                     r.seen.closed, r.seen.code, r.seen.why, cases[i].words);
        for (k = 1; k <= 7; k++)
            assert_int_equal(r.per_stream[k].ended, 1);
        assert_int_equal(r.per_stream[6].err_no, EPIPE);
        rig_free(&r);
    }
}

static void expect_closed_before_hello(const struct buf *b, const char *words)
{
    struct rig r = {0};
    int sv[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
    assert_int_equal(loop_new(&r.loop), 0);
    r.peer = sv[1];
    assert_int_equal(link_new(r.loop, sv[0], &events, &r, &r.link), 0);
    spill(&r, b);
    assert_int_equal(r.seen.closed, 1);
    assert_int_equal(r.seen.code, -EPROTO);
    assert_int_equal(r.seen.hello, 0);
    assert_non_null(strstr(r.seen.why, words));
    rig_free(&r);
}

static void test_hello_comes_first(void **state)
{
    auto_buf struct buf a = BUF_INIT, d = BUF_INIT, e = BUF_INIT, f = BUF_INIT;

    (void)state;
    put(&a, CELLA_FRAME_DATA, 1, 1, 0, "x", 1);
    expect_closed_before_hello(&a, "before HELLO");
    put_u32s(&d, CELLA_FRAME_HELLO, 0, 0, CELLA_TAG_VERSION, 2, CELLA_TAG_PID, 1);
    expect_closed_before_hello(&d, "speaks version 2");
    put_u32s(&e, CELLA_FRAME_HELLO, 0, 5, CELLA_TAG_VERSION, 1, CELLA_TAG_PID, 1);
    expect_closed_before_hello(&e, "stream 5");
    put_u32s(&f, CELLA_FRAME_HELLO, 0, 0, CELLA_TAG_VERSION, 1, 0, 0);
    expect_closed_before_hello(&f, "missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_violations),
        cmocka_unit_test(test_hello_comes_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
