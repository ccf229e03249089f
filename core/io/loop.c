/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * loop - epoll event loop for warden, gate and client.
 *
 * Why epoll and not io_uring: these processes watch a handful of descriptors, and hardened hosts
 * switch io_uring off; the data path of the gate may still use it for itself.
 *
 * Invariants: a watch is found by its descriptor; events carry {fd, generation} so that an event
 * fetched before an unwatch in the same turn is dropped. Timers are one-shot in an unsorted array:
 * there are few. Threads: one.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "loop.h"
#include "util.h"

struct watch {
    cella_fd_cb cb;
    void *data;
    uint32_t gen; /* 0 = unused */
};

struct timer {
    int id; /* 0 = unused */
    uint64_t due;
    cella_timer_cb cb;
    void *data;
};

struct loop {
    int epfd;
    int stop;
    uint32_t gen;
    int next_id;
    struct watch *watches; /* indexed by fd */
    size_t n_watches;
    struct timer *timers;
    size_t n_timers;
};

int loop_new(struct loop **ret)
{
    struct loop *l = calloc(1, sizeof(*l));

    if (!l)
        return -ENOMEM;
    l->epfd = epoll_create1(EPOLL_CLOEXEC);
    if (l->epfd < 0) {
        free(l);
        return -errno;
    }
    *ret = l;
    return 0;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    close(l->epfd);
    free(l->watches);
    free(l->timers);
    free(l);
}

static int watches_grow(struct loop *l, int fd)
{
    size_t want = (size_t)fd + 1, n = l->n_watches ? l->n_watches : 16;
    struct watch *w;

    if (want <= l->n_watches)
        return 0;
    while (n < want)
        n *= 2;
    w = realloc(l->watches, n * sizeof(*w));
    if (!w)
        return -ENOMEM;
    memset(w + l->n_watches, 0, (n - l->n_watches) * sizeof(*w));
    l->watches = w;
    l->n_watches = n;
    return 0;
}

int loop_watch(struct loop *l, int fd, uint32_t events, cella_fd_cb cb, void *data)
{
    struct epoll_event ev = {0};
    struct watch *w;
    int known, r;

    if (fd < 0)
        return -EBADF;
    r = watches_grow(l, fd);
    if (r < 0)
        return r;
    w = &l->watches[fd];
    known = w->gen != 0;
    if (!known && ++l->gen == 0)
        l->gen = 1;
    ev.events = (events & CELLA_FD_IN ? EPOLLIN | EPOLLRDHUP : 0u) |
                (events & CELLA_FD_OUT ? EPOLLOUT : 0u);
    ev.data.u64 = (uint64_t)(known ? w->gen : l->gen) << 32 | (uint32_t)fd;
    if (epoll_ctl(l->epfd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev) < 0)
        return -errno;
    if (!known)
        w->gen = l->gen;
    w->cb = cb;
    w->data = data;
    return 0;
}

void loop_unwatch(struct loop *l, int fd)
{
    if (fd < 0 || (size_t)fd >= l->n_watches || !l->watches[fd].gen)
        return;
    l->watches[fd].gen = 0;
    epoll_ctl(l->epfd, EPOLL_CTL_DEL, fd, NULL);
}

int loop_timer(struct loop *l, uint64_t ns, cella_timer_cb cb, void *data)
{
    struct timer *t = NULL;
    size_t i;

    for (i = 0; i < l->n_timers && !t; i++)
        if (!l->timers[i].id)
            t = &l->timers[i];
    if (!t) {
        struct timer *grown = realloc(l->timers, (l->n_timers + 8) * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        memset(grown + l->n_timers, 0, 8 * sizeof(*grown));
        l->timers = grown;
        t = &grown[l->n_timers];
        l->n_timers += 8;
    }
    l->next_id = l->next_id == INT32_MAX ? 1 : l->next_id + 1;
    *t = (struct timer){l->next_id, now_ns() + ns, cb, data};
    return t->id;
}

void loop_timer_cancel(struct loop *l, int id)
{
    size_t i;

    for (i = 0; id > 0 && i < l->n_timers; i++)
        if (l->timers[i].id == id)
            l->timers[i].id = 0;
}

/* Milliseconds until the next timer, rounded up; -1 = none. */
static int64_t timers_wait_ns(const struct loop *l)
{
    uint64_t now = now_ns(), best = UINT64_MAX;
    size_t i;

    for (i = 0; i < l->n_timers; i++)
        if (l->timers[i].id && l->timers[i].due < best)
            best = l->timers[i].due;
    if (best == UINT64_MAX)
        return -1;
    return best > now ? (int64_t)(best - now) : 0;
}

static void timers_fire(struct loop *l)
{
    uint64_t now = now_ns();
    size_t i;

    for (i = 0; i < l->n_timers; i++) {
        struct timer t = l->timers[i]; /* the callback may grow the array */
        if (!t.id || t.due > now)
            continue;
        l->timers[i].id = 0;
        t.cb(t.data);
    }
}

static void dispatch(struct loop *l, const struct epoll_event *ev)
{
    int fd = (int)(uint32_t)ev->data.u64;
    uint32_t gen = (uint32_t)(ev->data.u64 >> 32), ready = 0;

    if ((size_t)fd >= l->n_watches || l->watches[fd].gen != gen)
        return;
    if (ev->events & EPOLLIN)
        ready |= CELLA_FD_IN;
    if (ev->events & EPOLLOUT)
        ready |= CELLA_FD_OUT;
    if (ev->events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
        ready |= CELLA_FD_HUP;
    l->watches[fd].cb(l->watches[fd].data, fd, ready);
}

int loop_turn(struct loop *l, int64_t timeout_ns)
{
    struct epoll_event evs[32];
    int64_t wait = timers_wait_ns(l);
    int n, i, ms;

    if (timeout_ns >= 0 && (wait < 0 || timeout_ns < wait))
        wait = timeout_ns;
    ms = wait < 0 ? -1 : wait > 86400000000000 ? 86400000 : (int)((wait + 999999) / 1000000);
    n = epoll_wait(l->epfd, evs, ARRAY_LEN(evs), ms);
    if (n < 0 && errno != EINTR)
        return -errno;
    for (i = 0; i < n; i++)
        dispatch(l, &evs[i]);
    timers_fire(l);
    return 0;
}

int loop_run(struct loop *l)
{
    int r = 0;

    l->stop = 0;
    while (!l->stop && r >= 0)
        r = loop_turn(l, -1);
    return r;
}

void loop_stop(struct loop *l)
{
    l->stop = 1;
}
