/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * inet - names of AF_INET and AF_INET6 in a cell whose only interface is lo: 127.0.0.0/8 and ::1, and ports.
 * Everything else cannot be reached, at once. A name is kept as its own family gives it; two are compared as IPv6 addresses.
 * Invariants: every socket with a port of its own is in the table of names; those that accept() makes are not.
 * Threads: the kernel lock.
 */
#include <arpa/inet.h>
#include <linux/capability.h>
#include <string.h>

#include "socket.h"

#define PORT_FIRST 32768u
#define PORT_LAST 60999u

struct address { /* IPv4 as ::ffff:a.b.c.d */
    struct in6_addr in6;
    uint16_t port; /* host order */
};

static struct address address_of(const struct socket_name *name)
{
    struct address a = {.port = ntohs(name->in.sin_port)};

    if (name->any.sa_family == AF_INET6) {
        a.in6 = name->in6.sin6_addr;
    } else {
        a.in6.s6_addr[10] = a.in6.s6_addr[11] = 0xff;
        memcpy(&a.in6.s6_addr[12], &name->in.sin_addr, 4);
    }
    return a;
}

static bool is_four(const struct address *a)
{
    return IN6_IS_ADDR_V4MAPPED(&a->in6);
}

static bool is_any(const struct address *a)
{
    return IN6_IS_ADDR_UNSPECIFIED(&a->in6) || (is_four(a) && a->in6.s6_addr32[3] == 0);
}

static bool is_local(const struct address *a)
{
    return is_any(a) || IN6_IS_ADDR_LOOPBACK(&a->in6) || (is_four(a) && a->in6.s6_addr[12] == 127);
}

static bool same_address(const struct address *a, const struct address *b)
{
    return memcmp(&a->in6, &b->in6, sizeof(a->in6)) == 0;
}

static int inet_valid(const struct socket *socket, const struct socket_name *name)
{
    if (name->length < sizeof(struct sockaddr_in))
        return -EINVAL;
    if (name->any.sa_family == AF_INET6)
        return socket->family != AF_INET6 ? -EAFNOSUPPORT
               : name->length < 24        ? -EINVAL
                                          : 0; /* SIN6_LEN_RFC2133 */
    if (name->any.sa_family != AF_INET)
        return -EAFNOSUPPORT;
    return socket->family == AF_INET6 && socket->v6_only ? -ENETUNREACH : 0;
}

/* The socket's own way to write an address. */
static void make_name(const struct socket *socket, const struct address *a,
                      struct socket_name *name)
{
    memset(name, 0, sizeof(*name));
    name->any.sa_family = (sa_family_t)socket->family;
    name->in.sin_port = htons(a->port);
    if (socket->family == AF_INET6) {
        name->length = sizeof(name->in6);
        name->in6.sin6_addr = a->in6;
    } else {
        name->length = sizeof(name->in);
        memcpy(&name->in.sin_addr, &a->in6.s6_addr[12], 4);
    }
}

/* Does a packet to this address meet the socket that is bound to `own`? */
static bool covers(const struct socket *s, const struct address *own, const struct address *to)
{
    if (own->port != to->port)
        return false;
    if (!is_any(own))
        return same_address(own, to);
    if (is_four(own))
        return is_four(to);
    return !is_four(to) || !s->v6_only;
}

static bool conflict(const struct socket *a, const struct socket *b, const struct address *want)
{
    struct address have = address_of(&b->name);
    bool both_reuse = a->reuse_address && b->reuse_address;

    if (a == b || !socket_inet(b) || a->type != b->type)
        return false;
    if (!covers(b, &have, want) && !covers(a, want, &have))
        return false;
    if (a->reuse_port && b->reuse_port)
        return false;
    return !(both_reuse && (!socket_stream(a) || b->phase != SOCKET_LISTENING));
}

static bool taken(const struct socket *socket, const struct address *want)
{
    struct socket_name name;
    const struct socket *at;

    make_name(socket, want, &name);
    for (at = sockets()->bound[socket_hash(&name)]; at; at = at->bound_next)
        if (conflict(socket, at, want))
            return true;
    return false;
}

static int free_port(const struct socket *socket, struct address *want)
{
    uint32_t i, n = PORT_LAST - PORT_FIRST + 1;

    for (i = 0; i < n; i++) {
        want->port = (uint16_t)(PORT_FIRST + sockets()->next_port++ % n);
        if (!taken(socket, want))
            return 0;
    }
    return -EADDRINUSE;
}

static int bind_address(struct socket *socket, struct address *want)
{
    int r = 0;

    if (!want->port)
        r = free_port(socket, want);
    else if (want->port < 1024 && !capable(CAP_NET_BIND_SERVICE))
        r = -EACCES;
    else if (taken(socket, want))
        r = -EADDRINUSE;
    if (r < 0)
        return r;
    make_name(socket, want, &socket->name);
    socket_bind_hash(socket, socket_hash(&socket->name));
    return 0;
}

static bool has_port(const struct socket *socket)
{
    return socket->name.length && socket->name.in.sin_port;
}

