/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * netlink - links, addresses, routes and neighbours of the network namespace this process is in.
 *
 * Kept to what one point-to-point link needs. Every request is acknowledged before the next, so a
 * failure names its step. Addresses are in host byte order up to the attribute. Threads: none.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/ioctl.h>

#include <libmnl/libmnl.h>
#include <linux/if.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>

#include "setup.h"

#define WAIT_UP_NS 2000000000u
#define GSO_IPV4_MAX_SIZE 63 /* IFLA_*; younger than the headers of Debian 12 */
#define GRO_IPV4_MAX_SIZE 64
#define LINK_GSO (192u * 1024)

unsigned if_nametoindex(const char *name); /* <net/if.h> and <linux/if.h> exclude each other */

struct request {
    struct nlmsghdr *h;
    _Alignas(struct nlmsghdr) char bytes[1024];
};

static void *request_init(struct request *q, uint16_t type, uint16_t flags, size_t extra)
{
    q->h = mnl_nlmsg_put_header(q->bytes);
    q->h->nlmsg_type = type;
    q->h->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
    q->h->nlmsg_seq = 1;
    return mnl_nlmsg_put_extra_header(q->h, extra);
}

static struct mnl_socket *route_open(void)
{
    struct mnl_socket *nl = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);

    if (nl && mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) < 0) {
        int e = errno;
        mnl_socket_close(nl);
        errno = e;
        return NULL;
    }
    return nl;
}

/* A socket stays in the namespace it was made in, so net_left() ends it. */
static struct mnl_socket *route;

static struct mnl_socket *route_here(void)
{
    if (!route)
        route = route_open();
    return route;
}

void net_left(void)
{
    if (route)
        mnl_socket_close(route);
    route = NULL;
}

static int request_run(struct request *q, const char *what, struct cella_error *err)
{
    struct mnl_socket *nl = route_here();
    char buf[4096];
    long n;
    int r = 0;

    if (!nl)
        return fail(err, -errno, "no route netlink socket: %s", strerror(errno));
    n = mnl_socket_sendto(nl, q->h, q->h->nlmsg_len);
    if (n >= 0)
        n = mnl_socket_recvfrom(nl, buf, sizeof(buf));
    if (n < 0 || mnl_cb_run(buf, (size_t)n, 1, mnl_socket_get_portid(nl), NULL, NULL) < 0)
        r = fail(err, -errno, "%s: %s", what, strerror(errno));
    return r;
}

/* Packets of up to this size between the two ends, where the kernel can (6.3); older ones skip what they do not
   know. The MTU stays what it is: it is what the cell's datagrams see. One queue each: there is no lock to share, and
   every further one is an object in sysfs to make and to remove. */
static void put_end(struct request *q, const struct link_end *e)
{
    mnl_attr_put_u32(q->h, IFLA_NUM_TX_QUEUES, 1);
    mnl_attr_put_u32(q->h, IFLA_NUM_RX_QUEUES, 1);
    mnl_attr_put_strz(q->h, IFLA_IFNAME, e->name);
    mnl_attr_put(q->h, IFLA_ADDRESS, 6, e->mac);
    mnl_attr_put_u32(q->h, GSO_IPV4_MAX_SIZE, LINK_GSO);
    mnl_attr_put_u32(q->h, GRO_IPV4_MAX_SIZE, LINK_GSO);
}

int net_veth(const struct link_end *near, const struct link_end *far, int peer_ns,
             struct cella_error *err)
{
    struct request q;
    struct nlattr *info, *data, *peer;
    struct ifinfomsg *peer_head;

