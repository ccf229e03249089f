/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * check - the protocol state of one stream, as the host sees it.
 *
 * Why here: link.c moves frames, this file decides whether a frame is one the agent may send now.
 * It keeps no pointer to a payload and allocates nothing; the tables at the top are the whole
 * grammar. Invariants: a frame that passed has the right length, channel and id, only known fields,
 * each once, in range; credit never goes below zero or above CELLA_WINDOW; after a refusal the
 * state must not be used again. Threads: one.
 */
#include <stdarg.h>
#include <sys/stat.h>

#include "link_internal.h"

enum kind { K_U32, K_U64, K_STR };

struct rule {
    uint16_t tag;
    uint8_t kind, need;
    uint32_t min, max; /* of a u32; of the length of a string */
};

static const struct rule hello_rules[] = {
    {CELLA_TAG_VERSION, K_U32, 1, 1, UINT32_MAX},
    {CELLA_TAG_PID, K_U32, 1, 1, INT32_MAX},
};
static const struct rule opened_rules[] = {{CELLA_TAG_PID, K_U32, 1, 1, INT32_MAX}};
static const struct rule credit_rules[] = {{CELLA_TAG_COUNT, K_U32, 1, 1, CELLA_WINDOW}};
static const struct rule exit_rules[] = {
    {CELLA_TAG_STATUS, K_U32, 0, 0, 255},  {CELLA_TAG_TERM_SIGNAL, K_U32, 0, 1, 64},
    {CELLA_TAG_TIMED_OUT, K_U32, 0, 1, 1}, {CELLA_TAG_UTIME_NS, K_U64, 0, 0, 0},
    {CELLA_TAG_STIME_NS, K_U64, 0, 0, 0},  {CELLA_TAG_MAXRSS, K_U64, 0, 0, 0},
};
static const struct rule error_rules[] = {
    {CELLA_TAG_ERRNO, K_U32, 1, 1, 4095},
    {CELLA_TAG_MESSAGE, K_STR, 0, 0, 512},
};
static const struct rule put_rules[] = {{CELLA_TAG_SIZE, K_U64, 1, 0, 0}};
static const struct rule get_rules[] = {
    {CELLA_TAG_SIZE, K_U64, 1, 0, 0},
    {CELLA_TAG_MODE, K_U32, 1, 0, 07777},
};
static const struct rule list_rules[] = {{CELLA_TAG_COUNT, K_U32, 1, 0, UINT32_MAX}};
static const struct rule stat_rules[] = {
    {CELLA_TAG_TYPE, K_U32, 1, 1, S_IFMT},    {CELLA_TAG_MODE, K_U32, 1, 0, 07777},
    {CELLA_TAG_SIZE, K_U64, 1, 0, 0},         {CELLA_TAG_MTIME_NS, K_U64, 1, 0, 0},
    {CELLA_TAG_UID, K_U32, 1, 0, UINT32_MAX}, {CELLA_TAG_GID, K_U32, 1, 0, UINT32_MAX},
    {CELLA_TAG_LINK, K_STR, 0, 0, 4095},
};

/* By operation: which channels exist and what RESULT carries. */
static const struct {
    uint8_t in, out, err, need_eof; /* need_eof: RESULT only after EOF on OUT */
    const struct rule *result;
    size_t n_result;
} ops[] = {
    [CELLA_OP_EXEC] = {1, 1, 1, 0, NULL, 0},
    [CELLA_OP_PUT] = {1, 0, 0, 0, put_rules, ARRAY_LEN(put_rules)},
    [CELLA_OP_GET] = {0, 1, 0, 1, get_rules, ARRAY_LEN(get_rules)},
    [CELLA_OP_LIST] = {0, 1, 0, 1, list_rules, ARRAY_LEN(list_rules)},
    [CELLA_OP_STAT] = {0, 0, 0, 0, stat_rules, ARRAY_LEN(stat_rules)},
    [CELLA_OP_REMOVE] = {0, 0, 0, 0, NULL, 0},
    [CELLA_OP_RENAME] = {0, 0, 0, 0, NULL, 0},
    [CELLA_OP_MKDIR] = {0, 0, 0, 0, NULL, 0},
};

