/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * link - one connection to an agent: streams, and the rule that nobody sees an unchecked frame.
 *
 * Why here: the agent lives with the workload, so every byte is hostile. check.c judges; this file
 * keeps the streams, and turns the first violation into the end of the link with one sentence that
 * says what it was. Invariants: at most CELLA_STREAMS_MAX streams; each ends with exactly one
 * terminal frame to its owner, made up (EPIPE) if the link dies first; `closed` comes once, after
 * those, and never from inside a call of the owner into this file. Callbacks may free the link: it
 * is released when the outermost call returns. Threads: one.
 */
#include "link_internal.h"

#define OUT_MAX (16u << 20) /* an agent that does not read this much ends the link */
#define WHY_MAX 200u

struct link_stream {
    struct link *link;
    uint32_t number;
    struct stream_state state;
    const struct link_stream_events *events; /* NULL: orphan */
    void *ctx;
};

struct link {
    struct loop *loop;
    struct framer *framer;
    const struct link_events *events;
    void *ctx;
    struct link_stream *streams[CELLA_STREAMS_MAX];
    size_t n_streams;
    uint32_t next;
    int hello, dead, busy, freed;
    int doom_id; /* timer: the link ends in the next turn of the loop */
    char why[WHY_MAX];
};

static void enter(struct link *l)
{
    l->busy++;
}

static void leave(struct link *l)
{
    if (--l->busy == 0 && l->freed)
        free(l);
}

static struct link_stream *stream_find(struct link *l, uint32_t number)
{
    size_t i;

    for (i = 0; i < l->n_streams; i++)
        if (l->streams[i]->number == number)
            return l->streams[i];
    return NULL;
}

static void stream_remove(struct link *l, const struct link_stream *s)
{
    size_t i;

    for (i = 0; i < l->n_streams; i++)
        if (l->streams[i] == s) {
            l->streams[i] = l->streams[--l->n_streams];
            return;
        }
}

/* The made-up end of a stream whose link died. */
static void stream_abort(struct link_stream *s, const char *why)
{
    auto_buf struct buf b = BUF_INIT;
    struct cella_frame f = {.type = CELLA_FRAME_ERROR, .stream = s->number};

    s->state.ended = 1;
    if (s->events) {
        field_add_u32(&b, CELLA_TAG_ERRNO, EPIPE);
        field_add_str(&b, CELLA_TAG_MESSAGE, why);
        f.length = b.oom ? 0 : (uint32_t)b.len;
        s->events->frame(s->ctx, s, &f, b.oom ? (const uint8_t *)"" : (const uint8_t *)b.ptr);
    }
    free(s);
}

static void die(struct link *l, int code, const char *why)
{
    struct link_stream *s;

    if (l->dead)
        return;
    enter(l);
    l->dead = 1;
    loop_timer_cancel(l->loop, l->doom_id);
    framer_free(l->framer);
    l->framer = NULL;
    while (l->n_streams) {
        s = l->streams[--l->n_streams];
        stream_abort(s, why);
    }
    if (!l->freed)
        l->events->closed(l->ctx, code, why);
    leave(l);
}

static void on_doom(void *data)
{
    struct link *l = data;

    l->doom_id = 0;
    die(l, -EPROTO, l->why);
}

/* From inside a call of the owner: the end comes in the next turn. */
static void doom(struct link *l)
{
    if (l->doom_id || l->dead)
        return;
    snprintf(l->why, sizeof(l->why), "the agent does not read: %zu bytes wait for it",
             framer_pending(l->framer));
    l->doom_id = loop_timer(l->loop, 0, on_doom, l);
    if (l->doom_id < 0)
        l->doom_id = 0;
}

static int send_frame(struct link *l, uint16_t type, uint16_t channel, uint32_t stream,
                      const void *payload, size_t len)
{
    int r;

    if (l->dead || l->doom_id)
        return -EPIPE;
    r = framer_send(l->framer, type, channel, stream, 0, payload, len);
    if (r == -EOVERFLOW)
        doom(l);
    return r == -EOVERFLOW ? -EPIPE : r;
}

static void give_credit(struct link_stream *s, uint16_t channel, uint32_t n)
{
    auto_buf struct buf b = BUF_INIT;

    if (field_add_u32(&b, CELLA_TAG_COUNT, n) == 0)
        link_send(s, CELLA_FRAME_CREDIT, channel, b.ptr, b.len);
}

static void deliver(struct link *l, struct link_stream *s, const struct cella_frame *f,
                    const uint8_t *payload)
{
    int ended = s->state.ended;

    if (ended)
        stream_remove(l, s);
    if (s->events)
        s->events->frame(s->ctx, s, f, payload);
    else if (f->type == CELLA_FRAME_DATA)
        give_credit(s, f->channel, f->length);
    if (ended)
        free(s);
}

