/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * probe - what this host can do, tried out rather than read from a version number, and left as it was: a child is
 * run by PTRACE_SYSEMU for one system call, as the sentry runs guest code. Threads: one.
 */
#include <fcntl.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "gvisor_like.h"

static void say(const struct cella_probe_report *report, const char *name, uint32_t answer,
                const char *reason)
{
    report->capability(report->ctx, name, answer, reason);
}

static void child(void) __attribute__((noreturn));
static void child(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    for (;;)
        syscall(SYS_getppid);
}

static int stopped(pid_t pid)
{
    int status;
    pid_t got;

    do
        got = waitpid(pid, &status, __WALL);
    while (got < 0 && errno == EINTR);
    return got == pid && WIFSTOPPED(status);
}

/* One system call of the child's is seen and not made. NULL, or what was refused. */
static const char *emulate(pid_t pid)
{
    struct user_regs_struct regs;

    if (ptrace(PTRACE_SEIZE, pid, NULL, (void *)(uintptr_t)PTRACE_O_EXITKILL) < 0)
        return "PTRACE_SEIZE";
    if (ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) < 0 || !stopped(pid))
        return "PTRACE_INTERRUPT";
    if (ptrace(PTRACE_SYSEMU, pid, NULL, NULL) < 0 || !stopped(pid))
        return "PTRACE_SYSEMU";
    if (ptrace(PTRACE_GETREGS, pid, NULL, &regs) < 0)
        return "PTRACE_GETREGS";
    /* Any: it may be stopped in what fork() does in a child. Seen and not made, it has no answer yet. */
    return (long)regs.rax == -ENOSYS ? NULL : "a system call that is not made";
}

/* In a process of its own without capabilities, as the sentry is: -> what was refused, by the exit status. */
static int tracer(void)
{
    pid_t pid;
    const char *what;

    if (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0 ||
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return 2;
    pid = fork();
    if (pid == 0)
        child();
    if (pid < 0)
        return 2;
    what = emulate(pid);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, __WALL);
    return what ? 1 : 0;
}

static int yama(void)
{
    auto_free char *text = NULL;

    return read_file_at(AT_FDCWD, "/proc/sys/kernel/yama/ptrace_scope", 16, &text, NULL) < 0
               ? 0
               : atoi(text);
}

static int ptrace_try(struct cella_error *err)
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0)
        _exit(tracer());
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return fail(err, -ENOTSUP,
                "gvisor-like: an unprivileged process cannot run its own child by PTRACE_SYSEMU "
                "here%s",
                yama() >= 2 ? ": sysctl kernel.yama.ptrace_scope forbids it; set it to 1" : "");
}

static int needs(const struct cella_host *host, struct cella_error *err)
{
    static const char *const programs[] = {"cella-sentry", "cella-gofer"};
    size_t i;
    uint32_t action = SECCOMP_RET_TRAP;
    struct cgroup_layout l;

    if (geteuid())
        return fail(err, -EPERM, "gvisor-like: must run as root to put the kernel into its jail");
    for (i = 0; i < ARRAY_LEN(programs); i++)
        if (!CELLA_HOST_HAS(host, helper_path) || !host->helper_path(host->ctx, programs[i]))
            return fail(err, -ENOENT, "%s: not found beside cella; build or install it",
                        programs[i]);
    if (yama() >= 3)
        return fail(err, -ENOTSUP,
                    "gvisor-like: sysctl kernel.yama.ptrace_scope is 3: nobody may trace a process "
                    "until the next boot");
    if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) < 0)
        return fail(err, -ENOTSUP,
                    "gvisor-like: this kernel has no seccomp filter (CONFIG_SECCOMP_FILTER)");
    return cgroup_layout_read(&l, err);
}

static void limits_say(const struct cella_probe_report *report)
{
    struct cgroup_layout l;
    struct errbuf eb;
    int have = cgroup_layout_read(&l, errbuf_init(&eb)) == 0;

    say(report, "limit.memory", CELLA_NATIVE, "by the cell's kernel; a control group behind it");
    say(report, "limit.pids", CELLA_NATIVE, "by the cell's kernel; a control group behind it");
    say(report, "limit.disk", CELLA_NATIVE, "by the cell's kernel; it counts as memory");
    if (have && cgroup_layout_version(&l, CGROUP_CPU))
        say(report, "limit.cpu", CELLA_NATIVE, "control group of the whole cell");
    else
        say(report, "limit.cpu", CELLA_NONE, "no cgroup hierarchy has the \"cpu\" controller");
    say(report, "limit.io", CELLA_NONE, "the cell's files are memory");
}

int probe(const struct cella_host *host, const struct cella_probe_report *report,
          struct cella_probe *ret_probe, struct cella_error *err)
{
    int quick = (report->hdr.flags & CELLA_PROBE_QUICK) != 0;
    int r = needs(host, err);

    if (r == 0 && (!quick || yama() >= 2))
        r = ptrace_try(err);
    if (r < 0)
        return r;
    limits_say(report);
    say(report, "pause", CELLA_NATIVE, "at the boundary of the cell's kernel");
    say(report, "stats", CELLA_NATIVE, "the cell's kernel and the control group");
    say(report, "resize", CELLA_EMULATED, "memory, pids and cpu; not disk");
    say(report, "seccomp", CELLA_NATIVE, "of the sentry, of the gofer and of each stub");
    say(report, "rootfs.readonly", CELLA_NATIVE, NULL);
    say(report, "methods", CELLA_NATIVE, "limit-memory limit-pids limit-cpu missing processes");
    say(report, "snapshot", CELLA_NONE, "the kernel's state is not saved yet");
    say(report, "fork", CELLA_NONE, "the kernel's state is not copied yet");
    say(report, "limit.network", CELLA_NONE,
        "a cell has no network device: policies none and deny");
    ret_probe->strength = CELLA_STRENGTH_USER_KERNEL;
    ret_probe->net_need = CELLA_NET_NONE;
    ret_probe->root_need = CELLA_ROOT_DIR;
    return 0;
}
