/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * net - the one interface of the guest, by netlink, as the enforcer sets up the cell's end of a
 * link elsewhere: one address, the gateway on it, a default route, no IPv6.
 *
 * Between FREEZE and THAW nothing is sent at all: what a restored guest's kernel has in its timers
 * would go out under the address of the guest it was. In that silence a guest that was someone else
 * loses its addresses, and then the connections of those addresses end: no packet ever carries the
 * former address, and the resets of the dying connections have no way out. Listeners and what is
 * bound to no address live on. The link is not taken down for it: a driver of Linux 6.12 waits then
 * for work that waits for the same lock, when the machine was told at the same moment to announce
 * itself, as QEMU does after a restore.
 * Invariants: every request is acknowledged before the next. Threads: one.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/inet_diag.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "guest.h"

#define IFF_UP_ 1u
#define TCP_LISTEN_ 10
#define TCP_CLOSE_ 7
#define DESTROY_MAX 65536u

struct request {
    _Alignas(8) struct nlmsghdr h;
    uint8_t body[512];
};

static void *begin(struct request *q, uint16_t type, uint16_t flags, size_t len)
{
    memset(q, 0, sizeof(*q));
    q->h.nlmsg_len = (uint32_t)(NLMSG_HDRLEN + NLMSG_ALIGN(len));
    q->h.nlmsg_type = type;
    q->h.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
    q->h.nlmsg_seq = 1;
    return q->body;
}

static void attr(struct request *q, uint16_t type, const void *p, uint16_t len)
{
    struct rtattr *a = (struct rtattr *)((uint8_t *)q + q->h.nlmsg_len);

    a->rta_type = type;
    a->rta_len = (uint16_t)(RTA_LENGTH(0) + len);
    memcpy(RTA_DATA(a), p, len);
    q->h.nlmsg_len += (uint32_t)RTA_ALIGN(a->rta_len);
}

/* 0 or -errno, by the acknowledgement. */
static int run(int family, struct request *q)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family), r = -EIO;
    union {
        struct nlmsghdr h;
        uint8_t b[4096];
    } in;

    if (fd < 0)
        return -errno;
    if (send(fd, q, q->h.nlmsg_len, 0) < 0 ||
        recv(fd, &in, sizeof(in), 0) < (ssize_t)(NLMSG_HDRLEN + sizeof(int)))
        r = -errno;
    else if (in.h.nlmsg_type == NLMSG_ERROR)
        r = ((struct nlmsgerr *)NLMSG_DATA(&in.h))->error;
    close(fd);
    return r;
}

/* Calls fn for each message of a dump. */
static int dump(int family, struct request *q, void (*fn)(struct nlmsghdr *h, void *ctx), void *ctx)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family), r = 1;
    static union {
        struct nlmsghdr h;
        uint8_t b[32768];
    } in;
    ssize_t n;

    if (fd < 0)
        return -errno;
    q->h.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    if (send(fd, q, q->h.nlmsg_len, 0) < 0)
        r = -errno;
    while (r == 1 && (n = recv(fd, &in, sizeof(in), 0)) > 0) {
        struct nlmsghdr *h = &in.h;
        int left = (int)n;
        for (; r == 1 && NLMSG_OK(h, (unsigned)left); h = NLMSG_NEXT(h, left))
            if (h->nlmsg_type == NLMSG_DONE)
                r = 0;
            else if (h->nlmsg_type == NLMSG_ERROR)
                r = ((struct nlmsgerr *)NLMSG_DATA(h))->error;
            else
                fn(h, ctx);
    }
    close(fd);
    return r == 1 ? -EIO : r;
}

/* ---- the interface ---- */

/* The first that is not the loopback; 0 = none. */
static int interface_find(void)
{
    DIR *d = opendir("/sys/class/net");
    char path[300], text[32];
    struct dirent *e;
    int index = 0;

    while (d && !index && (e = readdir(d))) {
        if (e->d_name[0] == '.' || strcmp(e->d_name, "lo") == 0 || strlen(e->d_name) > 15)
            continue;
        path[0] = 0;
        text_add(path, sizeof(path), "/sys/class/net/");
        text_add(path, sizeof(path), e->d_name);
        text_add(path, sizeof(path), "/ifindex");
        if (read_text(path, text, sizeof(text)) > 0) {
            text[strcspn(text, "\n")] = 0;
            index = (int)parse_num(text);
        }
    }
    if (d)
        closedir(d);
    return index;
}

