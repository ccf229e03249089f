/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * launch - the host's side of making a cell's processes.
 *
 * Two sockets: the stream, whose one end becomes descriptor 3 of the agent, and the sync socket,
 * over which the new processes report (failure in words, the init's pid, "ready" with the writable
 * layer's descriptor) and wait for the start byte. It is close-on-exec there: its end of file after
 * the start byte means that the agent has been executed.
 *
 * Invariants: on failure no process is left and every descriptor is closed. The init is our child,
 * so its pid cannot be reused before we have waited for it. Threads: one.
 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <linux/sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "container.h"
#include "nspair.h"

#define READY_MS 30000

static int spec_check(const struct cella_spec *spec, struct cella_error *err)
{
    uint32_t i;
    int r = spec_check_processes(spec, LAUNCH_MOUNTS_MAX, STEP_SPEC, err);

    if (r == 0 && spec->borrow_userns_fd < 0 && spec->borrow_netns_fd >= 0)
        r = cella_error_set(err, -EINVAL, STEP_SPEC,
                            "a network namespace without the user namespace that owns it");
    for (i = 0; r == 0 && i < spec->n_mounts; i++)
        r = spec_check_mount(spec_mount(spec, i), STEP_SPEC, err);
    return r;
}

/* The first process; in the v2 group from birth, where there is one. */
static long first_process(int v2_fd)
{
    struct clone_args args = {.exit_signal = SIGCHLD};
    long pid;

    if (v2_fd >= 0) {
        args.flags = CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)v2_fd;
    }
    pid = syscall(SYS_clone3, &args, sizeof(args));
    return pid;
}

static int report_read(int sock, struct report *r, int *ret_fd, struct cella_error *err)
{
    struct pollfd p = {.fd = sock, .events = POLLIN};
    int nfds = 1, fd = -1, n;
    long got;

    do
        n = poll(&p, 1, READY_MS);
    while (n < 0 && errno == EINTR);
    if (n == 0)
        return cella_error_set(
            err, -ETIMEDOUT, STEP_PROCESS,
            "init: not ready after %d s; is a mount source on a dead network file system?",
            READY_MS / 1000);
    got = recv_fds(sock, r, sizeof(*r), &fd, &nfds);
    if (got == 0)
        return -EPIPE;
    if (got != (long)sizeof(*r))
        return cella_error_set(err, -EIO, STEP_PROCESS, "init: unreadable report");
    r->text[sizeof(r->text) - 1] = 0;
    if (nfds == 1)
        *ret_fd = fd;
    return 0;
}

static int recv_ready(int sock)
{
    struct pollfd p = {.fd = sock, .events = POLLIN};

    return poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
}

