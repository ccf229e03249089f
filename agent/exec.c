/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * exec - one command: its supervisor, and the agent's part. The child that becomes it is in command.c.
 *
 * Why a supervisor: it is a child subreaper, so every descendant of the command stays its
 * descendant, however often it forks or calls setsid(); "no children left" is then exactly "the
 * tree is gone". It holds one socket to the agent and nothing else, and runs under the agent's own
 * uid, so the workload cannot signal it. Threads: one.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "agent.h"
#include "exec.h"

#define STOP_PASSES 16
#define KILL_GIVE_UP_NS (10 * NSEC)

/* ---- the supervisor ---- */

struct super {
    int ctrl, sigfd, fail_fd; /* fail_fd: -1 after the start is settled */
    pid_t pid, leader;        /* of the command; leader: 0 = reaped */
    int status;               /* of the leader, once reaped */
    int started, killing, told;
    uint64_t kill_since;
};

void report_send(int ctrl, uint32_t type, const struct fields *f)
{
    struct report r = {.type = type};

    memcpy(r.payload, f->b, f->len);
    if (send(ctrl, &r, offsetof(struct report, payload) + f->len, MSG_NOSIGNAL) < 0)
        return; /* the agent is gone; a supervisor sees the same on its socket and kills its tree */
}

void report_error(int ctrl, int err, const char *msg)
{
    struct fields f = {0};

    put_u32(&f, CELLA_TAG_ERRNO, (uint32_t)(err < 0 ? -err : err));
    put_bytes(&f, CELLA_TAG_MESSAGE, msg, strlen(msg));
    report_send(ctrl, CELLA_FRAME_ERROR, &f);
}

static uint64_t tv_ns(struct timeval tv)
{
    return (uint64_t)tv.tv_sec * NSEC + (uint64_t)tv.tv_usec * 1000;
}

static void report_exit(struct super *x)
{
    struct fields f = {0};
    struct rusage ru;

    if (x->told)
        return;
    x->told = 1;
    if (x->leader || WIFSIGNALED(x->status))
        put_u32(&f, CELLA_TAG_TERM_SIGNAL, x->leader ? SIGKILL : (uint32_t)WTERMSIG(x->status));
    else
        put_u32(&f, CELLA_TAG_STATUS, (uint32_t)WEXITSTATUS(x->status));
    if (getrusage(RUSAGE_CHILDREN, &ru) == 0) {
        put_u64(&f, CELLA_TAG_UTIME_NS, tv_ns(ru.ru_utime));
        put_u64(&f, CELLA_TAG_STIME_NS, tv_ns(ru.ru_stime));
        put_u64(&f, CELLA_TAG_MAXRSS, (uint64_t)ru.ru_maxrss * 1024);
    }
    report_send(x->ctrl, CELLA_FRAME_EXIT, &f);
}

/* 1 = children remain. */
static int reap(struct super *x)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0)
        if (pid == x->leader) {
            x->leader = 0;
            x->status = status;
        }
    return pid == 0;
}

/* Everybody stands still first: a killed process frees a place for a fork bomb, a stopped one does
 * not. */
static void kill_pass(struct super *x)
{
    pid_t self = getpid();
    int i, n = 1;

    for (i = 0; i < STOP_PASSES && n > 0; i++)
        n = tree_signal(self, NULL, 0, SIGSTOP);
    n = tree_signal(self, NULL, 0, SIGKILL);
    if (n < 0 && x->leader) { /* no /proc: the least that can be done */
        kill(-x->leader, SIGKILL);
        kill(x->leader, SIGKILL);
    }
}

static void settle_start(struct super *x)
{
    struct failure f;
    struct fields out = {0};
    ssize_t n;

    do
        n = read(x->fail_fd, &f, sizeof(f));
    while (n < 0 && errno == EINTR);
    close_fd(&x->fail_fd);
    if (n == (ssize_t)sizeof(f)) {
        f.msg[sizeof(f.msg) - 1] = 0;
        report_error(x->ctrl, f.err, f.msg);
        _exit(0);
    }
    x->started = 1;
    put_u32(&out, CELLA_TAG_PID, (uint32_t)x->pid);
    report_send(x->ctrl, CELLA_FRAME_OPENED, &out);
}

