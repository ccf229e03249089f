/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * posix_timer - timer_create and its family.
 *
 * One signal of a timer pends at a time. What falls due meanwhile is counted and told as its overrun when it is taken.
 * A timer of a processor-time clock is looked at as often as that clock may have got there.
 * Invariants: the timers of a process are a list from process->posix_timers; fork does not copy them, exec and exit end them.
 * Threads: the kernel lock; posix_timer_fire() in the events thread.
 */
#include <time.h>

#include "base/base.h"
#include "room.h"

#define TIMERS_MOST 4096
#define OVERRUN_MOST INT32_MAX
#define CPU_LOOK_LEAST 1000000u

struct posix_timer {
    struct posix_timer *next;
    struct process *process;
    struct timer timer;
    int32_t id, clock, notify, signo, tid; /* tid: SIGEV_THREAD_ID; 0: the process */
    uint64_t value;                        /* sigval */
    uint64_t at, interval;                 /* `at`: on its own clock; 0: not set */
    uint64_t missed;                       /* since the signal that pends was sent */
    uint64_t overrun;                      /* of the one that was taken last */
    bool pends;
};

struct guest_sigevent {
    uint64_t value;
    int32_t signo, notify, thread;
    int32_t padding[11];
};
static_assert(sizeof(struct guest_sigevent) == 64, "as the kernel has it");

struct guest_itimerspec {
    struct guest_timespec interval, value;
};

static bool by_cpu(const struct posix_timer *timer)
{
    return timer->clock < 0 || timer->clock == CLOCK_PROCESS_CPUTIME_ID ||
           timer->clock == CLOCK_THREAD_CPUTIME_ID;
}

static struct posix_timer *find(int32_t id)
{
    struct posix_timer *timer;

    for (timer = current->process->posix_timers; timer && timer->id != id; timer = timer->next)
        ;
    return timer;
}

static uint64_t now_of(const struct posix_timer *timer)
{
    uint64_t now = 0;

    clock_read(timer->clock, &now);
    return now;
}

static int arm(struct posix_timer *timer)
{
    uint64_t now = now_of(timer), left = timer->at > now ? timer->at - now : 0;

    if (by_cpu(timer) && left)
        left = left / 2 < CPU_LOOK_LEAST ? (uint64_t)CPU_LOOK_LEAST : left / 2;
    return timer_set(&timer->timer, add_saturating(clock_monotonic(), left));
}

/* Moves it past now; how often it was due. */
static uint64_t forward(struct posix_timer *timer, uint64_t now)
{
    uint64_t times = 1;

    if (!timer->interval) {
        timer->at = 0;
        return times;
    }
    times += (now - timer->at) / timer->interval;
    timer->at += times * timer->interval;
    return times;
}

static void send(struct posix_timer *timer)
{
    siginfo_t info = {.si_signo = timer->signo, .si_code = SI_TIMER};
    struct task *task = timer->tid ? task_by_tid(timer->tid) : NULL;

    if (timer->notify == SIGEV_NONE || (timer->tid && (!task || task->process != timer->process)))
        return;
    info.si_timerid = timer->id;
    info.si_value.sival_ptr = (void *)(uintptr_t)timer->value;
    signal_send(task, timer->process, &info, timer);
}

void posix_timer_queued(struct posix_timer *timer)
{
    timer->pends = true;
}

void posix_timer_fire(void *owner)
{
    struct posix_timer *timer = owner;
    uint64_t now = now_of(timer), times;

    if (!timer->at)
        return;
    if (now < timer->at) { /* a processor clock that has not got there */
        arm(timer);
        return;
    }
    times = forward(timer, now);
    if (timer->pends) {
        timer->missed += times;
    } else {
        timer->missed = times - 1;
        send(timer);
    }
    if (timer->at)
        arm(timer);
}

void posix_timer_taken(struct posix_timer *timer, siginfo_t *info)
{
    timer->pends = false;
    timer->overrun = timer->missed < OVERRUN_MOST ? timer->missed : OVERRUN_MOST;
    timer->missed = 0;
    info->si_overrun = (int)timer->overrun;
}

static void end(struct posix_timer *timer)
{
    timer_cancel(&timer->timer);
    signal_timer_gone(timer->process, timer);
    arena_free(timer);
}

void posix_timers_end(struct process *process)
{
    struct posix_timer *timer;

    while ((timer = process->posix_timers)) {
        process->posix_timers = timer->next;
        end(timer);
    }
}

/* ---- the calls ---- */

/* A clock of the caller's own by its number: now_of() is asked by a thread that is no task. */
static int32_t numbered(int32_t clock)
{
    int32_t whose;

    if (clock == CLOCK_THREAD_CPUTIME_ID)
        clock = -2;
    else if (clock == CLOCK_PROCESS_CPUTIME_ID)
        clock = -6;
    if (clock >= 0 || clock >> 3 != -1) /* ~0: as the C library says it */
        return clock;
    whose = clock & 4 ? current->tid : current->process->pid;
    return (int32_t)(~(uint32_t)whose << 3 | ((uint32_t)clock & 7));
}

