/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * container - the weakest boundary: namespaces, control groups, capabilities and a system call
 * filter of the host's own kernel. What it gives and what it does not is in README.md.
 *
 * Here: lifecycle and the operation table. One instance is one cell. Threads: one per instance; no
 * process globals. The thread that calls create() must live as long as the cell: its end is the
 * parent's death for PR_SET_PDEATHSIG.
 */
#include <signal.h>
#include <sys/wait.h>

#include "container.h"

static const struct cella_option options[] = {
    CGROUP_PARENT_OPTION,
};

static void container_destroy(void *self)
{
    struct container *c = self;
    int *fds[] = {&c->pidfd, &c->stream_fd, &c->sync_fd, &c->layer_fd};
    size_t i;

    if (!c)
        return;
    launch_kill(c);
    cgroup_remove(&c->cgroup);
    for (i = 0; i < ARRAY_LEN(fds); i++)
        if (*fds[i] >= 0)
            close(*fds[i]);
    free(c);
}

/* v2 needs no controller to freeze, kill and account; v1 gets a directory for each. */
static uint32_t wanted(const struct cgroup_layout *l, const struct cella_limits *limits)
{
    uint32_t want = 1u << CGROUP_MEMORY | 1u << CGROUP_PIDS | 1u << CGROUP_CPU;

    if (!l->v2.path[0])
        want |= 1u << CGROUP_CPUACCT | 1u << CGROUP_FREEZER;
    if (limits->io_read_bps || limits->io_write_bps || (l->v2.controllers & (1u << CGROUP_IO)))
        want |= 1u << CGROUP_IO;
    return want;
}

static int container_create(const struct cella_host *host, const struct cella_spec *spec,
                            void **ret_self, struct cella_error *err)
{
    struct cgroup_layout layout;
    struct container *c;
    int r = spec_check_id(spec, STEP_SPEC, err);

    if (r < 0)
        return r;
    c = calloc(1, sizeof(*c));
    if (!c)
        return cella_error_set(err, -ENOMEM, STEP_SPEC, "out of memory");
    c->host = host;
    memcpy(c->id, spec->cell_id, CELLA_ID_LEN);
    c->pidfd = c->stream_fd = c->sync_fd = c->layer_fd = -1;
    c->cgroup.v2 = -1;
    c->best_effort = (spec->hdr.flags & CELLA_SPEC_BEST_EFFORT) != 0;
    if (spec->limits)
        c->limits = *spec->limits;
    r = cgroup_layout_read(&layout, err);
    if (r == 0)
        r = cgroup_create(&layout, option_str(spec->options, "cgroup-parent", NULL), c->id,
                          wanted(&layout, &c->limits), &c->cgroup, err);
    if (r == 0)
        r = limits_apply(c, spec, err);
    if (r == 0)
        r = launch(c, spec, err);
    if (r < 0) {
        container_destroy(c);
        return r;
    }
    *ret_self = c;
    return 0;
}

static int container_start(void *self, struct cella_started *ret_started, struct cella_error *err)
{
    struct container *c = self;
    int r = launch_go(c, err);

    if (r < 0)
        return r;
    c->started = 1;
    ret_started->borrow_exit_fd = c->pidfd;
    ret_started->host_pid = (uint64_t)c->pid;
    return 0;
}

static int container_stop(void *self, uint32_t how, uint64_t timeout_ns, struct cella_error *err)
{
    struct container *c = self;

    (void)err;
    if (c->pid <= 0)
        return 0;
    if (how == CELLA_STOP_GRACEFUL && c->started && !c->paused)
        pidfd_wait(c->pidfd, timeout_ns);
    limits_layer(c); /* notes a full layer while it still is one */
    if (how == CELLA_STOP_BEGIN)
        return c->paused || kill(c->pid, SIGKILL) == 0 ? 0 : -errno;
    launch_kill(c);
    return 0;
}

static int container_connect(void *self, uint32_t port, int *ret_fd, struct cella_error *err)
{
    struct container *c = self;

    if (port)
        return cella_error_set(err, -ENOTSUP, 0, "port %u: a container has only port 0, the agent",
                               port);
    if (c->stream_fd < 0)
        return cella_error_set(err, -EALREADY, 0, "port 0: the agent's stream has been handed out");
    *ret_fd = steal_fd(&c->stream_fd);
    return 0;
}

static int container_reap(const struct cella_host *host, const struct cella_reap *reap,
                          struct cella_error *err)
{
    (void)host;
    /* processes, mounts and namespaces of a cell have no name: they end with what is in its groups */
    return cgroup_reap_cell(reap, err);
}

static int container_pause(void *self, struct cella_error *err)
{
    struct container *c = self;
    int r = cgroup_freeze(&c->cgroup, 1, err);

    if (r == 0)
        c->paused = 1;
    else
        cgroup_freeze(&c->cgroup, 0, NULL);
    return r;
}

static int container_resume(void *self, struct cella_error *err)
{
    struct container *c = self;
    int r = cgroup_freeze(&c->cgroup, 0, err);

    if (r == 0)
        c->paused = 0;
    return r;
}

static int container_stats(void *self, struct cella_stats *ret_stats, struct cella_error *err)
{
    (void)err;
    limits_stats(self, ret_stats);
    return 0;
}

static int container_resize(void *self, const struct cella_limits *limits, struct cella_error *err)
{
    return limits_resize(self, limits, err);
}

static const struct cella_backend_ops ops = {
    .hdr = CELLA_HDR_INIT(struct cella_backend_ops, CELLA_KIND_BACKEND),
    .name = "container",
    .version = "0.1.0",
    .summary = "processes of the host's kernel in their own namespaces, control groups and system "
               "call filter",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .option_stride = sizeof(struct cella_option),
    .methods = container_methods,
    .n_methods = CONTAINER_N_METHODS,
    .method_stride = sizeof(struct cella_method),
    .probe = container_probe,
    .create = container_create,
    .start = container_start,
    .stop = container_stop,
    .destroy = container_destroy,
    .connect = container_connect,
    .reap = container_reap,
    .pause = container_pause,
    .resume = container_resume,
    .stats = container_stats,
    .resize = container_resize,
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
