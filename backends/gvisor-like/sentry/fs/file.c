/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * file - open files: their life, and the table of what each kind does.
 *
 * Checks that are the same for every kind (open for reading, has a position) are here; a kind's functions need not repeat
 * them. A room adds its kind to enum file_kind and a row to the table at the end.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <sys/inotify.h>

struct file *file_new(enum file_kind kind, uint32_t flags)
{
    struct file *file = arena_alloc(ARENA_FILE, sizeof(*file));
    unsigned access = flags & O_ACCMODE;

    if (!file)
        return NULL;
    file->refs = 1;
    file->kind = (uint16_t)kind;
    file->flags = flags;
    if (access == O_RDONLY || access == O_RDWR)
        file->mode |= FMODE_READ;
    if (access == O_WRONLY || access == O_RDWR)
        file->mode |= FMODE_WRITE;
    if (current && current->cred) {
        file->cred = current->cred;
        cred_get(file->cred);
    }
    return file;
}

void file_get(struct file *file)
{
    file->refs++;
}

static void notify_close(struct file *file)
{
    if (file->dentry && file->kind != FILE_PATH)
        fs_notify_file(file, file->mode & FMODE_WRITE ? IN_CLOSE_WRITE : IN_CLOSE_NOWRITE);
}

void file_put(struct file *file)
{
    if (!file || --file->refs)
        return;
    file->refs = 1; /* release may look at it */
    if (file->epoll_items)
        epoll_file_gone(file);
    notify_close(file);
    locks_remove_file(file);
    if (file_ops[file->kind] && file_ops[file->kind]->release)
        file_ops[file->kind]->release(file);
    if (file->counted_writer)
        file->inode->n_writers--;
    if (file->dentry)
        dentry_put(file->dentry);
    inode_put(file->inode);
    if (file->mount)
        mount_put(file->mount);
    if (file->cred)
        cred_put(file->cred);
    arena_free(file);
}

static int64_t judge_position(const struct file *file, const int64_t *position)
{
    if (!position)
        return 0;
    if (!(file->mode & FMODE_SEEK))
        return -ESPIPE;
    return *position < 0 ? -EINVAL : 0;
}

int64_t file_read(struct file *file, struct uio *to, int64_t *position)
{
    const struct file_ops *ops = file_ops[file->kind];
    int64_t error = judge_position(file, position), result;

    if (error)
        return error;
    if (!(file->mode & FMODE_READ))
        return -EBADF;
    if (file->kind == FILE_DIRECTORY)
        return -EISDIR;
    if (!ops || !ops->read)
        return -EINVAL;
    if (file->mode & FMODE_STREAM)
        position = NULL;
    else if (!position)
        position = &file->position;
    result = ops->read(file, to, position);
    if (result > 0 && file->kind == FILE_PIPE && file->dentry)
        inode_accessed(file); /* a FIFO has times as a file has */
    if (result > 0)
        fs_notify_file(file, IN_ACCESS);
    return result;
}

int64_t file_write(struct file *file, struct uio *from, int64_t *position)
{
    const struct file_ops *ops = file_ops[file->kind];
    int64_t error = judge_position(file, position), result;

    if (error)
        return error;
    if (!(file->mode & FMODE_WRITE))
        return -EBADF;
    if (!ops || !ops->write)
        return -EINVAL;
    if (file->mode & FMODE_STREAM)
        position = NULL;
    else if (!position)
        position = &file->position;
    result = ops->write(file, from, position);
    if (result > 0 && file->kind == FILE_PIPE && file->dentry)
        inode_modified(file->inode);
    if (result > 0)
        fs_notify_file(file, IN_MODIFY);
    return result;
}

uint32_t file_poll(struct file *file, struct waiter *waiter)
{
    const struct file_ops *ops = file_ops[file->kind];

    if (!ops || !ops->poll) /* what Linux says of a file that knows nothing of waiting */
        return POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM;
    return ops->poll(file, waiter);
}

