/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * clone - new tasks: clone, clone3, fork, vfork. The first one of all is first.c's.
 *
 * The new task is made whole, with its thread and its context, before anybody can see it; then it is put on the lists, or
 * taken apart. What can fail (memory, ids, limits, the host) fails before that.
 * Threads: the kernel lock; current is the parent. It is let go while the new thread makes its context.
 */
#include <fcntl.h>
#include <linux/sched.h>
#include <stdlib.h>
#include <string.h>

#include "fs.h"
#include "room.h"

#define CLONE_SIGNAL_MASK 0xffu
#define NAMESPACES                                                                                 \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET | CLONE_NEWTIME)
#define ARGS_SIZE_0 64u /* struct clone_args as it was first */

struct clone_request {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, tls;
    int32_t tid; /* 0: any */
};

static int check(const struct clone_request *request)
{
    uint64_t flags = request->flags;

    if ((flags & CLONE_THREAD) && !(flags & CLONE_SIGHAND))
        return -EINVAL;
    if ((flags & CLONE_SIGHAND) && !(flags & CLONE_VM))
        return -EINVAL;
    if ((flags & CLONE_SIGHAND) && (flags & CLONE_CLEAR_SIGHAND))
        return -EINVAL;
    if ((flags & CLONE_FS) && (flags & (CLONE_NEWNS | CLONE_NEWUSER)))
        return -EINVAL;
    if ((flags & CLONE_PARENT) && current->process->pid == INIT_PID)
        return -EINVAL;
    if ((flags & CLONE_PIDFD) && (flags & CLONE_DETACHED))
        return -EINVAL;
    if (flags & CLONE_INTO_CGROUP)
        return -EOPNOTSUPP;
    return flags & NAMESPACES ? -EPERM : 0;
}

static int limits(const struct task *parent)
{
    const struct cred *cred = parent->cred;
    struct user_counts *user = user_of(cred->uid);

    if (!user)
        return -ENOMEM;
    if (user->tasks >= parent->process->limits[RLIMIT_NPROC].rlim_cur && cred->uid != 0 &&
        !capable(21) && !capable(24)) /* SYS_ADMIN, SYS_RESOURCE */
        return -EAGAIN;
    return tasks_room() ? 0 : -EAGAIN;
}

/* ---- what is shared, what is copied ---- */

static int copy_mm(struct task *child, const struct task *parent, uint64_t flags)
{
    int result = 0;

    if (flags & CLONE_VM) {
        mm_get(parent->mm);
        child->mm = parent->mm;
    } else {
        result = mm_fork(parent->mm, &child->mm);
    }
    if (result == 0)
        child->mm->tasks++;
    return result;
}

static int copy_files(struct task *child, const struct task *parent, uint64_t flags)
{
    int result = 0;

    if (flags & CLONE_FILES) {
        fdtable_get(parent->files);
        child->files = parent->files;
    } else {
        result = fdtable_fork(parent->files, &child->files);
    }
    if (result < 0)
        return result;
    if (flags & CLONE_FS) {
        fsctx_get(parent->fs);
        child->fs = parent->fs;
        return 0;
    }
    return fsctx_fork(parent->fs, &child->fs);
}

static void copy_task(struct task *child, const struct task *parent,
                      const struct clone_request *request)
{
    uint64_t flags = request->flags;

    memcpy(child->comm, parent->comm, sizeof(child->comm));
    child->regs = parent->regs;
    child->regs.rax = 0;
    child->regs.orig_rax = (uint64_t)-1;
    if (request->stack)
        child->regs.rsp = request->stack;
    if (flags & CLONE_SETTLS)
        child->regs.fs_base = request->tls;
    child->blocked = parent->restore_blocked ? parent->saved_blocked : parent->blocked;
    if (!(flags & CLONE_VM) || (flags & CLONE_VFORK)) {
        child->altstack = parent->altstack;
        child->altstack_size = parent->altstack_size;
        child->altstack_flags = parent->altstack_flags;
    }
    child->nice = parent->nice;
    child->policy = parent->policy;
    child->priority = parent->priority;
    child->timer_slack = parent->timer_slack;
    memcpy(child->affinity, parent->affinity, sizeof(child->affinity));
    cred_get(parent->cred);
    child->cred = parent->cred;
    if (flags & CLONE_CHILD_CLEARTID)
        child->clear_child_tid = request->child_tid;
    if (!(flags & CLONE_THREAD))
        child->parent_death_signal = 0;
}

