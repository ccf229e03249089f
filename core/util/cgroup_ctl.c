/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cgroup_ctl - what is written to and read from the group of one cell: limits, figures, freezing,
 * killing.
 *
 * Every control file is opened relative to the group's own directory descriptor, so a group that
 * was removed and made again under the same name is never touched by accident. Swap is always off
 * for a cell. Threads: no state.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/sysmacros.h>

#include "cgroup.h"

#define CONTROL_MAX (1u << 16)
#define CPU_PERIOD_US 100000u
#define FREEZE_NS 5000000000u

static const struct cgroup_dir *dir_of(const struct cgroup *g, enum cgroup_controller c)
{
    uint32_t i;

    for (i = 0; i < g->n_dirs; i++)
        if (g->dirs[i].fd >= 0 && (g->dirs[i].controllers & (1u << c)))
            return &g->dirs[i];
    return NULL;
}

static int put(const struct cgroup_dir *d, const char *file, const char *text,
               struct cella_error *err)
{
    int r = write_file_at(d->fd, file, text);

    if (r < 0)
        return fail(err, r, "control group %s/%s: cannot write \"%s\": %s", d->path, file, text,
                    strerror(-r));
    return 0;
}

static int put_u64(const struct cgroup_dir *d, const char *file, uint64_t v,
                   struct cella_error *err)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
    return put(d, file, text, err);
}

