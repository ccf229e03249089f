/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * socket - what all sockets have: their life, their place in a table of names, what a poll shows.
 * Invariants: a socket is held by its file (or the queue it waits to be accepted in), by who is connected to it and by each message
 * it sent. When its file ends it is dead, holds nothing, and waits for the others to see it.
 * Threads: the kernel lock.
 */
#include <string.h>

#include "socket.h"

#define BUCKETS 512u
#define SIZE_DEFAULT 212992u

struct socket_state *sockets(void)
{
    struct socket_state *state = ipc()->socket_state;

    if (state)
        return state;
    state = arena_alloc(ARENA_BYTES, sizeof(*state));
    if (!state)
        kpanic("ipc: no memory for the table of sockets");
    TAILQ_INIT(&state->all);
    state->next_port = 32768 + (uint32_t)(clock_monotonic() / 1000 % 20000);
    ipc()->socket_state = state;
    return state;
}

bool socket_inet(const struct socket *socket)
{
    return socket->family == AF_INET || socket->family == AF_INET6;
}

bool socket_unix(const struct socket *socket)
{
    return socket->family == AF_UNIX;
}

bool socket_stream(const struct socket *socket)
{
    return socket->type == SOCK_STREAM;
}

bool socket_connection(const struct socket *socket)
{
    return socket->type == SOCK_STREAM || socket->type == SOCK_SEQPACKET;
}

const struct family *socket_family(const struct socket *socket)
{
    if (socket->family == AF_NETLINK)
        return &netlink_family;
    return socket_inet(socket) ? &inet_family : &unix_family;
}

struct ucred own_cred(void)
{
    return (struct ucred){
        .pid = current->process->pid, .uid = current->cred->euid, .gid = current->cred->egid};
}

struct socket *socket_new(int family, int type, int protocol)
{
    struct socket *socket;

    if (ipc()->sockets >= SOCKETS_MAX)
        return NULL;
    socket = arena_alloc(ARENA_SOCKET, sizeof(*socket));
    if (!socket)
        return NULL;
    socket->refs = 1;
    socket->family = family;
    socket->type = type;
    socket->protocol = protocol;
    socket->send_size = socket->receive_size = SIZE_DEFAULT;
    socket->receive_low = 1;
    socket->backlog =
        family == AF_UNIX ? 10 : 0; /* datagrams that may wait: net.unix.max_dgram_qlen */
    TAILQ_INIT(&socket->queue);
    TAILQ_INIT(&socket->pending);
    TAILQ_INIT(&socket->callers);
    waitq_init(&socket->waitq);
    waitq_init(&socket->room);
    TAILQ_INSERT_TAIL(&sockets()->all, socket, all_link);
    ipc()->sockets++;
    return socket;
}

void socket_get(struct socket *socket)
{
    socket->refs++;
}

void socket_put(struct socket *socket)
{
    if (--socket->refs)
        return;
    TAILQ_REMOVE(&sockets()->all, socket, all_link);
    ipc()->sockets--;
    arena_free(socket);
}

void socket_wake(struct socket *socket, uint32_t events)
{
    waitq_wake(&socket->waitq, events);
}

int socket_take_error(struct socket *socket)
{
    int error = socket->error;

    socket->error = 0;
    return -error;
}

uint64_t socket_deadline(bool nonblock, uint64_t time)
{
    if (nonblock)
        return 0;
    return time ? clock_monotonic() + time : WAIT_FOREVER;
}

int64_t socket_interrupted(int64_t result, uint64_t time)
{
    if (result == -ETIMEDOUT)
        return -EAGAIN;
    return result == -ERESTARTSYS && time ? -EINTR : result;
}

/* ---- names ---- */

uint32_t socket_hash(const struct socket_name *name)
{
    uint32_t hash = 2166136261u, i;

    if (name->any.sa_family == AF_NETLINK)
        return name->nl.nl_pid % BUCKETS;
    if (name->any.sa_family != AF_UNIX)
        return ntohs(name->in.sin_port) % BUCKETS; /* sin6_port is at the same place */
    for (i = 0; i < name->length; i++)
        hash = (hash ^ name->bytes[i]) * 16777619u;
    return hash % BUCKETS;
}

