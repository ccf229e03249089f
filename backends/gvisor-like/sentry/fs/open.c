/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * open - from a name to an open file: open, openat, creat, openat2, and what the kernel itself opens.
 *
 * The order of the checks is Linux's, for programs tell by the errno what they met.
 * Threads: the kernel lock; an open of a FIFO may let it go, when all that is needed is referred to.
 */
#include "vfs.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>

#define OPEN_KNOWN                                                                                 \
    (O_ACCMODE | O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_APPEND | O_NONBLOCK | O_DSYNC |         \
     O_SYNC | O_ASYNC | O_DIRECT | 0100000 | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC |    \
     O_PATH | O_TMPFILE)
#define OPEN_OF_PATH (O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC)
#define OPEN_ONLY_NOW (O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_CLOEXEC) /* F_GETFL: no more */
#define LARGEFILE 0100000u                                                /* x86-64's O_LARGEFILE */

static unsigned may_of(uint32_t flags)
{
    static const unsigned may[4] = {4, 2, 6, 6};
    unsigned result = may[flags & O_ACCMODE];

    return flags & O_TRUNC ? result | 2 : result;
}

/* ---- an open file of an inode ---- */

static enum file_kind kind_of(const struct inode *inode)
{
    switch (inode->mode & S_IFMT) {
    case S_IFDIR:
        return FILE_DIRECTORY;
    case S_IFIFO:
        return FILE_PIPE;
    case S_IFCHR:
    case S_IFBLK:
        return FILE_NULL; /* device_open says which */
    default:
        return inode->kind == INODE_PROC || inode->kind == INODE_SYS ? FILE_PROC : FILE_REGULAR;
    }
}

static int count_writer(struct file *file)
{
    if (!(file->mode & FMODE_WRITE) || !S_ISREG(file->inode->mode))
        return 0;
    if (file->inode->n_exec)
        return -ETXTBSY;
    file->inode->n_writers++;
    file->counted_writer = true;
    return 0;
}

static struct file *file_of(const struct path *path, struct inode *inode, uint32_t flags)
{
    struct file *file = file_new(flags & O_PATH ? FILE_PATH : kind_of(inode),
                                 flags & O_PATH ? flags & OPEN_OF_PATH & ~(uint32_t)O_CLOEXEC
                                                : (flags & ~(uint32_t)OPEN_ONLY_NOW) | LARGEFILE);

    if (!file)
        return NULL;
    if (flags & O_PATH)
        file->mode = 0;
    else if (S_ISREG(inode->mode) || S_ISDIR(inode->mode) || S_ISBLK(inode->mode))
        file->mode |= FMODE_SEEK;
    file->inode = inode;
    inode_get(inode);
    path_get(path);
    file->dentry = path->dentry;
    file->mount = path->mount;
    return file;
}

int open_inode(const struct path *path, struct inode *inode, uint32_t flags, struct file **ret_file)
{
    struct file *file = file_of(path, inode, flags);
    int error = 0;

    if (!file)
        return -ENFILE;
    if (!(flags & O_PATH)) {
        error = count_writer(file);
        file->flags |=
            flags & O_NOCTTY; /* a terminal is opened otherwise with it; F_GETFL has it not */
        if (!error && inode_ops[inode->kind]->open)
            error = inode_ops[inode->kind]->open(inode, file);
        file->flags &= ~(uint32_t)O_NOCTTY;
    }
    if (error) {
        file->kind = FILE_PATH; /* nothing of its kind is to be let go */
        file_put(file);
        return error;
    }
    *ret_file = file;
    return 0;
}

/* ---- may it be opened? ---- */

static int judge_type(const struct inode *inode, uint32_t flags)
{
    switch (inode->mode & S_IFMT) {
    case S_IFLNK:
        return -ELOOP;
    case S_IFDIR:
        return may_of(flags) & 2 ? -EISDIR : 0;
    case S_IFSOCK:
        return -ENXIO;
    default:
        return 0;
    }
}

