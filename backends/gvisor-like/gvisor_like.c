/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * gvisor_like - a kernel in user space: no system call of the workload reaches the host's kernel. What it gives and what
 * it does not is in README.md.
 *
 * Here: lifecycle and the operation table. One instance is one cell: a process cella-sentry, which is the kernel, the stub
 * processes in which it runs guest code, and a process cella-gofer, which reads the image for it. Threads: one per
 * instance; no process globals. The thread that calls create() must live as long as the cell: its end is the parent's death
 * for PR_SET_PDEATHSIG.
 */
#include <signal.h>

#include "gvisor_like.h"

static const struct cella_option options[] = {
    CGROUP_PARENT_OPTION,
};

static void destroy(void *self)
{
    struct cell *c = self;
    int *fds[] = {&c->sentry_pidfd, &c->gofer_pidfd, &c->control_fd, &c->stream_fd, &c->log_fd};
    size_t i;

    if (!c)
        return;
    launch_kill(c);
    log_unwatch(c);
    cgroup_remove(&c->cgroup);
    for (i = 0; i < ARRAY_LEN(fds); i++)
        if (*fds[i] >= 0)
            close(*fds[i]);
    free(c);
}

static uint32_t wanted(const struct cgroup_layout *l)
{
    uint32_t want = 1u << CGROUP_MEMORY | 1u << CGROUP_PIDS | 1u << CGROUP_CPU;

    return l->v2.path[0] ? want : want | 1u << CGROUP_CPUACCT;
}

static struct cell *cell_new(const struct cella_host *host, const struct cella_spec *spec)
{
    struct cell *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->host = host;
    memcpy(c->id, spec->cell_id, CELLA_ID_LEN);
    c->sentry_pidfd = c->gofer_pidfd = c->control_fd = c->stream_fd = c->log_fd = -1;
    c->cgroup.v2 = -1;
    c->best_effort = (spec->hdr.flags & CELLA_SPEC_BEST_EFFORT) != 0;
    if (spec->limits)
        c->limits = *spec->limits;
    c->memory_bytes = limits_memory(&c->limits);
    return c;
}

static int create(const struct cella_host *host, const struct cella_spec *spec, void **ret_self,
                  struct cella_error *err)
{
    struct cgroup_layout layout;
    struct cell *c;
    int r = spec_check_id(spec, STEP_SPEC, err);

    if (r == 0)
        r = spec_check(spec, err);
    if (r < 0)
        return r;
    c = cell_new(host, spec);
    if (!c)
        return cella_error_set(err, -ENOMEM, STEP_SPEC, "out of memory");
    r = cgroup_layout_read(&layout, err);
    if (r == 0)
        r = cgroup_create(&layout, option_str(spec->options, "cgroup-parent", NULL), c->id,
                          wanted(&layout), &c->cgroup, err);
    if (r == 0)
        r = limits_apply(c, err);
    if (r == 0)
        r = launch(c, spec, err);
    if (r < 0) {
        destroy(c);
        return r;
    }
    log_watch(c);
    *ret_self = c;
    return 0;
}

static int start(void *self, struct cella_started *ret_started, struct cella_error *err)
{
    struct cell *c = self;
    int r = order(c, "start", SENTRY_OP_START, 0, 0, NULL, err);

    if (r < 0)
        return r;
    c->started = 1;
    ret_started->borrow_exit_fd = c->sentry_pidfd;
    ret_started->host_pid = (uint64_t)c->sentry;
    return 0;
}

static int stop(void *self, uint32_t how, uint64_t timeout_ns, struct cella_error *err)
{
    struct cell *c = self;
    struct cella_stats last;

    (void)err;
    if (c->sentry <= 0)
        return 0;
    if (!pidfd_wait(c->sentry_pidfd, 0))
        limits_stats(c, &last); /* it may be gone before it can be asked again */
    if (how == CELLA_STOP_GRACEFUL && c->started && !c->paused)
        pidfd_wait(c->sentry_pidfd, timeout_ns);
    if (how == CELLA_STOP_BEGIN)
        return kill(c->sentry, SIGKILL) == 0 ? 0 : -errno;
    launch_kill(c);
    return 0;
}

static int connect_port(void *self, uint32_t port, int *ret_fd, struct cella_error *err)
{
    struct cell *c = self;

    if (port)
        return cella_error_set(err, -ENOTSUP, 0, "port %u: this backend has only port 0, the agent",
                               port);
    if (c->stream_fd < 0)
        return cella_error_set(err, -EALREADY, 0, "port 0: the agent's stream has been handed out");
    *ret_fd = steal_fd(&c->stream_fd);
    return 0;
}

static int reap(const struct cella_host *host, const struct cella_reap *reap,
                struct cella_error *err)
{
    (void)host;
    /* processes, mounts and namespaces of a cell have no name: they end with what is in its groups */
    return cgroup_reap_cell(reap, err);
}

static int pause_cell(void *self, struct cella_error *err)
{
    struct cell *c = self;
    int r = order(c, "pause", SENTRY_OP_PAUSE, 0, 0, NULL, err);

    c->paused |= r == 0;
    return r;
}

static int resume(void *self, struct cella_error *err)
{
    struct cell *c = self;
    int r = order(c, "resume", SENTRY_OP_RESUME, 0, 0, NULL, err);

    if (r == 0)
        c->paused = 0;
    return r;
}

static int stats(void *self, struct cella_stats *ret_stats, struct cella_error *err)
{
    (void)err;
    limits_stats(self, ret_stats);
    return 0;
}

static int resize(void *self, const struct cella_limits *limits, struct cella_error *err)
{
    return limits_resize(self, limits, err);
}

static const struct cella_backend_ops ops = {
    .hdr = CELLA_HDR_INIT(struct cella_backend_ops, CELLA_KIND_BACKEND),
    .name = "gvisor-like",
    .version = "0.1.0",
    .summary = "a kernel of cella's own in user space: no system call of the workload reaches the "
               "host's",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .option_stride = sizeof(struct cella_option),
    .methods = methods,
    .n_methods = N_METHODS,
    .method_stride = sizeof(struct cella_method),
    .probe = probe,
    .create = create,
    .start = start,
    .stop = stop,
    .destroy = destroy,
    .connect = connect_port,
    .reap = reap,
    .pause = pause_cell,
    .resume = resume,
    .stats = stats,
    .resize = resize,
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
