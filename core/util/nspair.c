/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * nspair - makes the two namespaces of a cell before anything runs in it.
 *
 * A child is needed because a namespace exists through a process until somebody holds a descriptor.
 * It shares the caller's memory and only sleeps in a read(), so it costs no page-table copy; it is
 * killed and reaped before return. The maps are written by the caller, who is privileged outside;
 * setgroups stays allowed, because the range is the cell's own and dropping groups inside must
 * work.
 *
 * Threads: may be called from any; no state.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "nspair.h"

#define STACK_SIZE 16384

static int child_main(void *arg)
{
    const int *pipefd = arg;
    char c;

    /* Its end of file means that the caller is gone, even when that happened before the line above
     * it took hold. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(pipefd[1]);
    while (read(pipefd[0], &c, 1) < 0)
        ;
    _exit(0);
}

static int map_write(int proc, const char *file, uint32_t base, uint32_t count,
                     struct cella_error *err)
{
    char text[64];
    int r;

    snprintf(text, sizeof(text), "0 %u %u\n", base, count);
    r = write_file_at(proc, file, text);
    if (r < 0)
        return fail(err, r,
                    "user namespace: cannot map ids 0-%u to %u (%s): %s; cella must run as root",
                    count - 1, base, file, strerror(-r));
    return 0;
}

static int pair_open(pid_t pid, uint32_t base, uint32_t count, int want_net, struct nspair *ret,
                     struct cella_error *err)
{
    char path[32];
    auto_close int proc = -1, user = -1, net = -1;
    int r;

    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return fail(err, -errno, "user namespace: cannot open %s: %s; /proc must be mounted", path,
                    strerror(errno));
    r = map_write(proc, "uid_map", base, count, err);
    if (r == 0)
        r = map_write(proc, "gid_map", base, count, err);
    if (r < 0)
        return r;
    user = openat(proc, "ns/user", O_RDONLY | O_CLOEXEC);
    if (want_net)
        net = openat(proc, "ns/net", O_RDONLY | O_CLOEXEC);
    if (user < 0 || (want_net && net < 0))
        return fail(err, -errno, "user namespace: cannot open %s/ns: %s", path, strerror(errno));
    ret->userns_fd = steal_fd(&user);
    ret->netns_fd = steal_fd(&net);
    return 0;
}

static int make(uint32_t uid_base, uint32_t count, int want_net, struct nspair *ret,
                struct cella_error *err)
{
    int pipefd[2], r;
    char *stack;
    pid_t pid;

    if (!uid_base || count < 65536 || uid_base > UINT32_MAX - count)
        return fail(err, -EINVAL,
                    "user namespace: range %u+%u is not usable: it must hold 65536 ids and not "
                    "begin at 0",
                    uid_base, count);
    stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK,
                 -1, 0);
    if (stack == MAP_FAILED)
        return fail(err, -ENOMEM, "user namespace: out of memory");
    if (pipe2(pipefd, O_CLOEXEC) < 0) {
        r = fail(err, -errno, "user namespace: no pipe: %s", strerror(errno));
        munmap(stack, STACK_SIZE);
        return r;
    }
    pid = clone(child_main, stack + STACK_SIZE,
                CLONE_VM | CLONE_NEWUSER | (want_net ? CLONE_NEWNET : 0) | SIGCHLD, pipefd);
    if (pid < 0) {
        r = fail(err, -errno,
                 "user namespace: cannot create one: %s; check user.max_user_namespaces and "
                 "user.max_net_namespaces",
                 strerror(errno));
    } else {
        r = pair_open(pid, uid_base, count, want_net, ret, err);
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close(pipefd[0]);
    close(pipefd[1]);
    munmap(stack, STACK_SIZE);
    return r;
}

int nspair_new(uint32_t uid_base, uint32_t count, struct nspair *ret, struct cella_error *err)
{
    return make(uid_base, count, 1, ret, err);
}

int nspair_user_new(uint32_t uid_base, uint32_t count, struct nspair *ret, struct cella_error *err)
{
    return make(uid_base, count, 0, ret, err);
}

void nspair_close(struct nspair *p)
{
    if (p->userns_fd >= 0)
        close(p->userns_fd);
    if (p->netns_fd >= 0)
        close(p->netns_fd);
    p->userns_fd = p->netns_fd = -1;
}
