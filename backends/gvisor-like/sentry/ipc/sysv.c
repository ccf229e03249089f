/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * sysv - keys and numbers of System V's shared memory, semaphores and messages.
 * A number is a place of the table and how often places were given away, so that an old one names nothing.
 * Threads: the kernel lock.
 */
#include <linux/capability.h>

#include "sysv.h"

#define PLACES 32768 /* as Linux makes numbers */

struct sysv_state *sysv(void)
{
    if (!ipc()->sysv_state)
        ipc()->sysv_state = arena_alloc(ARENA_SYSV, sizeof(struct sysv_state));
    if (!ipc()->sysv_state)
        kpanic("ipc: no memory for the tables of System V");
    return ipc()->sysv_state;
}

int64_t now_seconds(void)
{
    return (int64_t)(clock_realtime() / 1000000000);
}

int sysv_may(const struct sysv_head *head, uint32_t may)
{
    const struct cred *c = current->cred;
    uint32_t mode = head->mode;

    if (c->euid == head->uid || c->euid == head->cuid)
        mode >>= 6;
    else if (cred_in_group(c, head->gid) || cred_in_group(c, head->cgid))
        mode >>= 3;
    return (mode & may) == may || capable(CAP_IPC_OWNER) ? 0 : -EACCES;
}

int sysv_owner(const struct sysv_head *head)
{
    uint32_t euid = current->cred->euid;

    return euid == head->uid || euid == head->cuid || capable(CAP_SYS_ADMIN) ? 0 : -EPERM;
}

static struct sysv_head *by_key(const struct sysv_table *table, int32_t key)
{
    uint32_t i;

    for (i = 0; i < SYSV_MAX; i++)
        if (table->at[i] && table->at[i]->key == key && key != IPC_PRIVATE)
            return table->at[i];
    return NULL;
}

int sysv_get(struct sysv_table *table, int32_t key, uint32_t flags, struct sysv_head **ret)
{
    uint32_t may = (flags >> 6 | flags >> 3 | flags) & 6;

    *ret = key == IPC_PRIVATE ? NULL : by_key(table, key);
    if (*ret)
        return (flags & IPC_CREAT) && (flags & IPC_EXCL) ? -EEXIST : sysv_may(*ret, may);
    if (key != IPC_PRIVATE && !(flags & IPC_CREAT))
        return -ENOENT;
    return table->n >= SYSV_MAX ? -ENOSPC : 0;
}

void sysv_add(struct sysv_table *table, struct sysv_head *head, int32_t key, uint32_t flags)
{
    int32_t place = 0;

    while (table->at[place])
        place++;
    table->at[place] = head;
    table->n++;
    head->refs = 1;
    head->key = key;
    head->id = (int32_t)(table->sequence++ % 65535) * PLACES + place;
    head->uid = head->cuid = current->cred->euid;
    head->gid = head->cgid = current->cred->egid;
    head->mode = flags & 0777;
    head->changed = now_seconds();
}

void sysv_remove(struct sysv_table *table, struct sysv_head *head)
{
    table->at[head->id % PLACES] = NULL;
    table->n--;
    head->removed = true;
}

struct sysv_head *sysv_find(const struct sysv_table *table, int32_t id)
{
    struct sysv_head *head;

    if (id < 0 || id % PLACES >= (int32_t)SYSV_MAX)
        return NULL;
    head = table->at[id % PLACES];
    return head && head->id == id ? head : NULL;
}

void sysv_show(const struct sysv_head *head, struct ipc_perm *perm)
{
    *perm = (struct ipc_perm){.__key = head->key,
                              .uid = head->uid,
                              .gid = head->gid,
                              .cuid = head->cuid,
                              .cgid = head->cgid,
                              .mode = (mode_t)head->mode,
                              .__seq = (unsigned short)(head->id / PLACES)};
}

void sysv_change(struct sysv_head *head, const struct ipc_perm *perm)
{
    head->uid = perm->uid;
    head->gid = perm->gid;
    head->mode = (head->mode & ~0777u) | (perm->mode & 0777);
    head->changed = now_seconds();
}
