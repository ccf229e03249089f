/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * namei - making and taking away names: mkdir, mknod, symlink, link, unlink, rmdir, readlink.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>

#pragma weak inotify_event

/* ---- inotify ---- */

void fs_notify(struct dentry *dentry, uint32_t mask)
{
    struct inode *directory = dentry->parent->inode, *inode = dentry->inode;

    if (inode && S_ISDIR(inode->mode))
        mask |= IN_ISDIR;
    if (dentry->parent != dentry && directory && directory->watches)
        inotify_event(directory, dentry, mask, dentry->name, 0);
    if (inode && inode->watches && !(mask & (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)))
        inotify_event(inode, dentry, mask, NULL, 0);
}

void fs_notify_file(struct file *file, uint32_t mask)
{
    if (file->dentry && file->kind != FILE_PATH)
        fs_notify(file->dentry, mask);
}

/* ---- before ---- */

static int may_change(const struct path *directory)
{
    int error = mount_writable(directory->mount);

    return error ? error : inode_permission(directory->dentry->inode, 3);
}

/* Makes the inode of a name that has none, in a directory where the task may. */
int vfs_create(struct path *directory, struct dentry *child, uint32_t mode, uint64_t rdev)
{
    const struct inode_ops *ops = inode_ops[directory->dentry->inode->kind];
    int error = mount_writable(directory->mount);

    if (!error)
        error = inode_permission(directory->dentry->inode, 3);
    if (error)
        return error;
    return ops->create ? ops->create(directory->dentry, child, mode, rdev) : -EACCES;
}

/* The walk to a name that is to be made: its dentry, which names nothing. May it be made? The caller's. */
static int begin_name(struct walk *walk, int dirfd, const char *name, bool directory,
                      struct dentry **ret_child)
{
    int error = walk_begin(walk, dirfd, name, 0, 0);

    if (!error)
        error = walk_parent(walk);
    if (error)
        return error;
    if (walk->kind != LAST_NAME)
        return -EEXIST;
    error = walk_child(walk, ret_child);
    if (error)
        return error;
    if ((*ret_child)->inode)
        error = -EEXIST;
    else if (walk->slash && !directory)
        error = -ENOENT;
    else
        error = mount_writable(walk->at.mount);
    if (error)
        dentry_put(*ret_child);
    return error;
}

static int begin_make(struct walk *walk, int dirfd, const char *name, bool directory,
                      struct dentry **ret_child)
{
    int error = begin_name(walk, dirfd, name, directory, ret_child);

    if (error)
        return error;
    error = may_change(&walk->at);
    if (error)
        dentry_put(*ret_child);
    return error;
}

/* ---- mkdir, mknod, symlink ---- */

static int64_t make_directory(int dirfd, uint64_t guest_name, uint32_t mode)
{
    char name[PATH_MAX];
    struct walk walk = {0};
    struct dentry *child;
    const struct inode_ops *ops;
    int64_t error = name_in(name, guest_name, 0);

    if (error < 0)
        return error;
    error = begin_make(&walk, dirfd, name, true, &child);
    if (!error) {
        ops = inode_ops[walk.at.dentry->inode->kind];
        error = ops->mkdir ? ops->mkdir(walk.at.dentry, child, mode & 01777 & ~current->fs->umask)
                           : -EPERM;
        if (!error)
            fs_notify(child, IN_CREATE);
        dentry_put(child);
    }
    walk_end(&walk);
    return error;
}

SYSCALL(mkdir)
{
    return make_directory(AT_FDCWD, a[0], (uint32_t)a[1]);
}

SYSCALL(mkdirat)
{
    return make_directory((int)a[0], a[1], (uint32_t)a[2]);
}

/* A device: with the capability, and one that there is. A character device 0:0 is what overlays call a whiteout: it
   opens nothing, and anybody may make it. */
static int may_make_device(uint32_t mode, uint64_t rdev)
{
    if ((!S_ISCHR(mode) && !S_ISBLK(mode)) || (S_ISCHR(mode) && rdev == 0))
        return 0;
    return capable(CAP_MKNOD) && device_known(mode, rdev) ? 0 : -EPERM;
}

