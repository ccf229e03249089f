/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * net - /proc/net: devices and routes from the rows of ipc/device.c, sockets from the list of all. Columns are those of Linux,
 * whose readers count them; addresses of the kernel are 0 there. What nothing counts here, such as a device's packets, is 0.
 * Threads: the kernel lock.
 */
#include <inttypes.h>
#include <linux/ipv6_route.h>
#include <linux/route.h>
#include <linux/rtnetlink.h>
#include <string.h>

#include "ipc/device.h"
#include "ipc/socket.h"
#include "proc.h"

/* ---- devices ---- */

MAKER(net_dev)
{
    unsigned i;

    (void)node;
    text_add(text, "Inter-|   Receive                                                |  Transmit\n"
                   " face |bytes    packets errs drop fifo frame compressed multicast|bytes    "
                   "packets errs drop fifo colls carrier compressed\n");
    for (i = 0; i < n_devices; i++)
        text_add(text, "%6s: %7d %7d %4d %4d %4d %5d %10d %9d %8d %7d %4d %4d %4d %5d %7d %10d\n",
                 devices[i].name, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

static void hex(struct text *text, const uint8_t *bytes, size_t size)
{
    size_t i;

    for (i = 0; i < size; i++)
        text_add(text, "%02x", bytes[i]);
}

/* As IPv6 counts scopes. */
static unsigned scope_of(const struct device_address *own)
{
    return own->scope == RT_SCOPE_HOST ? 0x10 : own->scope == RT_SCOPE_LINK ? 0x20 : 0;
}

MAKER(net_if_inet6)
{
    unsigned i;

    (void)node;
    for (i = 0; i < n_device_addresses; i++) {
        const struct device_address *own = &device_addresses[i];
        if (own->family != AF_INET6)
            continue;
        hex(text, own->bytes, sizeof(own->bytes));
        text_add(text, " %02x %02x %02x %02x %8s\n", (unsigned)own->device, own->prefix,
                 scope_of(own), own->flags, device_by_index(own->device)->name);
    }
}

MAKER(net_route)
{
    size_t start;
    unsigned i;

    (void)node;
    text_add(text, "%-127s\n",
             "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT");
    for (i = 0; i < n_device_routes; i++) {
        const struct device_route *route = &device_routes[i];
        uint32_t to, mask;
        if (route->family != AF_INET || route->table != RT_TABLE_MAIN)
            continue;
        mask = route->prefix ? htonl(~0u << (32 - route->prefix)) : 0;
        memcpy(&to, route->to, sizeof(to));
        start = text->length;
        text_add(text, "%s\t%08X\t00000000\t%04X\t0\t0\t%u\t%08X\t0\t0\t0",
                 device_by_index(route->device)->name, to,
                 RTF_UP | (route->prefix == 32 ? RTF_HOST : 0), route->metric, mask);
        text_pad(text, start, 127);
        text_add(text, "\n");
    }
}

MAKER(net_ipv6_route)
{
    static const uint8_t none[16];
    unsigned i;

    (void)node;
    for (i = 0; i < n_device_routes; i++) {
        const struct device_route *route = &device_routes[i];
        if (route->family != AF_INET6)
            continue;
        hex(text, route->to, sizeof(route->to));
        text_add(text, " %02x ", route->prefix);
        hex(text, none, sizeof(none));
        text_add(text, " 00 ");
        hex(text, none, sizeof(none));
        text_add(text, " %08x 00000002 00000000 %08x %8s\n", route->metric,
                 RTF_UP | RTF_NONEXTHOP | (route->type == RTN_LOCAL ? RTF_LOCAL : 0),
                 device_by_index(route->device)->name);
    }
}

/* ---- sockets ---- */

static uint64_t number_of(const struct socket *s)
{
    return s->file && s->file->inode ? s->file->inode->number : 0;
}

static uint32_t owner_of(const struct socket *s)
{
    return s->file && s->file->inode ? s->file->inode->uid : 0;
}

static uint32_t waiting(const struct socket *s)
{
    const struct message *message;
    uint32_t bytes = 0;

    if (s->phase == SOCKET_LISTENING)
        return s->n_pending;
    TAILQ_FOREACH(message, &s->queue, link)
    bytes += message->length - message->offset;
    return bytes;
}

/* The number that Linux has for it; 0: none that is shown. */
static unsigned tcp_state(const struct socket *s)
{
    if (s->phase == SOCKET_LISTENING)
        return 10;
    if (s->phase != SOCKET_CONNECTED || s->shut == SHUT_ALL)
        return 0;
    return s->shut == SHUT_IN ? 8 : s->shut == SHUT_OUT ? 5 : 1; /* CLOSE_WAIT, FIN_WAIT2 */
}

static unsigned udp_state(const struct socket *s)
{
    return !s->name.length ? 0 : s->peer_name.length ? 1 : 7;
}

static void add_name(struct text *text, int family, const struct socket_name *name)
{
    static const struct socket_name none;
    const struct socket_name *n = name->length ? name : &none;
    uint32_t words[4];
    unsigned i, count = family == AF_INET ? 1 : 4;

    if (family == AF_INET)
        memcpy(words, &n->in.sin_addr, 4);
    else
        memcpy(words, &n->in6.sin6_addr, 16);
    for (i = 0; i < count; i++)
        text_add(text, "%08X", words[i]);
    text_add(text, ":%04X ", ntohs(n->in.sin_port));
}

static void inet_sockets(struct text *text, int family, bool stream)
{
    const struct socket *s;
    unsigned n = 0, state;
    size_t start;

    TAILQ_FOREACH(s, &sockets()->all, all_link)
    {
        state = s->dead || s->family != family || socket_stream(s) != stream ? 0
                : stream                                                     ? tcp_state(s)
                                                                             : udp_state(s);
        if (!state)
            continue;
        start = text->length;
        text_add(text, stream ? "%4u: " : "%5u: ", n++);
        add_name(text, family, &s->name);
        add_name(text, family, &s->peer_name);
        text_add(text, "%02X 00000000:%08X 00:00000000 00000000 %5u        0 %" PRIu64, state,
                 waiting(s), owner_of(s), number_of(s));
        if (!stream)
            text_add(text, " 2 %016d 0", 0);
        else if (state == 10)
            text_add(text, " 1 %016d 100 0 0 10 0", 0);
        else
            text_add(text, " 1 %016d 20 4 30 10 -1", 0);
        if (family == AF_INET)
            text_pad(text, start, stream ? 149 : 127);
        text_add(text, "\n");
    }
}

MAKER(net_tcp)
{
    (void)node;
    text_add(text, "%-149s\n",
             "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
             "timeout inode");
    inet_sockets(text, AF_INET, true);
}

MAKER(net_tcp6)
{
    (void)node;
    text_add(text, "  sl  local_address                         remote_address                   "
                   "     st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n");
    inet_sockets(text, AF_INET6, true);
}

MAKER(net_udp)
{
    (void)node;
    text_add(text, "%-127s\n",
             "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
             "timeout inode ref pointer drops");
    inet_sockets(text, AF_INET, false);
}

MAKER(net_udp6)
{
    (void)node;
    text_add(text, "  sl  local_address                         remote_address                   "
                   "     st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref "
                   "pointer drops\n");
    inet_sockets(text, AF_INET6, false);
}

/* The name as a line may hold it: what ends one, and the NUL of an abstract name, become @. */
static void unix_name(struct text *text, const struct socket_name *name)
{
    size_t i, length = name->length - offsetof(struct sockaddr_un, sun_path);
    const char *path = name->un.sun_path;

    text_add(text, " ");
    if (path[0])
        length = strnlen(path, length);
    for (i = 0; i < length; i++)
        text_bytes(text, path[i] && path[i] != '\n' ? &path[i] : "@", 1);
}

MAKER(net_unix)
{
    const struct socket *s;

    (void)node;
    text_add(text, "Num       RefCount Protocol Flags    Type St Inode Path\n");
    TAILQ_FOREACH(s, &sockets()->all, all_link)
    {
        if (!socket_unix(s) || s->dead)
            continue;
        text_add(text, "%016d: %08X %08X %08X %04X %02X %5" PRIu64, 0, s->refs + 1, 0,
                 s->phase == SOCKET_LISTENING ? 0x10000u : 0, (unsigned)s->type,
                 s->phase == SOCKET_CONNECTED ? 3u : 1u, number_of(s));
        if (s->name.length > offsetof(struct sockaddr_un, sun_path))
            unix_name(text, &s->name);
        text_add(text, "\n");
    }
}

MAKER(net_netlink)
{
    const struct socket *s;

    (void)node;
    text_add(text, "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    "
                   "Drops    Inode\n");
    TAILQ_FOREACH(s, &sockets()->all, all_link)
    if (s->family == AF_NETLINK && !s->dead)
        text_add(text,
                 "%016d %-3d %-10u %08x %-8" PRIu64 " 0        0     2        0        %-8" PRIu64
                 "\n",
                 0, s->protocol, s->name.length ? s->name.nl.nl_pid : 0,
                 s->name.length ? s->name.nl.nl_groups : 0, s->queue_cost, number_of(s));
}

MAKER(net_sockstat)
{
    unsigned all = 0, tcp = 0, udp = 0;
    const struct socket *s;

    (void)node;
    TAILQ_FOREACH(s, &sockets()->all, all_link)
    {
        all += s->file != NULL;
        tcp += s->family == AF_INET && socket_stream(s) && tcp_state(s);
        udp += s->family == AF_INET && !socket_stream(s) && udp_state(s);
    }
    text_add(text,
             "sockets: used %u\nTCP: inuse %u orphan 0 tw 0 alloc %u mem 0\nUDP: inuse %u mem 0\n"
             "UDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 0 memory 0\n",
             all, tcp, tcp, udp);
}
