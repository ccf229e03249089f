/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * connect - sockets are made, named and connected: the system calls of that.
 * A connection is two sockets that are each other's peer. connect() makes the second one and puts it into the listener's queue: it
 * can be written to before anybody accepts.
 * Threads: the kernel lock.
 */
#include <string.h>

#include "socket.h"

#define BACKLOG_MAX 4096
#define INET_PENDING_MAX 4096u

/* ---- making ---- */

static int kind_of(int *family, int *type, int *protocol)
{
    if (*family == AF_UNIX) {
        if (*protocol && *protocol != AF_UNIX)
            return -EPROTONOSUPPORT;
        if (*type == SOCK_RAW)
            *type = SOCK_DGRAM;
        return *type == SOCK_STREAM || *type == SOCK_DGRAM || *type == SOCK_SEQPACKET
                   ? 0
                   : -ESOCKTNOSUPPORT;
    }
    if (*family == AF_NETLINK) {
        if (*type != SOCK_RAW && *type != SOCK_DGRAM)
            return -ESOCKTNOSUPPORT;
        return *protocol == NETLINK_ROUTE ? 0 : -EPROTONOSUPPORT;
    }
    if (*family != AF_INET && *family != AF_INET6)
        return -EAFNOSUPPORT;
    if (*type == SOCK_RAW || *type == SOCK_PACKET)
        return -EPERM;
    if (*type != SOCK_STREAM && *type != SOCK_DGRAM)
        return -ESOCKTNOSUPPORT;
    if (*protocol && *protocol != (*type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP))
        return -EPROTONOSUPPORT;
    *protocol = *type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
    return 0;
}

static int make(int family, uint32_t type_flags, int protocol, struct file **ret_file)
{
    int type = (int)(type_flags & 0xf), r;
    struct socket *socket;

    if (type_flags & ~(uint32_t)(0xf | SOCK_CLOEXEC | SOCK_NONBLOCK))
        return -EINVAL;
    if (family < 0 || family >= AF_MAX)
        return -EAFNOSUPPORT;
    if (type > SOCK_PACKET)
        return -EINVAL;
    r = kind_of(&family, &type, &protocol);
    if (r < 0)
        return r;
    socket = socket_new(family, type, protocol);
    *ret_file = socket ? socket_file(socket, type_flags & SOCK_NONBLOCK) : NULL;
    return *ret_file ? 0 : -ENFILE;
}

SYSCALL(socket)
{
    struct file *file;
    int r = make((int)a[0], (uint32_t)a[1], (int)a[2], &file);

    return r < 0 ? r : install(file, a[1] & SOCK_CLOEXEC);
}

void socket_connect_pair(struct socket *a, struct socket *b)
{
    socket_set_peer(a, b);
    socket_set_peer(b, a);
    a->phase = b->phase = SOCKET_CONNECTED;
    a->peer_cred = b->own_cred;
    b->peer_cred = a->own_cred;
}

static int64_t install_pair(struct file *files[2], uint32_t cloexec, uint64_t guest)
{
    int fds[2];

    fds[0] = (int)install(files[0], cloexec);
    if (fds[0] < 0) {
        file_put(files[1]);
        return fds[0];
    }
    fds[1] = (int)install(files[1], cloexec);
    if (fds[1] >= 0 && copy_out(current->mm, guest, fds, sizeof(fds)) == 0)
        return 0;
    fd_close(fds[0]);
    if (fds[1] < 0)
        return fds[1];
    fd_close(fds[1]);
    return -EFAULT;
}

SYSCALL(socketpair)
{
    struct file *files[2];
    struct socket *socket;
    int r = make((int)a[0], (uint32_t)a[1], (int)a[2], &files[0]), i;

    if (r < 0)
        return r;
    if (!socket_unix(files[0]->data)) {
        file_put(files[0]);
        return -EOPNOTSUPP;
    }
    r = make((int)a[0], (uint32_t)a[1], (int)a[2], &files[1]);
    if (r < 0) {
        file_put(files[0]);
        return r;
    }
    for (i = 0; i < 2; i++) {
        socket = files[i]->data;
        socket->own_cred = own_cred();
    }
    socket_connect_pair(files[0]->data, files[1]->data);
    return install_pair(files, a[1] & SOCK_CLOEXEC, a[3]);
}

/* ---- binding, listening ---- */

SYSCALL(bind)
{
    struct socket_name name;
    int r;
    struct file *file = socket_get_fd(a[0], &r);

    if (!file)
        return r;
    r = sockname_in(a[1], a[2], &name);
    if (r == 0)
        r = socket_family(file->data)->bind(file->data, &name);
    file_put(file);
    return r;
}

