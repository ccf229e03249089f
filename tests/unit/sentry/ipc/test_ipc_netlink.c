/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* AF_NETLINK and the devices: in a network namespace of its own, with lo up, on the host's kernel, and on ours. */
#include <errno.h>
#include <linux/capability.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "world.h"

static uint8_t bytes[1 << 16];

/* On the host: lo alone, up, as a cell has it, and then no capability, as a cell's command has none. */
static void alone(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    struct ifreq ifr = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd;

    if (ours) {
        if (seteuid(65534))
            note("seteuid");
        return;
    }
    if (unshare(CLONE_NEWNET))
        note("unshare %d", errno);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (ioctl(fd, SIOCSIFFLAGS, &ifr))
        note("up %d", errno);
    close(fd);
    if (syscall(SYS_capset, &head, none))
        note("capset %d", errno);
}

static int route_socket(void)
{
    return (int)call(SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
}

struct asked {
    struct nlmsghdr head;
    uint8_t body[64];
};

static int64_t ask(int fd, uint16_t type, uint16_t flags, const void *body, size_t size)
{
    struct asked asked = {.head = {.nlmsg_len = (uint32_t)NLMSG_LENGTH(size),
                                   .nlmsg_type = type,
                                   .nlmsg_flags = flags,
                                   .nlmsg_seq = 7}};

    memcpy(asked.body, body, size);
    return call(SYS_sendto, fd, &asked, asked.head.nlmsg_len, 0, NULL, 0);
}

/* The attributes that are compared, in this order: hosts differ in what else they tell. */
static void note_attributes(const struct nlmsghdr *m, size_t skip, const uint16_t *types)
{
    const uint8_t *body = NLMSG_DATA(m);
    size_t size = NLMSG_PAYLOAD(m, 0), at, i;
    char text[200];
    int n;

    for (; *types; types++)
        for (at = NLMSG_ALIGN(skip); at + 4 <= size;
             at += RTA_ALIGN(((struct rtattr *)(body + at))->rta_len)) {
            const struct rtattr *a = (const void *)(body + at);
            if (a->rta_len < 4)
                break;
            if (a->rta_type != *types)
                continue;
            for (n = 0, i = 4; i < a->rta_len && n < 100; i++)
                n += snprintf(text + n, 8, "%02x", body[at + i]);
            text[n] = 0;
            note("  %u: %s", *types, text);
        }
}

static void note_message(const struct nlmsghdr *m)
{
    static const uint16_t link[] = {IFLA_IFNAME,    IFLA_MTU, IFLA_TXQLEN, IFLA_ADDRESS, IFLA_QDISC,
                                    IFLA_OPERSTATE, 0};
    static const uint16_t address[] = {IFA_ADDRESS, IFA_LOCAL, IFA_LABEL, IFA_FLAGS, 0};
    static const uint16_t route[] = {RTA_TABLE, RTA_DST, RTA_PREFSRC, RTA_OIF, 0};
    static const uint16_t rule[] = {FRA_TABLE, FRA_PRIORITY, 0};
    const uint8_t *d = NLMSG_DATA(m);

    note("message %u flags %x seq %u mine %d", m->nlmsg_type,
         (unsigned)(m->nlmsg_flags & ~NLM_F_CAPPED), m->nlmsg_seq,
         m->nlmsg_pid == (uint32_t)getpid() || ours);
    if (m->nlmsg_type == NLMSG_ERROR)
        note("  error %d about %u, %u", *(const int *)d,
             ((const struct nlmsgerr *)d)->msg.nlmsg_type, m->nlmsg_len);
    if (m->nlmsg_type == RTM_NEWLINK)
        note("  link %u %d %x", ((const struct ifinfomsg *)d)->ifi_type,
             ((const struct ifinfomsg *)d)->ifi_index, ((const struct ifinfomsg *)d)->ifi_flags);
    if (m->nlmsg_type == RTM_NEWADDR || m->nlmsg_type == RTM_NEWROUTE)
        note("  %02x%02x%02x%02x %02x%02x%02x%02x", d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]);
    if (m->nlmsg_type == RTM_NEWLINK)
        note_attributes(m, sizeof(struct ifinfomsg), link);
    if (m->nlmsg_type == RTM_NEWADDR)
        note_attributes(m, sizeof(struct ifaddrmsg), address);
    if (m->nlmsg_type == RTM_NEWROUTE)
        note_attributes(m, sizeof(struct rtmsg), route);
    if (m->nlmsg_type == RTM_NEWRULE)
        note_attributes(m, sizeof(struct fib_rule_hdr), rule);
}

