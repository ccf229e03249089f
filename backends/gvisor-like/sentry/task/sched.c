/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * sched - scheduling as the guest may ask for it. The host schedules; what is set here is remembered and told, with the
 * permissions of Linux, and no more: a task of the guest is never of higher priority in the host than another.
 * Threads: the kernel lock.
 */
#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "room.h"

#define RESET_ON_FORK 0x40000000u
#define POLICY_MASK 0xfu
#define ATTR_SIZE_0 48u
#define WORDS 16
#define IOPRIO_NONE 0
#define IOPRIO_WHO_PROCESS 1

static unsigned n_cpus; /* of the host, that the sentry may use */

static uint64_t cpu_word(unsigned word)
{
    unsigned first = word * 64;

    if (n_cpus <= first)
        return 0;
    return n_cpus - first >= 64 ? ~0ull : (1ull << (n_cpus - first)) - 1;
}

/* @seccomp sentry: sched_getaffinity */
void sched_first(struct task *task)
{
    cpu_set_t set;
    unsigned i;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        n_cpus = (unsigned)CPU_COUNT(&set);
    if (!n_cpus)
        n_cpus = 1;
    for (i = 0; i < WORDS; i++)
        task->affinity[i] = cpu_word(i);
}

unsigned sched_cpus(void)
{
    return n_cpus ? n_cpus : 1;
}

static struct task *named(uint64_t pid)
{
    return pid ? task_by_tid((int32_t)pid) : current;
}

static bool may_schedule(const struct task *task)
{
    const struct cred *self = current->cred, *its = task->cred;

    return self->euid == its->euid || self->euid == its->uid || capable(CAP_SYS_NICE);
}

SYSCALL(sched_yield)
{
    (void)a;
    /* The lock is let go at the boundary, and the host's scheduler does the rest: @seccomp sentry: sched_yield */
    kernel_unlock();
    sched_yield();
    kernel_lock();
    return 0;
}

SYSCALL(sched_getaffinity)
{
    const struct task *task = named(a[0]);
    uint64_t size = (n_cpus + 63) / 64 * 8;

    if (a[1] * 8 < n_cpus || a[1] % 8)
        return -EINVAL;
    if (!task)
        return -ESRCH;
    if (size > a[1])
        size = a[1];
    return copy_out(current->mm, a[2], task->affinity, size) < 0 ? -EFAULT : (int64_t)size;
}

SYSCALL(sched_setaffinity)
{
    struct task *task = named(a[0]);
    uint64_t mask[WORDS] = {0}, any = 0;
    unsigned i;

    if (!task)
        return -ESRCH;
    if (copy_in(current->mm, mask, a[2], a[1] < sizeof(mask) ? a[1] : sizeof(mask)) < 0)
        return -EFAULT;
    if (!may_schedule(task))
        return -EPERM;
    for (i = 0; i < WORDS; i++) {
        mask[i] &= cpu_word(i);
        any |= mask[i];
    }
    if (!any)
        return -EINVAL;
    memcpy(task->affinity, mask, sizeof(mask));
    return 0;
}

/* ---- policies ---- */

static int check_policy(const struct task *task, uint32_t policy, int32_t priority)
{
    bool realtime = policy == SCHED_FIFO || policy == SCHED_RR;
    uint64_t most = task->process->limits[RLIMIT_RTPRIO].rlim_cur;

    if (policy > SCHED_IDLE || policy == 4 || priority < 0 || priority > 99 ||
        realtime != (priority != 0))
        return -EINVAL;
    if (!may_schedule(task))
        return -EPERM;
    if (realtime && !capable(CAP_SYS_NICE) && (uint64_t)priority > most)
        return -EPERM;
    return 0;
}

static int64_t set_policy(uint64_t pid, int64_t policy, uint64_t from)
{
    struct task *task = named(pid);
    int32_t priority;
    int result;

    if (!from || (int32_t)pid < 0)
        return -EINVAL;
    if (copy_in(current->mm, &priority, from, sizeof(priority)) < 0)
        return -EFAULT;
    if (!task)
        return -ESRCH;
    if (policy < 0)
        policy = task->policy;
    result = check_policy(task, (uint32_t)policy & ~RESET_ON_FORK, priority);
    if (result < 0)
        return result;
    task->policy = (int32_t)policy;
    task->priority = priority;
    return 0;
}

SYSCALL(sched_setscheduler)
{
    return (int32_t)a[1] < 0 ? -EINVAL : set_policy(a[0], (int32_t)a[1], a[2]);
}

SYSCALL(sched_setparam)
{
    return set_policy(a[0], -1, a[1]);
}

SYSCALL(sched_getscheduler)
{
    const struct task *task = named(a[0]);

    if ((int32_t)a[0] < 0)
        return -EINVAL;
    return task ? task->policy : -ESRCH;
}

SYSCALL(sched_getparam)
{
    const struct task *task = named(a[0]);

    if (!a[1] || (int32_t)a[0] < 0)
        return -EINVAL;
    if (!task)
        return -ESRCH;
    return copy_out(current->mm, a[1], &task->priority, sizeof(task->priority));
}

struct guest_sched_attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