static int listen_on(struct socket *s, uint32_t backlog)
{
    int r = 0;

    if (!socket_connection(s))
        return -EOPNOTSUPP;
    if (s->phase == SOCKET_CONNECTED)
        return -EINVAL;
    if (!s->name.length)
        r = socket_inet(s) ? socket_family(s)->autobind(s) : -EINVAL;
    if (r < 0)
        return r;
    s->backlog = backlog > BACKLOG_MAX ? BACKLOG_MAX : (int)backlog;
    s->phase = SOCKET_LISTENING;
    s->own_cred = own_cred();
    waitq_wake(&s->room, 0);
    return 0;
}

SYSCALL(listen)
{
    int r;
    struct file *file = socket_get_fd(a[0], &r);

    if (!file)
        return r;
    r = listen_on(file->data, (uint32_t)a[1]);
    file_put(file);
    return r;
}

/* ---- connecting ---- */

static bool pending_full(const struct socket *listener)
{
    return listener->n_pending >
           (socket_inet(listener) ? INET_PENDING_MAX : (uint32_t)listener->backlog);
}

static int wait_pending(struct socket *s, struct socket *listener, bool nonblock)
{
    uint64_t deadline = socket_deadline(nonblock, s->send_time);
    int64_t r;

    for (;;) {
        if (listener->phase != SOCKET_LISTENING || listener->dead || (listener->shut & SHUT_IN))
            return -ECONNREFUSED;
        if (!pending_full(listener))
            return 0;
        if (!deadline || socket_inet(s))
            return socket_inet(s) ? -ECONNREFUSED : -EAGAIN;
        r = WAIT_UNTIL(&listener->room, 0, deadline,
                       listener->phase != SOCKET_LISTENING || !pending_full(listener));
        if (r < 0)
            return (int)socket_interrupted(r, s->send_time);
    }
}

static int join(struct socket *s, struct socket *listener, const struct socket_name *name)
{
    struct socket *other;
    int r = socket_inet(s) ? inet_name_ends(s, name) : 0;

    if (r < 0)
        return r;
    other = socket_new(listener->family, listener->type, listener->protocol);
    if (!other)
        return -ENOMEM;
    other->own_cred = listener->own_cred;
    other->send_size = listener->send_size;
    other->receive_size = listener->receive_size;
    other->pass_cred = listener->pass_cred;
    s->own_cred = own_cred();
    if (socket_inet(s))
        inet_name_accepted(other, s);
    else
        other->name = listener->name;
    socket_connect_pair(s, other);
    TAILQ_INSERT_TAIL(&listener->pending, other, pending_link);
    listener->n_pending++;
    socket_wake(listener, READY_IN);
    socket_wake(s, READY_OUT);
    return 0;
}

static int connect_stream(struct socket *s, const struct socket_name *name, bool nonblock)
{
    struct socket *listener;
    int r = socket_family(s)->valid(s, name);

    if (r < 0)
        return r;
    if (s->connecting && s->phase == SOCKET_CONNECTED) {
        s->connecting = false;
        return 0;
    }
    if (s->phase != SOCKET_CLOSED)
        return s->phase == SOCKET_CONNECTED || socket_inet(s) ? -EISCONN : -EINVAL;
    if (socket_inet(s) && s->error)
        return socket_take_error(s);
    if (!socket_inet(s) && s->pass_cred && !s->name.length)
        r = socket_family(s)->autobind(s);
    if (r == 0)
        r = socket_family(s)->find(s, name, &listener);
    if (r == 0) {
        r = wait_pending(s, listener, nonblock);
        if (r == 0)
            r = s->phase == SOCKET_CLOSED ? join(s, listener, name) : -EISCONN;
        socket_put(listener);
    }
    if (!socket_inet(s) || !nonblock || (r != 0 && r != -ECONNREFUSED))
        return r;
    if (r == 0) /* it is told that it has to wait, and finds that it need not */
        s->connecting = true;
    else
        s->error = ECONNREFUSED;
    return -EINPROGRESS;
}

static void change_peer(struct socket *s, struct socket *peer)
{
    struct socket *old = s->peer;

    if (old)
        socket_get(old);
    socket_set_peer(s, peer);
    if (old && old != peer)
        dgram_disconnected(s, old);
    if (old)
        socket_put(old);
}

static int disconnect(struct socket *s)
{
    change_peer(s, NULL);
    if (socket_inet(s))
        inet_name_free(s);
    s->phase = SOCKET_CLOSED;
    return 0;
}

static int connect_dgram(struct socket *s, const struct socket_name *name)
{
    struct socket *other;
    int r;

    if (socket_family(s)->connect)
        return socket_family(s)->connect(s, name);
    if (name->length >= sizeof(sa_family_t) && name->any.sa_family == AF_UNSPEC)
        return disconnect(s);
    r = socket_family(s)->valid(s, name);
    if (r == 0 && !socket_inet(s) && s->pass_cred && !s->name.length)
        r = socket_family(s)->autobind(s);
    if (r == 0)
        r = socket_family(s)->find(s, name, &other);
    if (r < 0)
        return r;
    if (socket_inet(s)) {
        r = inet_name_ends(s, name);
        if (other)
            socket_put(other);
        return r;
    }
    if (other->peer && other->peer != s)
        r = -EPERM;
    else
        change_peer(s, other);
    if (r == 0)
        s->phase = SOCKET_CONNECTED;
    socket_put(other);
    return r;
}

