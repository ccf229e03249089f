/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * stream - what the host opened: its pipes, its credit, its end.
 *
 * Why here: execs and file operations differ in what their child process does, not in how bytes
 * move. What to poll for is computed from the state in every turn, so it can never disagree with
 * it. Invariants: nothing of an exec is sent before OPENED and nothing of any stream after its
 * terminal frame; a pipe is read only with credit and room in the output queue; `buf` never holds
 * more than CELLA_WINDOW; a stream ends when its child reported (or died) and its pipes are at EOF,
 * or empty if somebody else holds them open. Threads: one.
 */
#include <signal.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "agent.h"

#define STRAY_TRIES_NS (10 * NSEC)

struct stream streams[CELLA_STREAMS_MAX];
unsigned n_streams;

static struct stream *find(uint32_t number)
{
    unsigned i;

    for (i = 0; i < CELLA_STREAMS_MAX; i++)
        if (streams[i].used && !streams[i].orphan && streams[i].number == number)
            return &streams[i];
    return NULL;
}

size_t stream_children(pid_t *ret, size_t cap)
{
    size_t n = 0;
    unsigned i;

    for (i = 0; i < CELLA_STREAMS_MAX && n < cap; i++)
        if (streams[i].used && streams[i].child)
            ret[n++] = streams[i].child;
    return n;
}

void stream_fail(uint32_t number, int err, const char *msg)
{
    struct fields f = {0};

    put_u32(&f, CELLA_TAG_ERRNO, (uint32_t)(err < 0 ? -err : err));
    put_bytes(&f, CELLA_TAG_MESSAGE, msg, strlen(msg));
    out_frame(CELLA_FRAME_ERROR, 0, number, f.b, f.len);
}

