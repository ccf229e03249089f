/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella-agent - the program inside every cell: start, privileges, the loop, the end.
 *
 * Why one poll() and no epoll: few descriptors, and a set computed from the state each turn cannot
 * go stale. It is started with the host's stream as descriptor 3. Usually it is PID 1 of the cell;
 * otherwise it makes itself the reaper of everything it starts. When the stream closes it exits,
 * and everything with it: as PID 1 by the kernel, else because every supervisor sees its socket
 * close and kills its tree. Privileges: only the capabilities listed in `keep` stay; the real,
 * effective and saved uid become AGENT_UID where that is possible, so that a workload without
 * capabilities, root of the cell included, can neither signal nor trace the agent, a supervisor or
 * a worker. Files are still reached as uid 0 (fsuid). Threads: one.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "agent.h"

#define OUT_STOP (256u * 1024u) /* no request is read while this much waits for the host */
#define TERM_DEFAULT_MS 5000
#define CONTROL_FD 4 /* of init, beside a port: a new link, and its nonce */
#define POLL_MAX (3 + 4 * CELLA_STREAMS_MAX)

enum {
    CAP_CHOWN,
    CAP_DAC_OVERRIDE,
    CAP_FOWNER = 3,
    CAP_KILL = 5,
    CAP_SETGID,
    CAP_SETUID,
    CAP_SETPCAP
};

int dedicated_uid, shutting_down;
static uint64_t term_until, exit_by;
static int killed_all;

_Noreturn void leave(int code)
{
    _exit(code);
}

/* ---- start ---- */

static void drop_bounding(void)
{
    int cap;

    for (cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            return; /* past the last one; or no CAP_SETPCAP, and then no_new_privs is the wall */
}

static void drop_privileges(void)
{
    const uint32_t keep = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER |
                          1u << CAP_KILL | 1u << CAP_SETGID | 1u << CAP_SETUID | 1u << CAP_SETPCAP;
    struct {
        uint32_t version;
        int pid;
    } head = {0x20080522, 0};
    uint32_t d[6] = {0}; /* effective, permitted, inheritable; low words, then high words */

    drop_bounding();
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
    syscall(SYS_setgroups, 0, NULL);
    dedicated_uid = syscall(SYS_setresgid, AGENT_UID, AGENT_UID, AGENT_UID) == 0 &&
                    syscall(SYS_setresuid, AGENT_UID, AGENT_UID, AGENT_UID) == 0;
    prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
    if (syscall(SYS_capget, &head, d) < 0)
        leave(125);
    d[0] = d[1] = d[1] & keep;
    d[2] = d[3] = d[4] = d[5] = 0;
    if (syscall(SYS_capset, &head, d) < 0)
        leave(125);
    if (dedicated_uid) {
        setfsgid(0);
        setfsuid(0);
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        leave(125);
    /* The changes of user above disarmed what the backend had armed. Whoever kills the warden while the
     * agent stands still ends the cell by this alone. */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
}

/* 0, 1 and 2 are taken, so that no pipe of a command lands there; nothing is open above the link, or
 * above the control socket that a guest's init puts beside a port. */
static void settle_fds(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
            fd = eventfd(0, 0);
    } while (fd >= 0 && fd < LINK_FD);
    if (syscall(SYS_close_range, link_is_port() ? CONTROL_FD + 1 : LINK_FD + 1, ~0u, 0) < 0)
        leave(125);
    fcntl(LINK_FD, F_SETFD, FD_CLOEXEC);
    if (link_is_port())
        fcntl(CONTROL_FD, F_SETFD, FD_CLOEXEC);
}

static int watch_signals(void)
{
    sigset_t set;
    int fd;

    sigfillset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        leave(125);
    return fd;
}

static void hello(void)
{
    struct fields f = {0};

    put_u32(&f, CELLA_TAG_VERSION, CELLA_LINK_VERSION);
    put_u32(&f, CELLA_TAG_PID, (uint32_t)getpid());
    out_frame(CELLA_FRAME_HELLO, 0, 0, f.b, f.len);
    out_flush();
}

/* This machine is a copy of one that spoke with another host, or with this one before. */
static void link_anew(const uint8_t nonce[16])
{
    streams_orphan();
    in_anew();
    out_anew(nonce);
    hello();
}

/* From init: 16 bytes are the nonce of a new link, one byte with a descriptor is that link. */
static void control_read(void)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } c;
    uint8_t nonce[16];
    struct iovec iov = {nonce, sizeof(nonce)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.room};
    ssize_t n;
    int fd;

    m.msg_controllen = sizeof(c.room);
    n = recvmsg(CONTROL_FD, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n == 1 && m.msg_controllen >= sizeof(c.head) && c.head.cmsg_type == SCM_RIGHTS) {
        memcpy(&fd, CMSG_DATA(&c.head), sizeof(fd));
        link_take(fd);
    } else if (n == (ssize_t)sizeof(nonce)) {
        link_anew(nonce);
    }
}

