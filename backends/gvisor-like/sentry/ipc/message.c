/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * message - pieces of data on their way from one socket to another.
 * What one costs is what Linux would take for it, so that a full socket is full at about the same place.
 * Invariants: a message counts in its sender's send_used and in ipc()->socket_bytes until it is freed; queued, in its receiver's
 * n_queue and queue_cost. What the kernel says has no sender and counts in the latter two alone.
 * Threads: the kernel lock.
 */
#include "socket.h"

#define HEAD 256u           /* what Linux needs beside the bytes: struct sk_buff ... */
#define TAIL 320u           /* ... and struct skb_shared_info */
#define LINEAR_STREAM 3776u /* more is in pages */
#define LINEAR_DGRAM 16064u

static uint32_t cost_of(const struct socket *sender, uint64_t length)
{
    uint64_t linear = sender && socket_stream(sender) ? LINEAR_STREAM : LINEAR_DGRAM, room = 512;
    uint64_t pages = length > linear ? (length - linear + PAGE_SIZE - 1) & PAGE_MASK : 0;

    if (pages > length)
        pages = length;
    while (room < length - pages + TAIL)
        room *= 2;
    return (uint32_t)(room + ((pages + PAGE_SIZE - 1) & PAGE_MASK) + HEAD);
}

struct message *message_new(struct socket *sender, uint32_t length)
{
    uint32_t cost = cost_of(sender, length);
    struct message *message;

    if (ipc()->socket_bytes + cost > ipc_share(SOCKET_BYTES_MAX))
        return NULL;
    message = arena_alloc(ARENA_BYTES, sizeof(*message) + length);
    if (!message)
        return NULL;
    message->length = length;
    message->cost = cost;
    message->sender = sender;
    if (sender) {
        socket_get(sender);
        sender->send_used += cost;
    }
    ipc()->socket_bytes += cost;
    return message;
}

void message_free(struct message *message)
{
    struct socket *sender = message->sender;

    ipc()->socket_bytes -= message->cost;
    if (sender) {
        sender->send_used -= message->cost;
        if (!sender->dead && socket_writable(sender))
            socket_wake(sender, READY_OUT | POLLWRBAND);
        socket_put(sender);
    }
    scm_free(message->files);
    arena_free(message->from);
    arena_free(message);
}

void message_queue(struct socket *to, struct message *message)
{
    TAILQ_INSERT_TAIL(&to->queue, message, link);
    to->n_queue++;
    to->queue_cost += message->cost;
    socket_wake(to, READY_IN);
}

void message_unqueue(struct socket *from, struct message *message)
{
    bool was_full = from->n_queue > (uint32_t)from->backlog;
    struct socket *caller;

    TAILQ_REMOVE(&from->queue, message, link);
    from->n_queue--;
    from->queue_cost -= message->cost;
    if (socket_connection(from) || !was_full)
        return;
    waitq_wake(&from->room, 0);
    TAILQ_FOREACH(caller, &from->callers, caller_link)
    socket_wake(caller, READY_OUT | POLLWRBAND);
}

/* Until what it has sent leaves room for more. 0, -EAGAIN, -EPIPE, its error, what ended the wait. */
int wait_to_send(struct socket *s, uint32_t flags)
{
    uint64_t deadline = socket_deadline(flags & MSG_DONTWAIT, s->send_time);
    int64_t r;

    for (;;) {
        if (s->error)
            return socket_take_error(s);
        if (s->shut & SHUT_OUT)
            return -EPIPE;
        if (s->send_used < s->send_size)
            return 0;
        if (!deadline)
            return -EAGAIN;
        r = WAIT_UNTIL(&s->waitq, POLLOUT | POLLHUP | POLLERR, deadline,
                       s->error || (s->shut & SHUT_OUT) || s->send_used < s->send_size);
        if (r < 0)
            return (int)socket_interrupted(r, s->send_time);
    }
}