void socket_bind_hash(struct socket *socket, uint32_t hash)
{
    socket->bound_next = sockets()->bound[hash];
    sockets()->bound[hash] = socket;
    socket->bound = true;
}

void socket_unbind(struct socket *socket, uint32_t hash)
{
    struct socket **at = &sockets()->bound[hash];

    if (!socket->bound)
        return;
    while (*at != socket)
        at = &(*at)->bound_next;
    *at = socket->bound_next;
    socket->bound = false;
}

static void forget_name(struct socket *socket)
{
    socket_unbind(socket, socket_hash(&socket->name));
    if (!socket->bound_inode)
        return;
    socket->bound_inode->data = NULL;
    socket->bound_inode = NULL;
    path_put(&socket->path);
}

/* ---- the end of one ---- */

void socket_set_peer(struct socket *socket, struct socket *peer)
{
    struct socket *old = socket->peer;

    if (peer)
        socket_get(peer);
    socket->peer = peer;
    if (old && !socket_connection(socket))
        TAILQ_REMOVE(&old->callers, socket, caller_link);
    if (peer && !socket_connection(socket))
        TAILQ_INSERT_TAIL(&peer->callers, socket, caller_link);
    if (old)
        socket_put(old);
}

/* The other end of a connection hears of it. */
static void tell_peer(struct socket *socket, bool unread)
{
    struct socket *peer = socket->peer, *caller;

    if (peer && socket_connection(socket) && !peer->dead) {
        peer->shut |= socket_inet(socket) ? SHUT_IN : SHUT_ALL;
        if (unread)
            peer->error = ECONNRESET;
        if (unread && socket_inet(socket))
            peer->shut = SHUT_ALL;
        socket_wake(peer, READY_IN | READY_OUT | POLLHUP | POLLRDHUP | POLLERR);
    }
    TAILQ_FOREACH(caller, &socket->callers, caller_link)
    socket_wake(caller, READY_OUT);
    waitq_wake(&socket->room, 0);
}

void socket_close(struct socket *socket)
{
    bool unread =
        !TAILQ_EMPTY(&socket->queue) || !socket->file; /* never accepted counts as unread */
    struct socket *waiting;
    struct message *message;

    socket->dead = true;
    socket->shut = SHUT_ALL;
    socket->file = NULL;
    forget_name(socket);
    if (socket->phase == SOCKET_CONNECTED || !socket_connection(socket))
        tell_peer(socket, unread);
    else
        waitq_wake(&socket->room, 0);
    socket->phase = SOCKET_CLOSED;
    socket_set_peer(socket, NULL);
    while ((waiting = TAILQ_FIRST(&socket->pending))) {
        TAILQ_REMOVE(&socket->pending, waiting, pending_link);
        socket_close(waiting);
    }
    while ((message = TAILQ_FIRST(&socket->queue))) {
        message_unqueue(socket, message);
        message_free(message);
    }
    socket_wake(socket, 0);
    socket_put(socket);
}

/* ---- as a file ---- */

struct socket *file_socket(const struct file *file)
{
    return file->kind == FILE_SOCKET ? file->data : NULL;
}

struct file *socket_file(struct socket *socket, uint32_t flags)
{
    struct file *file = file_new(FILE_SOCKET, O_RDWR | (flags & O_NONBLOCK));

    if (file)
        file->inode = inode_new(INODE_SOCKET, S_IFSOCK | 0777);
    if (!file || !file->inode) {
        if (file) {
            file->data = NULL;
            file_put(file);
        }
        socket_close(socket);
        return NULL;
    }
    file->inode->uid = current->cred->fsuid;
    file->inode->gid = current->cred->fsgid;
    file->mode |= FMODE_STREAM;
    file->mode &= (uint16_t)~FMODE_SEEK;
    file->data = socket;
    socket->file = file;
    return file;
}

