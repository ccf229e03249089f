/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * session - one stream between a warden and descriptors of this process.
 *
 * The descriptors are often shared with other programs (a terminal, a pipe of a shell), so their
 * flags are never changed: poll says when to read or write, and a write is no longer than what
 * cannot block. Credit keeps memory bounded both ways: at most CELLA_WINDOW bytes wait per channel.
 * Invariants: the terminal is put back and the signal mask restored on every way out; signals that
 * end a program are taken from a signalfd while the session lasts, so none ends it with the
 * terminal raw. Threads: none.
 */
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <termios.h>

#include "client_int.h"

#define IN_CHUNK 16384u
#define PIPE_CHUNK 4096u /* PIPE_BUF: POLLOUT on a pipe means that much cannot block */
#define CREDIT_BATCH (CELLA_WINDOW / 8)

struct output {
    int fd; /* -1 = nobody listens: data is dropped */
    size_t chunk;
    struct buf data;
    size_t off;
    uint32_t owed; /* credit to give back */
    uint64_t total;
};

struct pump {
    struct client *cl;
    const struct session *s;
    struct session_end *end;
    uint32_t stream;
    uint64_t credit; /* of channel IN */
    int in_done, over, closing, failed;
    int interrupts;
    int sigfd;
    struct output out[2]; /* OUT, ERR */
    sigset_t old_mask;
    struct termios old_tty;
    int raw;
};

static void queue(struct pump *p, uint16_t type, uint16_t channel, const void *payload, size_t len)
{
    if (wire_queue(p->cl, type, channel, p->stream, 0, payload, len) < 0 && !p->failed)
        p->failed = -ENOMEM;
}

static void abandon(struct pump *p)
{
    if (!p->closing && !p->over)
        queue(p, CELLA_FRAME_CLOSE, 0, NULL, 0);
    p->closing = 1;
    p->in_done = 1;
}

/* ---- output ---- */

static size_t output_pending(const struct output *o)
{
    return o->data.len - o->off;
}

static void output_credit(struct pump *p, uint16_t channel, struct output *o, size_t n)
{
    auto_buf struct buf b = BUF_INIT;

    o->owed += (uint32_t)n;
    if (p->over || (o->owed < CREDIT_BATCH && output_pending(o)))
        return;
    field_add_u32(&b, CELLA_TAG_COUNT, o->owed);
    queue(p, CELLA_FRAME_CREDIT, channel, b.ptr, b.len);
    o->owed = 0;
}

static void output_write(struct pump *p, uint16_t channel)
{
    struct output *o = &p->out[channel - CELLA_CHANNEL_OUT];
    size_t n = output_pending(o);
    ssize_t w;

    if (n > o->chunk)
        n = o->chunk;
    if (!n)
        return;
    w = o->fd < 0 ? (ssize_t)n : write(o->fd, o->data.ptr + o->off, n);
    if (w < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (w < 0) { /* a closed pipe, a full disk: nobody can be told more; end the command */
        if (!p->failed)
            p->failed = -errno;
        o->fd = -1;
        w = (ssize_t)n;
        abandon(p);
    }
    o->off += (size_t)w;
    if (!output_pending(o))
        o->data.len = o->off = 0;
    output_credit(p, channel, o, (size_t)w);
}

static int output_take(struct pump *p, const struct cella_frame *f, const uint8_t *payload)
{
    struct output *o;

    if (f->channel != CELLA_CHANNEL_OUT && f->channel != CELLA_CHANNEL_ERR)
        return -EPROTO;
    o = &p->out[f->channel - CELLA_CHANNEL_OUT];
    if (output_pending(o) + f->length > CELLA_WINDOW)
        return -EPROTO;
    o->total += f->length;
    if (p->s->out_max && o->total > p->s->out_max) {
        if (!p->failed)
            p->failed = -EFBIG;
        o->fd = -1;
        abandon(p);
    }
    if (o->off && o->off >= o->data.len / 2) {
        memmove(o->data.ptr, o->data.ptr + o->off, output_pending(o));
        o->data.len -= o->off;
        o->off = 0;
    }
    if (buf_add(&o->data, payload, f->length) < 0)
        return -ENOMEM;
    while (o->fd < 0 && output_pending(o))
        output_write(p, f->channel);
    return 0;
}

static void output_init(struct output *o, int fd)
{
    struct stat st;

    *o = (struct output){.fd = fd, .chunk = PIPE_CHUNK};
    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)))
        o->chunk = CELLA_WINDOW;
}

/* ---- input and signals ---- */

static void input_read(struct pump *p)
{
    uint8_t chunk[IN_CHUNK];
    size_t want = p->credit < sizeof(chunk) ? (size_t)p->credit : sizeof(chunk);
    ssize_t n = read(p->s->in, chunk, want);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) { /* an error of the input is its end, as for a shell's pipe */
        queue(p, CELLA_FRAME_EOF, CELLA_CHANNEL_IN, NULL, 0);
        p->in_done = 1;
        return;
    }
    p->credit -= (uint64_t)n;
    queue(p, CELLA_FRAME_DATA, CELLA_CHANNEL_IN, chunk, (size_t)n);
}