static int inet_bind(struct socket *socket, const struct socket_name *name)
{
    struct address want;
    bool port;
    int r = inet_valid(socket, name);

    if (r < 0)
        return r;
    if (socket->family == AF_INET6 && name->any.sa_family != AF_INET6)
        return -EINVAL;
    want = address_of(name);
    if (!is_local(&want) || (socket->v6_only && is_four(&want)))
        return -EADDRNOTAVAIL;
    if (has_port(socket))
        return -EINVAL;
    port = want.port != 0;
    r = bind_address(socket, &want);
    if (r < 0)
        return r;
    socket->bound_address = !is_any(&want);
    socket->bound_port = port;
    return 0;
}

static int inet_autobind(struct socket *socket)
{
    struct address want = {0};

    if (has_port(socket))
        return 0;
    if (socket->name.length) /* an address of its own, and no port any more */
        want = address_of(&socket->name);
    else if (socket->family == AF_INET)
        want.in6.s6_addr[10] = want.in6.s6_addr[11] = 0xff;
    return bind_address(socket, &want);
}

/* 0.0.0.0 and :: as a destination are the loopback. */
static void destination(struct address *to)
{
    if (!is_any(to))
        return;
    if (is_four(to))
        to->in6.s6_addr32[3] = htonl(INADDR_LOOPBACK);
    else
        to->in6 = in6addr_loopback;
}

/* A UDP socket that is connected hears its peer alone. */
static bool hears(const struct socket *s, const struct socket *from)
{
    struct address peer, sender;

    if (!s->peer_name.length || socket_stream(s))
        return true;
    peer = address_of(&s->peer_name);
    sender = address_of(&from->name);
    return peer.port == sender.port && (is_any(&sender) || same_address(&peer, &sender));
}

static int inet_find(struct socket *socket, const struct socket_name *name,
                     struct socket **ret_socket)
{
    struct address to = address_of(name), own;
    struct socket *at, *best = NULL;

    *ret_socket = NULL;
    if (!is_local(&to) || (socket->v6_only && is_four(&to)))
        return -ENETUNREACH;
    if (!to.port)
        return socket_stream(socket) ? -ECONNREFUSED : -EINVAL;
    destination(&to);
    for (at = sockets()->bound[to.port % 512]; at; at = at->bound_next) {
        if (!socket_inet(at) || at->type != socket->type || at->dead)
            continue;
        own = address_of(&at->name);
        if (!covers(at, &own, &to) || !hears(at, socket) ||
            (socket_stream(at) && at->phase != SOCKET_LISTENING))
            continue;
        if (!best || !is_any(&own) || at->peer_name.length) /* the closest one */
            best = at;
    }
    if (!best)
        return socket_stream(socket) ? -ECONNREFUSED : 0;
    socket_get(best);
    *ret_socket = best;
    return 0;
}

/* Names of both ends of a connection that `socket` makes to `name`; without a port of its own it gets one. */
int inet_name_ends(struct socket *socket, const struct socket_name *name)
{
    struct address to = address_of(name), own;
    int r = inet_autobind(socket);

    if (r < 0)
        return r;
    destination(&to);
    own = address_of(&socket->name);
    if (is_any(&own)) { /* from the loopback, as the other end sees it; the port stays */
        own.in6 = to.in6;
        if (is_four(&to))
            own.in6.s6_addr32[3] = htonl(INADDR_LOOPBACK);
        make_name(socket, &own, &socket->name);
    }
    make_name(socket, &to, &socket->peer_name);
    return 0;
}

void inet_name_free(struct socket *socket)
{
    struct address own = address_of(&socket->name);

    socket->peer_name.length = 0;
    if (!socket->name.length)
        return;
    if (!socket->bound_port) {
        socket_unbind(socket, socket_hash(&socket->name));
        own.port = 0;
    }
    if (!socket->bound_address)
        memset(&own.in6, 0, sizeof(own.in6));
    make_name(socket, &own, &socket->name);
    if (!socket->bound_port && !socket->bound_address)
        socket->name.length = 0;
}

/* The accepting end's names are the connecting end's, turned round. */
void inet_name_accepted(struct socket *accepted, const struct socket *from)
{
    struct address own = address_of(&from->peer_name), peer = address_of(&from->name);

    make_name(accepted, &own, &accepted->name);
    make_name(accepted, &peer, &accepted->peer_name);
}

/* How the receiver sees the sender. */
void inet_name_sender(const struct socket *receiver, const struct socket *sender,
                      struct socket_name *name)
{
    struct address own = address_of(&sender->name);

    if (IN6_IS_ADDR_UNSPECIFIED(&own.in6) && receiver->family == AF_INET)
        own.in6.s6_addr[10] = own.in6.s6_addr[11] = 0xff;
    destination(&own);
    make_name(receiver, &own, name);
}

void inet_unspecified(const struct socket *socket, struct socket_name *name)
{
    struct address none = {0};

    make_name(socket, &none, name);
}

const struct family inet_family = {
    .bind = inet_bind,
    .autobind = inet_autobind,
    .find = inet_find,
    .valid = inet_valid,
};