    request_init(&q, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct ifinfomsg));
    put_end(&q, near);
    info = mnl_attr_nest_start(q.h, IFLA_LINKINFO);
    mnl_attr_put_strz(q.h, IFLA_INFO_KIND, "veth");
    data = mnl_attr_nest_start(q.h, IFLA_INFO_DATA);
    peer = mnl_attr_nest_start(q.h, VETH_INFO_PEER);
    peer_head = mnl_nlmsg_put_extra_header(q.h, sizeof(*peer_head));
    (void)peer_head; /* zeroed */
    put_end(&q, far);
    mnl_attr_put_u32(q.h, IFLA_NET_NS_FD, (uint32_t)peer_ns);
    mnl_attr_nest_end(q.h, peer);
    mnl_attr_nest_end(q.h, data);
    mnl_attr_nest_end(q.h, info);
    return request_run(&q, "creating the cell's link", err);
}

int net_tap(const struct link_end *near, int *ret_fd, struct cella_error *err)
{
    struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    struct request q;
    struct ifinfomsg *head;
    auto_close int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    int r;

    if (fd < 0)
        return fail(err, -errno, "no /dev/net/tun: %s; load the tun module", strerror(errno));
    snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", near->name);
    if (ioctl(fd, TUNSETIFF, &ifr) < 0)
        return fail(err, -errno, "creating the cell's tap: %s", strerror(errno));
    head = request_init(&q, RTM_NEWLINK, 0, sizeof(*head));
    head->ifi_index = (int)if_nametoindex(near->name);
    mnl_attr_put(q.h, IFLA_ADDRESS, 6, near->mac);
    r = request_run(&q, "setting the tap's hardware address", err);
    if (r == 0)
        *ret_fd = steal_fd(&fd);
    return r;
}

static int link_up(unsigned index, const char *what, struct cella_error *err)
{
    struct request q;
    struct ifinfomsg *head = request_init(&q, RTM_NEWLINK, 0, sizeof(*head));

    head->ifi_index = (int)index;
    head->ifi_flags = head->ifi_change = IFF_UP;
    return request_run(&q, what, err);
}

static int add_address(unsigned index, uint32_t addr, struct cella_error *err)
{
    struct request q;
    struct ifaddrmsg *head =
        request_init(&q, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof(*head));

    head->ifa_family = AF_INET;
    head->ifa_prefixlen = 30;
    head->ifa_index = index;
    mnl_attr_put_u32(q.h, IFA_LOCAL, htonl(addr));
    mnl_attr_put_u32(q.h, IFA_ADDRESS, htonl(addr));
    return request_run(&q, "giving the link its address", err);
}

static int add_neighbour(unsigned index, uint32_t addr, const uint8_t mac[6],
                         struct cella_error *err)
{
    struct request q;
    struct ndmsg *head =
        request_init(&q, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, sizeof(*head));

    head->ndm_family = AF_INET;
    head->ndm_ifindex = (int)index;
    head->ndm_state = NUD_PERMANENT;
    mnl_attr_put_u32(q.h, NDA_DST, htonl(addr));
    mnl_attr_put(q.h, NDA_LLADDR, 6, mac);
    return request_run(&q, "adding the static neighbour", err);
}

static int add_default(unsigned char type, unsigned index, uint32_t gateway,
                       struct cella_error *err)
{
    struct request q;
    struct rtmsg *head = request_init(&q, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof(*head));

    head->rtm_family = AF_INET;
    head->rtm_table = RT_TABLE_MAIN;
    head->rtm_protocol = RTPROT_STATIC;
    head->rtm_scope = type == RTN_LOCAL ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE;
    head->rtm_type = type;
    mnl_attr_put_u32(q.h, RTA_OIF, index);
    if (gateway)
        mnl_attr_put_u32(q.h, RTA_GATEWAY, htonl(gateway));
    return request_run(&q, "adding the default route", err);
}

int net_lo_up(struct cella_error *err)
{
    return link_up(1, "bringing lo up", err);
}

static int oper_state(const struct nlmsghdr *h, void *data)
{
    const struct nlattr *a;

    mnl_attr_for_each(a, h, sizeof(struct ifinfomsg)) if (mnl_attr_get_type(a) == IFLA_OPERSTATE) *
        (unsigned *)data = mnl_attr_get_u8(a);
    return MNL_CB_OK;
}

