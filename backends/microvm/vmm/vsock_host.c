/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * vsock_host - the clients' side of the vsock multiplexer.
 *
 * A client's first line says where to. "CONNECT <port>": "OK <port>" when the guest has accepted, the end when it
 * has not. "PORT <port>": no answer at all; it is tried until the guest accepts, before there is a driver and after
 * a transport reset, too. The line is read byte by byte, so that what follows it stays in the socket until it can
 * be the guest's. A client is watched for what could be done with it just now and nothing else: no
 * readiness that nobody can serve keeps the loop awake.
 *
 * Clients are the host's, and are closed rather than argued with. Threads: the caller has the machine's lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "limiter.h"
#include "vsock_int.h"

#define PAUSE_FIRST (2 * MS)
#define PAUSE_MOST (20 * MS)
#define FEEDS 16u /* packets of one client before others have their turn */

static void on_due(void *self);

/* ------------------------------------------------------------------------ watching */

static uint32_t wanted(const struct vsock *v, const struct conn *c)
{
    uint32_t e = c->buf_len > 0 ? EPOLLOUT : 0;

    switch (c->state) {
    case HELLO:
        return EPOLLIN;
    case WAITING:
    case REQUESTED:
        return EPOLLERR; /* only whether it is still there */
    case OPEN:
        if (c->shut & VIRTIO_VSOCK_SHUTDOWN_SEND)
            return e | EPOLLERR;
        if (virtio_live(&v->v) && !v->starved && vsock_credit(c) > 0 &&
            !(c->peer_shut & VIRTIO_VSOCK_SHUTDOWN_RCV))
            e |= EPOLLIN;
        return e;
    case GONE:
        return e;
    case FREE:
    case LINGER:
    default:
        return 0;
    }
}

void vsock_arm(struct vsock *v, struct conn *c)
{
    if (c->fd >= 0)
        (void)loop_change(v->v.loop, c->fd, wanted(v, c));
}

void vsock_arm_all(struct vsock *v)
{
    uint32_t i;

    for (i = 0; i < CONNS; i++)
        if (v->c[i].state == OPEN)
            vsock_arm(v, &v->c[i]);
}

void vsock_schedule(struct vsock *v)
{
    uint64_t first = 0, now = limiter_now();
    uint32_t i;

    for (i = 0; i < CONNS; i++)
        if (v->c[i].due && (!first || v->c[i].due < first))
            first = v->c[i].due;
    (void)loop_timer(v->v.loop, !first ? 0 : first > now ? first - now : 1, on_due, v);
}

static void due_in(struct vsock *v, struct conn *c, uint64_t ns)
{
    c->due = limiter_now() + ns;
    vsock_schedule(v);
}

/* ---------------------------------------------------------------------------- ends */

/* @seccomp vmm: accept4 recvfrom sendto sendmsg shutdown */
/* @seccomp vmm vcpu: close */
static void close_fd(struct vsock *v, struct conn *c)
{
    if (c->fd < 0)
        return;
    loop_unwatch(v->v.loop, c->fd);
    close(c->fd);
    c->fd = -1;
}

void vsock_drop(struct vsock *v, struct conn *c)
{
    close_fd(v, c);
    free(c->buf);
    *c = (struct conn){.fd = -1};
    if (!v->accepting) /* there is room again */
        v->accepting = loop_change(v->v.loop, v->borrow_listen_fd, EPOLLIN) == 0;
}

/* Does the guest know of it? */
static int known(const struct conn *c)
{
    return c->state == OPEN || c->state == LINGER ||
           (c->state == REQUESTED && !(c->ctl & CTL_REQUEST));
}

void vsock_kill(struct vsock *v, struct conn *c)
{
    if (known(c))
        vsock_rst(v, c->host_port, c->port, VIRTIO_VSOCK_TYPE_STREAM);
    vsock_drop(v, c);
}

