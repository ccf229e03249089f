/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fakes - files, descriptors, guest memory, signals and processes, as small as ipc/'s tests need them.
 * Guest memory is the test's own; a bad address is found by the host (process_vm_readv).
 * Threads: the kernel lock.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "fakes.h"
#include "ipc/state.h"

#define FDS 1024

static struct {
    struct file *file;
    bool cloexec;
} table[FDS];
static struct process *init;
static struct task_list tasks = TAILQ_HEAD_INITIALIZER(tasks);
static struct process_list processes = TAILQ_HEAD_INITIALIZER(processes);
struct task_list *all_tasks = &tasks;
struct process_list *all_processes = &processes;
static uint64_t numbers;
static unsigned n_sigpipe;

/* ---- inodes, files, descriptors ---- */

struct inode *inode_new(enum inode_kind kind, uint32_t mode)
{
    struct inode *inode = arena_alloc(ARENA_INODE, sizeof(*inode));

    inode->refs = 1;
    inode->kind = (uint16_t)kind;
    inode->mode = mode;
    inode->number = ++numbers;
    waitq_init(&inode->waitq);
    return inode;
}

void inode_get(struct inode *inode)
{
    inode->refs++;
}

void inode_put(struct inode *inode)
{
    if (--inode->refs == 0)
        arena_free(inode);
}

struct file *file_new(enum file_kind kind, uint32_t flags)
{
    static const uint16_t modes[] = {FMODE_READ, FMODE_WRITE, FMODE_READ | FMODE_WRITE, 0};
    struct file *file = arena_alloc(ARENA_FILE, sizeof(*file));

    file->refs = 1;
    file->kind = (uint16_t)kind;
    file->flags = flags;
    file->mode = modes[flags & 3];
    return file;
}

void file_get(struct file *file)
{
    file->refs++;
}

void file_put(struct file *file)
{
    if (--file->refs)
        return;
    if (file->n_epoll)
        epoll_file_gone(file);
    if (file_ops[file->kind] && file_ops[file->kind]->release)
        file_ops[file->kind]->release(file);
    if (file->inode)
        inode_put(file->inode);
    arena_free(file);
}

uint32_t file_poll(struct file *file, struct waiter *waiter)
{
    return file_ops[file->kind]->poll ? file_ops[file->kind]->poll(file, waiter)
                                      : READY_IN | READY_OUT;
}

int fd_install(struct file *file, uint32_t flags, int lowest)
{
    int fd = lowest < 3 ? 3 : lowest;

    while (fd < FDS && table[fd].file)
        fd++;
    if (fd >= FDS)
        return -EMFILE;
    table[fd].file = file;
    table[fd].cloexec = flags & O_CLOEXEC;
    return fd;
}

struct file *fd_get(int fd)
{
    if (fd < 0 || fd >= FDS || !table[fd].file)
        return NULL;
    file_get(table[fd].file);
    return table[fd].file;
}

struct file *fd_get_io(int fd)
{
    return fd_get(fd);
}

int fd_close(int fd)
{
    struct file *file = fd < 0 || fd >= FDS ? NULL : table[fd].file;

    if (!file)
        return -EBADF;
    table[fd].file = NULL;
    file_put(file);
    return 0;
}

static int dup_file(struct file *file, int lowest)
{
    int fd = fd_install(file, 0, lowest);

    if (fd >= 0)
        file_get(file);
    return fd;
}

static int64_t file_fcntl(struct file *file, int fd, int command, uint64_t argument)
{
    switch (command) {
    case F_GETFD:
        return table[fd].cloexec;
    case F_GETFL:
        return file->flags;
    case F_SETFL:
        file->flags = (file->flags & ~(uint32_t)(O_NONBLOCK | O_DIRECT)) |
                      (argument & (O_NONBLOCK | O_DIRECT));
        return 0;
    case F_DUPFD:
        return dup_file(file, (int)argument);
    default:
        return pipe_fcntl(file, command, argument);
    }
}

static int64_t file_io(struct file *file, struct uio *uio, bool write)
{
    const struct file_ops *ops = file_ops[file->kind];

    if (!(file->mode & (write ? FMODE_WRITE : FMODE_READ)))
        return -EBADF;
    if (!(write ? ops->write : ops->read))
        return -EINVAL;
    return write ? ops->write(file, uio, NULL) : ops->read(file, uio, NULL);
}

