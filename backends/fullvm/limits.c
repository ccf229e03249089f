/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * limits - limits of a machine and its figures, as the host sees them.
 *
 * Memory and disk are what the machine has; tasks are counted by the guest's init. The control group holds QEMU: its
 * processor time, and its memory, with room for what QEMU itself needs. A limit that cannot be enforced is
 * refused by name; with CELLA_SPEC_BEST_EFFORT it becomes an audit event. Threads: one.
 */
#include <sys/stat.h>

#include "fullvm.h"

#define QEMU_TASKS 160
#define OVERHEAD_KVM (160ull << 20)
#define OVERHEAD_TCG (384ull << 20) /* with the translated code */

static int unenforced(struct fullvm *f, const char *name, int code, struct cella_error *err)
{
    const char *why = err && err->msg ? err->msg : "not possible on this host";
    struct cella_field fields[2] = {
        {.name = "limit", .type = CELLA_FIELD_STR, .str = {name, strlen(name)}},
        {.name = "reason", .type = CELLA_FIELD_STR, .str = {why, strlen(why)}},
    };
    struct cella_event event = {.hdr = CELLA_HDR_INIT(struct cella_event, CELLA_KIND_EVENT),
                                .kind = "limit.unenforced",
                                .fields = fields,
                                .n_fields = 2,
                                .field_stride = sizeof(struct cella_field)};

    if (!f->best_effort) {
        if (err)
            err->code = -ENOTSUP;
        return code == -ENOTSUP || code == -ENOENT ? -ENOTSUP : code;
    }
    code = f->host->emit(f->host->ctx, &event);
    return code < 0
               ? cella_error_set(err, code, STEP_CGROUP,
                                 "limit %s is not enforced and the audit could not record it: %s",
                                 name, strerror(-code))
               : 0;
}

int limits_apply(struct fullvm *f, struct cella_error *err)
{
    struct errbuf eb;
    struct cella_error *why = err ? err : errbuf_init(&eb);
    /* private pages of a clone come on top of the file's */
    uint64_t memory = f->ram_bytes * 2 + (f->kvm ? OVERHEAD_KVM : OVERHEAD_TCG);
    int r = 0;

    /* These two bind QEMU, not the guest: without the controllers the guest's limits still hold. */
    if (cgroup_has(&f->cgroup, CGROUP_MEMORY))
        r = cgroup_set_memory(&f->cgroup, memory, why);
    if (r == 0 && cgroup_has(&f->cgroup, CGROUP_PIDS))
        r = cgroup_set_pids(&f->cgroup, QEMU_TASKS, why);
    if (r == 0 && f->limits.cpu_millis &&
        (r = cgroup_set_cpu(&f->cgroup, f->limits.cpu_millis, why)) < 0)
        r = unenforced(f, "cpu", r, why);
    return r;
}

static int io_resize(struct fullvm *f, const struct cella_limits *l, struct cella_error *err)
{
    json_t *args;

    if (l->io_read_bps)
        f->limits.io_read_bps = l->io_read_bps;
    if (l->io_write_bps)
        f->limits.io_write_bps = l->io_write_bps;
    args = json_pack("{s:s, s:s, s:{s:I, s:I}}", "path", "/objects/io", "property", "limits",
                     "value", "bps-read", (json_int_t)f->limits.io_read_bps, "bps-write",
                     (json_int_t)f->limits.io_write_bps);
    return qmp_call(&f->qemu.qmp, "qom-set", args, -1, 5 * QMP_SECOND, NULL, err);
}

static int resize_check(const struct fullvm *f, const struct cella_limits *l,
                        struct cella_error *err)
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

int limits_resize(struct fullvm *f, const struct cella_limits *l, struct cella_error *err)
{
    int r = resize_check(f, l, err);

    if (r == 0 && l->memory_bytes && l->memory_bytes != f->limits.memory_bytes &&
        (r = qemu_balloon(&f->qemu, l->memory_bytes + RAM_KERNEL(l->memory_bytes), err)) == 0)
        f->limits.memory_bytes = l->memory_bytes;
    if (r == 0 && l->cpu_millis && (r = cgroup_set_cpu(&f->cgroup, l->cpu_millis, err)) == 0)
        f->limits.cpu_millis = l->cpu_millis;
    if (r == 0 && (l->io_read_bps || l->io_write_bps))
        r = io_resize(f, l, err);
    if (r == 0 && l->pids)
        f->limits.pids = l->pids; /* the guest's init has been told by the core */
    return r;
}

void limits_stats(struct fullvm *f, struct cella_stats *ret)
{
    struct cgroup_stats s;
    struct stat st;

    cgroup_stats_read(&f->cgroup, &s);
    ret->cpu_user_ns = s.cpu_user_ns;
    ret->cpu_system_ns = s.cpu_system_ns;
    ret->memory_bytes = s.memory_bytes;
    ret->memory_peak_bytes = s.memory_peak_bytes;
    ret->io_read_bytes = s.io_read_bytes;
    ret->io_write_bytes = s.io_write_bytes;
    ret->oom_kills = s.oom_kills;
    /* tasks are the guest's own; bits 4, 5 and 10, and bit 6 put in between */
    ret->unknown = (s.unknown & 0xfu) | 1u << 4 | 1u << 5 | (s.unknown & 0x1c0u) << 1 | 1u << 10;
    if (f->n_layers && fstat(f->layer_fds[f->n_layers - 1], &st) == 0)
        ret->disk_bytes = (uint64_t)st.st_blocks * 512;
    else
        ret->unknown |= 1u << 6;
    if (s.oom_kills)
        f->limit_hit |= CELLA_LIMIT_HIT_MEMORY;
    ret->limit_hit = f->limit_hit;
}
