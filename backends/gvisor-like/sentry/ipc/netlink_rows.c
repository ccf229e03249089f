/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * netlink_rows - what is answered to a request of NETLINK_ROUTE: the rows of device.c as messages. Everything there can be read,
 * and every change is refused.
 * Invariants: bytes of a request are read by in_request() and find_attribute() alone, which know where it ends. No row of a
 * table makes a message longer than ROW_MAX.
 * Threads: the kernel lock.
 */
#include <linux/capability.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/in_route.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>

#include "device.h"
#include "netlink.h"

#define REPLY_MAX 4096u /* a datagram: whoever reads has room for a page */
#define ROW_MAX 1024u
#define FOREVER 0xffffffffu

struct reply { /* one datagram of rows */
    const struct request *request;
    uint32_t length, row; /* row: where the last message begins */
    uint8_t bytes[REPLY_MAX];
};

/* ---- answers ---- */

static bool flush(struct reply *reply)
{
    uint32_t length = reply->length;

    reply->length = 0;
    return !length || netlink_queue(reply->request->socket, reply->bytes, length);
}

static void *add(struct reply *reply, size_t size)
{
    uint8_t *at = reply->bytes + reply->length;

    if (reply->length + NLMSG_ALIGN(size) > REPLY_MAX)
        kpanic("netlink: a row of %zu bytes at %u", size, (unsigned)reply->length);
    memset(at, 0, NLMSG_ALIGN(size));
    reply->length += (uint32_t)NLMSG_ALIGN(size);
    return at;
}

/* A message of this type, with room for its header: false when what came before it is lost. */
static bool row_begin(struct reply *reply, uint16_t type, uint16_t flags, size_t size, void **ret)
{
    const struct request *request = reply->request;
    struct nlmsghdr *head;

    if (reply->length + ROW_MAX > REPLY_MAX && !flush(reply))
        return false;
    reply->row = reply->length;
    head = add(reply, sizeof(*head));
    *head = (struct nlmsghdr){.nlmsg_type = type,
                              .nlmsg_flags = flags,
                              .nlmsg_seq = request->head->nlmsg_seq,
                              .nlmsg_pid = request->socket->name.nl.nl_pid};
    *ret = add(reply, size);
    return true;
}

static void attribute(struct reply *reply, uint16_t type, const void *bytes, size_t size)
{
    struct rtattr *attr = add(reply, RTA_LENGTH(size));

    attr->rta_type = type;
    attr->rta_len = (uint16_t)RTA_LENGTH(size);
    if (bytes)
        memcpy(RTA_DATA(attr), bytes, size);
}

static void attribute_u32(struct reply *reply, uint16_t type, uint32_t value)
{
    attribute(reply, type, &value, sizeof(value));
}

static void attribute_text(struct reply *reply, uint16_t type, const char *text)
{
    attribute(reply, type, text, strlen(text) + 1);
}

static int row_end(struct reply *reply)
{
    struct nlmsghdr *head = (void *)(reply->bytes + reply->row);

    head->nlmsg_len = reply->length - reply->row;
    return 0;
}

/* ---- requests ---- */

/* The header of a kind of request: what is missing of it is 0. */
static void in_request(const struct request *request, void *head, size_t size)
{
    memset(head, 0, size);
    memcpy(head, request->body, request->size < size ? request->size : size);
}

/* Of the attributes after a header of `skip` bytes the last of this type: its bytes, or NULL. */
static const uint8_t *find_attribute(const struct request *request, size_t skip, uint16_t type,
                                     size_t *ret_size)
{
    size_t at = NLMSG_ALIGN(skip);
    const uint8_t *found = NULL;
    struct rtattr attr;

    while (at + sizeof(attr) <= request->size) {
        memcpy(&attr, request->body + at, sizeof(attr));
        if (attr.rta_len < sizeof(attr) || attr.rta_len > request->size - at)
            break;
        if ((attr.rta_type & NLA_TYPE_MASK) == type) {
            found = request->body + at + sizeof(attr);
            *ret_size = attr.rta_len - sizeof(attr);
        }
        at += RTA_ALIGN(attr.rta_len);
    }
    return found;
}

/* ---- devices ---- */

