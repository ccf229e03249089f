/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* jail_int - what jail.c and jail_child.c share. */
#ifndef CELLA_JAIL_INT_H
#define CELLA_JAIL_INT_H

#include "jail.h"

struct jail_report {
    int32_t code; /* negative errno */
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