int64_t file_read_at(struct file *file, void *buffer, size_t size, uint64_t offset)
{
    const struct file_ops *ops = file_ops[file->kind];
    int64_t position = (int64_t)offset, total = 0, got;
    struct iovec part;
    struct uio uio;

    if (!ops || !ops->read || position < 0)
        return -EINVAL;
    while ((size_t)total < size) {
        uio_one(&uio, &part, NULL, (uintptr_t)buffer + (uint64_t)total, size - (size_t)total);
        got = ops->read(file, &uio, &position);
        if (got <= 0)
            return total ? total : got;
        total += got;
    }
    return total;
}

extern const struct file_ops file_ops_regular, file_ops_null, file_ops_zero, file_ops_full,
    file_ops_random;
static const struct file_ops file_ops_path = {0};
extern const struct file_ops file_ops_directory;

#define OF_A_ROOM(name_) extern const struct file_ops name_ __attribute__((weak))
OF_A_ROOM(pipe_ops);
OF_A_ROOM(tty_ops);
OF_A_ROOM(ptmx_ops);
OF_A_ROOM(eventfd_ops);
OF_A_ROOM(timerfd_ops);
OF_A_ROOM(signalfd_ops);
OF_A_ROOM(epoll_ops);
OF_A_ROOM(inotify_ops);
OF_A_ROOM(pidfd_ops);
OF_A_ROOM(socket_ops);
OF_A_ROOM(shm_ops);
OF_A_ROOM(proc_ops);
OF_A_ROOM(host_ops);

const struct file_ops *const file_ops[FILE_KINDS] = {
    [FILE_REGULAR] = &file_ops_regular,
    [FILE_DIRECTORY] = &file_ops_directory,
    [FILE_PATH] = &file_ops_path,
    [FILE_PIPE] = &pipe_ops,
    [FILE_NULL] = &file_ops_null,
    [FILE_ZERO] = &file_ops_zero,
    [FILE_FULL] = &file_ops_full,
    [FILE_RANDOM] = &file_ops_random,
    [FILE_TTY] = &tty_ops,
    [FILE_PTMX] = &ptmx_ops,
    [FILE_EVENTFD] = &eventfd_ops,
    [FILE_TIMERFD] = &timerfd_ops,
    [FILE_SIGNALFD] = &signalfd_ops,
    [FILE_EPOLL] = &epoll_ops,
    [FILE_INOTIFY] = &inotify_ops,
    [FILE_PIDFD] = &pidfd_ops,
    [FILE_SHM] = &shm_ops,
    [FILE_SOCKET] = &socket_ops,
    [FILE_PROC] = &proc_ops,
    [FILE_HOST] = &host_ops,
};

extern const struct inode_ops inode_ops_memfs;
extern const struct inode_ops inode_ops_proc __attribute__((weak));
extern const struct inode_ops inode_ops_sys __attribute__((weak));
extern const struct inode_ops inode_ops_devpts __attribute__((weak));
/* Of descriptors without a name: owner and mode can be changed as a pipe's can. */
static int anonymous_setattr(struct inode *inode, const struct setattr *change)
{
    if (change->valid & SETATTR_SIZE)
        return -EINVAL;
    if (change->valid & SETATTR_MODE)
        inode->mode = change->mode;
    if (change->valid & SETATTR_UID)
        inode->uid = change->uid;
    if (change->valid & SETATTR_GID)
        inode->gid = change->gid;
    inode->changed = now_coarse();
    if (change->valid & SETATTR_ATIME)
        inode->accessed = change->accessed;
    if (change->valid & SETATTR_MTIME)
        inode->modified = change->modified;
    return 0;
}

/* By its name in /proc/PID/fd. */
static int anonymous_open(struct inode *inode, struct file *file)
{
    return S_ISFIFO(inode->mode) ? fifo_open(inode, file) : -ENXIO;
}

static const struct inode_ops inode_ops_anonymous = {.setattr = anonymous_setattr,
                                                     .open = anonymous_open};

const struct inode_ops *const inode_ops[INODE_KINDS] = {
    [INODE_MEMFS] = &inode_ops_memfs,    [INODE_PROC] = &inode_ops_proc,
    [INODE_SYS] = &inode_ops_sys,        [INODE_DEVPTS] = &inode_ops_devpts,
    [INODE_ANON] = &inode_ops_anonymous, [INODE_SOCKET] = &inode_ops_anonymous,
};
