/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * init - what the two new processes do, in order. Nothing the cell controls runs before the last
 * line of init_second().
 *
 *   first process, root of the host      enters the control groups before anything else, so that
 * all it does is charged there; takes host paths as detached mounts enters the cell's user and
 * network namespace, becomes its id 0, makes the other namespaces, and makes second process = PID 1
 * of the cell   a sibling, not a child (CLONE_PARENT): the host process can wait for it and is the
 * parent whose death kills it builds the tree, drops everything, says "ready", waits for the start
 * byte, becomes the agent
 *
 * Mustn't: allocate, use stdio, or keep a descriptor past close_range(). Death of the host process:
 * PR_SET_PDEATHSIG, armed again after the last change of credentials because those clear it, and a
 * look at the socket after each arming, because the host may have died just before. Threads: one.
 */
#include <fcntl.h>
#include <linux/keyctl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <grp.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "container.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#define SYNC_FD 4
#define AGENT_FD 5
#define LAYER_FD 6

static void report_send(const struct launch *l, const struct report *r, int fd)
{
    if (send_fds(l->sync_fd, r, sizeof(*r), &fd, fd >= 0 ? 1 : 0) < 0)
        _exit(1); /* nobody listens: the host process is gone */
}

void child_fail(const struct launch *l, int code, enum step step, const char *fmt, ...)
{
    struct report r = {.kind = REPORT_FAILED, .code = code < 0 ? code : -EIO, .step = step};
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(r.text, sizeof(r.text), fmt, ap);
    va_end(ap);
    report_send(l, &r, -1);
    _exit(1);
}

static void die_with_host(const struct launch *l)
{
    struct pollfd p = {.fd = l->sync_fd, .events = 0};

    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        child_fail(l, -errno, STEP_PROCESS, "parent death signal: %s", strerror(errno));
    if (poll(&p, 1, 0) != 0) /* hang-up is always reported */
        _exit(1);
}

/* ------------------------------------------------------------------ first process */

static void enter_cgroups(const struct launch *l)
{
    int i;

    for (i = 0; i < l->n_entry; i++)
        if (write(l->entry_fds[i], "0", 1) != 1)
            child_fail(l, -errno, STEP_CGROUP, "control group: cannot enter it: %s%s",
                       strerror(errno), errno == ENOMEM ? "; the memory limit is too small" : "");
}

static void enter_userns(const struct launch *l)
{
    if (setns(l->userns_fd, CLONE_NEWUSER) < 0)
        child_fail(l, -errno, STEP_NAMESPACE, "user namespace: cannot enter it: %s",
                   strerror(errno));
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        child_fail(l, -errno, STEP_NAMESPACE,
                   "user namespace: cannot become its id 0: %s; it must map 0 to the cell's range",
                   strerror(errno));
    if (l->netns_fd >= 0 && setns(l->netns_fd, CLONE_NEWNET) < 0)
        child_fail(
            l, -errno, STEP_NAMESPACE,
            "network namespace: cannot enter it: %s; it must be owned by the cell's user namespace",
            strerror(errno));
}

/* The clocks of the cell start near zero: the host's uptime is not its business. */
static void clocks_reset(const struct launch *l)
{
    struct timespec mono, boot;
    char text[128];

    clock_gettime(CLOCK_MONOTONIC, &mono);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    snprintf(text, sizeof(text), "monotonic -%lld 0\nboottime -%lld 0\n", (long long)mono.tv_sec,
             (long long)boot.tv_sec);
    if (write(l->clocks_fd, text, strlen(text)) < 0)
        child_fail(l, -errno, STEP_NAMESPACE, "time namespace: cannot set its clocks: %s",
                   strerror(errno));
}

static void new_namespaces(const struct launch *l)
{
    int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;

    if (l->netns_fd < 0)
        flags |= CLONE_NEWNET;
    if (l->clocks_fd >= 0 && unshare(flags | CLONE_NEWTIME) == 0) {
        clocks_reset(l);
        return;
    }
    if ((l->clocks_fd >= 0 && errno != EINVAL) || unshare(flags) < 0)
        child_fail(l, -errno, STEP_NAMESPACE,
                   "namespaces: cannot create them: %s; check user.max_*_namespaces",
                   strerror(errno));
}

/* ----------------------------------------------------------------- second process */

