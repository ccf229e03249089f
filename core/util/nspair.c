/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * nspair - makes the two namespaces of a cell before anything runs in it.
 *
 * A child is needed because a namespace exists through a process until somebody holds a descriptor.
 * It shares the caller's memory, so it costs no page-table copy; it makes the namespaces while the
 * caller goes on, then sleeps in a read(), and is killed and reaped by finish or drop. The maps are written by the caller, who is privileged outside;
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
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "nspair.h"

#define STACK_SIZE 16384

/* What the child says once, of PIPE_BUF or less. */
struct word {
    int error; /* of unshare(), positive */
};

/* Without errno, which the child shares with the caller that runs on meanwhile. */
static long bare(long number, long a, long b, long c)
{
    long r;

    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return r;
}

static int child_main(void *arg)
{
    const struct nspair_making *m = arg;
    struct word word = {0};
    char c;

    bare(SYS_close, m->near, 0, 0);
    word.error = (int)-bare(SYS_unshare, CLONE_NEWUSER | (m->want_net ? CLONE_NEWNET : 0), 0, 0);
    bare(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0);
    bare(SYS_write, m->far, (long)&word, sizeof(word));
    /* Its end of file means that the caller is gone, even when that happened before the line above
     * took hold. */
    while (bare(SYS_read, m->far, (long)&c, 1) < 0)
        ;
    bare(SYS_exit_group, 0, 0, 0);
    return 0;
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

int nspair_begin(int want_net, struct nspair_making *ret, struct cella_error *err)
{
    struct nspair_making m = {.want_net = want_net};
    int pair[2], r;

    m.stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (m.stack == MAP_FAILED)
        return fail(err, -ENOMEM, "user namespace: out of memory");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        r = fail(err, -errno, "user namespace: no socket pair: %s", strerror(errno));
        munmap(m.stack, STACK_SIZE);
        return r;
    }
    m.near = pair[0];
    m.far = pair[1];
    *ret = m;
    ret->pid = clone(child_main, m.stack + STACK_SIZE, CLONE_VM | SIGCHLD, ret);
    if (ret->pid > 0)
        return 0;
    r = fail(err, -errno, "user namespace: no process for it: %s", strerror(errno));
    ret->pid = 0;
    nspair_drop(ret);
    return r;
}

void nspair_drop(struct nspair_making *m)
{
    if (!m->stack)
        return;
    if (m->pid > 0) {
        kill(m->pid, SIGKILL);
        while (waitpid(m->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close(m->near);
    close(m->far);
    munmap(m->stack, STACK_SIZE);
    *m = NSPAIR_MAKING_INIT;
}

int nspair_finish(struct nspair_making *m, uint32_t uid_base, uint32_t count, struct nspair *ret,
                  struct cella_error *err)
{
    struct word word = {.error = EIO};
    int r;

    if (!uid_base || count < 65536 || uid_base > UINT32_MAX - count) {
        r = fail(err, -EINVAL,
                 "user namespace: range %u+%u is not usable: it must hold 65536 ids and not "
                 "begin at 0",
                 uid_base, count);
    } else {
        while (recv(m->near, &word, sizeof(word), MSG_WAITALL) < 0 && errno == EINTR)
            ;
        r = word.error ? fail(err, -word.error,
                              "user namespace: cannot create one: %s; check "
                              "user.max_user_namespaces and user.max_net_namespaces",
                              strerror(word.error))
                       : pair_open(m->pid, uid_base, count, m->want_net, ret, err);
    }
    nspair_drop(m);
    return r;
}

static int make(uint32_t uid_base, uint32_t count, int want_net, struct nspair *ret,
                struct cella_error *err)
{
    struct nspair_making m = NSPAIR_MAKING_INIT;
    int r = nspair_begin(want_net, &m, err);

    return r < 0 ? r : nspair_finish(&m, uid_base, count, ret, err);
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
