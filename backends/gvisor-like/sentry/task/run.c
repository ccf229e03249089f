/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * run - the thread of a task: guest code, system call or fault, boundary, guest code.
 *
 * The boundary is where everything that is owed is settled: what other tasks asked of the address space, the wait of a vfork,
 * a hold of all tasks, signals, stops, death, the restart of a call that was interrupted. A task there has left its system
 * call; its state is in the arena, whole, and its thread can be made anew from it.
 * Invariants: a context is used by the thread that made it alone; current is the thread's task from birth to death.
 * Threads: one for each task; its stack is small, so nothing in the kernel may recurse by what a guest says.
 */
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "room.h"
#include "control.h"
#include "syscall.h"

#ifdef __SANITIZE_ADDRESS__
#define STACK_SIZE (1024ul << 10)
#else
#define STACK_SIZE (128ul << 10)
#endif

/* Between the thread that makes a task and the task's; freed by the latter. */
struct start {
    struct task *task;
    void *xstate;
    size_t xstate_size;
    uint32_t word; /* 0 made, 1 has its context or an error, 2 go, 3 end */
    int result;
};

static uint32_t held;      /* by tasks_stop() */
static uint32_t park_word; /* changes whenever a task is parked or gone */

static void word_wait(uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void word_set(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void task_kick(struct task *task)
{
    task->signal_work = true;
    if (task == current)
        return;
    if (task->in_guest)
        platform->interrupt(task->host_context);
    task_wake(task);
}

/* ---- all tasks at the boundary ---- */

bool tasks_held(void)
{
    return held != 0;
}

static void told_parked(void)
{
    word_set(&park_word, park_word + 1);
}

/* A task that waits here sleeps as any other, so that its death still wakes it. */
void task_park(void)
{
    struct task *task = current;

    task->parked = true;
    told_parked();
    while (held && !task->killed)
        task_sleep_killable(WAIT_FOREVER);
    task->parked = false;
    /* Others may have come first, and have asked something of its address space. */
    task->signal_work = true;
}

void tasks_wait_change(void)
{
    uint32_t seen = park_word;

    kernel_unlock();
    word_wait(&park_word, seen);
    kernel_lock();
}

static bool all_parked(void)
{
    const struct task *task;

    TAILQ_FOREACH(task, all_tasks, link)
    if (!task->exited && !task->parked)
        return false;
    return true;
}

void tasks_stop(void)
{
    struct task *task;

    kernel_lock();
    held++;
    TAILQ_FOREACH(task, all_tasks, link)
    task_kick(task);
    while (!all_parked())
        tasks_wait_change();
    kernel_unlock();
}

void tasks_go_on(void)
{
    struct task *task;

    kernel_lock();
    if (held && --held == 0)
        TAILQ_FOREACH(task, all_tasks, link)
    task_wake(task);
    kernel_unlock();
}

static bool nobody_left(void)
{
    const struct task *task;

    TAILQ_FOREACH(task, all_tasks, link)
    if (!task->exited)
        return false;
    return true;
}

bool tasks_ended(int *ret_status)
{
    const struct process *init = init_process();

    if (!init || init->state != PROCESS_ZOMBIE || !nobody_left())
        return false;
    *ret_status = init->exit_status;
    return true;
}

int tasks_wait_end(void)
{
    int status;

    kernel_lock();
    while (!tasks_ended(&status))
        tasks_wait_change();
    kernel_unlock();
    return status;
}

void tasks_kill_all(void)
{
    struct process *process;

    kernel_lock();
    TAILQ_FOREACH(process, all_processes, link)
    process_kill(process, SIGKILL);
    kernel_unlock();
}

/* ---- the boundary ---- */

/* The result of a call that no handler interrupts: Linux's do_signal() without one. */
static void restart_call(struct task *task)
{
    struct user_regs_struct *regs = &task->regs;

    if (!task->in_call)
        return;
    task->in_call = false;
    switch ((int64_t)regs->rax) {
    case -ERESTARTSYS:
    case -ERESTARTNOINTR:
    case -ERESTARTNOHAND:
        regs->rax = regs->orig_rax;
        regs->rip -= 2;
        break;
    case -ERESTART_RESTARTBLOCK:
        regs->rax = SYS_restart_syscall;
        regs->rip -= 2;
        break;
    default:
        break;
    }
    regs->orig_rax = (uint64_t)-1;
}

static void wait_for_vfork(struct task *task)
{
    while (task->vfork_waiting && !task->killed) {
        if (held)
            task_park();
        else
            task_sleep_killable(WAIT_FOREVER);
    }
    task->vfork_waiting = false;
    task->signal_work = true; /* as after task_park() */
}

/* False: the task is dead, and its thread ends. */
static bool boundary(struct task *task)
{
    do {
        task->signal_work = false;
        if (task->mm)
            mm_boundary(task->mm);
        if (task->vfork_waiting)
            wait_for_vfork(task);
        if (held && !task->killed && !task->dying)
            task_park();
        if (!task->killed && !task->dying)
            signals_deliver();
        if (task->killed || task->dying) {
            task_finish();
            return false;
        }
    } while (task->signal_work);
    restart_call(task);
    if (task->restore_blocked) {
        task->restore_blocked = false;
        set_blocked(task, task->saved_blocked);
    }
    return true;
}

/* ---- what guest code stopped for ---- */

static void take_call(struct task *task, const struct platform_stop *stop)
{
    task->in_call = true;
    if (stop->compat)
        task->regs.rax = (uint64_t)-ENOSYS;
    else
        task->regs.rax = (uint64_t)syscall_dispatch(task);
}

static void take_fault(struct task *task, const struct platform_stop *stop)
{
    siginfo_t info = {0};
    int signo = 0, code = 0;

    task->minor_faults++;
    if (mm_fault(task->mm, stop, &task->regs, &signo, &code) == 0 && signo == 0)
        return;
    if (signo == SIGKILL)
        control_oom_kill();
    info.si_signo = signo ? signo : SIGSEGV;
    info.si_code = code;
    info.si_addr = stop->info.si_addr;
    task->fault_trap = 14;
    task->fault_error =
        code == SEGV_ACCERR ? 5 : 4; /* whether it was a write the host does not say */
    task->fault_address = (uint64_t)(uintptr_t)stop->info.si_addr;
    signal_force_info(task, &info);
}

static void take_exception(struct task *task, const struct platform_stop *stop)
{
    switch (stop->info.si_signo) {
    case SIGFPE:
        task->fault_trap = stop->info.si_code == FPE_INTDIV ? 0 : 16;
        break;
    case SIGILL:
        task->fault_trap = 6;
        break;
    case SIGTRAP:
        task->fault_trap = stop->info.si_code == TRAP_TRACE ? 1 : 3;
        break;
    case SIGBUS:
        task->fault_trap = 17;
        break;
    default:
        task->fault_trap = 13;
        break;
    }
    task->fault_error = 0;
    task->fault_address = 0;
    signal_force_info(task, &stop->info);
}

static void take(struct task *task, int result, const struct platform_stop *stop)
{
    if (result < 0) {
        klog("task %d: its guest code cannot run: %s", task->tid, strerror(-result));
        process_kill(task->process, SIGKILL);
        return;
    }
    switch (stop->event) {
    case PLATFORM_SYSCALL:
        take_call(task, stop);
        break;
    case PLATFORM_FAULT:
        take_fault(task, stop);
        break;
    case PLATFORM_SIGNAL:
        take_exception(task, stop);
        break;
    case PLATFORM_INTERRUPT:
        task->signal_work = true;
        break;
    case PLATFORM_DEAD:
        klog("process %d: what ran it is gone (killed by the host, or out of memory)",
             task->process->pid);
        process_kill(task->process, SIGKILL);
        break;
    }
}

static void run(struct task *task)
{
    struct platform_stop stop;
    int result;

    while (boundary(task)) {
        task->in_guest = true;
        task->in_guest_since = clock_coarse();
        kernel_unlock();
        memset(&stop, 0, sizeof(stop));
        result = platform->run(task->host_context, &task->regs, &stop);
        kernel_lock();
        task->in_guest = false;
        cputime_stop(task);
        take(task, result, &stop);
    }
}

/* ---- threads ---- */

int task_new_context(struct task *task)
{
    return platform->new_context(task->mm->host_as, &task->host_context);
}

void task_end_context(struct task *task)
{
    if (task->host_context)
        platform->release_context(task->host_context);
    task->host_context = NULL;
}

static int begin(struct start *start)
{
    struct task *task = start->task;
    int result = task_new_context(task);

    if (result == 0 && start->xstate)
        result = platform->set_xstate(task->host_context, start->xstate, start->xstate_size);
    if (result < 0)
        task_end_context(task);
    return result;
}

/* @seccomp sentry: prctl(PR_SET_NAME) exit rt_sigprocmask madvise munmap */
static void *thread_main(void *argument)
{
    struct start *start = argument;
    struct task *task = start->task;
    uint32_t word;

    prctl(PR_SET_NAME, "task");
    kernel_lock();
    current = task;
    cputime_begin(task);
    start->result = begin(start);
    word_set(&start->word, 1);
    kernel_unlock();
    while ((word = __atomic_load_n(&start->word, __ATOMIC_ACQUIRE)) == 1)
        word_wait(&start->word, 1);
    kernel_lock();
    if (word == 2)
        run(task);
    else
        task_end_context(task);
    current = NULL;
    if (word == 2) /* the task may be gone by now: nothing of it is touched */
        told_parked();
    else
        word_set(&start->word, 4);
    kernel_unlock();
    if (word == 2) {
        free(start->xstate);
        free(start);
    }
    return NULL;
}

/* What pthread_create needs is in confine.c. */
static int make_thread(struct start *start)
{
    pthread_attr_t attr;
    pthread_t thread;
    int r;

    if (pthread_attr_init(&attr))
        return -ENOMEM;
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    r = pthread_create(&thread, &attr, thread_main, start);
    pthread_attr_destroy(&attr);
    return r ? -EAGAIN : 0;
}

/* The lock is let go meanwhile: the new thread needs it to make its context. */
static void wait_word(struct start *start, uint32_t while_it_is)
{
    kernel_unlock();
    while (__atomic_load_n(&start->word, __ATOMIC_ACQUIRE) == while_it_is)
        word_wait(&start->word, while_it_is);
    kernel_lock();
}

static void start_free(struct start *start)
{
    free(start->xstate);
    free(start);
}

int start_thread(struct task *task, const void *xstate, size_t size, struct start **ret_start)
{
    struct start *start = calloc(1, sizeof(*start));
    int result;

    if (!start)
        return -ENOMEM;
    start->task = task;
    if (xstate) {
        start->xstate = malloc(size);
        if (!start->xstate) {
            free(start);
            return -ENOMEM;
        }
        memcpy(start->xstate, xstate, size);
        start->xstate_size = size;
    }
    result = make_thread(start);
    if (result < 0) {
        start_free(start);
        return result;
    }
    wait_word(start, 0);
    result = start->result;
    if (result < 0) {
        start_go(start, false);
        return result;
    }
    *ret_start = start;
    return 0;
}

void start_go(struct start *start, bool go)
{
    word_set(&start->word, go ? 2 : 3);
    if (go)
        return;
    wait_word(start, 3);
    start_free(start);
}

int task_start(struct task *task)
{
    struct start *start = NULL;
    int result;

    task->mm->tasks++;
    result = start_thread(task, NULL, 0, &start);
    if (result < 0)
        return result;
    start_go(start, true);
    return 0;
}
