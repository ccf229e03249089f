/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * rw - read, write and their kin, lseek.
 * Threads: the kernel lock; the file is referred to while a kind of it sleeps.
 */
#include "vfs.h"

#include <fcntl.h>
#include <string.h>

#define RWF_KNOWN 0x1fu /* HIPRI, DSYNC, SYNC, NOWAIT, APPEND */
#define RWF_NOWAIT_ 8u
#define RWF_APPEND_ 16u

/* position: NULL the file's own. */
static int64_t transfer(int fd, struct uio *uio, int64_t *position, bool write)
{
    struct file *file = fd_get_io(fd);
    int64_t result;

    if (!file)
        return -EBADF;
    result = write ? file_write(file, uio, position) : file_read(file, uio, position);
    file_put(file);
    return result;
}

static int64_t one(const uint64_t a[6], int64_t *position, bool write)
{
    struct iovec part;
    struct uio uio;

    uio_one(&uio, &part, current->mm, a[1], a[2]);
    return transfer((int)a[0], &uio, position, write);
}

SYSCALL(read)
{
    return one(a, NULL, false);
}

SYSCALL(write)
{
    return one(a, NULL, true);
}

SYSCALL(pread64)
{
    int64_t position = (int64_t)a[3];

    return position < 0 ? -EINVAL : one(a, &position, false);
}

SYSCALL(pwrite64)
{
    int64_t position = (int64_t)a[3];

    return position < 0 ? -EINVAL : one(a, &position, true);
}

static int64_t many(const uint64_t a[6], int64_t *position, bool write)
{
    struct file *file;
    struct uio uio;
    int64_t result;
    int error;

    file = fd_get_io((int)a[0]);
    if (!file)
        return -EBADF;
    error = file->mode & (write ? FMODE_WRITE : FMODE_READ) ? 0 : -EBADF;
    file_put(file);
    if (!error)
        error = uio_guest(&uio, current->mm, a[1], a[2]);
    if (error)
        return error;
    result = uio.left ? transfer((int)a[0], &uio, position, write) : 0;
    uio_free(&uio);
    return result;
}

SYSCALL(readv)
{
    return many(a, NULL, false);
}

SYSCALL(writev)
{
    return many(a, NULL, true);
}

SYSCALL(preadv)
{
    int64_t position = (int64_t)a[3];

    return position < 0 ? -EINVAL : many(a, &position, false);
}

SYSCALL(pwritev)
{
    int64_t position = (int64_t)a[3];

    return position < 0 ? -EINVAL : many(a, &position, true);
}

/* With flags: those that only promise more than this kernel does anyway change nothing. */
static int64_t many2(const uint64_t a[6], bool write)
{
    int64_t position = (int64_t)a[3];
    struct file *file;
    uint32_t flags;
    int64_t result;

    if (position < -1)
        return -EINVAL;
    file = fd_get_io((int)a[0]);
    if (!file)
        return -EBADF;
    if (position >= 0 && !(file->mode & FMODE_SEEK))
        result = -ESPIPE;
    else if (!(file->mode & (write ? FMODE_WRITE : FMODE_READ)))
        result = -EBADF;
    else
        result = a[5] & ~(uint64_t)RWF_KNOWN || (a[5] & RWF_APPEND_ && !write) ||
                         (file->kind == FILE_DIRECTORY && a[5] & ~1ull)
                     ? -EOPNOTSUPP
                     : 0;
    if (result) {
        file_put(file);
        return result;
    }
    flags = file->flags;
    if (a[5] & RWF_NOWAIT_ && write && file->kind == FILE_REGULAR) {
        file_put(file);
        return -EOPNOTSUPP;
    }
    if (a[5] & RWF_NOWAIT_)
        file->flags |= O_NONBLOCK;
    if (a[5] & RWF_APPEND_)
        file->flags |= O_APPEND;
    result = many(a, position == -1 ? NULL : &position, write);
    file->flags =
        (file->flags & ~(uint32_t)(O_NONBLOCK | O_APPEND)) | (flags & (O_NONBLOCK | O_APPEND));
    file_put(file);
    return result;
}

SYSCALL(preadv2)
{
    return many2(a, false);
}

SYSCALL(pwritev2)
{
    return many2(a, true);
}

/* ---- lseek ---- */

static int64_t seek(struct file *file, int64_t offset, int whence)
{
    const struct file_ops *ops = file_ops[file->kind];

    if (whence < SEEK_SET || whence > SEEK_HOLE)
        return -EINVAL;
    if (!(file->mode & FMODE_SEEK))
        return -ESPIPE;
    if (file->kind != FILE_REGULAR && file->kind != FILE_DIRECTORY && ops && ops->seek)
        return ops->seek(file, offset, whence);
    if (whence == SEEK_CUR) {
        if (!offset)
            return file->position;
        if (__builtin_add_overflow(offset, file->position, &offset))
            return -EOVERFLOW;
        whence = SEEK_SET;
    }
    if (whence == SEEK_SET) {
        if (offset < 0 || (file->kind == FILE_REGULAR && (uint64_t)offset > FS_MAX_BYTES))
            return -EINVAL;
        if (file->kind != FILE_DIRECTORY || !ops || !ops->seek)
            return file->position = offset;
    }
    return ops && ops->seek ? ops->seek(file, offset, whence) : -EINVAL;
}

SYSCALL(lseek)
{
    struct file *file = fd_get_io((int)a[0]);
    int64_t result;

    if (!file)
        return -EBADF;
    result = seek(file, (int64_t)a[1], (int)a[2]);
    file_put(file);
    return result;
}
