/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * exit - how tasks and processes end.
 *
 * A task that dies leaves its mm, files and context at the boundary; the last one of a process makes it a zombie, or nothing
 * when nobody wants to know. The leader stays an object, with its number, as long as the process does.
 * Invariants: n_tasks counts tasks that have not exited; a zombie has none, and no children.
 * Threads: the kernel lock; task_finish() for current.
 */
#include "fs.h"
#include "room.h"

#define NOCLDSTOP 1u
#define NOCLDWAIT 2u

void process_kill(struct process *process, int status)
{
    struct task *task;

    if (process->state == PROCESS_ZOMBIE || process->state == PROCESS_DEAD)
        return;
    if (!process->group_exit) {
        process->group_exit = true;
        process->exit_status = status;
    }
    TAILQ_FOREACH(task, &process->tasks, process_link)
    if (!task->exited) {
        task->killed = true;
        task_kick(task);
    }
}

static void release_vfork(struct task *task)
{
    struct task *parent = task->vfork_parent, *other;

    if (parent) {
        parent->vfork_waiting = false;
        task_wake(parent);
    }
    task->vfork_parent = NULL;
    TAILQ_FOREACH(other, all_tasks, link) /* one that it waited for itself, and was killed */
    if (other->vfork_parent == task)
        other->vfork_parent = NULL;
}

void mm_left(struct task *task)
{
    static const uint32_t zero;

    cputime_left(task);
    usage_peak(&task->process->usage, task->mm);
    futex_robust_exit(task);
    if (task->clear_child_tid && task->mm->tasks > 1 && !task->process->forced &&
        copy_out(task->mm, task->clear_child_tid, &zero, sizeof(zero)) == 0)
        futex_wake_at(task->mm, task->clear_child_tid, 1);
    task->clear_child_tid = 0;
    release_vfork(task);
}

static void leave_mm(struct task *task)
{
    struct mm *mm = task->mm;

    if (!mm)
        return;
    mm_left(task);
    task_end_context(task);
    task->mm = NULL;
    mm->tasks--;
    mm_put(mm);
}

static void leave_files(struct task *task)
{
    struct fdtable *files = task->files;
    struct fsctx *fs = task->fs;

    task->files = NULL;
    task->fs = NULL;
    if (files)
        fdtable_put(files);
    if (fs)
        fsctx_put(fs);
}

/* ---- what the parent learns ---- */

static void notice(struct process *child, siginfo_t *info, int signo, int code, int status)
{
    uint64_t user, system;

    process_cpu(child, &user, &system);
    *info = (siginfo_t){.si_signo = signo, .si_code = code};
    info->si_pid = child->pid;
    info->si_uid = child->leader->cred->uid;
    info->si_status = status;
    info->si_utime = (clock_t)(user / (NS_PER_SECOND / 100));
    info->si_stime = (clock_t)(system / (NS_PER_SECOND / 100));
}

void child_changed(struct process *child, int code, int status)
{
    struct process *parent = child->parent;
    const struct guest_sigaction *action;
    siginfo_t info;

    if (!parent)
        return;
    action = &parent->sighand->actions[SIGCHLD - 1];
    if (action->handler != 1 && !(action->flags & NOCLDSTOP)) {
        notice(child, &info, SIGCHLD, code, status);
        signal_process(parent, &info);
    }
    waitq_wake(&parent->child_waitq, 0);
}

/* True: nobody will wait for it. */
static bool tell_of_death(struct process *process)
{
    struct process *parent = process->parent;
    const struct guest_sigaction *action;
    int signo = process->exit_signal, status = process->exit_status;
    bool ignored = false;
    siginfo_t info;

    if (!parent)
        return false;
    action = &parent->sighand->actions[SIGCHLD - 1];
    if (signo == SIGCHLD)
        ignored = action->handler == 1 || (action->flags & NOCLDWAIT);
    if (signo >= 1 && signo <= SIGNALS && !(signo == SIGCHLD && action->handler == 1)) {
        if ((status & 0x7f) == 0)
            notice(process, &info, signo, CLD_EXITED, status >> 8 & 0xff);
        else
            notice(process, &info, signo, status & 0x80 ? CLD_DUMPED : CLD_KILLED, status & 0x7f);
        signal_process(parent, &info);
    }
    waitq_wake(&parent->child_waitq, 0);
    return ignored;
}

static void add_usage(struct process *parent, const struct process *child)
{
    struct rusage *sum = &parent->children_usage;
    const struct rusage *own = &child->usage, *below = &child->children_usage;
    uint64_t user, system;

    process_cpu(child, &user, &system);
    parent->children_user_ns += user + child->children_user_ns;
    parent->children_system_ns += system + child->children_system_ns;
    sum->ru_minflt += own->ru_minflt + below->ru_minflt;
    sum->ru_majflt += own->ru_majflt + below->ru_majflt;
    sum->ru_nvcsw += own->ru_nvcsw + below->ru_nvcsw;
    sum->ru_nivcsw += own->ru_nivcsw + below->ru_nivcsw;
    if (sum->ru_maxrss < own->ru_maxrss)
        sum->ru_maxrss = own->ru_maxrss;
    if (sum->ru_maxrss < below->ru_maxrss)
        sum->ru_maxrss = below->ru_maxrss;
}