static int judge(const struct path *path, uint32_t flags, bool created)
{
    struct inode *inode = path->dentry->inode;
    int error;

    if (flags & O_PATH)
        return 0;
    error = S_ISSOCK(inode->mode) ? 0 : judge_type(inode, flags);
    if (!error && (S_ISCHR(inode->mode) || S_ISBLK(inode->mode)) && path->mount->flags & MS_NODEV)
        error = -EACCES;
    if (!error && may_of(flags) & 2 && (S_ISREG(inode->mode) || S_ISDIR(inode->mode)))
        error = mount_writable(path->mount);
    if (!error && !created)
        error = inode_permission(inode, (int)may_of(flags));
    if (!error && flags & O_NOATIME && !inode_owner_or_capable(inode))
        error = -EPERM;
    return error ? error : judge_type(inode, flags);
}

static int truncate_opened(struct file *file)
{
    struct setattr change = {.valid = SETATTR_SIZE};
    int error;

    if (!S_ISREG(file->inode->mode) || !inode_ops[file->inode->kind]->setattr)
        return 0;
    if (file->inode->kind != INODE_MEMFS)
        return 0;
    error = inode_kill_privileges(file->inode);
    if (!error)
        error = inode_ops[file->inode->kind]->setattr(file->inode, &change);
    if (!error)
        fs_notify_file(file, IN_MODIFY);
    return error;
}

static int open_at(const struct path *path, uint32_t flags, bool created, struct file **ret_file)
{
    int error = judge(path, flags, created);
    struct file *file;

    if (!error && flags & O_TRUNC && !(flags & O_PATH) && path->dentry->inode->n_exec)
        error = -ETXTBSY;
    if (!error)
        error = open_inode(path, path->dentry->inode, flags, &file);
    if (error)
        return error;
    if (flags & O_TRUNC && !created && !(flags & O_PATH))
        error = truncate_opened(file);
    if (error) {
        file_put(file);
        return error;
    }
    if (!(flags & O_PATH))
        fs_notify_file(file, IN_OPEN);
    *ret_file = file;
    return 0;
}

/* ---- the walk to it ---- */

/* With O_CREAT, in a sticky directory where all may write: what is there and is another's is not opened. Of regular files
   and FIFOs that depends on fs.protected_regular and fs.protected_fifos, which are 0 in a cell. */
static bool sticky_forbids(const struct inode *directory, const struct inode *inode)
{
    return directory->mode & S_ISVTX && directory->mode & 0002 && !S_ISREG(inode->mode) &&
           !S_ISFIFO(inode->mode) && inode->uid != directory->uid &&
           inode->uid != current->cred->fsuid;
}

static int create(struct walk *walk, struct dentry *child, uint32_t mode)
{
    uint32_t made = inode_new_mode(walk->at.dentry->inode, S_IFREG | (mode & 07777));
    int error = vfs_create(&walk->at, child, made, 0);

    if (!error)
        fs_notify(child, IN_CREATE);
    return error;
}

/* The last part: its dentry is what is opened, unless it is a link that leads on. 1: go on. */
static int open_child(struct walk *walk, uint32_t flags, uint32_t mode, struct path *ret_path,
                      bool *ret_created)
{
    struct dentry *child;
    int error = walk_child(walk, &child);

    if (error)
        return error;
    if (child->inode && flags & O_CREAT && flags & O_EXCL) {
        error = -EEXIST;
    } else if (child->inode && S_ISLNK(child->inode->mode) &&
               (!(flags & O_NOFOLLOW) || walk->slash)) {
        error = walk_follow(walk, child);
        if (error == 1) { /* a magic link: the walk is at what it leads to */
            *ret_path = walk->at;
            path_get(ret_path);
            error = 0;
        } else if (!error) {
            error = 1;
        }
        dentry_put(child);
        return error;
    } else if (!child->inode && !(flags & O_CREAT)) {
        error = -ENOENT;
    } else if (!child->inode) {
        error = create(walk, child, mode);
        *ret_created = !error;
    }
    if (error) {
        dentry_put(child);
        return error;
    }
    *ret_path = (struct path){walk->at.mount, child};
    mount_get(ret_path->mount);
    walk_cross(walk, ret_path);
    if (walk->resolve & RESOLVE_NO_XDEV && ret_path->mount != walk->at.mount) {
        path_put(ret_path);
        return -EXDEV;
    }
    return 0;
}

