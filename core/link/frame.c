/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * frame - frames of <cella/link.h>, either side of a stream socket.
 *
 * Why here: client and warden, and warden and agent, speak the same framing; what a frame means is
 * not known here. Invariants: the input buffer holds at most one frame of the largest size, so a
 * peer cannot make us allocate; the output buffer never exceeds out_max; nothing blocks; callbacks
 * may free the framer (it is then released when the outermost call returns). on_closed is called at
 * most once, and only from the loop or from framer_feed, never from framer_send. Threads: one.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "link_internal.h"

#define IN_CAP (CELLA_FRAME_HEADER + CELLA_FRAME_MAX)
#define OUT_KEEP 4096u /* an idle output buffer above this is given back */

struct framer {
    struct loop *loop;
    int fd; /* -1: closed */
    size_t out_max;
    int (*on_frame)(void *ctx, const struct cella_frame *f, const uint8_t *payload);
    void (*on_closed)(void *ctx, int code);
    void *ctx;
    uint8_t *in;
    size_t in_len;
    uint8_t *out;
    size_t out_off, out_len, out_cap;
    int reading;
    int parked;  /* peer hung up while reading was off: not watched until it is on again */
    int broken;  /* a write failed; what the peer sent before is still read */
    int busy;    /* depth of calls that still need this struct */
    int freed;   /* framer_free() came while busy */
    int kick_id; /* timer: frames were left in the buffer when reading was off */
};

static void on_fd(void *data, int fd, uint32_t ready);

static void framer_release(struct framer *f)
{
    free(f->in);
    free(f->out);
    free(f);
}

static void leave(struct framer *f)
{
    if (--f->busy == 0 && f->freed)
        framer_release(f);
}

static void hang_up(struct framer *f)
{
    if (f->fd < 0)
        return;
    loop_timer_cancel(f->loop, f->kick_id);
    f->kick_id = 0;
    loop_unwatch(f->loop, f->fd);
    close(f->fd);
    f->fd = -1;
}

static void closed(struct framer *f, int code)
{
    if (f->fd < 0)
        return;
    hang_up(f);
    f->on_closed(f->ctx, code);
}

static int rewatch(struct framer *f)
{
    uint32_t events = (f->reading ? CELLA_FD_IN : 0u) | (f->out_len ? CELLA_FD_OUT : 0u);

    if (f->fd < 0 || f->parked)
        return 0;
    return loop_watch(f->loop, f->fd, events, on_fd, f);
}

int framer_new(struct loop *loop, int own_fd, size_t out_max,
               int (*on_frame)(void *ctx, const struct cella_frame *f, const uint8_t *payload),
               void (*on_closed)(void *ctx, int code), void *ctx, struct framer **ret)
{
    struct framer *f = calloc(1, sizeof(*f));
    int flags = fcntl(own_fd, F_GETFL), r = -ENOMEM;

    if (f)
        f->in = malloc(IN_CAP);
    if (!f || !f->in)
        goto fail;
    f->loop = loop;
    f->fd = own_fd;
    f->out_max = out_max;
    f->on_frame = on_frame;
    f->on_closed = on_closed;
    f->ctx = ctx;
    f->reading = 1;
    if (flags < 0 || fcntl(own_fd, F_SETFL, flags | O_NONBLOCK) < 0)
        r = -errno;
    else
        r = rewatch(f);
    if (r < 0)
        goto fail;
    *ret = f;
    return 0;
fail:
    if (f)
        framer_release(f);
    if (own_fd >= 0)
        close(own_fd);
    return r;
}

/* Hands every complete frame of the buffer over, as long as the owner wants to read. */
static void drain(struct framer *f)
{
    size_t off = 0;

    f->busy++;
    while (f->fd >= 0 && f->reading && f->in_len - off >= CELLA_FRAME_HEADER) {
        const uint8_t *p = f->in + off;
        struct cella_frame h = {le32(p), le16(p + 4), le16(p + 6), le32(p + 8), le32(p + 12)};
        int r;

        if (h.length > CELLA_FRAME_MAX) {
            closed(f, -EMSGSIZE);
            break;
        }
        if (f->in_len - off < CELLA_FRAME_HEADER + (size_t)h.length)
            break;
        off += CELLA_FRAME_HEADER + (size_t)h.length;
        r = f->on_frame(f->ctx, &h, p + CELLA_FRAME_HEADER);
        if (r < 0)
            closed(f, r);
    }
    f->in_len -= off;
    memmove(f->in, f->in + off, f->in_len);
    leave(f);
}

int framer_feed(struct framer *f, const uint8_t *p, size_t n)
{
    size_t room;

    f->busy++;
    while (n && f->fd >= 0 && f->reading) {
        room = IN_CAP - f->in_len;
        if (room > n)
            room = n;
        memcpy(f->in + f->in_len, p, room);
        f->in_len += room;
        p += room;
        n -= room;
        drain(f);
    }
    room = f->fd >= 0 && f->reading;
    leave(f);
    return room ? 0 : -EPIPE;
}

static void receive(struct framer *f)
{
    ssize_t n;

    if (f->in_len < IN_CAP) {
        n = read(f->fd, f->in + f->in_len, IN_CAP - f->in_len);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            closed(f, -ECONNRESET);
            return;
        }
        f->in_len += (size_t)n;
    }
    drain(f);
}

static void out_reset(struct framer *f)
{
    f->out_off = f->out_len = 0;
    if (f->out_cap > OUT_KEEP) {
        free(f->out);
        f->out = NULL;
        f->out_cap = 0;
    }
}

