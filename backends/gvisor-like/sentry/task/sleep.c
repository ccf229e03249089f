/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * sleep - clocks that are read and slept by.
 * A sleep until a time of the real-time clock is by what that is on the monotonic clock now: the host's steps are not followed.
 * Threads: the kernel lock; clock_coarse() any.
 */
#include <time.h>

#include "room.h"

#define CLOCKFD 3 /* low bits of a dynamic clock's id */
#define CPU_CLOCK_PROF 0
#define CPU_CLOCK_VIRT 1
#define CPU_CLOCK_SCHED 2
#define CPU_PER_THREAD 4

uint64_t add_saturating(uint64_t x, uint64_t y)
{
    return x + y < x ? UINT64_MAX : x + y;
}

static int to_ns(const struct guest_timespec *time, uint64_t *ret_ns)
{
    if (time->seconds < 0 || time->nanoseconds < 0 || time->nanoseconds >= (int64_t)NS_PER_SECOND)
        return -EINVAL;
    if ((uint64_t)time->seconds > UINT64_MAX / NS_PER_SECOND - 1)
        *ret_ns = UINT64_MAX;
    else
        *ret_ns = (uint64_t)time->seconds * NS_PER_SECOND + (uint64_t)time->nanoseconds;
    return 0;
}

int timespec_in(uint64_t address, uint64_t *ret_ns)
{
    struct guest_timespec time;

    if (copy_in(current->mm, &time, address, sizeof(time)) < 0)
        return -EFAULT;
    return to_ns(&time, ret_ns);
}

int timespec_out(uint64_t address, uint64_t ns)
{
    struct guest_timespec time = {.seconds = (int64_t)(ns / NS_PER_SECOND),
                                  .nanoseconds = (int64_t)(ns % NS_PER_SECOND)};

    return copy_out(current->mm, address, &time, sizeof(time));
}

/* @seccomp sentry: clock_gettime */
uint64_t clock_coarse(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

/* The clocks of a task or process, whose id has its number: ~id << 3 | kind. */
static int cpu_clock(int32_t id, uint64_t *ret_ns)
{
    int32_t tid = ~(id >> 3);
    struct task *task = tid ? task_by_tid(tid) : current;
    uint64_t user, system;

    if (!task || (id & 3) == CLOCKFD)
        return -EINVAL;
    if (id & CPU_PER_THREAD) {
        if (current && task->process != current->process)
            return -EINVAL;
        task_cpu(task, &user, &system);
    } else {
        if (tid && task->process->pid != tid)
            return -EINVAL;
        process_cpu(task->process, &user, &system);
    }
    *ret_ns = (id & 3) == CPU_CLOCK_VIRT ? user : user + system;
    return 0;
}

int64_t clock_read(int32_t id, uint64_t *ret_ns)
{
    uint64_t user, system;

    if (id < 0)
        return cpu_clock(id, ret_ns);
    switch (id) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_TAI:
        *ret_ns = clock_realtime();
        return 0;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
        *ret_ns = clock_monotonic();
        return 0;
    case CLOCK_BOOTTIME:
        *ret_ns = clock_boottime();
        return 0;
    case CLOCK_PROCESS_CPUTIME_ID:
        process_cpu(current->process, &user, &system);
        *ret_ns = user + system;
        return 0;
    case CLOCK_THREAD_CPUTIME_ID:
        task_cpu(current, &user, &system);
        *ret_ns = user + system;
        return 0;
    default:
        return -EINVAL;
    }
}

/* Clocks without timers; those of alarms need a clock that runs while the machine is off. */
bool not_slept_by(int32_t id)
{
    return id == CLOCK_MONOTONIC_RAW || id == CLOCK_REALTIME_COARSE ||
           id == CLOCK_MONOTONIC_COARSE || id == CLOCK_REALTIME_ALARM || id == CLOCK_BOOTTIME_ALARM;
}

SYSCALL(clock_gettime)
{
    uint64_t ns;
    int64_t result = clock_read((int32_t)a[0], &ns);

    return result < 0 ? result : timespec_out(a[1], ns);
}

/* The host's clock is not the guest's to set. */
SYSCALL(clock_settime)
{
    uint64_t ns;
    int result;

    if (a[0] != CLOCK_REALTIME)
        return -EINVAL;
    result = timespec_in(a[1], &ns);
    return result < 0 ? result : -EPERM;
}