static void obey(struct super *x)
{
    struct command c;
    ssize_t n = recv(x->ctrl, &c, sizeof(c), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != (ssize_t)sizeof(c)) { /* the agent is gone or gave up on us */
        x->killing = x->told = 1;
        close_fd(&x->ctrl);
    } else if (c.cmd == CMD_KILL) {
        x->killing = 1;
    } else if (c.cmd == CMD_SIGNAL_TREE) {
        tree_signal_once(getpid(), x->leader, (int)c.arg);
    } else if (c.cmd == CMD_SIGNAL_PROCESS && x->leader) {
        kill(x->leader, (int)c.arg);
    }
}

static _Noreturn void supervise(struct super *x)
{
    char sink[1024];

    for (;;) {
        struct pollfd set[3] = {
            {x->sigfd, POLLIN, 0}, {x->ctrl, POLLIN, 0}, {x->fail_fd, POLLIN, 0}};

        poll(set, 3, x->killing ? 10 : -1);
        if (set[0].revents && read(x->sigfd, sink, sizeof(sink)) < 0)
            sink[0] = 0; /* only a wake-up */
        if (set[2].revents)
            settle_start(x);
        if (set[1].revents)
            obey(x);
        if (!reap(x) && x->started) {
            report_exit(x);
            _exit(0);
        }
        if (!x->leader && x->started)
            x->killing = 1;
        if (!x->killing)
            continue;
        kill_pass(x);
        if (!x->kill_since)
            x->kill_since = now_ns();
        else if (x->started && now_ns() - x->kill_since > KILL_GIVE_UP_NS)
            report_exit(x); /* something cannot die (it waits in the kernel); stay and try on */
    }
}

/* Leaves this process with descriptors 0, 1, 2 (the command's), and LINK_FD (the socket to the
 * agent). */
static void take_fds(int ctrl, const int std[3])
{
    int high[4], i;

    for (i = 0; i < 3; i++)
        high[i] = fcntl(std[i], F_DUPFD_CLOEXEC, 16);
    high[3] = fcntl(ctrl, F_DUPFD_CLOEXEC, 16);
    for (i = 0; i < 3; i++)
        if (high[i] < 0 || dup2(high[i], i) < 0)
            _exit(125);
    if (high[3] < 0 || dup3(high[3], LINK_FD, O_CLOEXEC) < 0 ||
        syscall(SYS_close_range, LINK_FD + 1, ~0u, 0) < 0)
        _exit(125);
}

static _Noreturn void supervisor_main(uint8_t *payload, size_t len, int ctrl, const int std[3],
                                      int tty)
{
    static struct request q; /* large, and only in this process */
    struct super x = {.ctrl = LINK_FD, .fail_fd = -1};
    int fail[2];
    sigset_t all;

    take_fds(ctrl, std);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    x.sigfd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 || x.sigfd < 0 ||
        pipe2(fail, O_CLOEXEC) < 0) {
        report_error(x.ctrl, errno, "prepare the supervisor");
        _exit(0);
    }
    prctl(PR_SET_NAME, "cella-exec", 0, 0, 0);
    q.payload =
        payload; /* member by member: an assignment of the whole would touch all of its pages */
    q.len = len;
    q.fail_fd = fail[1];
    q.tty = tty;
    x.fail_fd = fail[0];
    x.pid = x.leader = fork();
    if (x.leader < 0) {
        report_error(x.ctrl, errno, "fork: the cell may be at its limit of processes");
        _exit(0);
    }
    if (x.leader == 0)
        command_main(&q);
    close(0);
    close(1);
    close(2);
    close(fail[1]);
    supervise(&x);
}

/* ---- the agent ---- */

static int check_request(uint8_t *payload, size_t len, const char **ret_why)
{
    size_t pos = 0, args = 0, envs = 0;
    struct field f;
    int r;

    while ((r = field_next(payload, len, &pos, &f)) > 0) {
        int str = f.tag == CELLA_TAG_ARG || f.tag == CELLA_TAG_ENV || f.tag == CELLA_TAG_CWD ||
                  f.tag == CELLA_TAG_USER;
        args += f.tag == CELLA_TAG_ARG;
        envs += f.tag == CELLA_TAG_ENV;
        if (str && memchr(f.p, 0, f.len))
            return -EINVAL;
        if (f.tag == CELLA_TAG_CWD && (!f.len || f.p[0] != '/')) {
            *ret_why = "the working directory must be an absolute path";
            return -EINVAL;
        }
        if (f.tag == CELLA_TAG_RLIMIT && f.len != 24)
            return -EINVAL;
    }
    if (args == 0)
        *ret_why = "no command";
    if (args > ARGS_MAX || envs > ARGS_MAX)
        *ret_why = "more than 8191 arguments or environment entries";
    return r < 0 || args == 0 || args > ARGS_MAX || envs > ARGS_MAX ? -EINVAL : 0;
}

