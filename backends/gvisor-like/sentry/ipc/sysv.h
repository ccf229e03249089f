/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* sysv.h - what segments, sets of semaphores and queues of messages have in common: keys, numbers, rights. */
#ifndef SENTRY_IPC_SYSV_H
#define SENTRY_IPC_SYSV_H

#include "state.h"

#include <sys/ipc.h>

#define SYSV_MAX 4096u /* of each kind */

struct sysv_head { /* first member of each */
    uint32_t refs; /* the table's, and who sleeps in it */
    int32_t key, id;
    uint32_t uid, gid, cuid, cgid, mode;
    int64_t changed; /* s, CLOCK_REALTIME */
    bool removed;
};

struct sysv_table {
    struct sysv_head *at[SYSV_MAX];
    uint32_t n, sequence;
};

struct sysv_state {
    struct sysv_table shm, sem, msg;
    uint64_t n_semaphores, message_bytes;
};
struct sysv_state *sysv(void);

/* By key and flags: the one that is there, or NULL and 0: one is to be made. -EEXIST, -ENOENT, -EACCES, -ENOSPC. */
int sysv_get(struct sysv_table *table, int32_t key, uint32_t flags, struct sysv_head **ret);
void sysv_add(struct sysv_table *table, struct sysv_head *head, int32_t key,
              uint32_t flags);                                      /* gives it a number */
void sysv_remove(struct sysv_table *table, struct sysv_head *head); /* its number is free */
struct sysv_head *sysv_find(const struct sysv_table *table,
                            int32_t id);                  /* borrowed; NULL: -EINVAL */
int sysv_may(const struct sysv_head *head, uint32_t may); /* 4 read, 2 write: -EACCES */
int sysv_owner(const struct sysv_head *head);             /* may change it: -EPERM */
void sysv_show(const struct sysv_head *head, struct ipc_perm *perm);
void sysv_change(struct sysv_head *head, const struct ipc_perm *perm); /* IPC_SET */
int64_t now_seconds(void);

#endif
