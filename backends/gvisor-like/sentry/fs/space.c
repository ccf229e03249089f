/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * space - fallocate, and the calls about when bytes reach a disk. Here there is none: what is written is in memory until
 * the cell ends, so sync has nothing to do and says so at once, after the checks that Linux makes.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/inotify.h>

/* Of a mode that Linux knows; what this kernel does of it is said later. */
static int judge_mode(int mode)
{
    switch (mode & ~FALLOC_FL_KEEP_SIZE) {
    case 0:
    case FALLOC_FL_ZERO_RANGE:
    case FALLOC_FL_UNSHARE_RANGE:
        return 0;
    case FALLOC_FL_PUNCH_HOLE:
        return mode & FALLOC_FL_KEEP_SIZE ? 0 : -EOPNOTSUPP;
    case FALLOC_FL_COLLAPSE_RANGE:
    case FALLOC_FL_INSERT_RANGE:
        return mode & FALLOC_FL_KEEP_SIZE ? -EOPNOTSUPP : 0;
    default:
        return -EOPNOTSUPP;
    }
}

static int judge_file(const struct file *file)
{
    if (!(file->mode & FMODE_WRITE))
        return -EBADF;
    if (file->kind == FILE_PIPE)
        return -ESPIPE;
    if (file->kind == FILE_DIRECTORY)
        return -EISDIR;
    return file_ops[file->kind] && file_ops[file->kind]->fallocate ? 0 : -ENODEV;
}

static int64_t allocate(struct file *file, int mode, int64_t offset, int64_t size)
{
    int64_t result;

    if (offset < 0 || size <= 0)
        return -EINVAL;
    result = judge_mode(mode);
    if (!result)
        result = judge_file(file);
    if (result)
        return result;
    if (offset > (int64_t)FS_MAX_BYTES - size)
        return -EFBIG;
    if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
        return -EOPNOTSUPP; /* as tmpfs */
    if (!(mode & FALLOC_FL_KEEP_SIZE) && (uint64_t)(offset + size) > limit_file_size()) {
        task_kill_with(SIGXFSZ);
        return -EFBIG;
    }
    result = file_ops[file->kind]->fallocate(file, mode, (uint64_t)offset, (uint64_t)size);
    if (!result)
        fs_notify_file(file, IN_MODIFY);
    return result;
}

SYSCALL(fallocate)
{
    struct file *file = fd_get_io((int)a[0]);
    int64_t result;

    if (!file)
        return -EBADF;
    result = allocate(file, (int)a[1], (int64_t)a[2], (int64_t)a[3]);
    file_put(file);
    return result;
}

static int64_t sync_file(int fd)
{
    struct file *file = fd_get_io(fd);
    const struct file_ops *ops;
    int64_t result;

    if (!file)
        return -EBADF;
    ops = file_ops[file->kind];
    result = ops && ops->sync ? ops->sync(file) : -EINVAL;
    file_put(file);
    return result;
}

SYSCALL(fsync)
{
    return sync_file((int)a[0]);
}

SYSCALL(fdatasync)
{
    return sync_file((int)a[0]);
}

SYSCALL(sync)
{
    (void)a;
    return 0;
}

SYSCALL(syncfs)
{
    struct file *file = fd_get_io((int)a[0]);

    if (!file)
        return -EBADF;
    file_put(file);
    return 0;
}

SYSCALL(sync_file_range)
{
    struct file *file = fd_get_io((int)a[0]);
    int64_t result = 0, end;

    if (!file)
        return -EBADF;
    if (a[3] & ~7ull || (int64_t)a[1] < 0 || (int64_t)a[2] < 0 ||
        __builtin_add_overflow((int64_t)a[1], (int64_t)a[2], &end))
        result = -EINVAL;
    else if (!S_ISREG(file->inode->mode) && !S_ISDIR(file->inode->mode) &&
             !S_ISBLK(file->inode->mode) && !S_ISLNK(file->inode->mode))
        result = -ESPIPE;
    file_put(file);
    return result;
}

/* Advice that costs nothing to be without: the file's pages are in memory, or come at the first touch. */
SYSCALL(fadvise64)
{
    struct file *file = fd_get_io((int)a[0]);
    int64_t result = 0;

    if (!file)
        return -EBADF;
    if (file->kind == FILE_PIPE)
        result = -ESPIPE;
    else if ((int)a[3] < POSIX_FADV_NORMAL || (int)a[3] > POSIX_FADV_NOREUSE || (int64_t)a[2] < 0)
        result = -EINVAL;
    file_put(file);
    return result;
}

SYSCALL(readahead)
{
    struct file *file = fd_get_io((int)a[0]);
    int64_t result = 0;

    if (!file)
        return -EBADF;
    if (!(file->mode & FMODE_READ))
        result = -EBADF;
    else if (file->kind != FILE_REGULAR)
        result = -EINVAL;
    file_put(file);
    return result;
}
