/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */
/*
 * null-backend - the smallest backend that keeps every promise of <cella/backend.h>. Start here.
 * Its "cell" is one child process that sleeps: no root, no network, no agent, so nothing untrusted
 * can run in it. connect() gives a stream whose other end is closed: the core reads end-of-file and
 * knows that no agent is there. Limits cannot be enforced, so they are refused.
 * Threads: the host calls one instance from one thread at a time; there is no global state.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cella/backend.h>
#include <cella/plugin.h>

struct null_cell {
    pid_t pid;   /* 0: not running */
    int exit_fd; /* pidfd of pid; -1 */
};

/* Answers must be true on this host, now. A reason is for people: what is missing, and why. */
static int null_probe(const struct cella_host *host, const struct cella_probe_report *report,
                      struct cella_probe *ret_probe, struct cella_error *err)
{
    (void)host, (void)err;
    report->capability(report->ctx, "limit.memory", CELLA_NONE, "an example enforces no limits");
    ret_probe->strength = CELLA_STRENGTH_PROCESS;
    ret_probe->net_need = CELLA_NET_NETNS;
    ret_probe->root_need = CELLA_ROOT_DIR;
    return 0;
}
static int null_create(const struct cella_host *host, const struct cella_spec *spec,
                       void **ret_self, struct cella_error *err)
{
    const struct cella_limits *l = spec->limits,
                              no = {.hdr = CELLA_HDR_INIT(struct cella_limits, CELLA_KIND_LIMITS)};
    struct null_cell *c;

    (void)host;
    if (spec->own_tap_fd >= 0)
        close(spec->own_tap_fd); /* own_: ours, whether we succeed or not */
    if (l && memcmp(l, &no, sizeof(no)))
        return cella_error_set(err, -ENOTSUP, 1, "it enforces no limits; ask for none");
    *ret_self = c = calloc(1, sizeof(*c));
    return c ? (c->exit_fd = -1, 0) : cella_error_set(err, -ENOMEM, 2, "out of memory");
}
static int null_stop(void *self, uint32_t how, uint64_t timeout_ns, struct cella_error *err)
{
    struct null_cell *c = self;

    (void)how, (void)timeout_ns, (void)err;
    if (c->pid > 0 && kill(c->pid, SIGKILL) == 0) /* not waited for: the number is still its own */
        waitpid(c->pid, NULL, 0);
    c->pid = 0;
    return 0;
}
static int null_start(void *self, struct cella_started *ret_started, struct cella_error *err)
{
    struct null_cell *c = self;
    pid_t parent = getpid();

    c->pid = fork();
    if (c->pid == 0) { /* the cell: dies with the host process, holds none of its descriptors */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        syscall(SYS_close_range, 0u, ~0u, 0u);
        while (getppid() == parent)
            pause();
        _exit(0);
    }
    if (c->pid < 0 || (c->exit_fd = (int)syscall(SYS_pidfd_open, c->pid, 0)) < 0) {
        int e = errno;
        null_stop(c, CELLA_STOP_KILL, 0, NULL); /* a failure leaves nothing */
        return cella_error_set(err, -e, 3, "fork or pidfd_open: %s", strerror(e));
    }
    ret_started->borrow_exit_fd = c->exit_fd;
    ret_started->host_pid = (uint64_t)c->pid;
    return 0;
}
static int null_connect(void *self, uint32_t port, int *ret_fd, struct cella_error *err)
{
    int pair[2];

    (void)self;
    if (port != 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return cella_error_set(err, port ? -ENOTSUP : -errno, 4, "port %u: %s", port,
                               port ? "only port 0 exists" : strerror(errno));
    close(pair[1]);
    *ret_fd = pair[0];
    return 0;
}
static void null_destroy(void *self)
{
    struct null_cell *c = self;
    if (c)
        null_stop(c, CELLA_STOP_KILL, 0, NULL);
    if (c && c->exit_fd >= 0)
        close(c->exit_fd);
    free(c);
}
/* Nothing outlives the host process and nothing has a name, so there is nothing to find. */
static int null_reap(const struct cella_host *host, const struct cella_reap *reap,
                     struct cella_error *err)
{
    return (void)host, (void)reap, (void)err, 0;
}
/* clang-format off */
static const struct cella_backend_ops ops = {
    .hdr = CELLA_HDR_INIT(struct cella_backend_ops, CELLA_KIND_BACKEND),
    .name = "null", .version = "1.0", .summary = "example: a process that only sleeps; no agent",
    .probe = null_probe, .create = null_create, .start = null_start, .stop = null_stop,
    .destroy = null_destroy, .connect = null_connect, .reap = null_reap,
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
