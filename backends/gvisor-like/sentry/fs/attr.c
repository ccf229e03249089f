/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * attr - changes of attributes: mode, owner, times, size.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>

/* Does the change to what was found, and lets it go. */
static int64_t change_target(struct target *target, struct setattr *change)
{
    int64_t error = target_writable(target);

    if (!error && target->file && target->file->kind == FILE_PATH && !target->path.dentry &&
        !target->file->dentry)
        error = -EBADF;
    if (!error)
        error = inode_setattr(target->inode, change);
    if (!error && (target->path.dentry || (target->file && target->file->dentry)))
        fs_notify(target->path.dentry ? target->path.dentry : target->file->dentry, IN_ATTRIB);
    target_put(target);
    return error;
}

/* ---- mode ---- */

static int64_t chmod_guest(int dirfd, uint64_t name, uint32_t mode, unsigned lookup)
{
    struct setattr change = {.valid = SETATTR_MODE, .mode = mode & 07777};
    struct target target;
    int64_t error = target_find(dirfd, name, lookup, &target);

    if (error)
        return error;
    if (S_ISLNK(target.inode->mode)) {
        target_put(&target);
        return -EOPNOTSUPP;
    }
    return change_target(&target, &change);
}

SYSCALL(chmod)
{
    return chmod_guest(AT_FDCWD, a[0], (uint32_t)a[1], LOOKUP_FOLLOW);
}

SYSCALL(fchmodat)
{
    return chmod_guest((int)a[0], a[1], (uint32_t)a[2], LOOKUP_FOLLOW);
}

SYSCALL(fchmod)
{
    struct setattr change = {.valid = SETATTR_MODE, .mode = (uint32_t)a[1] & 07777};
    struct target target;
    int64_t error = target_of_fd((int)a[0], false, &target);

    return error ? error : change_target(&target, &change);
}

/* ---- owner ---- */

static struct setattr owner_change(uint32_t uid, uint32_t gid)
{
    struct setattr change = {.valid = SETATTR_KILL, .uid = uid, .gid = gid};

    if (uid != UINT32_MAX)
        change.valid |= SETATTR_UID;
    if (gid != UINT32_MAX)
        change.valid |= SETATTR_GID;
    return change;
}

static int64_t chown_guest(int dirfd, uint64_t name, uint64_t uid, uint64_t gid, unsigned lookup)
{
    struct setattr change = owner_change((uint32_t)uid, (uint32_t)gid);
    struct target target;
    int64_t error = target_find(dirfd, name, lookup, &target);

    return error ? error : change_target(&target, &change);
}

SYSCALL(chown)
{
    return chown_guest(AT_FDCWD, a[0], a[1], a[2], LOOKUP_FOLLOW);
}

SYSCALL(lchown)
{
    return chown_guest(AT_FDCWD, a[0], a[1], a[2], 0);
}

