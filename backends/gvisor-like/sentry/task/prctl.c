/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * prctl - prctl, arch_prctl, personality.
 * What would need the host's processor to be told (speculation, TSC, CPUID faults) is refused as an old kernel does.
 * Threads: the kernel lock.
 */
#include <asm/prctl.h>
#include <linux/securebits.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>

#include "caps.h"

#define NOT_ASKED 0xffffffffu /* personality(): only tell */

static int set_name(uint64_t from)
{
    char name[16] = "";
    int64_t length = copy_in_string(current->mm, name, from, sizeof(name));

    if (length == -ENAMETOOLONG)
        length = copy_in(current->mm, name, from, sizeof(name) - 1);
    if (length < 0)
        return -EFAULT;
    name[sizeof(name) - 1] = 0;
    memset(name + strlen(name), 0, sizeof(name) - strlen(name));
    memcpy(current->comm, name, sizeof(name));
    return 0;
}

static int no_new_privs(const uint64_t a[6])
{
    struct cred *new;

    if (a[1] != 1 || a[2] || a[3] || a[4])
        return -EINVAL;
    new = cred_copy(current->cred);
    if (!new)
        return -ENOMEM;
    new->no_new_privs = 1;
    cred_set(new);
    return 0;
}

static int word_out(uint64_t to, int32_t value)
{
    return copy_out(current->mm, to, &value, sizeof(value));
}

static int64_t of_process(const uint64_t a[6])
{
    struct process *process = current->process;

    switch ((int)a[0]) {
    case PR_SET_PDEATHSIG:
        if (a[1] > SIGNALS)
            return -EINVAL;
        current->parent_death_signal = (int)a[1];
        return 0;
    case PR_GET_PDEATHSIG:
        return word_out(a[1], current->parent_death_signal);
    case PR_SET_CHILD_SUBREAPER:
        process->reaper = a[1] != 0;
        return 0;
    case PR_GET_CHILD_SUBREAPER:
        return word_out(a[1], process->reaper);
    case PR_GET_DUMPABLE:
        return current->mm->dumpable;
    case PR_SET_DUMPABLE:
        if (a[1] > 1)
            return -EINVAL;
        current->mm->dumpable = (uint32_t)a[1];
        return 0;
    default:
        return -EINVAL;
    }
}

static int64_t of_task(const uint64_t a[6])
{
    switch ((int)a[0]) {
    case PR_SET_NAME:
        return set_name(a[1]);
    case PR_GET_NAME:
        return copy_out(current->mm, a[1], current->comm, sizeof(current->comm));
    case PR_GET_TIMERSLACK:
        return (int64_t)current->timer_slack;
    case PR_SET_TIMERSLACK:
        current->timer_slack = (int64_t)a[1] <= 0 ? 50000 : a[1];
        return 0;
    case PR_GET_TIMING:
        return PR_TIMING_STATISTICAL;
    case PR_SET_TIMING:
        return a[1] == PR_TIMING_STATISTICAL ? 0 : -EINVAL;
    case PR_GET_TID_ADDRESS:
        return copy_out(current->mm, a[1], &current->clear_child_tid, sizeof(uint64_t));
    case PR_GET_THP_DISABLE:
        return a[1] || a[2] || a[3] || a[4] ? -EINVAL : 0;
    case PR_SET_THP_DISABLE:
        return a[2] || a[3] || a[4] ? -EINVAL : 0;
    case PR_GET_TSC:
        return word_out(a[1], PR_TSC_ENABLE);
    case PR_SET_TSC:
        return a[1] == PR_TSC_ENABLE ? 0 : -EINVAL;
    case PR_MCE_KILL_GET:
        return PR_MCE_KILL_DEFAULT;
    default:
        return -EINVAL;
    }
}

static int64_t of_cred(const uint64_t a[6])
{
    switch ((int)a[0]) {
    case PR_GET_KEEPCAPS:
        return current->cred->securebits >> SECURE_KEEP_CAPS & 1;
    case PR_SET_KEEPCAPS:
        return caps_keep(a[1]);
    case PR_GET_SECUREBITS:
        return current->cred->securebits;
    case PR_SET_SECUREBITS:
        return caps_securebits(a[1]);
    case PR_CAPBSET_READ:
        return caps_bounding_read(a[1]);
    case PR_CAPBSET_DROP:
        return caps_bounding_drop(a[1]);
    case PR_CAP_AMBIENT:
        return a[3] || a[4] ? -EINVAL : caps_ambient(a[1], a[2]);
    case PR_SET_NO_NEW_PRIVS:
        return no_new_privs(a);
    case PR_GET_NO_NEW_PRIVS:
        return a[1] || a[2] || a[3] || a[4] ? -EINVAL : (int64_t)current->cred->no_new_privs;
    case PR_GET_SECCOMP:
        return 0;
    default:
        return -EINVAL;
    }
}

SYSCALL(prctl)
{
    switch ((int)a[0]) {
    case PR_SET_PDEATHSIG:
    case PR_GET_PDEATHSIG:
    case PR_SET_CHILD_SUBREAPER:
    case PR_GET_CHILD_SUBREAPER:
    case PR_GET_DUMPABLE:
    case PR_SET_DUMPABLE:
        return of_process(a);
    case PR_GET_KEEPCAPS:
    case PR_SET_KEEPCAPS:
    case PR_GET_SECUREBITS:
    case PR_SET_SECUREBITS:
    case PR_CAPBSET_READ:
    case PR_CAPBSET_DROP:
    case PR_CAP_AMBIENT:
    case PR_SET_NO_NEW_PRIVS:
    case PR_GET_NO_NEW_PRIVS:
    case PR_GET_SECCOMP:
        return of_cred(a);
    default:
        return of_task(a);
    }
}

SYSCALL(arch_prctl)
{
    switch (a[0]) {
    case ARCH_SET_FS:
        if (a[1] >= PLATFORM_GUEST_MAX)
            return -EPERM;
        current->regs.fs_base = a[1];
        return 0;
    case ARCH_SET_GS:
        if (a[1] >= PLATFORM_GUEST_MAX)
            return -EPERM;
        current->regs.gs_base = a[1];
        return 0;
    case ARCH_GET_FS:
        return copy_out(current->mm, a[1], &current->regs.fs_base, sizeof(uint64_t));
    case ARCH_GET_GS:
        return copy_out(current->mm, a[1], &current->regs.gs_base, sizeof(uint64_t));
    case ARCH_GET_CPUID:
        return 1;
    case ARCH_SET_CPUID:
        return -ENODEV;
    default:
        return -EINVAL;
    }
}

SYSCALL(personality)
{
    uint32_t old = current->process->personality, asked = (uint32_t)a[0];

    if (asked != NOT_ASKED) {
        if ((asked & 0xff) != PER_LINUX && (asked & 0xff) != PER_LINUX32)
            return -EINVAL;
        current->process->personality = asked;
    }
    return old;
}