SYSCALL(connect)
{
    struct socket_name name;
    struct socket *s;
    int r;
    struct file *file = socket_get_fd(a[0], &r);

    if (!file)
        return r;
    s = file->data;
    r = sockname_in(a[1], a[2], &name);
    if (r == 0)
        r = socket_connection(s) ? connect_stream(s, &name, file->flags & O_NONBLOCK)
                                 : connect_dgram(s, &name);
    file_put(file);
    return r;
}

/* ---- accepting ---- */

static int wait_accept(struct socket *s, bool nonblock)
{
    uint64_t deadline = socket_deadline(nonblock, s->receive_time);
    int64_t r = 0;

    if (!socket_connection(s))
        return -EOPNOTSUPP;
    if (s->phase != SOCKET_LISTENING)
        return -EINVAL;
    if (TAILQ_EMPTY(&s->pending) && !deadline)
        return -EAGAIN;
    if (TAILQ_EMPTY(&s->pending))
        r = WAIT_UNTIL(&s->waitq, POLLIN | POLLHUP, deadline,
                       !TAILQ_EMPTY(&s->pending) || (s->shut & SHUT_IN) ||
                           s->phase != SOCKET_LISTENING);
    if (r < 0)
        return (int)socket_interrupted(r, s->receive_time);
    return TAILQ_EMPTY(&s->pending) ? -EINVAL : 0;
}

static int64_t accept_one(struct socket *s, uint32_t flags, uint64_t name, uint64_t name_length)
{
    struct socket *other = TAILQ_FIRST(&s->pending);
    struct socket_name from;
    struct file *file;
    int64_t r;

    TAILQ_REMOVE(&s->pending, other, pending_link);
    s->n_pending--;
    waitq_wake(&s->room, 0);
    from = sockname_shown(other, socket_inet(other) ? &other->peer_name : &other->peer->name);
    file = socket_file(other, flags & SOCK_NONBLOCK);
    if (!file)
        return -ENFILE;
    r = name ? sockname_out(&from, name, name_length) : 0;
    if (r < 0) {
        file_put(file);
        return r;
    }
    return install(file, flags & SOCK_CLOEXEC);
}

static int64_t accept_call(const uint64_t a[6], uint32_t flags)
{
    int r;
    int64_t result;
    struct file *file;

    if (flags & ~(uint32_t)(SOCK_CLOEXEC | SOCK_NONBLOCK))
        return -EINVAL;
    file = socket_get_fd(a[0], &r);
    if (!file)
        return r;
    result = wait_accept(file->data, file->flags & O_NONBLOCK);
    if (result == 0)
        result = accept_one(file->data, flags, a[1], a[2]);
    file_put(file);
    return result;
}

SYSCALL(accept)
{
    return accept_call(a, 0);
}

SYSCALL(accept4)
{
    return accept_call(a, (uint32_t)a[3]);
}

/* ---- shutting ---- */

static int shut(struct socket *s, uint32_t what)
{
    struct socket *peer = s->peer;
    uint32_t theirs = (what & SHUT_IN ? SHUT_OUT : 0) | (what & SHUT_OUT ? SHUT_IN : 0);

    if (s->family == AF_NETLINK)
        return -EOPNOTSUPP;
    if (socket_inet(s) && (socket_stream(s) ? s->phase == SOCKET_CLOSED : !s->peer_name.length))
        return -ENOTCONN;
    if (s->phase == SOCKET_LISTENING && socket_inet(s))
        s->phase = SOCKET_CLOSED;
    s->shut |= what;
    socket_wake(s, READY_IN | READY_OUT | POLLHUP | POLLRDHUP);
    waitq_wake(&s->room, 0);
    if (!peer || !socket_connection(s) || peer->dead)
        return 0;
    if (socket_inet(s)) /* only the end of what is sent goes over the wire */
        theirs &= SHUT_IN;
    peer->shut |= theirs;
    socket_wake(peer, READY_IN | READY_OUT | POLLHUP | POLLRDHUP);
    return 0;
}

SYSCALL(shutdown)
{
    static const uint32_t what[] = {
        [SHUT_RD] = SHUT_IN, [SHUT_WR] = SHUT_OUT, [SHUT_RDWR] = SHUT_ALL};
    int r;
    struct file *file = socket_get_fd(a[0], &r);

    if (!file)
        return r;
    r = (uint32_t)a[1] > SHUT_RDWR ? -EINVAL : shut(file->data, what[(uint32_t)a[1]]);
    file_put(file);
    return r;
}
