/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * caps - capabilities: capget and capset, those of prctl, and what execve makes of them.
 * There are no capabilities of files: a program gives what root gets, and what is ambient.
 * Threads: the kernel lock.
 */
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "caps.h"

#define CAPS_ALL ((1ull << (CAP_LAST_CAP + 1)) - 1)
#define SECURE_LOCKS 0xaau /* the bit above each bit locks it */

struct head {
    uint32_t version;
    int32_t pid;
};

struct data {
    uint32_t effective, permitted, inheritable;
};

/* Words of 32 bits in the version that the guest speaks; what it does not know is answered by ours. */
static int head_in(uint64_t from, struct head *head, unsigned *ret_words)
{
    static const uint32_t ours = _LINUX_CAPABILITY_VERSION_3;

    if (copy_in(current->mm, head, from, sizeof(*head)) < 0)
        return -EFAULT;
    switch (head->version) {
    case _LINUX_CAPABILITY_VERSION_1:
        *ret_words = 1;
        return 0;
    case _LINUX_CAPABILITY_VERSION_2:
    case _LINUX_CAPABILITY_VERSION_3:
        *ret_words = 2;
        return 0;
    default:
        if (copy_out(current->mm, from, &ours, sizeof(ours)) < 0)
            return -EFAULT;
        return -EINVAL;
    }
}

SYSCALL(capget)
{
    struct data data[2];
    const struct cred *cred;
    struct task *task = current;
    struct head head;
    unsigned words, i;
    int result = head_in(a[0], &head, &words);

    if (result < 0)
        return a[1] == 0 && result == -EINVAL ? 0 : result;
    if (head.pid < 0)
        return -EINVAL;
    if (head.pid)
        task = task_by_tid(head.pid);
    if (!task)
        return -ESRCH;
    cred = task->cred;
    for (i = 0; i < 2; i++)
        data[i] = (struct data){.effective = (uint32_t)(cred->cap_effective >> 32 * i),
                                .permitted = (uint32_t)(cred->cap_permitted >> 32 * i),
                                .inheritable = (uint32_t)(cred->cap_inheritable >> 32 * i)};
    return a[1] ? copy_out(current->mm, a[1], data, words * sizeof(data[0])) : 0;
}

static int check_caps(const struct cred *old, uint64_t effective, uint64_t permitted,
                      uint64_t inheritable)
{
    if (!capable(CAP_SETPCAP) && (inheritable & ~(old->cap_inheritable | old->cap_permitted)))
        return -EPERM;
    if (inheritable & ~(old->cap_inheritable | old->cap_bounding))
        return -EPERM;
    if (permitted & ~old->cap_permitted)
        return -EPERM;
    return effective & ~permitted ? -EPERM : 0;
}

SYSCALL(capset)
{
    struct data data[2] = {{0}};
    uint64_t effective, permitted, inheritable;
    struct cred *new;
    struct head head;
    unsigned words;
    int result = head_in(a[0], &head, &words);

    if (result < 0)
        return result;
    if (head.pid && head.pid != current->tid)
        return -EPERM;
    if (copy_in(current->mm, data, a[1], words * sizeof(data[0])) < 0)
        return -EFAULT;
    effective = (data[0].effective | (uint64_t)data[1].effective << 32) & CAPS_ALL;
    permitted = (data[0].permitted | (uint64_t)data[1].permitted << 32) & CAPS_ALL;
    inheritable = (data[0].inheritable | (uint64_t)data[1].inheritable << 32) & CAPS_ALL;
    result = check_caps(current->cred, effective, permitted, inheritable);
    if (result < 0)
        return result;
    new = cred_copy(current->cred);
    if (!new)
        return -ENOMEM;
    new->cap_effective = effective;
    new->cap_permitted = permitted;
    new->cap_inheritable = inheritable;
    new->cap_ambient &= permitted &inheritable;
    cred_set(new);
    return 0;
}

/* ---- prctl ---- */

int64_t caps_bounding_read(uint64_t capability)
{
    if (capability > CAP_LAST_CAP)
        return -EINVAL;
    return current->cred->cap_bounding >> capability & 1;
}

