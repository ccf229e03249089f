/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * probe_agent - a stand-in for the agent: PID 1 of a test cell, static, does one small thing per
 * line that it reads from descriptor 3 and answers with one line, "<number> [text]". Numbers below
 * zero are negative errnos.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char text[16384];

static long list(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;
    long n = 0;
    int own;

    if (!d)
        return -errno;
    own = dirfd(d);
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.' || (!strcmp(path, "/proc/self/fd") && atoi(e->d_name) == own))
            continue;
        n++;
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s ", e->d_name);
    }
    closedir(d);
    return n;
}

static long get(const char *path)
{
    int fd = open(path, O_RDONLY), i;
    ssize_t n;

    if (fd < 0)
        return -errno;
    n = read(fd, text, 4000);
    if (n < 0)
        n = -errno;
    close(fd);
    text[n > 0 ? n : 0] = 0;
    for (i = 0; text[i]; i++)
        if (text[i] == '\n')
            text[i] = '|';
    return n;
}

static long put(const char *path, long bytes)
{
    static char block[65536];
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    long done = 0;

    if (fd < 0)
        return -errno;
    memset(block, 'x', sizeof(block));
    while (done < bytes) {
        ssize_t n = write(
            fd, block, bytes - done < (long)sizeof(block) ? (size_t)(bytes - done) : sizeof(block));
        if (n < 0) {
            done = -errno;
            break;
        }
        done += n;
    }
    close(fd);
    return done;
}

static long look(const char *path)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return -errno;
    snprintf(text, sizeof(text), "mode=%o uid=%u gid=%u rdev=%u:%u", st.st_mode, st.st_uid,
             st.st_gid, major(st.st_rdev), minor(st.st_rdev));
    return 0;
}

/* A child touches the memory; the answer is the signal that ended it. */
static long eat(long bytes)
{
    int status;
    pid_t pid = fork();

    if (pid < 0)
        return -errno;
    if (pid == 0) {
        char *p =
            mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        long i;
        if (p == MAP_FAILED)
            _exit(1);
        for (i = 0; i < bytes; i += 4096)
            p[i] = 1;
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static long forks(long want)
{
    static pid_t pids[4096];
    long n, i, r;

    for (n = 0; n < want && n < 4096; n++) {
        pids[n] = fork();
        if (pids[n] == 0) {
            pause();
            _exit(0);
        }
        if (pids[n] < 0)
            break;
    }
    r = n;
    for (i = 0; i < n; i++)
        kill(pids[i], SIGKILL);
    for (i = 0; i < n; i++)
        waitpid(pids[i], NULL, 0);
    return r;
}

static long burn(long ms)
{
    struct timespec a, b, cpu;

    clock_gettime(CLOCK_MONOTONIC, &a);
    do
        clock_gettime(CLOCK_MONOTONIC, &b);
    while ((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < ms);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    return cpu.tv_sec * 1000 + cpu.tv_nsec / 1000000;
}

/* Reads past every cache; the answer is how long it took. */
static long direct(const char *path, long bytes)
{
    int fd = open(path, O_RDONLY | O_DIRECT);
    struct timespec a, b;
    void *block;
    long done = 0;

    if (fd < 0 || posix_memalign(&block, 4096, 65536))
        return -errno;
    clock_gettime(CLOCK_MONOTONIC, &a);
    while (done < bytes) {
        ssize_t n = read(fd, block, 65536);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        done += n;
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    close(fd);
    free(block);
    return (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000;
}

static long result(long r)
{
    return r < 0 ? -errno : r;
}

/* call NR A B C D E: one raw system call. Pointer arguments are given as "p": a zeroed scratch
 * page. */
static long raw(char *args)
{
    static char page[4096];
    long v[7] = {0};
    char *p;
    int i = 0;

    memset(page, 0, sizeof(page));
    for (p = strtok(args, " "); p && i < 7; p = strtok(NULL, " "))
        v[i++] = !strcmp(p, "p") ? (long)page : strtol(p, NULL, 0);
    return result(syscall(v[0], v[1], v[2], v[3], v[4], v[5], v[6]));
}

static long caps(const char *which)
{
    char *at;

    if (get("/proc/self/status") < 0 || !(at = strstr(text, which)))
        return -errno;
    return strtol(at + strlen(which) + 1, NULL, 16);
}

static long thread_like(void)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(7);
    return waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : -errno;
}

static long answer(char *line)
{
    char *arg = strchr(line, ' '), *rest;
    struct utsname u;
    long n = 0;

    if (arg)
        *arg++ = 0;
    else
        arg = line + strlen(line);
    rest = strchr(arg, ' ');
    if (!strcmp(line, "ping"))
        return 1;
    if (!strcmp(line, "pid"))
        return getpid();
    if (!strcmp(line, "uid"))
        return getuid();
    if (!strcmp(line, "env")) {
        while (environ && environ[n])
            n++;
        return n;
    }
    if (!strcmp(line, "list"))
        return list(arg);
    if (!strcmp(line, "get"))
        return get(arg);
    if (!strcmp(line, "stat"))
        return look(arg);
    if (!strcmp(line, "put") && rest) {
        *rest = 0;
        return put(arg, atol(rest + 1));
    }
    if (!strcmp(line, "direct") && rest) {
        *rest = 0;
        return direct(arg, atol(rest + 1));
    }
    if (!strcmp(line, "rm"))
        return result(unlink(arg));
    if (!strcmp(line, "mkdir"))
        return result(mkdir(arg, 0755));
    if (!strcmp(line, "eat"))
        return eat(atol(arg));
    if (!strcmp(line, "forks"))
        return forks(atol(arg));
    if (!strcmp(line, "fork"))
        return thread_like();
    if (!strcmp(line, "burn"))
        return burn(atol(arg));
    if (!strcmp(line, "call"))
        return raw(arg);
    if (!strcmp(line, "caps"))
        return caps(arg);
    if (!strcmp(line, "chown"))
        return result(chown(arg, 1000, 1000));
    if (!strcmp(line, "name"))
        return result(prctl(PR_SET_NAME, arg, 0, 0, 0));
    if (!strcmp(line, "nnp"))
        return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    if (!strcmp(line, "host")) {
        uname(&u);
        snprintf(text, sizeof(text), "%s", u.nodename);
        return 0;
    }
    if (!strcmp(line, "uptime")) {
        struct timespec t;
        clock_gettime(CLOCK_BOOTTIME, &t);
        return t.tv_sec;
    }
    if (!strcmp(line, "rlimit")) {
        struct rlimit r;
        getrlimit((int)atol(arg), &r);
        return (long)r.rlim_cur;
    }
    if (!strcmp(line, "deaf"))
        for (;;)
            pause();
    if (!strcmp(line, "exit"))
        _exit((int)atol(arg));
    return -EINVAL;
}

int main(void)
{
    FILE *in = fdopen(3, "r");
    char line[4096];

    signal(SIGPIPE, SIG_IGN);
    while (in && fgets(line, sizeof(line), in)) {
        char out[17000];
        long r;
        line[strcspn(line, "\n")] = 0;
        text[0] = 0;
        r = answer(line);
        snprintf(out, sizeof(out), "%ld %s\n", r, text);
        if (write(3, out, strlen(out)) < 0)
            break;
    }
    return 0;
}
