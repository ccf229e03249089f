/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fullvm - the strongest boundary: a whole machine emulated by QEMU in a jail of its own, with a kernel of its own.
 * What it gives and what it does not is in README.md.
 *
 * Here: lifecycle and the operation table. One instance is one machine. create() builds it stopped, start()
 * lets its processors run. Threads: one per instance; no process globals. The thread that calls create()
 * must live as long as the cell: its end is the parent's death for PR_SET_PDEATHSIG.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "fullvm.h"

static const struct cella_option options[] = {
    {.name = "qemu",
     .help = "QEMU's system emulator for x86-64, 7.2 or newer",
     .def = QEMU_DEFAULT,
     .type = CELLA_OPT_PATH},
    {.name = "accel",
     .help = "what runs the guest's instructions; auto is kvm where it works",
     .def = "auto",
     .choices = "auto|kvm|tcg",
     .type = CELLA_OPT_ENUM},
    {.name = "cpu",
     .help = "QEMU's processor model; auto is the host's, or all that can be emulated",
     .def = "auto",
     .type = CELLA_OPT_STRING},
    {.name = "memory",
     .help = "memory of a machine whose cell has no memory limit",
     .def = "512M",
     .type = CELLA_OPT_SIZE,
     .min = 64 << 20,
     .max = 1ll << 40},
    {.name = "disk",
     .help = "writable disk of a machine whose cell has no disk limit",
     .def = "1G",
     .type = CELLA_OPT_SIZE,
     .min = 1 << 20,
     .max = 1ll << 44},
    {.name = "append",
     .help = "more words for the guest kernel's command line",
     .def = "",
     .type = CELLA_OPT_STRING},
    {.name = "cgroup-parent",
     .help = "cgroup v2 group below the root of the tree that holds all cells",
     .def = "cella",
     .type = CELLA_OPT_STRING},
};

const char *option_str(const struct cella_options *o, const char *name, const char *def)
{
    const struct cella_option_value *v = cella_options_get(o, name);

    return v && v->str ? v->str : def;
}

int64_t option_int(const struct cella_options *o, const char *name, int64_t def)
{
    const struct cella_option_value *v = cella_options_get(o, name);

    return v ? v->i64 : def;
}

static void fullvm_destroy(void *self)
{
    launch_free(self);
}

static int fullvm_create(const struct cella_host *host, const struct cella_spec *spec,
                         void **ret_self, struct cella_error *err)
{
    struct fullvm *f;
    int r = launch_new(host, spec, 0, &f, err);

    if (r == 0) {
        r = launch_fresh(f, spec, err);
        if (r < 0)
            launch_free(f);
    }
    if (spec->own_tap_fd >= 0)
        close(spec->own_tap_fd); /* QEMU has its own */
    if (r < 0)
        return r;
    *ret_self = f;
    return 0;
}

static int fullvm_start(void *self, struct cella_started *ret_started, struct cella_error *err)
{
    struct fullvm *f = self;
    int r = qemu_cont(&f->qemu, err);

    if (r < 0)
        return r;
    f->started = 1;
    ret_started->borrow_exit_fd = f->qemu.pidfd;
    ret_started->host_pid = (uint64_t)f->qemu.pid;
    return 0;
}

/* What the guest's kernel gave as the reason, or else what it said last. */
static void console_reason(struct fullvm *f, char *out, size_t cap)
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
static void last_words(struct fullvm *f)
{
    char text[300];
    int s = f->qemu.status;

    console_reason(f, text, sizeof(text));
    f->host->log(f->host->ctx, CELLA_LOG_WARN, "fullvm",
                 "cell %s: the machine ended by itself (QEMU: %s %d); its console: %s", f->id,
                 WIFSIGNALED(s) ? "signal" : "status",
                 WIFSIGNALED(s) ? WTERMSIG(s) : WEXITSTATUS(s), text[0] ? text : "nothing");
}

static int fullvm_stop(void *self, uint32_t how, uint64_t timeout_ns, struct cella_error *err)
{
    struct fullvm *f = self;

    (void)err;
    if (f->qemu.pid <= 0)
        return 0;
    if (f->started && !f->stopping && qemu_wait(&f->qemu, 0)) {
        last_words(f);
        return 0;
    }
    f->stopping = 1;
    if (how == CELLA_STOP_BEGIN)
        return kill(f->qemu.pid, SIGKILL) == 0 ? 0 : -errno;
    if (how == CELLA_STOP_GRACEFUL && f->started && !f->paused)
        qemu_wait(&f->qemu, timeout_ns);
    qemu_kill(&f->qemu);
    console_stop(&f->console);
    return 0;
}

