/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * h2 - HTTP/2 on both sides: a server session towards the cell, a client session to the upstream, stream
 * by stream. Only negotiated when the upstream chose it.
 *
 * Flow control goes end to end: what was read from one side is acknowledged when the other side took it, so a
 * flow buffers at most the two connection windows. No push; limits on streams, field blocks, and on
 * resets by the cell (each would cost the upstream a request). A stream that ends badly on one side is reset on the
 * other; a stream lives until both sides have closed it. All memory of a stream goes with it. One thread; callbacks run
 * inside mem_recv and mem_send.
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "h2.h"

#define STREAMS_MAX 100u
#define STREAM_WINDOW (256 << 10)
#define CONNECTION_WINDOW (1 << 20)
#define RESETS_BURST 200u
#define RESETS_RATE 30u

static int dir_of(const struct flow *f, const nghttp2_session *session)
{
    return session == f->h2->s[TO_CELL] ? TO_CELL : TO_UP;
}

void h2_reset(struct stream *s, int dir, uint32_t code)
{
    nghttp2_session *session = s->f->h2->s[dir];

    if (session && s->id[dir])
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id[dir], code);
}

void h2_resume(struct stream *s, int dir)
{
    if (s->f->h2->s[dir] && s->id[dir])
        nghttp2_session_resume_data(s->f->h2->s[dir], s->id[dir]); /* no harm if it does not wait */
}

/* ---------------------------------------------------------------- streams */

static struct stream *stream_new(struct flow *f, int32_t id)
{
    struct stream *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->f = f;
    s->id[TO_CELL] = id;
    s->next = f->h2->streams;
    f->h2->streams = s;
    return s;
}

static void stream_free(struct stream *s)
{
    struct stream **p;
    int i;

    for (p = &s->f->h2->streams; *p && *p != s; p = &(*p)->next)
        ;
    if (*p)
        *p = s->next;
    for (i = 0; i < 2; i++) {
        block_free(s->block[i]);
        block_free(s->trailer[i]);
        bytes_fini(&s->body[i]);
    }
    free(s->judged.path);
    free(s);
}

/* `n` bytes of data towards `dir` have left the buffer: the sender may send as many. */
static void consumed(struct stream *s, int dir, size_t n)
{
    nghttp2_session *source = s->f->h2->s[!dir];

    if (!source || (dir == TO_CELL && s->local))
        return;
    if (s->id[!dir])
        nghttp2_session_consume(source, s->id[!dir], n);
    else
        nghttp2_session_consume_connection(source, n);
}

/* Data that nobody will take any more: the sender's window must not pay for it. */
static void forget_data(struct stream *s, int dir)
{
    if (s->body[dir].len)
        consumed(s, dir, s->body[dir].len);
    bytes_fini(&s->body[dir]);
}

/* ------------------------------------------------------------------- data */

/* `dir`'s session asks for data of the stream. */
static ssize_t data_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room,
                         uint32_t *flags, nghttp2_data_source *source, void *data)
{
    struct stream *s = source->ptr;
    int dir = dir_of(data, session);
    struct bytes *b = &s->body[dir];
    size_t n = b->len < room ? b->len : room;

    if (!n && !s->ended[dir])
        return NGHTTP2_ERR_DEFERRED;
    if (n) {
        memcpy(buf, bytes_at(b), n);
        bytes_drop(b, n);
        consumed(s, dir, n);
    }
    if (b->len || !s->ended[dir])
        return (ssize_t)n;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (s->trailer[dir]) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        h2_submit_trailer(s, dir);
    } else if (dir == TO_CELL && !s->ended[TO_UP]) { /* the rest of the request is not wanted */
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR);
    }
    return (ssize_t)n;
}