struct blame {
    char *why;
    size_t cap;
};

CELLA_PRINTF(2, 3) static int bad(const struct blame *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(b->why, b->cap, fmt, ap);
    va_end(ap);
    return -EPROTO;
}

static int check_value(const struct rule *r, const struct field *f, const struct blame *b)
{
    uint32_t v;

    if (r->kind == K_STR) {
        if (f->len < r->min || f->len > r->max)
            return bad(b, "field %u is %u bytes long, at most %u are allowed", f->tag, f->len,
                       r->max);
        return memchr(f->p, 0, f->len) ? bad(b, "field %u has a NUL inside", f->tag) : 0;
    }
    if (f->len != (r->kind == K_U32 ? 4u : 8u))
        return bad(b, "field %u has the wrong length %u", f->tag, f->len);
    if (r->kind == K_U64)
        return 0;
    v = le32(f->p);
    if (v < r->min || v > r->max)
        return bad(b, "field %u has the value %u outside %u..%u", f->tag, v, r->min, r->max);
    return 0;
}

/* *ret_seen: bit i = rule i was present. */
static int check_fields(const uint8_t *payload, size_t len, const struct rule *rules, size_t n,
                        uint32_t *ret_seen, const struct blame *b)
{
    struct field f = {0};
    uint32_t seen = 0;
    size_t pos = 0, i;
    int r;

    while ((r = field_next(payload, len, &pos, &f)) > 0) {
        for (i = 0; i < n && rules[i].tag != f.tag; i++)
            ;
        if (i == n)
            return bad(b, "unexpected field %u", f.tag);
        if (seen & 1u << i)
            return bad(b, "field %u comes twice", f.tag);
        seen |= 1u << i;
        r = check_value(&rules[i], &f, b);
        if (r < 0)
            return r;
    }
    if (r < 0)
        return bad(b, "malformed fields");
    for (i = 0; i < n; i++)
        if (rules[i].need && !(seen & 1u << i))
            return bad(b, "field %u is missing", rules[i].tag);
    if (ret_seen)
        *ret_seen = seen;
    return 0;
}

int check_open(const void *fields, size_t len, struct stream_state *ret)
{
    struct stream_state s = {.credit = {CELLA_WINDOW, CELLA_WINDOW, CELLA_WINDOW}};
    struct field f = {0};
    size_t pos = 0;
    uint32_t v;
    int r;

    while ((r = field_next(fields, len, &pos, &f)) > 0)
        ;
    if (r < 0 || field_get_u32(fields, len, CELLA_TAG_OP, &s.op) < 0)
        return -EBADMSG;
    if (s.op < CELLA_OP_EXEC || s.op > CELLA_OP_MKDIR)
        return -EINVAL;
    if (s.op == CELLA_OP_EXEC) {
        s.tty = field_get_u32(fields, len, CELLA_TAG_TTY, &v) == 0 && v;
        s.has_in = field_get_u32(fields, len, CELLA_TAG_STDIN, &v) == 0 && v;
    } else {
        s.has_in = ops[s.op].in;
    }
    *ret = s;
    return 0;
}

int check_hello(const struct cella_frame *f, const uint8_t *payload, uint32_t *ret_version,
                char *why, size_t why_cap)
{
    const struct blame b = {why, why_cap};
    uint32_t version = 0;
    int r;

    if (f->type != CELLA_FRAME_HELLO)
        return bad(&b, "frame type %u came before HELLO", f->type);
    if (f->stream || f->channel || f->id)
        return bad(&b, "HELLO with stream %u, channel %u, id %u; all must be 0", f->stream,
                   f->channel, f->id);
    r = check_fields(payload, f->length, hello_rules, ARRAY_LEN(hello_rules), NULL, &b);
    if (r < 0)
        return r;
    if (field_get_u32(payload, f->length, CELLA_TAG_VERSION, &version) < 0 ||
        version != CELLA_LINK_VERSION)
        return bad(&b, "the agent speaks version %u of the protocol, this host speaks %u", version,
                   CELLA_LINK_VERSION);
    *ret_version = version;
    return 0;
}

