/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * stream - bytes between two sockets.
 * A send makes messages of the receiver's queue; a receive takes bytes across them, but never across where descriptors lie or,
 * when somebody asks for credentials, where these change.
 * Threads: the kernel lock.
 */
#include <string.h>

#include "socket.h"

#define PIECE_MAX 36544u /* as Linux cuts them: what is full when follows from it */

static bool peer_gone(const struct socket *peer)
{
    return peer->dead || (peer->shut & SHUT_IN);
}

static int64_t broken(const struct outgoing *out, int64_t sent)
{
    if (sent)
        return sent;
    if (!(out->flags & MSG_NOSIGNAL))
        task_kill_with(SIGPIPE);
    return -EPIPE;
}

static int may_send(struct socket *s, const struct outgoing *out)
{
    if (out->flags & MSG_OOB)
        return -EOPNOTSUPP;
    if (out->to.length && !socket_inet(s))
        return s->phase == SOCKET_CONNECTED ? -EISCONN : -EOPNOTSUPP;
    if (s->phase == SOCKET_CONNECTED && !socket_inet(s) && (s->shut & SHUT_OUT))
        return -EPIPE; /* before its error is looked at, which stays */
    if (s->phase == SOCKET_CONNECTED)
        return 0;
    if (s->error)
        return socket_take_error(s);
    return socket_inet(s) ? -EPIPE : -ENOTCONN;
}

/* One message; the descriptors go with the first. */
static int64_t send_piece(struct socket *s, struct outgoing *out, uint32_t size)
{
    struct message *message = message_new(s, size);
    int64_t n;

    if (!message)
        return -ENOBUFS;
    n = uio_from(&out->uio, message->bytes, size);
    if (n != (int64_t)size) {
        message_free(message);
        return -EFAULT;
    }
    message->cred = out->cred;
    message->files = out->files;
    out->files = NULL;
    message_queue(s->peer, message);
    return n;
}

/* TCP: the other end has closed, and hears nothing any more. What is sent first still goes out, and the answer to it is a reset. */
static int64_t send_to_nobody(struct socket *s, struct outgoing *out, int64_t sent)
{
    static uint8_t lost[4096];
    size_t size;
    int64_t n = 0;

    while (out->uio.left && sent < (int64_t)s->send_size) {
        size = out->uio.left < sizeof(lost) ? out->uio.left : sizeof(lost);
        n = uio_from(&out->uio, lost, size);
        if (n <= 0)
            break;
        sent += n;
    }
    if (!sent)
        return n;
    s->error = EPIPE;
    s->shut = SHUT_ALL;
    socket_wake(s, READY_IN | READY_OUT | POLLHUP | POLLRDHUP | POLLERR);
    return sent;
}

int64_t stream_send(struct socket *s, struct outgoing *out)
{
    uint32_t most = s->send_size / 2 - 64, size;
    int64_t sent = 0, n = may_send(s, out);

    if (n == -EPIPE)
        return broken(out, 0);
    if (n < 0)
        return n;
    if (most > PIECE_MAX)
        most = PIECE_MAX;
    do {
        n = wait_to_send(s, out->flags);
        if (n == 0 && socket_inet(s) && s->peer->dead)
            return send_to_nobody(s, out, sent);
        if (n == -EPIPE || (n == 0 && peer_gone(s->peer)))
            return broken(out, sent);
        if (n < 0 || !out->uio.left)
            break;
        size = out->uio.left < most ? (uint32_t)out->uio.left : most;
        n = send_piece(s, out, size);
        if (n < 0)
            break;
        sent += n;
    } while (out->uio.left);
    return sent ? sent : n;
}

/* ---- receiving ---- */

static int wait_for_bytes(struct socket *s, const struct incoming *in, uint64_t deadline)
{
    int r;

    if (!TAILQ_EMPTY(&s->queue))
        return 1;
    if (s->error && s->error != EPIPE) /* a reset after the end, which was the last to be read */
        return socket_take_error(s);
    if (s->shut & SHUT_IN)
        return 0;
    if (!deadline || (in->flags & MSG_DONTWAIT))
        return -EAGAIN;
    r = WAIT_UNTIL(&s->waitq, POLLIN | POLLHUP | POLLERR, deadline,
                   !TAILQ_EMPTY(&s->queue) || s->error || (s->shut & SHUT_IN));
    if (r < 0)
        return (int)socket_interrupted(r, s->receive_time);
    return !TAILQ_EMPTY(&s->queue) ? 1 : s->error ? socket_take_error(s) : 0;
}

static bool other_sender(const struct socket *s, const struct incoming *in, const struct message *m)
{
    return s->pass_cred && in->has_cred && memcmp(&in->cred, &m->cred, sizeof(m->cred)) != 0;
}

static void take_beside(struct incoming *in, struct message *message)
{
    in->cred = message->cred;
    in->has_cred = true;
    if (!in->from.length && message->sender->family == AF_UNIX)
        in->from = message->sender->name;
    if (!message->files)
        return;
    if (in->flags & MSG_PEEK) {
        in->files = scm_copy(message->files);
    } else {
        in->files = message->files;
        message->files = NULL;
    }
}

/* Of one message; 0: nothing more of this call. *skip: what a peek has seen of the queue. */
static int64_t take(struct socket *s, struct incoming *in, struct message *message)
{
    uint32_t left = message->length - message->offset;
    size_t size = left < in->uio.left ? left : in->uio.left;
    int64_t n = in->flags & MSG_TRUNC && socket_inet(s)
                    ? (int64_t)size
                    : uio_to(&in->uio, message->bytes + message->offset, size);

    if (n < 0)
        return n;
    take_beside(in, message);
    if (in->flags & MSG_PEEK)
        return n;
    message->offset += (uint32_t)n;
    if (message->offset < message->length)
        return n;
    message_unqueue(s, message);
    message_free(message);
    return n;
}

/* Sees descriptors of the message behind what it was asked for, too: as Linux has it. */
static int64_t peek(struct socket *s, struct incoming *in)
{
    struct message *message;
    int64_t n, done = 0;

    TAILQ_FOREACH(message, &s->queue, link)
    {
        if (other_sender(s, in, message))
            break;
        n = take(s, in, message);
        if (n < 0)
            return done ? done : n;
        done += n;
        if (in->files)
            break;
    }
    return done;
}

static int may_receive(struct socket *s, const struct incoming *in)
{
    if (in->flags & MSG_OOB)
        return socket_inet(s) ? -EINVAL : -EOPNOTSUPP;
    if (s->phase == SOCKET_CONNECTED || (socket_inet(s) && s->shut))
        return 0;
    if (s->error)
        return socket_take_error(s);
    return socket_inet(s) ? -ENOTCONN : -EINVAL;
}

int64_t stream_receive(struct socket *s, struct incoming *in)
{
    uint64_t deadline = socket_deadline(in->flags & MSG_DONTWAIT, s->receive_time);
    bool all = in->flags & MSG_WAITALL;
    int64_t done = 0, n = may_receive(s, in);
    struct message *message;

    if (n < 0)
        return n;
    do {
        if (done && !all && TAILQ_EMPTY(&s->queue))
            break;
        n = wait_for_bytes(s, in, deadline);
        if (n <= 0)
            break;
        if (in->flags & MSG_PEEK)
            return peek(s, in);
        message = TAILQ_FIRST(&s->queue);
        if (other_sender(s, in, message) || (done && message->files && in->files))
            break;
        n = take(s, in, message);
        if (n < 0)
            break;
        done += n;
    } while (in->uio.left && !in->files);
    return done ? done : n;
}
