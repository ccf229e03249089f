/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * limits - limits of a machine and its figures, as the host sees them.
 *
 * Memory and disk are what the machine has; tasks are counted by the guest's init. The control group holds the engine: its
 * processor time, and its memory, with room for what it needs itself. A limit that cannot be enforced is
 * refused by name; with CELLA_SPEC_BEST_EFFORT it becomes an audit event. Threads: one.
 */
#include <sys/stat.h>

#include "limit.h"
#include "vm.h"

#define ENGINE_TASKS 160

int limits_apply(struct vm *f, struct cella_error *err)
{
    struct errbuf eb;
    struct cella_error *why = err ? err : errbuf_init(&eb);
    /* private pages of a clone come on top of the file's */
    uint64_t memory = f->ram_bytes * 2 + (f->kvm ? f->engine->ops->overhead_kvm_bytes
                                                 : f->engine->ops->overhead_bytes);
    int r = 0;

    /* These two bind the engine, not the guest: without the controllers the guest's limits still hold. */
    if (cgroup_has(&f->cgroup, CGROUP_MEMORY))
        r = cgroup_set_memory(&f->cgroup, memory, why);
    if (r == 0 && cgroup_has(&f->cgroup, CGROUP_PIDS))
        r = cgroup_set_pids(&f->cgroup, ENGINE_TASKS, why);
    if (r == 0 && f->limits.cpu_millis &&
        (r = cgroup_set_cpu(&f->cgroup, f->limits.cpu_millis, why)) < 0)
        r = limit_unenforced(f->host, f->best_effort, "cpu", r, why);
    return r;
}

static int io_resize(struct vm *f, const struct cella_limits *l, struct cella_error *err)
{
    if (l->io_read_bps)
        f->limits.io_read_bps = l->io_read_bps;
    if (l->io_write_bps)
        f->limits.io_write_bps = l->io_write_bps;
    return f->engine->ops->io_limit(f->engine, f->limits.io_read_bps, f->limits.io_write_bps, err);
}

static int resize_check(const struct vm *f, const struct cella_limits *l, struct cella_error *err)
{
    if (l->disk_bytes && l->disk_bytes != f->disk_bytes)
        return cella_error_set(err, -EINVAL, STEP_CGROUP,
                               "disk limit: the disk of a machine keeps its size; make a new cell");
    if (l->memory_bytes > f->ram_bytes ||
        l->memory_bytes + RAM_KERNEL(l->memory_bytes) > f->ram_bytes)
        return cella_error_set(err, -EINVAL, STEP_CGROUP,
                               "memory limit of %llu bytes: the machine has %llu, its kernel's "
                               "included, and cannot get more; make a new cell",
                               (unsigned long long)l->memory_bytes,
                               (unsigned long long)f->ram_bytes);
    if (l->cpu_millis > f->vcpus * 1000ull)
        return cella_error_set(err, -EINVAL, STEP_CGROUP,
                               "cpu limit of %llu: the machine has %u processors; make a new cell",
                               (unsigned long long)l->cpu_millis, f->vcpus);
    return 0;
}

int limits_resize(struct vm *f, const struct cella_limits *l, struct cella_error *err)
{
    int r = resize_check(f, l, err);

    if (r == 0 && l->memory_bytes && l->memory_bytes != f->limits.memory_bytes &&
        (r = f->engine->ops->balloon(f->engine, l->memory_bytes + RAM_KERNEL(l->memory_bytes),
                                     err)) == 0)
        f->limits.memory_bytes = l->memory_bytes;
    if (r == 0 && l->cpu_millis && (r = cgroup_set_cpu(&f->cgroup, l->cpu_millis, err)) == 0)
        f->limits.cpu_millis = l->cpu_millis;
    if (r == 0 && (l->io_read_bps || l->io_write_bps))
        r = io_resize(f, l, err);
    if (r == 0 && l->pids)
        f->limits.pids = l->pids; /* the guest's init has been told by the core */
    return r;
}

void limits_stats(struct vm *f, struct cella_stats *ret)
{
    struct stat st;

    cgroup_stats_tell(&f->cgroup, ret);
    ret->pids = ret->pids_peak = ret->pids_refused = 0; /* tasks are the guest's own */
    ret->unknown |= 1u << 4 | 1u << 5 | 1u << 10;
    if (f->n_layers && fstat(f->layer_fds[f->n_layers - 1], &st) == 0)
        ret->disk_bytes = (uint64_t)st.st_blocks * 512;
    else
        ret->unknown |= 1u << 6;
    if (ret->oom_kills)
        f->limit_hit |= CELLA_LIMIT_HIT_MEMORY;
    ret->limit_hit = f->limit_hit;
}
