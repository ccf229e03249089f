/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * pump - the bytes of a stream: from its pipes to the host with the host's credit, and the other way with ours.
 * Invariants: those of stream.c. Threads: one.
 */
#include <sys/ioctl.h>

#include "agent.h"

#define CHUNK 32768u

int may_send(const struct stream *s)
{
    return !s->discard && !s->orphan && (s->opened || s->op != CELLA_OP_EXEC);
}

static void pipe_ended(struct stream *s, uint16_t ch)
{
    close_fd(&s->out[ch]);
    if (!s->orphan)
        out_frame(CELLA_FRAME_EOF, ch, s->number, NULL, 0);
}

/* Its output is taken, so that it does not wait for a reader, and dropped. */
static ssize_t drop_out(const struct stream *s, uint16_t ch)
{
    static uint8_t sink[CHUNK];

    return read(s->out[ch], sink, sizeof(sink));
}

/* One read; 1 = there may be more, 0 = empty for now, closed = EOF was sent. */
int pump_out(struct stream *s, uint16_t ch)
{
    size_t want = s->credit[ch] < CHUNK ? s->credit[ch] : CHUNK;
    uint8_t *p = out_reserve(want);
    ssize_t n;

    if (!p)
        leave(12);
    n = s->orphan ? drop_out(s, ch) : read(s->out[ch], p, want);
    if (n > 0 && s->orphan)
        return 1;
    if (n > 0) {
        out_data(s->number, ch, (size_t)n);
        s->credit[ch] -= (uint32_t)n;
        return 1;
    }
    if (n < 0 && errno == EINTR)
        return 1;
    if (n < 0 && errno == EAGAIN)
        return 0;
    pipe_ended(s, ch);
    return 0;
}

/* The child has reported: what lies in the pipe is the rest. Without credit, an empty pipe is still
 * seen. */
void pump_rest(struct stream *s, uint16_t ch)
{
    int n = 0;

    if (s->out[ch] >= 0 && !s->credit[ch] && ioctl(s->out[ch], FIONREAD, &n) == 0 && n == 0)
        pipe_ended(s, ch);
    while (s->out[ch] >= 0 && s->credit[ch] && out_pending() < OUT_HIGH)
        if (!pump_out(s, ch) && s->out[ch] >= 0)
            pipe_ended(s, ch);
}

void return_credit(struct stream *s)
{
    struct fields f = {0};

    if (!s->consumed || s->in_eof || !may_send(s) || s->final_set ||
        (s->buf_len && s->consumed < CELLA_WINDOW / 4))
        return;
    put_u32(&f, CELLA_TAG_COUNT, s->consumed);
    out_frame(CELLA_FRAME_CREDIT, CELLA_CHANNEL_IN, s->number, f.b, f.len);
    s->consumed = 0;
}

static void in_drop(struct stream *s)
{
    close_fd(&s->in);
    s->consumed += (uint32_t)s->buf_len;
    s->buf_len = 0;
}

void pump_in(struct stream *s)
{
    ssize_t n;

    while (s->in >= 0 && s->buf_len) {
        n = write(s->in, s->buf + s->buf_off, s->buf_len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            in_drop(s);
            break;
        }
        s->buf_off += (size_t)n;
        s->buf_len -= (size_t)n;
        s->consumed += (uint32_t)n;
    }
    if (!s->buf_len)
        s->buf_off = 0;
    if (s->in >= 0 && s->in_eof && !s->buf_len) {
        if (s->tty)
            tty_eof(s->in);
        close_fd(&s->in);
        if (s->op == CELLA_OP_PUT)
            stream_command(s, CMD_COMMIT, 0);
    }
}
