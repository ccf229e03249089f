/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * jobs - process groups and sessions, and the numbers by which a task knows itself and others.
 * Threads: the kernel lock.
 */
#include "room.h"

bool group_exists(int32_t pgid, int32_t sid)
{
    const struct process *process;

    TAILQ_FOREACH(process, all_processes, link)
    if (process->pgid == pgid && process->sid == sid)
        return true;
    return false;
}

/* Nobody outside the group, in its session, is the parent of one in it. */
bool group_orphaned(int32_t pgid, const struct process *without)
{
    const struct process *process, *parent;

    TAILQ_FOREACH(process, all_processes, link)
    {
        parent = process->parent;
        if (process->pgid != pgid || process == without || process->state == PROCESS_ZOMBIE ||
            !parent)
            continue;
        if (parent->pgid != pgid && parent->sid == process->sid)
            return false;
    }
    return true;
}

static bool has_stopped(int32_t pgid)
{
    const struct process *process;

    TAILQ_FOREACH(process, all_processes, link)
    if (process->pgid == pgid && process->state == PROCESS_STOPPED)
        return true;
    return false;
}

void group_check_orphan(struct process *process, const struct process *parent,
                        const struct process *without)
{
    siginfo_t info = {.si_code = SI_KERNEL};

    if (!parent || parent->pgid == process->pgid || parent->sid != process->sid ||
        !group_orphaned(process->pgid, without) || !has_stopped(process->pgid))
        return;
    info.si_signo = SIGHUP;
    signal_group(process->pgid, &info);
    info.si_signo = SIGCONT;
    signal_group(process->pgid, &info);
}

/* 0: current's. */
static struct process *named(uint64_t pid)
{
    struct task *task = pid ? task_by_tid((int32_t)pid) : current;

    return task ? task->process : NULL;
}

SYSCALL(setpgid)
{
    struct process *self = current->process, *process = named(a[0]);
    int32_t pgid = (int32_t)a[1];

    if (pgid < 0)
        return -EINVAL;
    if (!process || (process != self && process->parent != self))
        return -ESRCH;
    if (a[0] && process->pid != (int32_t)a[0])
        return -EINVAL; /* a task that leads no process */
    if (process != self) {
        if (process->sid != self->sid)
            return -EPERM;
        if (process->execed)
            return -EACCES;
    }
    if (process->sid == process->pid)
        return -EPERM;
    if (!pgid)
        pgid = process->pid;
    if (pgid != process->pid && !group_exists(pgid, self->sid))
        return -EPERM;
    process->pgid = pgid;
    return 0;
}

SYSCALL(getpgid)
{
    const struct process *process = named(a[0]);

    return process ? process->pgid : -ESRCH;
}

SYSCALL(getpgrp)
{
    (void)a;
    return current->process->pgid;
}

SYSCALL(getsid)
{
    const struct process *process = named(a[0]);

    return process ? process->sid : -ESRCH;
}

SYSCALL(setsid)
{
    struct process *self = current->process, *process;

    (void)a;
    TAILQ_FOREACH(process, all_processes, link)
    if (process->pgid == self->pid)
        return -EPERM;
    self->pgid = self->sid = self->pid;
    if (tty_forget)
        tty_forget(self);
    self->tty = NULL;
    return self->pid;
}

SYSCALL(getpid)
{
    (void)a;
    return current->process->pid;
}

SYSCALL(gettid)
{
    (void)a;
    return current->tid;
}

SYSCALL(getppid)
{
    (void)a;
    return current->process->parent ? current->process->parent->pid : 0;
}
