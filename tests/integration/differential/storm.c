/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Much at once: processes that fork, exec, kill and wait for each other, threads that come and go, timers and signals between. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "say.h"

static volatile int ticks;

static void tick(int signo)
{
    (void)signo;
    ticks++;
}

static void *brief(void *argument)
{
    long n = (long)argument;

    if (n % 3 == 0)
        sched_yield();
    if (n % 7 == 0)
        usleep(500);
    return argument;
}

static int threads_come_and_go(void)
{
    pthread_t threads[6];
    long round, i, sum = 0;
    void *result;

    for (round = 0; round < 12; round++) {
        for (i = 0; i < 6; i++)
            if (pthread_create(&threads[i], NULL, brief, (void *)i))
                return 1;
        for (i = 0; i < 6; i++) {
            pthread_join(threads[i], &result);
            sum += (long)result;
        }
    }
    return sum != 12 * 15;
}

static void *spins(void *unused)
{
    volatile unsigned n = 0;

    for (;;)
        n++;
    return unused;
}

/* A process of several threads, some of which run, is ended by one of them, by exec, or from outside. */
static int processes_end(int how)
{
    char *const argv[] = {"storm", "exec", NULL};
    pthread_t thread;
    int status, i;
    pid_t pid = fork();

    if (!pid) {
        for (i = 0; i < 2; i++)
            pthread_create(&thread, NULL, spins, NULL);
        usleep(2000);
        if (how == 0)
            _exit(1);
        if (how == 1)
            execv("/proc/self/exe", argv);
        for (;;)
            pause();
    }
    if (how == 2) {
        usleep(4000);
        kill(pid, SIGKILL);
    }
    if (how == 3) {
        usleep(4000);
        kill(pid, SIGSTOP);
        waitpid(pid, &status, WUNTRACED);
        kill(pid, SIGCONT);
        kill(pid, SIGTERM);
    }
    waitpid(pid, &status, 0);
    return how == 0   ? status != 1 << 8
           : how == 1 ? status != 5 << 8
           : how == 2 ? status != SIGKILL
                      : status != SIGTERM;
}

static int children_of_children(int depth)
{
    int status, i, wrong = 0;
    pid_t pid[3];

    if (!depth)
        return 0;
    for (i = 0; i < 3; i++) {
        pid[i] = i == 1 ? vfork() : fork();
        if (pid[i] == 0)
            _exit(i == 1 ? 0 : children_of_children(depth - 1));
        wrong += pid[i] < 0;
    }
    for (i = 0; i < 3; i++)
        wrong += waitpid(pid[i], &status, 0) != pid[i] || status;
    return wrong != 0;
}

/* Signals to and fro: each answers the other's. */
static int ping_pong(void)
{
    sigset_t set, old;
    siginfo_t info;
    int i, status;
    pid_t pid;

    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, &old);
    pid = fork();
    if (!pid) {
        for (i = 0; i < 100; i++) {
            while (sigwaitinfo(&set, &info) < 0)
                ;
            sigqueue(getppid(), SIGRTMIN, (union sigval){.sival_int = info.si_value.sival_int + 1});
        }
        _exit(0);
    }
    for (i = 0; i < 100; i++) {
        sigqueue(pid, SIGRTMIN, (union sigval){.sival_int = i});
        while (sigwaitinfo(&set, &info) < 0)
            ;
        if (info.si_value.sival_int != i + 1)
            return 1;
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    waitpid(pid, &status, 0);
    return status;
}

static int everything(int seed)
{
    struct itimerval timer = {.it_interval.tv_usec = 3000, .it_value.tv_usec = 3000};
    int round, wrong = 0;

    sigaction(SIGALRM, &(struct sigaction){.sa_handler = tick, .sa_flags = SA_RESTART}, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (round = 0; round < 4; round++) {
        wrong += threads_come_and_go();
        wrong += processes_end((seed + round) % 4);
        wrong += children_of_children(2);
        wrong += ping_pong();
    }
    return wrong;
}

int main(int argc, char **argv)
{
    int status, i, wrong = 0;
    pid_t pids[4];

    (void)argv;
    if (argc > 1)
        return 5;
    for (i = 0; i < 4; i++) {
        pids[i] = fork();
        if (!pids[i])
            _exit(everything(i));
    }
    for (i = 0; i < 4; i++) {
        waitpid(pids[i], &status, 0);
        printf("process %d: 0x%x\n", i, status);
        wrong += status != 0;
    }
    say_value("wrong", wrong);
    return 0;
}
