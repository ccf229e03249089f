/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* jail_int - what jail.c and jail_child.c share. */
#ifndef CELLA_JAIL_INT_H
#define CELLA_JAIL_INT_H

#include "jail.h"

#define JAIL_IN_OWN_USERS 1 /* the child waits for its id; what it is answered is one byte */

struct jail_report {
    int32_t code; /* negative errno, or JAIL_IN_OWN_USERS */
    char text[500];
};

struct jail_child {
    const struct jail *jail;
    int sync_fd, host_sync_fd;
    int entry_fds[CGROUP_N]; /* v1 "tasks" files */
    int n_entry;
    int mounts[JAIL_BINDS_MAX]; /* detached, one per bind */
};

void jail_child(struct jail_child *c) __attribute__((noreturn));

#endif
