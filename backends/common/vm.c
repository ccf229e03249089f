/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * vm - the lifecycle of a cell that is a machine. One instance is one machine. create() builds it stopped, start()
 * lets its processors run. Threads: one per instance; no process globals. The thread that calls create()
 * must live as long as the cell: its end is the parent's death for PR_SET_PDEATHSIG.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "vm.h"

void vm_destroy(void *self)
{
    launch_free(self);
}

int vm_create(const struct vm_kind *kind, const struct cella_host *host,
              const struct cella_spec *spec, void **ret_self, struct cella_error *err)
{
    struct vm *f;
    int r = launch_new(kind, host, spec, 0, &f, err);

    if (r == 0) {
        r = launch_fresh(f, spec, err);
        if (r < 0)
            launch_free(f);
    }
    if (spec->own_tap_fd >= 0)
        close(spec->own_tap_fd); /* the engine has its own */
    if (r < 0)
        return r;
    *ret_self = f;
    return 0;
}

int vm_start(void *self, struct cella_started *ret_started, struct cella_error *err)
{
    struct vm *f = self;
    int r = f->engine->ops->cont(f->engine, err);

    if (r < 0)
        return r;
    f->started = 1;
    ret_started->borrow_exit_fd = f->engine->pidfd;
    ret_started->host_pid = (uint64_t)f->engine->pid;
    return 0;
}

/* What the guest's kernel gave as the reason, or else what it said last. */
static void console_reason(struct vm *f, char *out, size_t cap)
{
    static const char panic[] = "Kernel panic - ";
    char tail[6000];
    const char *at, *p;
    size_t n;

    console_read(&f->console, CONSOLE_KEPT * 4);
    n = console_tail(&f->console, tail, sizeof(tail));
    at = tail + (n > cap ? n - cap : 0);
    p = memmem(tail, n, panic, strlen(panic));
    if (p) {
        at = p;
        p = memchr(at, '\n', n - (size_t)(at - tail));
        if (p)
            n = (size_t)(p - tail);
    }
    text_clean(at, n - (size_t)(at - tail), out, cap);
}

/* Nobody asked for it: what is known about why. */
static void last_words(struct vm *f)
{
    char text[300];
    int s = f->engine->status;

    console_reason(f, text, sizeof(text));
    f->host->log(f->host->ctx, CELLA_LOG_WARN, f->kind->name,
                 "cell %s: the machine ended by itself (%s: %s %d); its console: %s", f->id,
                 f->engine->ops->name, WIFSIGNALED(s) ? "signal" : "status",
                 WIFSIGNALED(s) ? WTERMSIG(s) : WEXITSTATUS(s), text[0] ? text : "nothing");
}

int vm_stop(void *self, uint32_t how, uint64_t timeout_ns, struct cella_error *err)
{
    struct vm *f = self;

    (void)err;
    if (f->engine->pid <= 0)
        return 0;
    if (f->started && !f->stopping && engine_wait(f->engine, 0)) {
        last_words(f);
        return 0;
    }
    f->stopping = 1;
    if (how == CELLA_STOP_BEGIN)
        return kill(f->engine->pid, SIGKILL) == 0 ? 0 : -errno;
    if (how == CELLA_STOP_GRACEFUL && f->started && !f->paused)
        engine_wait(f->engine, timeout_ns);
    engine_kill(f->engine);
    console_stop(&f->console);
    return 0;
}

int vm_connect(void *self, uint32_t port, int *ret_fd, struct cella_error *err)
{
    struct vm *f = self;

    if (port >= ARRAY_LEN(f->port_fds))
        return cella_error_set(err, -ENOTSUP, 0,
                               "port %u: a machine has port 0, the agent, and port 1, its init",
                               port);
    if (f->port_fds[port] >= 0) {
        *ret_fd = steal_fd(&f->port_fds[port]);
        return 0;
    }
    return launch_connect(f, port, ret_fd, err);
}

