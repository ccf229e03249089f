/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * limits - what a process may use, and what it has used.
 * Threads: the kernel lock.
 */
#include <sys/times.h>

#include "room.h"

#define CAP_SYS_RESOURCE_ 24
#define USAGE_THREAD 1
#define TICKS_PER_SECOND 100
#define NOFILE_MOST 1048576u

static struct timeval timeval_of(uint64_t ns)
{
    return (struct timeval){.tv_sec = (time_t)(ns / NS_PER_SECOND),
                            .tv_usec = (suseconds_t)(ns % NS_PER_SECOND / 1000)};
}

/* ---- rlimits ---- */

static int set_limit(struct process *process, unsigned which, const struct rlimit *new)
{
    struct rlimit *limit = &process->limits[which];

    if (new->rlim_cur > new->rlim_max)
        return -EINVAL;
    if (which == RLIMIT_NOFILE && new->rlim_max > NOFILE_MOST)
        return -EPERM;
    if (new->rlim_max > limit->rlim_max && !capable(CAP_SYS_RESOURCE_))
        return -EPERM;
    *limit = *new;
    if (which == RLIMIT_CPU)
        cputime_arm(process);
    return 0;
}

static bool may_limit(const struct task *task)
{
    const struct cred *self = current->cred, *its = task->cred;

    return task->process == current->process || capable(CAP_SYS_RESOURCE_) ||
           (self->uid == its->euid && self->uid == its->suid && self->uid == its->uid &&
            self->gid == its->egid && self->gid == its->sgid && self->gid == its->gid);
}

SYSCALL(prlimit64)
{
    struct task *task = a[0] ? task_by_tid((int32_t)a[0]) : current;
    struct rlimit new, old;
    int result;

    if (a[1] >= RLIM_NLIMITS)
        return -EINVAL;
    if (a[2] && copy_in(current->mm, &new, a[2], sizeof(new)) < 0)
        return -EFAULT;
    if (!task)
        return -ESRCH;
    if (!may_limit(task))
        return -EPERM;
    old = task->process->limits[a[1]];
    if (a[2]) {
        result = set_limit(task->process, (unsigned)a[1], &new);
        if (result < 0)
            return result;
    }
    return a[3] ? copy_out(current->mm, a[3], &old, sizeof(old)) : 0;
}

SYSCALL(getrlimit)
{
    if (a[0] >= RLIM_NLIMITS)
        return -EINVAL;
    return copy_out(current->mm, a[1], &current->process->limits[a[0]], sizeof(struct rlimit));
}

SYSCALL(setrlimit)
{
    struct rlimit new;

    if (copy_in(current->mm, &new, a[1], sizeof(new)) < 0)
        return -EFAULT;
    return a[0] >= RLIM_NLIMITS ? -EINVAL : set_limit(current->process, (unsigned)a[0], &new);
}

/* ---- what was used ---- */

static void add(struct rusage *sum, const struct rusage *more)
{
    sum->ru_minflt += more->ru_minflt;
    sum->ru_majflt += more->ru_majflt;
    sum->ru_nvcsw += more->ru_nvcsw;
    sum->ru_nivcsw += more->ru_nivcsw;
    if (sum->ru_maxrss < more->ru_maxrss)
        sum->ru_maxrss = more->ru_maxrss;
}

void usage_peak(struct rusage *usage, const struct mm *mm)
{
    long kib = mm ? (long)(mm->pages_peak * (PAGE_SIZE / 1024)) : 0;

    if (usage->ru_maxrss < kib)
        usage->ru_maxrss = kib;
}

static void add_live(struct rusage *sum, const struct process *process)
{
    const struct task *task;
    TAILQ_FOREACH(task, &process->tasks, process_link)
    {
        if (task->exited)
            continue;
        sum->ru_minflt += (long)task->minor_faults;
        sum->ru_nvcsw += (long)task->switches;
        usage_peak(sum, task->mm);
    }
}

void rusage_out_of(struct process *process, struct rusage *ret, int who)
{
    uint64_t user = 0, system = 0;

    *ret = (struct rusage){0};
    if (who != RUSAGE_CHILDREN) {
        process_cpu(process, &user, &system);
        add(ret, &process->usage);
        add_live(ret, process);
    }
    if (who != RUSAGE_SELF) {
        user += process->children_user_ns;
        system += process->children_system_ns;
        add(ret, &process->children_usage);
    }
    ret->ru_utime = timeval_of(user);
    ret->ru_stime = timeval_of(system);
}

static void rusage_of_task(struct task *task, struct rusage *ret)
{
    uint64_t user, system;

    *ret = (struct rusage){.ru_minflt = (long)task->minor_faults,
                           .ru_nvcsw = (long)task->switches,
                           .ru_maxrss = task->process->usage.ru_maxrss};
    usage_peak(ret, task->mm);
    task_cpu(task, &user, &system);
    ret->ru_utime = timeval_of(user);
    ret->ru_stime = timeval_of(system);
}

SYSCALL(getrusage)
{
    struct rusage usage;
    int who = (int)a[0];

    if (who == USAGE_THREAD)
        rusage_of_task(current, &usage);
    else if (who == RUSAGE_SELF || who == RUSAGE_CHILDREN)
        rusage_out_of(current->process, &usage, who);
    else
        return -EINVAL;
    return copy_out(current->mm, a[1], &usage, sizeof(usage));
}

static int64_t ticks(uint64_t ns)
{
    return (int64_t)(ns / (NS_PER_SECOND / TICKS_PER_SECOND));
}

SYSCALL(times)
{
    const struct process *process = current->process;
    uint64_t user, system;
    int64_t times[4];

    process_cpu(process, &user, &system);
    times[0] = ticks(user);
    times[1] = ticks(system);
    times[2] = ticks(process->children_user_ns);
    times[3] = ticks(process->children_system_ns);
    if (a[0] && copy_out(current->mm, a[0], times, sizeof(times)) < 0)
        return -EFAULT;
    return ticks(clock_boottime());
}