/* ---- the end ---- */

void shutdown_begin(uint64_t timeout_ms)
{
    unsigned i;

    if (shutting_down)
        return;
    shutting_down = 1;
    if (timeout_ms > 3600000)
        timeout_ms = 3600000;
    term_until = now_ns() + timeout_ms * 1000000;
    for (i = 0; i < CELLA_STREAMS_MAX; i++)
        if (streams[i].used && streams[i].op == CELLA_OP_EXEC) {
            stream_command(&streams[i], CMD_SIGNAL_TREE, SIGTERM);
            stream_command(&streams[i], CMD_SIGNAL_TREE, SIGCONT);
        }
}

/* The last frames get a second to leave; the host is not waited for longer. */
static _Noreturn void finish(void)
{
    uint64_t until = now_ns() + NSEC;
    struct pollfd p = {LINK_FD, POLLOUT, 0};

    out_flush();
    while (out_pending() && now_ns() < until) {
        poll(&p, 1, 100);
        out_flush();
    }
    leave(0);
}

static uint64_t shutdown_step(void)
{
    uint64_t now = now_ns();
    unsigned i;

    if (!shutting_down)
        return UINT64_MAX;
    if (n_streams == 0 || (killed_all && now >= exit_by))
        finish();
    if (!killed_all && now >= term_until) {
        killed_all = 1;
        exit_by = now + 2 * NSEC;
        for (i = 0; i < CELLA_STREAMS_MAX; i++)
            if (streams[i].used)
                stream_kill(&streams[i]);
    }
    return killed_all ? exit_by : term_until;
}

/* ---- the loop ---- */

static void on_signals(int sigfd)
{
    struct signalfd_siginfo si;
    pid_t pid;

    while (read(sigfd, &si, sizeof(si)) == (ssize_t)sizeof(si))
        if (si.ssi_signo == SIGTERM)
            shutdown_begin(TERM_DEFAULT_MS);
    while ((pid = waitpid(-1, NULL, WNOHANG | __WALL)) > 0)
        stream_reaped(pid);
}

static int wait_ms(uint64_t due)
{
    uint64_t now = now_ns();

    if (due == UINT64_MAX)
        return -1;
    if (due <= now)
        return 0;
    return due - now > 3600 * NSEC ? 3600000 : (int)((due - now + 999999) / 1000000);
}

static _Noreturn void serve(int sigfd)
{
    static struct pollfd set[POLL_MAX];
    uint64_t due, other;
    short events;

    for (;;) {
        if (n_streams == 0)
            proto_trim();
        due = streams_deadline();
        other = shutdown_step();
        events = (short)((out_pending() < OUT_STOP ? POLLIN : 0) | (out_pending() ? POLLOUT : 0));
        set[0] = (struct pollfd){link_fd(), events, 0};
        set[1] = (struct pollfd){sigfd, POLLIN, 0};
        set[2] = (struct pollfd){link_is_port() ? CONTROL_FD : -1, POLLIN, 0};
        due = due < other ? due : other;
        if (link_is_looked_at() && due > now_ns() + LINK_AWAY_MS * 1000000ull)
            due = now_ns() + LINK_AWAY_MS * 1000000ull;
        if (poll(set, 3 + streams_poll(set, 3), wait_ms(due)) < 0 && errno != EINTR)
            leave(125);
        if (set[1].revents)
            on_signals(sigfd);
        if (set[2].revents)
            control_read();
        link_look();
        if (set[0].revents & (POLLIN | POLLHUP | POLLERR) && !set[2].revents)
            in_read();
        streams_act(set);
        out_flush();
    }
}

int main(void)
{
    struct stat st;
    int sigfd;

    if (fstat(LINK_FD, &st) < 0) {
        static const char msg[] =
            "cella-agent: descriptor 3 is not open. A backend starts this program inside a "
            "cell with the link to the host there; it is not run by hand.\n";
        return write(2, msg, sizeof(msg) - 1) < 0 ? 125 : 125;
    }
    link_init();
    settle_fds();
    set_nonblock(LINK_FD);
    umask(022);
    drop_privileges();
    sigfd = watch_signals();
    prctl(PR_SET_NAME, "cella-agent", 0, 0, 0);
    hello();
    serve(sigfd);
}