/* ---- tasks that go ---- */

static void forget_task(struct task *task)
{
    struct user_counts *user = user_of(task->cred->uid);

    if (user && user->tasks) {
        user->tasks--;
        user_tidy(user);
    }
    id_remove(task);
    TAILQ_REMOVE(all_tasks, task, link);
    TAILQ_REMOVE(&task->process->tasks, task, process_link);
    task_free(task);
}

void process_reap(struct process *process)
{
    struct process *parent = process->parent;
    struct waiter *waiter;

    process->state = PROCESS_DEAD;
    reaped_count(process);
    /* An epoll of it that others have, too, still waits here for a signalfd: nothing will come. */
    while ((waiter = TAILQ_FIRST(&process->signal_waitq.waiters)))
        waiter_remove(waiter);
    if (tty_forget)
        tty_forget(process);
    if (parent)
        TAILQ_REMOVE(&parent->children, process, siblings);
    process->parent = NULL;
    waitq_wake(&process->exit_waitq, POLLIN | POLLHUP);
    forget_task(process->leader);
    process->leader = NULL;
    TAILQ_REMOVE(all_processes, process, link);
    sighand_put(process->sighand);
    process->sighand = NULL;
    process_put(process);
}

void process_waited(struct process *process)
{
    add_usage(process->parent, process);
    process_reap(process);
}

/* ---- children without a parent ---- */

static struct process *new_parent(struct process *process)
{
    struct process *init = init_process(), *above;

    for (above = process->parent; above && above != init; above = above->parent)
        if (above->reaper && !above->group_exit && above->n_tasks)
            return above;
    return init == process ? NULL : init;
}

static void parent_died(struct process *child)
{
    const struct task *task;
    siginfo_t info;

    TAILQ_FOREACH(task, &child->tasks, process_link)
    if (task->parent_death_signal && !task->exited) {
        signal_fill(&info, task->parent_death_signal, SI_USER);
        signal_process(child, &info);
    }
}

static void hand_over_children(struct process *process)
{
    struct process *heir = new_parent(process), *child;

    while ((child = TAILQ_FIRST(&process->children))) {
        parent_died(child);
        TAILQ_REMOVE(&process->children, child, siblings);
        child->parent = heir;
        child->exit_signal = SIGCHLD;
        if (heir) {
            TAILQ_INSERT_TAIL(&heir->children, child, siblings);
            group_check_orphan(child, process, NULL);
        }
        if (child->state == PROCESS_ZOMBIE && (!heir || tell_of_death(child)))
            process_reap(child);
    }
}

/* The end of the first process is the end of all. */
static void end_of_all(struct process *init)
{
    struct process *process;
    bool others;

    do {
        others = false;
        TAILQ_FOREACH(process, all_processes, link)
        if (process != init && process->n_tasks) {
            process_kill(process, SIGKILL);
            others = true;
        }
        if (others)
            tasks_wait_change();
    } while (others);
}

static void process_exit(struct process *process)
{
    struct process *init = init_process();

    timer_cancel(&process->itimer_real);
    timer_cancel(&process->cpu_timer);
    posix_timers_end(process);
    if (!process->group_exit)
        process->exit_status = process->leader->exit_code;
    if (sysv_process_exit)
        sysv_process_exit(process);
    if (process->sid == process->pid && tty_process_exit)
        tty_process_exit(process);
    if (process == init)
        end_of_all(process);
    group_check_orphan(process, process->parent, process);
    hand_over_children(process);
    process->state = PROCESS_ZOMBIE;
    process->group_exit = true;
    sigpending_flush(&process->pending, ~0ull);
    waitq_wake(&process->exit_waitq, POLLIN);
}

static void add_to_process(struct process *process, struct task *task)
{
    cputime_end(task);
    process->dead_user_ns += task->cpu_user_ns;
    process->dead_system_ns += task->cpu_system_ns;
    process->usage.ru_minflt += (long)task->minor_faults;
    process->usage.ru_nvcsw += (long)task->switches;
    task->cpu_user_ns = task->cpu_system_ns = 0;
}

void task_finish(void)
{
    struct task *task = current;
    struct process *process = task->process;
    bool last = process->n_tasks == 1, reap;

    task->dying = true;
    if (last && process->group_exit)
        task->exit_code = process->exit_status;
    leave_mm(task);
    leave_files(task);
    add_to_process(process, task);
    task->exited = true;
    signals_leave(task);
    process->n_tasks--;
    if (last)
        process_exit(process);
    else
        stop_settle(process); /* only this task kept it from being whole */
    if (process->exec_task)
        task_wake(process->exec_task);
    reap = last && process->pid != INIT_PID && (!process->parent || tell_of_death(process));
    if (task != process->leader)
        forget_task(task);
    if (reap)
        process_reap(process);
}

SYSCALL(exit)
{
    current->exit_code = (int)(a[0] & 0xff) << 8;
    current->dying = true;
    return 0;
}

SYSCALL(exit_group)
{
    process_kill(current->process, (int)(a[0] & 0xff) << 8);
    return 0;
}