/* The client has gone. What it sent last may not have been read yet: no RST, which could overtake it. */
static void client_gone(struct vsock *v, struct conn *c)
{
    if (c->state != OPEN) {
        vsock_kill(v, c);
        return;
    }
    close_fd(v, c);
    free(c->buf);
    c->buf = NULL;
    c->buf_len = 0;
    c->state = LINGER;
    c->shut = VIRTIO_VSOCK_SHUTDOWN_RCV | VIRTIO_VSOCK_SHUTDOWN_SEND;
    c->ctl = CTL_SHUTDOWN;
    due_in(v, c, v->linger_wait);
}

void vsock_peer_gone(struct vsock *v, struct conn *c)
{
    if (c->buf_len == 0) {
        vsock_drop(v, c);
        return;
    }
    c->state = GONE;
    c->ctl = 0;
    vsock_arm(v, c);
}

/* Both directions, and everything has been given to the client: 5.10.6.4 */
static void shut_if_flushed(struct vsock *v, struct conn *c)
{
    if (c->buf_len > 0)
        return;
    if (c->state == GONE)
        vsock_drop(v, c);
    else if (c->peer_shut == (VIRTIO_VSOCK_SHUTDOWN_RCV | VIRTIO_VSOCK_SHUTDOWN_SEND))
        vsock_kill(v, c);
    else if (c->peer_shut & VIRTIO_VSOCK_SHUTDOWN_SEND)
        (void)shutdown(c->fd, SHUT_WR);
}

void vsock_peer_shut(struct vsock *v, struct conn *c, uint32_t flags)
{
    c->peer_shut |= flags & (VIRTIO_VSOCK_SHUTDOWN_RCV | VIRTIO_VSOCK_SHUTDOWN_SEND);
    if (c->peer_shut & VIRTIO_VSOCK_SHUTDOWN_RCV)
        (void)shutdown(c->fd, SHUT_RD);
    shut_if_flushed(v, c);
}

void vsock_stop(struct vsock *v, int all)
{
    uint32_t i;

    for (i = 0; i < CONNS; i++) {
        struct conn *c = &v->c[i];
        if (!all && (c->state == HELLO || c->state == WAITING))
            continue;
        if (!all && c->state == REQUESTED && c->patient) {
            c->state = WAITING;
            c->ctl = 0;
            c->due = limiter_now() + PAUSE_FIRST;
            continue;
        }
        if (c->state != FREE)
            vsock_drop(v, c);
    }
    if (all) {
        (void)loop_timer(v->v.loop, 0, on_due, v);
        loop_unwatch(v->v.loop, v->borrow_listen_fd);
    } else
        vsock_schedule(v);
}

/* ------------------------------------------------------------------------- begins */

static uint32_t fresh_port(struct vsock *v)
{
    uint32_t i, p;

again:
    p = v->next_port++;
    if (p < 1024)
        goto again;
    for (i = 0; i < CONNS; i++)
        if (v->c[i].state >= REQUESTED && v->c[i].host_port == p)
            goto again;
    return p;
}

static void try_now(struct vsock *v, struct conn *c)
{
    int wait = (v->v.active && v->v.quiet) || v->reset_pending || v->reset_wait;

    c->due = 0;
    if (wait || !virtio_live(&v->v)) {
        if (!c->patient && !wait) {
            vsock_drop(v, c);
            return;
        }
        c->state = WAITING; /* activation, or the end of the reset, makes it due */
        return;
    }
    c->host_port = fresh_port(v);
    c->state = REQUESTED;
    c->ctl = CTL_REQUEST;
    c->sent = c->got = c->fwd = c->fwd_told = 0;
    if (c->patient)
        c->due = limiter_now() + v->answer_wait;
}

void vsock_try_all(struct vsock *v)
{
    uint32_t i;

    for (i = 0; i < CONNS; i++)
        if (v->c[i].state == WAITING) {
            v->c[i].pause = PAUSE_FIRST;
            v->c[i].due = 1;
        }
    vsock_schedule(v);
}

