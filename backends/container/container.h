/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * container - what the files of this backend share.
 *
 * container.c  operation table, options, lifecycle
 * launch.c     host side of creation: checks, socket, processes, waiting for "ready"
 * init.c       what the new processes do, in order; runs between fork and exec
 * mounts.c     root, /dev, /proc, /sys, user mounts; called by init.c only
 * confine.c    rlimits, capabilities, seccomp; called by init.c only
 * limits.c     limits and figures
 * probe.c      what this host can do
 */
#ifndef CELLA_CONTAINER_H
#define CELLA_CONTAINER_H

#include <signal.h>
#include <sys/types.h>

#include <cella/backend.h>

#include "cgroup.h"
#include "spec.h"
#include "util.h"

#define STREAM_FD 3           /* the agent's end of the stream, in the cell */
#define PIDS_HEADROOM 4       /* the agent and its helpers do not count against the cell's limit */
#define DISK_INODE_BYTES 1024 /* one file per so many bytes of the writable layer */
#define NOFILE_SOFT 1024
#define NOFILE_HARD 1048576
#define MEMLOCK_BYTES (8u << 20)
#define LAUNCH_MOUNTS_MAX 256

enum step {
    STEP_SPEC = 1,
    STEP_CGROUP,
    STEP_PROCESS,
    STEP_NAMESPACE,
    STEP_MOUNT,
    STEP_CONFINE,
    STEP_EXEC
};

struct container {
    const struct cella_host *host;
    char id[CELLA_ID_LEN + 1];
    struct cgroup cgroup;
    struct cella_limits limits;
    int best_effort;
    pid_t pid;     /* the cell's init; 0 = none or reaped */
    int pidfd;     /* of it, kept until destroy() */
    int stream_fd; /* host end, until connect() takes it */
    int sync_fd;   /* start byte out, exec result in; until start() */
    int layer_fd;  /* the writable layer, for statfs */
    int started, paused;
    uint32_t limit_hit;
    dev_t io_devs[8];
    uint32_t n_io_devs;
};

/* What the host side hands to the processes it makes. They are copies of the host process: plain
 * pointers are fine. */
struct launch {
    const struct cella_spec *spec;
    int userns_fd, netns_fd; /* netns -1: make one */
    int sync_fd, stream_fd;  /* the cell's ends */
    int host_sync_fd;        /* the host's, to be closed in the child */
    int entry_fds[CGROUP_N]; /* v1 "tasks" files */
    int n_entry;
    /* filled in the child */
    int root_fd, dev_fd;              /* detached mounts */
    int clocks_fd;                    /* timens_offsets; -1 = no time namespaces */
    int mount_fds[LAUNCH_MOUNTS_MAX]; /* one per spec mount; TMPFS: -1 */
    int idmapped;
};

enum report_kind { REPORT_FAILED, REPORT_PID, REPORT_READY };
struct report {
    uint32_t kind; /* enum report_kind */
    int32_t code;  /* FAILED: negative errno */
    int32_t pid;   /* PID: the init as the host sees it */
    uint32_t step;
    uint32_t idmapped;
    char text[480];
};

/* launch.c */
int launch(struct container *c, const struct cella_spec *spec, struct cella_error *err);
/* Sends the start byte; returns when the agent has been exec'd. */
int launch_go(struct container *c, struct cella_error *err);
/* SIGKILL to the init, hence to all of the cell; waits for its end. */
void launch_kill(struct container *c);

/* init.c: in the child. Reports and ends the process. */
void child_fail(const struct launch *l, int code, enum step step, const char *fmt, ...)
    CELLA_PRINTF(4, 5) __attribute__((noreturn));
void init_main(struct launch *l) __attribute__((noreturn));

/* mounts.c: each ends the process through child_fail(). */
void mounts_open(struct launch *l); /* as root of the host */
int mounts_build(struct launch *l); /* in the cell's namespaces; returns the layer's descriptor */

/* confine.c */
void confine_limits(const struct launch *l);
void confine(const struct launch *l);

/* limits.c */
int limits_apply(struct container *c, const struct cella_spec *spec, struct cella_error *err);
int limits_resize(struct container *c, const struct cella_limits *limits, struct cella_error *err);
void limits_stats(struct container *c, struct cella_stats *ret);
/* Bytes in the writable layer, or -1; notes when it is full. */
int64_t limits_layer(struct container *c);

/* probe.c */
int container_probe(const struct cella_host *host, const struct cella_probe_report *report,
                    struct cella_probe *ret_probe, struct cella_error *err);

/* methods.c */
#define CONTAINER_N_METHODS 5
extern const struct cella_method container_methods[CONTAINER_N_METHODS];

#endif
