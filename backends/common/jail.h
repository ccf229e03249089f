/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * jail - one program of the host as nobody in an empty place: its own mount, pid, net, ipc, uts and
 * cgroup namespaces, a root that holds the host's libraries and what is named here, one unprivileged id, no
 * capability, no descriptor and no environment but what is named here. It dies with the thread that made it.
 */
#ifndef CELLA_JAIL_H
#define CELLA_JAIL_H

#include <sys/types.h>

#include "cgroup.h"
#include "util.h"

#define JAIL_BINDS_MAX 96
#define JAIL_FDS_MAX 40
#define JAIL_NOBODY 65534u

struct jail_bind {
    const char *source; /* of the host, absolute; no link is followed. */
    char target[64];    /* in the jail, absolute; its parent exists in the jail */
    int file, writable;
};

struct jail {
    const char *program; /* as seen in the jail */
    char **argv, **envp;
    const char
        *at;     /* an existing directory that nothing else uses; the root is put together there */
    uint32_t id; /* uid and gid */
    const struct cgroup *cgroup; /* may be NULL */
    int kvm;                     /* with /dev/kvm */
    int unplaced; /* namespaces, group and descriptors only: the program, a path of the host's, leaves root and rights behind by itself */
    int many_fds; /* as many descriptors as the host lets a process have, instead of 1024 */
    int proc;     /* with /proc, of its own processes only */
    int own_users; /* in a user namespace of its own, too, where its id is JAIL_NOBODY and there is no other */
    int borrow_fds[JAIL_FDS_MAX]; /* become 0, 1, 2 …; -1 = /dev/null */
    int n_fds;
    struct jail_bind binds[JAIL_BINDS_MAX];
    int n_binds;
};

int jail_bind(struct jail *j, const char *source, int file, int writable, const char *target_fmt,
              ...) CELLA_PRINTF(5, 6);
/* Returns when the program has been executed. It is a child of the caller, to be waited for. */
int jail_spawn(const struct jail *j, pid_t *ret_pid, int *ret_pidfd, struct cella_error *err);

#endif