int vfs_mknod(int dirfd, const char *name, uint32_t mode, uint64_t rdev, struct path *ret_path)
{
    struct walk walk = {0};
    struct dentry *child;
    int error = begin_make(&walk, dirfd, name, false, &child);

    if (!error) {
        error = may_make_device(mode, rdev);
        if (!error)
            error = vfs_create(&walk.at, child, inode_new_mode(walk.at.dentry->inode, mode), rdev);
        if (!error)
            fs_notify(child, IN_CREATE);
        if (!error && ret_path) {
            *ret_path = (struct path){walk.at.mount, child};
            path_get(ret_path);
        }
        dentry_put(child);
    }
    walk_end(&walk);
    return error;
}

static int64_t make_node(int dirfd, uint64_t guest_name, uint32_t mode, uint64_t rdev)
{
    char name[PATH_MAX];
    int64_t length;

    switch (mode & S_IFMT) {
    case 0:
        mode |= S_IFREG;
        break;
    case S_IFREG:
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFCHR:
    case S_IFBLK:
        break;
    case S_IFDIR:
        return -EPERM;
    default:
        return -EINVAL;
    }
    length = name_in(name, guest_name, 0);
    if (length < 0)
        return length;
    if ((mode & S_IFMT) != S_IFCHR && (mode & S_IFMT) != S_IFBLK)
        rdev = 0;
    return vfs_mknod(dirfd, name, mode & (S_IFMT | 07777), rdev, NULL);
}

SYSCALL(mknod)
{
    return make_node(AT_FDCWD, a[0], (uint32_t)a[1], (uint32_t)a[2]);
}

SYSCALL(mknodat)
{
    return make_node((int)a[0], a[1], (uint32_t)a[2], (uint32_t)a[3]);
}

static int64_t make_symlink(uint64_t guest_target, int dirfd, uint64_t guest_name)
{
    char target[PATH_MAX], name[PATH_MAX];
    struct walk walk = {0};
    struct dentry *child;
    const struct inode_ops *ops;
    int64_t error = name_in(target, guest_target, 0);

    if (error >= 0)
        error = name_in(name, guest_name, 0);
    if (error < 0)
        return error;
    error = begin_make(&walk, dirfd, name, false, &child);
    if (!error) {
        ops = inode_ops[walk.at.dentry->inode->kind];
        error = ops->symlink ? ops->symlink(walk.at.dentry, child, target) : -EPERM;
        if (!error)
            fs_notify(child, IN_CREATE);
        dentry_put(child);
    }
    walk_end(&walk);
    return error;
}

SYSCALL(symlink)
{
    return make_symlink(a[0], AT_FDCWD, a[1]);
}

SYSCALL(symlinkat)
{
    return make_symlink(a[0], (int)a[1], a[2]);
}

/* ---- link ---- */

/* As with fs.protected_hardlinks: of a stranger's file only what one could have copied. */
static int may_share(struct inode *inode)
{
    if (inode_owner_or_capable(inode))
        return 0;
    if (!S_ISREG(inode->mode) || inode->mode & S_ISUID ||
        (inode->mode & (S_ISGID | 010)) == (S_ISGID | 010) || inode_permission(inode, 6))
        return -EPERM;
    return 0;
}

static int may_link(const struct target *old, const struct walk *walk)
{
    struct inode *inode = old->inode;
    int error;

    if (walk->at.mount != old->path.mount)
        return -EXDEV;
    error = may_share(inode);
    if (!error)
        error = may_change(&walk->at);
    if (error)
        return error;
    if (S_ISDIR(inode->mode))
        return -EPERM;
    if (inode->super != walk->at.dentry->inode->super || inode->kind != INODE_MEMFS)
        return -EXDEV;
    if (!inode->links && !(inode->flags & INODE_UNNAMED))
        return -ENOENT;
    return inode->links >= 65000 ? -EMLINK : 0;
}

static int64_t make_link(int olddir, uint64_t guest_old, int newdir, uint64_t guest_new,
                         uint64_t flags)
{
    unsigned lookup = (flags & AT_SYMLINK_FOLLOW ? LOOKUP_FOLLOW : 0) |
                      (flags & AT_EMPTY_PATH ? LOOKUP_EMPTY | LOOKUP_OPENER : 0);
    char name[PATH_MAX];
    struct walk walk = {0};
    struct dentry *child;
    struct target old;
    int64_t error;

    if (flags & ~(uint64_t)(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH))
        return -EINVAL;
    error = target_find(olddir, guest_old, lookup, &old);
    if (error)
        return error;
    error = name_in(name, guest_new, 0);
    if (error >= 0)
        error = begin_name(&walk, newdir, name, false, &child);
    if (!error) {
        error = may_link(&old, &walk);
        if (!error)
            error = inode_ops[INODE_MEMFS]->link(walk.at.dentry, child, old.inode);
        if (!error)
            fs_notify(child, IN_CREATE);
        dentry_put(child);
    }
    walk_end(&walk);
    target_put(&old);
    return error;
}

