/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * events - one thread of the sentry that waits for times and for descriptors of the host, and tells the kernel.
 * Invariants: heap[1 … n] is a heap by .when; a timer with .when != 0 is at its .slot of it.
 * The wake-up of a descriptor is level: it is told again (after a pause) until host_unwatch() or somebody has read it;
 * EPOLLONESHOT, armed again by the next host_watch of the same descriptor.
 * Threads: all but events_run() under the kernel lock.
 */
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base.h"

#define WATCHES_MAX 64

static struct timer **heap; /* [0] unused; grows in the arena */
static uint32_t n_timers, n_room;
static int host_epoll = -1, host_kick = -1;
static struct {
    int host_fd;
    uint32_t events; /* that are still watched for */
    struct waitq *queue;
} watches[WATCHES_MAX];
static unsigned n_watches;

static void place(struct timer *timer, uint32_t slot)
{
    heap[slot] = timer;
    timer->slot = slot;
}

static void up(struct timer *timer, uint32_t slot)
{
    for (; slot > 1 && heap[slot / 2]->when > timer->when; slot /= 2)
        place(heap[slot / 2], slot);
    place(timer, slot);
}

static void down(struct timer *timer, uint32_t slot)
{
    uint32_t child;

    for (; (child = slot * 2) <= n_timers; slot = child) {
        if (child < n_timers && heap[child + 1]->when < heap[child]->when)
            child++;
        if (heap[child]->when >= timer->when)
            break;
        place(heap[child], slot);
    }
    place(timer, slot);
}

static int grow(void)
{
    uint32_t room = n_room ? n_room * 2 : 64;
    struct timer **larger = arena_alloc(ARENA_TIMER, room * sizeof(*larger));

    if (!larger)
        return -ENOMEM;
    if (heap)
        memcpy(larger, heap, n_room * sizeof(*heap));
    arena_free(heap);
    heap = larger;
    n_room = room;
    return 0;
}

static void kick(void)
{
    uint64_t one = 1;
    ssize_t r = host_kick < 0 ? 0 : write(host_kick, &one, sizeof(one));

    (void)r; /* full: it is kicked already */
}

void timer_cancel(struct timer *timer)
{
    struct timer *last;
    uint32_t slot = timer->slot;

    kernel_assert_locked();
    if (!timer->when)
        return;
    timer->when = 0;
    last = heap[n_timers--];
    if (last == timer)
        return;
    if (slot > 1 && heap[slot / 2]->when > last->when)
        up(last, slot);
    else
        down(last, slot);
}

int timer_set(struct timer *timer, uint64_t when)
{
    timer_cancel(timer);
    if (n_timers + 2 > n_room && grow() < 0)
        return -ENOMEM;
    timer->when = when ? when : 1;
    up(timer, ++n_timers);
    if (timer->slot == 1)
        kick();
    return 0;
}

static void timer_fire(struct timer *timer)
{
    switch (timer->kind) {
    case TIMER_ITIMER:
        itimer_fire(timer->owner);
        break;
    case TIMER_POSIX:
        posix_timer_fire(timer->owner);
        break;
    case TIMER_TIMERFD:
        timerfd_fire(timer->owner);
        break;
    case TIMER_CPU:
        cputime_fire(timer->owner);
        break;
    }
}

/* @seccomp sentry: epoll_ctl */
int host_watch(int host_fd, uint32_t events, struct waitq *queue)
{
    struct epoll_event event = {.events = events | EPOLLONESHOT, .data.fd = host_fd};
    unsigned i;

    kernel_assert_locked();
    for (i = 0; i < n_watches && watches[i].host_fd != host_fd; i++)
        ;
    if (i == WATCHES_MAX)
        return -ENOMEM;
    if (epoll_ctl(host_epoll, i < n_watches ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, host_fd, &event) < 0)
        return -errno;
    watches[i].host_fd = host_fd;
    watches[i].events = events;
    watches[i].queue = queue;
    if (i == n_watches)
        n_watches++;
    return 0;
}

void host_unwatch(int host_fd)
{
    unsigned i;

    kernel_assert_locked();
    for (i = 0; i < n_watches && watches[i].host_fd != host_fd; i++)
        ;
    if (i == n_watches)
        return;
    watches[i] = watches[--n_watches];
    epoll_ctl(host_epoll, EPOLL_CTL_DEL, host_fd, NULL);
}

/* What was not seen is still waited for, perhaps by others than those who are woken now. */
static void rearm(unsigned i, uint32_t seen)
{
    struct epoll_event event = {.data.fd = watches[i].host_fd};

    watches[i].events &= ~seen;
    event.events = watches[i].events | EPOLLONESHOT;
    if (watches[i].events && !(seen & (EPOLLERR | EPOLLHUP)))
        epoll_ctl(host_epoll, EPOLL_CTL_MOD, watches[i].host_fd, &event);
}

static void tell(int host_fd, uint32_t events)
{
    unsigned i;

    for (i = 0; i < n_watches; i++)
        if (watches[i].host_fd == host_fd) {
            rearm(i, events);
            waitq_wake(watches[i].queue, events);
            return;
        }
}

/* Fires what is due; milliseconds to the next, -1 for none. */
static int due(void)
{
    uint64_t now = clock_monotonic(), left;
    struct timer *timer;

    while (n_timers && heap[1]->when <= now) {
        timer = heap[1];
        timer_cancel(timer);
        timer_fire(timer);
    }
    if (!n_timers)
        return -1;
    left = (heap[1]->when - now + 999999) / 1000000;
    return left > 60000 ? 60000 : (int)left;
}

/* @seccomp sentry: epoll_wait read */
static void *run(void *unused)
{
    struct epoll_event events[16];
    uint64_t count;
    int n, i, wait;

    (void)unused;
    for (;;) {
        kernel_lock();
        wait = due();
        kernel_unlock();
        n = epoll_wait(host_epoll, events, 16, wait);
        kernel_lock();
        for (i = 0; i < n; i++)
            if (events[i].data.fd != host_kick)
                tell(events[i].data.fd, events[i].events);
            else if (read(host_kick, &count, sizeof(count)) < 0)
                continue; /* somebody else's kick: nothing is lost */
        kernel_unlock();
    }
    return NULL;
}

int events_begin(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    pthread_t thread;
    int r;

    host_epoll = epoll_create1(EPOLL_CLOEXEC);
    host_kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    event.data.fd = host_kick;
    if (host_epoll < 0 || host_kick < 0 ||
        epoll_ctl(host_epoll, EPOLL_CTL_ADD, host_kick, &event) < 0)
        return -errno;
    r = pthread_create(&thread, NULL, run, NULL);
    if (r)
        return -r;
    pthread_detach(thread);
    return 0;
}