SYSCALL(clock_getres)
{
    uint64_t ns;
    int64_t result = clock_read((int32_t)a[0], &ns);
    bool coarse = a[0] == CLOCK_REALTIME_COARSE || a[0] == CLOCK_MONOTONIC_COARSE;

    if (result < 0 || !a[1])
        return result;
    return timespec_out(a[1], coarse ? 4000000 : 1);
}

SYSCALL(gettimeofday)
{
    uint64_t ns = clock_realtime();
    struct guest_timeval time = {.seconds = (int64_t)(ns / NS_PER_SECOND),
                                 .microseconds = (int64_t)(ns % NS_PER_SECOND / 1000)};
    static const int32_t zone[2];

    if (a[0] && copy_out(current->mm, a[0], &time, sizeof(time)) < 0)
        return -EFAULT;
    return a[1] ? copy_out(current->mm, a[1], zone, sizeof(zone)) : 0;
}

SYSCALL(time)
{
    int64_t seconds = (int64_t)(clock_realtime() / NS_PER_SECOND);

    if (a[0] && copy_out(current->mm, a[0], &seconds, sizeof(seconds)) < 0)
        return -EFAULT;
    return seconds;
}

/* ---- sleeping ---- */

/* Until `deadline`, on clock_monotonic(); what is left goes to `remaining`, when that is not 0. */
static int64_t sleep_until(uint64_t deadline, uint64_t remaining)
{
    uint64_t now;
    int result = 0;

    while (result == 0 && clock_monotonic() < deadline)
        result = task_sleep(deadline);
    if (result != -ERESTARTSYS)
        return 0;
    now = clock_monotonic();
    if (now >= deadline)
        return 0;
    if (remaining && timespec_out(remaining, deadline - now) < 0)
        return -EFAULT;
    current->restart[0] = deadline;
    current->restart[1] = remaining;
    current->restart_kind = RESTART_NANOSLEEP;
    return -ERESTART_RESTARTBLOCK;
}

int64_t nanosleep_restart(const uint64_t restart[6])
{
    return sleep_until(restart[0], restart[1]);
}

SYSCALL(nanosleep)
{
    uint64_t ns;
    int result = timespec_in(a[0], &ns);

    if (result < 0)
        return result;
    return sleep_until(add_saturating(clock_monotonic(), ns), a[1]);
}

/* What processor time a process has used: looked at again as often as it may have got there. */
static int64_t sleep_by_cpu(int32_t id, uint64_t until, bool absolute, uint64_t remaining)
{
    uint64_t now = 0, began;
    int64_t result = clock_read(id, &began);
    int slept = 0;

    if (result < 0)
        return result;
    if (!absolute)
        until = add_saturating(until, began);
    while (clock_read(id, &now) == 0 && now < until && slept != -ERESTARTSYS)
        slept = task_sleep(add_saturating(clock_monotonic(), (until - now) / 2 + 1000000));
    if (slept != -ERESTARTSYS || now >= until)
        return 0;
    if (!absolute && remaining && timespec_out(remaining, until - now) < 0)
        return -EFAULT;
    return absolute ? -ERESTARTNOHAND : -EINTR;
}

SYSCALL(clock_nanosleep)
{
    int32_t id = (int32_t)a[0];
    bool absolute = a[1] & TIMER_ABSTIME;
    uint64_t ns, now, mono = clock_monotonic();
    int64_t result;

    if (id == CLOCK_THREAD_CPUTIME_ID)
        return -EINVAL;
    if (not_slept_by(id))
        return -EOPNOTSUPP;
    result = clock_read(id, &now);
    if (result == 0)
        result = timespec_in(a[2], &ns);
    if (result < 0)
        return result;
    if (id < 0 || id == CLOCK_PROCESS_CPUTIME_ID)
        return sleep_by_cpu(id, ns, absolute, a[3]);
    if (!absolute)
        return sleep_until(add_saturating(mono, ns), a[3]);
    result = sleep_until(ns > now ? add_saturating(mono, ns - now) : 0, 0);
    return result == -ERESTART_RESTARTBLOCK ? -ERESTARTNOHAND : result;
}

SYSCALL(restart_syscall)
{
    uint64_t restart[6];
    int64_t kind = current->restart_kind;
    unsigned i;

    (void)a;
    for (i = 0; i < 6; i++)
        restart[i] = current->restart[i];
    current->restart_kind = RESTART_NONE;
    switch (kind) {
    case RESTART_NANOSLEEP:
        return nanosleep_restart(restart);
    case RESTART_FUTEX:
        return futex_restart(restart);
    case RESTART_POLL:
        return poll_restart ? poll_restart(restart) : -EINTR;
    default:
        return -EINTR;
    }
}
