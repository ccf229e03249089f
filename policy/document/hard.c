/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * hard - the hard-deny set as one table.
 *
 * Everything here is refused whatever a document says: when it is written down, in the kernel, and
 * again in the gate just before it dials. The host's own addresses are not in the table because
 * they are known only at run time; the enforcer adds them.
 *
 * 192.0.2.0/24, 198.51.100.0/24 and 203.0.113.0/24 are deliberately absent. They are reserved for
 * documentation, nobody's service lives there, and the tests and the demo build their private
 * internet from them.
 *
 * Invariant: sorted by `lo`, disjoint. Threads: constant data.
 */
#include "table.h"

const struct policy_hard_range policy_hard_ranges[] = {
    {0x00000000u, 0x00ffffffu, "0.0.0.0/8", "this host"},
    {0x0a000000u, 0x0affffffu, "10.0.0.0/8", "private network; links of cells"},
    {0x64400000u, 0x647fffffu, "100.64.0.0/10", "carrier-grade NAT, some clouds' metadata"},
    {0x7f000000u, 0x7fffffffu, "127.0.0.0/8", "loopback"},
    {0xa83f8110u, 0xa83f8110u, "168.63.129.16/32", "control address of a cloud's hosts"},
    {0xa9fe0000u, 0xa9feffffu, "169.254.0.0/16", "link-local and cloud metadata"},
    {0xac100000u, 0xac1fffffu, "172.16.0.0/12", "private network"},
    {0xc0000000u, 0xc00000ffu, "192.0.0.0/24", "protocol assignments"},
    {0xc0a80000u, 0xc0a8ffffu, "192.168.0.0/16", "private network"},
    {0xc6120000u, 0xc613ffffu, "198.18.0.0/15", "benchmarking"},
    {0xe0000000u, 0xefffffffu, "224.0.0.0/4", "multicast"},
    {0xf0000000u, 0xffffffffu, "240.0.0.0/4", "reserved and broadcast"},
};
const size_t policy_hard_count = sizeof(policy_hard_ranges) / sizeof(policy_hard_ranges[0]);

const struct policy_hard_range *policy_hard(uint32_t lo, uint32_t hi)
{
    size_t i;

    for (i = 0; i < policy_hard_count; i++)
        if (policy_hard_ranges[i].lo <= hi && lo <= policy_hard_ranges[i].hi)
            return &policy_hard_ranges[i];
    return NULL;
}

int policy_is_test_server(uint32_t addr)
{
    uint32_t net = addr >> 8;

    return net == 0xc63364u || net == 0xcb0071u;
}
