/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * verdict - whether a destination is allowed, by network and by name.
 *
 * The kernel rules let a packet come to the gate; what is said here is what counts, and it repeats
 * all of it: hard-deny set, the uplink's own addresses as they are now, the table. An address that
 * a name resolved to must pass the same, and no denial of the policy may cover it: a name is no way
 * around a network rule. Threads: none.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gate.h"

int uplink_owns(uint32_t addr)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(addr)}};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), own = 0;

    if (fd < 0)
        return 1; /* cannot tell: closed */
    /* Connecting a datagram socket sends nothing; it only asks the routing table. */
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
        own = getsockname(fd, (struct sockaddr *)&a, &len) < 0 || a.sin_addr.s_addr == htonl(addr);
    close(fd);
    return own && !policy_is_test_server(addr);
}

static uint32_t entry_reason(const struct policy_entry *e)
{
    if (!e)
        return REASON_NO_RULE;
    return e->verdict == POLICY_ALLOW ? REASON_NONE : REASON_DENY_RULE;
}

uint32_t relay_check(const struct gate *g, uint32_t dst, uint16_t port,
                     const struct policy_entry **ret_entry)
{
    *ret_entry = NULL;
    if (policy_hard(dst, dst) || port == POLICY_HARD_PORT || uplink_owns(dst))
        return REASON_HARD_DENY;
    *ret_entry = policy_table_find(&g->table, dst, port);
    return entry_reason(*ret_entry);
}

uint32_t udp_check(const struct gate *g, uint32_t dst, uint16_t port,
                   const struct policy_entry **ret_entry)
{
    *ret_entry = NULL;
    if (policy_hard(dst, dst) || uplink_owns(dst))
        return REASON_HARD_DENY;
    *ret_entry = policy_table_find_udp(&g->table, dst, port);
    return entry_reason(*ret_entry);
}

uint32_t name_check(const struct gate *g, const char *name, uint16_t port, enum policy_proto proto,
                    const struct policy_rule **ret)
{
    *ret = NULL;
    if (proto == POLICY_TCP && port == POLICY_HARD_PORT)
        return REASON_HARD_DENY;
    if (policy_name_find(&g->table, name, port, proto, ret) == POLICY_ALLOW)
        return REASON_NONE;
    return *ret ? REASON_DENY_RULE : REASON_NO_RULE;
}

int addr_usable(const struct gate *g, uint32_t addr, uint16_t port, enum policy_proto proto)
{
    return !policy_hard(addr, addr) && !uplink_owns(addr) &&
           !policy_addr_denied(&g->table, addr, port, proto);
}
