/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * sockopt - options of sockets. What has no effect over a loopback is kept and shown again: the table at the end.
 * Threads: the kernel lock.
 */
#include <linux/capability.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/time.h>

#include "socket.h"

#define SIZE_MOST 4194304u /* net.core.wmem_max, rmem_max; twice that is what a socket may have */
#define SEND_LEAST 4608u
#define RECEIVE_LEAST 2304u

struct kept {
    int level, name, first; /* its value before it is set */
    bool flag;              /* 0 or 1 */
};
static const struct kept kept[41];

/* Does the family know options of this level at all? */
static bool has_level(const struct socket *s, int level)
{
    if (level == SOL_SOCKET)
        return true;
    return s->family == AF_NETLINK ? level == SOL_NETLINK : socket_inet(s);
}

static const struct kept *find_kept(const struct socket *s, int level, int name,
                                    unsigned *ret_index)
{
    unsigned i;

    if (!has_level(s, level))
        return NULL;
    if (level == IPPROTO_TCP && !socket_stream(s))
        return NULL;
    for (i = 0; kept[i].level >= 0; i++)
        if (kept[i].level == level && kept[i].name == name) {
            *ret_index = i;
            return &kept[i];
        }
    return NULL;
}

static int *kept_value(struct socket *s, unsigned index, bool make)
{
    unsigned i;

    for (i = 0; i < SOCKET_KEPT; i++) {
        if (s->kept[i].used && s->kept[i].index == index)
            return &s->kept[i].value;
        if (s->kept[i].used || !make)
            continue;
        s->kept[i].used = true;
        s->kept[i].index = (uint8_t)index;
        return &s->kept[i].value;
    }
    return NULL;
}

static int set_kept(struct socket *s, int level, int name, int value)
{
    unsigned index;
    const struct kept *k = find_kept(s, level, name, &index);
    int *place;

    if (!k)
        return !socket_unix(s) || level == SOL_SOCKET ? -ENOPROTOOPT : -EOPNOTSUPP;
    place = kept_value(s, index, true);
    if (!place)
        return -ENOMEM;
    *place = k->flag ? value != 0 : value;
    return 0;
}

static int get_kept(struct socket *s, int level, int name, int *ret_value)
{
    unsigned index;
    const struct kept *k = find_kept(s, level, name, &index);
    const int *place;

    if (!k)
        return !socket_unix(s) || level == SOL_SOCKET ? -ENOPROTOOPT : -EOPNOTSUPP;
    place = kept_value(s, index, false);
    *ret_value = place ? *place : k->first;
    return 0;
}

int sockopt_value(const struct socket *s, int level, int name)
{
    unsigned i;

    for (i = 0; i < SOCKET_KEPT; i++)
        if (s->kept[i].used && kept[s->kept[i].index].level == level &&
            kept[s->kept[i].index].name == name)
            return s->kept[i].value;
    return 0;
}

/* ---- setting ---- */

static uint32_t buffer_size(uint32_t asked, uint32_t least)
{
    uint32_t size = asked > SIZE_MOST ? SIZE_MOST : asked;

    return size * 2 > least ? size * 2 : least;
}

static int set_time(uint64_t guest, uint64_t size, uint64_t *ret_ns)
{
    struct timeval t;

    if (size < sizeof(t))
        return -EINVAL;
    if (copy_in(current->mm, &t, guest, sizeof(t)) < 0)
        return -EFAULT;
    if (t.tv_usec < 0 || t.tv_usec > 999999)
        return -EDOM;
    if (t.tv_sec < 0)
        *ret_ns = 1;
    else if (t.tv_sec > 1l << 32)
        *ret_ns = 0;
    else
        *ret_ns = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_usec * 1000;
    return 0;
}

static int set_linger(struct socket *s, uint64_t guest, uint64_t size)
{
    return size < sizeof(s->linger) ? -EINVAL
                                    : copy_in(current->mm, s->linger, guest, sizeof(s->linger));
}

static int set_socket(struct socket *s, int name, int value)
{
    switch (name) {
    case SO_REUSEADDR:
        s->reuse_address = value != 0;
        return 0;
    case SO_REUSEPORT:
        s->reuse_port = value != 0;
        return socket_inet(s) ? 0 : -EOPNOTSUPP;
    case SO_PASSCRED:
        s->pass_cred = value != 0;
        return 0;
    case SO_SNDBUF:
    case SO_SNDBUFFORCE:
        s->send_size = buffer_size((uint32_t)value, SEND_LEAST);
        socket_wake(s, READY_OUT);
        return 0;
    case SO_RCVBUF:
    case SO_RCVBUFFORCE:
        s->receive_size = buffer_size((uint32_t)value, RECEIVE_LEAST);
        return 0;
    case SO_RCVLOWAT:
        s->receive_low = value > 0 ? value : value < 0 ? INT32_MAX : 1;
        return 0;
    case SO_TYPE:
    case SO_PROTOCOL:
    case SO_DOMAIN:
    case SO_ERROR:
    case SO_ACCEPTCONN:
    case SO_SNDLOWAT:
        return -ENOPROTOOPT;
    default:
        return set_kept(s, SOL_SOCKET, name, value);
    }
}