static void reap_pid(pid_t pid)
{
    while (pid > 0 && waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
        ;
}

/* Reads reports until the init is known and ready. */
static int wait_ready(struct container *c, int *ret_idmapped, struct cella_error *err)
{
    int ready = 0;

    while (!ready || !c->pid) {
        struct report r;
        int fd = -1, e = report_read(c->sync_fd, &r, &fd, err);
        if (e == -EPIPE) {
            struct cgroup_stats s;
            cgroup_stats_read(&c->cgroup, &s);
            return s.oom_kills
                       ? cella_error_set(err, -ENOMEM, STEP_PROCESS,
                                         "init: killed for memory before it was ready; the memory "
                                         "limit is too small")
                       : cella_error_set(err, -EIO, STEP_PROCESS, "init: died before it was ready");
        }
        if (e < 0)
            return e;
        switch (r.kind) {
        case REPORT_PID:
            c->pid = r.pid;
            break;
        case REPORT_READY:
            ready = 1;
            c->layer_fd = fd;
            *ret_idmapped = (int)r.idmapped;
            break;
        default:
            return cella_error_set(err, r.code < 0 ? r.code : -EIO, r.step, "%s", r.text);
        }
    }
    return 0;
}

/* After a failure and the end of the first process: did it tell the init's pid? */
static void drain(struct container *c)
{
    struct report r;
    int fd = -1, nfds = 1;

    while (!c->pid && recv_ready(c->sync_fd) &&
           recv_fds(c->sync_fd, &r, sizeof(r), &fd, &nfds) > 0) {
        if (nfds == 1)
            close(fd);
        if (r.kind == REPORT_PID)
            c->pid = r.pid;
        nfds = 1;
    }
}

static int processes_make(struct container *c, struct launch *l, struct cella_error *err)
{
    int v2_fd, r, i, idmapped = 0;
    long first;

    l->n_entry = cgroup_entry(&c->cgroup, &v2_fd, l->entry_fds, err);
    if (l->n_entry < 0)
        return l->n_entry;
    first = first_process(v2_fd);
    if (first == 0)
        init_main(l);
    r = first < 0 ? cella_error_set(err, -errno, STEP_PROCESS, "cannot fork: %s", strerror(errno))
                  : 0;
    for (i = 0; i < l->n_entry; i++)
        close(l->entry_fds[i]);
    close(l->sync_fd);
    close(l->stream_fd);
    l->sync_fd = l->stream_fd = -1;
    if (r < 0)
        return r;
    r = wait_ready(c, &idmapped, err);
    if (r == -ETIMEDOUT)
        kill((pid_t)first, SIGKILL);
    reap_pid((pid_t)first);
    if (r < 0)
        drain(c);
    if (r == 0) {
        c->pidfd = pidfd_open_(c->pid);
        if (c->pidfd < 0)
            r = cella_error_set(err, c->pidfd, STEP_PROCESS, "init: no pidfd: %s",
                                strerror(-c->pidfd));
    }
    if (r == 0 && !idmapped)
        c->host->log(c->host->ctx, CELLA_LOG_INFO, "container",
                     "cell %s: the file system of %s cannot map owner ids; its files belong to "
                     "nobody in the "
                     "cell and cannot be changed there",
                     c->id, l->spec->root);
    return r;
}

int launch(struct container *c, const struct cella_spec *spec, struct cella_error *err)
{
    struct launch l = {.spec = spec,
                       .userns_fd = spec->borrow_userns_fd,
                       .netns_fd = spec->borrow_netns_fd,
                       .sync_fd = -1,
                       .stream_fd = -1};
    struct nspair own = NSPAIR_INIT;
    int stream[2] = {-1, -1}, sync[2] = {-1, -1}, r = spec_check(spec, err);

    if (r < 0)
        return r;
    if (l.userns_fd < 0) {
        r = nspair_new(spec->uid_base, spec->uid_count, &own, err);
        if (r < 0)
            return r;
        l.userns_fd = own.userns_fd;
        l.netns_fd = own.netns_fd;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sync) < 0) {
        r = cella_error_set(err, -errno, STEP_PROCESS, "cannot make a socket pair: %s",
                            strerror(errno));
        if (stream[0] >= 0) {
            close(stream[0]);
            close(stream[1]);
        }
    } else {
        c->stream_fd = stream[0];
        c->sync_fd = l.host_sync_fd = sync[0];
        l.stream_fd = stream[1];
        l.sync_fd = sync[1];
        r = processes_make(c, &l, err);
        if (l.sync_fd >= 0) {
            close(l.sync_fd);
            close(l.stream_fd);
        }
    }
    nspair_close(&own);
    return r;
}

int launch_go(struct container *c, struct cella_error *err)
{
    struct report r;
    int fd = -1, e;

    if (send(c->sync_fd, "s", 1, MSG_NOSIGNAL) != 1)
        return cella_error_set(err, -errno, STEP_EXEC, "init: it died before the start: %s",
                               strerror(errno));
    e = report_read(c->sync_fd, &r, &fd, err);
    if (fd >= 0)
        close(fd);
    if (e == 0)
        return cella_error_set(err, r.code < 0 ? r.code : -EIO, r.step, "%s", r.text);
    if (e != -EPIPE)
        return e;
    close(c->sync_fd);
    c->sync_fd = -1;
    return 0;
}

void launch_kill(struct container *c)
{
    if (c->pid <= 0)
        return;
    if (c->paused) {
        cgroup_kill(&c->cgroup);
        cgroup_freeze(&c->cgroup, 0, NULL);
        c->paused = 0;
    }
    /* kills and reaps everything in the cell's pid namespace before the wait below returns */
    kill(c->pid, SIGKILL);
    reap_pid(c->pid);
    c->pid = 0;
}