/* All that is there to be read. */
static void answers(int fd)
{
    struct sockaddr_nl from = {0};
    int length = sizeof(from);
    struct nlmsghdr *m;
    int64_t n;

    while ((n = call(SYS_recvfrom, fd, bytes, sizeof(bytes), MSG_DONTWAIT, &from, &length)) > 0) {
        if (from.nl_pid || from.nl_family != AF_NETLINK || length != sizeof(from))
            note("from %u", from.nl_pid);
        for (m = (void *)bytes; NLMSG_OK(m, n); m = NLMSG_NEXT(m, n))
            note_message(m);
    }
    if (n != -EAGAIN)
        note("recv %ld", (long)n);
}

static void get(int fd, uint16_t type, uint16_t flags, const void *body, size_t size)
{
    note("ask %u %x %zu: %d", type, flags, size,
         ask(fd, type, flags, body, size) == (int64_t)NLMSG_LENGTH(size));
    answers(fd);
}

static void dumps(void)
{
    const uint16_t flags = NLM_F_REQUEST | NLM_F_DUMP;
    const struct rtgenmsg any = {AF_UNSPEC}, four = {AF_INET}, six = {AF_INET6};
    const struct rtmsg route = {.rtm_family = AF_INET};
    int fd;

    alone();
    fd = route_socket();
    get(fd, RTM_GETLINK, flags, &any, 1);
    get(fd, RTM_GETADDR, flags, &any, 1);
    get(fd, RTM_GETADDR, flags, &four, 1);
    get(fd, RTM_GETADDR, flags, &six, 1);
    get(fd, RTM_GETROUTE, flags, &route, sizeof(route));
    get(fd, RTM_GETRULE, flags, &four, 1);
    get(fd, RTM_GETNEIGH, flags, &four, 1);
    get(fd, RTM_MAX + 5, flags, &any, 1);
    get(fd, RTM_GETLINK, flags | NLM_F_ACK, &any, 0);
}

struct named {
    struct ifinfomsg head;
    struct rtattr attr;
    char name[16];
};

static void singles(void)
{
    struct named named = {.attr = {RTA_LENGTH(3), IFLA_IFNAME}, .name = "lo"};
    struct ifinfomsg link = {.ifi_index = 1};
    struct {
        struct rtmsg head;
        struct rtattr attr;
        uint8_t to[4];
    } way = {{.rtm_family = AF_INET, .rtm_dst_len = 32}, {RTA_LENGTH(4), RTA_DST}, {127, 9, 8, 7}};
    int fd;

    alone();
    fd = route_socket();
    get(fd, RTM_GETLINK, NLM_F_REQUEST, &link, sizeof(link));
    get(fd, RTM_GETLINK, NLM_F_REQUEST | NLM_F_ACK, &named, sizeof(named));
    link.ifi_index = 77;
    get(fd, RTM_GETLINK, NLM_F_REQUEST, &link, sizeof(link));
    link.ifi_index = 0;
    get(fd, RTM_GETLINK, NLM_F_REQUEST, &link, sizeof(link));
    get(fd, RTM_GETLINK, NLM_F_REQUEST, &link, 4);
    strcpy(named.name, "xx");
    get(fd, RTM_GETLINK, NLM_F_REQUEST, &named, sizeof(named));
    get(fd, RTM_GETROUTE, NLM_F_REQUEST, &way, sizeof(way));
    way.to[0] = 10;
    get(fd, RTM_GETROUTE, NLM_F_REQUEST, &way, sizeof(way));
}