int64_t caps_bounding_drop(uint64_t capability)
{
    struct cred *new;

    if (!capable(CAP_SETPCAP))
        return -EPERM;
    if (capability > CAP_LAST_CAP)
        return -EINVAL;
    new = cred_copy(current->cred);
    if (!new)
        return -ENOMEM;
    new->cap_bounding &= ~(1ull << capability);
    cred_set(new);
    return 0;
}

int64_t caps_ambient(uint64_t what, uint64_t capability)
{
    const struct cred *old = current->cred;
    uint64_t bit = 1ull << (capability & 63);
    struct cred *new;

    if (what == PR_CAP_AMBIENT_CLEAR_ALL ? capability != 0 : capability > CAP_LAST_CAP)
        return -EINVAL;
    switch (what) {
    case PR_CAP_AMBIENT_IS_SET:
        return !!(old->cap_ambient & bit);
    case PR_CAP_AMBIENT_RAISE:
        if (!(old->cap_permitted & bit) || !(old->cap_inheritable & bit) ||
            (old->securebits & 1u << SECURE_NO_CAP_AMBIENT_RAISE))
            return -EPERM;
        break;
    case PR_CAP_AMBIENT_LOWER:
    case PR_CAP_AMBIENT_CLEAR_ALL:
        break;
    default:
        return -EINVAL;
    }
    new = cred_copy(old);
    if (!new)
        return -ENOMEM;
    if (what == PR_CAP_AMBIENT_RAISE)
        new->cap_ambient |= bit;
    else
        new->cap_ambient &= what == PR_CAP_AMBIENT_LOWER ? ~bit : 0;
    cred_set(new);
    return 0;
}

int64_t caps_securebits(uint64_t bits)
{
    uint32_t old = current->cred->securebits, locked = (old & SECURE_LOCKS) >> 1;
    struct cred *new;

    if (bits > 0xff || ((bits ^ old) & locked) || (~bits & old & SECURE_LOCKS) ||
        !capable(CAP_SETPCAP))
        return -EPERM;
    new = cred_copy(current->cred);
    if (!new)
        return -ENOMEM;
    new->securebits = (uint32_t)bits;
    cred_set(new);
    return 0;
}

int64_t caps_keep(uint64_t keep)
{
    struct cred *new;

    if (keep > 1)
        return -EINVAL;
    if (current->cred->securebits & 1u << SECURE_KEEP_CAPS_LOCKED)
        return -EPERM;
    new = cred_copy(current->cred);
    if (!new)
        return -ENOMEM;
    new->securebits &= ~(1u << SECURE_KEEP_CAPS);
    if (keep)
        new->securebits |= 1u << SECURE_KEEP_CAPS;
    cred_set(new);
    return 0;
}

/* ---- execve ---- */

static void exec_ids(struct cred *new, uint32_t mode, uint32_t uid, uint32_t gid)
{
    if (mode & S_ISUID)
        new->euid = uid;
    if ((mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
        new->egid = gid;
    new->suid = new->fsuid = new->euid;
    new->sgid = new->fsgid = new->egid;
}

static void exec_caps(struct cred *new, const struct cred *old)
{
    bool root = !(new->securebits & 1u << SECURE_NOROOT), effective = false;
    uint64_t inheritable = 0, permitted = 0;

    if (root && (new->uid == 0 || new->euid == 0))
        inheritable = permitted = CAPS_ALL;
    if (root && new->euid == 0)
        effective = true;
    if (new->euid != old->euid || new->egid != old->egid)
        new->cap_ambient = 0;
    new->cap_permitted =
        (permitted & old->cap_bounding) | (inheritable & old->cap_inheritable) | new->cap_ambient;
    new->cap_effective = effective ? new->cap_permitted : new->cap_ambient;
    new->securebits &= ~(1u << SECURE_KEEP_CAPS);
}

int cred_for_exec(uint32_t mode, uint32_t uid, uint32_t gid, bool nosuid, struct cred **ret_cred,
                  bool *ret_secure)
{
    const struct cred *old = current->cred;
    struct cred *new = cred_copy(old);

    if (!new)
        return -ENOMEM;
    if (nosuid || old->no_new_privs)
        mode &= ~(uint32_t)(S_ISUID | S_ISGID);
    exec_ids(new, mode, uid, gid);
    exec_caps(new, old);
    *ret_secure = new->euid != new->uid || new->egid != new->gid ||
                  (new->uid != 0 && (new->cap_effective & ~new->cap_ambient));
    *ret_cred = new;
    return 0;
}
