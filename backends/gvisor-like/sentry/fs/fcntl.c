/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fcntl - fcntl and ioctl: what is the same for every kind of file; the rest goes to the kind.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/ioctl.h>

#define SETFL_MAY (O_APPEND | O_NONBLOCK | O_ASYNC | O_DIRECT | O_NOATIME)
#define F_OWNER_TID_ 0
#define F_OWNER_PGRP_ 2

static int64_t set_flags(struct file *file, uint32_t flags)
{
    if (flags & O_NOATIME && !(file->flags & O_NOATIME) && file->inode &&
        !inode_owner_or_capable(file->inode))
        return -EPERM;
    if (flags & O_DIRECT && !(file->flags & O_DIRECT) && file->kind != FILE_REGULAR &&
        file->kind != FILE_PIPE)
        return -EINVAL;
    file->flags = (file->flags & ~(uint32_t)SETFL_MAY) | (flags & SETFL_MAY);
    return 0;
}

struct guest_owner { /* struct f_owner_ex */
    int32_t type, pid;
};

static int64_t owner_ex(struct file *file, bool set, uint64_t argument)
{
    struct guest_owner owner;

    if (!set) {
        owner.type = file->owner < 0 ? F_OWNER_PGRP_ : 1;
        owner.pid = file->owner < 0 ? -file->owner : file->owner;
        return copy_out(current->mm, argument, &owner, sizeof(owner));
    }
    if (copy_in(current->mm, &owner, argument, sizeof(owner)))
        return -EFAULT;
    if (owner.type < F_OWNER_TID_ || owner.type > F_OWNER_PGRP_)
        return -EINVAL;
    file->owner = owner.type == F_OWNER_PGRP_ ? -owner.pid : owner.pid;
    return 0;
}

static bool has_seals(const struct file *file)
{
    return file->kind == FILE_REGULAR && file->inode->kind == INODE_MEMFS &&
           file->inode->super == fs_state->anonymous;
}

static int64_t add_seals(struct file *file, uint32_t seals)
{
    if (!(file->mode & FMODE_WRITE))
        return -EPERM;
    if (seals & ~SEALS_ALL)
        return -EINVAL;
    if (!has_seals(file))
        return -EINVAL;
    if (file->inode->seals & F_SEAL_SEAL)
        return -EPERM;
    if (seals & ~file->inode->seals & F_SEAL_WRITE && object_may_change(file->inode->object))
        return -EBUSY; /* what is mapped would still be written */
    file->inode->seals |= seals;
    return 0;
}

static int64_t command_of_file(struct file *file, int fd, int command, uint64_t argument)
{
    switch (command) {
    case F_GETFL:
        return (int64_t)file->flags;
    case F_SETFL:
        return set_flags(file, (uint32_t)argument);
    case F_GETLK:
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_GETLK:
    case F_OFD_SETLK:
    case F_OFD_SETLKW:
        return lock_fcntl(file, fd, command, argument);
    case F_GETOWN:
        return file->owner;
    case F_SETOWN:
        if ((int32_t)argument == INT32_MIN)
            return -EINVAL;
        file->owner = (int32_t)argument;
        return 0;
    case F_GETOWN_EX:
    case F_SETOWN_EX:
        return owner_ex(file, command == F_SETOWN_EX, argument);
    case F_GETSIG:
        return (int64_t)file->io_signal;
    case F_SETSIG:
        if (argument > SIGNALS)
            return -EINVAL;
        file->io_signal = (uint32_t)argument;
        return 0;
    case F_ADD_SEALS:
        return add_seals(file, (uint32_t)argument);
    case F_GET_SEALS:
        return has_seals(file) ? (int64_t)file->inode->seals : -EINVAL;
    case F_GETLEASE:
        return F_UNLCK;
    case F_SETLEASE:
        return (int)argument == F_UNLCK ? -EAGAIN : -EINVAL;
    case F_NOTIFY:
        return -EINVAL;
    case F_GETPIPE_SZ:
    case F_SETPIPE_SZ:
        return file->kind == FILE_PIPE ? pipe_fcntl(file, command, argument) : -EBADF;
    default:
        return -EINVAL;
    }
}

SYSCALL(fcntl)
{
    int fd = (int)a[0], command = (int)a[1];
    struct file *file = fd_get(fd);
    int64_t result;

    if (!file)
        return -EBADF;
    switch (command) {
    case F_DUPFD:
        result = fd_dup(fd, 0, (uint32_t)a[2]);
        break;
    case F_DUPFD_CLOEXEC:
        result = fd_dup(fd, O_CLOEXEC, (uint32_t)a[2]);
        break;
    case F_GETFD:
        result = fd_flags(fd, -1);
        break;
    case F_SETFD:
        result = fd_flags(fd, (int)a[2] & FD_CLOEXEC);
        break;
    default:
        result = file->kind == FILE_PATH && command != F_GETFL
                     ? -EBADF
                     : command_of_file(file, fd, command, a[2]);
    }
    file_put(file);
    return result;
}

/* ---- ioctl ---- */

static int64_t set_flag(struct file *file, uint32_t flag, uint64_t argument)
{
    int32_t on;

    if (copy_in(current->mm, &on, argument, sizeof(on)))
        return -EFAULT;
    file->flags = on ? file->flags | flag : file->flags & ~flag;
    return 0;
}

static int64_t regular_ioctl(struct file *file, uint32_t request, uint64_t argument)
{
    int64_t left;
    int32_t answer;

    switch (request) {
    case FIONREAD:
        if (!S_ISREG(file->inode->mode))
            return -ENOTTY;
        left = (int64_t)file->inode->object->size - file->position;
        answer = left > INT32_MAX ? INT32_MAX : (int32_t)left;
        return copy_out(current->mm, argument, &answer, sizeof(answer));
    case FICLONE:
    case FICLONERANGE:
    case FIDEDUPERANGE:
        return -EOPNOTSUPP;
    default:
        return -ENOTTY;
    }
}

static int64_t ioctl_of_file(struct file *file, int fd, uint32_t request, uint64_t argument)
{
    const struct file_ops *ops = file_ops[file->kind];

    switch (request) {
    case FIOCLEX:
        return fd_flags(fd, FD_CLOEXEC);
    case FIONCLEX:
        return fd_flags(fd, 0);
    case FIONBIO:
        return set_flag(file, O_NONBLOCK, argument);
    case FIOASYNC:
        return set_flag(file, O_ASYNC, argument);
    default:
        break;
    }
    if (file->kind == FILE_REGULAR || file->kind == FILE_DIRECTORY)
        return regular_ioctl(file, request, argument);
    return ops && ops->ioctl ? ops->ioctl(file, request, argument) : -ENOTTY;
}

SYSCALL(ioctl)
{
    struct file *file = fd_get_io((int)a[0]);
    int64_t result;

    if (!file)
        return -EBADF;
    result = ioctl_of_file(file, (int)a[0], (uint32_t)a[1], a[2]);
    file_put(file);
    return result;
}
