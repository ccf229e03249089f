/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Handlers, masks, queues, the alternate stack, faults, restarts. */
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

#include "say.h"

static volatile int count, last, code, on_stack;
static volatile long value, trap_number, address_low;
static char stack[65536];
static sigjmp_buf back;

static void note(int signo, siginfo_t *info, void *context)
{
    char here;

    (void)context;
    count++;
    last = signo;
    code = info->si_code;
    value = info->si_value.sival_int;
    on_stack = &here >= stack && &here < stack + sizeof(stack);
}

static void faulted(int signo, siginfo_t *info, void *context)
{
    const ucontext_t *u = context;

    last = signo;
    code = info->si_code;
    trap_number = u->uc_mcontext.gregs[20]; /* REG_TRAPNO */
    address_low = (long)info->si_addr & 4095;
    siglongjmp(back, 1);
}

static void handle(int signo, void (*function)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_sigaction = function, .sa_flags = SA_SIGINFO | flags};

    sigaction(signo, &action, NULL);
}

static void standard(void)
{
    sigset_t set, old;
    struct sigaction action;

    handle(SIGUSR1, note, 0);
    say("raise", raise(SIGUSR1));
    say_value("count", count);
    say_value("code of raise", code);
    kill(getpid(), SIGUSR1);
    say_value("code of kill", code);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    say_value("was blocked", sigismember(&old, SIGUSR1));
    count = 0;
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGUSR1);
    say_value("while blocked", count);
    sigpending(&set);
    say_value("pends", sigismember(&set, SIGUSR1));
    sigprocmask(SIG_SETMASK, &old, NULL);
    say_value("once", count);
    signal(SIGUSR1, SIG_IGN);
    kill(getpid(), SIGUSR1);
    sigaction(SIGUSR1, NULL, &action);
    say_value("is ignored", action.sa_handler == SIG_IGN);
    say("kill", sigaction(SIGKILL, &(struct sigaction){.sa_handler = SIG_IGN}, NULL));
    say("stop", sigaction(SIGSTOP, &(struct sigaction){.sa_handler = SIG_IGN}, NULL));
    say("65", syscall(SYS_rt_sigaction, 65, NULL, NULL, 8));
    say("size", syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 4));
    say("pointer", syscall(SYS_rt_sigaction, SIGUSR1, BAD, NULL, 8));
}