static void link_numbers(struct reply *reply, const struct device *device)
{
    const struct {
        uint16_t type;
        uint32_t value;
    } numbers[] = {
        {IFLA_TXQLEN, device->queue},
        {IFLA_MTU, device->mtu},
        {IFLA_MIN_MTU, 0},
        {IFLA_MAX_MTU, 0},
        {IFLA_GROUP, 0},
        {IFLA_PROMISCUITY, 0},
        {IFLA_NUM_TX_QUEUES, 1},
        {IFLA_NUM_RX_QUEUES, 1},
        {IFLA_GSO_MAX_SEGS, 65535},
        {IFLA_GSO_MAX_SIZE, 65536},
        {IFLA_CARRIER_CHANGES, 0},
    };
    const struct {
        uint16_t type;
        uint8_t value;
    } small[] = {{IFLA_OPERSTATE, 0}, {IFLA_LINKMODE, 0}, {IFLA_CARRIER, 1}, {IFLA_PROTO_DOWN, 0}};
    unsigned i;

    for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        attribute_u32(reply, numbers[i].type, numbers[i].value);
    for (i = 0; i < sizeof(small) / sizeof(small[0]); i++)
        attribute(reply, small[i].type, &small[i].value, 1);
}

static int link_row(struct reply *reply, const struct device *device, uint16_t flags)
{
    struct ifinfomsg *head;

    if (!row_begin(reply, RTM_NEWLINK, flags, sizeof(*head), (void **)&head))
        return -ENOBUFS;
    head->ifi_type = device->type;
    head->ifi_index = device->index;
    head->ifi_flags = device->flags;
    attribute_text(reply, IFLA_IFNAME, device->name);
    link_numbers(reply, device);
    attribute(reply, IFLA_ADDRESS, device->address, sizeof(device->address));
    attribute(reply, IFLA_BROADCAST, device->broadcast, sizeof(device->broadcast));
    attribute(reply, IFLA_STATS64, NULL, sizeof(struct rtnl_link_stats64));
    attribute(reply, IFLA_STATS, NULL, sizeof(struct rtnl_link_stats));
    attribute_text(reply, IFLA_QDISC, device->qdisc);
    attribute(reply, IFLA_MAP, NULL, sizeof(struct rtnl_link_ifmap));
    return row_end(reply);
}

static int link_dump(struct reply *reply, uint8_t family)
{
    unsigned i;
    int r = 0;

    for (i = 0; i < n_devices && r == 0 && family != AF_BRIDGE; i++)
        r = link_row(reply, &devices[i], NLM_F_MULTI);
    return r;
}

static int link_get(struct reply *reply)
{
    const struct device *device = NULL;
    char name[IFNAMSIZ] = "";
    struct ifinfomsg head;
    const uint8_t *bytes;
    size_t size = 0;

    in_request(reply->request, &head, sizeof(head));
    bytes = find_attribute(reply->request, sizeof(head), IFLA_IFNAME, &size);
    if (!bytes)
        bytes = find_attribute(reply->request, sizeof(head), IFLA_ALT_IFNAME, &size);
    if (bytes)
        memcpy(name, bytes, size < sizeof(name) ? size : sizeof(name) - 1);
    if (head.ifi_index > 0)
        device = device_by_index(head.ifi_index);
    else if (bytes)
        device = device_by_name(name);
    else
        return -EINVAL;
    return device ? link_row(reply, device, 0) : -ENODEV;
}

/* ---- addresses ---- */

static int address_row(struct reply *reply, const struct device_address *own, uint16_t flags)
{
    const struct ifa_cacheinfo cache = {.ifa_prefered = FOREVER, .ifa_valid = FOREVER};
    size_t size = address_size(own->family);
    struct ifaddrmsg *head;

    if (!row_begin(reply, RTM_NEWADDR, flags, sizeof(*head), (void **)&head))
        return -ENOBUFS;
    *head = (struct ifaddrmsg){.ifa_family = own->family,
                               .ifa_prefixlen = own->prefix,
                               .ifa_flags = own->flags,
                               .ifa_scope = own->scope,
                               .ifa_index = (uint32_t)own->device};
    attribute(reply, IFA_ADDRESS, own->bytes, size);
    if (own->family == AF_INET) {
        attribute(reply, IFA_LOCAL, own->bytes, size);
        attribute_text(reply, IFA_LABEL, device_by_index(own->device)->name);
    }
    attribute_u32(reply, IFA_FLAGS, own->flags);
    attribute(reply, IFA_CACHEINFO, &cache, sizeof(cache));
    return row_end(reply);
}

