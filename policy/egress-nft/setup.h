/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* setup - parts of cella-gate-setup. Each returns 0 or -errno with err filled. */
#ifndef CELLA_EGRESS_SETUP_H
#define CELLA_EGRESS_SETUP_H

#include "ctl.h"
#include "table.h"
#include "util.h"

#define HOST_ADDRS_MAX 1024
#define GATE_CONGESTION "reno" /* of both ends of the cell's link; every kernel has it */

struct host_addrs {
    uint32_t addr[HOST_ADDRS_MAX];
    size_t n;
};

/* ---- netlink.c: the current network namespace ---- */
struct link_end {
    const char *name;
    uint32_t addr; /* own address */
    uint32_t peer; /* the other end's, for the static neighbour */
    uint8_t mac[6], peer_mac[6];
};
/* One message: both ends, the peer in the namespace of `peer_ns`. */
int net_veth(const struct link_end *near, const struct link_end *far, int peer_ns,
             struct cella_error *err);
int net_tap(const struct link_end *near, int *ret_fd, struct cella_error *err);
/* Address, neighbour, up; lo up. `gateway`: 0, or the default route. */
int net_configure(const struct link_end *end, uint32_t gateway, struct cella_error *err);
int net_lo_up(struct cella_error *err);
/* Waits until the link really transmits. */
int net_wait_up(const char *name, struct cella_error *err);
/* Makes every destination local, so that packets for the world end in the gate's sockets. */
int net_all_local(struct cella_error *err);
int net_host_addrs(struct host_addrs *ret, struct cella_error *err);
/* Before another namespace becomes the current one. */
void net_left(void);

/* ---- sockets.c: the gate's listeners in the current namespace ---- */
int gate_listener(uint16_t port, int type, int *ret_fd, struct cella_error *err);
int gate_nflog(int *ret_fd, struct cella_error *err);
/* Sends packets whose header the gate writes; the rules let them go to the cell only. */
int gate_raw(int *ret_fd, struct cella_error *err);

/* ---- ruleset.c ---- */
int ruleset_load(uint32_t slot, const struct policy_table *t, const struct host_addrs *hosts,
                 struct cella_error *err);
int ruleset_replace(uint32_t slot, const struct policy_table *t, const struct host_addrs *hosts,
                    struct cella_error *err);
/* Source ports from which everything ends in the gate's sink, for so many seconds; 0: none any more. */
int ruleset_reach(uint32_t lo, uint32_t hi, uint32_t seconds, struct cella_error *err);

#endif