static int set(struct socket *s, int level, int name, uint64_t guest, uint64_t size)
{
    int value;

    if ((int)size < 0)
        return -EINVAL;
    if (level == SOL_SOCKET && name == SO_RCVTIMEO)
        return set_time(guest, size, &s->receive_time);
    if (level == SOL_SOCKET && name == SO_SNDTIMEO)
        return set_time(guest, size, &s->send_time);
    if (level == SOL_SOCKET && name == SO_LINGER)
        return set_linger(s, guest, size);
    if (!has_level(s, level))
        return socket_unix(s) ? -EOPNOTSUPP : -ENOPROTOOPT;
    if (size < sizeof(value))
        return -EINVAL;
    if (get_int(guest, &value) < 0)
        return -EFAULT;
    if (level == SOL_SOCKET)
        return set_socket(s, name, value);
    if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY) {
        s->v6_only = value != 0;
        return s->name.length || s->family != AF_INET6 ? -EINVAL : 0;
    }
    if (level == SOL_NETLINK && (name == NETLINK_ADD_MEMBERSHIP || name == NETLINK_DROP_MEMBERSHIP))
        return netlink_group(s, value, name == NETLINK_ADD_MEMBERSHIP);
    return set_kept(s, level, name, value);
}

SYSCALL(setsockopt)
{
    int r;
    struct file *file = socket_get_fd(a[0], &r);

    if (!file)
        return r;
    r = set(file->data, (int)a[1], (int)a[2], a[3], a[4]);
    file_put(file);
    return r;
}

/* ---- asking ---- */

static int get_socket(struct socket *s, int name, int *v)
{
    switch (name) {
    case SO_REUSEADDR:
        *v = s->reuse_address;
        return 0;
    case SO_REUSEPORT:
        *v = s->reuse_port;
        return 0;
    case SO_PASSCRED:
        *v = s->pass_cred;
        return socket_inet(s) ? -EOPNOTSUPP : 0;
    case SO_SNDBUF:
        *v = (int)s->send_size;
        return 0;
    case SO_RCVBUF:
        *v = (int)s->receive_size;
        return 0;
    case SO_RCVLOWAT:
        *v = s->receive_low;
        return 0;
    case SO_SNDLOWAT:
        *v = 1;
        return 0;
    case SO_TYPE:
        *v = s->type;
        return 0;
    case SO_PROTOCOL:
        *v = s->protocol;
        return 0;
    case SO_DOMAIN:
        *v = s->family;
        return 0;
    case SO_ERROR:
        *v = -socket_take_error(s);
        return 0;
    case SO_ACCEPTCONN:
        *v = s->phase == SOCKET_LISTENING;
        return 0;
    default:
        return get_kept(s, SOL_SOCKET, name, v);
    }
}

static struct timeval shown_time(uint64_t ns)
{
    return (struct timeval){.tv_sec = (time_t)(ns / 1000000000),
                            .tv_usec = (long)(ns / 1000 % 1000000)};
}

static struct ucred shown_peer(const struct socket *s)
{
    if (s->phase == SOCKET_CONNECTED && socket_connection(s))
        return s->peer_cred;
    if (s->phase == SOCKET_CONNECTED && s->peer_cred.pid) /* a pair of datagrams */
        return s->peer_cred;
    return s->phase == SOCKET_LISTENING
               ? s->own_cred
               : (struct ucred){.pid = 0, .uid = (uid_t)-1, .gid = (gid_t)-1};
}

union option {
    int value;
    struct timeval time;
    struct ucred cred;
    int linger[2];
    struct tcp_info info;
    char text[16];
};

