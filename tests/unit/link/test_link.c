/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* core/link and an agent that does what it may: a whole life, pieces, credit, orphans. The other end is the test. */
#include "link_rig.h"

/* ---- what is allowed ---- */

static void test_whole_life(void **state)
{
    auto_buf struct buf b = BUF_INIT, c = BUF_INIT;
    struct rig r;

    (void)state;
    rig_new(&r);
    assert_int_equal(link_credit(r.s[1]), CELLA_WINDOW);
    assert_int_equal(link_send(r.s[1], CELLA_FRAME_DATA, 0, zeros, 1000), 0);
    assert_int_equal(link_credit(r.s[1]), CELLA_WINDOW - 1000);
    put_u32s(&b, CELLA_FRAME_CREDIT, 0, 1, CELLA_TAG_COUNT, 1000, 0, 0);
    put(&b, CELLA_FRAME_DATA, 1, 1, 0, zeros, CELLA_FRAME_MAX);
    put(&b, CELLA_FRAME_DATA, 2, 1, 0, "e", 1);
    put(&b, CELLA_FRAME_EOF, 1, 1, 0, NULL, 0);
    put(&b, CELLA_FRAME_EOF, 2, 1, 0, NULL, 0);
    put_u32s(&b, CELLA_FRAME_EXIT, 0, 1, CELLA_TAG_STATUS, 255, CELLA_TAG_TIMED_OUT, 1);
    put(&b, CELLA_FRAME_EOF, 1, 6, 0, NULL, 0);
    put_u32s(&b, CELLA_FRAME_RESULT, 0, 6, CELLA_TAG_COUNT, 0, 0, 0);
    error_with(&b, "no", 2);
    spill(&r, &b);
    assert_int_equal(r.seen.closed, 0);
    assert_int_equal(r.per_stream[1].ended, 1);
    assert_int_equal(r.per_stream[1].bytes, CELLA_FRAME_MAX + 1);
    assert_int_equal(r.per_stream[6].last, CELLA_FRAME_RESULT);
    assert_int_equal(r.per_stream[4].err_no, 5);
    close(r.peer);
    r.peer = -1;
    spill(&r, &c);
    assert_int_equal(r.seen.closed, 1);
    assert_int_equal(r.seen.code, -ECONNRESET);
    assert_int_equal(r.per_stream[2].err_no, EPIPE);
    rig_free(&r);
}

/* Byte by byte arrives the same. */
static void test_fragments(void **state)
{
    auto_buf struct buf b = BUF_INIT;
    struct rig r;
    size_t i;

    (void)state;
    rig_new(&r);
    put(&b, CELLA_FRAME_DATA, 1, 1, 0, "hello", 5);
    put_u32s(&b, CELLA_FRAME_EXIT, 0, 1, CELLA_TAG_TERM_SIGNAL, 9, 0, 0);
    for (i = 0; i < b.len; i++) {
        assert_int_equal(send(r.peer, b.ptr + i, 1, 0), 1);
        loop_turn(r.loop, 0);
    }
    assert_int_equal(r.per_stream[1].bytes, 5);
    assert_int_equal(r.per_stream[1].ended, 1);
    assert_int_equal(r.seen.closed, 0);
    rig_free(&r);
}

static void test_sending_rules(void **state)
{
    auto_buf struct buf c = BUF_INIT, f = BUF_INIT;
    struct link_stream *s;
    struct rig r;
    int i;

    (void)state;
    rig_new(&r);
    field_add_u32(&c, CELLA_TAG_COUNT, 1);
    assert_int_equal(link_send(r.s[1], CELLA_FRAME_CREDIT, 1, c.ptr, c.len),
                     -EINVAL); /* nothing was received */
    assert_int_equal(link_send(r.s[5], CELLA_FRAME_DATA, 0, "x", 1), -EINVAL);
    assert_int_equal(link_send(r.s[1], CELLA_FRAME_DATA, 0, "", 0), -EINVAL);
    assert_int_equal(link_send(r.s[1], CELLA_FRAME_RESIZE, 0, NULL, 0), -EINVAL);
    assert_int_equal(link_send(r.s[5], CELLA_FRAME_SIGNAL, 0, NULL, 0), -EINVAL);
    assert_int_equal(link_send(r.s[1], CELLA_FRAME_HELLO, 0, NULL, 0), -EINVAL);
    for (i = 0; i < 4; i++)
        assert_int_equal(link_send(r.s[1], CELLA_FRAME_DATA, 0, zeros, CELLA_FRAME_MAX), 0);
    assert_int_equal(link_send(r.s[1], CELLA_FRAME_DATA, 0, "x", 1), -EAGAIN);
    assert_int_equal(link_send(r.s[4], CELLA_FRAME_EOF, 0, NULL, 0), 0);
    assert_int_equal(link_send(r.s[4], CELLA_FRAME_DATA, 0, "x", 1), -EPIPE);
    assert_int_equal(link_credit(r.s[4]), 0);
    field_add_u32(&f, CELLA_TAG_OP, 99);
    assert_int_equal(link_open(r.link, f.ptr, f.len, &stream_events, NULL, &s), -EINVAL);
    assert_int_equal(link_open(r.link, zeros, 3, &stream_events, NULL, &s), -EBADMSG);
    rig_free(&r);
}

