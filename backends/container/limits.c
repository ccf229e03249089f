/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * limits - limits of a cell and the figures that tell whether they were hit.
 *
 * A limit that cannot be enforced is refused by name; with CELLA_SPEC_BEST_EFFORT it becomes an
 * audit event instead, and if that event cannot be written the cell is refused after all. Threads:
 * one.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "container.h"
#include "limit.h"

/* The whole disk under a path, or -ENOTSUP: throttling works on block devices only. */
static int disk_of(const char *path, dev_t *ret)
{
    char sys[128], text[32] = "";
    auto_close int fd = -1;
    struct stat st;
    unsigned ma, mi;

    if (stat(path, &st) < 0)
        return -errno;
    if (!major(st.st_dev))
        return -ENOTSUP;
    *ret = st.st_dev;
    snprintf(sys, sizeof(sys), "/sys/dev/block/%u:%u/partition", major(st.st_dev),
             minor(st.st_dev));
    if (access(sys, F_OK) < 0)
        return 0;
    snprintf(sys, sizeof(sys), "/sys/dev/block/%u:%u/../dev", major(st.st_dev), minor(st.st_dev));
    fd = open(sys, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 || sscanf(text, "%u:%u", &ma, &mi) != 2)
        return -ENOTSUP;
    *ret = makedev(ma, mi);
    return 0;
}

static int io_add(struct container *c, const char *path, struct cella_error *err)
{
    dev_t dev;
    uint32_t i;
    int r = disk_of(path, &dev);

    if (r < 0)
        return cella_error_set(
            err, -ENOTSUP, STEP_CGROUP,
            "io limit: %s is not on a block device that can be throttled; drop the limit", path);
    for (i = 0; i < c->n_io_devs; i++)
        if (c->io_devs[i] == dev)
            return 0;
    if (c->n_io_devs == ARRAY_LEN(c->io_devs))
        return cella_error_set(err, -E2BIG, STEP_CGROUP, "io limit: more than %zu devices",
                               ARRAY_LEN(c->io_devs));
    r = cgroup_set_io(&c->cgroup, dev, c->limits.io_read_bps, c->limits.io_write_bps, err);
    if (r == 0)
        c->io_devs[c->n_io_devs++] = dev;
    return r;
}

static int io_apply(struct container *c, const struct cella_spec *spec, struct cella_error *err)
{
    uint32_t i;
    int r = io_add(c, spec->root, err);

    for (i = 0; r == 0 && i < spec->n_mounts; i++) {
        const struct cella_mount *m = spec_mount(spec, i);
        if (m->type == CELLA_MOUNT_BIND && m->source)
            r = io_add(c, m->source, err);
    }
    return r;
}

int limits_apply(struct container *c, const struct cella_spec *spec, struct cella_error *err)
{
    const struct cella_limits *l = &c->limits;
    struct errbuf eb;
    struct cella_error *why = err ? err : errbuf_init(&eb);
    int r = 0;

    if (l->memory_bytes && (r = cgroup_set_memory(&c->cgroup, l->memory_bytes, why)) < 0)
        r = limit_unenforced(c->host, c->best_effort, "memory", r, why);
    if (r == 0 && l->pids && (r = cgroup_set_pids(&c->cgroup, l->pids + PIDS_HEADROOM, why)) < 0)
        r = limit_unenforced(c->host, c->best_effort, "pids", r, why);
    if (r == 0 && l->cpu_millis && (r = cgroup_set_cpu(&c->cgroup, l->cpu_millis, why)) < 0)
        r = limit_unenforced(c->host, c->best_effort, "cpu", r, why);
    if (r == 0 && (l->io_read_bps || l->io_write_bps) && (r = io_apply(c, spec, why)) < 0)
        r = limit_unenforced(c->host, c->best_effort, "io", r, why);
    return r;
}

int limits_resize(struct container *c, const struct cella_limits *l, struct cella_error *err)
{
    uint32_t i;
    int r = 0;

    if (l->disk_bytes && l->disk_bytes != c->limits.disk_bytes)
        return cella_error_set(
            err, -EOPNOTSUPP, STEP_CGROUP,
            "disk limit: the writable layer of a running cell keeps its size; make a new cell");
    if (l->memory_bytes && (r = cgroup_set_memory(&c->cgroup, l->memory_bytes, err)) == 0)
        c->limits.memory_bytes = l->memory_bytes;
    if (r == 0 && l->pids && (r = cgroup_set_pids(&c->cgroup, l->pids + PIDS_HEADROOM, err)) == 0)
        c->limits.pids = l->pids;
    if (r == 0 && l->cpu_millis && (r = cgroup_set_cpu(&c->cgroup, l->cpu_millis, err)) == 0)
        c->limits.cpu_millis = l->cpu_millis;
    if (r == 0 && (l->io_read_bps || l->io_write_bps)) {
        if (!c->n_io_devs)
            return cella_error_set(err, -EOPNOTSUPP, STEP_CGROUP,
                                   "io limit: the cell was created without one; make a new cell");
        for (i = 0; r == 0 && i < c->n_io_devs; i++)
            r = cgroup_set_io(&c->cgroup, c->io_devs[i], l->io_read_bps, l->io_write_bps, err);
    }
    return r;
}

int64_t limits_layer(struct container *c)
{
    struct statfs fs;

    if (c->layer_fd < 0 || fstatfs(c->layer_fd, &fs) < 0)
        return -1;
    if (c->limits.disk_bytes && (fs.f_bavail == 0 || fs.f_ffree == 0))
        c->limit_hit |= CELLA_LIMIT_HIT_DISK;
    return (int64_t)(fs.f_blocks - fs.f_bfree) * (int64_t)fs.f_bsize;
}

void limits_stats(struct container *c, struct cella_stats *ret)
{
    int64_t disk = limits_layer(c);

    cgroup_stats_tell(&c->cgroup, ret);
    if (disk >= 0)
        ret->disk_bytes = (uint64_t)disk;
    else
        ret->unknown |= 1u << 6;
    if (ret->oom_kills)
        c->limit_hit |= CELLA_LIMIT_HIT_MEMORY;
    if (ret->pids_refused)
        c->limit_hit |= CELLA_LIMIT_HIT_PIDS;
    ret->limit_hit = c->limit_hit;
}
