/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * near - keeps a thread of the sentry and the guest thread that it runs on one processor, as long as they only take turns.
 * Why: a stop wakes another thread. On a processor that sleeps that costs several times the stop itself, and the host's
 * scheduler likes to choose such a one.
 * How: after a short run of guest code both may run where the sentry's thread woke up and nowhere else. After a PERIOD of
 * that, and when guest code has run for long, both may run everywhere again: the host chooses the next place.
 * What neither ends by itself, a run that goes on or a thread that sleeps, is let loose by a thread that looks at all pairs
 * as long as there is one.
 * Invariants: nothing but speed depends on this; a host that refuses is not asked again.
 * Threads: near_enter() and near_stopped() by the context's own; the list and what changes a pair under a lock of its own.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ptrace.h"

#define PERIOD 100 /* ms; each new choice moves what the guest has in its processor's caches */
#define LOOK 12    /* ms */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static TAILQ_HEAD(, platform_context) all = TAILQ_HEAD_INITIALIZER(all);
static cpu_set_t everywhere; /* where the sentry may run */
static bool off = true;      /* one processor, or the host refuses */
static uint32_t looking;     /* futex: there may be a pair */
static uint32_t never;       /* futex */

/* @seccomp sentry: sched_setaffinity getcpu */
static void allow(pid_t tid, const cpu_set_t *set)
{
    if (sched_setaffinity(tid, sizeof(*set), set) < 0 && errno != ESRCH)
        __atomic_store_n(&off, true, __ATOMIC_RELAXED);
}

static void let_loose(struct platform_context *context)
{
    allow(context->near.sentry, &everywhere);
    allow(context->tid, &everywhere);
    __atomic_store_n(&context->near.bound, false, __ATOMIC_RELAXED);
}

static void bind_here(struct platform_context *context)
{
    int cpu = sched_getcpu();
    cpu_set_t here;

    if (cpu < 0 || cpu >= CPU_SETSIZE)
        return;
    CPU_ZERO(&here);
    CPU_SET((unsigned)cpu, &here);
    pthread_mutex_lock(&lock);
    allow(context->near.sentry, &here);
    allow(context->tid, &here);
    __atomic_store_n(&context->near.bound, true, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
    if (__atomic_exchange_n(&looking, 1, __ATOMIC_SEQ_CST) == 0)
        syscall(SYS_futex, &looking, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Coarse, and so for free: what crosses no tick was short. */
static uint64_t now(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &at);
    return (uint64_t)at.tv_sec * 1000 + (uint64_t)at.tv_nsec / 1000000;
}

void near_join(struct platform_context *context)
{
    context->near.sentry = (pid_t)syscall(SYS_gettid);
    if (__atomic_load_n(&off, __ATOMIC_RELAXED))
        return;
    pthread_mutex_lock(&lock);
    let_loose(context); /* both have it from a thread that was bound, maybe */
    TAILQ_INSERT_TAIL(&all, context, near.link);
    context->near.listed = true;
    pthread_mutex_unlock(&lock);
}

void near_leave(struct platform_context *context)
{
    if (!context->near.listed)
        return;
    pthread_mutex_lock(&lock);
    TAILQ_REMOVE(&all, context, near.link);
    if (context->near.bound)
        let_loose(context);
    pthread_mutex_unlock(&lock);
}

void near_enter(struct platform_context *context)
{
    struct near *near = &context->near;

    if (__atomic_load_n(&off, __ATOMIC_RELAXED))
        return;
    near->entered = now();
    __atomic_store_n(&near->runs, near->runs + 1, __ATOMIC_RELAXED);
    if (!__atomic_load_n(&near->bound, __ATOMIC_RELAXED) || near->entered - near->since < PERIOD)
        return;
    pthread_mutex_lock(&lock);
    let_loose(context);
    pthread_mutex_unlock(&lock);
}

void near_stopped(struct platform_context *context)
{
    struct near *near = &context->near;
    uint64_t at;

    if (__atomic_load_n(&off, __ATOMIC_RELAXED) || !near->listed ||
        __atomic_load_n(&near->bound, __ATOMIC_RELAXED))
        return;
    at = now();
    if (at != near->entered)
        return;
    near->since = at;
    bind_here(context);
}

/* Lets loose who has not stopped since the last look; whether any are bound still. */
static bool look(void)
{
    struct platform_context *context;
    bool any = false;
    uint32_t runs;

    pthread_mutex_lock(&lock);
    TAILQ_FOREACH(context, &all, near.link)
    {
        runs = __atomic_load_n(&context->near.runs, __ATOMIC_RELAXED);
        if (context->near.bound && runs == context->near.seen)
            let_loose(context);
        context->near.seen = runs;
        any = any || context->near.bound;
    }
    pthread_mutex_unlock(&lock);
    return any;
}

static void *watch(void *unused)
{
    const struct timespec pause = {.tv_nsec = LOOK * 1000000};

    (void)unused;
    for (;;) {
        syscall(SYS_futex, &looking, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
        __atomic_store_n(&looking, 0, __ATOMIC_SEQ_CST); /* who binds from here on says so again */
        do
            syscall(SYS_futex, &never, FUTEX_WAIT_PRIVATE, 0, &pause, NULL, 0);
        while (look());
    }
    return NULL;
}

int near_begin(void)
{
    pthread_t thread;
    int error;

    if (sched_getaffinity(0, sizeof(everywhere), &everywhere) < 0 || CPU_COUNT(&everywhere) < 2)
        return 0;
    error = pthread_create(&thread, NULL, watch, NULL);
    if (error)
        return -error;
    pthread_detach(thread);
    off = false;
    return 0;
}
