/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * jail - the host's side of jail_spawn(): one process in new namespaces and its control group, and a socket over
 * which it says in words why it could not become the program. End of file there means that it has.
 *
 * Invariants: on failure no process is left. The child is ours, so its pid cannot be reused before it is waited
 * for. What the child does is in jail_child.c. Threads: one.
 */
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "jail_int.h"

#define READY_MS 20000

int jail_bind(struct jail *j, const char *source, int file, int writable, const char *target_fmt,
              ...)
{
    struct jail_bind *b = &j->binds[j->n_binds];
    va_list ap;
    int n;

    if (j->n_binds == JAIL_BINDS_MAX)
        return -E2BIG;
    va_start(ap, target_fmt);
    n = vsnprintf(b->target, sizeof(b->target), target_fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(b->target))
        return -ENAMETOOLONG;
    b->source = source;
    b->file = file;
    b->writable = writable;
    j->n_binds++;
    return 0;
}

static long born(int v2_fd, int *ret_pidfd)
{
    struct clone_args args = {.exit_signal = SIGCHLD};

    args.flags = CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                 CLONE_NEWUTS | CLONE_NEWCGROUP;
    args.pidfd = (uint64_t)(uintptr_t)ret_pidfd;
    if (v2_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)v2_fd;
    }
    return syscall(SYS_clone3, &args, sizeof(args));
}

static int map_write(pid_t pid, const char *name, uint32_t id, struct cella_error *err)
{
    char path[64], line[32];
    int n, fd;

    snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    n = snprintf(line, sizeof(line), "%u %u 1", JAIL_NOBODY, id);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, line, (size_t)n) != n) {
        n = fail(err, -errno, "jail: %s: cannot write \"%s\": %s", path, line, strerror(errno));
        if (fd >= 0)
            close(fd);
        return n;
    }
    close(fd);
    return 0;
}

static int map_ids(int sock, pid_t pid, uint32_t id, struct cella_error *err)
{
    int r = map_write(pid, "gid_map", id, err);

    if (r == 0)
        r = map_write(pid, "uid_map", id, err);
    if (r == 0 && send(sock, "", 1, MSG_NOSIGNAL) != 1)
        r = fail(err, -EIO, "jail: the process ended before it had its id");
    return r;
}

static int hear(int sock, struct jail_report *ret, struct cella_error *err)
{
    struct pollfd p = {.fd = sock, .events = POLLIN};
    ssize_t got;
    int n;

    do
        n = poll(&p, 1, READY_MS);
    while (n < 0 && errno == EINTR);
    if (n == 0)
        return fail(err, -ETIMEDOUT,
                    "jail: not ready after %d s; is a mount source on a dead network file system?",
                    READY_MS / 1000);
    got = recv(sock, ret, sizeof(*ret), 0);
    if (got != 0 && got != (ssize_t)sizeof(*ret))
        return fail(err, -EIO, "jail: unreadable report");
    return (int)got;
}

/* 0 when the program runs. */
static int listen_to(int sock, const struct jail *j, pid_t pid, struct cella_error *err)
{
    struct jail_report report;
    int r = hear(sock, &report, err);

    if (r > 0 && report.code == JAIL_IN_OWN_USERS && j->own_users) {
        r = map_ids(sock, pid, j->id, err);
        if (r == 0)
            r = hear(sock, &report, err);
    }
    if (r <= 0)
        return r;
    report.text[sizeof(report.text) - 1] = 0;
    return fail(err, report.code < 0 ? report.code : -EIO, "jail: %s", report.text);
}

static void end_child(pid_t pid)
{
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
        ;
}

int jail_spawn(const struct jail *j, pid_t *ret_pid, int *ret_pidfd, struct cella_error *err)
{
    struct jail_child c = {.jail = j};
    int sync[2], v2_fd = -1, pidfd = -1, i, r;
    long pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sync) < 0)
        return fail(err, -errno, "jail: socket pair: %s", strerror(errno));
    if (j->cgroup) {
        c.n_entry = cgroup_entry(j->cgroup, &v2_fd, c.entry_fds, err);
        if (c.n_entry < 0) {
            close(sync[0]);
            close(sync[1]);
            return c.n_entry;
        }
    }
    c.sync_fd = sync[1];
    c.host_sync_fd = sync[0];
    pid = born(v2_fd, &pidfd);
    if (pid == 0)
        jail_child(&c);
    r = pid < 0 ? fail(err, -errno, "jail: cannot make a process in new namespaces: %s",
                       strerror(errno))
                : 0;
    for (i = 0; i < c.n_entry; i++)
        close(c.entry_fds[i]);
    close(sync[1]);
    if (r == 0) {
        r = listen_to(sync[0], j, (pid_t)pid, err);
        if (r < 0) {
            end_child((pid_t)pid);
            close(pidfd);
        }
    }
    close(sync[0]);
    if (r < 0)
        return r;
    *ret_pid = (pid_t)pid;
    *ret_pidfd = pidfd;
    return 0;
}
