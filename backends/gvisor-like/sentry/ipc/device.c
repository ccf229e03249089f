/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * device - the network devices of a cell, and what ioctl() on a socket says of them. There is lo alone, with the addresses and
 * routes that Linux gives it when it is set up: the tables at the end. Nothing of them can be changed.
 * Threads: the kernel lock.
 */
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <string.h>

#include "device.h"
#include "socket.h"

const struct device *device_by_index(int index)
{
    unsigned i;

    for (i = 0; i < n_devices; i++)
        if (devices[i].index == index)
            return &devices[i];
    return NULL;
}

const struct device *device_by_name(const char *name)
{
    unsigned i;

    for (i = 0; i < n_devices; i++)
        if (strcmp(devices[i].name, name) == 0)
            return &devices[i];
    return NULL;
}

size_t address_size(int family)
{
    return family == AF_INET ? 4 : family == AF_INET6 ? 16 : 0;
}

int address_in(const uint8_t *address, const uint8_t *net, unsigned prefix)
{
    unsigned whole = prefix / 8, rest = prefix % 8;

    if (memcmp(address, net, whole) != 0)
        return 0;
    return !rest || (address[whole] ^ net[whole]) >> (8 - rest) == 0;
}

/* ---- ioctl() ---- */

static const struct device_address *first_address(const struct device *device)
{
    unsigned i;

    for (i = 0; i < n_device_addresses; i++)
        if (device_addresses[i].device == device->index && device_addresses[i].family == AF_INET)
            return &device_addresses[i];
    return NULL;
}

static void put_address(struct sockaddr *to, uint32_t address)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = address};

    memcpy(to, &in, sizeof(in));
}

/* What is asked with an IPv4 socket alone. */
static int64_t of_address(uint32_t request, const struct device *device, struct ifreq *ifr)
{
    const struct device_address *own = first_address(device);
    uint32_t address;

    if (!own)
        return -EADDRNOTAVAIL;
    memcpy(&address, own->bytes, sizeof(address));
    if (request == SIOCGIFNETMASK)
        address = htonl(own->prefix ? ~0u << (32 - own->prefix) : 0);
    if (request == SIOCGIFBRDADDR)
        address = device->flags & IFF_BROADCAST
                      ? address | htonl(own->prefix < 32 ? ~0u >> own->prefix : 0)
                      : 0;
    put_address(&ifr->ifr_addr, address);
    return 0;
}

static int64_t of_device(uint32_t request, const struct device *device, struct ifreq *ifr)
{
    switch (request) {
    case SIOCGIFFLAGS: /* what the device says of its carrier is not among them */
        ifr->ifr_flags = (short)(device->flags & 0xffff);
        return 0;
    case SIOCGIFMTU:
        ifr->ifr_mtu = (int)device->mtu;
        return 0;
    case SIOCGIFMETRIC:
        ifr->ifr_metric = 0;
        return 0;
    case SIOCGIFINDEX:
        ifr->ifr_ifindex = device->index;
        return 0;
    case SIOCGIFTXQLEN:
        ifr->ifr_qlen = (int)device->queue;
        return 0;
    case SIOCGIFNAME:
        memset(ifr->ifr_name, 0, sizeof(ifr->ifr_name));
        strncpy(ifr->ifr_name, device->name, IFNAMSIZ - 1);
        return 0;
    case SIOCGIFMAP:
        memset(&ifr->ifr_map, 0, sizeof(ifr->ifr_map));
        return 0;
    case SIOCGIFHWADDR:
        memset(&ifr->ifr_hwaddr, 0, sizeof(ifr->ifr_hwaddr));
        ifr->ifr_hwaddr.sa_family = device->type;
        memcpy(ifr->ifr_hwaddr.sa_data, device->address, sizeof(device->address));
        return 0;
    default:
        return -ENOTTY;
    }
}

static int64_t list_devices(uint64_t argument)
{
    struct ifconf conf;
    unsigned i, n = 0;
    uint64_t to;

    if (copy_in(current->mm, &conf, argument, sizeof(conf)) < 0)
        return -EFAULT;
    to = (uint64_t)(uintptr_t)conf.ifc_buf;
    for (i = 0; i < n_device_addresses; i++) {
        struct ifreq ifr = {0};
        const struct device *device = device_by_index(device_addresses[i].device);
        if (!device || device_addresses[i].family != AF_INET)
            continue;
        if (to && conf.ifc_len < (int)((n + 1) * sizeof(ifr)))
            break;
        strncpy(ifr.ifr_name, device->name, IFNAMSIZ - 1);
        of_address(SIOCGIFADDR, device, &ifr);
        if (to && copy_out(current->mm, to + n * sizeof(ifr), &ifr, sizeof(ifr)) < 0)
            return -EFAULT;
        n++;
    }
    conf.ifc_len = (int)(n * sizeof(struct ifreq));
    return copy_out(current->mm, argument, &conf, sizeof(conf));
}

struct asked {
    uint16_t request;
    bool change, address; /* address: an IPv4 socket alone knows it */
};
static const struct asked asked[23];