/* -errno, or the operational state. */
static int link_state(unsigned index)
{
    struct mnl_socket *nl = route_here();
    struct request q;
    struct ifinfomsg *head = request_init(&q, RTM_GETLINK, 0, sizeof(*head));
    unsigned state = 0;
    char buf[8192];
    long n;
    int r = 0;

    if (!nl)
        return -errno;
    q.h->nlmsg_flags = NLM_F_REQUEST;
    head->ifi_index = (int)index;
    n = mnl_socket_sendto(nl, q.h, q.h->nlmsg_len);
    if (n >= 0)
        n = mnl_socket_recvfrom(nl, buf, sizeof(buf));
    if (n < 0 || mnl_cb_run(buf, (size_t)n, 1, mnl_socket_get_portid(nl), oper_state, &state) < 0)
        r = -errno;
    return r < 0 ? r : (int)state;
}

/* A veth end that was opened before its peer has no queue until the kernel's link watch has run, and until then
   drops what it is given: the first answer to a fast cell would be lost. */
int net_wait_up(const char *name, struct cella_error *err)
{
    uint64_t deadline = now_ns() + WAIT_UP_NS;
    unsigned index = if_nametoindex(name);
    int state;

    while ((state = link_state(index)) != IF_OPER_UP) {
        if (state < 0)
            return fail(err, state, "reading the state of the link %s: %s", name, strerror(-state));
        if (now_ns() > deadline)
            return fail(err, -ETIMEDOUT, "the link %s did not come up within 2 s", name);
        usleep(200);
    }
    return 0;
}

int net_all_local(struct cella_error *err)
{
    return add_default(RTN_LOCAL, 1, 0, err);
}

int net_configure(const struct link_end *end, uint32_t gateway, struct cella_error *err)
{
    unsigned index = if_nametoindex(end->name);
    int r;

    if (!index)
        return fail(err, -errno, "the link %s is not there: %s", end->name, strerror(errno));
    r = add_address(index, end->addr, err);
    if (r == 0)
        r = add_neighbour(index, end->peer, end->peer_mac, err);
    if (r == 0)
        r = link_up(index, "bringing the link up", err);
    if (r == 0 && gateway)
        r = add_default(RTN_UNICAST, index, gateway, err);
    return r;
}

static int host_addr(const struct nlmsghdr *h, void *data)
{
    struct host_addrs *list = data;
    const struct ifaddrmsg *head = mnl_nlmsg_get_payload(h);
    const struct nlattr *a;

    if (h->nlmsg_type != RTM_NEWADDR || head->ifa_family != AF_INET)
        return MNL_CB_OK;
    mnl_attr_for_each(a, h, sizeof(*head))
    {
        if (mnl_attr_get_type(a) != IFA_LOCAL || mnl_attr_get_payload_len(a) != 4)
            continue;
        if (list->n == HOST_ADDRS_MAX) {
            errno = E2BIG;
            return MNL_CB_ERROR;
        }
        list->addr[list->n++] = ntohl(mnl_attr_get_u32(a));
    }
    return MNL_CB_OK;
}

int net_host_addrs(struct host_addrs *ret, struct cella_error *err)
{
    struct mnl_socket *nl = route_here();
    struct request q;
    struct rtgenmsg *head = request_init(&q, RTM_GETADDR, NLM_F_DUMP, sizeof(*head));
    char buf[16384];
    long n;
    int r = 1;

    if (!nl)
        return fail(err, -errno, "no route netlink socket: %s", strerror(errno));
    q.h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    head->rtgen_family = AF_INET;
    ret->n = 0;
    n = mnl_socket_sendto(nl, q.h, q.h->nlmsg_len);
    while (n >= 0 && r > 0) {
        n = mnl_socket_recvfrom(nl, buf, sizeof(buf));
        if (n > 0)
            r = mnl_cb_run(buf, (size_t)n, 1, mnl_socket_get_portid(nl), host_addr, ret);
    }
    if (n < 0 || r < 0)
        r = fail(err, -errno, "reading the host's own addresses: %s", strerror(errno));
    return r;
}
