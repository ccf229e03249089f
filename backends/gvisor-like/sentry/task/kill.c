/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * kill - signals that a task sends to others, and whether it may.
 * Threads: the kernel lock.
 */
#include "room.h"

#define CAP_KILL 5

static bool may_kill(const struct cred *target)
{
    const struct cred *self = current->cred;

    return self->euid == target->suid || self->euid == target->uid || self->uid == target->suid ||
           self->uid == target->uid || capable(CAP_KILL);
}

int signal_permitted(const struct process *process, int signo)
{
    const struct process *self = current->process;

    if (process == self)
        return 0;
    if (process->leader && may_kill(process->leader->cred))
        return 0;
    return signo == SIGCONT && process->sid == self->sid ? 0 : -EPERM;
}

/* Signal 0 only asks. */
static int send_process(struct process *process, const siginfo_t *info)
{
    int result = signal_permitted(process, info->si_signo);

    if (result < 0 || info->si_signo == 0)
        return result;
    return signal_process(process, info);
}

/* To many: it went well when it went to one, and EPERM is told only when nobody could be reached. */
static int send_many(int32_t pgid, const siginfo_t *info)
{
    struct process *process, *next, *self = current->process;
    int result, best = -ESRCH;

    for (process = TAILQ_FIRST(all_processes); process; process = next) {
        next = TAILQ_NEXT(process, link);
        if (pgid ? process->pgid != pgid : process == self || process->pid == INIT_PID)
            continue;
        result = send_process(process, info);
        if (result == 0 || best == -ESRCH)
            best = result;
    }
    return best;
}

SYSCALL(kill)
{
    int32_t pid = (int32_t)a[0];
    int signo = (int)a[1];
    struct process *process;
    siginfo_t info;

    if (signo < 0 || signo > SIGNALS)
        return -EINVAL;
    signal_fill(&info, signo, SI_USER);
    if (pid > 0) {
        struct task *task = task_by_tid(pid);

        process = task ? task->process : NULL;
        return process ? send_process(process, &info) : -ESRCH;
    }
    if (pid == INT32_MIN)
        return -ESRCH;
    return send_many(pid == -1 ? 0 : pid == 0 ? current->process->pgid : -pid, &info);
}

static int send_task(struct task *task, const siginfo_t *info)
{
    int result = signal_permitted(task->process, info->si_signo);

    if (result < 0 || info->si_signo == 0)
        return result;
    return task->exited ? 0 : signal_task(task, info);
}

static int64_t to_task(int32_t tgid, int32_t tid, int signo)
{
    struct task *task;
    siginfo_t info;

    if (tid <= 0 || signo < 0 || signo > SIGNALS)
        return -EINVAL;
    task = task_by_tid(tid);
    if (!task || (tgid && task->process->pid != tgid))
        return -ESRCH;
    signal_fill(&info, signo, SI_TKILL);
    return send_task(task, &info);
}

SYSCALL(tkill)
{
    return to_task(0, (int32_t)a[0], (int)a[1]);
}

SYSCALL(tgkill)
{
    return (int32_t)a[0] <= 0 ? -EINVAL : to_task((int32_t)a[0], (int32_t)a[1], (int)a[2]);
}

/* A siginfo of the guest's: it may not pretend to be kill or the kernel to others. */
static int info_in(uint64_t from, int signo, bool to_self, siginfo_t *ret_info)
{
    if (copy_in(current->mm, ret_info, from, sizeof(*ret_info)) < 0)
        return -EFAULT;
    ret_info->si_signo = signo;
    if ((ret_info->si_code >= 0 || ret_info->si_code == SI_TKILL) && !to_self)
        return -EPERM;
    return 0;
}

SYSCALL(rt_sigqueueinfo)
{
    struct process *process;
    struct task *task = task_by_tid((int32_t)a[0]);
    siginfo_t info;
    int result = info_in(a[2], (int)a[1], current->process->pid == (int32_t)a[0], &info);

    if (result < 0)
        return result;
    if ((int)a[1] < 0 || (int)a[1] > SIGNALS)
        return -EINVAL;
    process = task ? task->process : NULL;
    return process ? send_process(process, &info) : -ESRCH;
}

SYSCALL(rt_tgsigqueueinfo)
{
    struct task *task;
    siginfo_t info;
    int result;

    if ((int32_t)a[0] <= 0 || (int32_t)a[1] <= 0)
        return -EINVAL;
    result = info_in(a[3], (int)a[2], current->tid == (int32_t)a[1], &info);
    if (result < 0)
        return result;
    if ((int)a[2] < 0 || (int)a[2] > SIGNALS)
        return -EINVAL;
    task = task_by_tid((int32_t)a[1]);
    if (!task || task->process->pid != (int32_t)a[0])
        return -ESRCH;
    return send_task(task, &info);
}