/* The value, its size: positive, or -errno. */
static int get_value(struct socket *s, int level, int name, union option *o)
{
    int r;

    memset(o, 0, sizeof(*o));
    if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO)) {
        o->time = shown_time(name == SO_RCVTIMEO ? s->receive_time : s->send_time);
        return sizeof(o->time);
    }
    if (level == SOL_SOCKET && name == SO_LINGER) {
        memcpy(o->linger, s->linger, sizeof(o->linger));
        return sizeof(o->linger);
    }
    if (level == SOL_SOCKET && name == SO_PEERCRED) {
        o->cred = shown_peer(s);
        return sizeof(o->cred);
    }
    if (level == IPPROTO_TCP && name == TCP_INFO && socket_inet(s) && socket_stream(s)) {
        o->info.tcpi_state = s->phase == SOCKET_CONNECTED   ? 1
                             : s->phase == SOCKET_LISTENING ? 10
                                                            : 7;
        return sizeof(o->info);
    }
    if (level == IPPROTO_TCP && name == TCP_CONGESTION && socket_inet(s) && socket_stream(s)) {
        memcpy(o->text, "cubic", 5);
        return sizeof(o->text);
    }
    if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY && s->family == AF_INET6) {
        o->value = s->v6_only;
        return sizeof(o->value);
    }
    r = level == SOL_SOCKET ? get_socket(s, name, &o->value) : get_kept(s, level, name, &o->value);
    return r < 0 ? r : (int)sizeof(o->value);
}

static int get(struct socket *s, int level, int name, uint64_t guest, uint64_t guest_length)
{
    union option o;
    int length, size;

    if (!has_level(s, level))
        return socket_unix(s) ? -EOPNOTSUPP : -ENOPROTOOPT;
    if (get_int(guest_length, &length) < 0)
        return -EFAULT;
    if (length < 0)
        return -EINVAL;
    size = get_value(s, level, name, &o);
    if (size < 0)
        return size;
    if (length > size)
        length = size;
    if (copy_out(current->mm, guest, &o, (size_t)length) < 0)
        return -EFAULT;
    return (int)put_int(guest_length, length);
}

SYSCALL(getsockopt)
{
    int r;
    struct file *file = socket_get_fd(a[0], &r);

    if (!file)
        return r;
    r = get(file->data, (int)a[1], (int)a[2], a[3], a[4]);
    file_put(file);
    return r;
}

static const struct kept kept[41] = {
    {SOL_SOCKET, SO_KEEPALIVE, 0, true},
    {SOL_SOCKET, SO_BROADCAST, 0, true},
    {SOL_SOCKET, SO_DONTROUTE, 0, true},
    {SOL_SOCKET, SO_OOBINLINE, 0, true},
    {SOL_SOCKET, SO_TIMESTAMP, 0, true},
    {SOL_SOCKET, SO_PRIORITY, 0, false},
    {IPPROTO_TCP, TCP_NODELAY, 0, true},
    {IPPROTO_TCP, TCP_CORK, 0, true},
    {IPPROTO_TCP, TCP_QUICKACK, 1, true},
    {IPPROTO_TCP, TCP_KEEPIDLE, 7200, false},
    {IPPROTO_TCP, TCP_KEEPINTVL, 75, false},
    {IPPROTO_TCP, TCP_KEEPCNT, 9, false},
    {IPPROTO_TCP, TCP_SYNCNT, 6, false},
    {IPPROTO_TCP, TCP_LINGER2, 60, false},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT, 0, false},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, 0, false},
    {IPPROTO_TCP, TCP_FASTOPEN, 0, false},
    {IPPROTO_TCP, TCP_MAXSEG, 536, false},
    {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0, false},
    {IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 0, true},
    {IPPROTO_IP, IP_TOS, 0, false},
    {IPPROTO_IP, IP_TTL, 64, false},
    {IPPROTO_IP, IP_RECVERR, 0, true},
    {IPPROTO_IP, IP_PKTINFO, 0, true},
    {IPPROTO_IP, IP_MTU_DISCOVER, 1, false},
    {IPPROTO_IP, IP_MULTICAST_TTL, 1, false},
    {IPPROTO_IP, IP_MULTICAST_LOOP, 1, true},
    {IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 0, true},
    {IPPROTO_IPV6, IPV6_UNICAST_HOPS, 64, false},
    {IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 1, false},
    {IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 1, true},
    {IPPROTO_IPV6, IPV6_RECVERR, 0, true},
    {IPPROTO_IPV6, IPV6_RECVPKTINFO, 0, true},
    {IPPROTO_IPV6, IPV6_TCLASS, 0, false},
    {SOL_NETLINK, NETLINK_PKTINFO, 0, true},
    {SOL_NETLINK, NETLINK_BROADCAST_ERROR, 0, true},
    {SOL_NETLINK, NETLINK_NO_ENOBUFS, 0, true},
    {SOL_NETLINK, NETLINK_CAP_ACK, 0, true},
    {SOL_NETLINK, NETLINK_EXT_ACK, 0, true},
    {SOL_NETLINK, NETLINK_GET_STRICT_CHK, 0, true},
    {-1, 0, 0, false},
};