static int event_in(uint64_t from, struct posix_timer *timer)
{
    struct guest_sigevent event = {.notify = SIGEV_SIGNAL, .signo = SIGALRM};
    struct task *task;

    event.value = (uint64_t)(uint32_t)timer->id;
    if (from && copy_in(current->mm, &event, from, sizeof(event)) < 0)
        return -EFAULT;
    if (event.notify == (SIGEV_SIGNAL | SIGEV_THREAD_ID)) {
        task = task_by_tid(event.thread);
        if (!task || task->process != current->process)
            return -EINVAL;
        timer->tid = task->tid;
    } else if (event.notify != SIGEV_SIGNAL && event.notify != SIGEV_NONE &&
               event.notify != SIGEV_THREAD) {
        return -EINVAL;
    }
    if (event.notify != SIGEV_NONE && (event.signo < 1 || event.signo > SIGNALS))
        return -EINVAL;
    timer->notify = event.notify;
    timer->signo = event.signo;
    timer->value = event.value;
    return 0;
}

static unsigned count(const struct process *process)
{
    const struct posix_timer *timer;
    unsigned n = 0;

    for (timer = process->posix_timers; timer; timer = timer->next)
        n++;
    return n;
}

SYSCALL(timer_create)
{
    struct process *process = current->process;
    struct posix_timer *timer;
    uint64_t unused;
    int result;

    if (not_slept_by((int32_t)a[0]))
        return -EOPNOTSUPP;
    if (clock_read((int32_t)a[0], &unused) < 0)
        return -EINVAL;
    timer = count(process) < TIMERS_MOST ? arena_alloc(ARENA_TIMER, sizeof(*timer)) : NULL;
    if (!timer)
        return -EAGAIN;
    timer->timer = (struct timer){.kind = TIMER_POSIX, .owner = timer};
    timer->process = process;
    timer->clock = numbered((int32_t)a[0]);
    timer->id = process->next_timer_id;
    result = event_in(a[1], timer);
    if (result == 0)
        result = copy_out(current->mm, a[2], &timer->id, sizeof(timer->id));
    if (result < 0) {
        arena_free(timer);
        return result;
    }
    process->next_timer_id = process->next_timer_id == INT32_MAX ? 0 : process->next_timer_id + 1;
    timer->next = process->posix_timers;
    process->posix_timers = timer;
    return 0;
}

static int value_out(const struct posix_timer *timer, uint64_t to)
{
    struct guest_itimerspec value = {0};
    uint64_t now = now_of(timer), left;

    left = timer->at == 0                ? 0
           : timer->at > now             ? timer->at - now
           : timer->notify == SIGEV_NONE ? 0
                                         : 1;
    value.value.seconds = (int64_t)(left / NS_PER_SECOND);
    value.value.nanoseconds = (int64_t)(left % NS_PER_SECOND);
    value.interval.seconds = (int64_t)(timer->interval / NS_PER_SECOND);
    value.interval.nanoseconds = (int64_t)(timer->interval % NS_PER_SECOND);
    return copy_out(current->mm, to, &value, sizeof(value));
}

SYSCALL(timer_settime)
{
    struct posix_timer *timer = find((int32_t)a[0]);
    uint64_t interval, value;
    int result;

    if (!a[2])
        return -EINVAL;
    result = timespec_in(a[2], &interval);
    if (result == 0)
        result = timespec_in(a[2] + sizeof(struct guest_timespec), &value);
    if (result < 0)
        return result;
    if (!timer)
        return -EINVAL;
    if (a[3] && value_out(timer, a[3]) < 0)
        return -EFAULT;
    timer_cancel(&timer->timer);
    timer->at = 0;
    timer->interval = value ? interval : 0;
    timer->missed = timer->overrun = 0;
    if (!value)
        return 0;
    timer->at = a[1] & TIMER_ABSTIME ? value : add_saturating(now_of(timer), value);
    return arm(timer);
}

SYSCALL(timer_gettime)
{
    const struct posix_timer *timer = find((int32_t)a[0]);

    return timer ? value_out(timer, a[1]) : -EINVAL;
}

SYSCALL(timer_getoverrun)
{
    const struct posix_timer *timer = find((int32_t)a[0]);

    return timer ? (int64_t)timer->overrun : -EINVAL;
}

SYSCALL(timer_delete)
{
    struct posix_timer *timer = find((int32_t)a[0]), *other;

    if (!timer)
        return -EINVAL;
    if (current->process->posix_timers == timer) {
        current->process->posix_timers = timer->next;
    } else {
        for (other = current->process->posix_timers; other->next != timer; other = other->next)
            ;
        other->next = timer->next;
    }
    end(timer);
    return 0;
}
