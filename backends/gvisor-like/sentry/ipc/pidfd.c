/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * pidfd - a process as a file.
 * Invariants: a pidfd is one of process->pidfd_refs, which keep the object when the process is dead.
 * Threads: the kernel lock.
 */
#include <signal.h>
#include <string.h>

#include "state.h"

#pragma weak proc_process /* a build without proc/ does without */

#define PIDFD_NONBLOCK O_NONBLOCK

struct process *pidfd_process(const struct file *file)
{
    return file->kind == FILE_PIDFD ? file->data : NULL;
}

static bool over(const struct process *process)
{
    return process->state == PROCESS_ZOMBIE || process->state == PROCESS_DEAD;
}

static uint32_t pidfd_poll(struct file *file, struct waiter *waiter)
{
    struct process *process = file->data;

    if (waiter)
        waiter_add(waiter, &process->exit_waitq, waiter->events);
    return over(process) ? READY_IN | (process->state == PROCESS_DEAD ? POLLHUP : 0) : 0;
}

static void pidfd_release(struct file *file)
{
    process_put(file->data);
    anon_file_gone();
}

int pidfd_file(struct process *process, uint32_t flags, struct file **ret_file)
{
    struct file *file = anon_file(FILE_PIDFD, O_RDWR | (flags & O_NONBLOCK), 0600);

    if (!file)
        return -ENFILE;
    file->data = process;
    process_get(process);
    *ret_file = file;
    return 0;
}

SYSCALL(pidfd_open)
{
    struct process *process;
    struct file *file;
    int32_t pid = (int32_t)a[0];
    int r;

    if (((uint32_t)a[1] & ~(uint32_t)PIDFD_NONBLOCK) || pid <= 0)
        return -EINVAL;
    process = process_by_pid(pid);
    if (!process)
        return task_by_tid(pid) ? -EINVAL : -ESRCH; /* a thread is no process */
    if (process->state == PROCESS_DEAD)
        return -ESRCH;
    r = pidfd_file(process, (uint32_t)a[1], &file);
    return r < 0 ? r : install(file, O_CLOEXEC);
}

/* What may be said in another's name: nothing that looks as if the kernel or kill() had sent it. */
static int siginfo_in(uint64_t guest, int signo, struct process *process, siginfo_t *info)
{
    if (!guest) {
        memset(info, 0, sizeof(*info));
        info->si_signo = signo;
        info->si_code = SI_USER;
        info->si_pid = current->process->pid;
        info->si_uid = current->cred->uid;
        return 0;
    }
    if (copy_in(current->mm, info, guest, sizeof(*info)) < 0)
        return -EFAULT;
    if (info->si_signo != signo)
        return -EINVAL;
    if ((info->si_code >= 0 || info->si_code == SI_TKILL) && process != current->process)
        return -EPERM;
    return 0;
}

static int send(struct process *process, int signo, uint64_t guest_info)
{
    siginfo_t info;
    int r = siginfo_in(guest_info, signo, process, &info);

    if (r < 0)
        return r;
    if (process->state == PROCESS_DEAD)
        return -ESRCH;
    r = signal_permitted(process, signo);
    return r < 0 || !signo ? r : signal_process(process, &info);
}

/* A pidfd or the directory /proc/PID. */
static int target(const struct file *file, struct process **ret)
{
    *ret = pidfd_process(file);
    if (*ret)
        return 0;
    return proc_process ? proc_process(file, ret) : -EBADF;
}

SYSCALL(pidfd_send_signal)
{
    struct process *process;
    struct file *file;
    int signo = (int)a[1], r;

    if ((uint32_t)a[3])
        return -EINVAL;
    file = fd_get_io((int)a[0]);
    if (!file)
        return -EBADF;
    if (signo < 0 || signo > SIGNALS)
        r = -EINVAL;
    else if ((r = target(file, &process)) == 0)
        r = send(process, signo, a[2]);
    file_put(file);
    return r;
}

const struct file_ops pidfd_ops = {
    .poll = pidfd_poll,
    .release = pidfd_release,
};
