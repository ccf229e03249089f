/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * itimer - getitimer, setitimer, alarm. ITIMER_REAL by a timer; the other two by processor time (cputime.c).
 * Threads: the kernel lock; itimer_fire() in the events thread.
 */
#include <sys/time.h>

#include "base/base.h"
#include "room.h"

struct guest_itimerval {
    struct guest_timeval interval, value;
};

static struct guest_timeval timeval_of(uint64_t ns)
{
    ns = add_saturating(ns, 999); /* what is left is never shown as nothing */
    return (struct guest_timeval){.seconds = (int64_t)(ns / NS_PER_SECOND),
                                  .microseconds = (int64_t)(ns % NS_PER_SECOND / 1000)};
}

static int ns_of(const struct guest_timeval *time, uint64_t *ret_ns)
{
    if (time->seconds < 0 || time->microseconds < 0 || time->microseconds >= 1000000)
        return -EINVAL;
    if ((uint64_t)time->seconds >= INT64_MAX / NS_PER_SECOND)
        *ret_ns = INT64_MAX;
    else
        *ret_ns = (uint64_t)time->seconds * NS_PER_SECOND + (uint64_t)time->microseconds * 1000;
    return 0;
}

/* Processor time that the timer counts. */
static uint64_t counted(const struct process *process, int which)
{
    uint64_t user, system;

    process_cpu(process, &user, &system);
    return which == ITIMER_VIRTUAL ? user : user + system;
}

static void get(struct process *process, int which, uint64_t *ret_left, uint64_t *ret_interval)
{
    uint64_t now, at;

    if (which == ITIMER_REAL) {
        now = clock_monotonic();
        at = process->itimer_real.when;
        *ret_interval = process->itimer_real_interval;
    } else {
        now = counted(process, which);
        at = which == ITIMER_VIRTUAL ? process->itimer_virtual : process->itimer_prof;
        *ret_interval = which == ITIMER_VIRTUAL ? process->itimer_virtual_interval
                                                : process->itimer_prof_interval;
    }
    *ret_left = at == 0 ? 0 : at > now ? at - now : 1000;
}

static int set(struct process *process, int which, uint64_t value, uint64_t interval)
{
    uint64_t *at, *every, now;

    if (which == ITIMER_REAL) {
        timer_cancel(&process->itimer_real);
        process->itimer_real_interval = interval;
        process->itimer_real_due = clock_monotonic() + value;
        return value ? timer_set(&process->itimer_real, process->itimer_real_due) : 0;
    }
    now = counted(process, which);
    at = which == ITIMER_VIRTUAL ? &process->itimer_virtual : &process->itimer_prof;
    every = which == ITIMER_VIRTUAL ? &process->itimer_virtual_interval
                                    : &process->itimer_prof_interval;
    *at = value ? now + value : 0;
    *every = interval;
    cputime_arm(process);
    return 0;
}

/* The next one is by when this one was due, not by when it came: a tick that is late makes no other late. */
static void next_tick(struct process *process, uint64_t interval)
{
    uint64_t now = clock_monotonic(), due = process->itimer_real_due;

    due += interval * (1 + (now > due ? (now - due) / interval : 0));
    process->itimer_real_due = due;
    timer_set(&process->itimer_real, due);
}

void itimer_fire(void *owner)
{
    struct process *process = owner;
    siginfo_t info = {.si_signo = SIGALRM, .si_code = SI_KERNEL};

    if (process->itimer_real_interval)
        next_tick(process, process->itimer_real_interval);
    signal_process(process, &info);
}

static int known(uint64_t which)
{
    return which == ITIMER_REAL || which == ITIMER_VIRTUAL || which == ITIMER_PROF;
}

static int out(uint64_t to, int which)
{
    struct guest_itimerval value;
    uint64_t left, interval;

    get(current->process, which, &left, &interval);
    value = (struct guest_itimerval){.interval = timeval_of(interval), .value = timeval_of(left)};
    if (!interval)
        value.interval = (struct guest_timeval){0};
    if (!left)
        value.value = (struct guest_timeval){0};
    return copy_out(current->mm, to, &value, sizeof(value));
}

SYSCALL(getitimer)
{
    return known(a[0]) ? out(a[1], (int)a[0]) : -EINVAL;
}

SYSCALL(setitimer)
{
    struct guest_itimerval new = {0};
    uint64_t value, interval;

    if (a[1] && copy_in(current->mm, &new, a[1], sizeof(new)) < 0)
        return -EFAULT;
    if (!known(a[0]) || ns_of(&new.value, &value) < 0 || ns_of(&new.interval, &interval) < 0)
        return -EINVAL;
    if (a[2] && out(a[2], (int)a[0]) < 0)
        return -EFAULT;
    return set(current->process, (int)a[0], value, interval);
}

SYSCALL(alarm)
{
    uint64_t left, interval, seconds;
    int result;

    get(current->process, ITIMER_REAL, &left, &interval);
    result = set(current->process, ITIMER_REAL, (uint32_t)a[0] * NS_PER_SECOND, 0);
    if (result < 0)
        return result;
    seconds = (left + NS_PER_SECOND / 2) / NS_PER_SECOND;
    return (int64_t)(left && !seconds ? 1 : seconds);
}