static struct process *copy_process(const struct task *parent, const struct clone_request *request)
{
    const struct process *from = parent->process;
    struct process *process = process_new();

    if (!process)
        return NULL;
    if (request->flags & CLONE_SIGHAND) {
        process->sighand = from->sighand;
        process->sighand->refs++;
    } else {
        process->sighand = sighand_new(request->flags & CLONE_CLEAR_SIGHAND ? NULL : from->sighand);
        if (process->sighand && (request->flags & CLONE_CLEAR_SIGHAND)) {
            unsigned i;

            for (i = 0; i < SIGNALS; i++)
                if (from->sighand->actions[i].handler == 1)
                    process->sighand->actions[i].handler = 1;
        }
    }
    if (!process->sighand) {
        process_put(process);
        return NULL;
    }
    process->pgid = from->pgid;
    process->sid = from->sid;
    if (tty_inherit)
        tty_inherit(process, from);
    memcpy(process->limits, from->limits, sizeof(process->limits));
    process->personality = from->personality;
    process->exit_signal = (int)request->exit_signal;
    return process;
}

static void undo(struct task *child, bool thread)
{
    struct process *process = thread ? NULL : child->process;

    if (child->mm) {
        child->mm->tasks--;
        mm_put(child->mm);
    }
    if (child->files)
        fdtable_put(child->files);
    if (child->fs)
        fsctx_put(child->fs);
    if (process) {
        if (tty_forget)
            tty_forget(process);
        sighand_put(process->sighand);
        process_put(process);
    }
    task_free(child);
}

static int make(struct task *child, const struct clone_request *request)
{
    const struct task *parent = current;
    int result;

    copy_task(child, parent, request);
    if (request->flags & CLONE_THREAD)
        child->process = parent->process;
    else
        child->process = copy_process(parent, request);
    if (!child->process)
        return -ENOMEM;
    result = copy_files(child, parent, request->flags);
    return result < 0 ? result : copy_mm(child, parent, request->flags);
}

/* ---- on the lists ---- */

void link_process(struct process *process, struct process *parent)
{
    process->parent = parent;
    if (parent)
        TAILQ_INSERT_TAIL(&parent->children, process, siblings);
    TAILQ_INSERT_TAIL(all_processes, process, link);
}

void link_task(struct task *task)
{
    struct process *process = task->process;
    struct user_counts *user = user_of(task->cred->uid);

    if (user)
        user->tasks++;
    id_add(task);
    TAILQ_INSERT_TAIL(all_tasks, task, link);
    TAILQ_INSERT_TAIL(&process->tasks, task, process_link);
    process->n_tasks++;
    task->signal_work = true;
}

static void publish(struct task *child, const struct clone_request *request)
{
    struct process *self = current->process, *parent = self;

    if (!(request->flags & CLONE_THREAD)) {
        if (request->flags & CLONE_PARENT) {
            parent = self->parent;
            child->process->exit_signal = self->exit_signal;
        }
        child->process->pid = child->tid;
        child->process->leader = child;
        link_process(child->process, parent);
    }
    link_task(child);
    if (!(request->flags & CLONE_THREAD))
        cputime_arm(child->process); /* its limit is its parent's */
    if (request->flags & CLONE_VFORK) {
        child->vfork_parent = current;
        current->vfork_waiting = true;
        current->signal_work = true;
    }
}

