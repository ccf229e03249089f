/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* watch - see watch.h. Nothing is asked of the kernel when nothing changes. One thread. */
#include <sys/epoll.h>
#include <time.h>

#include WATCH_HEADER

uint64_t watch_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void watch_set(struct WATCH_OWNER *owner, struct watch *w, uint32_t want)
{
    struct epoll_event ev = {.events = want, .data = {.ptr = w}};

    if (w->armed && w->want == want)
        return;
    if (epoll_ctl(owner->ep, w->armed ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, w->fd, &ev) < 0) {
        owner->quit = 1;
        return;
    }
    w->armed = 1;
    w->want = want;
}

void watch_del(struct WATCH_OWNER *owner, struct watch *w)
{
    if (!w->armed)
        return;
    epoll_ctl(owner->ep, EPOLL_CTL_DEL, w->fd, NULL);
    w->armed = 0;
    w->want = 0;
}
