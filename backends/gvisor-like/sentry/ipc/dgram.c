/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * dgram - messages that stay whole: datagrams, and those of a SEQPACKET connection.
 * AF_UNIX waits when the receiver's queue is long; over the loopback what does not fit is lost, as UDP has it.
 * Threads: the kernel lock.
 */
#include <string.h>

#include "socket.h"

#define UDP_MAX 65507u

static bool full(const struct socket *other)
{
    return !socket_connection(other) && other->n_queue > (uint32_t)other->backlog;
}

static int check_size(const struct socket *s, const struct outgoing *out)
{
    if (socket_inet(s))
        return out->uio.left > UDP_MAX ? -EMSGSIZE : 0;
    return out->uio.left > s->send_size - 32 ? -EMSGSIZE : 0;
}

/* Whom it goes to: a reference. NULL and 0: to nobody who says so (UDP). */
static int receiver(struct socket *s, const struct outgoing *out, struct socket **ret)
{
    *ret = NULL;
    if (out->to.length && !socket_connection(s))
        return socket_family(s)->find(s, &out->to, ret);
    if (socket_inet(s))
        return s->peer_name.length ? socket_family(s)->find(s, &s->peer_name, ret) : -EDESTADDRREQ;
    if (!s->peer)
        return -ENOTCONN;
    socket_get(s->peer);
    *ret = s->peer;
    return 0;
}

/* What came from a peer that is one no more is lost, and the peer hears so. */
void dgram_disconnected(struct socket *s, struct socket *old)
{
    struct message *message;

    if (TAILQ_EMPTY(&s->queue))
        return;
    while ((message = TAILQ_FIRST(&s->queue))) {
        message_unqueue(s, message);
        message_free(message);
    }
    if (old->dead || old->peer != s)
        return;
    old->error = ECONNRESET;
    socket_wake(old, POLLERR);
}

/* The peer's file is gone. */
static int gone(struct socket *s, struct socket *other)
{
    if (socket_connection(s))
        return -EPIPE;
    if (s->peer == other) {
        s->phase = SOCKET_CLOSED;
        socket_set_peer(s, NULL);
        dgram_disconnected(s, other);
    }
    return -ECONNREFUSED;
}

static int wait_room(struct socket *s, struct socket *other, const struct outgoing *out)
{
    uint64_t deadline = socket_deadline(out->flags & MSG_DONTWAIT, s->send_time);
    int64_t r;

    for (;;) {
        if (other->dead)
            return gone(s, other);
        if (other->peer && other->peer != s && !socket_inet(s))
            return -EPERM;
        if (other->shut & SHUT_IN)
            return -EPIPE;
        if (other == s || other->peer == s || socket_inet(s) || !full(other))
            return 0;
        if (!deadline)
            return -EAGAIN;
        r = WAIT_UNTIL(&other->room, 0, deadline,
                       other->dead || (other->shut & SHUT_IN) || !full(other));
        if (r < 0)
            return (int)socket_interrupted(r, s->send_time);
    }
}

static int add_from(struct message *message, const struct socket *s, const struct socket *other)
{
    if (!s->name.length)
        return 0;
    message->from = arena_alloc(ARENA_BYTES, sizeof(*message->from));
    if (!message->from)
        return -ENOBUFS;
    *message->from = s->name;
    if (socket_inet(s))
        inet_name_sender(other, s, message->from);
    return 0;
}

static int64_t deliver(struct socket *s, struct socket *other, struct outgoing *out)
{
    size_t size = out->uio.left;
    struct message *message = message_new(s, (uint32_t)size);
    int r;

    if (!message)
        return -ENOBUFS;
    r = uio_from(&out->uio, message->bytes, size) == (int64_t)size ? 0 : -EFAULT;
    if (r == 0)
        r = add_from(message, s, other);
    if (r == 0 && !socket_inet(s))
        r = wait_room(s, other, out);
    if (r < 0 || (socket_inet(s) && other->queue_cost + message->cost > other->receive_size)) {
        message_free(message);
        return r < 0 ? r : (int64_t)size;
    }
    message->cred = out->cred;
    message->files = out->files;
    out->files = NULL;
    message_queue(other, message);
    return (int64_t)size;
}

int64_t dgram_send(struct socket *s, struct outgoing *out)
{
    struct socket *other;
    int64_t r;

    if (out->flags & MSG_OOB)
        return -EOPNOTSUPP;
    if (socket_connection(s) && s->error)
        return socket_take_error(s);
    if (socket_connection(s) && s->phase != SOCKET_CONNECTED)
        return -ENOTCONN;
    if (socket_inet(s) && (r = socket_family(s)->autobind(s)) < 0)
        return r;
    r = out->to.length && !socket_connection(s) ? socket_family(s)->valid(s, &out->to) : 0;
    if (r == 0)
        r = check_size(s, out);
    if (r == 0)
        r = wait_to_send(s, out->flags);
    other = NULL;
    if (r == 0)
        r = receiver(s, out, &other);
    if (r == 0 && other)
        r = deliver(s, other, out);
    else if (r ==
             0) { /* UDP: nobody has this port, and who is connected hears of it at the next call */
        if (s->peer_name.length)
            s->error = ECONNREFUSED;
        r = (int64_t)out->uio.left;
    }
    if (other)
        socket_put(other);
    return r;
}

/* ---- receiving ---- */

static int wait_for_message(struct socket *s, const struct incoming *in)
{
    uint64_t deadline = socket_deadline(in->flags & MSG_DONTWAIT, s->receive_time);
    int64_t r = 0;

    if (s->error)
        return socket_take_error(s);
    if (!TAILQ_EMPTY(&s->queue))
        return 1;
    if (!deadline)
        return (s->shut & SHUT_IN) && (socket_connection(s) || socket_inet(s)) ? 0 : -EAGAIN;
    if (!(s->shut & SHUT_IN))
        r = WAIT_UNTIL(&s->waitq, POLLIN | POLLHUP | POLLERR, deadline,
                       !TAILQ_EMPTY(&s->queue) || s->error || (s->shut & SHUT_IN));
    if (r < 0)
        return (int)socket_interrupted(r, s->receive_time);
    if (s->error)
        return socket_take_error(s);
    return !TAILQ_EMPTY(&s->queue);
}

static void take_beside(struct socket *s, struct incoming *in, struct message *message, bool keep)
{
    in->cred = message->cred;
    in->has_cred = true;
    if (message->from)
        in->from = *message->from;
    if (keep)
        in->files = message->files ? scm_copy(message->files) : NULL;
    else
        in->files = message->files;
    if (keep)
        return;
    message->files = NULL;
    message_unqueue(s, message);
}

int64_t dgram_receive(struct socket *s, struct incoming *in)
{
    struct message *message;
    bool keep = in->flags & MSG_PEEK;
    size_t size, length;
    int64_t r = 0;

    if (in->flags & MSG_OOB)
        return -EOPNOTSUPP;
    if (socket_connection(s) && s->phase != SOCKET_CONNECTED)
        return -ENOTCONN;
    r = wait_for_message(s, in);
    if (r <= 0)
        return r;
    message = TAILQ_FIRST(&s->queue);
    take_beside(s, in, message, keep);
    length = message->length;
    size = length < in->uio.left ? length : in->uio.left;
    if (size < length)
        in->shown |= MSG_TRUNC;
    r = size && uio_to(&in->uio, message->bytes, size) != (int64_t)size ? -EFAULT : 0;
    if (!keep)
        message_free(message);
    if (r < 0)
        return r;
    return (int64_t)(in->flags & MSG_TRUNC ? length : size);
}
