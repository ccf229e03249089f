/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * helper - starting cella-gate-setup and hearing how it went.
 *
 * posix_spawn (vfork underneath) because the warden is large next to its helper; empty environment,
 * default signals, /dev/null as standard descriptors, nothing else inherited (every descriptor of
 * the warden is close-on-exec). Every wait has a deadline: a hanging helper fails the step, it does
 * not hang the cell.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "egress.h"

#define RAISED 32 /* sources of dup2 lie above every target */
#define HELPER_NS 10000000000u

int helper_program(const struct cella_host *host, const char *name, char ret[4096],
                   struct cella_error *err)
{
    const char *p = CELLA_HOST_HAS(host, helper_path) ? host->helper_path(host->ctx, name) : NULL;

    if (p && (size_t)snprintf(ret, 4096, "%s", p) < 4096)
        return 0;
    return fail(err, -ENOENT, "the helper program %s is not installed beside cella", name);
}

int table_memfd(const struct policy_table *t)
{
    auto_free void *bytes = NULL;
    auto_close int fd = memfd_create("cella-policy", MFD_CLOEXEC);
    size_t len;
    int r;

    if (fd < 0)
        return -errno;
    r = policy_table_save(t, &bytes, &len);
    if (r == 0)
        r = write_all(fd, bytes, len);
    return r < 0 ? r : steal_fd(&fd);
}

static int actions_init(posix_spawn_file_actions_t *fa, const int fds[5])
{
    static const int to[5] = {FD_CTL, FD_POLICY, FD_CELL, FD_UPLINK, FD_LEDGER_SETUP};
    int i, r = posix_spawn_file_actions_init(fa);

    for (i = 0; r == 0 && i < 3; i++)
        r = posix_spawn_file_actions_addopen(fa, i, "/dev/null", O_RDWR, 0);
    for (i = 0; r == 0 && i < 5; i++)
        if (fds[i] >= 0)
            r = posix_spawn_file_actions_adddup2(fa, fds[i], to[i]);
    return -r;
}

static int spawn(const char *path, char *const argv[], const int fds[5], pid_t *ret)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t at;
    char *envp[] = {NULL};
    sigset_t none, all;
    int r = actions_init(&fa, fds);

    if (r < 0)
        return r;
    sigemptyset(&none);
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    posix_spawnattr_init(&at);
    posix_spawnattr_setsigmask(&at, &none);
    posix_spawnattr_setsigdefault(&at, &all);
    posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    r = -posix_spawn(ret, path, &fa, &at, argv, envp);
    posix_spawnattr_destroy(&at);
    posix_spawn_file_actions_destroy(&fa);
    return r;
}

int helper_spawn(const struct cella_host *host, char *const argv[],
                 const struct policy_table *table, const int ns[3], pid_t *ret_pid, int *ret_ctl,
                 struct cella_error *err)
{
    int pair[2], from[5], fds[5] = {-1, -1, -1, -1, -1}, policy = -1, i;
    char path[4096];
    int r = helper_program(host, argv[0], path, err);

    if (r < 0)
        return r;
    if (table) {
        policy = table_memfd(table);
        if (policy < 0)
            return fail(err, policy, "no memory file for the policy: %s", strerror(-policy));
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        r = -errno;
        auto_close_(&policy);
        return fail(err, r, "no socket pair for the gate: %s", strerror(-r));
    }
    from[0] = pair[1];
    from[1] = policy;
    from[2] = ns[0];
    from[3] = ns[1];
    from[4] = ns[2];
    for (i = 0; r == 0 && i < 5; i++)
        if (from[i] >= 0 && (fds[i] = fcntl(from[i], F_DUPFD_CLOEXEC, RAISED)) < 0)
            r = -errno;
    if (r == 0)
        r = spawn(path, argv, fds, ret_pid);
    for (i = 0; i < 5; i++)
        auto_close_(&fds[i]);
    auto_close_(&policy);
    close(pair[1]);
    if (r < 0) {
        close(pair[0]);
        return fail(err, r, "starting %s: %s", path, strerror(-r));
    }
    *ret_ctl = pair[0];
    return 0;
}

int ctl_wait(int ctl, uint64_t deadline, struct ctl_msg *ret, int *fds, int *nfds)
{
    int none = 0;

    for (;;) {
        struct pollfd p = {.fd = ctl, .events = POLLIN};
        uint64_t now = now_ns();
        int ms = deadline > now ? (int)((deadline - now + 999999) / 1000000) : 0;
        int r = poll(&p, 1, ms);
        long n;

        if (r < 0 && errno == EINTR)
            continue;
        if (r == 0)
            return -ETIMEDOUT;
        n = recv_fds(ctl, ret, sizeof(*ret), fds, nfds ? nfds : &none);
        if (n == 0)
            return -EPIPE;
        if (n != (long)sizeof(*ret))
            return n < 0 ? (int)n : -EBADMSG;
        ret->rule[sizeof(ret->rule) - 1] = 0;
        ret->name[sizeof(ret->name) - 1] = 0;
        ret->hint[sizeof(ret->hint) - 1] = 0;
        return 0;
    }
}

int helper_failed(const struct ctl_msg *m, struct cella_error *err)
{
    int code = m->count && m->count < 4096 ? -(int)m->count : -EIO;

    return fail(err, code, "%s", m->name);
}

int helper_run(const struct cella_host *host, char *const argv[], const struct policy_table *table,
               const int ns[3], struct cella_error *err)
{
    struct ctl_msg m;
    pid_t pid;
    int ctl = -1, r = helper_spawn(host, argv, table, ns, &pid, &ctl, err);

    if (r < 0)
        return r;
    r = ctl_wait(ctl, now_ns() + HELPER_NS, &m, NULL, NULL);
    if (r < 0) {
        kill(pid, SIGKILL); /* our child, not waited for yet: the number is still its */
        r = fail(err, r, "%s %s said nothing: %s", argv[0], argv[1], strerror(-r));
    } else if (m.type != CTL_PUBLISHED) {
        r = helper_failed(&m, err);
    }
    close(ctl);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return r;
}