static void send_size(struct pump *p)
{
    auto_buf struct buf b = BUF_INIT;
    struct winsize w;

    if (!p->s->tty || ioctl(p->s->in, TIOCGWINSZ, &w) < 0)
        return;
    field_add_u32(&b, CELLA_TAG_ROWS, w.ws_row);
    field_add_u32(&b, CELLA_TAG_COLS, w.ws_col);
    queue(p, CELLA_FRAME_RESIZE, 0, b.ptr, b.len);
}

/* The first goes to the command; a second INT or TERM kills it; a third one gives up waiting for
 * the warden. */
static void take_signal(struct pump *p)
{
    auto_buf struct buf b = BUF_INIT;
    struct signalfd_siginfo si;

    if (read(p->sigfd, &si, sizeof(si)) != sizeof(si))
        return;
    if (si.ssi_signo == SIGWINCH) {
        send_size(p);
        return;
    }
    if (si.ssi_signo == SIGINT || si.ssi_signo == SIGTERM) {
        if (++p->interrupts == 2)
            abandon(p);
        if (p->interrupts == 3)
            p->failed = -EINTR;
        if (p->interrupts > 1)
            return;
    }
    field_add_u32(&b, CELLA_TAG_SIGNAL, si.ssi_signo);
    field_add_u32(&b, CELLA_TAG_SCOPE, CELLA_SCOPE_TREE);
    if (!p->closing)
        queue(p, CELLA_FRAME_SIGNAL, 0, b.ptr, b.len);
}

static int signals_take(struct pump *p)
{
    static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigset_t mask;
    size_t i;

    sigemptyset(&mask);
    for (i = 0; p->s->forward_signals && i < ARRAY_LEN(forwarded); i++)
        sigaddset(&mask, forwarded[i]);
    if (p->s->tty)
        sigaddset(&mask, SIGWINCH);
    sigaddset(&mask, SIGPIPE); /* EPIPE says it */
    if (sigprocmask(SIG_BLOCK, &mask, &p->old_mask) < 0)
        return -errno;
    sigdelset(&mask, SIGPIPE);
    p->sigfd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    return p->sigfd < 0 ? -errno : 0;
}

static void terminal_raw(struct pump *p)
{
    struct termios t;

    if (!p->s->tty || tcgetattr(p->s->in, &p->old_tty) < 0)
        return;
    t = p->old_tty;
    cfmakeraw(&t);
    p->raw = tcsetattr(p->s->in, TCSANOW, &t) == 0;
}

static void pump_fini(struct pump *p)
{
    struct timespec now = {0, 0};
    sigset_t pipe_only;

    if (p->raw)
        tcsetattr(p->s->in, TCSANOW, &p->old_tty);
    if (p->sigfd >= 0)
        close(p->sigfd);
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    while (sigtimedwait(&pipe_only, NULL, &now) > 0) /* ours, by a write above */
        ;
    sigprocmask(SIG_SETMASK, &p->old_mask, NULL);
    buf_fini(&p->out[0].data);
    buf_fini(&p->out[1].data);
}

/* ---- frames ---- */

static int take_frame(struct pump *p, const struct cella_frame *f, const uint8_t *payload)
{
    uint32_t count;

    if (f->type == CELLA_FRAME_REPLY)
        return wire_later(p->cl, f, payload) < 0 ? -EPROTO : 0;
    if (f->stream != p->stream)
        return f->stream && f->stream < p->stream ? 0 : -EPROTO;
    switch (f->type) {
    case CELLA_FRAME_OPENED:
    case CELLA_FRAME_EOF:
        return 0;
    case CELLA_FRAME_DATA:
        return output_take(p, f, payload);
    case CELLA_FRAME_CREDIT:
        if (field_get_u32(payload, f->length, CELLA_TAG_COUNT, &count) < 0)
            return -EPROTO;
        p->credit += count;
        return 0;
    case CELLA_FRAME_EXIT:
    case CELLA_FRAME_RESULT:
    case CELLA_FRAME_ERROR:
        if (f->length > sizeof(p->end->payload))
            return -EPROTO;
        p->end->type = f->type;
        p->end->len = f->length;
        memcpy(p->end->payload, payload, f->length);
        p->over = p->in_done = 1;
        return 0;
    default:
        return -EPROTO;
    }
}

static int take_frames(struct pump *p)
{
    const uint8_t *payload;
    struct cella_frame f;
    int r;

    while (!p->over && (r = wire_next(p->cl, &f, &payload)) != 0) {
        if (r > 0)
            r = take_frame(p, &f, payload);
        if (r < 0)
            return r;
    }
    return 0;
}

