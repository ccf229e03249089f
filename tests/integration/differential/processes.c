/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* fork, vfork, exec, wait in all its forms, stops, groups, sessions, orphans. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "say.h"

static int status, status_pipe[2];

static void basics(void)
{
    pid_t pid = fork();
    siginfo_t info = {0};

    if (!pid)
        _exit(42);
    say_value("is it", waitpid(pid, &status, 0) == pid);
    say_value("status", status);
    say("again", waitpid(pid, &status, 0));
    say("none", waitpid(-1, &status, WNOHANG));
    say("flags", waitpid(-1, &status, 0x4000));
    say("waitid flags", waitid(P_ALL, 0, &info, 0));
    say("waitid type", waitid(77, 0, &info, WEXITED));
    pid = fork();
    if (!pid)
        pause();
    say("WNOHANG", waitpid(pid, &status, WNOHANG));
    kill(pid, SIGKILL);
    say("WNOWAIT", waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
    printf("code %d status %d signal %d mine %d\n", info.si_code, info.si_status, info.si_signo,
           info.si_pid == pid);
    say_value("by group", waitpid(0, &status, 0) == pid);
    printf("status 0x%x\n", status);
    say("bad", syscall(SYS_wait4, -1, BAD, WNOHANG, NULL));
}

static void stops(void)
{
    siginfo_t info = {0};
    pid_t pid = fork();

    if (!pid)
        for (;;)
            pause();
    kill(pid, SIGSTOP);
    waitpid(pid, &status, WUNTRACED);
    printf("stopped 0x%x\n", status);
    say("once", waitpid(pid, &status, WUNTRACED | WNOHANG));
    kill(pid, SIGTERM);
    say("held back", waitpid(pid, &status, WNOHANG));
    kill(pid, SIGCONT);
    say("ended or continued", waitpid(pid, &status, 0) == pid);
    printf("ended 0x%x\n", status);
    pid = fork();
    if (!pid) {
        setpgid(0, 0); /* a group that is not orphaned: SIGTSTP stops no other */
        for (;;)
            pause();
    }
    setpgid(pid, pid);
    kill(pid, SIGTSTP);
    waitid(P_PID, pid, &info, WSTOPPED);
    printf("waitid %d %d\n", info.si_code, info.si_status);
    kill(pid, SIGCONT);
    waitpid(pid, &status, WCONTINUED);
    printf("continued 0x%x\n", status);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
}

static volatile int children;
static volatile int why[4];

static void on_child(int signo, siginfo_t *info, void *context)
{
    (void)signo;
    (void)context;
    if (children < 4)
        why[children] = info->si_code * 1000 + info->si_status;
    children++;
}

static void notices(void)
{
    struct sigaction action = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART};
    pid_t pid;

    sigaction(SIGCHLD, &action, NULL);
    pid = fork();
    if (!pid)
        _exit(3);
    waitpid(pid, &status, 0);
    printf("SIGCHLD %d: %d\n", children, why[0]);
    action.sa_flags |= SA_NOCLDWAIT;
    sigaction(SIGCHLD, &action, NULL);
    pid = fork();
    if (!pid)
        _exit(3);
    say("NOCLDWAIT", waitpid(pid, &status, 0));
    signal(SIGCHLD, SIG_IGN);
    pid = fork();
    if (!pid)
        _exit(3);
    say("ignored", waitpid(pid, &status, 0));
    signal(SIGCHLD, SIG_DFL);
}

static void groups(void)
{
    pid_t pid = fork();

    if (!pid) {
        say_value("group", setpgid(0, 0));
        say_value("leads", getpgrp() == getpid());
        say("setsid of a leader", setsid());
        _exit(0);
    }
    waitpid(pid, &status, 0);
    pid = fork();
    if (!pid) {
        say_value("setsid", setsid() == getpid());
        say_value("session", getsid(0) == getpid());
        say_value("group", getpgid(0) == getpid());
        say("setpgid of a leader", setpgid(0, 0));
        _exit(0);
    }
    waitpid(pid, &status, 0);
    pid = fork();
    if (!pid)
        _exit(0);
    waitid(P_PID, (id_t)pid, NULL, WEXITED | WNOWAIT);
    say("setpgid of a dead one", setpgid(pid, pid));
    waitpid(pid, &status, 0);
    say("setpgid of nobody", setpgid(99999, 0));
    say("setpgid negative", setpgid(0, -1));
    say("setpgid to nothing", setpgid(0, 99999));
    say("getpgid of nobody", getpgid(99999));
    say("kill of nobody", kill(99999, 0));
    say("kill of no group", kill(-99999, 0));
    say("kill of no signal", kill(getpid(), 65));
    say("tkill", syscall(SYS_tkill, 99999, 0));
    say("tkill zero", syscall(SYS_tkill, 0, 0));
    say("tgkill", syscall(SYS_tgkill, getpid(), 99999, 0));
}

static void orphans(void)
{
    int ends[2];
    char byte = 0;
    pid_t pid;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (pipe(ends))
        return;
    pid = fork();
    if (!pid) {
        if (fork() == 0) {
            char dead;

            close(ends[1]);
            if (read(ends[0], &dead, 1) >= 0)
                usleep(20000);
            _exit(getppid() == atoi(getenv("REAPER")) ? 9 : 8);
        }
        _exit(0);
    }
    close(ends[0]);
    waitpid(pid, &status, 0);
    if (write(ends[1], &byte, 1) == 1)
        close(ends[1]);
    say_value("an orphan's end", waitpid(-1, &status, 0) > 0 ? status >> 8 : -1);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static void parents_death(void)
{
    int ends[2];
    char byte;
    pid_t pid;

    if (pipe(ends))
        return;
    pid = fork();
    if (!pid) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (write(ends[1], "x", 1) == 1)
                pause();
            _exit(0);
        }
        say("it is ready", read(ends[0], &byte, 1));
        _exit(0);
    }
    close(ends[1]);
    waitpid(pid, &status, 0);
    say("and dies", read(ends[0], &byte, 1));
    close(ends[0]);
}

