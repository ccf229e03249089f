/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Clocks, sleeps, timers of all kinds. */
#include <signal.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>

#include "say.h"

static volatile int count, code, overrun, value;

static void note(int signo, siginfo_t *info, void *context)
{
    (void)signo;
    (void)context;
    count++;
    code = info->si_code;
    value = info->si_value.sival_int;
    if (info->si_code == SI_TIMER && info->si_overrun > overrun)
        overrun = info->si_overrun;
}

static long long now(clockid_t id)
{
    struct timespec time;

    clock_gettime(id, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static void clocks(void)
{
    static const clockid_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 99, -1};
    struct timespec time;
    unsigned i;
    char name[32];

    for (i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        snprintf(name, sizeof(name), "clock %d", ids[i]);
        say(name, syscall(SYS_clock_gettime, ids[i], &time));
        snprintf(name, sizeof(name), "sleep by %d", ids[i]);
        time = (struct timespec){.tv_nsec = 1};
        if (ids[i] != 2 && ids[i] != 3)
            say(name, syscall(SYS_clock_nanosleep, ids[i], 0, &time, NULL));
    }
    say("settime", clock_settime(CLOCK_MONOTONIC, &time));
    say("pointer", syscall(SYS_clock_gettime, 0, BAD));
    say_value("year", now(CLOCK_REALTIME) > 1700000000000000000ll);
}

static void sleeps(void)
{
    struct timespec brief = {.tv_nsec = 30000000}, wrong = {.tv_nsec = -1}, at;
    long long before = now(CLOCK_MONOTONIC);

    say("nanosleep", nanosleep(&brief, NULL));
    say_value("took", now(CLOCK_MONOTONIC) - before >= 30000000);
    say("wrong", nanosleep(&wrong, NULL));
    say("pointer", syscall(SYS_nanosleep, BAD, NULL));
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += 20000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        at.tv_sec++;
    }
    say("absolute", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL));
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec -= 10;
    say("past", clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL));
}

static void intervals(void)
{
    struct itimerval timer = {.it_interval.tv_usec = 10000, .it_value.tv_usec = 10000}, old;

    say("setitimer", setitimer(ITIMER_REAL, &timer, NULL));
    count = 0;
    while (count < 3)
        pause();
    say("getitimer", getitimer(ITIMER_REAL, &old));
    say_value("interval", old.it_interval.tv_usec);
    say_value("runs", old.it_value.tv_usec > 0);
    memset(&timer, 0, sizeof(timer));
    setitimer(ITIMER_REAL, &timer, NULL);
    getitimer(ITIMER_REAL, &old);
    say_value("stopped", old.it_value.tv_usec);
    say_value("alarm", alarm(100));
    say_value("alarm left", alarm(0));
    timer.it_value.tv_usec = 1000000;
    say("wrong", setitimer(ITIMER_REAL, &timer, NULL));
    say("which", syscall(SYS_setitimer, 9, &timer, NULL));
}

static void by_processor(void)
{
    struct itimerval timer = {.it_value.tv_usec = 50000};
    volatile unsigned spin = 0;

    signal(SIGVTALRM, SIG_IGN);
    count = 0;
    setitimer(ITIMER_PROF, &timer, NULL);
    while (!count)
        spin++;
    say_value("SIGPROF", count);
    count = 0;
    setitimer(ITIMER_VIRTUAL, &(struct itimerval){0}, NULL);
    sigaction(SIGVTALRM, &(struct sigaction){.sa_sigaction = note, .sa_flags = SA_SIGINFO}, NULL);
    setitimer(ITIMER_VIRTUAL, &timer, NULL);
    while (!count)
        spin++;
    say_value("SIGVTALRM", count);
    say_value("user time", clock() > 0);
    say_value("process clock", now(CLOCK_PROCESS_CPUTIME_ID) > 0);
}

/* Of the clock of the process, and two that send the same signal. */
static void together(void)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec spec = {.it_value.tv_nsec = 10000000};
    volatile unsigned spin = 0;
    timer_t timer, second;
    sigset_t set;

    sigaction(SIGUSR1, &(struct sigaction){.sa_sigaction = note, .sa_flags = SA_SIGINFO}, NULL);
    say("by the processor", timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer));
    count = 0;
    timer_settime(timer, 0, &spec, NULL);
    while (!count)
        spin++;
    say_value("fired", count);
    timer_delete(timer);
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_create(CLOCK_MONOTONIC, &event, &second);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    count = 0;
    timer_settime(timer, 0, &spec, NULL);
    timer_settime(second, 0, &spec, NULL);
    usleep(100000);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    while (count < 2) /* each has its own */
        usleep(1000);
    count = 0;
    timer_settime(second, 0, &spec, NULL);
    while (!count)
        usleep(1000);
    say_value("and again", count);
    timer_delete(timer);
    timer_delete(second);
}

static void posix(void)
{
    struct sigevent event = {
        .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 33};
    struct itimerspec spec = {.it_value.tv_nsec = 10000000}, left;
    timer_t timer, second;
    sigset_t set;

    sigaction(SIGRTMIN, &(struct sigaction){.sa_sigaction = note, .sa_flags = SA_SIGINFO}, NULL);
    say("create", timer_create(CLOCK_MONOTONIC, &event, &timer));
    count = 0;
    say("settime", timer_settime(timer, 0, &spec, NULL));
    while (!count)
        pause();
    say_value("code", code == SI_TIMER);
    say_value("value", value);
    say("gettime", timer_gettime(timer, &left));
    say_value("over", left.it_value.tv_nsec);
    spec.it_interval.tv_nsec = 5000000;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    count = 0;
    timer_settime(timer, 0, &spec, NULL);
    usleep(100000);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    say_value("at once", count >= 1);
    say_value("overrun", overrun >= 5);
    say_ok("getoverrun", timer_getoverrun(timer));
    say("delete", timer_delete(timer));
    say("delete again", timer_delete(timer));
    event.sigev_notify = SIGEV_NONE;
    say("none", timer_create(CLOCK_REALTIME, &event, &second));
    spec.it_value.tv_sec = 100;
    timer_settime(second, 0, &spec, NULL);
    timer_gettime(second, &left);
    say_value("left", left.it_value.tv_sec >= 99);
    event.sigev_notify = 77;
    say("notify", timer_create(CLOCK_REALTIME, &event, &second));
    say("clock", timer_create(99, NULL, &second));
    say("settime of nothing", syscall(SYS_timer_settime, 999, 0, &spec, NULL));
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    struct tms tms;

    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGPROF, &action, NULL);
    clocks();
    sleeps();
    intervals();
    by_processor();
    together();
    posix();
    say_value("times", times(&tms) > 0);
    return 0;
}
