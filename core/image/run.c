/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * run - starts the programs that make images, and listens to them.
 *
 * What they read is hostile (trees of unpacked archives, scripts of packages), so they run in a box:
 * a child in new mount, pid, ipc and network namespaces whose root is an empty file system with
 * /usr and one directory in it; it is the first process of its pid namespace, so nothing it starts
 * outlives it. Only what manages this host itself (apt-get) runs plain. Threads: none.
 */
#include <fcntl.h>
#include <linux/mount.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <linux/capability.h>

#include "run.h"

#define CPU_SECONDS 3600
#define SEARCH "/usr/sbin:/usr/bin:/sbin:/bin"

static const char *const links[] = {"bin", "sbin", "lib", "lib64", "lib32", "libx32"};

static int find_program(const char *name, char out[256])
{
    static const char *const dirs[] = {"/usr/sbin", "/usr/bin", "/sbin", "/bin"};
    size_t i;

    for (i = 0; i < ARRAY_LEN(dirs); i++) {
        snprintf(out, 256, "%s/%s", dirs[i], name);
        if (access(out, X_OK) == 0)
            return 0;
    }
    return -ENOENT;
}

/* ---- in the child ---- */

static int mount_tree(int tree, const char *path)
{
    return (int)syscall(SYS_move_mount, tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
}

static int set_readonly(const char *path, int on, int recursive)
{
    struct mount_attr attr = {.attr_set = on ? MOUNT_ATTR_RDONLY : 0,
                              .attr_clr = on ? 0 : MOUNT_ATTR_RDONLY};

    return (int)syscall(SYS_mount_setattr, AT_FDCWD, path, recursive ? AT_RECURSIVE : 0, &attr,
                        sizeof(attr));
}

/* Leaves one capability to be gained, and nothing to be regained by an exec as root. */
static int caps_reduce(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    int cap;

    for (cap = 0; cap <= 63; cap++)
        if (cap != CAP_DAC_READ_SEARCH && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 &&
            errno != EINVAL) /* above the last one */
            return -1;
    data[0].permitted = data[0].effective = 1u << CAP_DAC_READ_SEARCH;
    return (int)syscall(SYS_capset, &head, data);
}

static const char *box_root(const struct run *run, int tree)
{
    char path[64], target[256];
    struct stat st;
    ssize_t n;
    size_t i;

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return "private mounts";
    if (mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID, "mode=755,size=1m") < 0)
        return "an empty root";
    if (mkdir("/tmp/usr", 0755) < 0 || mkdir("/tmp/work", 0755) < 0 ||
        mkdir("/tmp/proc", 0755) < 0 || mkdir("/tmp/tmp", 01777) < 0 || mkdir("/tmp/etc", 0755) < 0)
        return "directories of the box";
    if (mount_tree(tree, "/tmp/work") < 0)
        return "the work directory";
    if (!run->work_writable && set_readonly("/tmp/work", 1, 1) < 0)
        return "a read-only work directory";
    if (mount("/usr", "/tmp/usr", NULL, MS_BIND | MS_REC, NULL) < 0 ||
        set_readonly("/tmp/usr", 1, 1) < 0)
        return "/usr, read-only";
    if (mount("proc", "/tmp/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return "/proc";
    for (i = 0; i < ARRAY_LEN(links); i++) {
        snprintf(path, sizeof(path), "/%s", links[i]);
        n = readlink(path, target, sizeof(target) - 1);
        snprintf(path, sizeof(path), "/tmp/%s", links[i]);
        if (n > 0) {
            target[n] = 0;
            if (symlink(target, path) < 0)
                return "links of the root";
        } else if (snprintf(target, sizeof(target), "/%s", links[i]) > 0 &&
                   stat(target, &st) == 0 &&
                   (mkdir(path, 0755) < 0 || mount(target, path, NULL, MS_BIND, NULL) < 0 ||
                    set_readonly(path, 1, 0) < 0)) {
            return "directories of a root that is not merged";
        }
    }
    if (chroot("/tmp") < 0 || chdir("/work") < 0)
        return "the new root";
    return caps_reduce() < 0 ? "dropping capabilities" : NULL;
}

/* The mounts are made while this is root of the host still; below the user namespace they are locked. */
static const char *guest_root(const struct run *run, int tree)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return "private mounts";
    if (set_readonly("/", 1, 1) < 0)
        return "a read-only root";
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return "/proc";
    if (mount_tree(tree, "/tmp") < 0)
        return "the work directory";
    if (setns(run->borrow_userns_fd, CLONE_NEWUSER) < 0)
        return "the user namespace";
    if (unshare(CLONE_NEWNS) < 0)
        return "mounts of the user namespace";
    if (syscall(SYS_setgroups, 0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return "its root";
    return chdir("/tmp") < 0 ? "its work directory" : NULL;
}

static void child(const struct run *run, const char *path, int tree, int log)
    __attribute__((noreturn));

static void child(const struct run *run, const char *path, int tree, int log)
{
    const struct rlimit cpu = {CPU_SECONDS, CPU_SECONDS}, none = {0, 0};
    const char *envp[24] = {"PATH=" SEARCH, "LC_ALL=C.UTF-8", "HOME=/nonexistent", "TMPDIR=/tmp"};
    const char *what = NULL;
    size_t n = 4, i;
    sigset_t all;
    int null, in, out;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGPIPE, SIG_DFL);
    setrlimit(RLIMIT_CPU, &cpu);
    setrlimit(RLIMIT_CORE, &none);
    umask(022);
    for (i = 0; run->extra && run->extra[i] && n < ARRAY_LEN(envp) - 1; i++)
        envp[n++] = run->extra[i];
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    in = fcntl(run->borrow_in_fd >= 0 ? run->borrow_in_fd : null, F_DUPFD_CLOEXEC, 10);
    out = fcntl(run->borrow_out_fd >= 0 ? run->borrow_out_fd : log, F_DUPFD_CLOEXEC, 10);
    log = fcntl(log, F_DUPFD_CLOEXEC, 10);
    if (null < 0 || in < 0 || out < 0 || log < 0)
        _exit(125);
    if (run->mode == RUN_BOX)
        what = box_root(run, tree);
    else if (run->mode == RUN_GUEST_ROOT)
        what = guest_root(run, tree);
    else if (run->borrow_work_fd >= 0 && fchdir(run->borrow_work_fd) < 0)
        what = "the working directory";
    if (!what && run->mode != RUN_PLAIN && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        what = "no new privileges";
    if (what) {
        dprintf(log, "confinement failed at %s: %s\n", what, strerror(errno));
        _exit(125);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of ids forgets it */
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(log, 2) < 0 ||
        syscall(SYS_close_range, 3u, ~0u, 0u) < 0)
        _exit(125);
    execve(path, (char *const *)(uintptr_t)run->argv, (char *const *)(uintptr_t)envp);
    dprintf(2, "%s: %s\n", path, strerror(errno));
    _exit(126);
}

/* ---- in the parent ---- */

struct ear {
    const struct run *run;
    char line[512], last[512]; /* being read; the last one that was not empty */
    char error[512];           /* the last one that says so of itself */
    size_t n, out;
};

static void ear_line(struct ear *e)
{
    size_t i;

    e->line[e->n] = 0;
    for (i = 0; i < e->n; i++)
        if ((unsigned char)e->line[i] < 0x20 || e->line[i] == 0x7f)
            e->line[i] = ' ';
    if (e->n) {
        memcpy(e->last, e->line, e->n + 1);
        if (!strncmp(e->line, "E: ", 3) || strstr(e->line, "rror:"))
            memcpy(e->error, e->line, e->n + 1);
        if (e->run->line)
            e->run->line(e->run->ctx, e->line);
    }
    e->n = 0;
}

static void ear_take(struct ear *e, const char *p, size_t n)
{
    size_t i;

    if (e->run->ret_output && e->out + 1 < e->run->output_cap) {
        size_t room = e->run->output_cap - 1 - e->out, take = n < room ? n : room;
        memcpy(e->run->ret_output + e->out, p, take);
        e->out += take;
    }
    for (i = 0; i < n; i++) {
        if (p[i] == '\n' || p[i] == '\r')
            ear_line(e);
        else if (e->n + 1 < sizeof(e->line))
            e->line[e->n++] = p[i];
    }
}

static void ear_listen(struct ear *e, int fd)
{
    char chunk[4096];
    ssize_t n;

    while ((n = read(fd, chunk, sizeof(chunk))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        ear_take(e, chunk, (size_t)n);
    }
    ear_line(e);
    if (e->run->ret_output && e->run->output_cap)
        e->run->ret_output[e->out] = 0;
}

static pid_t spawn(const struct run *run, const char *path, int log[2])
{
    unsigned long flags = SIGCHLD;
    auto_close int tree = -1;
    pid_t pid;

    if (run->mode != RUN_PLAIN)
        flags |= CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC;
    if (run->mode == RUN_BOX)
        flags |= CLONE_NEWNET;
    /* here, because a mount can be copied only in the namespace it is in */
    if (run->mode != RUN_PLAIN)
        tree = (int)syscall(SYS_open_tree, run->borrow_work_fd, "",
                            OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    if (run->mode != RUN_PLAIN && tree < 0)
        return -1;
    fflush(NULL);
    pid = (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
    if (pid == 0)
        child(run, path, tree, log[1]);
    return pid;
}

int run_program(const struct run *run, const char *package, struct cella_error *err)
{
    struct ear ear = {.run = run};
    char path[256];
    int log[2], status = 0;
    pid_t pid;

    if (find_program(run->argv[0], path) < 0)
        return fail(err, -ENOENT, "%s is not installed here; it is in Debian's package %s",
                    run->argv[0], package);
    if (pipe2(log, O_CLOEXEC) < 0)
        return fail(err, -errno, "pipe: %s", strerror(errno));
    pid = spawn(run, path, log);
    if (pid < 0) {
        int r = fail(err, -errno, "%s: cannot start it: %s", run->argv[0], strerror(errno));
        close(log[0]);
        close(log[1]);
        return r;
    }
    close(log[1]);
    ear_listen(&ear, log[0]);
    close(log[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return fail(err, -EIO, "%s ended with %s %d%s%s", run->argv[0],
                WIFSIGNALED(status) ? "signal" : "status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                ear.last[0] ? ": " : "", ear.error[0] ? ear.error : ear.last);
}
