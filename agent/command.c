/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * command - the child that becomes the command.
 *
 * Order (each step needs a privilege that a later one drops): session and terminal, OOM score, limits, user lookup, groups,
 * gid, uid, capabilities, no_new_privs, signals, directory, execve. A failed step is reported with its errno through a
 * close-on-exec pipe: a command never runs after one. Threads: one.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "agent.h"
#include "exec.h"

#define CLOSE_RANGE_CLOEXEC_ 4u
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static _Noreturn void give_up(const struct request *q, int err, const char *step, const char *what)
{
    struct failure f = {.err = err};

    text_add(f.msg, sizeof(f.msg), step);
    if (what) {
        text_add(f.msg, sizeof(f.msg), " ");
        text_add(f.msg, sizeof(f.msg), what);
    }
    text_add(f.msg, sizeof(f.msg), ": ");
    text_add(f.msg, sizeof(f.msg), strerror(err));
    if (write(q->fail_fd, &f, sizeof(f)) < 0)
        _exit(125);
    _exit(125);
}

/* Pointers first, NULs after: the byte behind a string is the tag of the next field. */
static void parse(struct request *q)
{
    size_t pos = 0, argc = 0, envc = 0, n = 0;
    static uint8_t *ends[2 * ARGS_MAX + 4];
    struct field f;

    q->cwd = (char *)"/";
    q->user = (char *)"0:0";
    while (field_next(q->payload, q->len, &pos, &f) > 0) {
        char *s = (char *)f.p;
        if (f.tag == CELLA_TAG_ARG && argc < ARGS_MAX)
            q->argv[argc++] = s;
        else if (f.tag == CELLA_TAG_ENV && envc < ARGS_MAX)
            q->envp[envc++] = s;
        else if (f.tag == CELLA_TAG_CWD)
            q->cwd = s;
        else if (f.tag == CELLA_TAG_USER)
            q->user = s;
        else
            continue;
        if (n < sizeof(ends) / sizeof(ends[0]))
            ends[n++] = f.p + f.len;
    }
    while (n > 0)
        *ends[--n] = 0;
}

static void set_limits(const struct request *q)
{
    size_t pos = 0;
    struct field f;
    struct {
        uint32_t resource, zero;
        uint64_t soft, hard;
    } raw;
    struct rlimit r;

    while (field_next(q->payload, q->len, &pos, &f) > 0) {
        if (f.tag != CELLA_TAG_RLIMIT)
            continue;
        memcpy(&raw, f.p, sizeof(raw)); /* exec_open checked the length */
        r.rlim_cur = raw.soft;
        r.rlim_max = raw.hard;
        if (syscall(SYS_prlimit64, 0, raw.resource, &r, NULL) < 0)
            give_up(q, errno, "set a resource limit", NULL);
    }
}

static void oom_first(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    if (write(fd, "500", 3) < 0)
        errno = 0; /* best effort: without it the kernel chooses by size */
    close(fd);
}

static int no_caps(void)
{
    struct {
        uint32_t version;
        int pid;
    } head = {0x20080522, 0};
    uint32_t data[6] = {0};

    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
        return -errno;
    if (syscall(SYS_capset, &head, data) < 0)
        return -errno;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

static void become(const struct request *q)
{
    const char *why = "look up the user";
    struct user u;
    uid_t ru, eu, su;
    int i, r = user_resolve(q->user, &u, &why);
    struct stat st;

    if (r < 0)
        give_up(q, -r, why, q->user);
    if (u.uid == AGENT_UID || u.gid == AGENT_UID)
        give_up(q, EPERM, "65533 is the agent's own id; no command may run as", q->user);
    for (i = 0; i < 3;
         i++) /* never /dev/null: only what was made for this command follows its user */
        if (fstat(i, &st) == 0 && (q->tty || S_ISFIFO(st.st_mode)) && fchown(i, u.uid, u.gid) < 0)
            give_up(q, errno, "give the standard streams to user", q->user);
    if (syscall(SYS_setgroups, u.n_groups, u.groups) < 0 && (u.n_groups || errno != EPERM))
        give_up(q, errno, "set the groups of user", q->user);
    if (syscall(SYS_setresgid, u.gid, u.gid, u.gid) < 0 ||
        syscall(SYS_setresuid, u.uid, u.uid, u.uid) < 0)
        give_up(q, errno, "become user", q->user);
    if (getresuid(&ru, &eu, &su) < 0 || ru != u.uid || eu != u.uid || su != u.uid)
        give_up(q, EPERM, "become user", q->user);
    r = no_caps();
    if (r < 0)
        give_up(q, -r, "drop capabilities", NULL);
}

static void reset_signals(void)
{
    static const unsigned long dfl[4]; /* the kernel's struct sigaction: SIG_DFL, no flags */
    sigset_t none;
    int sig;

    /* Past the library, which keeps 32 to 34 for itself: glibc's posix_spawn leaves 32 ignored. */
    for (sig = 1; sig <= 64; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            syscall(SYS_rt_sigaction, sig, dfl, NULL, 8);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static const char *path_of(char *const *envp)
{
    for (; *envp; envp++)
        if (strncmp(*envp, "PATH=", 5) == 0)
            return *envp + 5;
    return DEFAULT_PATH;
}

/* Tries each directory of PATH; returns the errno that describes the failure best. */
static int exec_path(const struct request *q)
{
    const char *dir = path_of(q->envp), *end, *name = q->argv[0];
    char path[4096];
    int best = ENOENT;

    if (strchr(name, '/') || !*name) {
        execve(name, q->argv, q->envp);
        return errno;
    }
    for (;; dir = end + 1) {
        size_t n = strcspn(dir, ":");
        end = dir + n;
        if (n + strlen(name) + 2 <= sizeof(path)) {
            memcpy(path, dir, n);
            path[n] = 0;
            text_add(path, sizeof(path), n ? "/" : "");
            text_add(path, sizeof(path), name);
            execve(path, q->argv, q->envp);
            if (errno == EACCES)
                best = EACCES;
            else if (errno != ENOENT && errno != ENOTDIR)
                return errno;
        }
        if (!*end)
            return best;
    }
}

_Noreturn void command_main(struct request *q)
{
    int err;

    syscall(SYS_close_range, LINK_FD, ~0u,
            CLOSE_RANGE_CLOEXEC_); /* all are already; once more, by rule */
    syscall(SYS_setsid);
    if (q->tty && ioctl(0, TIOCSCTTY, 0) < 0)
        give_up(q, errno, "make the terminal the controlling one", NULL);
    oom_first();
    set_limits(q); /* before parse(), which ends strings on the field behind them */
    parse(q);
    become(q);
    umask(022);
    reset_signals();
    if (chdir(q->cwd) < 0)
        give_up(q, errno, "enter the directory", q->cwd);
    err = exec_path(q);
    give_up(q, err, "execute", q->argv[0]);
}