static void loopback_up(void)
{
    struct ifreq ifr = {.ifr_name = "lo"};
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (s < 0)
        return;
    if (ioctl(s, SIOCGIFFLAGS, &ifr) == 0 && !(ifr.ifr_flags & IFF_UP)) {
        ifr.ifr_flags |= IFF_UP;
        ioctl(s, SIOCSIFFLAGS, &ifr);
    }
    close(s);
}

static void name_host(const struct launch *l)
{
    const char *name = l->spec->hostname ? l->spec->hostname : l->spec->cell_id;

    if (sethostname(name, strlen(name)) < 0 || setdomainname("", 0) < 0)
        child_fail(l, -errno, STEP_CONFINE, "hostname \"%s\": %s", name, strerror(errno));
}

/* 0-2 the cell's /dev/null, 3 the stream, the others ours until exec. Nothing else stays open. */
static void arrange_fds(struct launch *l, int layer)
{
    int stream = fcntl(l->stream_fd, F_DUPFD_CLOEXEC, 64),
        sync = fcntl(l->sync_fd, F_DUPFD_CLOEXEC, 64);
    int agent = fcntl(l->spec->borrow_agent_fd, F_DUPFD_CLOEXEC, 64);
    int keep = fcntl(layer, F_DUPFD_CLOEXEC, 64);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), i;

    if (stream < 0 || sync < 0 || agent < 0 || keep < 0 || null < 0)
        child_fail(l, -errno, STEP_CONFINE, "descriptors: %s", strerror(errno));
    null = fcntl(null, F_DUPFD_CLOEXEC, 64);
    for (i = 0; i < 3; i++)
        if (dup2(null, i) < 0)
            child_fail(l, -errno, STEP_CONFINE, "descriptors: %s", strerror(errno));
    if (dup2(stream, STREAM_FD) < 0 || dup3(sync, SYNC_FD, O_CLOEXEC) < 0 ||
        dup3(agent, AGENT_FD, O_CLOEXEC) < 0 || dup3(keep, LAYER_FD, O_CLOEXEC) < 0)
        _exit(1);
    l->sync_fd = SYNC_FD;
    l->stream_fd = STREAM_FD;
    if (syscall(SYS_close_range, LAYER_FD + 1, ~0u, 0) < 0)
        child_fail(l, -errno, STEP_CONFINE, "descriptors: cannot close the host's: %s",
                   strerror(errno));
}

static void reset_signals(void)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigset_t none;
    int i;

    for (i = 1; i < NSIG; i++)
        sigaction(i, &dfl, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void become_agent(const struct launch *l)
{
    static char name[] = "cella-agent";
    char *argv[] = {name, NULL}, *envp[] = {NULL};
    ssize_t n;
    char c;

    do
        n = recv(l->sync_fd, &c, 1, 0);
    while (n < 0 && errno == EINTR);
    if (n != 1)
        _exit(0); /* stopped before start, or the host process died */
    execveat(AGENT_FD, "", argv, envp, AT_EMPTY_PATH);
    child_fail(l, -errno, STEP_EXEC,
               "agent: cannot execute it: %s; it must be a static program for this machine",
               strerror(errno));
}

static void init_second(struct launch *l) __attribute__((noreturn));
static void init_second(struct launch *l)
{
    struct report ready = {.kind = REPORT_READY, .idmapped = (uint32_t)l->idmapped};
    int layer;

    die_with_host(l);
    setsid();
    layer = mounts_build(l);
    name_host(l);
    loopback_up();
    syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL, 0, 0,
            0); /* no key of the host's session */
    reset_signals();
    umask(022);
    arrange_fds(l, layer);
    confine(l);
    die_with_host(l);
    report_send(l, &ready, LAYER_FD);
    close(LAYER_FD);
    become_agent(l);
    _exit(1);
}

void init_main(struct launch *l)
{
    struct report r = {.kind = REPORT_PID};
    long pid;

    enter_cgroups(l);
    close(l->host_sync_fd); /* so that a hang-up can be seen */
    die_with_host(l);
    umask(0);
    confine_limits(l);
    mounts_open(l);
    /* opened with the host's rights, because a process that changes its user loses its own /proc
     * files */
    l->clocks_fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    enter_userns(l);
    new_namespaces(l);
    pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid < 0)
        child_fail(l, -errno, STEP_PROCESS, "init: cannot create it: %s", strerror(errno));
    if (pid == 0)
        init_second(l);
    r.pid = (int32_t)pid;
    report_send(l, &r, -1);
    _exit(0);
}
