/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * gvisor_like - what the files of this backend share.
 *
 * gvisor_like.c  operation table, options, lifecycle
 * launch.c       the two processes of a cell: cella-gofer and cella-sentry, in their jails
 * order.c        orders to the sentry and its answers; its log
 * limits.c       limits and figures
 * methods.c      typed methods
 * probe.c        what this host can do
 */
#ifndef CELLA_GVISOR_LIKE_H
#define CELLA_GVISOR_LIKE_H

#include <sys/types.h>

#include <cella/backend.h>

#include "cgroup.h"
#include "sentry/control.h"
#include "spec.h"
#include "util.h"

#define LOG_TOPIC "gvisor-like"
#define PIDS_HEADROOM 4 /* the agent and its helpers do not count against the cell's limit */
#define LOG_LINES_MAX 2000
#define ORDER_MS 20000

enum step { STEP_SPEC = 1, STEP_CGROUP, STEP_PROCESS, STEP_KERNEL };

struct cell {
    const struct cella_host *host;
    char id[CELLA_ID_LEN + 1];
    struct cgroup cgroup;
    struct cella_limits limits; /* 0: none */
    uint64_t memory_bytes;      /* of the guest, always */
    int best_effort, started, paused, watched;
    pid_t sentry, gofer; /* 0: none, or waited for */
    int sentry_pidfd, gofer_pidfd;
    int control_fd, log_fd;
    int stream_fd;             /* host end, until connect() takes it */
    struct sentry_stats asked; /* of the sentry, when it answered last */
    char words[300];           /* the last line of the log */
    uint32_t n_words, serial;  /* serial: of the last order */
};

/* launch.c */
int spec_check(const struct cella_spec *spec, struct cella_error *err);
/* Both processes, up to the sentry's readiness. On failure the caller destroys the cell. */
int launch(struct cell *c, const struct cella_spec *spec, struct cella_error *err);
/* SIGKILL to both, and waits. */
void launch_kill(struct cell *c);

/* order.c */
int order_config(struct cell *c, const struct sentry_config *config, struct cella_error *err);
int order(struct cell *c, const char *what, uint32_t op, uint64_t arg, uint64_t arg2,
          struct sentry_reply *ret_reply, struct cella_error *err);
/* What can be read of the log goes to the operator; keeps the last line. */
void log_read(struct cell *c);
void log_watch(struct cell *c);
void log_unwatch(struct cell *c);

/* limits.c */
int limits_apply(struct cell *c, struct cella_error *err);
int limits_resize(struct cell *c, const struct cella_limits *limits, struct cella_error *err);
void limits_stats(struct cell *c, struct cella_stats *ret);
void limits_last_words(struct cell *c);
uint64_t limits_memory(const struct cella_limits *limits); /* the host's when there is none */

/* methods.c */
#define N_METHODS 5
extern const struct cella_method methods[N_METHODS];

/* probe.c */
int probe(const struct cella_host *host, const struct cella_probe_report *report,
          struct cella_probe *ret_probe, struct cella_error *err);

#endif