static int address_dump(struct reply *reply, uint8_t family)
{
    struct ifaddrmsg head;
    unsigned i;
    int r = 0;

    in_request(reply->request, &head, sizeof(head));
    if (reply->request->strict && head.ifa_index && !device_by_index((int)head.ifa_index))
        return -ENODEV;
    for (i = 0; i < n_device_addresses && r == 0; i++) {
        const struct device_address *own = &device_addresses[i];
        if (family != AF_UNSPEC && own->family != family)
            continue;
        if (reply->request->strict && head.ifa_index && own->device != (int)head.ifa_index)
            continue;
        r = address_row(reply, own, NLM_F_MULTI);
    }
    return r;
}

static int address_get(struct reply *reply)
{
    struct ifaddrmsg head;
    const uint8_t *bytes;
    size_t size = 0;
    unsigned i;

    in_request(reply->request, &head, sizeof(head));
    if (head.ifa_family != AF_INET6)
        return -EOPNOTSUPP;
    bytes = find_attribute(reply->request, sizeof(head), IFA_ADDRESS, &size);
    if (!bytes)
        bytes = find_attribute(reply->request, sizeof(head), IFA_LOCAL, &size);
    if (!bytes || size < address_size(AF_INET6))
        return -EINVAL;
    for (i = 0; i < n_device_addresses; i++)
        if (device_addresses[i].family == AF_INET6 &&
            memcmp(device_addresses[i].bytes, bytes, address_size(AF_INET6)) == 0)
            return address_row(reply, &device_addresses[i], 0);
    return -EADDRNOTAVAIL;
}

/* ---- routes ---- */

static bool is_set(const uint8_t bytes[16])
{
    static const uint8_t none[16];

    return memcmp(bytes, none, sizeof(none)) != 0;
}

/* asked: the one address that a program asked the way to, NULL: the row as it is. */
static int route_row(struct reply *reply, const struct device_route *route, const uint8_t *asked)
{
    const struct rta_cacheinfo cache = {0};
    size_t size = address_size(route->family);
    bool four = route->family == AF_INET;
    uint8_t table = asked && four ? RT_TABLE_MAIN : route->table, medium = 0;
    struct rtmsg *head;

    if (!row_begin(reply, RTM_NEWROUTE, asked ? 0 : NLM_F_MULTI, sizeof(*head), (void **)&head))
        return -ENOBUFS;
    *head = (struct rtmsg){
        .rtm_family = route->family,
        .rtm_dst_len = asked ? (uint8_t)(size * 8) : route->prefix,
        .rtm_table = table,
        .rtm_protocol = asked && four ? RTPROT_UNSPEC : route->protocol,
        .rtm_scope = asked ? RT_SCOPE_UNIVERSE : route->scope,
        .rtm_type = route->type,
        .rtm_flags = asked ? (four ? RTM_F_CLONED | RTCF_LOCAL : 0) : 0,
    };
    attribute_u32(reply, RTA_TABLE, table);
    attribute(reply, RTA_DST, asked ? asked : route->to, size);
    if (is_set(route->from))
        attribute(reply, RTA_PREFSRC, route->from, size);
    else if (asked)
        attribute(reply, RTA_PREFSRC, asked, size);
    attribute_u32(reply, RTA_OIF, (uint32_t)route->device);
    if (asked && four)
        attribute_u32(reply, RTA_UID, current->cred->euid);
    if (!four)
        attribute_u32(reply, RTA_PRIORITY, route->metric);
    if (asked || !four)
        attribute(reply, RTA_CACHEINFO, &cache, sizeof(cache));
    if (!four)
        attribute(reply, RTA_PREF, &medium, sizeof(medium));
    return row_end(reply);
}

static int route_dump(struct reply *reply, uint8_t family)
{
    struct rtmsg head;
    unsigned i;
    int r = 0;

    in_request(reply->request, &head, sizeof(head));
    for (i = 0; i < n_device_routes && r == 0; i++) {
        const struct device_route *route = &device_routes[i];
        if (family != AF_UNSPEC && route->family != family)
            continue;
        if (reply->request->strict && head.rtm_table && head.rtm_table != route->table)
            continue;
        r = route_row(reply, route, NULL);
    }
    return r;
}

