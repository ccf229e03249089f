/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * sigcalls - what a task says of its own signals: handlers, masks, the alternate stack, waiting for one.
 * Threads: the kernel lock.
 */
#include "room.h"

#define KNOWN_FLAGS                                                                                \
    0xdc000c07ull /* SA_* of Linux: what others are set is cleared, so that a program can ask */
#define STACK_ONSTACK 1u
#define STACK_DISABLE 2u
#define STACK_AUTODISARM 0x80000000u
#define STACK_LEAST 2048u

static int mask_in(uint64_t from, uint64_t size, sigbits *ret_mask)
{
    if (size != sizeof(*ret_mask))
        return -EINVAL;
    return copy_in(current->mm, ret_mask, from, sizeof(*ret_mask));
}

/* What pends and is now ignored is dropped, blocked or not. */
static void drop_ignored(struct process *process, int signo)
{
    struct task *task;

    if (!signal_ignored(process, signo))
        return;
    sigpending_flush(&process->pending, SIGBIT(signo));
    TAILQ_FOREACH(task, &process->tasks, process_link)
    sigpending_flush(&task->pending, SIGBIT(signo));
}

SYSCALL(rt_sigaction)
{
    struct process *process = current->process;
    struct guest_sigaction new, old;
    int signo = (int)a[0];

    if (a[3] != sizeof(sigbits))
        return -EINVAL;
    if (a[1] && copy_in(current->mm, &new, a[1], sizeof(new)) < 0)
        return -EFAULT;
    if (signo < 1 || signo > SIGNALS || (a[1] && (SIGBIT(signo) & SIGBITS_UNBLOCKABLE)))
        return -EINVAL;
    old = process->sighand->actions[signo - 1];
    if (a[1]) {
        new.flags &= KNOWN_FLAGS;
        new.mask &= ~SIGBITS_UNBLOCKABLE;
        process->sighand->actions[signo - 1] = new;
        drop_ignored(process, signo);
    }
    return a[2] ? copy_out(current->mm, a[2], &old, sizeof(old)) : 0;
}

SYSCALL(rt_sigprocmask)
{
    sigbits old = current->blocked, mask;

    if (a[3] != sizeof(sigbits))
        return -EINVAL;
    if (a[1]) {
        if (copy_in(current->mm, &mask, a[1], sizeof(mask)) < 0)
            return -EFAULT;
        switch ((int)a[0]) {
        case SIG_BLOCK:
            mask |= old;
            break;
        case SIG_UNBLOCK:
            mask = old & ~mask;
            break;
        case SIG_SETMASK:
            break;
        default:
            return -EINVAL;
        }
        set_blocked(current, mask);
    }
    return a[2] ? copy_out(current->mm, a[2], &old, sizeof(old)) : 0;
}

SYSCALL(rt_sigpending)
{
    sigbits pending = (current->pending.bits | current->process->pending.bits) & current->blocked;

    if (a[1] > sizeof(pending))
        return -EINVAL;
    return copy_out(current->mm, a[0], &pending, a[1]);
}

static int64_t suspend(void)
{
    int result = 0;

    while (result == 0)
        result = task_sleep(WAIT_FOREVER);
    return -ERESTARTNOHAND;
}

SYSCALL(pause)
{
    (void)a;
    return suspend();
}

int signal_mask_for_call(uint64_t guest_mask, uint64_t size)
{
    sigbits mask;
    int result;

    if (!guest_mask)
        return 0;
    result = mask_in(guest_mask, size, &mask);
    if (result < 0)
        return result;
    current->saved_blocked = current->blocked;
    current->restore_blocked = true;
    set_blocked(current, mask);
    return 0;
}

SYSCALL(rt_sigsuspend)
{
    sigbits mask;
    int result = mask_in(a[0], a[1], &mask);

    if (result < 0)
        return result;
    current->saved_blocked = current->blocked;
    current->restore_blocked = true;
    set_blocked(current, mask);
    return suspend();
}

/* While it waits the signals are as if unblocked, so that they wake it; none is delivered before it has looked. */
SYSCALL(rt_sigtimedwait)
{
    struct task *task = current;
    uint64_t deadline = WAIT_FOREVER, ns;
    sigbits mask, blocked = task->blocked;
    siginfo_t info;
    int result = mask_in(a[0], a[3], &mask), signo;

    if (result == 0 && a[2]) {
        result = timespec_in(a[2], &ns);
        if (result == 0)
            deadline = add_saturating(clock_monotonic(), ns);
    }
    if (result < 0)
        return result;
    mask &= ~SIGBITS_UNBLOCKABLE;
    signo = signal_next(task, mask, &info);
    if (!signo && !(a[2] && ns == 0)) {
        task->blocked &= ~mask;
        task->sigwait = mask;
        result = task_sleep(deadline);
        while (result == 0)
            result = task_sleep(deadline);
        task->sigwait = 0;
        set_blocked(task, blocked);
        signo = signal_next(task, mask, &info);
    }
    if (!signo)
        return result == -ERESTARTSYS ? -EINTR : -EAGAIN;
    if (a[1] && copy_out(task->mm, a[1], &info, sizeof(info)) < 0)
        return -EFAULT;
    return signo;
}

/* ---- the alternate stack ---- */

struct guest_stack {
    uint64_t pointer;
    uint32_t flags, padding;
    uint64_t size;
};

static bool on_it(const struct task *task)
{
    uint64_t sp = task->regs.rsp;

    return !(task->altstack_flags & STACK_AUTODISARM) && task->altstack_size &&
           sp > task->altstack && sp - task->altstack <= task->altstack_size;
}

static int set_stack(struct task *task, const struct guest_stack *stack)
{
    uint32_t mode = stack->flags & ~STACK_AUTODISARM;

    if (on_it(task))
        return -EPERM;
    if (mode != STACK_DISABLE && mode != STACK_ONSTACK && mode != 0)
        return -EINVAL;
    if (mode == STACK_DISABLE) {
        task->altstack = task->altstack_size = 0;
    } else {
        if (stack->size < STACK_LEAST)
            return -ENOMEM;
        task->altstack = stack->pointer;
        task->altstack_size = stack->size;
    }
    task->altstack_flags = stack->flags;
    return 0;
}

SYSCALL(sigaltstack)
{
    struct task *task = current;
    struct guest_stack new, old = {.pointer = task->altstack, .size = task->altstack_size};
    int result;

    old.flags = task->altstack_flags & STACK_AUTODISARM;
    if (!task->altstack_size)
        old.flags |= STACK_DISABLE;
    else if (on_it(task))
        old.flags |= STACK_ONSTACK;
    if (a[0]) {
        if (copy_in(task->mm, &new, a[0], sizeof(new)) < 0)
            return -EFAULT;
        result = set_stack(task, &new);
        if (result < 0)
            return result;
    }
    return a[1] ? copy_out(task->mm, a[1], &old, sizeof(old)) : 0;
}