static void vforks(void)
{
    static volatile int shared;
    char *const argv[] = {"processes", "exec", NULL}, *const death[] = {"processes", "", NULL};
    pid_t pid = vfork();

    if (!pid) {
        shared = 1;
        _exit(5);
    }
    say_value("vfork shares", shared);
    waitpid(pid, &status, 0);
    say_value("status", status);
    pid = vfork();
    if (!pid) {
        execv("/proc/self/exe", argv);
        _exit(6);
    }
    waitpid(pid, &status, 0);
    say_value("exec", status);
    pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGUSR1);
        execv("/proc/self/exe", death);
        _exit(6);
    }
    waitpid(pid, &status, 0);
    say_value("signal of a parent's death", status);
    say("exec of nothing", execv("/nonexistent", argv));
    say("exec of a directory", execv("/", argv));
    say("exec of a pipe",
        pipe(status_pipe) ? -1
                          : syscall(SYS_execveat, status_pipe[0], "", argv, NULL, AT_EMPTY_PATH));
    say("exec of nowhere", syscall(SYS_execveat, 99, "", argv, NULL, AT_EMPTY_PATH));
    say("exec of null", syscall(SYS_execve, BAD, argv, NULL));
}

/* Scripts: what they are called, and what their interpreters are told. */
static void scripts(void)
{
    char *const argv[] = {"called", "argument", NULL};
    char place[] = "/tmp/scriptXXXXXX", file[64], line[128];
    FILE *out;
    pid_t pid;

    if (!mkdtemp(place))
        return;
    snprintf(file, sizeof(file), "%s/a.script", place);
    out = fopen(file, "w");
    if (out) {
        fprintf(out, "#!/bin/sh -e\necho ${0##*/} $1; read -r name </proc/self/comm; echo $name\n");
        fclose(out);
    }
    say("not executable", execv(file, argv));
    chmod(file, 0755);
    pid = fork();
    if (!pid) {
        execv(file, argv);
        _exit(1);
    }
    waitpid(pid, &status, 0);
    say_value("script", status);
    out = fopen(file, "w");
    if (out) {
        fprintf(out, "#!%s\n", file);
        fclose(out);
    }
    say("of itself", execv(file, argv));
    out = fopen(file, "w");
    if (out) {
        fprintf(out, "#!/no/such\n");
        fclose(out);
    }
    say("of nothing", execv(file, argv));
    out = fopen(file, "w");
    if (out) {
        fprintf(out, "echo plain\n");
        fclose(out);
    }
    say("no format", execv(file, argv));
    unlink(file);
    snprintf(line, sizeof(line), "%s", place);
    rmdir(line);
}

/* A limit of processor time is a child's, too. */
static void time_limit(void)
{
    struct rlimit limit = {.rlim_cur = 1, .rlim_max = 2};
    volatile unsigned spin = 0;
    pid_t pid = fork();

    if (!pid) {
        setrlimit(RLIMIT_CPU, &limit);
        pid = fork();
        if (!pid)
            for (;;)
                spin++;
        waitpid(pid, &status, 0);
        printf("out of time: 0x%x\n", status);
        _exit(0);
    }
    waitpid(pid, &status, 0);
}

static void flags(void)
{
    say("THREAD", syscall(SYS_clone, CLONE_THREAD, 0, 0, 0, 0));
    say("SIGHAND", syscall(SYS_clone, CLONE_SIGHAND, 0, 0, 0, 0));
    say("FS and NEWNS", syscall(SYS_clone, CLONE_FS | CLONE_NEWNS, 0, 0, 0, 0));
    say("clone3 small", syscall(SYS_clone3, BAD, 8));
    say("clone3 large", syscall(SYS_clone3, BAD, 8192));
    say("clone3 pointer", syscall(SYS_clone3, BAD, 64));
}

static void usage(void)
{
    struct rlimit limit = {.rlim_cur = 20, .rlim_max = 30};
    struct rusage use;

    say("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
    getrlimit(RLIMIT_NOFILE, &limit);
    say_value("soft", (long)limit.rlim_cur);
    say_value("hard", (long)limit.rlim_max);
    limit.rlim_cur = 40;
    say("soft above hard", setrlimit(RLIMIT_NOFILE, &limit));
    say("unknown", syscall(SYS_getrlimit, 99, &limit));
    say("getrusage", getrusage(RUSAGE_SELF, &use));
    say("getrusage of whom", getrusage(77, &use));
}

int main(int argc, char **argv)
{
    char number[16];
    int signo = 0;

    if (argc > 1 && !argv[1][0]) {
        prctl(PR_GET_PDEATHSIG, &signo);
        return signo;
    }
    if (argc > 1)
        return 12;
    snprintf(number, sizeof(number), "%d", getpid());
    setenv("REAPER", number, 1);
    setvbuf(stdout, NULL, _IONBF, 0);
    basics();
    stops();
    notices();
    groups();
    orphans();
    parents_death();
    vforks();
    scripts();
    time_limit();
    flags();
    usage();
    return 0;
}