static void flush(struct framer *f)
{
    while (f->out_len) {
        ssize_t n = send(f->fd, f->out + f->out_off, f->out_len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            f->broken = 1;
            out_reset(f);
            return;
        }
        f->out_off += (size_t)n;
        f->out_len -= (size_t)n;
    }
    out_reset(f);
}

static void on_fd(void *data, int fd, uint32_t ready)
{
    struct framer *f = data;
    int had_output = f->out_len != 0;

    f->busy++;
    if (ready & CELLA_FD_OUT)
        flush(f);
    if (f->reading && (ready & (CELLA_FD_IN | CELLA_FD_HUP))) {
        receive(f);
    } else if (ready & CELLA_FD_HUP) {
        f->parked = 1;
        loop_unwatch(f->loop, fd);
    }
    if (had_output && !f->out_len && rewatch(f) < 0)
        closed(f, -ENOMEM);
    leave(f);
}

/* Room for n more bytes at the end of the queue. */
static int out_room(struct framer *f, size_t n)
{
    size_t cap = f->out_cap ? f->out_cap : OUT_KEEP;
    uint8_t *p;

    if (f->out_off + f->out_len + n <= f->out_cap)
        return 0;
    if (f->out_off) {
        memmove(f->out, f->out + f->out_off, f->out_len);
        f->out_off = 0;
    }
    while (cap < f->out_len + n)
        cap *= 2;
    if (cap == f->out_cap)
        return 0;
    p = realloc(f->out, cap);
    if (!p)
        return -ENOMEM;
    f->out = p;
    f->out_cap = cap;
    return 0;
}

static int queue(struct framer *f, const void *p, size_t n)
{
    if (!n)
        return 0;
    if (out_room(f, n) < 0)
        return -ENOMEM;
    memcpy(f->out + f->out_off + f->out_len, p, n);
    f->out_len += n;
    return 0;
}

/* Tries the socket first when nothing waits; *sent tells how far it came. */
static int send_now(struct framer *f, struct iovec iov[2], size_t *sent)
{
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = iov[1].iov_len ? 2 : 1};
    ssize_t n;

    do
        n = sendmsg(f->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN) {
        f->broken = 1;
        return -EPIPE;
    }
    *sent = n < 0 ? 0 : (size_t)n;
    return 0;
}

int framer_send(struct framer *f, uint16_t type, uint16_t channel, uint32_t stream, uint32_t id,
                const void *payload, size_t len)
{
    uint8_t head[CELLA_FRAME_HEADER];
    struct iovec iov[2] = {{head, sizeof(head)}, {(void *)(uintptr_t)payload, len}};
    size_t sent = 0, from;

    if (len > CELLA_FRAME_MAX)
        return -E2BIG;
    if (f->fd < 0 || f->broken)
        return -EPIPE;
    if (f->out_len + sizeof(head) + len > f->out_max)
        return -EOVERFLOW;
    put_le32(head, (uint32_t)len);
    put_le16(head + 4, type);
    put_le16(head + 6, channel);
    put_le32(head + 8, stream);
    put_le32(head + 12, id);
    if (!f->out_len && send_now(f, iov, &sent) < 0)
        return -EPIPE;
    if (sent == sizeof(head) + len)
        return 0;
    from = sent < sizeof(head) ? 0 : sent - sizeof(head);
    if ((sent < sizeof(head) && queue(f, head + sent, sizeof(head) - sent) < 0) ||
        queue(f, (const uint8_t *)payload + from, len - from) < 0 || rewatch(f) < 0) {
        f->broken = 1; /* half a frame is on the wire */
        return -ENOMEM;
    }
    return 0;
}

int frame_encode(struct buf *b, uint16_t type, uint32_t stream, const void *payload, size_t len)
{
    uint8_t head[CELLA_FRAME_HEADER] = {0};

    put_le32(head, (uint32_t)len);
    put_le16(head + 4, type);
    put_le32(head + 8, stream);
    buf_add(b, head, sizeof(head));
    return buf_add(b, payload, len);
}

void framer_turn(struct framer *f, int timeout_ms)
{
    struct pollfd p = {f->fd, (short)(POLLIN | (f->out_len ? POLLOUT : 0)), 0};

    if (f->fd < 0 || poll(&p, 1, timeout_ms) <= 0)
        return;
    on_fd(f, f->fd,
          (p.revents & POLLIN ? CELLA_FD_IN : 0u) | (p.revents & POLLOUT ? CELLA_FD_OUT : 0u) |
              (p.revents & (POLLHUP | POLLERR) ? CELLA_FD_HUP : 0u));
}

size_t framer_pending(const struct framer *f)
{
    return f->out_len;
}

static void on_kick(void *data)
{
    struct framer *f = data;

    f->kick_id = 0;
    drain(f);
}

void framer_read_enable(struct framer *f, int on)
{
    if (f->fd < 0 || f->reading == !!on)
        return;
    f->reading = !!on;
    if (on && f->in_len >= CELLA_FRAME_HEADER && !f->kick_id) {
        f->kick_id = loop_timer(f->loop, 0, on_kick, f);
        if (f->kick_id < 0)
            f->kick_id = 0; /* the next byte that arrives has the same effect */
    }
    if (on)
        f->parked = 0;
    rewatch(f);
}

void framer_free(struct framer *f)
{
    if (!f)
        return;
    hang_up(f);
    f->freed = 1;
    if (!f->busy)
        framer_release(f);
}