void stream_command(struct stream *s, uint32_t cmd, uint32_t arg)
{
    struct command c = {cmd, arg};

    if (s->ctrl >= 0)
        send(s->ctrl, &c, sizeof(c), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The tree of an exec through its supervisor; a worker directly, after a moment to clean up behind
 * itself. */
void stream_kill(struct stream *s)
{
    if (s->killed)
        return;
    s->killed = 1;
    if (s->op == CELLA_OP_EXEC) {
        stream_command(s, CMD_KILL, 0);
        return;
    }
    close_fd(&s->ctrl); /* no commit: a PUT removes its temporary file */
    close_fd(&s->in);
    s->give_up = now_ns() + 2 * NSEC;
}

static struct fields *final_new(struct stream *s, uint16_t type)
{
    struct fields *f = s->final ? s->final : malloc(sizeof(*f));

    if (!f)
        leave(12);
    f->len = 0;
    f->overflow = 0;
    s->final = f;
    s->final_type = type;
    s->final_set = 1;
    return f;
}

static void final_error(struct stream *s, int err, const char *msg)
{
    struct fields *f = final_new(s, CELLA_FRAME_ERROR);

    put_u32(f, CELLA_TAG_ERRNO, (uint32_t)err);
    put_bytes(f, CELLA_TAG_MESSAGE, msg, strlen(msg));
}

static void end(struct stream *s)
{
    int i;

    if (s->timed_out && s->final_type == CELLA_FRAME_EXIT)
        put_u32(s->final, CELLA_TAG_TIMED_OUT, 1);
    if (!s->orphan)
        out_frame(s->final_type, 0, s->number, s->final->b, s->final->len);
    close_fd(&s->ctrl);
    close_fd(&s->in);
    for (i = 0; i < 3; i++)
        close_fd(&s->out[i]);
    free(s->buf);
    free(s->final);
    s->used = 0;
    n_streams--;
}

/* ---- from the host ---- */

static void on_open(const struct cella_frame *f, uint8_t *payload)
{
    struct stream *s = streams;
    const char *why = "malformed request";
    uint32_t op = 0;
    int r;

    if (!f->stream || f->channel || find(f->stream))
        leave(2);
    while (s < streams + CELLA_STREAMS_MAX && s->used)
        s++;
    if (s == streams + CELLA_STREAMS_MAX)
        leave(2);
    if (shutting_down) {
        stream_fail(f->stream, ESHUTDOWN, "the cell is shutting down");
        return;
    }
    *s = (struct stream){.number = f->stream,
                         .ctrl = -1,
                         .in = -1,
                         .out = {-1, -1, -1},
                         .credit = {0, CELLA_WINDOW, CELLA_WINDOW},
                         .poll_ctrl = -1,
                         .poll_in = -1,
                         .poll_out = {-1, -1, -1}};
    r = get_u32(payload, f->length, CELLA_TAG_OP, &op);
    s->op = op;
    if (r == 0)
        r = op == CELLA_OP_EXEC ? exec_open(s, payload, f->length, &why)
                                : file_open(s, payload, f->length, &why);
    if (r < 0) {
        stream_fail(f->stream, r, why);
        return;
    }
    s->used = 1;
    n_streams++;
}

static void on_data(struct stream *s, const struct cella_frame *f, const uint8_t *payload)
{
    if (f->channel != CELLA_CHANNEL_IN || s->in_eof ||
        s->consumed + s->buf_len + f->length > CELLA_WINDOW)
        leave(2);
    if (s->in < 0) { /* the reader is gone: its data is taken and dropped */
        s->consumed += f->length;
        return;
    }
    if (!s->buf && !(s->buf = malloc(CELLA_WINDOW)))
        leave(12);
    if (s->buf_off + s->buf_len + f->length > CELLA_WINDOW) {
        memmove(s->buf, s->buf + s->buf_off, s->buf_len);
        s->buf_off = 0;
    }
    memcpy(s->buf + s->buf_off + s->buf_len, payload, f->length);
    s->buf_len += f->length;
}

static void on_credit(struct stream *s, const struct cella_frame *f, uint8_t *payload)
{
    uint32_t n = 0;

    if ((f->channel != CELLA_CHANNEL_OUT && f->channel != CELLA_CHANNEL_ERR) ||
        get_u32(payload, f->length, CELLA_TAG_COUNT, &n) < 0 ||
        n > CELLA_WINDOW - s->credit[f->channel])
        leave(2);
    s->credit[f->channel] += n;
}

static void on_signal(struct stream *s, const struct cella_frame *f, uint8_t *payload)
{
    uint32_t sig = 0, scope = CELLA_SCOPE_TREE;

    get_u32(payload, f->length, CELLA_TAG_SCOPE, &scope);
    if (s->op != CELLA_OP_EXEC || get_u32(payload, f->length, CELLA_TAG_SIGNAL, &sig) < 0 ||
        sig < 1 || sig > 64)
        return;
    if (sig == SIGKILL && scope == CELLA_SCOPE_TREE)
        stream_command(s, CMD_KILL, 0);
    else
        stream_command(s, scope == CELLA_SCOPE_PROCESS ? CMD_SIGNAL_PROCESS : CMD_SIGNAL_TREE, sig);
}

static void on_resize(struct stream *s, const struct cella_frame *f, uint8_t *payload)
{
    uint32_t rows = 0, cols = 0;

    if (s->tty && s->out[CELLA_CHANNEL_OUT] >= 0 &&
        get_u32(payload, f->length, CELLA_TAG_ROWS, &rows) == 0 &&
        get_u32(payload, f->length, CELLA_TAG_COLS, &cols) == 0)
        tty_resize(s->out[CELLA_CHANNEL_OUT], rows, cols);
}

static void on_close(struct stream *s)
{
    s->discard =
        1; /* an exec's pipes stay open until it is dead: it dies of the kill, not of SIGPIPE */
    if (s->op != CELLA_OP_EXEC) {
        close_fd(&s->out[CELLA_CHANNEL_OUT]);
        if (!s->final_set)
            final_error(s, ECANCELED, "abandoned by the host");
    }
    stream_kill(s);
}

void streams_orphan(void)
{
    unsigned i;

    for (i = 0; i < CELLA_STREAMS_MAX; i++) {
        struct stream *s = &streams[i];
        if (!s->used || s->orphan)
            continue;
        s->orphan = 1;
        s->credit[CELLA_CHANNEL_OUT] = s->credit[CELLA_CHANNEL_ERR] = CELLA_WINDOW;
        if (s->op != CELLA_OP_EXEC)
            on_close(s);
    }
}

void on_frame(const struct cella_frame *f, uint8_t *payload)
{
    struct stream *s = f->stream ? find(f->stream) : NULL;
    uint64_t ms = 0;

    if (f->type == CELLA_FRAME_OPEN) {
        on_open(f, payload);
    } else if (f->type == CELLA_FRAME_SHUTDOWN) {
        if (get_u64(payload, f->length, CELLA_TAG_TIMEOUT_MS, &ms) < 0)
            leave(2);
        shutdown_begin(ms);
    } else if (f->type < CELLA_FRAME_DATA || f->type > CELLA_FRAME_CLOSE ||
               f->type == CELLA_FRAME_OPENED) {
        leave(2);
    } else if (!s) {
        return; /* crossed the terminal frame */
    } else if (f->type == CELLA_FRAME_DATA) {
        on_data(s, f, payload);
    } else if (f->type == CELLA_FRAME_CREDIT) {
        on_credit(s, f, payload);
    } else if (f->type == CELLA_FRAME_EOF) {
        s->in_eof = 1;
    } else if (f->type == CELLA_FRAME_SIGNAL) {
        on_signal(s, f, payload);
    } else if (f->type == CELLA_FRAME_RESIZE) {
        on_resize(s, f, payload);
    } else {
        on_close(s);
    }
}

/* ---- from the child ---- */

static void on_report(struct stream *s, const struct report *r, size_t n)
{
    struct fields *f;

    if (r->type == CELLA_FRAME_OPENED) {
        s->opened = 1;
        if (!s->orphan)
            out_frame(CELLA_FRAME_OPENED, 0, s->number, r->payload, n);
    } else if (!s->final_set) {
        f = final_new(s, (uint16_t)r->type);
        memcpy(f->b, r->payload, n);
        f->len = n;
    }
}

/* The child ended without a report. Whoever it watched over is now a child of the agent. */
static void on_lost(struct stream *s)
{
    if (s->op != CELLA_OP_EXEC) {
        final_error(s, ECHILD, "the process doing the work was killed");
        return;
    }
    s->lost = 1;
    s->give_up = now_ns() + STRAY_TRIES_NS;
}

static void read_ctrl(struct stream *s)
{
    struct report r;
    ssize_t n = recv(s->ctrl, &r, sizeof(r), MSG_DONTWAIT);

    if (n < 0 &&
        errno == ECONNRESET) /* it left commands unread; its report still lies behind the error */
        n = recv(s->ctrl, &r, sizeof(r), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n >= (ssize_t)offsetof(struct report, payload)) {
        on_report(s, &r, (size_t)n - offsetof(struct report, payload));
        return;
    }
    close_fd(&s->ctrl);
    if (!s->final_set)
        on_lost(s);
}

void stream_reaped(pid_t pid)
{
    unsigned i;

    for (i = 0; i < CELLA_STREAMS_MAX; i++)
        if (streams[i].used && streams[i].child == pid)
            streams[i].child = 0;
}

/* A process that dies closes its descriptors before its children are handed on: until it is reaped
 * they hang below it, out of this pass's sight. */
static void kill_strays(struct stream *s)
{
    pid_t known[CELLA_STREAMS_MAX];
    size_t n = stream_children(known, CELLA_STREAMS_MAX);
    struct fields *f;

    if ((s->child || tree_signal(getpid(), known, n, SIGKILL) > 0) && now_ns() < s->give_up)
        return;
    s->lost = 0;
    if (!s->opened) {
        final_error(s, ECHILD, "the supervisor was killed before the command started");
        return;
    }
    f = final_new(s, CELLA_FRAME_EXIT);
    put_u32(f, CELLA_TAG_TERM_SIGNAL, SIGKILL);
}

/* ---- the turn ---- */

static short add(struct pollfd *set, size_t *at, int fd, short events, int want)
{
    if (fd < 0 || !want)
        return -1;
    set[*at] = (struct pollfd){fd, events, 0};
    return (short)(*at)++;
}

size_t streams_poll(struct pollfd *set, size_t at)
{
    int room = out_pending() < OUT_HIGH;
    size_t start = at;
    unsigned i, ch;

    for (i = 0; i < CELLA_STREAMS_MAX && n_streams; i++) {
        struct stream *s = &streams[i];
        if (!s->used)
            continue;
        s->poll_ctrl = add(set, &at, s->ctrl, POLLIN, 1);
        s->poll_in = add(set, &at, s->in, POLLOUT, s->buf_len != 0);
        for (ch = CELLA_CHANNEL_OUT; ch <= CELLA_CHANNEL_ERR; ch++)
            s->poll_out[ch] =
                add(set, &at, s->out[ch], POLLIN,
                    (s->orphan || (room && s->credit[ch] && may_send(s))) && !s->final_set);
    }
    return at - start;
}

static void act(struct stream *s, const struct pollfd *set)
{
    uint16_t ch;

    if (s->poll_ctrl >= 0 && set[s->poll_ctrl].revents && s->ctrl >= 0)
        read_ctrl(s);
    for (ch = CELLA_CHANNEL_OUT; ch <= CELLA_CHANNEL_ERR; ch++)
        if (s->poll_out[ch] >= 0 && set[s->poll_out[ch]].revents && s->out[ch] >= 0)
            pump_out(s, ch);
    pump_in(s);
    return_credit(s);
    if (s->lost)
        kill_strays(s);
    if (!s->final_set)
        return;
    if (s->discard ||
        s->final_type == CELLA_FRAME_ERROR) { /* no EOF: what came may be a part only */
        close_fd(&s->out[CELLA_CHANNEL_OUT]);
        close_fd(&s->out[CELLA_CHANNEL_ERR]);
    }
    pump_rest(s, CELLA_CHANNEL_OUT);
    pump_rest(s, CELLA_CHANNEL_ERR);
    if (s->out[CELLA_CHANNEL_OUT] < 0 && s->out[CELLA_CHANNEL_ERR] < 0 &&
        (s->op == CELLA_OP_EXEC || !s->discard || !s->child))
        end(s);
}

void streams_act(const struct pollfd *set)
{
    unsigned i;

    for (i = 0; i < CELLA_STREAMS_MAX && n_streams; i++)
        if (streams[i].used)
            act(&streams[i], set);
}

/* A finished stream whose rest can move now: nothing to poll for would wake the loop. */
static int has_rest(const struct stream *s)
{
    int ch;

    for (ch = CELLA_CHANNEL_OUT; ch <= CELLA_CHANNEL_ERR; ch++)
        if (s->final_set && s->out[ch] >= 0 && s->credit[ch] && out_pending() < OUT_HIGH)
            return 1;
    return 0;
}

uint64_t streams_deadline(void)
{
    uint64_t now = now_ns(), best = UINT64_MAX, due;
    unsigned i;

    for (i = 0; i < CELLA_STREAMS_MAX && n_streams; i++) {
        struct stream *s = &streams[i];
        if (!s->used)
            continue;
        if (s->deadline && s->deadline <= now && !s->timed_out) {
            s->timed_out = 1;
            stream_kill(s);
        }
        if (s->killed && s->op != CELLA_OP_EXEC && s->child && s->give_up && s->give_up <= now) {
            kill(s->child, SIGKILL);
            s->give_up = now + NSEC;
        }
        due = s->lost ? now + NSEC / 100 : s->deadline && !s->timed_out ? s->deadline : UINT64_MAX;
        if (s->killed && s->op != CELLA_OP_EXEC && s->child && s->give_up < due)
            due = s->give_up;
        if (has_rest(s))
            due = now;
        best = due < best ? due : best;
    }
    return best;
}
