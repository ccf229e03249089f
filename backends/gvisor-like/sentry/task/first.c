/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * first - the first process, whose end is the cell's; what all others have of it.
 * Threads: the kernel lock; the main thread, before any task runs.
 */
#include <string.h>

#include "room.h"

static void first_limits(struct rlimit *limits_)
{
    unsigned i;

    for (i = 0; i < RLIM_NLIMITS; i++)
        limits_[i] = (struct rlimit){.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    limits_[RLIMIT_STACK].rlim_cur = 8ul << 20;
    limits_[RLIMIT_CORE].rlim_cur = 0;
    limits_[RLIMIT_NOFILE] = (struct rlimit){.rlim_cur = 1024, .rlim_max = 1048576};
    limits_[RLIMIT_MEMLOCK] = (struct rlimit){.rlim_cur = 8ul << 20, .rlim_max = 8ul << 20};
    limits_[RLIMIT_SIGPENDING] = (struct rlimit){.rlim_cur = 8192, .rlim_max = 8192};
    limits_[RLIMIT_MSGQUEUE] = (struct rlimit){.rlim_cur = 819200, .rlim_max = 819200};
    limits_[RLIMIT_NICE] = limits_[RLIMIT_RTPRIO] = (struct rlimit){0};
}

int task_first(const char *hostname, struct task **ret_task)
{
    struct task *task = task_new();
    struct process *process = process_new();

    if (!task || !process)
        return -ENOMEM;
    task->cred = cred_first();
    process->sighand = sighand_new(NULL);
    if (!task->cred || !process->sighand)
        return -ENOMEM;
    first_limits(process->limits);
    sched_first(task);
    hostname_set(hostname, strlen(hostname));
    task->process = process;
    task->tid = INIT_PID;
    process->pid = process->pgid = process->sid = task->tid;
    process->leader = task;
    process->exit_signal = SIGCHLD;
    link_process(process, NULL);
    link_task(task);
    *ret_task = task;
    return 0;
}
