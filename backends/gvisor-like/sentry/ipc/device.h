/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * device.h - the network devices of a cell, their addresses and routes, as tables (device.c). What shows them reads these rows
 * and knows none of them by name: ioctl() on sockets, netlink (netlink.c), /proc/net.
 */
#ifndef SENTRY_IPC_DEVICE_H
#define SENTRY_IPC_DEVICE_H

#include <stddef.h>
#include <stdint.h>

struct device {
    int index;
    const char *name, *qdisc;
    uint16_t type;  /* ARPHRD_* */
    uint32_t flags; /* IFF_*, as RTM_NEWLINK has them */
    uint32_t mtu, queue;
    uint8_t address[6], broadcast[6];
};

struct device_address {
    int device;
    uint8_t family, prefix, scope, flags; /* IFA_F_* */
    uint8_t bytes[16];
};

struct device_route {
    int device;
    uint8_t family, prefix, table, protocol, scope, type; /* RT_TABLE_*, RTPROT_*, ... */
    uint8_t to[16], from[16];                             /* from: what is sent so comes from it */
    uint32_t metric;                                      /* AF_INET6 */
};

struct device_rule { /* which table is asked, in order of priority */
    uint8_t family, table;
    uint32_t priority;
};

extern const struct device devices[];
extern const struct device_address device_addresses[];
extern const struct device_route device_routes[];
extern const struct device_rule device_rules[];
extern const unsigned n_devices, n_device_addresses, n_device_routes, n_device_rules;

const struct device *device_by_index(int index);       /* NULL: there is none */
const struct device *device_by_name(const char *name); /* ended by a NUL */
size_t address_size(int family);                       /* of AF_INET, AF_INET6; 0 */
/* The first `prefix` bits are the same. */
int address_in(const uint8_t *address, const uint8_t *net, unsigned prefix);

#endif
