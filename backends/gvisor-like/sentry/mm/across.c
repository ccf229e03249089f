/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * across - memory of others: process_vm_readv and writev, barriers for other threads.
 * Threads: the kernel lock; a barrier waits for the host without it.
 */
#include <linux/capability.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../task.h"
#include "space.h"

/* As ptrace's rule: the same user in every respect and dumpable, or the capability. */
static bool may_access(const struct task *task)
{
    const struct cred *mine = current->cred, *its = task->cred;

    if (task->process == current->process || capable(CAP_SYS_PTRACE))
        return true;
    return mine->uid == its->uid && mine->uid == its->euid && mine->uid == its->suid &&
           mine->gid == its->gid && mine->gid == its->egid && mine->gid == its->sgid && task->mm &&
           task->mm->dumpable == 1 && !(its->cap_permitted & ~mine->cap_permitted);
}

static int64_t transfer(struct uio *from, struct uio *to)
{
    char buffer[PAGE_SIZE];
    int64_t done = 0;

    while (from->left && to->left) {
        size_t n = from->left < sizeof(buffer) ? from->left : sizeof(buffer);
        int64_t got, put;

        n = n < to->left ? n : to->left;
        got = uio_from(from, buffer, n);
        if (got <= 0)
            return done ? done : got;
        put = uio_to(to, buffer, (size_t)got);
        if (put < 0)
            return done ? done : put;
        done += put;
        if (put < got || (size_t)got < n)
            break;
    }
    return done;
}

static int64_t process_vm(const uint64_t a[6], bool write)
{
    struct uio local, remote;
    struct task *task;
    int64_t result;

    if (a[5] != 0)
        return -EINVAL;
    result = uio_guest(&local, current->mm, a[1], a[2]);
    if (result)
        return result;
    result = uio_guest(&remote, current->mm, a[3], a[4]);
    if (!result && local.left && remote.left) {
        task = task_by_tid((int32_t)a[0]);
        if (!task || !task->mm)
            result = -ESRCH;
        else if (!may_access(task))
            result = -EPERM;
        else
            remote.mm = task->mm;
        if (!result)
            result = write ? transfer(&local, &remote) : transfer(&remote, &local);
    }
    uio_free(&local);
    uio_free(&remote);
    return result;
}

SYSCALL(process_vm_readv)
{
    return process_vm(a, false);
}

SYSCALL(process_vm_writev)
{
    return process_vm(a, true);
}

/* Every thread of the host passes a barrier: slow, and right wherever the guest's threads run.
   @seccomp sentry: membarrier(0=1) */
static int64_t barrier(void)
{
    int result;

    kernel_unlock();
    result = (int)syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
    kernel_lock();
    return result ? -ENOSYS : 0;
}

SYSCALL(membarrier)
{
    struct space *space = space_of(current->mm);

    if (a[1] != 0)
        return -EINVAL;
    switch ((int)a[0]) {
    case MEMBARRIER_CMD_QUERY:
        return MEMBARRIER_CMD_GLOBAL | MEMBARRIER_CMD_PRIVATE_EXPEDITED |
               MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
    case MEMBARRIER_CMD_GLOBAL:
        return barrier();
    case MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED:
        space->barrier = true;
        return 0;
    case MEMBARRIER_CMD_PRIVATE_EXPEDITED:
        if (!space->barrier)
            return -EPERM;
        return current->mm->tasks > 1 ? barrier() : 0;
    default:
        return -EINVAL;
    }
}
