/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * signalfd - pending signals of whoever reads, as bytes.
 * Threads: the kernel lock.
 */
#include <string.h>
#include <sys/signalfd.h>

#include "state.h"

struct signalfd {
    sigbits set;
};

/* siginfo_t keeps what is beside the signal at a place that its code decides. */
static struct signalfd_siginfo shown(const siginfo_t *info)
{
    struct signalfd_siginfo s = {
        .ssi_signo = (uint32_t)info->si_signo,
        .ssi_errno = info->si_errno,
        .ssi_code = info->si_code,
    };

    if (info->si_code == SI_TIMER) {
        s.ssi_tid = (uint32_t)info->si_timerid;
        s.ssi_overrun = (uint32_t)info->si_overrun;
        s.ssi_ptr = (uint64_t)(uintptr_t)info->si_ptr;
        s.ssi_int = info->si_int;
    } else if (info->si_signo == SIGCHLD && info->si_code > 0) {
        s.ssi_pid = (uint32_t)info->si_pid;
        s.ssi_uid = info->si_uid;
        s.ssi_status = info->si_status;
        s.ssi_utime = (uint64_t)info->si_utime;
        s.ssi_stime = (uint64_t)info->si_stime;
    } else if (info->si_code > 0 && info->si_code != SI_KERNEL &&
               (info->si_signo == SIGSEGV || info->si_signo == SIGBUS || info->si_signo == SIGFPE ||
                info->si_signo == SIGILL || info->si_signo == SIGTRAP)) {
        s.ssi_addr = (uint64_t)(uintptr_t)info->si_addr;
    } else {
        s.ssi_pid = (uint32_t)info->si_pid;
        s.ssi_uid = info->si_uid;
        if (info->si_code < 0) {
            s.ssi_ptr = (uint64_t)(uintptr_t)info->si_ptr;
            s.ssi_int = info->si_int;
        }
    }
    return s;
}

static bool pending(const struct signalfd *s)
{
    return (current->pending.bits | current->process->pending.bits) & s->set;
}

static int64_t signalfd_read(struct file *file, struct uio *to, int64_t *position)
{
    struct signalfd *s = file->data;
    struct signalfd_siginfo one;
    siginfo_t info;
    int64_t done = 0;
    int r = 0;

    (void)position;
    if (to->left < sizeof(one))
        return -EINVAL;
    while (to->left >= sizeof(one)) {
        if (signal_take(s->set, &info) > 0) {
            one = shown(&info);
            if (uio_to(to, &one, sizeof(one)) != (int64_t)sizeof(one))
                return done ? done : -EFAULT;
            done += (int64_t)sizeof(one);
            continue;
        }
        if (done)
            break;
        if (file->flags & O_NONBLOCK)
            return -EAGAIN;
        r = WAIT_UNTIL(&current->process->signal_waitq, POLLIN, WAIT_FOREVER, pending(s));
        if (r < 0)
            return r;
    }
    return done;
}

static uint32_t signalfd_poll(struct file *file, struct waiter *waiter)
{
    if (waiter)
        waiter_add(waiter, &current->process->signal_waitq, waiter->events);
    return pending(file->data) ? POLLIN : 0;
}

static void signalfd_release(struct file *file)
{
    arena_free(file->data);
    anon_file_gone();
}

static int64_t change(int fd, sigbits set)
{
    struct file *file = fd_get_io(fd);
    int r = fd;

    if (!file)
        return -EBADF;
    if (file->kind == FILE_SIGNALFD) {
        ((struct signalfd *)file->data)->set = set;
        waitq_wake(&current->process->signal_waitq, READY_IN);
    } else {
        r = -EINVAL;
    }
    file_put(file);
    return r;
}

static int64_t signalfd_call(int fd, uint64_t mask, uint64_t size, uint32_t flags)
{
    struct signalfd *s;
    struct file *file;
    sigbits set;

    if ((flags & ~(uint32_t)(SFD_CLOEXEC | SFD_NONBLOCK)) || size != sizeof(set))
        return -EINVAL;
    if (copy_in(current->mm, &set, mask, sizeof(set)) < 0)
        return -EFAULT;
    set &= ~SIGBITS_UNBLOCKABLE;
    if (fd != -1)
        return change(fd, set);
    s = arena_alloc(ARENA_SIGNAL, sizeof(*s));
    if (!s)
        return -ENOMEM;
    file = anon_file(FILE_SIGNALFD, O_RDWR | (flags & O_NONBLOCK), 0600);
    if (!file) {
        arena_free(s);
        return -ENFILE;
    }
    s->set = set;
    file->data = s;
    return install(file, flags & O_CLOEXEC);
}

SYSCALL(signalfd)
{
    return signalfd_call((int)a[0], a[1], a[2], 0);
}

SYSCALL(signalfd4)
{
    return signalfd_call((int)a[0], a[1], a[2], (uint32_t)a[3]);
}

const struct file_ops signalfd_ops = {
    .read = signalfd_read,
    .poll = signalfd_poll,
    .release = signalfd_release,
};