static void test_too_many_streams(void **state)
{
    auto_buf struct buf f = BUF_INIT;
    struct link_stream *s;
    struct rig r;
    int n = 7;

    (void)state;
    rig_new(&r);
    field_add_u32(&f, CELLA_TAG_OP, CELLA_OP_MKDIR);
    while (n < (int)CELLA_STREAMS_MAX) {
        assert_int_equal(link_open(r.link, f.ptr, f.len, &stream_events, &r.per_stream[0], &s), 0);
        n++;
    }
    assert_int_equal(link_open(r.link, f.ptr, f.len, &stream_events, &r.per_stream[0], &s), -EBUSY);
    rig_free(&r);
}

static void test_agent_that_does_not_read(void **state)
{
    auto_buf struct buf f = BUF_INIT, c = BUF_INIT;
    struct link_stream *s;
    struct rig r;
    int i, k, code = 0;

    (void)state;
    rig_new(&r);
    field_add_u32(&f, CELLA_TAG_OP, CELLA_OP_PUT);
    for (i = 0; i < 200 && code == 0; i++) {
        code = link_open(r.link, f.ptr, f.len, &stream_events, &r.per_stream[0], &s);
        for (k = 0; k < 4 && code == 0; k++)
            code = link_send(s, CELLA_FRAME_DATA, 0, zeros, CELLA_FRAME_MAX);
    }
    assert_int_equal(code, -EPIPE);
    assert_int_equal(r.seen.closed, 0); /* not from inside our own call */
    spill(&r, &c);
    assert_int_equal(r.seen.closed, 1);
    assert_int_equal(r.seen.code, -EPROTO);
    assert_non_null(strstr(r.seen.why, "does not read"));
    rig_free(&r);
}

static void test_orphan_is_drained(void **state)
{
    auto_buf struct buf b = BUF_INIT;
    struct rig r;
    int i;

    (void)state;
    rig_new(&r);
    put(&b, CELLA_FRAME_DATA, 1, 1, 0, zeros, 1000); /* its credit was not yet returned */
    spill(&r, &b);
    link_stream_orphan(r.s[1]);
    buf_fini(&b);
    for (i = 0; i < 12; i++) /* three windows */
        put(&b, CELLA_FRAME_DATA, 1, 1, 0, zeros, CELLA_FRAME_MAX);
    put_u32s(&b, CELLA_FRAME_EXIT, 0, 1, CELLA_TAG_STATUS, 0, 0, 0);
    spill(&r, &b);
    assert_int_equal(r.seen.closed, 0);
    assert_int_equal(r.per_stream[1].ended, 0);
    assert_int_equal(r.per_stream[1].bytes, 1000);
    rig_free(&r);
}

static void test_free_from_callbacks(void **state)
{
    auto_buf struct buf b = BUF_INIT, bad = BUF_INIT;
    struct rig r;

    (void)state;
    put(&b, CELLA_FRAME_DATA, 1, 1, 0, "x", 1);
    put(&b, CELLA_FRAME_DATA, 1, 1, 0, "x", 1);
    rig_new(&r);
    r.per_stream[1].free_on_frame = 1;
    spill(&r, &b);
    assert_int_equal(r.per_stream[1].bytes, 1);
    assert_int_equal(r.seen.closed, 0);
    r.link = NULL;
    rig_free(&r);
    rig_new(&r);
    r.per_stream[5].free_on_end = 1; /* in the made-up end of a stream */
    put(&bad, 77, 0, 1, 0, NULL, 0);
    spill(&r, &bad);
    assert_int_equal(r.per_stream[5].ended, 1);
    assert_int_equal(r.seen.closed, 0);
    r.link = NULL;
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_life),
        cmocka_unit_test(test_fragments),
        cmocka_unit_test(test_sending_rules),
        cmocka_unit_test(test_too_many_streams),
        cmocka_unit_test(test_agent_that_does_not_read),
        cmocka_unit_test(test_orphan_is_drained),
        cmocka_unit_test(test_free_from_callbacks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
