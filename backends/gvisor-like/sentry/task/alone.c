/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * alone - what execve does to a process beside loading: all tasks but one end, and that one begins anew.
 * Invariants: while process->exec_task is set no task is added to the process; its other tasks are killed, and the last to go
 * wakes it. Afterwards the caller has the leader's number, whoever it was.
 * Threads: the kernel lock; current.
 */
#include <string.h>

#include "fs.h"
#include "room.h"

static void kill_others(struct task *task)
{
    struct task *other;

    TAILQ_FOREACH(other, &task->process->tasks, process_link)
    if (other != task && !other->exited && !other->killed) {
        other->killed = true;
        task_kick(other);
    }
}

/* The old leader is dead: its number, and its place, are the caller's. */
static void become_leader(struct task *task)
{
    struct process *process = task->process;
    struct task *old = process->leader;
    struct user_counts *user;

    if (old == task)
        return;
    id_remove(old);
    id_remove(task);
    TAILQ_REMOVE(all_tasks, old, link);
    TAILQ_REMOVE(&process->tasks, old, process_link);
    task->tid = process->pid;
    task->start_time = old->start_time;
    id_add(task);
    process->leader = task;
    user = user_of(old->cred->uid);
    if (user && user->tasks) {
        user->tasks--;
        user_tidy(user);
    }
    task_free(old);
}

int task_exec_begin(void)
{
    struct task *task = current;
    struct process *process = task->process;

    if (process->group_exit || process->exec_task || task->killed)
        return -EAGAIN;
    process->exec_task = task;
    kill_others(task);
    while (process->n_tasks > 1 && !task->killed)
        task_sleep_killable(WAIT_FOREVER);
    process->exec_task = NULL;
    if (task->killed)
        return -EAGAIN;
    become_leader(task);
    return 0;
}

static int own_handlers(struct process *process)
{
    struct sighand *own;

    if (process->sighand->refs == 1)
        return 0;
    own = sighand_new(process->sighand);
    if (!own)
        return -ENOMEM;
    sighand_put(process->sighand);
    process->sighand = own;
    return 0;
}

static void reset_signals(struct task *task)
{
    struct sighand *sighand = task->process->sighand;
    unsigned i;

    for (i = 0; i < SIGNALS; i++)
        sighand->actions[i] =
            (struct guest_sigaction){.handler = sighand->actions[i].handler == 1 ? 1 : 0};
    task->altstack = task->altstack_size = 0;
    task->altstack_flags = 0;
    task->process->exit_signal = SIGCHLD;
}

static void change_context(struct task *task, struct mm *old_mm)
{
    task_end_context(task);
    old_mm->tasks--;
    task->mm->tasks++;
    mm_put(old_mm);
    if (task_new_context(task) < 0) {
        klog("process %d: no thread of the host for its new program", task->process->pid);
        process_kill(task->process, SIGKILL);
    }
}

/* Descriptors are the process's own from here. */
static int own_files(struct task *task)
{
    struct fdtable *own;
    int result = fdtable_fork(task->files, &own);

    if (result < 0)
        return result;
    fdtable_put(task->files);
    task->files = own;
    return 0;
}

void task_exec_end(struct mm *old_mm, const char *name)
{
    struct task *task = current;
    struct process *process = task->process;
    struct mm *new_mm = task->mm;
    const char *base = strrchr(name, '/');

    task->mm = old_mm;
    mm_left(task);
    task->mm = new_mm;
    change_context(task, old_mm);
    if (own_handlers(process) < 0 || own_files(task) < 0)
        process_kill(process, SIGKILL);
    reset_signals(task);
    posix_timers_end(process);
    fdtable_close_on_exec(task->files);
    memset(task->comm, 0, sizeof(task->comm));
    strncpy(task->comm, base ? base + 1 : name, sizeof(task->comm) - 1);
    process->execed = true;
    task->in_call = false;
    task->restart_kind = RESTART_NONE;
    task->regs.orig_rax = (uint64_t)-1;
}