static int tell_tid(const struct task *child, const struct clone_request *request)
{
    if ((request->flags & CLONE_PARENT_SETTID) &&
        copy_out(current->mm, request->parent_tid, &child->tid, sizeof(child->tid)) < 0)
        return -EFAULT;
    if (request->flags & CLONE_CHILD_SETTID) /* Linux takes no notice of a bad pointer, too */
        copy_out(child->mm, request->child_tid, &child->tid, sizeof(child->tid));
    return 0;
}

/* What fails is told before the child lives. A descriptor of one that never will is closed before the lock is let go: nobody
   else may get hold of it. */
static int give_pidfd(struct task *child, const struct clone_request *request)
{
    struct file *file;
    int32_t number;
    int result;

    if (!(request->flags & CLONE_PIDFD))
        return 0;
    if (!pidfd_file || (request->flags & CLONE_THREAD))
        return -EINVAL;
    child->process->pid = child->tid;
    result = pidfd_file(child->process, 0, &file);
    if (result < 0)
        return result;
    number = fd_install(file, O_CLOEXEC, 0);
    if (number < 0) {
        file_put(file);
        return number;
    }
    result = copy_out(current->mm, request->pidfd, &number, sizeof(number));
    if (result < 0)
        fd_close(number);
    return result;
}

static int take_tid(struct task *child, const struct clone_request *request)
{
    if (request->tid && task_by_tid(request->tid)) /* while the lock was let go */
        return -EEXIST;
    child->tid = request->tid ? request->tid : id_new();
    return child->tid < 0 ? child->tid : 0;
}

/* With its thread, which waits to be let go. */
static int start(struct task *child, const struct clone_request *request, struct start **ret_start)
{
    size_t size = platform_xstate_size();
    void *xstate = calloc(1, size);
    int result = xstate ? platform->get_xstate(current->host_context, xstate, size) : -ENOMEM;

    if (result >= 0)
        result = start_thread(child, xstate, size, ret_start);
    free(xstate);
    if (result < 0)
        return result == -ENOMEM ? result : -EAGAIN;
    /* The lock was let go. */
    if (current->killed || (current->process->exec_task && (request->flags & CLONE_THREAD)))
        result = -ERESTARTNOINTR;
    if (result >= 0)
        result = take_tid(child, request);
    if (result >= 0)
        result = tell_tid(child, request);
    if (result >= 0)
        result = give_pidfd(child, request);
    if (result < 0)
        start_go(*ret_start, false);
    return result < 0 ? result : 0;
}

static int64_t clone_task(const struct clone_request *request)
{
    struct start *thread;
    struct task *child;
    int result = check(request);
    int32_t tid;

    if (result == 0)
        result = limits(current);
    if (result < 0)
        return result;
    child = task_new();
    if (!child)
        return -ENOMEM;
    result = make(child, request);
    if (result == 0)
        result = start(child, request, &thread);
    if (result < 0) {
        undo(child, request->flags & CLONE_THREAD);
        return result;
    }
    publish(child, request);
    tid = child->tid;
    start_go(thread, true);
    return tid;
}

/* ---- the calls ---- */

SYSCALL(clone)
{
    struct clone_request request = {
        .flags = a[0] & ~(uint64_t)CLONE_SIGNAL_MASK & UINT32_MAX,
        .exit_signal = a[0] & CLONE_SIGNAL_MASK,
        .stack = a[1],
        .parent_tid = a[2],
        .pidfd = a[2],
        .child_tid = a[3],
        .tls = a[4],
    };

    if ((request.flags & CLONE_PIDFD) && (request.flags & CLONE_PARENT_SETTID))
        return -EINVAL;
    return clone_task(&request);
}

SYSCALL(fork)
{
    struct clone_request request = {.exit_signal = SIGCHLD};

    (void)a;
    return clone_task(&request);
}