SYSCALL(sched_getattr)
{
    const struct task *task = named(a[0]);
    struct guest_sched_attr attr = {.size = sizeof(attr)};

    if (!a[1] || (int32_t)a[0] < 0 || a[2] < ATTR_SIZE_0 || a[2] > PAGE_SIZE || a[3])
        return -EINVAL;
    if (!task)
        return -ESRCH;
    attr.policy = (uint32_t)task->policy & POLICY_MASK;
    attr.flags = (uint32_t)task->policy & RESET_ON_FORK ? 1 : 0;
    attr.nice = task->nice;
    attr.priority = (uint32_t)task->priority;
    return copy_out(current->mm, a[1], &attr, sizeof(attr));
}

static int set_nice(struct task *task, int64_t nice)
{
    uint64_t most = task->process->limits[RLIMIT_NICE].rlim_cur;

    if (nice < -20)
        nice = -20;
    if (nice > 19)
        nice = 19;
    if (nice < task->nice && !capable(CAP_SYS_NICE) && (uint64_t)(20 - nice) > most)
        return -EACCES;
    task->nice = (int32_t)nice;
    return 0;
}

SYSCALL(sched_setattr)
{
    struct task *task = named(a[0]);
    struct guest_sched_attr attr;
    uint32_t size;
    int result;

    if (!a[1] || (int32_t)a[0] < 0 || a[2])
        return -EINVAL;
    if (copy_in(current->mm, &size, a[1], sizeof(size)) < 0)
        return -EFAULT;
    if (size && size < ATTR_SIZE_0)
        return -E2BIG;
    if (copy_in(current->mm, &attr, a[1], sizeof(attr)) < 0)
        return -EFAULT;
    if (!task)
        return -ESRCH;
    result = check_policy(task, attr.policy, (int32_t)attr.priority);
    if (result == 0)
        result = set_nice(task, attr.nice);
    if (result < 0)
        return result == -EACCES ? -EPERM : result;
    task->policy = (int32_t)(attr.policy | (attr.flags & 1 ? RESET_ON_FORK : 0));
    task->priority = (int32_t)attr.priority;
    return 0;
}

SYSCALL(sched_get_priority_max)
{
    if (a[0] == SCHED_FIFO || a[0] == SCHED_RR)
        return 99;
    return a[0] > 6 || a[0] == 4 ? -EINVAL : 0;
}

SYSCALL(sched_get_priority_min)
{
    if (a[0] == SCHED_FIFO || a[0] == SCHED_RR)
        return 1;
    return a[0] > 6 || a[0] == 4 ? -EINVAL : 0;
}

SYSCALL(sched_rr_get_interval)
{
    const struct task *task = named(a[0]);

    if ((int32_t)a[0] < 0)
        return -EINVAL;
    if (!task)
        return -ESRCH;
    return timespec_out(a[1], (task->policy & 0xf) == SCHED_RR ? 100000000 : 4000000);
}

SYSCALL(getcpu)
{
    static const uint32_t zero;

    if (a[0] && copy_out(current->mm, a[0], &zero, sizeof(zero)) < 0)
        return -EFAULT;
    return a[1] ? copy_out(current->mm, a[1], &zero, sizeof(zero)) : 0;
}

/* ---- nice ---- */

static bool meant(const struct task *task, uint64_t which, uint64_t who)
{
    switch (which) {
    case PRIO_PROCESS:
        return task->tid == (who ? (int32_t)who : current->tid);
    case PRIO_PGRP:
        return task->process->pgid == (who ? (int32_t)who : current->process->pgid);
    default:
        return task->cred->uid == (who ? (uint32_t)who : current->cred->uid);
    }
}

SYSCALL(getpriority)
{
    const struct task *task;
    int64_t best = -ESRCH;

    if (a[0] > PRIO_USER)
        return -EINVAL;
    TAILQ_FOREACH(task, all_tasks, link)
    if (!task->exited && meant(task, a[0], a[1]) && 20 - task->nice > best)
        best = 20 - task->nice;
    return best;
}

SYSCALL(setpriority)
{
    struct task *task;
    int64_t result = -ESRCH;

    if (a[0] > PRIO_USER)
        return -EINVAL;
    TAILQ_FOREACH(task, all_tasks, link)
    {
        if (task->exited || !meant(task, a[0], a[1]))
            continue;
        if (!may_schedule(task))
            result = -EPERM;
        else if (set_nice(task, (int32_t)a[2]) < 0)
            result = -EACCES;
        else if (result == -ESRCH)
            result = 0;
    }
    return result;
}

SYSCALL(ioprio_get)
{
    if (a[0] < IOPRIO_WHO_PROCESS || a[0] > 3)
        return -EINVAL;
    if (a[0] == IOPRIO_WHO_PROCESS && !named(a[1]))
        return -ESRCH;
    return IOPRIO_NONE;
}

SYSCALL(ioprio_set)
{
    uint32_t class = (uint32_t)a[2] >> 13;

    if (a[0] < IOPRIO_WHO_PROCESS || a[0] > 3 || class > 3)
        return -EINVAL;
    if (class == 1 && !capable(CAP_SYS_NICE))
        return -EPERM;
    return a[0] == IOPRIO_WHO_PROCESS && !named(a[1]) ? -ESRCH : 0;
}
