/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * exhaust - uses up what a kernel has, one kind of thing after the other, each in a process of its own that gives all back by
 * its end. Each says which error ended it, and whether there is some again afterwards. The cell has limits of tasks, memory and
 * disk that make each end soon.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int status_of(pid_t pid)
{
    int status = -1;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

static void most_descriptors(void)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* ---- memory ---- */

static const char *areas(void)
{
    uint8_t *all =
        mmap(NULL, 1ul << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned long i;

    for (i = 0; i < 1ul << 18; i += 2)
        if (mprotect(all + (i << 12), 4096, PROT_READ | PROT_WRITE))
            break;
    if (i == 1ul << 18)
        return "no bound";
    return strerror(errno);
}

static const char *memory(void)
{
    pid_t pid = fork();
    uint8_t *at;
    int status;

    if (!pid) {
        while ((at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                          0)) != MAP_FAILED)
            memset(at, 1, 1 << 20);
        _exit(1);
    }
    status = status_of(pid);
    return WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "an exit";
}

/* Pages of the kernel's own for pages of the guest's: one page touched in each 2 MiB. */
static const char *tables(void)
{
    pid_t pid = fork();
    uint8_t *at;
    uint64_t i;
    int status;

    if (!pid) {
        at = mmap(NULL, 1ul << 40, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
            _exit(2);
        for (i = 0; i < 1ul << 40; i += 2ul << 20)
            at[i] = 1;
        _exit(1);
    }
    status = status_of(pid);
    return WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "an exit";
}

/* ---- descriptors ---- */

static const char *descriptors(void)
{
    most_descriptors();
    while (dup(0) >= 0)
        ;
    return strerror(errno);
}

/* Pipes, each full. */
static const char *pipes(void)
{
    static char bytes[65536];
    int ends[2];

    most_descriptors();
    while (!pipe2(ends, O_NONBLOCK))
        while (write(ends[1], bytes, sizeof(bytes)) > 0)
            ;
    return errno == EMFILE || errno == ENFILE ? "no more files" : strerror(errno);
}

static const char *sockets(void)
{
    static char bytes[60000];
    int ends[2];

    most_descriptors();
    while (!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends))
        while (write(ends[0], bytes, sizeof(bytes)) > 0 || write(ends[1], bytes, sizeof(bytes)) > 0)
            ;
    return errno == EMFILE || errno == ENFILE || errno == ENOBUFS ? "no more files"
                                                                  : strerror(errno);
}

/* Of each kind of anonymous file as many as there may be. */
static const char *kinds(void)
{
    int i, made = 1;

    most_descriptors();
    for (i = 0; made; i++)
        made = (eventfd(1, 0) >= 0) + (timerfd_create(CLOCK_MONOTONIC, 0) >= 0) +
               (inotify_init() >= 0) + (syscall(SYS_memfd_create, "m", 0) >= 0) +
               (open("/dev/ptmx", O_RDWR) >= 0);
    return errno == EMFILE || errno == ENFILE || errno == ENOSPC ? "no more files"
                                                                 : strerror(errno);
}

/* ---- tasks ---- */

static const char *processes(void)
{
    static pid_t pids[4096];
    const char *end;
    int n = 0, i;

    while (n < 4096 && (pids[n] = fork()) >= 0)
        if (!pids[n++]) {
            pause();
            _exit(0);
        }
    end = strerror(errno);
    for (i = 0; i < n; i++)
        if (pids[i] > 0) {
            kill(pids[i], SIGKILL);
            status_of(pids[i]);
        }
    return end;
}

static void *sleeps(void *unused)
{
    pause();
    return unused;
}

static const char *threads(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    int r;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    while (!(r = pthread_create(&thread, &attributes, sleeps, NULL)))
        ;
    return strerror(r);
}

/* Each makes two for as long as it can: the bound holds, and whoever is above them can end them. */
static const char *bomb(void)
{
    pid_t pid = fork();

    if (!pid) {
        setpgid(0, 0);
        for (;;)
            if (fork() < 0)
                usleep(1000);
    }
    setpgid(pid, pid);
    usleep(700000);
    while (!kill(-pid, SIGKILL))
        while (waitpid(-pid, NULL, WNOHANG) > 0)
            ;
    while (waitpid(-1, NULL, 0) > 0)
        ;
    pid = fork();
    if (!pid)
        _exit(7);
    return pid > 0 && status_of(pid) == 7 << 8 ? "ended" : "still there";
}

/* ---- files ---- */

static const char *inodes(void)
{
    const char *end = "no bound";
    char name[32];
    int i, n, fd;

    mkdir("many", 0700);
    for (n = 0; n < 2000000; n++) {
        sprintf(name, "many/%d", n);
        fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd < 0) {
            end = strerror(errno);
            break;
        }
        close(fd);
    }
    for (i = 0; i < n; i++) {
        sprintf(name, "many/%d", i);
        unlink(name);
    }
    return rmdir("many") ? "names were left" : end;
}