enum { AT_SOCKET, AT_IN, AT_OUT, AT_ERR, AT_SIGNAL, AT_COMPLAINTS, AT_COUNT };

static void poll_set(const struct pump *p, struct pollfd fds[AT_COUNT])
{
    int in = !p->in_done && p->s->in >= 0 && p->credit && !wire_pending(p->cl);

    fds[AT_SOCKET] = (struct pollfd){p->over ? -1 : p->cl->fd, 0, 0};
    fds[AT_SOCKET].events = (short)(POLLIN | (wire_pending(p->cl) ? POLLOUT : 0));
    fds[AT_IN] = (struct pollfd){in ? p->s->in : -1, POLLIN, 0};
    fds[AT_OUT] = (struct pollfd){output_pending(&p->out[0]) ? p->out[0].fd : -1, POLLOUT, 0};
    fds[AT_ERR] = (struct pollfd){output_pending(&p->out[1]) ? p->out[1].fd : -1, POLLOUT, 0};
    fds[AT_SIGNAL] = (struct pollfd){p->sigfd, POLLIN, 0};
    fds[AT_COMPLAINTS] = (struct pollfd){p->cl->errfd, POLLIN, 0};
}

static int pump_turn(struct pump *p)
{
    struct pollfd fds[AT_COUNT];
    int r;

    poll_set(p, fds);
    if (poll(fds, AT_COUNT, -1) < 0)
        return errno == EINTR ? 0 : -errno;
    if (fds[AT_COMPLAINTS].revents)
        wire_listen(p->cl);
    if (fds[AT_SIGNAL].revents)
        take_signal(p);
    if (fds[AT_OUT].revents)
        output_write(p, CELLA_CHANNEL_OUT);
    if (fds[AT_ERR].revents)
        output_write(p, CELLA_CHANNEL_ERR);
    if (fds[AT_IN].revents)
        input_read(p);
    if (p->over)
        return 0;
    if (fds[AT_SOCKET].revents & (POLLIN | POLLHUP | POLLERR)) {
        r = wire_fill(p->cl);
        if (r < 0)
            return r;
        r = take_frames(p);
        if (r < 0)
            return r;
    }
    r = wire_flush(p->cl);
    /* With something to read left, its end is reported by the read. */
    return r < 0 && !(fds[AT_SOCKET].revents & POLLIN) ? r : 0;
}

static int pump_run(struct pump *p)
{
    int r = take_frames(p);

    while (r == 0 && p->failed != -EINTR &&
           (!p->over || (output_pending(&p->out[0]) && p->out[0].fd >= 0) ||
            (output_pending(&p->out[1]) && p->out[1].fd >= 0)))
        r = pump_turn(p);
    return r;
}

int client_open(struct client *cl, const void *fields, size_t len, uint32_t *ret_stream,
                struct cella_error *err)
{
    if (len > CELLA_FRAME_MAX)
        return fail(err, -E2BIG,
                    "the command with its arguments and environment is larger than %u bytes",
                    CELLA_FRAME_MAX);
    *ret_stream = cl->next_stream++;
    if (wire_queue(cl, CELLA_FRAME_OPEN, 0, *ret_stream, 0, fields, len) < 0)
        return fail(err, -ENOMEM, "out of memory");
    wire_flush(cl); /* a failure shows when the answer is waited for */
    return 0;
}

int client_session(struct client *cl, const struct session *s, struct session_end *ret,
                   struct cella_error *err)
{
    struct session_end end = {.type = 0};
    struct pump p = {
        .cl = cl, .s = s, .end = &end, .stream = s->stream, .credit = CELLA_WINDOW, .sigfd = -1};
    int r;

    if (cl->fd < 0)
        return fail(err, -EPIPE, "the warden%s%s is gone", cl->cell[0] ? " of cell " : "",
                    cl->cell);
    p.in_done = s->in < 0;
    output_init(&p.out[0], s->out);
    output_init(&p.out[1], s->err);
    r = signals_take(&p);
    if (r < 0)
        return fail(err, r, "signals: %s", strerror(-r));
    terminal_raw(&p);
    if (!p.stream) /* after the signals: the command may send one at once */
        r = client_open(cl, s->fields, s->fields_len, &p.stream, err);
    if (r < 0) {
        pump_fini(&p);
        return r;
    }
    r = pump_run(&p);
    pump_fini(&p);
    if (end.type)
        *ret = end;
    if (r < 0)
        return wire_dead(cl, r, err);
    if (p.failed == -EFBIG)
        return fail(err, -EFBIG, "the cell sends more than %zu bytes; refused", s->out_max);
    if (p.failed == -EINTR)
        return fail(err, -EINTR, "interrupted; the warden was not waited for");
    return p.failed < 0 ? fail(err, p.failed, "writing the output: %s", strerror(-p.failed)) : 0;
}