static void changes(void)
{
    struct ifinfomsg link = {.ifi_index = 1};
    struct ifaddrmsg address = {.ifa_family = AF_INET, .ifa_prefixlen = 8, .ifa_index = 1};
    int fd;

    alone();
    fd = route_socket();
    get(fd, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, &link, sizeof(link));
    get(fd, RTM_SETLINK, NLM_F_REQUEST, &link, sizeof(link));
    get(fd, RTM_DELLINK, NLM_F_REQUEST, &link, sizeof(link));
    get(fd, RTM_NEWADDR, NLM_F_REQUEST, &address, sizeof(address));
    get(fd, RTM_DELROUTE, NLM_F_REQUEST, &link, sizeof(link));
    get(fd, RTM_NEWLINK, 0, &link, sizeof(link));
    get(fd, NLMSG_NOOP, NLM_F_REQUEST | NLM_F_ACK, &link, sizeof(link));
}

/* Several in one, and lengths that are not true. */
static void lengths(void)
{
    struct nlmsghdr h[4] = {{16, NLMSG_NOOP, NLM_F_REQUEST | NLM_F_ACK, 1, 0},
                            {16, NLMSG_NOOP, NLM_F_REQUEST | NLM_F_ACK, 2, 0},
                            {200, NLMSG_NOOP, NLM_F_REQUEST | NLM_F_ACK, 3, 0},
                            {16, NLMSG_NOOP, NLM_F_REQUEST | NLM_F_ACK, 4, 0}};
    struct named named = {.attr = {0xfff0, IFLA_IFNAME}, .name = "lo"};
    unsigned i;
    int fd;

    alone();
    fd = route_socket();
    for (i = 0; i < 3; i++) {
        h[2].nlmsg_len = i == 0 ? 200 : i == 1 ? 15 : 0xffffffff;
        note("send %ld", (long)call(SYS_sendto, fd, h, sizeof(h), 0, NULL, 0));
        answers(fd);
    }
    note("short %ld", (long)call(SYS_sendto, fd, h, 7, 0, NULL, 0));
    answers(fd);
    get(fd, RTM_GETLINK, NLM_F_REQUEST, &named, sizeof(named));
    named.attr.rta_len = 2;
    get(fd, RTM_GETLINK, NLM_F_REQUEST, &named, sizeof(named));
}

static void names(void)
{
    struct sockaddr_nl a = {.nl_family = AF_NETLINK, .nl_pid = 4711}, got = {0};
    const struct rtgenmsg any = {AF_UNSPEC};
    int length = sizeof(got), fd, other, group = 1;
    struct pollfd p;

    alone();
    fd = route_socket();
    other = route_socket();
    note("type %ld", (long)call(SYS_socket, AF_NETLINK, SOCK_STREAM, 0));
    note("protocol %ld", (long)call(SYS_socket, AF_NETLINK, SOCK_RAW, 31));
    note("pair %ld", (long)call(SYS_socketpair, AF_NETLINK, SOCK_RAW, 0, bytes));
    note("name %ld %d %u", (long)call(SYS_getsockname, fd, &got, &length), length, got.nl_pid);
    note("peer %ld %d %u", (long)call(SYS_getpeername, fd, &got, &length), length, got.nl_pid);
    note("bind short %ld", (long)call(SYS_bind, fd, &a, 8));
    note("bind %ld", (long)call(SYS_bind, fd, &a, sizeof(a)));
    note("bind taken %ld", (long)call(SYS_bind, other, &a, sizeof(a)));
    a.nl_pid = 4712;
    note("bind again %ld", (long)call(SYS_bind, fd, &a, sizeof(a)));
    note("join %ld",
         (long)call(SYS_setsockopt, fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, 4));
    note("name %ld %u %x", (long)call(SYS_getsockname, fd, &got, &length), got.nl_pid,
         got.nl_groups);
    a.nl_pid = 4711;
    note("to another %ld", (long)call(SYS_sendto, other, &a, sizeof(a), 0, &a, sizeof(a)));
    note("connect another %ld", (long)call(SYS_connect, other, &a, sizeof(a)));
    a.nl_pid = 0;
    note("connect %ld", (long)call(SYS_connect, other, &a, sizeof(a)));
    note("empty %ld", (long)call(SYS_sendto, other, bytes, 0, 0, NULL, 0));
    note("shutdown %ld listen %ld accept %ld", (long)call(SYS_shutdown, fd, 2),
         (long)call(SYS_listen, fd, 1), (long)call(SYS_accept, fd, NULL, NULL));
    p = (struct pollfd){.fd = other, .events = POLLIN | POLLOUT};
    note("poll %ld %x", (long)call(SYS_poll, &p, 1, 0), (unsigned)p.revents);
    ask(other, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, &any, 1);
    note("poll %ld %x", (long)call(SYS_poll, &p, 1, 0), (unsigned)p.revents);
    note("peek %d", call(SYS_recvfrom, other, bytes, 0, MSG_PEEK | MSG_TRUNC, NULL, NULL) > 32);
    note("trunc %ld", (long)call(SYS_recvfrom, other, bytes, 16, 0, NULL, NULL));
}

