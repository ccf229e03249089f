/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cred - who a task is: ids, groups, capabilities, and what changes them.
 * A struct cred is never changed once a task has it: a change is a copy, put in its place.
 * Threads: the kernel lock.
 */
#include <linux/capability.h>
#include <linux/securebits.h>
#include <string.h>

#include "room.h"

#define CAPS_ALL ((1ull << (CAP_LAST_CAP + 1)) - 1)
#define CAPS_FS                                                                                    \
    (1ull << CAP_CHOWN | 1ull << CAP_DAC_OVERRIDE | 1ull << CAP_DAC_READ_SEARCH |                  \
     1ull << CAP_FOWNER | 1ull << CAP_FSETID | 1ull << CAP_LINUX_IMMUTABLE | 1ull << CAP_MKNOD |   \
     1ull << CAP_MAC_OVERRIDE)
#define KEEP UINT32_MAX /* -1: leave it */

void cred_get(struct cred *cred)
{
    cred->refs++;
}

void cred_put(struct cred *cred)
{
    if (--cred->refs)
        return;
    arena_free(cred->groups);
    arena_free(cred);
}

struct cred *cred_first(void)
{
    struct cred *cred = arena_alloc(ARENA_CRED, sizeof(*cred));

    if (!cred)
        return NULL;
    cred->refs = 1;
    cred->cap_permitted = cred->cap_effective = cred->cap_bounding = CAPS_ALL;
    return cred;
}

struct cred *cred_copy(const struct cred *from)
{
    struct cred *cred = arena_alloc(ARENA_CRED, sizeof(*cred));
    size_t bytes = from->n_groups * sizeof(*from->groups);

    if (!cred)
        return NULL;
    *cred = *from;
    cred->refs = 1;
    cred->groups = NULL;
    if (bytes) {
        cred->groups = arena_alloc(ARENA_CRED, bytes);
        if (!cred->groups) {
            arena_free(cred);
            return NULL;
        }
        memcpy(cred->groups, from->groups, bytes);
    }
    return cred;
}

void cred_set(struct cred *cred)
{
    struct cred *old = current->cred;
    struct user_counts *from = user_of(old->uid), *to = user_of(cred->uid);

    if (from && to && from != to && from->tasks) {
        from->tasks--;
        to->tasks++;
    }
    if (from)
        user_tidy(from);
    if (to && to != from)
        user_tidy(to);
    if (old->euid != cred->euid || old->egid != cred->egid || old->fsuid != cred->fsuid ||
        old->fsgid != cred->fsgid) {
        current->parent_death_signal = 0;
        if (current->mm)
            current->mm->dumpable = 0;
    }
    current->cred = cred;
    cred_put(old);
}

bool cred_has(const struct cred *cred, int capability)
{
    return cred->cap_effective >> capability & 1;
}

bool capable(int capability)
{
    return cred_has(current->cred, capability);
}