int64_t file_read(struct file *file, struct uio *to, int64_t *position)
{
    (void)position;
    return file_io(file, to, false);
}

int64_t file_write(struct file *file, struct uio *from, int64_t *position)
{
    (void)position;
    return file_io(file, from, true);
}

static int64_t with_file(struct file *file, long number, const uint64_t a[6])
{
    struct iovec part;
    struct uio uio;
    int64_t r;

    switch (number) {
    case SYS_read:
    case SYS_write:
        uio_one(&uio, &part, current->mm, a[1], a[2]);
        return file_io(file, &uio, number == SYS_write);
    case SYS_readv:
    case SYS_writev:
        r = uio_guest(&uio, current->mm, a[1], a[2]);
        if (r == 0) {
            r = file_io(file, &uio, number == SYS_writev);
            uio_free(&uio);
        }
        return r;
    case SYS_fcntl:
        return file_fcntl(file, (int)a[0], (int)a[1], a[2]);
    case SYS_ioctl:
        return file_ops[file->kind]->ioctl ? file_ops[file->kind]->ioctl(file, (uint32_t)a[1], a[2])
                                           : -ENOTTY;
    case SYS_dup:
        return dup_file(file, 0);
    default:
        return -ENOSYS;
    }
}

int64_t fake_call(long number, const uint64_t a[6])
{
    struct file *file;
    int64_t r;

    if (number == SYS_close)
        return fd_close((int)a[0]);
    if (number == SYS_getpid)
        return current->process->pid;
    if (number == SYS_openat)
        return fake_open((const char *)a[1], (uint32_t)a[2]);
    if (number == SYS_unlink)
        return fake_unlink((const char *)a[0]);
    if (number == SYS_rt_sigprocmask) {
        current->blocked |= *(const sigbits *)a[1];
        return 0;
    }
    file = fd_get((int)a[0]);
    if (!file)
        return -EBADF;
    r = with_file(file, number, a);
    file_put(file);
    return r;
}

/* ---- signals ---- */

bool signal_pending(const struct task *task)
{
    return (task->pending.bits | task->process->pending.bits) & ~task->blocked;
}

void fake_raise(int signo)
{
    siginfo_t info = {.si_signo = signo};

    kernel_lock();
    signal_process(init, &info);
    kernel_unlock();
}

int signal_process(struct process *process, const siginfo_t *info)
{
    struct task *task;

    process->pending.bits |= SIGBIT(info->si_signo);
    waitq_wake(&process->signal_waitq, POLLIN);
    TAILQ_FOREACH(task, &tasks, link)
    if (task->process == process)
        task_wake(task);
    return 0;
}

int signal_group(int32_t pgid, const siginfo_t *info)
{
    return pgid == init->pgid ? signal_process(init, info) : -ESRCH;
}

uint64_t fake_signals(void)
{
    uint64_t bits;

    kernel_lock();
    bits = init->pending.bits;
    init->pending.bits = 0;
    kernel_unlock();
    return bits;
}

int signal_take(sigbits mask, siginfo_t *ret_info)
{
    sigbits bits = current->process->pending.bits & mask;
    int signo = bits ? __builtin_ctzll(bits) + 1 : 0;

    if (!signo)
        return 0;
    current->process->pending.bits &= ~SIGBIT(signo);
    memset(ret_info, 0, sizeof(*ret_info));
    ret_info->si_signo = signo;
    ret_info->si_code = SI_USER;
    ret_info->si_pid = getpid();
    ret_info->si_uid = getuid();
    return signo;
}

int signal_permitted(const struct process *process, int signo)
{
    (void)signo;
    return process->pid == 1 ? -EPERM : 0;
}

void task_kill_with(int signo)
{
    n_sigpipe += signo == SIGPIPE;
}

unsigned fake_sigpipes(void)
{
    unsigned n = n_sigpipe;

    n_sigpipe = 0;
    return n;
}

int signal_mask_for_call(uint64_t mask, uint64_t size)
{
    sigbits bits;

    if (!mask)
        return 0;
    if (size != 8)
        return -EINVAL;
    if (copy_in(current->mm, &bits, mask, 8) < 0)
        return -EFAULT;
    current->saved_blocked = current->blocked;
    current->restore_blocked = true;
    current->blocked = bits & ~SIGBITS_UNBLOCKABLE;
    return 0;
}

bool capable(int capability)
{
    (void)capability;
    return geteuid() == 0;
}