int vm_reap(const struct cella_host *host, const struct cella_reap *reap, struct cella_error *err)
{
    (void)host;
    /* the engine dies with its warden; memory and disk have no name, the sockets are in scratch */
    return cgroup_reap_cell(reap, err);
}

int vm_pause(void *self, struct cella_error *err)
{
    struct vm *f = self;
    int r = f->engine->ops->pause(f->engine, err);

    if (r == 0)
        f->paused = 1;
    return r;
}

int vm_resume(void *self, struct cella_error *err)
{
    struct vm *f = self;
    int r = f->engine->ops->cont(f->engine, err);

    if (r == 0)
        f->paused = 0;
    return r;
}

int vm_stats(void *self, struct cella_stats *ret_stats, struct cella_error *err)
{
    struct vm *f = self;

    (void)err;
    if (f->engine->ops->drain)
        f->engine->ops->drain(f->engine);
    limits_stats(f, ret_stats);
    return 0;
}

int vm_resize(void *self, const struct cella_limits *limits, struct cella_error *err)
{
    return limits_resize(self, limits, err);
}

int vm_snapshot(void *self, const struct cella_snapshot *snapshot, struct cella_error *err)
{
    return snapshot_take(self, snapshot, err);
}

/* A copy: with its content when `snapshot` is there, else without. */
static int copy_make(const struct vm_kind *kind, const struct cella_host *host,
                     const struct cella_spec *spec, const struct cella_snapshot *snapshot,
                     void **ret_self, struct cella_error *err)
{
    struct vm *f;
    int r = launch_new(kind, host, spec, 1, &f, err);

    if (r == 0) {
        r = snapshot ? snapshot_restore(f, spec, snapshot->borrow_dir_fd, err)
                     : snapshot_prepare(f, spec, err);
        if (r < 0)
            launch_free(f);
    }
    if (spec->own_tap_fd >= 0)
        close(spec->own_tap_fd); /* the engine has its own */
    if (r < 0)
        return r;
    *ret_self = f;
    return 0;
}

int vm_restore(const struct vm_kind *kind, const struct cella_host *host,
               const struct cella_spec *spec, const struct cella_snapshot *snapshot,
               void **ret_self, struct cella_error *err)
{
    return copy_make(kind, host, spec, snapshot, ret_self, err);
}

int vm_prepare(const struct vm_kind *kind, const struct cella_host *host,
               const struct cella_spec *spec, void **ret_self, struct cella_error *err)
{
    return copy_make(kind, host, spec, NULL, ret_self, err);
}

int vm_load(void *self, const struct cella_snapshot *snapshot, struct cella_error *err)
{
    return snapshot_load(self, snapshot->borrow_dir_fd, err);
}

/* By way of a snapshot that has no name any more when this returns; the child holds its files. */
int vm_fork(void *self, const struct cella_spec *child, void **ret_self, struct cella_error *err)
{
    struct vm *f = self;
    struct cella_snapshot s = {.hdr = CELLA_HDR_INIT(struct cella_snapshot, CELLA_KIND_SNAPSHOT),
                               .borrow_dir_fd = -1};
    int r;

    if (mkdirat(f->scratch_fd, "fork", 0700) < 0)
        r = cella_error_set(err, -errno, STEP_SNAPSHOT, "fork: scratch: %s", strerror(errno));
    else
        r = s.borrow_dir_fd = openat(f->scratch_fd, "fork", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r >= 0) {
        r = snapshot_take(f, &s, err);
        if (r == 0)
            r = vm_restore(f->kind, f->host, child, &s, ret_self, err);
        else if (child->own_tap_fd >= 0)
            close(child->own_tap_fd);
        close(s.borrow_dir_fd);
    } else if (child->own_tap_fd >= 0) {
        close(child->own_tap_fd);
    }
    remove_tree_at(f->scratch_fd, "fork");
    return r;
}