/* DATA, EOF and CREDIT: does the channel exist for the agent's direction? */
static int check_channel(const struct stream_state *s, const struct cella_frame *f,
                         const struct blame *b)
{
    int ok = 0;

    if (s->op == CELLA_OP_EXEC && !s->opened)
        return bad(b, "frame type %u on stream %u before OPENED", f->type, f->stream);
    if (f->type == CELLA_FRAME_CREDIT)
        ok = f->channel == CELLA_CHANNEL_IN && s->has_in;
    else if (f->channel == CELLA_CHANNEL_OUT)
        ok = ops[s->op].out;
    else if (f->channel == CELLA_CHANNEL_ERR)
        ok = ops[s->op].err && !s->tty;
    if (!ok)
        return bad(b, "frame type %u on channel %u, which stream %u has not", f->type, f->channel,
                   f->stream);
    if (f->type != CELLA_FRAME_CREDIT && s->eof[f->channel])
        return bad(b, "frame type %u after EOF on channel %u of stream %u", f->type, f->channel,
                   f->stream);
    return 0;
}

static int on_data(struct stream_state *s, const struct cella_frame *f, const struct blame *b)
{
    if (!f->length)
        return bad(b, "empty DATA on stream %u", f->stream);
    if (f->length > s->credit[f->channel])
        return bad(b, "DATA of %u bytes on channel %u of stream %u with a credit of %u", f->length,
                   f->channel, f->stream, s->credit[f->channel]);
    s->credit[f->channel] -= f->length;
    return 0;
}

static int on_credit(struct stream_state *s, const struct cella_frame *f, const uint8_t *payload,
                     const struct blame *b)
{
    uint32_t n = 0;
    int r = check_fields(payload, f->length, credit_rules, ARRAY_LEN(credit_rules), NULL, b);

    if (r < 0)
        return r;
    field_get_u32(payload, f->length, CELLA_TAG_COUNT, &n);
    if (n > CELLA_WINDOW - s->credit[CELLA_CHANNEL_IN])
        return bad(b, "CREDIT of %u bytes on stream %u for data that was not sent", n, f->stream);
    s->credit[CELLA_CHANNEL_IN] += n;
    return 0;
}

static int on_exit_frame(struct stream_state *s, const struct cella_frame *f,
                         const uint8_t *payload, const struct blame *b)
{
    uint32_t seen = 0;
    int r;

    if (s->op != CELLA_OP_EXEC || !s->opened)
        return bad(b, "EXIT on stream %u, which runs nothing", f->stream);
    r = check_fields(payload, f->length, exit_rules, ARRAY_LEN(exit_rules), &seen, b);
    if (r < 0)
        return r;
    if ((seen & 3) != 1 && (seen & 3) != 2)
        return bad(b, "EXIT on stream %u needs either a status or a signal", f->stream);
    s->ended = 1;
    return 0;
}

static int on_result(struct stream_state *s, const struct cella_frame *f, const uint8_t *payload,
                     const struct blame *b)
{
    int r;

    if (s->op == CELLA_OP_EXEC)
        return bad(b, "RESULT on stream %u, which is an exec", f->stream);
    if (ops[s->op].need_eof && !s->eof[CELLA_CHANNEL_OUT])
        return bad(b, "RESULT on stream %u before EOF of its content", f->stream);
    r = check_fields(payload, f->length, ops[s->op].result, ops[s->op].n_result, NULL, b);
    if (r < 0)
        return r;
    s->ended = 1;
    return 0;
}

static int on_opened(struct stream_state *s, const struct cella_frame *f, const uint8_t *payload,
                     const struct blame *b)
{
    if (s->op != CELLA_OP_EXEC || s->opened)
        return bad(b, "OPENED on stream %u: %s", f->stream,
                   s->opened ? "for the second time" : "not an exec");
    s->opened = 1;
    return check_fields(payload, f->length, opened_rules, ARRAY_LEN(opened_rules), NULL, b);
}

