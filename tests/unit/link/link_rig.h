/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* link_rig - one link with seven streams, and its peer, which is the test. */
#ifndef CELLA_TEST_LINK_RIG_H
#define CELLA_TEST_LINK_RIG_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>

#include "link_internal.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

static char zeros[CELLA_FRAME_MAX];

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

static inline void on_hello(void *ctx, uint32_t version)
{
    ((struct rig *)ctx)->seen.hello = (int)version;
}

static inline void on_closed(void *ctx, int code, const char *why)
{
    struct rig *r = ctx;

    r->seen.closed++;
    r->seen.code = code;
    snprintf(r->seen.why, sizeof(r->seen.why), "%s", why);
}

static inline void on_frame(void *ctx, struct link_stream *s, const struct cella_frame *f,
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

static inline void put(struct buf *b, uint16_t type, uint16_t channel, uint32_t stream, uint32_t id,
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

static inline void put_hello(struct buf *b)
{
    auto_buf struct buf f = BUF_INIT;

    field_add_u32(&f, CELLA_TAG_VERSION, CELLA_LINK_VERSION);
    field_add_u32(&f, CELLA_TAG_PID, 1);
    put(b, CELLA_FRAME_HELLO, 0, 0, 0, f.ptr, (uint32_t)f.len);
}

/* Frame with up to two u32 fields; tag 0 = none. */
static inline void put_u32s(struct buf *b, uint16_t type, uint16_t ch, uint32_t stream, uint16_t t1,
                            uint32_t v1, uint16_t t2, uint32_t v2)
{
    auto_buf struct buf f = BUF_INIT;

    if (t1)
        field_add_u32(&f, t1, v1);
    if (t2)
        field_add_u32(&f, t2, v2);
    put(b, type, ch, stream, 0, f.len ? f.ptr : "", (uint32_t)f.len);
}

static inline void spill(struct rig *r, const struct buf *b)
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

static inline void open_op(struct rig *r, int i, uint32_t op, uint16_t flag)
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
static inline void rig_new(struct rig *r)
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

static inline void rig_free(struct rig *r)
{
    link_free(r->link);
    loop_free(r->loop);
    close(r->peer);
}

static inline void error_with(struct buf *b, const void *msg, size_t n)
{
    auto_buf struct buf f = BUF_INIT;

    field_add_u32(&f, CELLA_TAG_ERRNO, 5);
    field_add(&f, CELLA_TAG_MESSAGE, msg, n);
    put(b, CELLA_FRAME_ERROR, 0, 4, 0, f.ptr, (uint32_t)f.len);
}

#endif