static int on_frame(void *ctx, const struct cella_frame *f, const uint8_t *payload)
{
    struct link *l = ctx;
    struct link_stream *s;
    uint32_t version;
    int r;

    if (!l->hello) {
        r = check_hello(f, payload, &version, l->why, sizeof(l->why));
        if (r < 0)
            return r;
        l->hello = 1;
        if (l->events->hello)
            l->events->hello(l->ctx, version);
        return 0;
    }
    if (f->type == CELLA_FRAME_HELLO) {
        snprintf(l->why, sizeof(l->why), "HELLO for the second time");
        return -EPROTO;
    }
    s = stream_find(l, f->stream);
    if (!s) {
        snprintf(l->why, sizeof(l->why), "frame type %u on stream %u, which is not open", f->type,
                 f->stream);
        return -EPROTO;
    }
    r = check_frame(&s->state, f, payload, l->why, sizeof(l->why));
    if (r < 0)
        return r;
    enter(l);
    deliver(l, s, f, payload);
    leave(l);
    return 0;
}

static void on_closed(void *ctx, int code)
{
    struct link *l = ctx;

    if (code == -EMSGSIZE) {
        snprintf(l->why, sizeof(l->why), "a frame longer than %u bytes", CELLA_FRAME_MAX);
        code = -EPROTO;
    } else if (code != -EPROTO) {
        snprintf(l->why, sizeof(l->why), "the agent is gone");
        code = -ECONNRESET;
    }
    die(l, code, l->why);
}

int link_new(struct loop *loop, int own_fd, const struct link_events *events, void *ctx,
             struct link **ret)
{
    struct link *l = calloc(1, sizeof(*l));
    int r;

    if (!l) {
        close(own_fd);
        return -ENOMEM;
    }
    l->loop = loop;
    l->events = events;
    l->ctx = ctx;
    l->next = 1;
    r = framer_new(loop, own_fd, OUT_MAX, on_frame, on_closed, l, &l->framer);
    if (r < 0) {
        free(l);
        return r;
    }
    *ret = l;
    return 0;
}

void link_free(struct link *l)
{
    if (!l || l->freed)
        return;
    l->freed = 1;
    l->dead = 1;
    loop_timer_cancel(l->loop, l->doom_id);
    framer_free(l->framer);
    l->framer = NULL;
    while (l->n_streams)
        free(l->streams[--l->n_streams]);
    if (!l->busy)
        free(l);
}

int link_open(struct link *l, const void *fields, size_t len,
              const struct link_stream_events *events, void *ctx, struct link_stream **ret)
{
    struct stream_state state;
    struct link_stream *s;
    int r;

    if (l->dead)
        return -EPIPE;
    if (len > CELLA_FRAME_MAX)
        return -E2BIG;
    if (l->n_streams >= CELLA_STREAMS_MAX || l->next == UINT32_MAX)
        return -EBUSY;
    r = check_open(fields, len, &state);
    if (r < 0)
        return r;
    s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    *s = (struct link_stream){l, l->next, state, events, ctx};
    r = send_frame(l, CELLA_FRAME_OPEN, 0, s->number, fields, len);
    if (r < 0) {
        free(s);
        return r;
    }
    l->next++;
    l->streams[l->n_streams++] = s;
    *ret = s;
    return 0;
}

int link_send(struct link_stream *s, uint16_t type, uint16_t channel, const void *payload,
              size_t len)
{
    int r = check_send(&s->state, type, channel, payload, len);

    if (r != 0)
        return r < 0 ? r : 0;
    return send_frame(s->link, type, channel, s->number, payload, len);
}

size_t link_credit(const struct link_stream *s)
{
    return s->state.has_in && !s->state.eof[CELLA_CHANNEL_IN] && !s->state.closed
               ? s->state.credit[CELLA_CHANNEL_IN]
               : 0;
}

/* What the owner had not yet returned goes back now, so that the agent never waits for an orphan's
 * reader. */
void link_stream_orphan(struct link_stream *s)
{
    uint16_t ch;

    s->events = NULL;
    s->ctx = NULL;
    for (ch = CELLA_CHANNEL_OUT; ch <= CELLA_CHANNEL_ERR; ch++)
        if (s->state.credit[ch] < CELLA_WINDOW)
            give_credit(s, ch, CELLA_WINDOW - s->state.credit[ch]);
}

int link_shutdown(struct link *l, uint32_t timeout_ms)
{
    auto_buf struct buf b = BUF_INIT;

    if (field_add_u64(&b, CELLA_TAG_TIMEOUT_MS, timeout_ms) < 0)
        return -ENOMEM;
    return send_frame(l, CELLA_FRAME_SHUTDOWN, 0, 0, b.ptr, b.len);
}

int link_lost(const struct link *l)
{
    return l->dead;
}

struct framer *link_framer(struct link *l)
{
    return l->framer;
}
