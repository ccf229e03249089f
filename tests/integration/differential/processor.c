/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Processor time and memory, as all that tell it tell it: what was used is counted, once, and by all alike. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <time.h>

#include "say.h"

#define MS 1000000ll
#define RUN (300 * MS)
#define TICK (10 * MS)
#define MIB (1l << 20)

static char **arguments;

static long long now(clockid_t id)
{
    struct timespec time;

    clock_gettime(id, &time);
    return time.tv_sec * 1000 * MS + time.tv_nsec;
}

static long long ns(struct timeval time)
{
    return (time.tv_sec * 1000000ll + time.tv_usec) * 1000;
}

static long long used(const struct rusage *usage)
{
    return ns(usage->ru_utime) + ns(usage->ru_stime);
}

static void run(void)
{
    while (now(CLOCK_PROCESS_CPUTIME_ID) < RUN)
        for (volatile int i = 0; i < 100000; i++)
            ;
}

static void call(void)
{
    char byte[64];
    int fd = open("/dev/zero", O_RDONLY);

    while (now(CLOCK_PROCESS_CPUTIME_ID) < RUN)
        for (int i = 0; i < 100; i++)
            if (read(fd, byte, sizeof(byte)) != sizeof(byte))
                _exit(1);
}

/* A child that runs so long, by itself or as a program of its own; what is said of it by wait4 and by the sum. */
static void child(const char *name, void (*work)(void), const char *program)
{
    struct rusage before, after, own;
    struct tms ticks[2];
    long long began = now(CLOCK_MONOTONIC), took, sum, most;
    int status;
    pid_t pid;

    getrusage(RUSAGE_CHILDREN, &before);
    times(&ticks[0]);
    pid = fork();
    if (pid == 0) {
        if (program)
            execl("/proc/self/exe", arguments[0], program, NULL);
        work();
        _exit(0);
    }
    wait4(pid, &status, 0, &own);
    took = now(CLOCK_MONOTONIC) - began;
    most = took * sysconf(_SC_NPROCESSORS_ONLN) + 2 * TICK;
    getrusage(RUSAGE_CHILDREN, &after);
    times(&ticks[1]);
    printf("%s: %d\n", name, status);
    say_value("at least", used(&own) >= RUN / 2);
    say_value("at most", used(&own) <= most);
    sum = used(&after) - used(&before);
    say_value("sum", sum >= used(&own) - TICK && sum <= used(&own) + TICK);
    sum = (ticks[1].tms_cutime - ticks[0].tms_cutime + ticks[1].tms_cstime - ticks[0].tms_cstime) *
          TICK;
    say_value("times", sum >= used(&own) - 2 * TICK && sum <= used(&own) + 2 * TICK);
    say_value(work == call ? "system" : "user",
              ns(work == call ? own.ru_stime : own.ru_utime) >= 2 * TICK);
}

/* Who ignores the end of its children is not told what they used. */
static void ignored(void)
{
    struct rusage before, after;

    getrusage(RUSAGE_CHILDREN, &before);
    signal(SIGCHLD, SIG_IGN);
    if (fork() == 0) {
        run();
        _exit(0);
    }
    say("ignored", wait(NULL));
    signal(SIGCHLD, SIG_DFL);
    getrusage(RUSAGE_CHILDREN, &after);
    say_value("told", used(&after) != used(&before));
}

static long long of_stat(const char *path)
{
    unsigned long user = 0, system = 0;
    char text[1024] = "", *at;
    int fd = open(path, O_RDONLY);

    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 || !(at = strrchr(text, ')')))
        return -1;
    close(fd);
    sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    return (long long)(user + system) * TICK;
}

/* Each asked between two looks at the clock of the process. */
static void agree(void)
{
    struct rusage usage;
    struct tms ticks;
    long long first, told[4], last;
    unsigned i;

    run();
    first = now(CLOCK_PROCESS_CPUTIME_ID);
    getrusage(RUSAGE_SELF, &usage);
    times(&ticks);
    told[0] = used(&usage);
    told[1] = (ticks.tms_utime + ticks.tms_stime) * TICK;
    told[2] = of_stat("/proc/self/stat");
    told[3] = now(CLOCK_THREAD_CPUTIME_ID);
    last = now(CLOCK_PROCESS_CPUTIME_ID);
    for (i = 0; i < 4; i++)
        say_value("clocks", told[i] >= first - 2 * TICK && told[i] <= last + 2 * TICK);
    say_value("goes on", last >= first);
}

static volatile int stop;

static void *spinner(void *unused)
{
    (void)unused;
    while (!stop)
        ;
    return NULL;
}

/* One thread runs: its clock says so, the clock of the other does not. */
static void threads(void)
{
    long long before = now(CLOCK_THREAD_CPUTIME_ID), its;
    struct rusage usage;
    pthread_t thread;
    clockid_t clock;

    pthread_create(&thread, NULL, spinner, NULL);
    pthread_getcpuclockid(thread, &clock);
    while (now(clock) < RUN)
        usleep(10000);
    its = now(clock);
    say_value("mine", now(CLOCK_THREAD_CPUTIME_ID) - before < its / 2);
    getrusage(RUSAGE_THREAD, &usage);
    say_value("usage", used(&usage) >= before - TICK && used(&usage) - before < its / 2);
    say_value("both", now(CLOCK_PROCESS_CPUTIME_ID) >= its + before);
    stop = 1;
    pthread_join(thread, NULL);
    say_value("after", now(CLOCK_PROCESS_CPUTIME_ID) >= its + before);
}

static long status_of(const char *name)
{
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");

    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, name, strlen(name)) == 0)
            value = atol(line + strlen(name) + 1);
    if (file)
        fclose(file);
    return value;
}

static void pages(void)
{
    struct rusage before, usage;
    char *at;
    pid_t pid = fork();

    if (pid == 0) {
        getrusage(RUSAGE_SELF, &before);
        at = mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(at, 1, 32 * MIB);
        say("lock", mlock(at, 4096 * 4));
        say_value("locked", status_of("VmLck"));
        munmap(at, 32 * MIB);
        getrusage(RUSAGE_SELF, &usage);
        say_value("most", usage.ru_maxrss >= 32 << 10 && usage.ru_maxrss <= 64 << 10);
        say_value("before", before.ru_maxrss < 32 << 10);
        say_value("high", status_of("VmHWM") >= 32 << 10);
        say_value("now", status_of("VmRSS") < 32 << 10);
        execl("/proc/self/exe", arguments[0], "kept", NULL);
    }
    wait4(pid, NULL, 0, &usage);
    say_value("of the child", usage.ru_maxrss >= 32 << 10 && usage.ru_maxrss <= 64 << 10);
    getrusage(RUSAGE_CHILDREN, &usage);
    say_value("of children", usage.ru_maxrss >= 32 << 10 && usage.ru_maxrss <= 64 << 10);
}

static int kept(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    say_value("kept", usage.ru_maxrss >= 32 << 10);
    say_value("fresh", status_of("VmHWM") < 32 << 10);
    return 0;
}

int main(int argc, char **argv)
{
    int i;

    arguments = argv;
    if (argc > 1 && strcmp(argv[1], "run") == 0) {
        run();
        return 0;
    }
    if (argc > 1)
        return kept();
    for (i = 0; i < 3; i++) {
        child("runs", run, NULL);
        child("program", run, "run");
        child("calls", call, NULL);
    }
    ignored();
    agree();
    threads();
    pages();
    return 0;
}
