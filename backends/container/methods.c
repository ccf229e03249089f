/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * methods - typed methods: limits of a running cell, its mounts, its processes.
 *
 * What is read from /proc of the cell is hostile: the cell chooses mount-free names, process names
 * and counts. Texts are bounded and go through buf_json_string(). Threads: one.
 */
#include <fcntl.h>

#include "container.h"
#include "limit.h"

#define MOUNTINFO_MAX (1u << 20)
#define PROCS_MAX (1u << 16)

LIMIT_METHOD(memory, memory_bytes, bytes)
LIMIT_METHOD(pids, pids, count)
LIMIT_METHOD(cpu, cpu_millis, millis)

static const char *next_field(const char *p, const char **ret_end)
{
    p += strspn(p, " ");
    *ret_end = p + strcspn(p, " \n");
    return p;
}

/* One line of mountinfo: fields 5 (target), 6 (options), and the type after "-". */
static void mount_json(struct buf *b, const char *line, int first)
{
    const char *end = line, *target = NULL, *opts = NULL, *p = line;
    size_t target_len = 0, opts_len = 0;
    int i;

    for (i = 1; *p && *p != '\n'; i++) {
        p = next_field(p, &end);
        if (i == 5) {
            target = p;
            target_len = (size_t)(end - p);
        } else if (i == 6) {
            opts = p;
            opts_len = (size_t)(end - p);
        } else if (i > 6 && end - p == 1 && *p == '-') {
            break;
        }
        p = end;
    }
    if (!target || !opts || *p != '-')
        return;
    p = next_field(p + 1, &end);
    buf_addf(b, "%s{\"target\":", first ? "" : ",");
    buf_json_string(b, target, target_len);
    buf_addf(b, ",\"type\":");
    buf_json_string(b, p, (size_t)(end - p));
    buf_addf(b, ",\"options\":");
    buf_json_string(b, opts, opts_len);
    buf_add(b, "}", 1);
}

static int64_t mounts(void *self, char *out, uint64_t cap, struct cella_error *err)
{
    struct container *c = self;
    auto_free char *text = NULL;
    auto_buf struct buf b = BUF_INIT;
    char path[48], *line;
    size_t before;
    int r;

    if (c->pid <= 0)
        return cella_error_set(err, -ESRCH, 0, "the cell has ended");
    snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)c->pid);
    r = read_file_at(AT_FDCWD, path, MOUNTINFO_MAX, &text, NULL);
    if (r < 0)
        return cella_error_set(err, r, 0, "%s: %s", path, strerror(-r));
    buf_add(&b, "[", 1);
    for (line = text; line && *line;) {
        before = b.len;
        mount_json(&b, line, before == 1);
        line = strchr(line, '\n');
        if (line)
            line++;
    }
    buf_add(&b, "]", 1);
    return buf_out(&b, out, cap, err);
}

static int64_t processes(void *self, char *out, uint64_t cap, struct cella_error *err)
{
    struct container *c = self;
    auto_free char *text = NULL;
    auto_buf struct buf b = BUF_INIT;
    uint32_t i = c->cgroup.v2 >= 0 ? (uint32_t)c->cgroup.v2 : 0;
    char *p;
    int r;

    if (!c->cgroup.n_dirs)
        return cella_error_set(err, -ESRCH, 0, "the cell has no control group");
    r = read_file_at(c->cgroup.dirs[i].fd, "cgroup.procs", PROCS_MAX, &text, NULL);
    if (r < 0)
        return cella_error_set(err, r, 0, "%s/cgroup.procs: %s", c->cgroup.dirs[i].path,
                               strerror(-r));
    buf_add(&b, "[", 1);
    for (p = text; *p;) {
        char path[48];
        auto_free char *comm = NULL;
        long pid = strtol(p, &p, 10);
        size_t len;
        p += strspn(p, "\n");
        if (pid <= 0)
            break;
        snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
        if (read_file_at(AT_FDCWD, path, 64, &comm, &len) < 0)
            continue; /* ended since */
        buf_addf(&b, "%s{\"pid\":%ld,\"name\":", b.len == 1 ? "" : ",", pid);
        buf_json_string(&b, comm, len && comm[len - 1] == '\n' ? len - 1 : len);
        buf_add(&b, "}", 1);
    }
    buf_add(&b, "]", 1);
    return buf_out(&b, out, cap, err);
}

const struct cella_method container_methods[CONTAINER_N_METHODS] = {
    LIMIT_MEMORY_METHOD,
    LIMIT_PIDS_METHOD,
    LIMIT_CPU_METHOD,
    {"mounts", "-> json", "the cell's mounts: target, type, options", (cella_method_fn)mounts, 0,
     0},
    {"processes", "-> json", "the cell's processes: pid on the host and name",
     (cella_method_fn)processes, 0, 0},
};