/* /dev belongs to the cell: something else under that name becomes an empty pipe. */
static int open_null(void)
{
    int fd = open("/dev/null", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), p[2];
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3) &&
        fcntl(fd, F_SETFL, 0) == 0)
        return fd;
    close_fd(&fd);
    if (pipe2(p, O_CLOEXEC) < 0)
        return -1;
    close(p[1]);
    return p[0];
}

static int make_pipes(struct stream *s, int want_in, int std[3])
{
    int p[2];

    if (!want_in) {
        std[0] = open_null();
        if (std[0] < 0)
            return -errno;
    } else {
        if (pipe2(p, O_CLOEXEC) < 0)
            return -errno;
        std[0] = p[0];
        s->in = p[1];
        set_nonblock(s->in);
    }
    for (int ch = 1; ch <= 2; ch++) {
        if (pipe2(p, O_CLOEXEC) < 0)
            return -errno;
        s->out[ch] = p[0];
        std[ch] = p[1];
        set_nonblock(p[0]);
    }
    return 0;
}

static int make_tty(struct stream *s, int want_in, uint8_t *payload, size_t len, int std[3])
{
    uint32_t rows = 24, cols = 80;
    int r = tty_open(&s->out[CELLA_CHANNEL_OUT], &std[0]);

    if (r < 0)
        return r;
    s->tty = 1;
    get_u32(payload, len, CELLA_TAG_ROWS, &rows);
    get_u32(payload, len, CELLA_TAG_COLS, &cols);
    tty_resize(s->out[CELLA_CHANNEL_OUT], rows, cols);
    std[1] = fcntl(std[0], F_DUPFD_CLOEXEC, 4);
    std[2] = fcntl(std[0], F_DUPFD_CLOEXEC, 4);
    if (want_in)
        s->in = fcntl(s->out[CELLA_CHANNEL_OUT], F_DUPFD_CLOEXEC, 4);
    return std[1] < 0 || std[2] < 0 || (want_in && s->in < 0) ? -EMFILE : 0;
}

static void undo(struct stream *s, int std[3], int sock[2])
{
    int i;

    for (i = 0; i < 3; i++) {
        close_fd(&std[i]);
        close_fd(&s->out[i]);
    }
    close_fd(&s->in);
    close_fd(&sock[0]);
    close_fd(&sock[1]);
}

int exec_open(struct stream *s, uint8_t *payload, size_t len, const char **ret_why)
{
    int std[3] = {-1, -1, -1}, sock[2] = {-1, -1}, r, i;
    uint32_t tty = 0, want_in = 0;
    uint64_t ms = 0;

    r = check_request(payload, len, ret_why);
    if (r < 0)
        return r;
    get_u32(payload, len, CELLA_TAG_TTY, &tty);
    get_u32(payload, len, CELLA_TAG_STDIN, &want_in);
    *ret_why = tty ? "open a terminal in the cell (/dev/ptmx)" : "make pipes for the command";
    r = tty ? make_tty(s, want_in != 0, payload, len, std) : make_pipes(s, want_in != 0, std);
    if (r == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock) < 0)
        r = -errno;
    if (r == 0) {
        s->child = fork();
        if (s->child < 0) {
            r = -errno;
            *ret_why = "fork: the cell may be at its limit of processes";
        }
    }
    if (r < 0) {
        undo(s, std, sock);
        return r;
    }
    if (s->child == 0)
        supervisor_main(payload, len, sock[1], std, tty != 0);
    for (i = 0; i < 3; i++)
        close_fd(&std[i]);
    close(sock[1]);
    s->ctrl = sock[0];
    if (get_u64(payload, len, CELLA_TAG_TIMEOUT_MS, &ms) == 0 && ms < UINT64_MAX / 2000000)
        s->deadline = now_ns() + ms * 1000000;
    return 0;
}