/* O_CREAT of what is there already. */
static int judge_there(const struct walk *walk, const struct inode *inode)
{
    if (S_ISDIR(inode->mode))
        return -EISDIR;
    return sticky_forbids(walk->at.dentry->inode, inode) ? -EACCES : 0;
}

static int open_last(struct walk *walk, uint32_t flags, uint32_t mode, struct path *ret_path,
                     bool *ret_created)
{
    int error;

    *ret_created = false;
    do {
        error = walk_parent(walk);
        if (error)
            return error;
        if (walk->kind != LAST_NAME) {
            error = walk_finish(walk);
            if (!error && flags & O_CREAT)
                error = flags & O_EXCL ? -EEXIST : -EISDIR;
            if (!error) {
                *ret_path = walk->at;
                path_get(ret_path);
            }
            return error;
        }
        if (flags & O_CREAT && walk->slash)
            return -EISDIR;
        error = open_child(walk, flags, mode, ret_path, ret_created);
    } while (error == 1);
    if (!error && flags & O_CREAT && !*ret_created)
        error = judge_there(walk, ret_path->dentry->inode);
    if (!error && (walk->slash || flags & O_DIRECTORY) && !S_ISDIR(ret_path->dentry->inode->mode))
        error = -ENOTDIR;
    if (error && ret_path->dentry)
        path_put(ret_path);
    return error;
}

/* A file without a name in a directory. */
static int open_unnamed(struct walk *walk, uint32_t flags, uint32_t mode, struct file **ret_file)
{
    struct inode *directory, *inode;
    struct path path;
    char name[24];
    int error = walk_last(walk);

    if (error)
        return error;
    directory = walk->at.dentry->inode;
    if (!S_ISDIR(directory->mode))
        return -ENOTDIR;
    error = mount_writable(walk->at.mount);
    if (!error)
        error = inode_permission(directory, 3);
    if (!error && directory->kind != INODE_MEMFS)
        error = -EOPNOTSUPP;
    if (error)
        return error;
    inode = memfs_inode(directory->super, inode_new_mode(directory, S_IFREG | (mode & 07777)));
    if (!inode)
        return -ENOSPC;
    inode_init_owner(inode, directory);
    inode->links = 0;
    inode->flags |= INODE_DIRTY | (flags & O_EXCL ? 0 : INODE_UNNAMED);
    *stpcpy(name, "#") = '\0';
    name[1 + number_text(name + 1, inode->number)] = '\0';
    path = (struct path){walk->at.mount, dentry_detached(walk->at.dentry, name, inode)};
    if (!path.dentry) {
        inode_put(inode);
        return -ENOMEM;
    }
    error = open_inode(&path, inode, flags, ret_file);
    dentry_put(path.dentry);
    return error;
}

int open_resolved(int dirfd, const char *name, uint32_t flags, uint32_t mode, unsigned resolve,
                  struct file **ret_file)
{
    unsigned lookup = flags & O_NOFOLLOW ? 0 : LOOKUP_FOLLOW;
    struct path path = {0};
    struct walk walk;
    bool created;
    int error = walk_begin(&walk, dirfd, name, lookup, resolve);

    if (!error && (flags & O_TMPFILE) == O_TMPFILE) {
        error = open_unnamed(&walk, flags, mode, ret_file);
    } else if (!error) {
        error = open_last(&walk, flags, mode, &path, &created);
        if (!error)
            error = open_at(&path, flags, created, ret_file);
        path_put(&path);
    }
    walk_end(&walk);
    return error;
}