bool cred_in_group(const struct cred *cred, uint32_t gid)
{
    uint32_t low = 0, high = cred->n_groups, middle;

    if (gid == cred->fsgid)
        return true;
    while (low < high) {
        middle = low + (high - low) / 2;
        if (cred->groups[middle] == gid)
            return true;
        if (cred->groups[middle] < gid)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

bool cred_may_look(const struct task *task)
{
    const struct cred *self = current->cred, *its = task->cred;

    if (task->process == current->process || capable(CAP_SYS_PTRACE))
        return true;
    return self->fsuid == its->uid && self->fsuid == its->euid && self->fsuid == its->suid &&
           self->fsgid == its->gid && self->fsgid == its->egid && self->fsgid == its->sgid &&
           (its->cap_permitted & ~self->cap_permitted) == 0 && task->mm && task->mm->dumpable;
}

/* What a change of user ids does to capabilities. */
static void settle_caps(struct cred *new, const struct cred *old)
{
    bool had_root = old->uid == 0 || old->euid == 0 || old->suid == 0,
         has_root = new->uid == 0 || new->euid == 0 || new->suid == 0;

    if (new->securebits & 1u << SECURE_NO_SETUID_FIXUP)
        return;
    if (had_root && !has_root) {
        if (!(new->securebits & 1u << SECURE_KEEP_CAPS))
            new->cap_permitted = new->cap_effective = 0;
        new->cap_ambient = 0; /* kept ones are its own, not what it executes gets */
    }
    if (old->euid == 0 && new->euid != 0)
        new->cap_effective = 0;
    if (old->euid != 0 && new->euid == 0)
        new->cap_effective = new->cap_permitted;
}

static void settle_fs_caps(struct cred *new, const struct cred *old)
{
    if (new->securebits & 1u << SECURE_NO_SETUID_FIXUP)
        return;
    if (old->fsuid == 0 && new->fsuid != 0)
        new->cap_effective &= ~CAPS_FS;
    if (old->fsuid != 0 && new->fsuid == 0)
        new->cap_effective |= new->cap_permitted &CAPS_FS;
}

/* ---- user ids ---- */

SYSCALL(setuid)
{
    const struct cred *old = current->cred;
    uint32_t uid = (uint32_t)a[0];
    struct cred *new;

    if (uid == KEEP)
        return -EINVAL;
    if (!capable(CAP_SETUID) && uid != old->uid && uid != old->suid)
        return -EPERM;
    new = cred_copy(old);
    if (!new)
        return -ENOMEM;
    if (capable(CAP_SETUID))
        new->uid = new->suid = uid;
    new->euid = new->fsuid = uid;
    settle_caps(new, old);
    cred_set(new);
    return 0;
}

SYSCALL(setreuid)
{
    const struct cred *old = current->cred;
    uint32_t ruid = (uint32_t)a[0], euid = (uint32_t)a[1];
    struct cred *new;

    if (!capable(CAP_SETUID) &&
        ((ruid != KEEP && ruid != old->uid && ruid != old->euid) ||
         (euid != KEEP && euid != old->uid && euid != old->euid && euid != old->suid)))
        return -EPERM;
    new = cred_copy(old);
    if (!new)
        return -ENOMEM;
    if (ruid != KEEP)
        new->uid = ruid;
    if (euid != KEEP)
        new->euid = euid;
    if (ruid != KEEP || (euid != KEEP && euid != old->uid))
        new->suid = new->euid;
    new->fsuid = new->euid;
    settle_caps(new, old);
    cred_set(new);
    return 0;
}

static bool one_of(uint32_t id, uint32_t x, uint32_t y, uint32_t z)
{
    return id == KEEP || id == x || id == y || id == z;
}

SYSCALL(setresuid)
{
    const struct cred *old = current->cred;
    uint32_t ids[3] = {(uint32_t)a[0], (uint32_t)a[1], (uint32_t)a[2]};
    struct cred *new;
    unsigned i;

    for (i = 0; i < 3; i++)
        if (!capable(CAP_SETUID) && !one_of(ids[i], old->uid, old->euid, old->suid))
            return -EPERM;
    new = cred_copy(old);
    if (!new)
        return -ENOMEM;
    if (ids[0] != KEEP)
        new->uid = ids[0];
    if (ids[1] != KEEP)
        new->euid = ids[1];
    if (ids[2] != KEEP)
        new->suid = ids[2];
    new->fsuid = new->euid;
    settle_caps(new, old);
    cred_set(new);
    return 0;
}

SYSCALL(setfsuid)
{
    const struct cred *old = current->cred;
    uint32_t uid = (uint32_t)a[0], was = old->fsuid;
    struct cred *new;

    if (uid == KEEP || uid == was ||
        (!one_of(uid, old->uid, old->euid, old->suid) && !capable(CAP_SETUID)))
        return was;
    new = cred_copy(old);
    if (!new)
        return was;
    new->fsuid = uid;
    settle_fs_caps(new, old);
    cred_set(new);
    return was;
}

/* ---- group ids ---- */

SYSCALL(setgid)
{
    const struct cred *old = current->cred;
    uint32_t gid = (uint32_t)a[0];
    struct cred *new;

    if (gid == KEEP)
        return -EINVAL;
    if (!capable(CAP_SETGID) && gid != old->gid && gid != old->sgid)
        return -EPERM;
    new = cred_copy(old);
    if (!new)
        return -ENOMEM;
    if (capable(CAP_SETGID))
        new->gid = new->sgid = gid;
    new->egid = new->fsgid = gid;
    cred_set(new);
    return 0;
}

SYSCALL(setregid)
{
    const struct cred *old = current->cred;
    uint32_t rgid = (uint32_t)a[0], egid = (uint32_t)a[1];
    struct cred *new;

    if (!capable(CAP_SETGID) &&
        ((rgid != KEEP && rgid != old->gid && rgid != old->egid) ||
         (egid != KEEP && egid != old->gid && egid != old->egid && egid != old->sgid)))
        return -EPERM;
    new = cred_copy(old);
    if (!new)
        return -ENOMEM;
    if (rgid != KEEP)
        new->gid = rgid;
    if (egid != KEEP)
        new->egid = egid;
    if (rgid != KEEP || (egid != KEEP && egid != old->gid))
        new->sgid = new->egid;
    new->fsgid = new->egid;
    cred_set(new);
    return 0;
}

SYSCALL(setresgid)
{
    const struct cred *old = current->cred;
    uint32_t ids[3] = {(uint32_t)a[0], (uint32_t)a[1], (uint32_t)a[2]};
    struct cred *new;
    unsigned i;

    for (i = 0; i < 3; i++)
        if (!capable(CAP_SETGID) && !one_of(ids[i], old->gid, old->egid, old->sgid))
            return -EPERM;
    new = cred_copy(old);
    if (!new)
        return -ENOMEM;
    if (ids[0] != KEEP)
        new->gid = ids[0];
    if (ids[1] != KEEP)
        new->egid = ids[1];
    if (ids[2] != KEEP)
        new->sgid = ids[2];
    new->fsgid = new->egid;
    cred_set(new);
    return 0;
}

SYSCALL(setfsgid)
{
    const struct cred *old = current->cred;
    uint32_t gid = (uint32_t)a[0], was = old->fsgid;
    struct cred *new;

    if (gid == KEEP || gid == was ||
        (!one_of(gid, old->gid, old->egid, old->sgid) && !capable(CAP_SETGID)))
        return was;
    new = cred_copy(old);
    if (!new)
        return was;
    new->fsgid = gid;
    cred_set(new);
    return was;
}

static void sort(uint32_t *ids, uint32_t n)
{
    uint32_t gap, i, j, id;

    for (gap = n / 2; gap; gap /= 2)
        for (i = gap; i < n; i++) {
            id = ids[i];
            for (j = i; j >= gap && ids[j - gap] > id; j -= gap)
                ids[j] = ids[j - gap];
            ids[j] = id;
        }
}

SYSCALL(setgroups)
{
    struct cred *new;
    uint32_t n = (uint32_t)a[0], *groups = NULL;

    if (!capable(CAP_SETGID))
        return -EPERM;
    if (n > CRED_GROUPS_MAX)
        return -EINVAL;
    if (n) {
        groups = arena_alloc(ARENA_CRED, n * sizeof(*groups));
        if (!groups)
            return -ENOMEM;
        if (copy_in(current->mm, groups, a[1], n * sizeof(*groups)) < 0) {
            arena_free(groups);
            return -EFAULT;
        }
        sort(groups, n);
    }
    new = cred_copy(current->cred);
    if (!new) {
        arena_free(groups);
        return -ENOMEM;
    }
    arena_free(new->groups);
    new->groups = groups;
    new->n_groups = n;
    cred_set(new);
    return 0;
}

SYSCALL(getgroups)
{
    const struct cred *cred = current->cred;

    if ((int32_t)a[0] < 0 || (a[0] && (uint32_t)a[0] < cred->n_groups))
        return -EINVAL;
    if (a[0] && copy_out(current->mm, a[1], cred->groups, cred->n_groups * sizeof(uint32_t)) < 0)
        return -EFAULT;
    return cred->n_groups;
}

/* ---- asking ---- */

SYSCALL(getuid)
{
    (void)a;
    return current->cred->uid;
}

SYSCALL(geteuid)
{
    (void)a;
    return current->cred->euid;
}

SYSCALL(getgid)
{
    (void)a;
    return current->cred->gid;
}

SYSCALL(getegid)
{
    (void)a;
    return current->cred->egid;
}

static int three_out(const uint64_t a[6], uint32_t one, uint32_t two, uint32_t three)
{
    if (copy_out(current->mm, a[0], &one, sizeof(one)) < 0 ||
        copy_out(current->mm, a[1], &two, sizeof(two)) < 0)
        return -EFAULT;
    return copy_out(current->mm, a[2], &three, sizeof(three));
}

SYSCALL(getresuid)
{
    const struct cred *cred = current->cred;

    return three_out(a, cred->uid, cred->euid, cred->suid);
}

SYSCALL(getresgid)
{
    const struct cred *cred = current->cred;

    return three_out(a, cred->gid, cred->egid, cred->sgid);
}
