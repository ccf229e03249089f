/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * target - what a name or a descriptor of a system call means: the walk to its end, names of the guest's, and the
 * *at() calls' rule that "" may be the descriptor itself.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>

int path_lookup(int dirfd, const char *name, unsigned flags, struct path *ret_path)
{
    struct walk walk;
    struct dentry *child;
    int error = walk_begin(&walk, dirfd, name, flags, 0);

    if (!error)
        error = flags & LOOKUP_PARENT ? walk_parent(&walk) : walk_last(&walk);
    if (!error && flags & LOOKUP_PARENT && walk.kind == LAST_NAME) {
        error = walk_child(&walk, &child);
        if (!error) {
            dentry_put(walk.at.dentry);
            walk.at.dentry = child;
        }
    } else if (!error && flags & LOOKUP_PARENT) {
        error = -EEXIST;
    }
    if (!error) {
        *ret_path = walk.at;
        walk.at = (struct path){0};
    }
    walk_end(&walk);
    return error;
}

/* ---- names of the guest's ---- */

int64_t name_in(char buffer[PATH_MAX], uint64_t guest_name, unsigned flags)
{
    int64_t length = copy_in_string(current->mm, buffer, guest_name, PATH_MAX);

    if (length == 0 && !(flags & LOOKUP_EMPTY))
        return -ENOENT;
    return length;
}

int path_lookup_guest(int dirfd, uint64_t guest_name, unsigned flags, struct path *ret_path)
{
    char name[PATH_MAX];
    int64_t length = name_in(name, guest_name, flags);

    return length < 0 ? (int)length : path_lookup(dirfd, name, flags, ret_path);
}

int target_of_fd(int fd, bool path_too, struct target *ret)
{
    struct file *file = path_too ? fd_get(fd) : fd_get_io(fd);

    if (!file)
        return -EBADF;
    if (!file->inode) { /* no kind that a guest can hold is without one */
        file_put(file);
        return -EBADF;
    }
    *ret = (struct target){.path = {file->mount, NULL}, .inode = file->inode, .file = file};
    if (file->mount)
        mount_get(file->mount);
    return 0;
}

int target_find(int dirfd, uint64_t guest_name, unsigned flags, struct target *ret)
{
    char name[PATH_MAX];
    int64_t length;
    int error;

    if (flags & LOOKUP_EMPTY && !guest_name)
        length = 0;
    else
        length = name_in(name, guest_name, flags);
    if (length < 0)
        return (int)length;
    if (!length && dirfd != AT_FDCWD) {
        error = target_of_fd(dirfd, true, ret);
        if (error)
            return error;
        ret->empty = true;
        error = walk_judge_opener(ret->file, flags);
        if (error)
            target_put(ret);
        return error;
    }
    *ret = (struct target){.empty = !length};
    if (!length) {
        ret->path = current->fs->cwd;
        path_get(&ret->path);
        error = 0;
    } else {
        error = path_lookup(dirfd, name, flags & ~LOOKUP_EMPTY, &ret->path);
    }
    if (!error)
        ret->inode = ret->path.dentry->inode;
    return error;
}

void target_put(struct target *target)
{
    path_put(&target->path);
    file_put(target->file);
}

int target_writable(const struct target *target)
{
    return target->path.mount ? mount_writable(target->path.mount) : 0;
}