static int route_get(struct reply *reply)
{
    const struct device_route *best = NULL;
    uint8_t to[16] = {0};
    struct rtmsg head;
    const uint8_t *bytes;
    size_t size = 0, whole;
    unsigned i;

    in_request(reply->request, &head, sizeof(head));
    whole = address_size(head.rtm_family);
    if (!whole)
        return -EOPNOTSUPP;
    bytes = find_attribute(reply->request, sizeof(head), RTA_DST, &size);
    if (bytes && size < whole)
        return -EINVAL;
    if (bytes)
        memcpy(to, bytes, whole);
    for (i = 0; i < n_device_routes; i++)
        if (device_routes[i].family == head.rtm_family &&
            address_in(to, device_routes[i].to, device_routes[i].prefix) &&
            (!best || device_routes[i].prefix > best->prefix))
            best = &device_routes[i];
    return best ? route_row(reply, best, to) : -ENETUNREACH;
}

static int rule_dump(struct reply *reply, uint8_t family)
{
    struct fib_rule_hdr *head;
    unsigned i;

    for (i = 0; i < n_device_rules; i++) {
        const struct device_rule *rule = &device_rules[i];
        if (family != AF_UNSPEC && rule->family != family)
            continue;
        if (!row_begin(reply, RTM_NEWRULE, NLM_F_MULTI, sizeof(*head), (void **)&head))
            return -ENOBUFS;
        head->family = rule->family;
        head->table = rule->table;
        head->action = FR_ACT_TO_TBL;
        attribute_u32(reply, FRA_TABLE, rule->table);
        attribute_u32(reply, FRA_SUPPRESS_PREFIXLEN, FOREVER);
        attribute(reply, FRA_PROTOCOL, &(uint8_t){RTPROT_KERNEL}, 1);
        if (rule->priority)
            attribute_u32(reply, FRA_PRIORITY, rule->priority);
        row_end(reply);
    }
    return 0;
}

static int no_rows(struct reply *reply, uint8_t family)
{
    (void)reply;
    (void)family;
    return 0;
}

/* ---- a request ---- */

struct getter {
    uint16_t type;
    uint16_t head; /* what a request for one row has at least; of a dump what is missing is 0 */
    int (*dump)(struct reply *reply, uint8_t family);
    int (*get)(struct reply *reply);
};
static const struct getter getters[6]; /* ended by a type of 0 */

static int dump(const struct getter *getter, struct reply *reply)
{
    int r = getter->dump(reply, reply->request->body[0]), *done;

    if (r == -ENOBUFS || !flush(reply) ||
        !row_begin(reply, NLMSG_DONE, NLM_F_MULTI, sizeof(*done), (void **)&done))
        return -ENOBUFS;
    *done = r;
    row_end(reply);
    return flush(reply) ? -EINTR : -ENOBUFS;
}

int netlink_answer(const struct request *request)
{
    struct reply reply = {.request = request};
    uint16_t type = request->head->nlmsg_type;
    const struct getter *getter = getters;
    int r;

    if (type > RTM_MAX)
        return -EOPNOTSUPP;
    if (request->size < sizeof(struct rtgenmsg))
        return 0;
    if ((type & 3) != 2) /* each kind has NEW, DEL, GET and SET, in this order */
        return capable(CAP_NET_ADMIN) ? -EOPNOTSUPP : -EPERM;
    while (getter->type && getter->type != type)
        getter++;
    if (!getter->type)
        return -EOPNOTSUPP;
    if (request->head->nlmsg_flags & NLM_F_DUMP)
        return dump(getter, &reply);
    if (!getter->get)
        return -EOPNOTSUPP;
    if (request->size < getter->head)
        return -EINVAL;
    r = getter->get(&reply);
    return r == 0 && !flush(&reply) ? -ENOBUFS : r;
}

static const struct getter getters[6] = {
    {RTM_GETLINK, sizeof(struct ifinfomsg), link_dump, link_get},
    {RTM_GETADDR, sizeof(struct ifaddrmsg), address_dump, address_get},
    {RTM_GETROUTE, sizeof(struct rtmsg), route_dump, route_get},
    {RTM_GETRULE, sizeof(struct fib_rule_hdr), rule_dump, NULL},
    {RTM_GETNEIGH, sizeof(struct ndmsg), no_rows, NULL},
    {0, 0, NULL, NULL},
};