static const char *disk(void)
{
    static char bytes[1 << 16];
    const char *end;
    ssize_t n;
    int fd = open("full", O_CREAT | O_RDWR, 0600);

    while ((n = write(fd, bytes, sizeof(bytes))) > 0)
        ;
    end = strerror(errno);
    if (ftruncate(fd, 0) || write(fd, bytes, sizeof(bytes)) != sizeof(bytes))
        end = "no room after it was made";
    close(fd);
    unlink("full");
    return end;
}

/* A mapping of a file that has no room: the fault is the program's, its kernel goes on. */
static const char *mapped(void)
{
    pid_t pid = fork();
    uint8_t *at;
    int fd, status;
    size_t i;

    if (!pid) {
        fd = open("hole", O_CREAT | O_RDWR, 0600);
        unlink("hole");
        if (ftruncate(fd, 1ul << 30))
            _exit(1);
        at = mmap(NULL, 1ul << 30, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        for (i = 0; i < 1ul << 30; i += 4096)
            at[i] = 1;
        _exit(2);
    }
    status = status_of(pid);
    return WIFSIGNALED(status) && (WTERMSIG(status) == SIGBUS || WTERMSIG(status) == SIGKILL)
               ? "a signal"
               : "an exit";
}

static const char *watches(void)
{
    char name[32];
    int fd = inotify_init(), i, n;

    for (n = 0; n < 100000; n++) {
        sprintf(name, "w%d", n);
        close(open(name, O_CREAT, 0600));
        if (inotify_add_watch(fd, name, IN_ALL_EVENTS) < 0)
            break;
    }
    for (i = 0; i <= n; i++) {
        sprintf(name, "w%d", i);
        unlink(name);
    }
    return n < 100000 && errno ? "a bound" : "no bound";
}

/* ---- signals ---- */

static const char *queued(void)
{
    sigset_t set;
    int n;

    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (n = 0; n < 1000000 && !sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = n}); n++)
        ;
    return n < 1000000 ? strerror(errno) : "no bound";
}

static const char *timers(void)
{
    timer_t timer;
    int n = 0;

    while (n < 1000000 && !timer_create(CLOCK_MONOTONIC, NULL, &timer))
        n++;
    return n < 1000000 ? strerror(errno) : "no bound";
}

#define STORM 100 /* of each signal, from each of four */

static volatile unsigned long got;

static void take(int signo)
{
    (void)signo;
    got++;
}

/* All signals that may be caught, from four processes to one and back. */
/* The library keeps 32 to 34 for itself. */
static bool ours(int signo)
{
    return signo != SIGKILL && signo != SIGSTOP && (signo < 32 || signo > 34);
}

/* Every signal there is, to one process and to all of its group, STORM times. */
static _Noreturn void send_all(pid_t to)
{
    int signo, n;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL))
        _exit(1);
    for (n = 0; n < STORM; n++)
        for (signo = 1; signo <= SIGRTMAX; signo++)
            if (ours(signo) && (kill(to, signo) || kill(0, signo % 2 ? SIGUSR1 : SIGCHLD)))
                _exit(1);
    _exit(0);
}

/* They begin together: who forks under fire may never come to it, here as on the host. */
static const char *storm(void)
{
    pid_t pids[4], me = getpid();
    sigset_t all, before;
    int i, signo, status, wrong = 0;

    for (signo = 1; signo <= SIGRTMAX; signo++)
        if (ours(signo))
            signal(signo, take);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    for (i = 0; i < 4; i++) {
        pids[i] = fork();
        if (!pids[i]) {
            sigprocmask(SIG_SETMASK, &before, NULL);
            send_all(me);
        }
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    for (i = 0; i < 4; i++) {
        while (waitpid(pids[i], &status, 0) < 0 && errno == EINTR)
            continue;
        wrong += pids[i] < 0 || status;
    }
    return wrong || got < 1000 ? "too few signals" : "survived";
}

static const struct {
    const char *name;
    const char *(*what)(void);
} all[] = {
    {"areas", areas},     {"descriptors", descriptors},
    {"pipes", pipes},     {"sockets", sockets},
    {"kinds", kinds},     {"processes", processes},
    {"threads", threads}, {"bomb", bomb},
    {"inodes", inodes},   {"disk", disk},
    {"mapped", mapped},   {"watches", watches},
    {"queued", queued},   {"timers", timers},
    {"storm", storm},     {"memory", memory},
    {"tables", tables},
};

int main(int argc, char **argv)
{
    unsigned i, round;
    pid_t pid;
    int status;

    if (chdir("/tmp"))
        return 3;
    for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        for (round = 0; round < 2; round++) {
            if (argc > 1 && strcmp(argv[1], all[i].name))
                continue;
            fflush(stdout);
            pid = fork();
            if (!pid) {
                setpgid(0, 0);
                printf("%s %u: %s\n", all[i].name, round + 1, all[i].what());
                fflush(stdout);
                _exit(0);
            }
            status = pid < 0 ? -1 : status_of(pid);
            if (status)
                printf("%s %u: %s\n", all[i].name, round + 1,
                       pid < 0 ? strerror(errno) : strsignal(status & 127));
        }
    return 0;
}
