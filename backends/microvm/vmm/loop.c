/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * loop - one epoll, one timer descriptor for all timers, one event descriptor that ends it.
 *
 * Watches lie in a table by descriptor number. An event carries the number and the generation of the watch it was
 * meant for, so a callback may unwatch (and even reuse) any descriptor whose event is still in the batch.
 * Threads: loop_run() on one; everything else on any thread that holds the machine's lock; loop_end() on any.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"

#define BATCH 32
#define FDS_MAX 4096
#define TIMERS_MAX 4096u

struct watch {
    loop_ready ready; /* NULL = free */
    void *self;
    uint32_t events, generation;
};

struct timer {
    loop_due due;
    void *self;
    uint64_t at;
};

struct loop {
    int epoll_fd, timer_fd, end_fd;
    int ended;
    struct watch *w;
    int n_w;
    struct timer *t;
    uint32_t n_t, cap_t;
    uint64_t armed; /* 0 = not */
};

static uint64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void drain(int fd)
{
    uint64_t v;

    (void)!read(fd, &v, sizeof(v));
}

/* ----------------------------------------------------------------------- timers */

/* @seccomp vmm vcpu: timerfd_settime */
static void arm(struct loop *l)
{
    struct itimerspec s;
    uint64_t first = 0;
    uint32_t i;

    for (i = 0; i < l->n_t; i++)
        if (!first || l->t[i].at < first)
            first = l->t[i].at;
    if (first == l->armed)
        return;
    memset(&s, 0, sizeof(s));
    s.it_value.tv_sec = (time_t)(first / 1000000000u);
    s.it_value.tv_nsec = (long)(first % 1000000000u);
    if (timerfd_settime(l->timer_fd, TFD_TIMER_ABSTIME, &s, NULL) == 0)
        l->armed = first;
}

static int timer_slot(struct loop *l, loop_due due, void *self)
{
    struct timer *more;
    uint32_t i, cap;

    for (i = 0; i < l->n_t; i++)
        if (l->t[i].due == due && l->t[i].self == self)
            return (int)i;
    if (l->n_t == l->cap_t) {
        cap = l->cap_t ? l->cap_t * 2 : 16;
        if (cap > TIMERS_MAX)
            return -ENOSPC;
        more = realloc(l->t, cap * sizeof(*more));
        if (!more)
            return -ENOMEM;
        l->t = more;
        l->cap_t = cap;
    }
    l->t[l->n_t] = (struct timer){.due = due, .self = self};
    return (int)l->n_t++;
}

static void timer_drop(struct loop *l, uint32_t i)
{
    l->t[i] = l->t[--l->n_t];
}

int loop_timer(struct loop *l, uint64_t in_ns, loop_due due, void *self)
{
    uint64_t from = now();
    uint32_t i;
    int slot;

    if (!in_ns) {
        for (i = 0; i < l->n_t; i++)
            if (l->t[i].due == due && l->t[i].self == self) {
                timer_drop(l, i);
                arm(l);
                return 0;
            }
        return 0;
    }
    slot = timer_slot(l, due, self);
    if (slot < 0)
        return slot;
    l->t[slot].at = in_ns > UINT64_MAX / 2 - from ? UINT64_MAX / 2 : from + in_ns;
    arm(l);
    return 0;
}

/* A callback may set or take back any timer: after each, the search starts anew. What it sets for later than
   `until` waits for the next round, so this ends. */
static void timers_run(struct loop *l)
{
    uint64_t until = now();
    uint32_t i = 0;

    drain(l->timer_fd);
    l->armed = 0;
    while (i < l->n_t) {
        struct timer t = l->t[i];
        if (t.at > until) {
            i++;
            continue;
        }
        timer_drop(l, i);
        t.due(t.self);
        i = 0;
    }
    l->armed = 0;
    arm(l);
}

/* ---------------------------------------------------------------------- watches */

static uint64_t label(const struct loop *l, int fd)
{
    return (uint64_t)l->w[fd].generation << 32 | (uint32_t)fd;
}