static int link_up(int index)
{
    struct request q;
    struct ifinfomsg *i = begin(&q, RTM_NEWLINK, 0, sizeof(*i));

    i->ifi_index = index;
    i->ifi_change = i->ifi_flags = IFF_UP_;
    return run(NETLINK_ROUTE, &q);
}

static int link_mac(int index, const uint8_t mac[6])
{
    struct request q;
    struct ifinfomsg *i = begin(&q, RTM_NEWLINK, 0, sizeof(*i));

    i->ifi_index = index;
    attr(&q, IFLA_ADDRESS, mac, 6);
    return run(NETLINK_ROUTE, &q);
}

static int address_add(int index, const struct identity *id)
{
    struct request q;
    struct ifaddrmsg *a = begin(&q, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof(*a));

    a->ifa_family = AF_INET;
    a->ifa_prefixlen = id->prefix;
    a->ifa_index = (uint32_t)index;
    attr(&q, IFA_LOCAL, &id->address, 4);
    attr(&q, IFA_ADDRESS, &id->address, 4);
    return run(NETLINK_ROUTE, &q);
}

static int route_add(int index, const struct identity *id)
{
    struct request q;
    struct rtmsg *m = begin(&q, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof(*m));

    m->rtm_family = AF_INET;
    m->rtm_table = RT_TABLE_MAIN;
    m->rtm_protocol = RTPROT_STATIC;
    m->rtm_scope = RT_SCOPE_UNIVERSE;
    m->rtm_type = RTN_UNICAST;
    attr(&q, RTA_OIF, &index, 4);
    attr(&q, RTA_GATEWAY, &id->gateway, 4);
    return run(NETLINK_ROUTE, &q);
}

/* ---- what was there before ---- */

struct former {
    int index;
    size_t n;
    struct {
        uint32_t address;
        uint8_t prefix;
    } list[16];
};

static void address_seen(struct nlmsghdr *h, void *ctx)
{
    struct former *x = ctx;
    struct ifaddrmsg *a = NLMSG_DATA(h);
    struct rtattr *at = (struct rtattr *)((uint8_t *)a + NLMSG_ALIGN(sizeof(*a)));
    int left = (int)(h->nlmsg_len - NLMSG_LENGTH(sizeof(*a)));

    if (h->nlmsg_type != RTM_NEWADDR || a->ifa_family != AF_INET || (int)a->ifa_index != x->index ||
        x->n == ARRAY_LEN(x->list))
        return;
    for (; RTA_OK(at, left); at = RTA_NEXT(at, left))
        if (at->rta_type == IFA_LOCAL) {
            memcpy(&x->list[x->n].address, RTA_DATA(at), 4);
            x->list[x->n++].prefix = a->ifa_prefixlen;
        }
}

static int address_del(int index, uint32_t address, uint8_t prefix)
{
    struct request q;
    struct ifaddrmsg *a = begin(&q, RTM_DELADDR, 0, sizeof(*a));

    a->ifa_family = AF_INET;
    a->ifa_prefixlen = prefix;
    a->ifa_index = (uint32_t)index;
    attr(&q, IFA_LOCAL, &address, 4);
    return run(NETLINK_ROUTE, &q);
}

struct doomed {
    const struct former *former;
    uint8_t family, protocol;
    size_t n;
    struct inet_diag_sockid *ids; /* of DESTROY_MAX */
};

static int is_former(const struct former *x, uint8_t family, const uint32_t *src)
{
    size_t i;

    if (family == AF_INET6 && (src[0] || src[1] || src[2] != htonl(0xffff)))
        return 0;
    for (i = 0; i < x->n; i++)
        if (x->list[i].address == src[family == AF_INET6 ? 3 : 0])
            return 1;
    return 0;
}

static void socket_seen(struct nlmsghdr *h, void *ctx)
{
    struct doomed *d = ctx;
    struct inet_diag_msg *m = NLMSG_DATA(h);

    if (h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)) || d->n == DESTROY_MAX ||
        m->idiag_state == TCP_LISTEN_ ||
        (d->protocol == IPPROTO_UDP && m->idiag_state == TCP_CLOSE_) || /* not connected */
        !is_former(d->former, m->idiag_family, m->id.idiag_src))
        return;
    d->ids[d->n++] = m->id;
}