static void realtime(void)
{
    struct timespec none = {0};
    siginfo_t info;
    sigset_t set;
    int i;

    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigaddset(&set, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (i = 0; i < 3; i++)
        sigqueue(getpid(), SIGRTMIN + 1 - i % 2, (union sigval){.sival_int = i});
    for (i = 0; i < 4; i++) {
        long r = sigtimedwait(&set, &info, &none);

        say("sigtimedwait", r > 0 ? r - SIGRTMIN : r);
        if (r > 0) {
            say_value("value", info.si_value.sival_int);
            say_value("queued", info.si_code == SI_QUEUE);
        }
    }
    say("unqueue", sigqueue(getpid(), 65, (union sigval){0}));
}

static void alternate(void)
{
    stack_t new = {.ss_sp = stack, .ss_size = sizeof(stack)}, old;

    say("sigaltstack", sigaltstack(&new, &old));
    say_value("disabled", old.ss_flags);
    handle(SIGUSR2, note, SA_ONSTACK);
    raise(SIGUSR2);
    say_value("on it", on_stack);
    new.ss_size = 100;
    say("small", sigaltstack(&new, NULL));
    new.ss_flags = 77;
    say("flags", sigaltstack(&new, NULL));
    new.ss_flags = SS_DISABLE;
    say("disable", sigaltstack(&new, &old));
    say_value("size", (long)old.ss_size);
}

static void try_fault(const char *name, int kind)
{
    volatile int zero = 0;
    char *page =
        mmap(NULL, 4096, kind == 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    last = code = 0;
    trap_number = address_low = -1;
    if (sigsetjmp(back, 1) == 0) {
        switch (kind) {
        case 0:
            *(volatile char *)8 = 1;
            break;
        case 1:
            *(volatile char *)(page + 5) = 1;
            break;
        case 2:
            *(volatile char *)(page + 6) = 1;
            break;
        case 3:
            zero = 5 / zero;
            break;
        case 4:
            __asm__ volatile("ud2");
            break;
        case 5:
            __asm__ volatile("int3");
            break;
        case 6:
            __asm__ volatile("hlt");
            break;
        case 7:
            *(volatile char *)0x8000000000000000ul = 1;
            break;
        }
    }
    printf("%s: signal %d code %d trap %ld address %ld\n", name, last, code, trap_number,
           address_low);
    munmap(page, 4096);
}

static void faults(void)
{
    static const int signals[] = {SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGBUS};
    unsigned i;

    for (i = 0; i < 5; i++)
        handle(signals[i], faulted, 0);
    try_fault("null", 0);
    try_fault("none", 1);
    try_fault("read-only", 2);
    try_fault("division", 3);
    try_fault("ud2", 4);
    try_fault("int3", 5);
    try_fault("hlt", 6);
    try_fault("not canonical", 7);
    for (i = 0; i < 5; i++)
        signal(signals[i], SIG_DFL);
}

static void dies(const char *name, void (*how)(void))
{
    int status;
    pid_t pid = fork();

    if (!pid) {
        how();
        _exit(77);
    }
    waitpid(pid, &status, 0);
    printf("%s: status 0x%x\n", name, status);
}

static void die_segv(void)
{
    *(volatile char *)8 = 1;
}

static void die_abort(void)
{
    abort();
}

static void die_blocked(void)
{
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    *(volatile char *)8 = 1;
}

static void die_term(void)
{
    kill(getpid(), SIGTERM);
}

static void die_rt(void)
{
    kill(getpid(), SIGRTMAX);
}

static void die_no_stack(void)
{
    handle(SIGUSR1, note, 0);
    __asm__ volatile(
        "mov $64, %%rsp; mov %0, %%edi; mov $10, %%esi; mov $62, %%eax; syscall; hlt" ::"r"(
            getpid()));
}

static void ignore_it(void)
{
    raise(SIGCHLD);
    raise(SIGWINCH);
    raise(SIGURG);
    raise(SIGCONT);
}

static void interrupted(int flags, const char *name)
{
    int ends[2];
    char byte;
    pid_t pid;

    handle(SIGALRM, note, flags);
    if (pipe(ends))
        return;
    count = 0;
    pid = fork();
    if (!pid) {
        usleep(60000);
        kill(getppid(), SIGALRM);
        usleep(60000);
        if (write(ends[1], "x", 1) != 1)
            _exit(1);
        _exit(0);
    }
    say(name, read(ends[0], &byte, 1));
    say_value("handled", count);
    waitpid(pid, NULL, 0);
    close(ends[0]);
    close(ends[1]);
}

static void suspended(void)
{
    sigset_t none, alarm_only;
    struct timespec left = {0}, time = {.tv_sec = 5};

    sigemptyset(&none);
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    handle(SIGALRM, note, SA_RESTART);
    sigprocmask(SIG_BLOCK, &alarm_only, NULL);
    ualarm(30000, 0);
    say("sigsuspend", sigsuspend(&none));
    sigprocmask(SIG_SETMASK, NULL, &none);
    say_value("blocked again", sigismember(&none, SIGALRM));
    sigprocmask(SIG_UNBLOCK, &alarm_only, NULL);
    ualarm(30000, 0);
    say("nanosleep", nanosleep(&time, &left));
    say_value("left", left.tv_sec);
    ualarm(30000, 0);
    say("pause", pause());
}

int main(void)
{
    standard();
    realtime();
    alternate();
    faults();
    dies("segv", die_segv);
    dies("abort", die_abort);
    dies("blocked", die_blocked);
    dies("term", die_term);
    dies("realtime", die_rt);
    dies("no stack", die_no_stack);
    dies("ignored", ignore_it);
    interrupted(0, "read");
    interrupted(SA_RESTART, "read again");
    suspended();
    return 0;
}