static int table_for(struct loop *l, int fd)
{
    struct watch *more;
    int n = l->n_w ? l->n_w : 64;

    if (fd < 0 || fd >= FDS_MAX)
        return -EBADF;
    while (n <= fd)
        n *= 2;
    if (n > l->n_w) {
        more = realloc(l->w, (size_t)n * sizeof(*more));
        if (!more)
            return -ENOMEM;
        memset(more + l->n_w, 0, (size_t)(n - l->n_w) * sizeof(*more));
        l->w = more;
        l->n_w = n;
    }
    return 0;
}

/* What is to wake for nothing is not in the epoll at all: it would report errors and hang-up. */
/* @seccomp vmm vcpu: epoll_ctl */
static int apply(struct loop *l, int fd, uint32_t events)
{
    struct watch *w = &l->w[fd];
    struct epoll_event e = {.events = events, .data.u64 = label(l, fd)};
    int op = !events ? EPOLL_CTL_DEL : !w->events ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;

    if (events == w->events)
        return 0;
    if (epoll_ctl(l->epoll_fd, op, fd, &e) < 0)
        return -errno;
    w->events = events;
    return 0;
}

int loop_watch(struct loop *l, int fd, uint32_t events, loop_ready ready, void *self)
{
    int r = table_for(l, fd);

    if (r < 0)
        return r;
    if (l->w[fd].ready)
        return -EEXIST;
    l->w[fd].generation++;
    r = apply(l, fd, events);
    if (r < 0)
        return r;
    l->w[fd].ready = ready;
    l->w[fd].self = self;
    return 0;
}

int loop_change(struct loop *l, int fd, uint32_t events)
{
    if (fd < 0 || fd >= l->n_w || !l->w[fd].ready)
        return -ENOENT;
    return apply(l, fd, events);
}

void loop_unwatch(struct loop *l, int fd)
{
    if (fd < 0 || fd >= l->n_w || !l->w[fd].ready)
        return;
    (void)apply(l, fd, 0);
    l->w[fd].events = 0;
    l->w[fd].ready = NULL;
    l->w[fd].generation++;
}

static void dispatch(struct loop *l, const struct epoll_event *e)
{
    int fd = (int)(uint32_t)e->data.u64;
    struct watch w;

    if (fd == l->timer_fd) {
        timers_run(l);
        return;
    }
    if (fd == l->end_fd || fd >= l->n_w)
        return;
    w = l->w[fd];
    if (w.ready && w.events && w.generation == (uint32_t)(e->data.u64 >> 32))
        w.ready(w.self, fd, e->events);
}

/* ------------------------------------------------------------------------- life */

static int own(struct loop *l, int fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uint32_t)fd};

    return fd < 0 ? -1 : epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

struct loop *loop_new(void)
{
    struct loop *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    l->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->epoll_fd < 0 || own(l, l->timer_fd) < 0 || own(l, l->end_fd) < 0) {
        loop_free(l);
        return NULL;
    }
    return l;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    if (l->epoll_fd >= 0)
        close(l->epoll_fd);
    if (l->timer_fd >= 0)
        close(l->timer_fd);
    if (l->end_fd >= 0)
        close(l->end_fd);
    free(l->w);
    free(l->t);
    free(l);
}

/* @seccomp vmm: epoll_wait read */
int loop_run(struct loop *l, void (*before)(void *), void (*after)(void *), void *ctx)
{
    struct epoll_event e[BATCH];

    while (!__atomic_load_n(&l->ended, __ATOMIC_ACQUIRE)) {
        int n = epoll_wait(l->epoll_fd, e, BATCH, -1), i;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n <= 0)
            continue;
        if (before)
            before(ctx);
        for (i = 0; i < n; i++)
            dispatch(l, &e[i]);
        if (after)
            after(ctx);
    }
    drain(l->end_fd);
    __atomic_store_n(&l->ended, 0, __ATOMIC_RELEASE); /* may be run again */
    return 0;
}

void loop_end(struct loop *l)
{
    uint64_t one = 1;

    __atomic_store_n(&l->ended, 1, __ATOMIC_RELEASE);
    (void)!write(l->end_fd, &one, sizeof(one));
}