struct file *socket_get_fd(uint64_t fd, int *ret_error)
{
    struct file *file = fd_get_io((int)fd);

    *ret_error = -EBADF;
    if (file && file->kind != FILE_SOCKET) {
        *ret_error = -ENOTSOCK;
        file_put(file);
        file = NULL;
    }
    return file;
}

static void socket_release(struct file *file)
{
    if (!file->data)
        return;
    socket_close(file->data);
    if (sockets()->in_flight_sockets)
        scm_collect();
}

static int64_t socket_read(struct file *file, struct uio *to, int64_t *position)
{
    struct incoming in = {.uio = *to, .flags = file->flags & O_NONBLOCK ? MSG_DONTWAIT : 0};
    int64_t n;

    (void)position;
    if (!to->left)
        return 0;
    n = socket_receive(file->data, &in);
    scm_free(in.files);
    *to = in.uio;
    return n;
}

static int64_t socket_write(struct file *file, struct uio *from, int64_t *position)
{
    struct outgoing out = {
        .uio = *from, .flags = file->flags & O_NONBLOCK ? MSG_DONTWAIT : 0, .cred = own_cred()};
    int64_t n;

    (void)position;
    n = socket_send(file->data, &out);
    *from = out.uio;
    return n;
}

bool socket_writable(const struct socket *socket)
{
    return socket->phase != SOCKET_LISTENING && socket->send_used * 4 <= socket->send_size;
}

static uint32_t shut_shows(const struct socket *s)
{
    uint32_t ready = 0;

    if (s->error)
        ready |= POLLERR;
    if (s->shut == SHUT_ALL)
        ready |= POLLHUP;
    if (s->shut & SHUT_IN)
        ready |= POLLRDHUP | READY_IN;
    if (socket_connection(s) && s->phase == SOCKET_CLOSED)
        ready |= POLLHUP;
    return ready;
}

static uint32_t socket_poll(struct file *file, struct waiter *waiter)
{
    struct socket *s = file->data, *peer = s->peer;
    bool writable = socket_writable(s);
    uint32_t ready = shut_shows(s);

    if (waiter)
        waiter_add(waiter, &s->waitq, waiter->events);
    if (!TAILQ_EMPTY(&s->queue) || !TAILQ_EMPTY(&s->pending))
        ready |= READY_IN;
    if (socket_unix(s) && !socket_stream(s) && peer && peer->peer != s &&
        peer->n_queue > (uint32_t)peer->backlog)
        writable = false;
    if (socket_inet(s) && (s->error || (s->shut & SHUT_OUT)))
        writable = true; /* a write would say why it cannot */
    if (writable)
        ready |= READY_OUT | (socket_inet(s) && socket_stream(s) ? 0 : POLLWRBAND);
    return ready;
}

static int64_t bytes_waiting(const struct socket *s, int *ret)
{
    const struct message *message;

    *ret = 0;
    if (s->phase == SOCKET_LISTENING)
        return -EINVAL;
    TAILQ_FOREACH(message, &s->queue, link)
    {
        *ret += (int)(message->length - message->offset);
        if (!socket_stream(s))
            break;
    }
    return 0;
}

static int64_t socket_ioctl(struct file *file, uint32_t request, uint64_t argument)
{
    struct socket *s = file->data;
    int64_t r = 0;
    int value;

    switch (request) {
    case FIONREAD:
        if (s->family == AF_NETLINK)
            return -ENOTTY;
        r = bytes_waiting(s, &value);
        break;
    case SIOCATMARK: /* no byte is out of band */
        if (!socket_stream(s) || !socket_inet(s))
            return -ENOTTY;
        value = 0;
        break;
    case TIOCOUTQ:
        if (s->family == AF_NETLINK)
            return -ENOTTY;
        value = (int)s->send_used;
        break;
    default:
        return device_ioctl(s, request, argument);
    }
    return r < 0 ? r : put_int(argument, value);
}

const struct file_ops socket_ops = {
    .read = socket_read,
    .write = socket_write,
    .poll = socket_poll,
    .ioctl = socket_ioctl,
    .release = socket_release,
};