static const struct asked *find_asked(uint32_t request)
{
    const struct asked *at = asked;

    while (at->request && at->request != request)
        at++;
    return at->request ? at : NULL;
}

static int64_t answer(const struct asked *what, struct ifreq *ifr)
{
    const struct device *device;

    ifr->ifr_name[IFNAMSIZ - 1] = 0;
    device = what->request == SIOCGIFNAME ? device_by_index(ifr->ifr_ifindex)
                                          : device_by_name(ifr->ifr_name);
    if (!device)
        return -ENODEV;
    if (what->address)
        return of_address(what->request, device, ifr);
    return of_device(what->request, device, ifr);
}

int64_t device_ioctl(const struct socket *socket, uint32_t request, uint64_t argument)
{
    const struct asked *what = find_asked(request);
    struct ifreq ifr;
    int64_t r;

    if (request == SIOCGIFCONF)
        return list_devices(argument);
    if (!what || (what->address && socket->family != AF_INET))
        return -ENOTTY;
    if (what->change)
        return -EPERM;
    if (request == SIOCETHTOOL)
        return -EOPNOTSUPP;
    if (copy_in(current->mm, &ifr, argument, sizeof(ifr)) < 0)
        return -EFAULT;
    r = answer(what, &ifr);
    return r < 0 ? r : copy_out(current->mm, argument, &ifr, sizeof(ifr));
}

/* ---- the tables ---- */

#define LO_FLAGS (IFF_UP | IFF_LOOPBACK | IFF_RUNNING)
#define LO_FOUR                                                                                    \
    {                                                                                              \
        127, 0, 0, 1                                                                               \
    }
#define LO_SIX                                                                                     \
    {                                                                                              \
        [15] = 1                                                                                   \
    }

const struct device devices[] = {
    {.index = 1,
     .name = "lo",
     .qdisc = "noqueue",
     .type = 772, /* ARPHRD_LOOPBACK */
     .flags = LO_FLAGS | 1u << 16 /* IFF_LOWER_UP */,
     .mtu = 65536,
     .queue = 1000},
};
const unsigned n_devices = sizeof(devices) / sizeof(devices[0]);

const struct device_address device_addresses[] = {
    {1, AF_INET, 8, RT_SCOPE_HOST, IFA_F_PERMANENT, LO_FOUR},
    {1, AF_INET6, 128, RT_SCOPE_HOST, IFA_F_PERMANENT, LO_SIX},
};
const unsigned n_device_addresses = sizeof(device_addresses) / sizeof(device_addresses[0]);

#define OWN RT_TABLE_LOCAL, RTPROT_KERNEL
const struct device_route device_routes[] = {
    {1, AF_INET, 8, OWN, RT_SCOPE_HOST, RTN_LOCAL, {127}, LO_FOUR, 0},
    {1, AF_INET, 32, OWN, RT_SCOPE_HOST, RTN_LOCAL, LO_FOUR, LO_FOUR, 0},
    {1, AF_INET, 32, OWN, RT_SCOPE_LINK, RTN_BROADCAST, {127, 255, 255, 255}, LO_FOUR, 0},
    {1, AF_INET6, 128, OWN, RT_SCOPE_UNIVERSE, RTN_LOCAL, LO_SIX, {0}, 0},
};
const unsigned n_device_routes = sizeof(device_routes) / sizeof(device_routes[0]);

const struct device_rule device_rules[] = {
    {AF_INET, RT_TABLE_LOCAL, 0},       {AF_INET, RT_TABLE_MAIN, 32766},
    {AF_INET, RT_TABLE_DEFAULT, 32767}, {AF_INET6, RT_TABLE_LOCAL, 0},
    {AF_INET6, RT_TABLE_MAIN, 32766},
};
const unsigned n_device_rules = sizeof(device_rules) / sizeof(device_rules[0]);

static const struct asked asked[23] = {
    {SIOCGIFNAME, false, false},
    {SIOCGIFFLAGS, false, false},
    {SIOCGIFADDR, false, true},
    {SIOCGIFNETMASK, false, true},
    {SIOCGIFBRDADDR, false, true},
    {SIOCGIFDSTADDR, false, true},
    {SIOCGIFMTU, false, false},
    {SIOCGIFMETRIC, false, false},
    {SIOCGIFINDEX, false, false},
    {SIOCGIFTXQLEN, false, false},
    {SIOCGIFMAP, false, false},
    {SIOCGIFHWADDR, false, false},
    {SIOCETHTOOL, false, false},
    {SIOCSIFFLAGS, true, false},
    {SIOCSIFMTU, true, false},
    {SIOCSIFHWADDR, true, false},
    {SIOCSIFTXQLEN, true, false},
    {SIOCSIFNAME, true, false},
    {SIOCSIFADDR, true, true},
    {SIOCSIFNETMASK, true, true},
    {SIOCSIFBRDADDR, true, true},
    {SIOCADDRT, true, true},
    {0, false, false},
};