SYSCALL(vfork)
{
    struct clone_request request = {.flags = CLONE_VM | CLONE_VFORK, .exit_signal = SIGCHLD};

    (void)a;
    return clone_task(&request);
}

/* A struct clone_args of a size of the guest's choice: what we do not know must be zero. */
static int args_in(struct clone_args *args, uint64_t from, uint64_t size)
{
    unsigned char rest[PAGE_SIZE];
    uint64_t i, known = size < sizeof(*args) ? size : sizeof(*args);

    if (size > PAGE_SIZE)
        return -E2BIG;
    if (size < ARGS_SIZE_0)
        return -EINVAL;
    memset(args, 0, sizeof(*args));
    if (copy_in(current->mm, args, from, known) < 0)
        return -EFAULT;
    if (copy_in(current->mm, rest, from + known, size - known) < 0)
        return -EFAULT;
    for (i = 0; i < size - known; i++)
        if (rest[i])
            return -E2BIG;
    return 0;
}

static int wanted_tid(const struct clone_args *args, int32_t *ret_tid)
{
    int32_t tid;

    if (!args->set_tid && !args->set_tid_size)
        return 0;
    if (!args->set_tid || args->set_tid_size != 1)
        return -EINVAL;
    if (copy_in(current->mm, &tid, args->set_tid, sizeof(tid)) < 0)
        return -EFAULT;
    if (tid < 1 || tid >= PIDS_MAX)
        return -EINVAL;
    if (!capable(40)) /* CHECKPOINT_RESTORE */
        return -EPERM;
    if (task_by_tid(tid))
        return -EEXIST;
    *ret_tid = tid;
    return 0;
}

SYSCALL(clone3)
{
    struct clone_request request = {0};
    struct clone_args args;
    int result = args_in(&args, a[0], a[1]);

    if (result == 0)
        result = wanted_tid(&args, &request.tid);
    if (result < 0)
        return result;
    if ((args.flags & (CLONE_DETACHED | CLONE_SIGNAL_MASK)) || args.flags >> 34)
        return -EINVAL;
    if (args.exit_signal > SIGNALS ||
        ((args.flags & (CLONE_THREAD | CLONE_PARENT)) && args.exit_signal))
        return -EINVAL;
    if (!args.stack != !args.stack_size)
        return -EINVAL;
    request.flags = args.flags;
    request.pidfd = args.pidfd;
    request.child_tid = args.child_tid;
    request.parent_tid = args.parent_tid;
    request.exit_signal = args.exit_signal;
    request.stack = args.stack ? args.stack + args.stack_size : 0;
    request.tls = args.tls;
    return clone_task(&request);
}

SYSCALL(set_tid_address)
{
    current->clear_child_tid = a[0];
    return current->tid;
}

SYSCALL(unshare)
{
    struct task *task = current;
    struct fdtable *files = NULL;
    struct fsctx *fs = NULL;
    uint64_t flags = a[0];
    int result = 0;

    if (flags & ~(uint64_t)(NAMESPACES | CLONE_THREAD | CLONE_FS | CLONE_VM | CLONE_SIGHAND |
                            CLONE_FILES | CLONE_SYSVSEM))
        return -EINVAL;
    if (flags & NAMESPACES)
        return -EPERM;
    if ((flags & (CLONE_THREAD | CLONE_SIGHAND | CLONE_VM)) && task->process->n_tasks > 1)
        return -EINVAL;
    if (flags & CLONE_FILES)
        result = fdtable_fork(task->files, &files);
    if (result == 0 && (flags & CLONE_FS))
        result = fsctx_fork(task->fs, &fs);
    if (result < 0) {
        if (files)
            fdtable_put(files);
        return result;
    }
    if (files) {
        fdtable_put(task->files);
        task->files = files;
    }
    if (fs) {
        fsctx_put(task->fs);
        task->fs = fs;
    }
    return 0;
}