/* What has been waiting for its time. */
static void on_due(void *self)
{
    struct vsock *v = self;
    uint64_t now = limiter_now();
    uint32_t i;

    for (i = 0; i < CONNS; i++) {
        struct conn *c = &v->c[i];
        if (!c->due || c->due > now)
            continue;
        c->due = 0;
        if (c->state == REQUESTED && !(c->ctl & CTL_REQUEST)) /* no answer: another try */
            vsock_rst(v, c->host_port, c->port, VIRTIO_VSOCK_TYPE_STREAM);
        if (c->state == WAITING || c->state == REQUESTED)
            try_now(v, c);
        else if (c->state == LINGER)
            vsock_kill(v, c);
        if (c->state != FREE)
            vsock_arm(v, c);
    }
    vsock_schedule(v);
    vsock_pump(v);
}

void vsock_accepted(struct vsock *v, struct conn *c)
{
    char line[LINE_MAX_];
    int n = snprintf(line, sizeof(line), "OK %u\n", c->port);

    c->state = OPEN;
    c->due = 0;
    if (!c->patient && send(c->fd, line, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) != n)
        client_gone(v, c);
}

void vsock_refused(struct vsock *v, struct conn *c)
{
    if (!c->patient) {
        vsock_drop(v, c);
        return;
    }
    c->state = WAITING;
    c->ctl = 0;
    due_in(v, c, c->pause);
    c->pause = c->pause * 2 < PAUSE_MOST ? c->pause * 2 : PAUSE_MOST;
}

/* "WORD digits\n", nothing else; -1 */
static int64_t number_after(const char *line, const char *word)
{
    size_t n = strlen(word);
    uint64_t v = 0;

    if (strncmp(line, word, n) != 0 || line[n] == '\0')
        return -1;
    for (line += n; *line; line++) {
        if (*line < '0' || *line > '9')
            return -1;
        v = v * 10 + (uint64_t)(*line - '0');
        if (v > UINT32_MAX)
            return -1;
    }
    return (int64_t)v;
}

static void on_hello(struct vsock *v, struct conn *c)
{
    int64_t port = -1;
    char b = 0;
    ssize_t n = 1;

    while (b != '\n' && c->line_len < sizeof(c->line) - 1 && (n = recv(c->fd, &b, 1, 0)) == 1)
        if (b != '\n')
            c->line[c->line_len++] = b;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    c->line[c->line_len] = '\0';
    if (n == 1 && b == '\n' && strlen(c->line) == c->line_len) {
        port = number_after(c->line, "CONNECT ");
        if (port < 0) {
            port = number_after(c->line, "PORT ");
            c->patient = 1;
        }
    }
    if (port < 0) {
        vsock_drop(v, c);
        return;
    }
    c->port = (uint32_t)port;
    c->pause = PAUSE_FIRST;
    try_now(v, c);
    vsock_schedule(v);
}

/* --------------------------------------------------------------------------- bytes */

static void forwarded(struct conn *c, uint32_t n)
{
    c->fwd += n;
    if (c->state == OPEN && (uint32_t)(c->fwd - c->fwd_told) >= ALLOC / 2)
        c->ctl |= CTL_UPDATE;
}