nghttp2_data_provider h2_provider(struct stream *s)
{
    return (nghttp2_data_provider){.source = {.ptr = s}, .read_callback = data_read};
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
                   void *data)
{
    struct stream *s = nghttp2_session_get_stream_user_data(session, id);
    int to = !dir_of(data, session);

    (void)flags;
    if (!s || !s->id[to] || (to == TO_UP && s->local)) {
        nghttp2_session_consume(session, id, n);
        return 0;
    }
    if (bytes_add(&s->body[to], p, n) < 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    h2_resume(s, to);
    return 0;
}

/* ----------------------------------------------------------------- frames */

static int on_begin(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct flow *f = data;
    int to = !dir_of(f, session);
    struct stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

    if (frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    if (!s && to == TO_UP) {
        s = stream_new(f, frame->hd.stream_id);
        nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, s);
    }
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    block_free(s->block[to]);
    s->block[to] = block_new();
    return s->block[to] ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *data)
{
    struct stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    int to = !dir_of(data, session);

    (void)flags;
    if (!s || !s->block[to])
        return 0;
    return block_add(s->block[to], name, name_len, value, value_len) < 0
               ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
               : 0;
}

static void on_block(struct stream *s, int to, const nghttp2_frame *frame, int end)
{
    if (!s->block[to])
        return;
    if (to == TO_UP && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        h2_request(s, end);
    else if (to == TO_CELL && s->block[to]->status)
        h2_response(s, end);
    else
        h2_trailer(s, to);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct flow *f = data;
    int to = !dir_of(f, session), end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    struct stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

    if (frame->hd.type == NGHTTP2_GOAWAY && to == TO_CELL) {
        f->h2->going = 1;
        nghttp2_submit_goaway(f->h2->s[TO_CELL], NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(f->h2->s[TO_CELL]),
                              frame->goaway.error_code, NULL, 0);
    }
    if (!s)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS)
        on_block(s, to, frame, end != 0);
    else if (frame->hd.type == NGHTTP2_DATA && end) {
        s->ended[to] = 1;
        h2_resume(s, to);
    }
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *data)
{
    struct flow *f = data;
    struct stream *s = nghttp2_session_get_stream_user_data(session, id);
    int side = dir_of(f, session); /* the one that closed; data towards it is for nobody */

    if (!s)
        return 0;
    forget_data(s, side);
    s->id[side] = 0;
    if (side == TO_CELL) {
        if (s->id[TO_UP] && !(s->ended[TO_UP] && s->ended[TO_CELL]))
            h2_reset(s, TO_UP, NGHTTP2_CANCEL);
    } else if (code != NGHTTP2_NO_ERROR || !s->answered || !s->ended[TO_CELL]) {
        h2_reset(s, TO_CELL, code != NGHTTP2_NO_ERROR ? code : NGHTTP2_INTERNAL_ERROR);
    }
    if (!s->id[TO_UP] && !s->id[TO_CELL])
        stream_free(s);
    return 0;
}

/* --------------------------------------------------------------- sessions */

/* The library copies field values, injected ones too, and must not leave them behind. */
static void wipe_free(void *p, void *data)
{
    (void)data;
    if (p)
        explicit_bzero(p, malloc_usable_size(p));
    free(p);
}

static void *plain_malloc(size_t n, void *data)
{
    (void)data;
    return malloc(n);
}

static void *plain_calloc(size_t n, size_t size, void *data)
{
    (void)data;
    return calloc(n, size);
}

static void *wipe_realloc(void *p, size_t n, void *data)
{
    size_t had = p ? malloc_usable_size(p) : 0;
    void *q = malloc(n);

    if (!q)
        return NULL;
    if (p)
        memcpy(q, p, had < n ? had : n);
    wipe_free(p, data);
    return q;
}

static nghttp2_mem memory = {NULL, plain_malloc, wipe_free, plain_calloc, wipe_realloc};

static nghttp2_session *session_new(struct flow *f, int dir)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEAD_BYTES_MAX},
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}, /* towards the upstream only */
    };
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_session *s = NULL;
    nghttp2_option *o = NULL;
    int r;

    if (nghttp2_session_callbacks_new(&cb) != 0 || nghttp2_option_new(&o) != 0) {
        nghttp2_session_callbacks_del(cb);
        return NULL;
    }
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    nghttp2_option_set_no_auto_window_update(o, 1);
    nghttp2_option_set_stream_reset_rate_limit(o, RESETS_BURST, RESETS_RATE);
    r = dir == TO_CELL ? nghttp2_session_server_new3(&s, cb, f, o, &memory)
                       : nghttp2_session_client_new3(&s, cb, f, o, &memory);
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(o);
    if (r == 0 &&
        (nghttp2_submit_settings(s, NGHTTP2_FLAG_NONE, settings, dir == TO_CELL ? 3 : 4) != 0 ||
         nghttp2_session_set_local_window_size(s, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW) != 0)) {
        nghttp2_session_del(s);
        s = NULL;
    }
    return r == 0 ? s : NULL;
}