SYSCALL(fchownat)
{
    if (a[4] & ~(uint64_t)(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
        return -EINVAL;
    return chown_guest((int)a[0], a[1], a[2], a[3],
                       (a[4] & AT_SYMLINK_NOFOLLOW ? 0 : LOOKUP_FOLLOW) |
                           (a[4] & AT_EMPTY_PATH ? LOOKUP_EMPTY : 0));
}

SYSCALL(fchown)
{
    struct setattr change = owner_change((uint32_t)a[1], (uint32_t)a[2]);
    struct target target;
    int64_t error = target_of_fd((int)a[0], false, &target);

    return error ? error : change_target(&target, &change);
}

/* ---- times ---- */

/* Setting to now needs less than setting to a time: a writer may. */
static int may_set_times(const struct target *target, bool now)
{
    int error = target_writable(target);

    if (error || inode_owner_or_capable(target->inode))
        return error;
    if (!now)
        return -EPERM;
    return inode_permission(target->inode, 2);
}

static bool valid_time(const struct timespec *time)
{
    return time->tv_nsec == UTIME_NOW || time->tv_nsec == UTIME_OMIT ||
           (time->tv_nsec >= 0 && time->tv_nsec < 1000000000);
}

static void time_change(struct setattr *change, const struct timespec times[2])
{
    struct timespec now = now_coarse();

    if (times[0].tv_nsec != UTIME_OMIT) {
        change->valid |= SETATTR_ATIME;
        change->accessed = times[0].tv_nsec == UTIME_NOW ? now : times[0];
    }
    if (times[1].tv_nsec != UTIME_OMIT) {
        change->valid |= SETATTR_MTIME;
        change->modified = times[1].tv_nsec == UTIME_NOW ? now : times[1];
    }
}

/* times NULL: both now. */
static int64_t set_times(struct target *target, const struct timespec *times)
{
    static const struct timespec both_now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    struct setattr change = {0};
    bool now;
    int64_t error;

    if (!times)
        times = both_now;
    now = times[0].tv_nsec == UTIME_NOW && times[1].tv_nsec == UTIME_NOW;
    error = valid_time(&times[0]) && valid_time(&times[1]) ? may_set_times(target, now) : -EINVAL;
    if (error) {
        target_put(target);
        return error;
    }
    time_change(&change, times);
    return change_target(target, &change);
}

static int64_t times_guest(int dirfd, uint64_t name, const struct timespec *times, uint64_t flags)
{
    struct target target;
    int64_t error;

    if (!name && dirfd != AT_FDCWD)
        error = flags ? -EINVAL : target_of_fd(dirfd, false, &target);
    else if (!name)
        error = -EFAULT;
    else
        error = target_find(dirfd, name,
                            (flags & AT_SYMLINK_NOFOLLOW ? 0 : LOOKUP_FOLLOW) |
                                (flags & AT_EMPTY_PATH ? LOOKUP_EMPTY : 0),
                            &target);
    return error ? error : set_times(&target, times);
}

SYSCALL(utimensat)
{
    struct timespec times[2];

    if (a[2] && copy_in(current->mm, times, a[2], sizeof(times)))
        return -EFAULT;
    if (a[2] && times[0].tv_nsec == UTIME_OMIT && times[1].tv_nsec == UTIME_OMIT)
        return 0; /* before anything is looked at */
    if (a[3] & ~(uint64_t)(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
        return -EINVAL;
    return times_guest((int)a[0], a[1], a[2] ? times : NULL, a[3]);
}

static int64_t microseconds_guest(int dirfd, uint64_t name, uint64_t from)
{
    struct timespec times[2];
    int64_t values[4];

    if (!from)
        return times_guest(dirfd, name, NULL, 0);
    if (copy_in(current->mm, values, from, sizeof(values)))
        return -EFAULT;
    if (values[1] < 0 || values[1] >= 1000000 || values[3] < 0 || values[3] >= 1000000)
        return -EINVAL;
    times[0] = (struct timespec){values[0], values[1] * 1000};
    times[1] = (struct timespec){values[2], values[3] * 1000};
    return times_guest(dirfd, name, times, 0);
}

SYSCALL(utimes)
{
    return microseconds_guest(AT_FDCWD, a[0], a[1]);
}

SYSCALL(futimesat)
{
    return microseconds_guest((int)a[0], a[1], a[2]);
}

SYSCALL(utime)
{
    struct timespec times[2] = {{0}};
    int64_t values[2];

    if (!a[1])
        return times_guest(AT_FDCWD, a[0], NULL, 0);
    if (copy_in(current->mm, values, a[1], sizeof(values)))
        return -EFAULT;
    times[0].tv_sec = values[0];
    times[1].tv_sec = values[1];
    return times_guest(AT_FDCWD, a[0], times, 0);
}

/* ---- size ---- */

uint64_t limit_file_size(void)
{
    return current->process->limits[RLIMIT_FSIZE].rlim_cur;
}

int64_t limit_write(uint64_t position, uint64_t size)
{
    uint64_t limit = limit_file_size();

    if (position >= limit && size) {
        task_kill_with(SIGXFSZ);
        return -EFBIG;
    }
    return (int64_t)(size > limit - position ? limit - position : size);
}

/* by_name: a file that holds nothing and keeps its size keeps its times: so Linux's tmpfs has truncate(), not ftruncate(). */
static int64_t truncate_target(struct target *target, int64_t size, bool by_name)
{
    struct setattr change = {.valid = SETATTR_SIZE, .size = (uint64_t)size};
    struct inode *inode = target->inode;
    uint64_t was = inode->object ? inode->object->size : inode->size;
    struct timespec modified = inode->modified, changed = inode->changed;
    struct stat before = {0};
    int error;

    if ((uint64_t)size > limit_file_size() && (uint64_t)size > was) {
        task_kill_with(SIGXFSZ);
        return -EFBIG;
    }
    error = inode_getattr(inode, &before);
    if (!error)
        error = inode_kill_privileges(inode);
    if (!error)
        error = inode_ops[inode->kind]->setattr ? inode_ops[inode->kind]->setattr(inode, &change)
                                                : -EINVAL;
    if (!error && by_name && was == (uint64_t)size && !before.st_blocks) {
        inode->modified = modified;
        inode->changed = changed;
    }
    if (!error && (target->path.dentry || (target->file && target->file->dentry)))
        fs_notify(target->path.dentry ? target->path.dentry : target->file->dentry, IN_MODIFY);
    return error;
}

SYSCALL(truncate)
{
    struct target target;
    int64_t error;

    if ((int64_t)a[1] < 0)
        return -EINVAL;
    error = target_find(AT_FDCWD, a[0], LOOKUP_FOLLOW, &target);
    if (error)
        return error;
    if (S_ISDIR(target.inode->mode))
        error = -EISDIR;
    else if (!S_ISREG(target.inode->mode))
        error = -EINVAL;
    if (!error)
        error = target_writable(&target);
    if (!error)
        error = inode_permission(target.inode, 2);
    if (!error && target.inode->n_exec)
        error = -ETXTBSY;
    if (!error)
        error = truncate_target(&target, (int64_t)a[1], true);
    target_put(&target);
    return error;
}

SYSCALL(ftruncate)
{
    struct target target;
    int64_t error;

    if ((int64_t)a[1] < 0)
        return -EINVAL;
    error = target_of_fd((int)a[0], false, &target);
    if (error)
        return error;
    if (!S_ISREG(target.inode->mode) || !(target.file->mode & FMODE_WRITE))
        error = -EINVAL;
    if (!error)
        error = truncate_target(&target, (int64_t)a[1], false);
    target_put(&target);
    return error;
}