static int get_u64(const struct cgroup_dir *d, const char *file, uint64_t *ret)
{
    char text[64];
    auto_close int fd = openat(d->fd, file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    char *end;
    unsigned long long v;

    if (n <= 0)
        return -ENOENT;
    text[n] = 0;
    errno = 0;
    v = strtoull(text, &end, 10);
    if (end == text || errno)
        return -EINVAL;
    *ret = v;
    return 0;
}

/* The number after "key " at a line start. */
static int get_key(const struct cgroup_dir *d, const char *file, const char *key, uint64_t *ret)
{
    char text[4096];
    auto_close int fd = openat(d->fd, file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    size_t len = strlen(key);
    char *p = text;

    if (n <= 0)
        return -ENOENT;
    text[n] = 0;
    while (p && *p) {
        if (!strncmp(p, key, len) && p[len] == ' ') {
            *ret = strtoull(p + len + 1, NULL, 10);
            return 0;
        }
        p = strchr(p, '\n');
        if (p)
            p++;
    }
    return -ENOENT;
}

static int absent(enum cgroup_controller c, const char *what, struct cella_error *err)
{
    return fail(
        err, -ENOTSUP,
        "%s limit: this host has no usable \"%s\" cgroup controller; enable it or drop the limit",
        what, cgroup_controller_name(c));
}

/* ------------------------------------------------------------------------- limits */

/* v1 wants limit <= memsw limit at every moment, so the order depends on the direction. */
static int memory_v1(const struct cgroup_dir *d, uint64_t bytes, struct cella_error *err)
{
    int memsw = faccessat(d->fd, "memory.memsw.limit_in_bytes", W_OK, 0) == 0;
    uint64_t now = 0;
    int r;

    if (!memsw)
        write_file_at(d->fd, "memory.swappiness", "0");
    if (memsw && get_u64(d, "memory.memsw.limit_in_bytes", &now) == 0 && now < bytes) {
        r = put_u64(d, "memory.memsw.limit_in_bytes", bytes, err);
        return r < 0 ? r : put_u64(d, "memory.limit_in_bytes", bytes, err);
    }
    r = put_u64(d, "memory.limit_in_bytes", bytes, err);
    return r < 0 || !memsw ? r : put_u64(d, "memory.memsw.limit_in_bytes", bytes, err);
}

int cgroup_set_memory(const struct cgroup *g, uint64_t bytes, struct cella_error *err)
{
    const struct cgroup_dir *d = dir_of(g, CGROUP_MEMORY);
    uint64_t used;

    if (!d)
        return absent(CGROUP_MEMORY, "memory", err);
    if (d->version == 1)
        return memory_v1(d, bytes, err);
    if (get_u64(d, "memory.current", &used) == 0 && used > bytes)
        return fail(err, -EBUSY, "memory limit %llu: the cell uses %llu bytes now",
                    (unsigned long long)bytes, (unsigned long long)used);
    if (faccessat(d->fd, "memory.swap.max", W_OK, 0) == 0) {
        int r = put(d, "memory.swap.max", "0", err);
        if (r < 0)
            return r;
    }
    return put_u64(d, "memory.max", bytes, err);
}

int cgroup_set_pids(const struct cgroup *g, uint64_t max, struct cella_error *err)
{
    const struct cgroup_dir *d = dir_of(g, CGROUP_PIDS);

    return d ? put_u64(d, "pids.max", max, err) : absent(CGROUP_PIDS, "pids", err);
}

int cgroup_set_cpu(const struct cgroup *g, uint64_t millis, struct cella_error *err)
{
    const struct cgroup_dir *d = dir_of(g, CGROUP_CPU);
    uint64_t quota;
    char text[64];
    int r;

    if (!d)
        return absent(CGROUP_CPU, "cpu", err);
    if (millis > 1000000)
        return fail(err, -ERANGE, "cpu limit %llu: more than 1000 CPUs",
                    (unsigned long long)millis);
    quota = millis * CPU_PERIOD_US / 1000;
    if (quota < 1000)
        quota = 1000; /* the kernel's smallest */
    snprintf(text, sizeof(text), "%llu %u", (unsigned long long)quota, CPU_PERIOD_US);
    if (d->version == 2)
        return put(d, "cpu.max", text, err);
    r = faccessat(d->fd, "cpu.cfs_quota_us", W_OK, 0);
    if (r < 0)
        return fail(err, -ENOTSUP, "cpu limit: this kernel has no CFS bandwidth control");
    r = put_u64(d, "cpu.cfs_period_us", CPU_PERIOD_US, err);
    return r < 0 ? r : put_u64(d, "cpu.cfs_quota_us", quota, err);
}

static int io_v1(const struct cgroup_dir *d, dev_t dev, const char *file, uint64_t bps,
                 struct cella_error *err)
{
    char text[96];

    if (!bps)
        return 0;
    if (faccessat(d->fd, file, W_OK, 0) < 0)
        return fail(err, -ENOTSUP, "io limit: this kernel has no %s", file);
    snprintf(text, sizeof(text), "%u:%u %llu", major(dev), minor(dev), (unsigned long long)bps);
    return put(d, file, text, err);
}

int cgroup_set_io(const struct cgroup *g, dev_t dev, uint64_t read_bps, uint64_t write_bps,
                  struct cella_error *err)
{
    const struct cgroup_dir *d = dir_of(g, CGROUP_IO);
    char text[160];
    int n, r;

    if (!d)
        return absent(CGROUP_IO, "io", err);
    if (d->version == 1) {
        r = io_v1(d, dev, "blkio.throttle.read_bps_device", read_bps, err);
        return r < 0 ? r : io_v1(d, dev, "blkio.throttle.write_bps_device", write_bps, err);
    }
    n = snprintf(text, sizeof(text), "%u:%u", major(dev), minor(dev));
    if (read_bps)
        n += snprintf(text + n, sizeof(text) - (size_t)n, " rbps=%llu",
                      (unsigned long long)read_bps);
    if (write_bps)
        snprintf(text + n, sizeof(text) - (size_t)n, " wbps=%llu", (unsigned long long)write_bps);
    return put(d, "io.max", text, err);
}

/* ----------------------------------------------------------- freezing and killing */

static int freeze_v2(const struct cgroup_dir *d, int frozen, struct cella_error *err)
{
    auto_close int events = openat(d->fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
    uint64_t end = now_ns() + FREEZE_NS, state = 0;
    int r = put(d, "cgroup.freeze", frozen ? "1" : "0", err);

    while (r == 0) {
        struct pollfd p = {.fd = events, .events = POLLPRI};
        uint64_t now;
        if (get_key(d, "cgroup.events", "frozen", &state) < 0)
            return fail(err, -ENOTSUP, "control group %s: cannot read cgroup.events", d->path);
        if (state == (uint64_t)frozen)
            return 0;
        now = now_ns();
        if (now >= end)
            return fail(
                err, -ETIMEDOUT,
                "control group %s: not %s within 5 s; a process sits in an uninterruptible wait",
                d->path, frozen ? "frozen" : "thawed");
        poll(&p, 1, 20);
    }
    return r;
}

static int freeze_v1(const struct cgroup_dir *d, int frozen, struct cella_error *err)
{
    const char *want = frozen ? "FROZEN" : "THAWED";
    uint64_t end = now_ns() + FREEZE_NS;

    for (;;) {
        char text[32];
        auto_close int fd = -1;
        ssize_t n;
        int r = put(d, "freezer.state", want, err);
        if (r < 0)
            return r;
        fd = openat(d->fd, "freezer.state", O_RDONLY | O_CLOEXEC);
        n = fd < 0 ? -1 : read(fd, text, sizeof(text));
        if (n >= 6 && !memcmp(text, want, 6))
            return 0;
        if (now_ns() >= end) {
            write_file_at(d->fd, "freezer.state", "THAWED");
            return fail(err, -ETIMEDOUT, "control group %s: not %s within 5 s", d->path, want);
        }
        usleep(1000);
    }
}

int cgroup_freeze(const struct cgroup *g, int frozen, struct cella_error *err)
{
    const struct cgroup_dir *d;

    if (g->v2 >= 0 && faccessat(g->dirs[g->v2].fd, "cgroup.freeze", W_OK, 0) == 0)
        return freeze_v2(&g->dirs[g->v2], frozen, err);
    d = dir_of(g, CGROUP_FREEZER);
    if (!d || d->version != 1)
        return fail(err, -EOPNOTSUPP, "this host has no cgroup freezer; pausing is not possible");
    return freeze_v1(d, frozen, err);
}

static void kill_listed(const struct cgroup_dir *d)
{
    auto_free char *text = NULL;
    char *p;

    if (read_file_at(d->fd, "cgroup.procs", CONTROL_MAX, &text, NULL) < 0)
        return;
    for (p = text; *p;) {
        long pid = strtol(p, &p, 10);
        if (pid > 1)
            kill((pid_t)pid, SIGKILL);
        p += strspn(p, "\n");
        if (pid <= 0)
            break;
    }
}

int cgroup_kill(const struct cgroup *g)
{
    uint32_t i;
    int done = g->v2 >= 0 && g->dirs[g->v2].fd >= 0 &&
               write_file_at(g->dirs[g->v2].fd, "cgroup.kill", "1") == 0;

    for (i = 0; i < g->n_dirs; i++) {
        if (g->dirs[i].fd < 0)
            continue;
        if (!done || g->dirs[i].version == 1)
            kill_listed(&g->dirs[i]);
        /* a frozen process of v1, or of v2 without cgroup.kill, dies only when thawed */
        if (g->dirs[i].version == 1 && (g->dirs[i].controllers & (1u << CGROUP_FREEZER)))
            write_file_at(g->dirs[i].fd, "freezer.state", "THAWED");
        else if (g->dirs[i].version == 2 && !done)
            write_file_at(g->dirs[i].fd, "cgroup.freeze", "0");
    }
    return 0;
}

static int is_empty(const struct cgroup_dir *d)
{
    char c;
    auto_close int fd = openat(d->fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);

    return fd < 0 || read(fd, &c, 1) <= 0;
}

int cgroup_wait_empty(const struct cgroup *g, uint64_t timeout_ns)
{
    uint64_t end = now_ns() + timeout_ns;

    for (;;) {
        uint32_t i, busy = 0;
        for (i = 0; i < g->n_dirs; i++)
            busy += g->dirs[i].fd >= 0 && !is_empty(&g->dirs[i]);
        if (!busy)
            return 1;
        if (now_ns() >= end)
            return 0;
        usleep(500);
        cgroup_kill(g);
    }
}

/* ------------------------------------------------------------------------- figures */

static void io_sum(const char *text, const char *read_key, const char *write_key,
                   struct cgroup_stats *s)
{
    const char *p = text;

    while ((p = strstr(p, read_key)))
        s->io_read_bytes += strtoull(p += strlen(read_key), NULL, 10);
    p = text;
    while ((p = strstr(p, write_key)))
        s->io_write_bytes += strtoull(p += strlen(write_key), NULL, 10);
}

static int io_read(const struct cgroup *g, struct cgroup_stats *s)
{
    const struct cgroup_dir *d = dir_of(g, CGROUP_IO);
    auto_free char *text = NULL;

    if (!d)
        return -ENOENT;
    if (read_file_at(d->fd, d->version == 2 ? "io.stat" : "blkio.throttle.io_service_bytes",
                     CONTROL_MAX, &text, NULL) < 0)
        return -ENOENT;
    if (d->version == 2)
        io_sum(text, " rbytes=", " wbytes=", s);
    else
        io_sum(text, " Read ", " Write ", s);
    return 0;
}

static void cpu_read(const struct cgroup *g, struct cgroup_stats *s)
{
    const struct cgroup_dir *d = g->v2 >= 0 ? &g->dirs[g->v2] : NULL;

    if (d && get_key(d, "cpu.stat", "user_usec", &s->cpu_user_ns) == 0 &&
        get_key(d, "cpu.stat", "system_usec", &s->cpu_system_ns) == 0) {
        s->cpu_user_ns *= 1000;
        s->cpu_system_ns *= 1000;
        return;
    }
    d = dir_of(g, CGROUP_CPUACCT);
    if (!d || get_u64(d, "cpuacct.usage_user", &s->cpu_user_ns) < 0)
        s->unknown |= 1u;
    if (!d || get_u64(d, "cpuacct.usage_sys", &s->cpu_system_ns) < 0)
        s->unknown |= 2u;
}

void cgroup_stats_read(const struct cgroup *g, struct cgroup_stats *ret)
{
    const struct cgroup_dir *m = dir_of(g, CGROUP_MEMORY), *p = dir_of(g, CGROUP_PIDS);
    int v1 = m && m->version == 1;
    struct cgroup_stats s = {0};

    cpu_read(g, &s);
    if (!m || get_u64(m, v1 ? "memory.usage_in_bytes" : "memory.current", &s.memory_bytes) < 0)
        s.unknown |= 1u << 2;
    if (!m ||
        get_u64(m, v1 ? "memory.max_usage_in_bytes" : "memory.peak", &s.memory_peak_bytes) < 0)
        s.unknown |= 1u << 3;
    if (!p || get_u64(p, "pids.current", &s.pids) < 0)
        s.unknown |= 1u << 4;
    if (!p || get_u64(p, "pids.peak", &s.pids_peak) < 0)
        s.unknown |= 1u << 5;
    if (io_read(g, &s) < 0)
        s.unknown |= 3u << 6;
    if (!m || get_key(m, v1 ? "memory.oom_control" : "memory.events", "oom_kill", &s.oom_kills) < 0)
        s.unknown |= 1u << 8;
    if (!p || get_key(p, "pids.events", "max", &s.pids_refused) < 0)
        s.unknown |= 1u << 9;
    *ret = s;
}

void cgroup_stats_tell(const struct cgroup *g, struct cella_stats *ret)
{
    struct cgroup_stats s;

    cgroup_stats_read(g, &s);
    ret->cpu_user_ns = s.cpu_user_ns;
    ret->cpu_system_ns = s.cpu_system_ns;
    ret->memory_bytes = s.memory_bytes;
    ret->memory_peak_bytes = s.memory_peak_bytes;
    ret->pids = s.pids;
    ret->pids_peak = s.pids_peak;
    ret->io_read_bytes = s.io_read_bytes;
    ret->io_write_bytes = s.io_write_bytes;
    ret->oom_kills = s.oom_kills;
    ret->pids_refused = s.pids_refused;
    /* the same order, with disk_bytes (bit 6) put in between */
    ret->unknown = (s.unknown & 0x3fu) | (s.unknown & ~0x3fu) << 1;
}