SYSCALL(link)
{
    return make_link(AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
}

SYSCALL(linkat)
{
    return make_link((int)a[0], a[1], (int)a[2], a[3], (uint32_t)a[4]);
}

/* ---- unlink, rmdir ---- */

static int may_remove(const struct path *directory, const struct dentry *child, bool is_directory)
{
    int error = may_change(directory);

    if (error)
        return error;
    error = inode_may_delete(directory->dentry->inode, child->inode);
    if (error)
        return error;
    if (is_directory && !S_ISDIR(child->inode->mode))
        return -ENOTDIR;
    if (!is_directory && S_ISDIR(child->inode->mode))
        return -EISDIR;
    return child->mounted || child == current->fs->root.dentry ? -EBUSY : 0;
}

static int remove_child(struct walk *walk, struct dentry *child, bool is_directory)
{
    const struct inode_ops *ops = inode_ops[walk->at.dentry->inode->kind];
    struct inode *inode = child->inode;
    int error;

    if (!inode)
        return -ENOENT;
    if (walk->slash && !is_directory)
        return S_ISDIR(inode->mode) ? -EISDIR : -ENOTDIR;
    error = may_remove(&walk->at, child, is_directory);
    if (error)
        return error;
    if (!(is_directory ? ops->rmdir : ops->unlink))
        return -EPERM;
    inode_get(inode);
    error = is_directory ? ops->rmdir(walk->at.dentry, child) : ops->unlink(walk->at.dentry, child);
    if (!error) {
        if (inode->watches && !is_directory)
            inotify_event(inode, child, IN_ATTRIB, NULL, 0);
        if (child->refs == 1) /* who has it open is told of what else happens to it first */
            dentry_tell_gone(child);
        fs_notify(child, IN_DELETE);
    }
    inode_put(inode);
    return error;
}

static int64_t remove_name(int dirfd, uint64_t guest_name, bool is_directory)
{
    char name[PATH_MAX];
    struct walk walk = {0};
    struct dentry *child;
    int64_t error = name_in(name, guest_name, 0);

    if (error < 0)
        return error;
    error = walk_begin(&walk, dirfd, name, 0, 0);
    if (!error)
        error = walk_parent(&walk);
    if (!error && walk.kind != LAST_NAME)
        error = !is_directory              ? -EISDIR
                : walk.kind == LAST_DOT    ? -EINVAL
                : walk.kind == LAST_DOTDOT ? -ENOTEMPTY
                                           : -EBUSY;
    if (!error)
        error = walk_child(&walk, &child);
    if (!error) {
        error = remove_child(&walk, child, is_directory);
        dentry_put(child);
    }
    walk_end(&walk);
    return error;
}

SYSCALL(unlink)
{
    return remove_name(AT_FDCWD, a[0], false);
}

SYSCALL(rmdir)
{
    return remove_name(AT_FDCWD, a[0], true);
}

SYSCALL(unlinkat)
{
    if (a[2] & ~(uint64_t)AT_REMOVEDIR)
        return -EINVAL;
    return remove_name((int)a[0], a[1], a[2] & AT_REMOVEDIR);
}

/* ---- readlink ---- */

static int64_t read_link(int dirfd, uint64_t guest_name, uint64_t to, int64_t size)
{
    char text[PATH_MAX];
    struct target target;
    int64_t length;
    int error;

    if ((int32_t)size <= 0)
        return -EINVAL;
    error = target_find(dirfd, guest_name, LOOKUP_EMPTY, &target);
    if (error)
        return error;
    if (!S_ISLNK(target.inode->mode))
        length = target.empty ? -ENOENT : -EINVAL;
    else
        length = inode_ops[target.inode->kind]->readlink(target.inode, text, sizeof(text));
    if (length > (int32_t)size)
        length = (int32_t)size;
    if (length > 0 && copy_out(current->mm, to, text, (size_t)length))
        length = -EFAULT;
    target_put(&target);
    return length;
}

SYSCALL(readlinkat)
{
    return read_link((int)a[0], a[1], a[2], (int64_t)a[3]);
}

SYSCALL(readlink)
{
    return read_link(AT_FDCWD, a[0], a[1], (int64_t)a[2]);
}
