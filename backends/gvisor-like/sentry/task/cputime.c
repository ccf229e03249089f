/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cputime - processor time: what tasks have used, and who wants to know when it is so much.
 *
 * The host counts what a stub has used, whose threads are the tasks of one address space. The difference goes to the task
 * that is looked at: at a stop after a tick of guest code or more, at its end, and when somebody asks. So sums of a process
 * are right; between its threads they may be given to another. Where the platform has no such clock, the time between entering
 * guest code and the stop is taken, by the coarse clock. What the sentry does for a task is not counted.
 * Threads: the kernel lock; cputime_fire() in the events thread.
 */
#include <sys/resource.h>

#include "base/base.h"
#include "room.h"

#define LOOK_LEAST (NS_PER_SECOND / 250)

static void settle(struct task *task)
{
    struct mm *mm = task->mm;
    uint64_t used = mm && platform->cpu ? platform->cpu(mm->host_as) : 0;

    if (!mm || used <= mm->host_cpu_seen)
        return;
    task->cpu_user_ns += used - mm->host_cpu_seen;
    mm->host_cpu_seen = used;
}

void cputime_stop(struct task *task)
{
    uint64_t passed = clock_coarse() - task->in_guest_since;

    if (platform->cpu && passed)
        settle(task);
    else
        task->cpu_user_ns += passed;
}

void cputime_left(struct task *task)
{
    settle(task);
}

void task_cpu(struct task *task, uint64_t *ret_user, uint64_t *ret_system)
{
    uint64_t now;

    if (task->in_guest)
        settle(task);
    *ret_user = task->cpu_user_ns;
    *ret_system = task->cpu_system_ns;
    if (!task->in_guest || platform->cpu)
        return;
    now = clock_coarse();
    if (now > task->in_guest_since)
        *ret_user += now - task->in_guest_since;
}

void process_cpu(const struct process *process, uint64_t *ret_user, uint64_t *ret_system)
{
    struct task *task;
    uint64_t user, system;

    *ret_user = process->dead_user_ns;
    *ret_system = process->dead_system_ns;
    TAILQ_FOREACH(task, &process->tasks, process_link)
    {
        task_cpu(task, &user, &system);
        *ret_user += user;
        *ret_system += system;
    }
}

static void earliest(uint64_t *at, uint64_t left)
{
    if (left < *at)
        *at = left;
}

/* Looked at again when as much time has passed as is left at the least, were all its tasks to run. */
void cputime_arm(struct process *process)
{
    const struct rlimit *limit = &process->limits[RLIMIT_CPU];
    uint64_t user, system, sum, left = UINT64_MAX;
    unsigned running = process->n_tasks ? process->n_tasks : 1;

    process_cpu(process, &user, &system);
    sum = user + system;
    if (process->itimer_virtual)
        earliest(&left, process->itimer_virtual > user ? process->itimer_virtual - user : 0);
    if (process->itimer_prof)
        earliest(&left, process->itimer_prof > sum ? process->itimer_prof - sum : 0);
    if (limit->rlim_cur != RLIM_INFINITY && limit->rlim_cur < UINT64_MAX / NS_PER_SECOND) {
        uint64_t at = limit->rlim_cur * NS_PER_SECOND;

        if (process->cpu_warned > at)
            at = process->cpu_warned;
        earliest(&left, at > sum ? at - sum : 0);
    }
    if (left == UINT64_MAX) {
        timer_cancel(&process->cpu_timer);
        return;
    }
    left /= running;
    timer_set(&process->cpu_timer,
              clock_monotonic() + (left < LOOK_LEAST ? (uint64_t)LOOK_LEAST : left));
}

static void due(struct process *process, uint64_t *at, uint64_t interval, uint64_t now, int signo)
{
    siginfo_t info = {.si_signo = signo, .si_code = SI_KERNEL};

    if (!*at || now < *at)
        return;
    *at = interval ? now + interval : 0;
    signal_process(process, &info);
}

static void check_limit(struct process *process, uint64_t used)
{
    const struct rlimit *limit = &process->limits[RLIMIT_CPU];
    siginfo_t info = {.si_signo = SIGXCPU, .si_code = SI_KERNEL};

    if (limit->rlim_max != RLIM_INFINITY && used / NS_PER_SECOND >= limit->rlim_max) {
        info.si_signo = SIGKILL;
        signal_process(process, &info);
        return;
    }
    if (limit->rlim_cur == RLIM_INFINITY || used / NS_PER_SECOND < limit->rlim_cur ||
        used < process->cpu_warned)
        return;
    process->cpu_warned = used + NS_PER_SECOND; /* once a second from now on */
    signal_process(process, &info);
}

void cputime_fire(void *owner)
{
    struct process *process = owner;
    uint64_t user, system;

    process_cpu(process, &user, &system);
    due(process, &process->itimer_virtual, process->itimer_virtual_interval, user, SIGVTALRM);
    due(process, &process->itimer_prof, process->itimer_prof_interval, user + system, SIGPROF);
    check_limit(process, user + system);
    cputime_arm(process);
}