void vsock_deliver(struct vsock *v, struct conn *c, struct iovec *iov, uint32_t n, uint32_t len)
{
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};
    ssize_t sent = 0;
    uint32_t i, skip, at;

    if (len == 0)
        return;
    if (c->buf_len == 0) {
        sent = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            client_gone(v, c);
            return;
        }
        sent = sent < 0 ? 0 : sent;
        forwarded(c, (uint32_t)sent);
    }
    if ((uint32_t)sent == len)
        return;
    if (!c->buf)
        c->buf = malloc(ALLOC);
    if (!c->buf) {
        vsock_kill(v, c);
        return;
    }
    skip = (uint32_t)sent;
    for (i = 0; i < n; i++) {
        const uint8_t *p = iov[i].iov_base;
        uint32_t k, have = (uint32_t)iov[i].iov_len;
        if (skip >= have) {
            skip -= have;
            continue;
        }
        for (p += skip, have -= skip, skip = 0; have > 0; have -= k, p += k) {
            at = (c->buf_at + c->buf_len) % ALLOC;
            k = have < ALLOC - at ? have : ALLOC - at;
            memcpy(c->buf + at, p, k);
            c->buf_len += k;
        }
    }
}

static void flush(struct vsock *v, struct conn *c)
{
    while (c->buf_len > 0) {
        uint32_t k = c->buf_len < ALLOC - c->buf_at ? c->buf_len : ALLOC - c->buf_at;
        ssize_t n = send(c->fd, c->buf + c->buf_at, k, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            client_gone(v, c);
            return;
        }
        c->buf_at = (c->buf_at + (uint32_t)n) % ALLOC;
        c->buf_len -= (uint32_t)n;
        forwarded(c, (uint32_t)n);
    }
    free(c->buf);
    c->buf = NULL;
    c->buf_at = 0;
    shut_if_flushed(v, c);
}

/* The end of what the client sends: half a close. */
static void client_done(struct conn *c)
{
    c->shut |= VIRTIO_VSOCK_SHUTDOWN_SEND;
    c->ctl |= CTL_SHUTDOWN;
}

static void feed(struct vsock *v, struct conn *c)
{
    uint32_t i;
    int r = 1;

    for (i = 0; i < FEEDS && r == 1; i++)
        r = vsock_feed(v, c);
    if (r == -EPIPE)
        client_done(c);
    else if (r < 0)
        client_gone(v, c);
}

static void on_client(void *self, int fd, uint32_t events)
{
    struct vsock *v = self;
    struct conn *c = NULL;
    uint32_t i;

    for (i = 0; i < CONNS && !c; i++)
        if (v->c[i].state != FREE && v->c[i].fd == fd)
            c = &v->c[i];
    if (!c)
        return;
    if (c->state == HELLO)
        on_hello(v, c);
    else if (c->state == WAITING || c->state == REQUESTED)
        client_gone(v, c); /* hung up, or an error: nothing else is watched */
    else {
        if ((events & EPOLLOUT) && c->buf_len > 0)
            flush(v, c);
        if (c->state == OPEN && (events & EPOLLIN))
            feed(v, c);
        if ((c->state == OPEN || c->state == GONE) && (events & (EPOLLHUP | EPOLLERR)) &&
            (c->state == GONE || (c->shut & VIRTIO_VSOCK_SHUTDOWN_SEND)))
            client_gone(v, c);
    }
    vsock_pump(v);
    if (c->state != FREE)
        vsock_arm(v, c);
}

static void on_listen(void *self, int fd, uint32_t events)
{
    struct vsock *v = self;
    uint32_t i;

    (void)events;
    for (i = 0; i < CONNS; i++) {
        struct conn *c = &v->c[i];
        int s;
        if (c->state != FREE)
            continue;
        s = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (s < 0)
            return;
        *c = (struct conn){.state = HELLO, .fd = s};
        if (loop_watch(v->v.loop, s, EPOLLIN, on_client, v) < 0)
            vsock_drop(v, c);
    }
    /* All are taken: the next waits in the socket's own queue. */
    v->accepting = 0;
    (void)loop_change(v->v.loop, fd, 0);
}

int vsock_listen(struct vsock *v)
{
    int flags = fcntl(v->borrow_listen_fd, F_GETFL);

    if (flags < 0 || fcntl(v->borrow_listen_fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    v->accepting = 1;
    return loop_watch(v->v.loop, v->borrow_listen_fd, EPOLLIN, on_listen, v);
}
