/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * One emulated machine with the guest's init in it, without a backend: QEMU's software processor,
 * the lab's kernel, a root of busybox alone.
 */
#ifndef TESTS_GUEST_MACHINE_H
#define TESTS_GUEST_MACHINE_H

#include "../link/agent_harness.h"
#include "guest.h"

struct machine {
    struct cell cell; /* its link is the agent's */
    struct guest *guest;
    char dir[64];
    pid_t pid; /* QEMU */
    int ready, closed, closed_code;
    char why[640];
};

/* Why there can be no machine here; NULL = there can. */
const char *machine_missing(void);
/* Starts it and waits for the init's HELLO. */
int machine_start(struct machine *m);
void machine_stop(struct machine *m);
/* A new connection to a port, by its name in the machine. */
int machine_connect(struct machine *m, const char *port);
/* The agent's link on a new connection; after `skip`, when not NULL. 0 when HELLO has come. */
int machine_agent(struct machine *m, const uint8_t *skip);
int machine_guest(struct machine *m, int own_fd);
/* What the machine has said on its console, for a message. */
void machine_console(const struct machine *m);

/* Packets on the wire so far that say they come from an address (network order): IPv4 and ARP. */
size_t machine_packets(const struct machine *m, uint32_t src);

struct who { /* an identity for BOOT or SETTLE */
    const char *hostname, *address, *gateway;
    uint8_t mac_last, seed;
    uint64_t generation;
};
void identity_fields(struct buf *b, const struct who *w, const uint8_t *nonce);

#endif
