/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cgroup - one control group per cell, on hosts with cgroup v2, v1 or both (hybrid).
 *
 * A controller lives in exactly one hierarchy of a host. The layout says in which; a cell's group
 * is one directory in each hierarchy that it uses:
 *
 *   v2   <mount>/<parent>/<id>             parent: "cella" unless configured
 *   v1   <mount>/<own path>/cella/<id>     below the caller's own group, so its limits still hold
 *
 * Leaf helper: no state, no threads; every function may be called from any thread on its own
 * object.
 */
#ifndef CELLA_CGROUP_H
#define CELLA_CGROUP_H

#include <sys/types.h>

#include <cella/backend.h>

#include "util.h"

enum cgroup_controller {
    CGROUP_MEMORY,
    CGROUP_PIDS,
    CGROUP_CPU,
    CGROUP_CPUACCT, /* v1 only; v2 always accounts */
    CGROUP_FREEZER, /* v1 only; v2 always freezes */
    CGROUP_IO,      /* "io" in v2, "blkio" in v1 */
    CGROUP_N
};

#define CGROUP_PATH_MAX 512
#define CGROUP_V1_PREFIX "cella-" /* and the cell's id, in the caller's own group */

struct cgroup_mount {
    char path[CGROUP_PATH_MAX]; /* mount point; "" = hierarchy not there */
    char own[CGROUP_PATH_MAX];  /* the caller's group below the mount point; "" or "/a/b" */
    uint32_t controllers;       /* bit per enum cgroup_controller */
};

struct cgroup_layout {
    struct cgroup_mount v2;
    struct cgroup_mount v1[CGROUP_N]; /* n_v1 of them */
    uint32_t n_v1;
};

/* From the text of /proc/self/mountinfo, /proc/self/cgroup and the v2 root's cgroup.controllers
   (may be ""). -EINVAL when the texts name no hierarchy at all. */
int cgroup_layout_parse(const char *mountinfo, const char *self_cgroup, const char *v2_controllers,
                        struct cgroup_layout *ret);
/* Of this process; what was read within the last 100 ms is not read again. Not thread-safe. */
int cgroup_layout_read(struct cgroup_layout *ret, struct cella_error *err);
/* 2 or 1, or 0 when no hierarchy has the controller. */
int cgroup_layout_version(const struct cgroup_layout *l, enum cgroup_controller c);
const char *cgroup_controller_name(enum cgroup_controller c);

/* The group of one cell. */
struct cgroup_dir {
    char path[CGROUP_PATH_MAX];
    int fd; /* directory, O_PATH-like use with *at() */
    int version;
    uint32_t controllers; /* enabled here */
};
struct cgroup {
    struct cgroup_dir dirs[CGROUP_N + 1];
    uint32_t n_dirs;
    int v2; /* index of the v2 directory, -1 = none */
};

/* Creates the directories for the controllers in `want` (bits). A controller the host does not have
   is left out; ask cgroup_has(). v2 is always used when mounted: it accounts CPU, freezes and kills
   without any controller. `parent` is the v2 parent, without a leading slash; NULL = "cella". On
   failure nothing is left. */
int cgroup_create(const struct cgroup_layout *l, const char *parent, const char *id, uint32_t want,
                  struct cgroup *ret, struct cella_error *err);
int cgroup_has(const struct cgroup *g, enum cgroup_controller c);
/* Opens what a new process needs to enter: *ret_v2_fd for clone3(CLONE_INTO_CGROUP) stays owned by
   the group (-1 = no v2), and one descriptor per v1 directory to which the new process writes "0"
   itself, which is many times cheaper than moving it from outside. Returns their number. */
int cgroup_entry(const struct cgroup *g, int *ret_v2_fd, int own_fds[CGROUP_N],
                 struct cella_error *err);
/* Removes one directory, waiting at most `tries` ms while it is busy; -EBUSY. */
int cgroup_dir_rmdir(const struct cgroup_dir *d, int tries);
/* Closes the descriptors, keeps the directories. */
void cgroup_close(struct cgroup *g);
/* Kills what is inside (bounded wait), removes the directories, closes. Safe on a zeroed or closed
 * object. */
void cgroup_remove(struct cgroup *g);

/* Limits. -ENOTSUP: this host has no such controller for the group. */
int cgroup_set_memory(const struct cgroup *g, uint64_t bytes, struct cella_error *err);
int cgroup_set_pids(const struct cgroup *g, uint64_t max, struct cella_error *err);
int cgroup_set_cpu(const struct cgroup *g, uint64_t millis, struct cella_error *err);
/* 0 = not limited. `dev` is a whole disk. */
int cgroup_set_io(const struct cgroup *g, dev_t dev, uint64_t read_bps, uint64_t write_bps,
                  struct cella_error *err);

int cgroup_freeze(const struct cgroup *g, int frozen, struct cella_error *err);
/* SIGKILL to every process inside, frozen or not. Does not wait. */
int cgroup_kill(const struct cgroup *g);
/* 1 when no process is inside after at most timeout_ns, else 0. */
int cgroup_wait_empty(const struct cgroup *g, uint64_t timeout_ns);

struct cgroup_stats {
    uint64_t cpu_user_ns, cpu_system_ns, memory_bytes, memory_peak_bytes, pids, pids_peak;
    uint64_t io_read_bytes, io_write_bytes, oom_kills, pids_refused;
    uint32_t unknown; /* bit per member in this order */
};
void cgroup_stats_read(const struct cgroup *g, struct cgroup_stats *ret);
/* All of them, as a backend tells them; disk_bytes is left to it. */
void cgroup_stats_tell(const struct cgroup *g, struct cella_stats *ret);

/* Finds the directories of cell `id` in every hierarchy, wherever their parent is; kills what is
   inside and removes them unless dry_run. `found` is called with "cgroup <path>" for each. Returns
   their number or -errno. */
int cgroup_reap(const struct cgroup_layout *l, const char *id, int dry_run, void *ctx,
                void (*found)(void *ctx, const char *what), struct cella_error *err);
/* The same, on this host, as a backend is asked for it. */
int cgroup_reap_cell(const struct cella_reap *reap, struct cella_error *err);

/* Every backend's option: the `parent` of cgroup_create(). */
#define CGROUP_PARENT_OPTION                                                                       \
    {                                                                                              \
        .name = "cgroup-parent",                                                                   \
        .help = "cgroup v2 group below the root of the tree that holds all cells", .def = "cella", \
        .type = CELLA_OPT_STRING                                                                   \
    }

#endif