int path_open(int dirfd, const char *name, uint32_t flags, uint32_t mode, struct file **ret_file)
{
    return open_resolved(dirfd, name, flags, mode, 0, ret_file);
}

/* ---- the calls ---- */

static int64_t open_guest(int dirfd, uint64_t guest_name, uint32_t flags, uint32_t mode,
                          unsigned resolve)
{
    char name[PATH_MAX];
    struct file *file;
    int64_t error;
    int fd;

    if (flags & O_PATH)
        flags &= OPEN_OF_PATH;
    else if ((flags & O_TMPFILE) == O_TMPFILE && !(may_of(flags) & 2))
        return -EINVAL;
    else if ((flags & (O_TMPFILE & ~O_DIRECTORY)) && !(flags & O_DIRECTORY))
        return -EINVAL;
    if ((flags & (O_DIRECTORY | O_CREAT)) == (O_DIRECTORY | O_CREAT))
        return -EINVAL;
    error = name_in(name, guest_name, 0);
    if (error < 0)
        return error;
    error = open_resolved(dirfd, name, flags, mode, resolve, &file);
    if (error)
        return error;
    fd = fd_install(file, flags & O_CLOEXEC, 0);
    if (fd < 0)
        file_put(file);
    return fd;
}

SYSCALL(openat)
{
    return open_guest((int)a[0], a[1], (uint32_t)a[2] & OPEN_KNOWN, (uint32_t)a[3], 0);
}

SYSCALL(open)
{
    return open_guest(AT_FDCWD, a[0], (uint32_t)a[1] & OPEN_KNOWN, (uint32_t)a[2], 0);
}

SYSCALL(creat)
{
    return open_guest(AT_FDCWD, a[0], O_CREAT | O_WRONLY | O_TRUNC, (uint32_t)a[1], 0);
}

struct guest_how { /* struct open_how */
    uint64_t flags, mode, resolve;
};

static int judge_how(const struct guest_how *how)
{
    if (how->flags & ~(uint64_t)OPEN_KNOWN || how->resolve & ~0x3full ||
        (how->resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT)) == (RESOLVE_BENEATH | RESOLVE_IN_ROOT))
        return -EINVAL;
    if (how->mode & ~07777ull ||
        (how->mode && !(how->flags & O_CREAT) && (how->flags & O_TMPFILE) != O_TMPFILE))
        return -EINVAL;
    if (how->flags & O_PATH && how->flags & ~(uint64_t)OPEN_OF_PATH)
        return -EINVAL;
    if (how->resolve & RESOLVE_CACHED &&
        (how->flags & (O_TRUNC | O_CREAT) || (how->flags & O_TMPFILE) == O_TMPFILE))
        return -EAGAIN;
    return 0;
}

SYSCALL(openat2)
{
    struct guest_how how;
    char more[64];
    uint64_t at, n;
    unsigned i;
    int error;

    if (a[3] < sizeof(how))
        return -EINVAL;
    if (a[3] > PAGE_SIZE)
        return -E2BIG;
    if (copy_in(current->mm, &how, a[2], sizeof(how)))
        return -EFAULT;
    for (at = sizeof(how); at < a[3]; at += n) {
        n = a[3] - at < sizeof(more) ? a[3] - at : sizeof(more);
        if (copy_in(current->mm, more, a[2] + at, n))
            return -EFAULT;
        for (i = 0; i < n; i++)
            if (more[i])
                return -E2BIG;
    }
    error = judge_how(&how);
    return error ? error
                 : open_guest((int)a[0], a[1], (uint32_t)how.flags, (uint32_t)how.mode,
                              (unsigned)how.resolve);
}

SYSCALL(close)
{
    return fd_close((int)a[0]);
}