static int sockets_destroy(const struct former *x, uint8_t family, uint8_t protocol,
                           struct inet_diag_sockid *ids)
{
    struct doomed d = {x, family, protocol, 0, ids};
    struct request q;
    struct inet_diag_req_v2 *v = begin(&q, SOCK_DIAG_BY_FAMILY, 0, sizeof(*v));
    size_t i;
    int r;

    v->sdiag_family = family;
    v->sdiag_protocol = protocol;
    v->idiag_states = ~0u;
    r = dump(NETLINK_SOCK_DIAG, &q, socket_seen, &d);
    for (i = 0; r == 0 && i < d.n; i++) {
        v = begin(&q, SOCK_DESTROY, 0, sizeof(*v));
        v->sdiag_family = family;
        v->sdiag_protocol = protocol;
        v->idiag_states = ~0u;
        v->id = d.ids[i];
        r = run(NETLINK_SOCK_DIAG, &q);
        if (r == -ENOENT) /* it ended by itself */
            r = 0;
    }
    return r;
}

/* UDP: the kernel refuses a source address that is gone; ending the sockets tells their owners. */
static int connections_end(const struct former *x)
{
    static const uint8_t families[] = {AF_INET, AF_INET6};
    struct inet_diag_sockid *ids = malloc(DESTROY_MAX * sizeof(*ids));
    size_t i;
    int r = ids ? 0 : -ENOMEM;

    for (i = 0; r == 0 && i < ARRAY_LEN(families); i++) {
        r = sockets_destroy(x, families[i], IPPROTO_TCP, ids);
        if (r == 0)
            sockets_destroy(x, families[i], IPPROTO_UDP, ids);
    }
    free(ids);
    return r;
}

static int former_end(int index)
{
    struct former x = {.index = index};
    struct request q;
    struct ifaddrmsg *a = begin(&q, RTM_GETADDR, 0, sizeof(*a));
    size_t i;
    int r;

    a->ifa_family = AF_INET;
    r = dump(NETLINK_ROUTE, &q, address_seen, &x);
    for (i = 0; r == 0 && i < x.n; i++)
        r = address_del(index, x.list[i].address, x.list[i].prefix);
    if (r == 0 && x.n)
        r = connections_end(&x);
    return r;
}

/* As policy/egress-nft does in a network namespace. A knob that is not there is as good as off. */
static void harden(void)
{
    static const char *const knobs[][2] = {
        {"/proc/sys/net/ipv6/conf/all/disable_ipv6", "1"},
        {"/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"},
        {"/proc/sys/net/ipv4/conf/all/accept_redirects", "0"},
        {"/proc/sys/net/ipv4/conf/default/accept_redirects", "0"},
        {"/proc/sys/net/ipv4/tcp_congestion_control", "reno"},
    };
    size_t i;

    for (i = 0; i < ARRAY_LEN(knobs); i++)
        write_text(knobs[i][0], knobs[i][1]);
}

/* A queue of no length drops what is sent: timers of the kernel run on when processes do not. */
int net_silence(int on)
{
    struct request q;
    int index = interface_find(), r;
    struct tcmsg *t = begin(&q, on ? RTM_NEWQDISC : RTM_DELQDISC,
                            on ? NLM_F_CREATE | NLM_F_REPLACE : 0, sizeof(*t));
    uint32_t limit = 0;

    if (!index)
        return 0;
    t->tcm_ifindex = index;
    t->tcm_parent = TC_H_ROOT;
    if (on) {
        attr(&q, TCA_KIND, "pfifo", 6);
        attr(&q, TCA_OPTIONS, &limit, sizeof(limit));
    }
    r = run(NETLINK_ROUTE, &q);
    return r < 0 && (on || r != -ENOENT) ? blame(-r, "cannot silence the network interface", NULL)
                                         : 0;
}

int net_apply(const struct identity *id)
{
    int index, r;

    harden();
    r = link_up(1);
    if (r < 0)
        return blame(-r, "cannot bring lo up", NULL);
    index = interface_find();
    if (!index)
        return id->has_net ? blame(ENODEV, "the machine has no network interface", NULL) : 0;
    r = former_end(index);
    if (r < 0)
        return blame(-r, "cannot end what used the former address", NULL);
    if (!id->has_net)
        return 0;
    r = link_mac(index, id->mac);
    if (r == 0)
        r = address_add(index, id);
    if (r == 0)
        r = link_up(index);
    if (r == 0)
        r = route_add(index, id);
    return r < 0 ? blame(-r, "cannot set up the network interface", NULL) : 0;
}
