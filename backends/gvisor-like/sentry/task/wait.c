/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * wait - wait4 and waitid: what a process learns of its children.
 * A child belongs to the process, whichever of its tasks made it: __WNOTHREAD changes nothing.
 * Threads: the kernel lock.
 */
#include <fcntl.h>
#include <sys/wait.h>

#include "fs.h"
#include "room.h"

#define W_NOTHREAD 0x20000000u
#define W_ALL 0x40000000u
#define W_CLONE 0x80000000u

struct wanted {
    idtype_t type;
    int32_t id;
    struct process *process; /* P_PIDFD */
    unsigned options;
};

struct found {
    int32_t pid;
    uint32_t uid;
    int code, status; /* as siginfo has them */
    int word;         /* as wait4 has it */
    struct rusage usage;
};

static bool meant(const struct process *child, const struct wanted *wanted)
{
    bool clone_child = child->exit_signal != SIGCHLD;

    if (!(wanted->options & W_ALL) && clone_child != !!(wanted->options & W_CLONE))
        return false;
    switch (wanted->type) {
    case P_PID:
        return child->pid == wanted->id;
    case P_PGID:
        return child->pgid == wanted->id;
    case P_PIDFD:
        return child == wanted->process;
    case P_ALL:
        break;
    }
    return true;
}

static void fill(struct process *child, struct found *found, int code, int status, int word)
{
    found->pid = child->pid;
    found->uid = child->leader->cred->uid;
    found->code = code;
    found->status = status;
    found->word = word;
    rusage_out_of(child, &found->usage, USAGE_BOTH);
}

/* Something of this child that is asked for; it is taken unless WNOWAIT. */
static bool look(struct process *child, const struct wanted *wanted, struct found *found)
{
    bool keep = wanted->options & WNOWAIT;
    int word = child->exit_status;

    if (child->state == PROCESS_ZOMBIE && (wanted->options & WEXITED)) {
        if ((word & 0x7f) == 0)
            fill(child, found, CLD_EXITED, word >> 8 & 0xff, word);
        else
            fill(child, found, word & 0x80 ? CLD_DUMPED : CLD_KILLED, word & 0x7f, word);
        if (!keep)
            process_waited(child);
        return true;
    }
    if (child->state == PROCESS_STOPPED && !child->stop_reported && (wanted->options & WSTOPPED)) {
        fill(child, found, CLD_STOPPED, child->stop_signal, child->stop_signal << 8 | 0x7f);
        child->stop_reported = !keep;
        return true;
    }
    if (child->continued && (wanted->options & WCONTINUED)) {
        fill(child, found, CLD_CONTINUED, SIGCONT, 0xffff);
        child->continued = keep;
        return true;
    }
    return false;
}

/* 1 found, 0 nothing yet, -ECHILD. */
static int search(const struct wanted *wanted, struct found *found)
{
    struct process *child;
    int result = -ECHILD;

    TAILQ_FOREACH(child, &current->process->children, siblings)
    {
        if (!meant(child, wanted))
            continue;
        result = 0;
        if (look(child, wanted, found))
            return 1;
    }
    return result;
}

static int wait_for(const struct wanted *wanted, struct found *found)
{
    struct waiter waiter = {0};
    int result, slept = 0;

    waiter_add(&waiter, &current->process->child_waitq, 0);
    while ((result = search(wanted, found)) == 0 && !(wanted->options & WNOHANG) && slept == 0)
        slept = task_sleep(WAIT_FOREVER);
    waiter_remove(&waiter);
    return result ? result : slept;
}

SYSCALL(wait4)
{
    struct wanted wanted = {.type = P_ALL, .options = (unsigned)a[2] | WEXITED};
    struct found found = {0};
    int32_t pid = (int32_t)a[0];
    int result;

    if ((unsigned)a[2] & ~(WNOHANG | WUNTRACED | WCONTINUED | W_NOTHREAD | W_CLONE | W_ALL))
        return -EINVAL;
    if (pid == INT32_MIN)
        return -ESRCH;
    if (pid > 0)
        wanted.type = P_PID;
    else if (pid != -1)
        wanted.type = P_PGID;
    wanted.id = pid < -1 ? -pid : pid == 0 ? current->process->pgid : pid;
    result = wait_for(&wanted, &found);
    if (result <= 0)
        return result;
    if (a[1] && copy_out(current->mm, a[1], &found.word, sizeof(found.word)) < 0)
        return -EFAULT;
    if (a[3] && copy_out(current->mm, a[3], &found.usage, sizeof(found.usage)) < 0)
        return -EFAULT;
    return found.pid;
}

/* The members that waitid sets, and no others. */
static int info_out(uint64_t to, const struct found *found, bool any)
{
    siginfo_t info = {0};

    if (any) {
        info.si_signo = SIGCHLD;
        info.si_code = found->code;
        info.si_pid = found->pid;
        info.si_uid = found->uid;
        info.si_status = found->status;
    }
    return copy_out(current->mm, to, &info, 28); /* to the end of si_status */
}

static int pidfd_of(struct wanted *wanted, struct file **ret_file)
{
    struct file *file = fd_get(wanted->id);

    if (!file)
        return -EBADF;
    wanted->process = pidfd_process ? pidfd_process(file) : NULL;
    if (!wanted->process) {
        file_put(file);
        return -EBADF;
    }
    if (file->flags & O_NONBLOCK)
        wanted->options |= WNOHANG;
    *ret_file = file;
    return 0;
}

static int wanted_by(struct wanted *wanted, const uint64_t a[6])
{
    *wanted = (struct wanted){.id = (int32_t)a[1], .options = (unsigned)a[3]};
    if (wanted->options &
        ~(WNOHANG | WNOWAIT | WEXITED | WSTOPPED | WCONTINUED | W_NOTHREAD | W_CLONE | W_ALL))
        return -EINVAL;
    if (!(wanted->options & (WEXITED | WSTOPPED | WCONTINUED)))
        return -EINVAL;
    switch (a[0]) {
    case P_ALL:
        break;
    case P_PID:
        if (wanted->id <= 0)
            return -EINVAL;
        break;
    case P_PGID:
        if (wanted->id < 0)
            return -EINVAL;
        if (wanted->id == 0)
            wanted->id = current->process->pgid;
        break;
    case P_PIDFD:
        if (wanted->id < 0)
            return -EINVAL;
        break;
    default:
        return -EINVAL;
    }
    wanted->type = (idtype_t)a[0];
    return 0;
}

SYSCALL(waitid)
{
    struct wanted wanted;
    struct found found = {0};
    struct file *file = NULL;
    unsigned asked = (unsigned)a[3];
    int result = wanted_by(&wanted, a);

    if (result == 0 && wanted.type == P_PIDFD)
        result = pidfd_of(&wanted, &file);
    if (result == 0)
        result = wait_for(&wanted, &found);
    if (file) {
        if (result == 0 && wanted.options != asked)
            result = -EAGAIN;
        file_put(file);
    }
    if (result < 0)
        return result;
    if (result > 0 && a[4] && copy_out(current->mm, a[4], &found.usage, sizeof(found.usage)) < 0)
        return -EFAULT;
    if (a[2] && info_out(a[2], &found, result > 0) < 0)
        return -EFAULT;
    return 0;
}
