/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * limits - memory, tasks and disk are the sentry's to keep, exactly; processor time is the control group's. The group's
 * bounds on memory and tasks are the backstop, for what the sentry itself needs and for a sentry that the guest has
 * taken over: above the cell's limit, so that a guest meets its own kernel's answer first. Threads: one.
 */
#include <sys/socket.h>

#include "gvisor_like.h"
#include "limit.h"

#define OVERHEAD_BYTES (192ull << 20) /* kernel objects, page tables of the stubs, the gofer */
#define OVERHEAD_TASKS 64
#define TASKS_DEFAULT 32768

uint64_t limits_memory(const struct cella_limits *limits)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

    if (limits->memory_bytes)
        return limits->memory_bytes;
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 1ull << 30;
}

/* A page of the guest costs the stub's table an entry, too: an eighth is far more than that. */
static int backstop_memory(struct cell *c, uint64_t bytes, struct cella_error *err)
{
    return cgroup_has(&c->cgroup, CGROUP_MEMORY)
               ? cgroup_set_memory(&c->cgroup, bytes + bytes / 8 + OVERHEAD_BYTES, err)
               : 0;
}

/* Each task of the guest is a thread of the sentry and one of a stub, whose process may have one besides. */
static int backstop_pids(struct cell *c, uint64_t pids, struct cella_error *err)
{
    return cgroup_has(&c->cgroup, CGROUP_PIDS)
               ? cgroup_set_pids(
                     &c->cgroup,
                     ((pids ? pids : TASKS_DEFAULT) + PIDS_HEADROOM) * 3 + OVERHEAD_TASKS, err)
               : 0;
}

int limits_apply(struct cell *c, struct cella_error *err)
{
    struct errbuf eb;
    struct cella_error *why = err ? err : errbuf_init(&eb);
    int r = backstop_memory(c, c->memory_bytes, why);

    if (r == 0)
        r = backstop_pids(c, c->limits.pids, why);
    if (r == 0 && c->limits.cpu_millis &&
        (r = cgroup_set_cpu(&c->cgroup, c->limits.cpu_millis, why)) < 0)
        r = limit_unenforced(c->host, c->best_effort, "cpu", r, why);
    if (r == 0 && (c->limits.io_read_bps || c->limits.io_write_bps)) {
        r = fail(why, -ENOTSUP,
                 "io limit: this backend has no block I/O of its own to limit; drop the limit");
        r = limit_unenforced(c->host, c->best_effort, "io", r, why);
    }
    return r;
}

int limits_resize(struct cell *c, const struct cella_limits *l, struct cella_error *err)
{
    int more_memory = l->memory_bytes > c->memory_bytes, r = 0;

    if (l->disk_bytes && l->disk_bytes != c->limits.disk_bytes)
        return cella_error_set(
            err, -EOPNOTSUPP, STEP_CGROUP,
            "disk limit: the files of a running cell keep their bound; make a new cell");
    if (l->io_read_bps || l->io_write_bps)
        return cella_error_set(err, -EOPNOTSUPP, STEP_CGROUP,
                               "io limit: this backend has no block I/O to limit");
    if (l->memory_bytes && more_memory) /* the backstop stays above */
        r = backstop_memory(c, l->memory_bytes, err);
    if (r == 0 && l->pids > c->limits.pids && c->limits.pids)
        r = backstop_pids(c, l->pids, err);
    if (r == 0 && (l->memory_bytes || l->pids))
        r = order(c, "limits", SENTRY_OP_RESIZE, l->memory_bytes,
                  l->pids ? l->pids + PIDS_HEADROOM : 0, NULL, err);
    if (r == 0 && l->memory_bytes && !more_memory)
        r = backstop_memory(c, l->memory_bytes, err);
    if (r == 0 && l->cpu_millis)
        r = cgroup_set_cpu(&c->cgroup, l->cpu_millis, err);
    if (r < 0)
        return r;
    if (l->memory_bytes)
        c->limits.memory_bytes = c->memory_bytes = l->memory_bytes;
    if (l->pids)
        c->limits.pids = l->pids;
    if (l->cpu_millis)
        c->limits.cpu_millis = l->cpu_millis;
    return 0;
}

/* What a sentry that ended by itself left behind. */
void limits_last_words(struct cell *c)
{
    struct sentry_reply reply;

    while (recv(c->control_fd, &reply, sizeof(reply), MSG_DONTWAIT | MSG_TRUNC) ==
           (ssize_t)sizeof(reply))
        if (reply.code == 0 && !reply.serial)
            c->asked = reply.stats;
}

/* What the sentry says of its guest, and what the group says of both. */
void limits_stats(struct cell *c, struct cella_stats *ret)
{
    struct sentry_stats *s = &c->asked;
    struct sentry_reply reply;
    struct cgroup_stats g;
    struct errbuf eb;

    if (c->sentry > 0 && order(c, "figures", SENTRY_OP_STATS, 0, 0, &reply, errbuf_init(&eb)) == 0)
        *s = reply.stats;
    else if (c->sentry > 0)
        limits_last_words(c);
    cgroup_stats_read(&c->cgroup, &g);
    ret->cpu_user_ns = g.cpu_user_ns;
    ret->cpu_system_ns = g.cpu_system_ns;
    ret->unknown = (g.unknown & 3u) | 1u << 7 | 1u << 8; /* no block I/O of its own */
    ret->memory_bytes = s->memory_bytes;
    ret->memory_peak_bytes = s->memory_peak;
    ret->pids = s->tasks;
    ret->pids_peak = s->tasks_peak;
    ret->disk_bytes = s->disk_bytes;
    ret->oom_kills = s->oom_kills;
    ret->pids_refused = s->tasks_refused;
    ret->limit_hit = (s->oom_kills ? CELLA_LIMIT_HIT_MEMORY : 0) |
                     (s->tasks_refused ? CELLA_LIMIT_HIT_PIDS : 0) |
                     (s->disk_refused ? CELLA_LIMIT_HIT_DISK : 0);
}
