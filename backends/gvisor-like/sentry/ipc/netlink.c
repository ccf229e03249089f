/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * netlink - sockets of AF_NETLINK, protocol NETLINK_ROUTE: their ids, and requests to the kernel; nobody else is there.
 *
 * A request is answered while it is sent: the answers wait in the socket's own queue, as messages of the kernel. What does not
 * fit there is lost, and the next call says ENOBUFS; nothing that came after it is looked at. As nothing that can be asked about
 * ever changes, a group has nothing to tell.
 * Invariants: a request that netlink_rows.c sees is whole: its header's length is that of its bytes.
 * Threads: the kernel lock.
 */
#include <linux/rtnetlink.h>
#include <string.h>

#include "netlink.h"

/* ---- the queue ---- */

static bool overrun(struct socket *s)
{
    if (!sockopt_value(s, SOL_NETLINK, NETLINK_NO_ENOBUFS))
        s->error = ENOBUFS;
    socket_wake(s, POLLERR);
    return false;
}

/* From the kernel: false when it is lost. */
bool netlink_queue(struct socket *s, const void *bytes, uint32_t length)
{
    const struct socket_name kernel = {.nl.nl_family = AF_NETLINK, .length = sizeof(kernel.nl)};
    struct message *message;

    if (s->queue_cost > s->receive_size)
        return overrun(s);
    message = message_new(NULL, length);
    if (!message)
        return overrun(s);
    message->from = arena_alloc(ARENA_BYTES, sizeof(*message->from));
    if (!message->from) {
        message_free(message);
        return overrun(s);
    }
    *message->from = kernel;
    memcpy(message->bytes, bytes, length);
    message_queue(s, message);
    return true;
}

/* ---- requests ---- */

/* NLMSG_ERROR: the error or 0, and what it is about. False: it is lost. */
static bool acknowledge(const struct request *request, int error)
{
    const struct nlmsghdr *head = request->head;
    bool whole = error && !sockopt_value(request->socket, SOL_NETLINK, NETLINK_CAP_ACK);
    uint32_t length =
        NLMSG_LENGTH(sizeof(struct nlmsgerr)) + (whole ? (uint32_t)NLMSG_ALIGN(request->size) : 0);
    uint8_t *bytes = arena_alloc(ARENA_BYTES, length);
    struct nlmsghdr *reply = (void *)bytes;
    struct nlmsgerr *body;
    bool queued;

    if (!bytes)
        return overrun(request->socket);
    *reply = (struct nlmsghdr){.nlmsg_len = length,
                               .nlmsg_type = NLMSG_ERROR,
                               .nlmsg_flags = whole ? 0 : NLM_F_CAPPED,
                               .nlmsg_seq = head->nlmsg_seq,
                               .nlmsg_pid = request->socket->name.nl.nl_pid};
    body = NLMSG_DATA(reply);
    body->error = error;
    body->msg = *head;
    if (whole)
        memcpy(body + 1, request->body, request->size);
    queued = netlink_queue(request->socket, bytes, length);
    arena_free(bytes);
    return queued;
}

/* All messages of what was sent: until one whose length is not true, or whose answer is lost. */
static void answer_all(struct socket *s, const uint8_t *bytes, size_t size)
{
    struct request request = {.socket = s,
                              .strict = sockopt_value(s, SOL_NETLINK, NETLINK_GET_STRICT_CHK)};
    size_t step;
    int r;

    while (size >= sizeof(struct nlmsghdr)) {
        request.head = (const void *)bytes; /* the bytes are aligned, and so is each step */
        if (request.head->nlmsg_len < sizeof(struct nlmsghdr) || request.head->nlmsg_len > size)
            return;
        request.body = bytes + sizeof(struct nlmsghdr);
        request.size = request.head->nlmsg_len - sizeof(struct nlmsghdr);
        r = 0;
        if ((request.head->nlmsg_flags & NLM_F_REQUEST) &&
            request.head->nlmsg_type >= NLMSG_MIN_TYPE)
            r = netlink_answer(&request);
        if (r == -ENOBUFS)
            return;
        if (r != -EINTR && (r || (request.head->nlmsg_flags & NLM_F_ACK)) &&
            !acknowledge(&request, r))
            return;
        step = NLMSG_ALIGN(request.head->nlmsg_len);
        if (step > size)
            return;
        bytes += step;
        size -= step;
    }
}