bool cred_in_group(const struct cred *cred, uint32_t gid)
{
    return cred->fsgid == gid;
}

/* ---- processes ---- */

struct process *process_by_pid(int32_t pid)
{
    struct process *process;

    TAILQ_FOREACH(process, &processes, link)
    if (process->pid == pid)
        return process;
    return NULL;
}

struct task *task_by_tid(int32_t tid)
{
    struct process *process = process_by_pid(tid);

    return process ? process->leader : NULL;
}

void process_get(struct process *process)
{
    process->pidfd_refs++;
}

void process_put(struct process *process)
{
    process->pidfd_refs--;
}

struct process *fake_process(int32_t pid)
{
    struct process *process = calloc(1, sizeof(*process));
    static struct sighand sighand;

    process->pid = process->pgid = process->sid = pid;
    TAILQ_INIT(&process->children);
    TAILQ_INIT(&process->tasks);
    waitq_init(&process->signal_waitq);
    waitq_init(&process->exit_waitq);
    waitq_init(&process->child_waitq);
    process->limits[RLIMIT_NOFILE] = (struct rlimit){FDS, FDS};
    process->pidfd_refs = 1;
    process->sighand = &sighand;
    TAILQ_INSERT_TAIL(&processes, process, link);
    return process;
}

void fake_task_begin(void)
{
    static struct cred cred;
    static struct mm mm;

    kernel_lock();
    current = calloc(1, sizeof(*current));
    current->process = init;
    current->tid = (int32_t)gettid();
    current->cred = &cred;
    current->mm = &mm;
    cred.uid = cred.euid = cred.fsuid = getuid();
    cred.gid = cred.egid = cred.fsgid = getgid();
    TAILQ_INSERT_TAIL(&tasks, current, link);
    kernel_unlock();
}

void fake_task_end(void)
{
    kernel_lock();
    TAILQ_REMOVE(&tasks, current, link);
    kernel_unlock();
    free(current);
    current = NULL;
}

void fake_begin(void)
{
    int r = arena_init(256ul << 20);

    if (r < 0 || events_begin() < 0)
        _exit(6);
    kernel_lock();
    init = fake_process(getpid());
    kernel_unlock();
    fake_task_begin();
    init->leader = current;
}

unsigned fake_close_all(void)
{
    static const enum arena_kind kinds[] = {ARENA_FILE,  ARENA_INODE, ARENA_PIPE,   ARENA_SOCKET,
                                            ARENA_EPOLL, ARENA_TTY,   ARENA_OBJECT, ARENA_INOTIFY};
    unsigned i, left = 0;
    int fd;

    tty_forget(init);
    sysv_process_exit(init);
    for (fd = 0; fd < FDS; fd++)
        if (table[fd].file)
            fd_close(fd);
    fake_forget_names();
    for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (arena_count(kinds[i])) {
            fprintf(stderr, "%llu objects of kind %u are left\n",
                    (unsigned long long)arena_count(kinds[i]), kinds[i]);
            left++;
        }
    if (ipc()->pipe_slots || ipc()->socket_bytes || ipc()->sockets || ipc()->in_flight ||
        ipc()->epoll_items || ipc()->inotify_watches || ipc()->inotify_events || ipc()->anon_files)
        left++;
    return left;
}

void fake_end(void)
{
    unsigned left;

    kernel_lock();
    left = fake_close_all();
    kernel_unlock();
    fake_task_end();
    if (left)
        _exit(5);
}

/* ---- timers of other rooms ---- */

void cputime_fire(void *owner)
{
    (void)owner;
}

void itimer_fire(void *owner)
{
    (void)owner;
}

void posix_timer_fire(void *owner)
{
    (void)owner;
}

const struct file_ops *const file_ops[FILE_KINDS] = {
    [FILE_PIPE] = &pipe_ops,         [FILE_EVENTFD] = &eventfd_ops, [FILE_TIMERFD] = &timerfd_ops,
    [FILE_SIGNALFD] = &signalfd_ops, [FILE_EPOLL] = &epoll_ops,     [FILE_PIDFD] = &pidfd_ops,
    [FILE_SOCKET] = &socket_ops,     [FILE_SHM] = &shm_ops,         [FILE_INOTIFY] = &inotify_ops,
    [FILE_TTY] = &tty_ops,           [FILE_PTMX] = &ptmx_ops,
};
