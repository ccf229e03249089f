/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * deliver - what pending signals do to a task at the boundary: handlers, stops, death.
 * Invariants: a call that was interrupted is decided here when a handler runs (restart or EINTR), in run.c when none does.
 * Threads: the kernel lock; current.
 */
#include "room.h"

#define CORE                                                                                       \
    (SIGBIT(SIGQUIT) | SIGBIT(SIGILL) | SIGBIT(SIGTRAP) | SIGBIT(SIGABRT) | SIGBIT(SIGFPE) |       \
     SIGBIT(SIGSEGV) | SIGBIT(SIGBUS) | SIGBIT(SIGSYS) | SIGBIT(SIGXCPU) | SIGBIT(SIGXFSZ))
#define CORE_BIT 0x80
#define NODEFER 0x40000000u
#define RESETHAND 0x80000000u
#define RESTART 0x10000000u

/* A call that gave one of the four restart errors meets a handler. */
static void settle_call(struct task *task, const struct guest_sigaction *action)
{
    struct user_regs_struct *regs = &task->regs;
    bool again = false;

    if (!task->in_call)
        return;
    task->in_call = false;
    switch ((int64_t)regs->rax) {
    case -ERESTARTNOINTR:
        again = true;
        break;
    case -ERESTARTSYS:
        again = action->flags & RESTART;
        break;
    case -ERESTARTNOHAND:
    case -ERESTART_RESTARTBLOCK:
        break;
    default:
        return;
    }
    if (again) {
        regs->rax = regs->orig_rax;
        regs->rip -= 2;
    } else {
        regs->rax = (uint64_t)-EINTR;
    }
}

static void handle(struct task *task, struct guest_sigaction *shared, const siginfo_t *info)
{
    struct guest_sigaction action = *shared;
    sigbits saved = task->restore_blocked ? task->saved_blocked : task->blocked, mask;

    if (action.flags & RESETHAND)
        shared->handler = 0;
    settle_call(task, &action);
    if (sigframe_push(task, &action, info, saved) < 0) {
        /* A handler for it would meet the same: then there is none. */
        if (info->si_signo == SIGSEGV)
            task->process->sighand->actions[SIGSEGV - 1].handler = 0;
        task->restore_blocked = false;
        task->fault_trap = task->fault_error = task->fault_address = 0;
        signal_force(task, SIGSEGV, SI_KERNEL, 0);
        return;
    }
    task->restore_blocked = false;
    task->regs.orig_rax = (uint64_t)-1;
    mask = task->blocked | action.mask;
    if (!(action.flags & NODEFER))
        mask |= SIGBIT(info->si_signo);
    set_blocked(task, mask);
}

/* ---- stopping ---- */

void stop_settle(struct process *process)
{
    if (!process->group_stop || process->state != PROCESS_LIVE || !process->n_tasks ||
        process->n_stopped < process->n_tasks)
        return;
    process->state = PROCESS_STOPPED;
    process->stop_reported = 0;
    process->continued = false;
    child_changed(process, CLD_STOPPED, process->stop_signal);
}

static void stop_here(struct task *task)
{
    struct process *process = task->process;

    task->stopped = true;
    process->n_stopped++;
    stop_settle(process);
    while (task->stopped && !task->killed) {
        if (tasks_held())
            task_park();
        else
            task_sleep_killable(WAIT_FOREVER);
    }
    if (task->stopped && process->n_stopped)
        process->n_stopped--;
    task->stopped = false;
}

static void stop(struct process *process, int signo)
{
    struct task *task;

    process->stop_signal = signo;
    process->group_stop = 1;
    TAILQ_FOREACH(task, &process->tasks, process_link)
    if (!task->exited)
        task_kick(task);
}

/* ---- death ---- */

static int status_of_death(const struct process *process, int signo)
{
    bool core = (CORE & SIGBIT(signo)) && process->limits[RLIMIT_CORE].rlim_cur != 0 &&
                process->leader->mm && process->leader->mm->dumpable;

    return signo | (core ? CORE_BIT : 0);
}

static void by_default(struct task *task, int signo)
{
    struct process *process = task->process;

    if (signal_default_ignored(signo) || (process->pid == INIT_PID && !process->forced))
        return;
    if (!signal_default_stop(signo)) {
        process_kill(process, status_of_death(process, signo));
        return;
    }
    if (signo != SIGSTOP && group_orphaned(process->pgid, NULL))
        return;
    stop(process, signo);
}

void signals_deliver(void)
{
    struct task *task = current;
    struct process *process = task->process;
    struct guest_sigaction *action;
    siginfo_t info;
    int signo;

    while (!task->killed && !task->dying) {
        if (process->group_stop) {
            stop_here(task);
            continue;
        }
        signo = signal_next(task, ~task->blocked, &info);
        if (!signo)
            break;
        action = &process->sighand->actions[signo - 1];
        if (action->handler > 1)
            handle(task, action, &info);
        else if (action->handler == 0)
            by_default(task, signo);
    }
}
