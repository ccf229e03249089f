/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * limits - wall clock and idle time, which the warden enforces itself, and noticing which of the
 * backend's limits bit. A limit is told once per cell, at the first sample that shows it.
 */
#include "warden.h"

#define SAMPLE_NS 1000000000ull

static int sample(struct warden *w, struct cella_stats *ret)
{
    const struct {
        uint32_t bit;
        const char *name;
        uint64_t limit;
    } kinds[] = {{CELLA_LIMIT_HIT_MEMORY, "memory", w->req.limits.memory},
                 {CELLA_LIMIT_HIT_PIDS, "pids", w->req.limits.pids},
                 {CELLA_LIMIT_HIT_DISK, "disk", w->req.limits.disk}};
    struct errbuf eb;
    size_t i;
    int r;

    r = w->backend.self ? backend_stats(&w->backend, ret, errbuf_init(&eb)) : -ENOENT;
    if (r < 0)
        return r;
    if (w->machine)
        machine_merge(w, ret);
    ret->limit_hit |= w->limits_told; /* once hit, always said */
    for (i = 0; i < ARRAY_LEN(kinds); i++)
        if (ret->limit_hit & ~w->limits_told & kinds[i].bit)
            warden_audit(w, NULL, "limit.hit", "s:limit", kinds[i].name, "i:value",
                         (int64_t)kinds[i].limit, NULL);
    w->limits_told |= ret->limit_hit;
    return 0;
}

int limits_sample(struct warden *w, struct cella_stats *ret)
{
    if (w->machine)
        machine_refresh(w);
    return sample(w, ret);
}

static void sample_due(void *data)
{
    struct warden *w = data;
    struct cella_stats stats;

    w->poll_timer = loop_timer(w->loop, SAMPLE_NS, sample_due, w);
    if (w->machine)
        machine_poll(w);
    if (w->state == W_RUNNING)
        sample(w, &stats);
}

static void wall_due(void *data)
{
    struct warden *w = data;

    w->wall_timer = 0;
    warden_audit(w, NULL, "limit.hit", "s:limit", "wall", "i:value", (int64_t)w->req.limits.wall_ns,
                 NULL);
    cell_end(w, "wall", "wall-clock limit of %llu ms reached",
             (unsigned long long)(w->req.limits.wall_ns / 1000000));
}

static void idle_due(void *data)
{
    struct warden *w = data;
    uint64_t quiet = now_ns() - w->active_ns;

    if (quiet < w->req.limits.idle_ns) {
        w->idle_timer = loop_timer(w->loop, w->req.limits.idle_ns - quiet, idle_due, w);
        return;
    }
    w->idle_timer = 0;
    warden_audit(w, NULL, "limit.hit", "s:limit", "idle", "i:value", (int64_t)w->req.limits.idle_ns,
                 NULL);
    cell_end(w, "idle",
             "idle limit of %llu ms reached: nothing passed between a client and the cell",
             (unsigned long long)(w->req.limits.idle_ns / 1000000));
}

void limits_activity(struct warden *w)
{
    w->active_ns = now_ns();
}

void limits_arm(struct warden *w)
{
    limits_activity(w);
    w->poll_timer = loop_timer(w->loop, SAMPLE_NS, sample_due, w);
    if (w->req.limits.wall_ns)
        w->wall_timer = loop_timer(w->loop, w->req.limits.wall_ns, wall_due, w);
    if (w->req.limits.idle_ns)
        w->idle_timer = loop_timer(w->loop, w->req.limits.idle_ns, idle_due, w);
}

void limits_disarm(struct warden *w)
{
    int *const timers[] = {&w->poll_timer, &w->wall_timer, &w->idle_timer, &w->hello_timer,
                           &w->stop_timer};
    size_t i;

    for (i = 0; i < ARRAY_LEN(timers); i++) {
        loop_timer_cancel(w->loop, *timers[i]);
        *timers[i] = 0;
    }
}