int h2_start(struct flow *f)
{
    f->h2 = calloc(1, sizeof(*f->h2));
    if (!f->h2)
        return -ENOMEM;
    f->h2->s[TO_CELL] = session_new(f, TO_CELL);
    if (!f->refused)
        f->h2->s[TO_UP] = session_new(f, TO_UP);
    return f->h2->s[TO_CELL] && (f->refused || f->h2->s[TO_UP]) ? 0 : -ENOMEM;
}

void h2_free(struct flow *f)
{
    if (!f->h2)
        return;
    while (f->h2->streams)
        stream_free(f->h2->streams);
    nghttp2_session_del(f->h2->s[TO_CELL]);
    nghttp2_session_del(f->h2->s[TO_UP]);
    free(f->h2);
    f->h2 = NULL;
}

static long feed(struct side *side, nghttp2_session *s)
{
    ssize_t n;

    if (!side->in.len)
        return 0;
    n = nghttp2_session_mem_recv(s, (const uint8_t *)bytes_at(&side->in), side->in.len);
    if (n < 0)
        return -EPROTO;
    bytes_drop(&side->in, (size_t)n);
    return (long)n;
}

static long take(struct side *side, nghttp2_session *s)
{
    const uint8_t *p;
    long total = 0;
    ssize_t n;

    while (side->out.len < OUT_MAX) {
        n = nghttp2_session_mem_send(s, &p);
        if (n < 0 || (n > 0 && bytes_add(&side->out, p, (size_t)n) < 0))
            return -EPROTO;
        if (n == 0)
            break;
        total += n;
    }
    return total;
}

static int finished(nghttp2_session *s)
{
    return !nghttp2_session_want_read(s) && !nghttp2_session_want_write(s);
}

/* The upstream hung up or broke the protocol: streams that were not answered get an end, then the cell a
   goodbye. */
static void upstream_gone(struct flow *f)
{
    struct stream *s, *next;

    side_close(f->e, &f->up, 1);
    nghttp2_session_del(f->h2->s[TO_UP]);
    f->h2->s[TO_UP] = NULL;
    f->h2->going = 1;
    for (s = f->h2->streams; s; s = next) {
        next = s->next;
        s->id[TO_UP] = 0;
        if (!s->local && !s->ended[TO_CELL])
            h2_reset(s, TO_CELL, NGHTTP2_INTERNAL_ERROR);
        if (!s->id[TO_CELL])
            stream_free(s);
    }
    nghttp2_submit_goaway(f->h2->s[TO_CELL], NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(f->h2->s[TO_CELL]),
                          NGHTTP2_NO_ERROR, NULL, 0);
}

long h2_step(struct flow *f)
{
    struct h2 *h = f->h2;
    long a = feed(&f->cell, h->s[TO_CELL]), b = 0, c, d = 0;

    if (a < 0)
        return a;
    if (h->s[TO_UP]) {
        b = feed(&f->up, h->s[TO_UP]);
        if (b >= 0)
            d = take(&f->up, h->s[TO_UP]);
        if (b < 0 || d < 0 || (f->up.eof && !f->up.in.len) ||
            (finished(h->s[TO_UP]) && !f->up.out.len)) {
            upstream_gone(f);
            b = d = 1;
        }
    }
    c = take(&f->cell, h->s[TO_CELL]);
    return c < 0 ? c : a + b + c + d;
}

int h2_done(const struct flow *f)
{
    if (f->cell.eof && !f->cell.in.len)
        return 1;
    if (f->cell.out.len)
        return 0;
    return finished(f->h2->s[TO_CELL]) || (!f->refused && !f->h2->s[TO_UP] && !f->h2->streams);
}

uint64_t h2_judge(struct flow *f)
{
    struct stream *s;
    uint64_t killed = 0;

    for (s = f->h2->streams; s; s = s->next) {
        if (s->local || !s->judged.path || judge_again(f, &s->judged))
            continue;
        h2_reset(s, TO_CELL, NGHTTP2_CANCEL);
        h2_reset(s, TO_UP, NGHTTP2_CANCEL);
        killed++;
    }
    return killed;
}