/* What nobody reads is bounded, and who loses it hears so. */
static void overrun(void)
{
    struct nlmsghdr h = {16, NLMSG_NOOP, NLM_F_REQUEST | NLM_F_ACK, 1, 0};
    int fd, i, size = 2304;

    alone();
    fd = route_socket();
    call(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    for (i = 0; i < 100; i++)
        call(SYS_sendto, fd, &h, sizeof(h), 0, NULL, 0);
    note("recv %ld", (long)call(SYS_recvfrom, fd, bytes, sizeof(bytes), MSG_DONTWAIT, NULL, NULL));
    for (i = 0; call(SYS_recvfrom, fd, bytes, sizeof(bytes), MSG_DONTWAIT, NULL, NULL) > 0; i++)
        ;
    note("some %d", i > 0 && i < 50);
}

static void about(int fd, const char *name, unsigned long request)
{
    struct ifreq ifr = {0};
    unsigned i;
    char text[80];

    strcpy(ifr.ifr_name, name);
    note("%lx %s %ld", request, name, (long)call(SYS_ioctl, fd, request, &ifr));
    for (i = 0; i < 16; i++)
        sprintf(text + 2 * i, "%02x", ((uint8_t *)&ifr.ifr_ifru)[i]);
    note("  %s", text);
}

static void ioctls(void)
{
    static const unsigned long requests[] = {
        SIOCGIFFLAGS, SIOCGIFADDR,  SIOCGIFNETMASK, SIOCGIFBRDADDR, SIOCGIFDSTADDR,
        SIOCGIFMTU,   SIOCGIFINDEX, SIOCGIFTXQLEN,  SIOCGIFMETRIC,  SIOCGIFHWADDR,
        SIOCSIFMTU,   SIOCSIFADDR,  SIOCSIFFLAGS};
    struct ifreq ifr[2] = {0};
    struct ifconf conf = {.ifc_len = sizeof(ifr), .ifc_req = ifr};
    int fds[3], k;
    unsigned i;

    alone();
    fds[0] = (int)call(SYS_socket, AF_INET, SOCK_DGRAM, 0);
    fds[1] = (int)call(SYS_socket, AF_UNIX, SOCK_DGRAM, 0);
    fds[2] = route_socket();
    for (k = 0; k < 3; k++)
        for (i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
            about(fds[k], "lo", requests[i]);
            about(fds[k], "none", requests[i]);
        }
    note("conf %ld %d %s", (long)call(SYS_ioctl, fds[0], SIOCGIFCONF, &conf), conf.ifc_len,
         ifr[0].ifr_name);
    conf.ifc_len = 39;
    note("conf %ld %d", (long)call(SYS_ioctl, fds[0], SIOCGIFCONF, &conf), conf.ifc_len);
    ifr[0].ifr_ifindex = 1;
    note("name %ld %s", (long)call(SYS_ioctl, fds[1], SIOCGIFNAME, ifr), ifr[0].ifr_name);
    ifr[0].ifr_ifindex = 9;
    note("name %ld", (long)call(SYS_ioctl, fds[1], SIOCGIFNAME, ifr));
    for (k = 0; k < 3; k++)
        note("odd %ld", (long)call(SYS_ioctl, fds[k], 0x89ee, ifr));
}

#define BOTH(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        both(name);                                                                                \
    }
BOTH(dumps)
BOTH(singles)
BOTH(changes)
BOTH(lengths)
BOTH(names)
BOTH(overrun)
BOTH(ioctls)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dumps),   cmocka_unit_test(test_singles),
        cmocka_unit_test(test_changes), cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_names),   cmocka_unit_test(test_overrun),
        cmocka_unit_test(test_ioctls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
