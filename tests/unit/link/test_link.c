/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * core/link against a hostile agent: this test is the other end of the socket and sends what no
 * agent may. Each row of `cases` must end the link with -EPROTO, a sentence that holds the given
 * words, and an EPIPE for every stream.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>

#include "link_internal.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

struct seen {
    int hello, closed, code, frames, ended, free_on_frame, free_on_end;
    uint16_t last;
    uint32_t err_no;
    size_t bytes;
    char why[256];
    struct link *link;
};

struct rig {
    struct loop *loop;
    struct link *link;
    int peer;
    struct seen seen, per_stream[8];
    struct link_stream *s[8];
};

static void on_hello(void *ctx, uint32_t version)
{
    ((struct rig *)ctx)->seen.hello = (int)version;
}

static void on_closed(void *ctx, int code, const char *why)
{
    struct rig *r = ctx;

    r->seen.closed++;
    r->seen.code = code;
    snprintf(r->seen.why, sizeof(r->seen.why), "%s", why);
}

static void on_frame(void *ctx, struct link_stream *s, const struct cella_frame *f,
                     const uint8_t *p)
{
    struct seen *v = ctx;

    (void)s;
    v->frames++;
    v->last = f->type;
    if (f->type == CELLA_FRAME_DATA)
        v->bytes += f->length;
    if (f->type >= CELLA_FRAME_EXIT && f->type <= CELLA_FRAME_ERROR) {
        v->ended++;
        field_get_u32(p, f->length, CELLA_TAG_ERRNO, &v->err_no);
        assert_int_equal(link_send(s, CELLA_FRAME_CLOSE, 0, NULL, 0), -EPIPE);
    }
    if (v->free_on_frame || (v->free_on_end && v->ended))
        link_free(v->link);
}

static const struct link_events events = {on_hello, on_closed};
static const struct link_stream_events stream_events = {on_frame};

static void put(struct buf *b, uint16_t type, uint16_t channel, uint32_t stream, uint32_t id,
                const void *p, uint32_t len)
{
    uint8_t h[16] = {(uint8_t)len,
                     (uint8_t)(len >> 8),
                     (uint8_t)(len >> 16),
                     (uint8_t)(len >> 24),
                     (uint8_t)type,
                     (uint8_t)(type >> 8),
                     (uint8_t)channel,
                     (uint8_t)(channel >> 8),
                     (uint8_t)stream,
                     (uint8_t)(stream >> 8),
                     (uint8_t)(stream >> 16),
                     (uint8_t)(stream >> 24),
                     (uint8_t)id,
                     0,
                     0,
                     0};

    buf_add(b, h, sizeof(h));
    if (p)
        buf_add(b, p, len);
}

static void put_hello(struct buf *b)
{
    auto_buf struct buf f = BUF_INIT;

    field_add_u32(&f, CELLA_TAG_VERSION, CELLA_LINK_VERSION);
    field_add_u32(&f, CELLA_TAG_PID, 1);
    put(b, CELLA_FRAME_HELLO, 0, 0, 0, f.ptr, (uint32_t)f.len);
}

/* Frame with up to two u32 fields; tag 0 = none. */
static void put_u32s(struct buf *b, uint16_t type, uint16_t ch, uint32_t stream, uint16_t t1,
                     uint32_t v1, uint16_t t2, uint32_t v2)
{
    auto_buf struct buf f = BUF_INIT;

    if (t1)
        field_add_u32(&f, t1, v1);
    if (t2)
        field_add_u32(&f, t2, v2);
    put(b, type, ch, stream, 0, f.len ? f.ptr : "", (uint32_t)f.len);
}

static void spill(struct rig *r, const struct buf *b)
{
    size_t off = 0;
    int i;

    for (i = 0; i < 10000 && off < b->len; i++) {
        ssize_t n = send(r->peer, b->ptr + off, b->len - off, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            off += (size_t)n;
        else if (errno == EPIPE)
            break;
        loop_turn(r->loop, 0);
    }
    for (i = 0; i < 20; i++)
        loop_turn(r->loop, 0);
}

static void open_op(struct rig *r, int i, uint32_t op, uint16_t flag)
{
    auto_buf struct buf f = BUF_INIT;

    field_add_u32(&f, CELLA_TAG_OP, op);
    if (flag)
        field_add_u32(&f, flag, 1);
    r->per_stream[i].link = r->link;
    assert_int_equal(link_open(r->link, f.ptr, f.len, &stream_events, &r->per_stream[i], &r->s[i]),
                     0);
}

/* Streams: 1 exec with stdin (opened), 2 exec with a terminal (opened), 3 exec not opened, 4 PUT, 5
 * GET, 6 LIST, 7 STAT */
static void rig_new(struct rig *r)
{
    auto_buf struct buf b = BUF_INIT;
    int sv[2];

    memset(r, 0, sizeof(*r));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
    assert_int_equal(loop_new(&r->loop), 0);
    r->peer = sv[1];
    assert_int_equal(link_new(r->loop, sv[0], &events, r, &r->link), 0);
    open_op(r, 1, CELLA_OP_EXEC, CELLA_TAG_STDIN);
    open_op(r, 2, CELLA_OP_EXEC, CELLA_TAG_TTY);
    open_op(r, 3, CELLA_OP_EXEC, 0);
    open_op(r, 4, CELLA_OP_PUT, 0);
    open_op(r, 5, CELLA_OP_GET, 0);
    open_op(r, 6, CELLA_OP_LIST, 0);
    open_op(r, 7, CELLA_OP_STAT, 0);
    put_hello(&b);
    put_u32s(&b, CELLA_FRAME_OPENED, 0, 1, CELLA_TAG_PID, 5, 0, 0);
    put_u32s(&b, CELLA_FRAME_OPENED, 0, 2, CELLA_TAG_PID, 6, 0, 0);
    spill(r, &b);
    assert_int_equal(r->seen.hello, 1);
    assert_int_equal(r->seen.closed, 0);
    assert_int_equal(r->per_stream[1].last, CELLA_FRAME_OPENED);
}

static void rig_free(struct rig *r)
{
    link_free(r->link);
    loop_free(r->loop);
    close(r->peer);
}

/* ---- violations ---- */

#define U(...) put_u32s(b, __VA_ARGS__)
static char zeros[CELLA_FRAME_MAX];

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

static void error_with(struct buf *b, const void *msg, size_t n)
{
    auto_buf struct buf f = BUF_INIT;

    field_add_u32(&f, CELLA_TAG_ERRNO, 5);
    field_add(&f, CELLA_TAG_MESSAGE, msg, n);
    put(b, CELLA_FRAME_ERROR, 0, 4, 0, f.ptr, (uint32_t)f.len);
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
        cmocka_unit_test(test_violations),
        cmocka_unit_test(test_hello_comes_first),
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