static int fullvm_connect(void *self, uint32_t port, int *ret_fd, struct cella_error *err)
{
    static const char *const names[] = {"agent", "guest"};
    struct fullvm *f = self;

    if (port >= ARRAY_LEN(names))
        return cella_error_set(err, -ENOTSUP, 0,
                               "port %u: a machine has port 0, the agent, and port 1, its init",
                               port);
    if (f->port_fds[port] >= 0) {
        *ret_fd = steal_fd(&f->port_fds[port]);
        return 0;
    }
    return launch_connect(f, names[port], ret_fd, err);
}

static int fullvm_reap(const struct cella_host *host, const struct cella_reap *reap,
                       struct cella_error *err)
{
    struct cgroup_layout layout;
    int r = cgroup_layout_read(&layout, err);

    (void)host;
    /* QEMU dies with its warden; memory and disk have no name, the sockets are in scratch */
    return r < 0 ? r
                 : cgroup_reap(&layout, reap->cell_id, reap->dry_run != 0, reap->ctx, reap->found,
                               err);
}

static int fullvm_pause(void *self, struct cella_error *err)
{
    struct fullvm *f = self;
    int r = qemu_pause(&f->qemu, err);

    if (r == 0)
        f->paused = 1;
    return r;
}

static int fullvm_resume(void *self, struct cella_error *err)
{
    struct fullvm *f = self;
    int r = qemu_cont(&f->qemu, err);

    if (r == 0)
        f->paused = 0;
    return r;
}

static int fullvm_stats(void *self, struct cella_stats *ret_stats, struct cella_error *err)
{
    struct fullvm *f = self;

    (void)err;
    qmp_drain(&f->qemu.qmp); /* events that nobody waits for */
    limits_stats(f, ret_stats);
    return 0;
}

static int fullvm_resize(void *self, const struct cella_limits *limits, struct cella_error *err)
{
    return limits_resize(self, limits, err);
}

static int fullvm_snapshot(void *self, const struct cella_snapshot *snapshot,
                           struct cella_error *err)
{
    return snapshot_take(self, snapshot, err);
}

static int fullvm_restore(const struct cella_host *host, const struct cella_spec *spec,
                          const struct cella_snapshot *snapshot, void **ret_self,
                          struct cella_error *err)
{
    struct fullvm *f;
    int r = launch_new(host, spec, 1, &f, err);

    if (r == 0) {
        r = snapshot_restore(f, spec, snapshot->borrow_dir_fd, err);
        if (r < 0)
            launch_free(f);
    }
    if (spec->own_tap_fd >= 0)
        close(spec->own_tap_fd); /* QEMU has its own */
    if (r < 0)
        return r;
    *ret_self = f;
    return 0;
}

/* By way of a snapshot that has no name any more when this returns; the child holds its files. */
static int fullvm_fork(void *self, const struct cella_spec *child, void **ret_self,
                       struct cella_error *err)
{
    struct fullvm *f = self;
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
            r = fullvm_restore(f->host, child, &s, ret_self, err);
        else if (child->own_tap_fd >= 0)
            close(child->own_tap_fd);
        close(s.borrow_dir_fd);
    } else if (child->own_tap_fd >= 0) {
        close(child->own_tap_fd);
    }
    remove_tree_at(f->scratch_fd, "fork");
    return r;
}

static const struct cella_backend_ops ops = {
    .hdr = CELLA_HDR_INIT(struct cella_backend_ops, CELLA_KIND_BACKEND),
    .name = "fullvm",
    .version = "0.1.0",
    .summary = "a machine of its own, emulated by a jailed QEMU: KVM where the host has it",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .option_stride = sizeof(struct cella_option),
    .methods = fullvm_methods,
    .n_methods = FULLVM_N_METHODS,
    .method_stride = sizeof(struct cella_method),
    .probe = fullvm_probe,
    .create = fullvm_create,
    .start = fullvm_start,
    .stop = fullvm_stop,
    .destroy = fullvm_destroy,
    .connect = fullvm_connect,
    .reap = fullvm_reap,
    .pause = fullvm_pause,
    .resume = fullvm_resume,
    .stats = fullvm_stats,
    .resize = fullvm_resize,
    .snapshot = fullvm_snapshot,
    .restore = fullvm_restore,
    .fork = fullvm_fork,
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
