/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * wait - who sleeps, and how they are woken.
 * Invariants: wake_word is 0 when nobody has woken the task since its last look; what sets it does so under the kernel lock, and
 * task_sleep() lets the lock go only afterwards, so that no wake-up is lost.
 * Threads: the kernel lock; the sleeping itself without it.
 */
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs.h"
#include "task.h"

_Thread_local struct task *current;

void waitq_init(struct waitq *queue)
{
    TAILQ_INIT(&queue->waiters);
}

void waiter_add(struct waiter *waiter, struct waitq *queue, uint32_t events)
{
    kernel_assert_locked();
    waiter_remove(waiter);
    waiter->queue = queue;
    waiter->events = events;
    if (waiter->kind == WAITER_TASK)
        waiter->task = current;
    if (waiter->kind == WAITER_EPOLL &&
        !waiter->exclusive) /* who came last hears it first, as in Linux */
        TAILQ_INSERT_HEAD(&queue->waiters, waiter, link);
    else
        TAILQ_INSERT_TAIL(&queue->waiters, waiter, link);
}

void waiter_remove(struct waiter *waiter)
{
    if (!waiter->queue)
        return;
    kernel_assert_locked();
    TAILQ_REMOVE(&waiter->queue->waiters, waiter, link);
    waiter->queue = NULL;
}

/* True: it had not been woken yet. */
static bool wake_task(struct task *task)
{
    if (__atomic_exchange_n(&task->wake_word, 1, __ATOMIC_RELEASE))
        return false;
    syscall(SYS_futex, &task->wake_word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    return true;
}

static bool wake(struct waiter *waiter)
{
    return waiter->kind == WAITER_TASK ? wake_task(waiter->task) : epoll_ready(waiter->item);
}

/* Who takes it has it alone; what ends a file is for all. */
static bool is_for_one(uint32_t events)
{
    uint32_t rest = events & ~(uint32_t)(POLLRDNORM | POLLWRNORM);

    return rest == POLLIN || rest == POLLOUT;
}

bool waitq_wake_some(struct waitq *queue, uint32_t events, unsigned most)
{
    bool alone = is_for_one(events), taken = false;
    struct waiter *waiter, *next;
    unsigned woken = 0;

    kernel_assert_locked();
    for (waiter = TAILQ_FIRST(&queue->waiters); waiter; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        if (waiter->events && events && !(waiter->events & events))
            continue;
        if (!waiter->exclusive)
            wake(waiter);
        else if (waiter->kind == WAITER_EPOLL && !(alone && taken))
            taken = wake(waiter) || taken;
        else if (waiter->kind == WAITER_TASK && !(most && woken == most))
            woken += wake(waiter);
    }
    return woken > 0;
}

void waitq_wake(struct waitq *queue, uint32_t events)
{
    waitq_wake_some(queue, events, 0);
}

void task_wake(struct task *task)
{
    kernel_assert_locked();
    wake_task(task);
}

static bool ended(const struct task *task, bool killable)
{
    return task->killed || (!killable && signal_pending(task));
}

static int sleep_until(uint64_t deadline, bool killable)
{
    struct task *task = current;
    struct timespec until = {.tv_sec = (time_t)(deadline / 1000000000),
                             .tv_nsec = (long)(deadline % 1000000000)};
    bool woken;

    if (ended(task, killable))
        return -ERESTARTSYS;
    task->sleeping = true;
    kernel_unlock();
    while (__atomic_load_n(&task->wake_word, __ATOMIC_ACQUIRE) == 0)
        if (syscall(SYS_futex, &task->wake_word, FUTEX_WAIT_BITSET_PRIVATE, 0,
                    deadline == WAIT_FOREVER ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY) < 0 &&
            errno == ETIMEDOUT)
            break;
    kernel_lock();
    task->sleeping = false;
    woken = __atomic_exchange_n(&task->wake_word, 0, __ATOMIC_ACQUIRE) != 0;
    if (ended(task, killable))
        return -ERESTARTSYS;
    return woken ? 0 : -ETIMEDOUT;
}

int task_sleep(uint64_t deadline)
{
    return sleep_until(deadline, false);
}

int task_sleep_killable(uint64_t deadline)
{
    return sleep_until(deadline, true);
}