int check_frame(struct stream_state *s, const struct cella_frame *f, const uint8_t *payload,
                char *why, size_t why_cap)
{
    const struct blame b = {why, why_cap};
    int on_channel =
        f->type == CELLA_FRAME_DATA || f->type == CELLA_FRAME_CREDIT || f->type == CELLA_FRAME_EOF;
    int r = 0;

    if (f->id || (!on_channel && f->channel))
        return bad(&b, "frame type %u with channel %u, id %u; must be 0", f->type, f->channel,
                   f->id);
    if (on_channel)
        r = check_channel(s, f, &b);
    if (r < 0)
        return r;
    switch (f->type) {
    case CELLA_FRAME_DATA:
        return on_data(s, f, &b);
    case CELLA_FRAME_CREDIT:
        return on_credit(s, f, payload, &b);
    case CELLA_FRAME_EOF:
        if (f->length)
            return bad(&b, "EOF with a payload of %u bytes", f->length);
        s->eof[f->channel] = 1;
        return 0;
    case CELLA_FRAME_OPENED:
        return on_opened(s, f, payload, &b);
    case CELLA_FRAME_EXIT:
        return on_exit_frame(s, f, payload, &b);
    case CELLA_FRAME_RESULT:
        return on_result(s, f, payload, &b);
    case CELLA_FRAME_ERROR:
        r = check_fields(payload, f->length, error_rules, ARRAY_LEN(error_rules), NULL, &b);
        if (r == 0)
            s->ended = 1;
        return r;
    default:
        return bad(&b, "frame type %u is not one an agent sends on a stream", f->type);
    }
}

static int send_data(struct stream_state *s, uint16_t channel, size_t len)
{
    if (channel != CELLA_CHANNEL_IN || !s->has_in || !len || len > CELLA_FRAME_MAX)
        return -EINVAL;
    if (s->eof[CELLA_CHANNEL_IN] || s->closed)
        return -EPIPE;
    if (len > s->credit[CELLA_CHANNEL_IN])
        return -EAGAIN;
    s->credit[CELLA_CHANNEL_IN] -= (uint32_t)len;
    return 0;
}

static int send_credit(struct stream_state *s, uint16_t channel, const void *payload, size_t len)
{
    uint32_t n = 0;

    if ((channel != CELLA_CHANNEL_OUT && channel != CELLA_CHANNEL_ERR) ||
        field_get_u32(payload, len, CELLA_TAG_COUNT, &n) < 0 || len != 12 || !n ||
        n > CELLA_WINDOW - s->credit[channel])
        return -EINVAL;
    s->credit[channel] += n;
    return s->eof[channel]; /* nobody needs credit after EOF */
}

int check_send(struct stream_state *s, uint16_t type, uint16_t channel, const void *payload,
               size_t len)
{
    if (s->ended)
        return -EPIPE;
    switch (type) {
    case CELLA_FRAME_DATA:
        return send_data(s, channel, len);
    case CELLA_FRAME_CREDIT:
        return send_credit(s, channel, payload, len);
    case CELLA_FRAME_EOF:
        if (channel != CELLA_CHANNEL_IN || !s->has_in || len)
            return -EINVAL;
        if (s->eof[CELLA_CHANNEL_IN] || s->closed)
            return 1;
        s->eof[CELLA_CHANNEL_IN] = 1;
        return 0;
    case CELLA_FRAME_SIGNAL:
        return channel || s->op != CELLA_OP_EXEC || len > CELLA_FRAME_MAX ? -EINVAL : 0;
    case CELLA_FRAME_RESIZE:
        return channel || !s->tty || len > CELLA_FRAME_MAX ? -EINVAL : 0;
    case CELLA_FRAME_CLOSE:
        if (channel || len)
            return -EINVAL;
        if (s->closed)
            return 1;
        s->closed = 1;
        return 0;
    default:
        return -EINVAL;
    }
}
