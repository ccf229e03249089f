/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cputime - processor time: what tasks have used, and who wants to know when it is so much.
 *
 * User time is what the host counts of a stub, whose threads are the tasks of one address space. The difference is given out
 * at a stop after a tick of guest code or more, when a task leaves it, and when somebody asks: to those that were in guest
 * code since the last time, by how long, as the coarse clock has it. So sums of a process are right, and shares of its
 * threads are as good as that clock. Where the platform has no such clock, the coarse one alone is taken.
 * System time is what the host counts of a task's thread of the sentry: read when somebody asks, and kept when it ends.
 * Threads: the kernel lock; cputime_fire() in the events thread.
 */
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include "base/base.h"
#include "room.h"

#define LOOK_LEAST (NS_PER_SECOND / 250)

/* ---- system time ---- */

void cputime_begin(struct task *task)
{
    clockid_t id;

    task->host_clock = pthread_getcpuclockid(pthread_self(), &id) == 0 ? id : 0;
}

/* @seccomp sentry: clock_gettime */
static uint64_t system_time(const struct task *task)
{
    struct timespec used;

    if (!task->host_clock || clock_gettime(task->host_clock, &used) < 0)
        return task->cpu_system_ns;
    return task->cpu_system_ns + (uint64_t)used.tv_sec * NS_PER_SECOND + (uint64_t)used.tv_nsec;
}

void cputime_end(struct task *task)
{
    task->cpu_system_ns = system_time(task);
    task->host_clock = 0;
}

/* ---- user time ---- */

/* How long it was in guest code since the address space was last looked at. */
static uint64_t ran(const struct task *task, uint64_t now)
{
    uint64_t looked = task->mm->cpu_looked;
    uint64_t since = task->in_guest_since > looked ? task->in_guest_since : looked;

    return now > since ? now - since : 0;
}

static bool runs_in(const struct task *task, const struct mm *mm, const struct task *stopped)
{
    return task->mm == mm && (task->in_guest || task == stopped);
}

/* To the tasks of an address space, by how long they ran; with nobody that did it waits for the next look. */
static void share(struct task *of, const struct task *stopped)
{
    struct mm *mm = of->mm;
    uint64_t now = clock_coarse(), all = 0, used, left, part;
    struct task *task, *last = NULL;

    TAILQ_FOREACH(task, &of->process->tasks, process_link)
    if (runs_in(task, mm, stopped) && ran(task, now)) {
        all += ran(task, now);
        last = task;
    }
    if (!last)
        return;
    used = platform->cpu(mm->host_as);
    if (used <= mm->host_cpu_seen)
        return;
    left = used - mm->host_cpu_seen;
    TAILQ_FOREACH(task, &of->process->tasks, process_link)
    if (runs_in(task, mm, stopped) && task != last) {
        part =
            (uint64_t)((double)(used - mm->host_cpu_seen) * (double)ran(task, now) / (double)all);
        part = part < left ? part : left;
        task->cpu_user_ns += part;
        left -= part;
    }
    last->cpu_user_ns += left;
    mm->host_cpu_seen = used;
    mm->cpu_looked = now;
}

/* stopped: has just left guest code. */
static void settle(struct task *task, bool stopped)
{
    struct mm *mm = task->mm;
    uint64_t used;

    if (!mm || !platform->cpu)
        return;
    if (mm->tasks > 1) {
        share(task, stopped ? task : NULL);
        return;
    }
    used = platform->cpu(mm->host_as);
    if (used <= mm->host_cpu_seen)
        return;
    task->cpu_user_ns += used - mm->host_cpu_seen;
    mm->host_cpu_seen = used;
    mm->cpu_looked = clock_coarse();
}

void cputime_stop(struct task *task)
{
    uint64_t passed = clock_coarse() - task->in_guest_since;

    if (platform->cpu && passed)
        settle(task, true);
    else
        task->cpu_user_ns += passed;
}

void cputime_left(struct task *task)
{
    settle(task, false);
}

static uint64_t user_time(const struct task *task)
{
    bool counts = task->in_guest && task->mm && !platform->cpu;

    return task->cpu_user_ns + (counts ? ran(task, clock_coarse()) : 0);
}

/* ---- both ---- */

void task_cpu(struct task *task, uint64_t *ret_user, uint64_t *ret_system)
{
    settle(task, false);
    *ret_user = user_time(task);
    *ret_system = system_time(task);
}

void process_cpu(const struct process *process, uint64_t *ret_user, uint64_t *ret_system)
{
    struct task *task;

    *ret_user = process->dead_user_ns;
    *ret_system = process->dead_system_ns;
    TAILQ_FOREACH(task, &process->tasks, process_link)
    if (task->mm) { /* one look for all of them */
        settle(task, false);
        break;
    }
    TAILQ_FOREACH(task, &process->tasks, process_link)
    {
        *ret_user += user_time(task);
        *ret_system += system_time(task);
    }
}

/* ---- who waits for it ---- */

/* A dead one is not: its object goes when somebody waits for it, and no timer may know it then. */
static bool is_waited_for(const struct process *process)
{
    if (!process->n_tasks)
        return false;
    return process->itimer_virtual || process->itimer_prof ||
           process->limits[RLIMIT_CPU].rlim_cur != RLIM_INFINITY;
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

    if (!is_waited_for(process)) {
        timer_cancel(&process->cpu_timer);
        return;
    }
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