/* ---- as a family ---- */

static int netlink_valid(const struct socket_name *name)
{
    return name->length < sizeof(name->nl) || name->nl.nl_family != AF_NETLINK ? -EINVAL : 0;
}

static bool taken(uint32_t id, uint32_t hash)
{
    const struct socket *at = sockets()->bound[hash];

    while (at && (at->family != AF_NETLINK || at->name.nl.nl_pid != id))
        at = at->bound_next;
    return at;
}

static int bind_id(struct socket *s, uint32_t id, uint32_t groups)
{
    struct socket_name name = {.length = sizeof(name.nl),
                               .nl = {.nl_family = AF_NETLINK, .nl_pid = id, .nl_groups = groups}};

    if (taken(id, socket_hash(&name)))
        return -EADDRINUSE;
    s->name = name;
    socket_bind_hash(s, socket_hash(&name));
    return 0;
}

/* The process' number; a second socket of it gets one that no process has. */
static int own_id(struct socket *s, uint32_t groups)
{
    uint32_t id = (uint32_t)current->process->pid;
    int r = s->name.length ? 0 : bind_id(s, id, groups);

    while (r == -EADDRINUSE)
        r = bind_id(s, UINT32_MAX - 4096u - sockets()->next_autobind++ % (1u << 30), groups);
    return r;
}

static int netlink_bind(struct socket *s, const struct socket_name *name)
{
    int r = netlink_valid(name);

    if (r < 0)
        return r;
    if (s->name.length && name->nl.nl_pid != s->name.nl.nl_pid)
        return -EINVAL;
    if (!s->name.length)
        return name->nl.nl_pid ? bind_id(s, name->nl.nl_pid, name->nl.nl_groups)
                               : own_id(s, name->nl.nl_groups);
    s->name.nl.nl_groups = name->nl.nl_groups;
    return 0;
}

static int netlink_connect(struct socket *s, const struct socket_name *name)
{
    int r;

    if (name->length >= sizeof(sa_family_t) && name->any.sa_family == AF_UNSPEC) {
        s->peer_name.length = 0;
        return 0;
    }
    r = netlink_valid(name);
    if (r == 0 && (name->nl.nl_pid || name->nl.nl_groups))
        r = -EPERM; /* the kernel alone is there */
    if (r == 0)
        r = own_id(s, 0);
    if (r == 0)
        s->peer_name = *name;
    return r;
}

static int64_t netlink_send(struct socket *s, struct outgoing *out)
{
    size_t size = out->uio.left;
    uint8_t *bytes;
    int64_t r = out->to.length ? netlink_valid(&out->to) : 0;

    if (out->flags & MSG_OOB)
        return -EOPNOTSUPP;
    if (!size)
        return -ENODATA;
    if (r == 0 && out->to.length && (out->to.nl.nl_pid || out->to.nl.nl_groups))
        r = -EPERM;
    if (r == 0)
        r = own_id(s, 0);
    if (r < 0)
        return r;
    if (size > s->send_size - 32)
        return -EMSGSIZE;
    bytes = arena_alloc(ARENA_BYTES, size);
    if (!bytes)
        return -ENOBUFS;
    r = uio_from(&out->uio, bytes, size) == (int64_t)size ? (int64_t)size : -EFAULT;
    if (r > 0)
        answer_all(s, bytes, size);
    arena_free(bytes);
    return r;
}

/* NETLINK_ADD_MEMBERSHIP, NETLINK_DROP_MEMBERSHIP: shown again as far as a name can. */
int netlink_group(struct socket *s, int group, bool join)
{
    if (group < 1 || group > RTNLGRP_MAX)
        return -EINVAL;
    if (!s->name.length || group > 32)
        return 0;
    if (join)
        s->name.nl.nl_groups |= 1u << (group - 1);
    else
        s->name.nl.nl_groups &= ~(1u << (group - 1));
    return 0;
}

const struct family netlink_family = {
    .bind = netlink_bind,
    .connect = netlink_connect,
    .send = netlink_send,
};
