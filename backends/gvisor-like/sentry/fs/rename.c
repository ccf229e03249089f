/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * rename - names that move. The order of the checks is Linux's.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/inotify.h>

struct move {
    struct walk from_walk, to_walk;
    struct dentry *from, *to; /* references */
    unsigned flags;
};

/* May `child` leave its directory (or be replaced there)? */
static int may_leave(const struct path *directory, const struct dentry *child)
{
    int error = mount_writable(directory->mount);

    if (!error)
        error = inode_permission(directory->dentry->inode, 3);
    return error ? error : inode_may_delete(directory->dentry->inode, child->inode);
}

static int judge_replaced(const struct move *move)
{
    bool from_dir = S_ISDIR(move->from->inode->mode), to_dir;

    if (!move->to->inode)
        return 0;
    to_dir = S_ISDIR(move->to->inode->mode);
    if (move->flags & RENAME_EXCHANGE)
        return 0;
    if (from_dir && !to_dir)
        return -ENOTDIR;
    return !from_dir && to_dir ? -EISDIR : 0;
}

/* A directory that gets another parent has its ".." changed. */
static int may_reparent(const struct move *move, const struct dentry *dentry)
{
    if (!S_ISDIR(dentry->inode->mode) || move->from_walk.at.dentry == move->to_walk.at.dentry)
        return 0;
    return inode_permission(dentry->inode, 2);
}

static int judge_slashes(const struct move *move)
{
    bool from_dir = S_ISDIR(move->from->inode->mode);

    if (!from_dir &&
        (move->from_walk.slash || (!(move->flags & RENAME_EXCHANGE) && move->to_walk.slash)))
        return -ENOTDIR;
    if (move->flags & RENAME_EXCHANGE && move->to_walk.slash && !S_ISDIR(move->to->inode->mode))
        return -ENOTDIR;
    return 0;
}

static int judge_names(const struct move *move)
{
    int error;

    if (move->flags & RENAME_NOREPLACE && move->to->inode)
        return -EEXIST;
    if (move->flags & RENAME_EXCHANGE && !move->to->inode)
        return -ENOENT;
    error = judge_slashes(move);
    if (error)
        return error;
    if (dentry_is_below(move->to_walk.at.dentry, move->from))
        return -EINVAL;
    if (move->flags & RENAME_EXCHANGE && dentry_is_below(move->from_walk.at.dentry, move->to))
        return -EINVAL;
    if (dentry_is_below(move->from_walk.at.dentry, move->to))
        return -ENOTEMPTY;
    return 0;
}

static int judge_move(const struct move *move)
{
    int error;

    if (move->from->inode == move->to->inode)
        return 0; /* two names of one file: nothing to do, and nothing is done */
    error = may_leave(&move->from_walk.at, move->from);
    if (!error && move->to->inode)
        error = may_leave(&move->to_walk.at, move->to);
    else if (!error)
        error = inode_permission(move->to_walk.at.dentry->inode, 3);
    if (!error)
        error = judge_replaced(move);
    if (!error)
        error = may_reparent(move, move->from);
    if (!error && move->flags & RENAME_EXCHANGE)
        error = may_reparent(move, move->to);
    if (error)
        return error;
    return move->from->mounted || move->to->mounted ? -EBUSY : 0;
}

/* Of one name that moved; `moved` is what it names. */
static void tell_move(const struct walk *from, const struct walk *to, struct dentry *moved)
{
    struct inode *from_dir = from->at.dentry->inode, *to_dir = to->at.dentry->inode;
    uint32_t dir = S_ISDIR(moved->inode->mode) ? IN_ISDIR : 0;
    uint32_t cookie = ++fs_state->rename_cookie;

    if (from_dir->watches)
        inotify_event(from_dir, moved, IN_MOVED_FROM | dir, from->last, cookie);
    if (to_dir->watches)
        inotify_event(to_dir, moved, IN_MOVED_TO | dir, to->last, cookie);
    if (moved->inode->watches)
        inotify_event(moved->inode, moved, IN_MOVE_SELF, NULL, 0);
}

static void tell(struct move *move, struct inode *replaced)
{
    tell_move(&move->from_walk, &move->to_walk, move->from);
    if (move->flags & RENAME_EXCHANGE) {
        tell_move(&move->to_walk, &move->from_walk, move->to);
    } else if (replaced && replaced->watches) { /* that it is gone: when nobody has it open */
        inotify_event(replaced, move->to, IN_ATTRIB, NULL, 0);
    }
}

static int do_move(struct move *move)
{
    const struct inode_ops *ops = inode_ops[move->from_walk.at.dentry->inode->kind];
    struct inode *replaced = move->to->inode;
    int error = judge_names(move);

    if (!error)
        error = judge_move(move);
    if (error || move->from->inode == move->to->inode)
        return error;
    if (!ops->rename ||
        move->from_walk.at.dentry->inode->super != move->to_walk.at.dentry->inode->super)
        return -EPERM;
    if (replaced)
        inode_get(replaced);
    error = ops->rename(move->from_walk.at.dentry, move->from, move->to_walk.at.dentry, move->to,
                        move->flags);
    if (!error)
        tell(move, replaced);
    inode_put(replaced);
    return error;
}

static int find_both(struct move *move)
{
    int error;

    if (move->from_walk.at.mount != move->to_walk.at.mount)
        return -EXDEV;
    if (move->from_walk.kind != LAST_NAME)
        return -EBUSY;
    if (move->to_walk.kind != LAST_NAME)
        return move->flags & RENAME_NOREPLACE ? -EEXIST : -EBUSY;
    error = mount_writable(move->from_walk.at.mount);
    if (!error)
        error = walk_child(&move->from_walk, &move->from);
    if (!error && !move->from->inode)
        error = -ENOENT;
    return error ? error : walk_child(&move->to_walk, &move->to);
}

static int64_t walk_to(struct walk *walk, int dirfd, uint64_t guest_name, char name[PATH_MAX])
{
    int64_t error = name_in(name, guest_name, 0);

    if (error < 0)
        return error;
    error = walk_begin(walk, dirfd, name, 0, 0);
    return error ? error : walk_parent(walk);
}

static int64_t rename_guest(int olddir, uint64_t guest_old, int newdir, uint64_t guest_new,
                            uint64_t flags)
{
    struct move move = {.flags = (unsigned)flags};
    char from[PATH_MAX], to[PATH_MAX];
    int64_t error;

    if (flags & ~(uint64_t)(RENAME_NOREPLACE | RENAME_EXCHANGE) ||
        flags == (RENAME_NOREPLACE | RENAME_EXCHANGE))
        return -EINVAL; /* RENAME_WHITEOUT, too: a file system may refuse it */
    error = walk_to(&move.from_walk, olddir, guest_old, from);
    if (!error)
        error = walk_to(&move.to_walk, newdir, guest_new, to);
    if (!error)
        error = find_both(&move);
    if (!error)
        error = do_move(&move);
    if (move.from)
        dentry_put(move.from);
    if (move.to)
        dentry_put(move.to);
    walk_end(&move.from_walk);
    walk_end(&move.to_walk);
    return error;
}

SYSCALL(rename)
{
    return rename_guest(AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
}

SYSCALL(renameat)
{
    return rename_guest((int)a[0], a[1], (int)a[2], a[3], 0);
}

SYSCALL(renameat2)
{
    return rename_guest((int)a[0], a[1], (int)a[2], a[3], (uint32_t)a[4]);
}
