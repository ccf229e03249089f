/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * path - the walk from a name to what it names.
 *
 * One part at a time, without recursion: a link on the way pushes what is left of the name and goes on with the link's
 * text, at most 40 times. Each directory is searched with the task's permission. The walk stops before the last part
 * (walk_parent), for most who ask want to make, remove or open that one; walk_last goes on.
 * Invariants: `at` holds references; a walk that began is ended (walk_end), also after an error.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>

void path_put(struct path *path)
{
    if (path->dentry)
        dentry_put(path->dentry);
    if (path->mount)
        mount_put(path->mount);
    path->dentry = NULL;
    path->mount = NULL;
}

void path_get(const struct path *path)
{
    if (path->dentry)
        dentry_get(path->dentry);
    if (path->mount)
        mount_get(path->mount);
}

static bool same_place(const struct path *a, const struct path *b)
{
    return a->mount == b->mount && a->dentry == b->dentry;
}

static void set_path(struct path *to, const struct path *from)
{
    struct path old = *to;

    path_get(from);
    *to = *from;
    path_put(&old);
}

/* ---- begin and end ---- */

/* linkat with AT_EMPTY_PATH: a descriptor that others have opened and passed on gives no right to link what it is of. */
int walk_judge_opener(const struct file *file, unsigned flags)
{
    return flags & LOOKUP_OPENER && file->cred != current->cred && !capable(CAP_DAC_READ_SEARCH)
               ? -ENOENT
               : 0;
}

static int begin_at_fd(struct walk *walk, int dirfd, bool empty)
{
    struct file *file = fd_get(dirfd);
    struct path path;
    int error;

    if (!file)
        return -EBADF;
    path = (struct path){file->mount, file->dentry};
    error = walk_judge_opener(file, walk->flags);
    if (error)
        ;
    else if (!file->dentry || (!empty && !S_ISDIR(file->dentry->inode->mode)))
        error = -ENOTDIR;
    else
        set_path(&walk->at, &path);
    file_put(file);
    return error;
}

int walk_begin(struct walk *walk, int dirfd, const char *name, unsigned flags, unsigned resolve)
{
    int error = 0;

    memset(walk, 0, offsetof(struct walk, stack));
    walk->text = NULL;
    walk->flags = flags;
    walk->resolve = resolve;
    walk->rest = name;
    walk->slash = walk->rooted = false;
    if (!*name && !(flags & LOOKUP_EMPTY))
        return -ENOENT;
    set_path(&walk->root, &current->fs->root);
    if (*name == '/' && !(resolve & (RESOLVE_IN_ROOT | RESOLVE_BENEATH))) {
        set_path(&walk->at, &walk->root);
        walk->rooted = true;
        return 0;
    }
    if (*name == '/' && resolve & RESOLVE_BENEATH)
        return -EXDEV;
    if (dirfd == AT_FDCWD)
        set_path(&walk->at, &current->fs->cwd);
    else
        error = begin_at_fd(walk, dirfd, !*name);
    if (error)
        return error;
    walk->start = walk->at;
    if (resolve & (RESOLVE_IN_ROOT | RESOLVE_BENEATH))
        set_path(&walk->root, &walk->at), walk->rooted = true;
    return 0;
}

void walk_end(struct walk *walk)
{
    path_put(&walk->at);
    path_put(&walk->root);
    free(walk->text);
    walk->text = NULL;
    while (walk->depth > 0)
        free(walk->stack[--walk->depth].text);
}

/* ---- parts ---- */

static const char *skip_slashes(const char *text)
{
    while (*text == '/')
        text++;
    return text;
}

/* Is there nothing but slashes after here? */
static bool nothing_after(const struct walk *walk, const char *rest)
{
    unsigned i;

    if (*skip_slashes(rest))
        return false;
    for (i = 0; i < walk->depth; i++)
        if (*skip_slashes(walk->stack[i].rest))
            return false;
    return true;
}

static bool slash_after(const struct walk *walk, const char *rest)
{
    unsigned i;

    if (*rest == '/')
        return true;
    for (i = 0; i < walk->depth; i++)
        if (*walk->stack[i].rest == '/')
            return true;
    return false;
}

static void pop_empty(struct walk *walk)
{
    while (!*skip_slashes(walk->rest) && walk->depth > 0) {
        free(walk->text);
        walk->depth--;
        walk->text = walk->stack[walk->depth].text;
        walk->rest = walk->stack[walk->depth].rest;
    }
    walk->rest = skip_slashes(walk->rest);
}

/* The next part, into kind and last. */
static int take_part(struct walk *walk)
{
    const char *end;

    pop_empty(walk);
    end = strchrnul(walk->rest, '/');
    walk->length = (size_t)(end - walk->rest);
    walk->final = nothing_after(walk, end);
    if (!walk->length) {
        walk->kind = LAST_NONE;
        walk->final = true;
        return 0;
    }
    /* One that is too long is known as such where it is looked for, after the right to look. */
    memcpy(walk->last, walk->rest, walk->length > NAME_MAX ? NAME_MAX : walk->length);
    walk->last[walk->length > NAME_MAX ? NAME_MAX : walk->length] = '\0';
    walk->kind = !strcmp(walk->last, ".")    ? LAST_DOT
                 : !strcmp(walk->last, "..") ? LAST_DOTDOT
                                             : LAST_NAME;
    if (walk->final && slash_after(walk, end))
        walk->slash = true;
    walk->rest = end;
    return 0;
}

static int may_search(const struct walk *walk)
{
    if (!walk->at.dentry->inode || !S_ISDIR(walk->at.dentry->inode->mode))
        return -ENOTDIR;
    return inode_permission(walk->at.dentry->inode, 1);
}

void walk_cross(struct walk *walk, struct path *path)
{
    struct mount *mount;
    struct path inside;

    (void)walk;
    while (path->dentry->mounted && (mount = mount_find(path->mount, path->dentry))) {
        inside = (struct path){mount, mount->root};
        set_path(path, &inside);
    }
}

static int go_up(struct walk *walk)
{
    struct path up = walk->at;

    walk->rooted = true;
    if (same_place(&walk->at, &walk->root))
        return walk->resolve & RESOLVE_BENEATH ? -EXDEV : 0;
    while (up.dentry == up.mount->root) {
        if (!up.mount->parent)
            return 0;
        if (walk->resolve & RESOLVE_NO_XDEV)
            return -EXDEV;
        up = (struct path){up.mount->parent, up.mount->at};
        if (same_place(&up, &walk->root)) {
            set_path(&walk->at, &up);
            return 0;
        }
    }
    up.dentry = up.dentry->parent;
    set_path(&walk->at, &up);
    walk_cross(walk, &walk->at);
    return 0;
}

int walk_child(struct walk *walk, struct dentry **ret_child)
{
    struct dentry *directory = walk->at.dentry;
    struct dentry *child = NULL;

    if (!directory->inode->links)
        return -ENOENT; /* it was removed */
    if (walk->length > NAME_MAX)
        return -ENAMETOOLONG;
    if (dentry_cached_kind(directory)) {
        child = dentry_find(directory, walk->last, walk->length);
        if (child && child->unresolved) {
            dentry_put(child);
            child = NULL;
        }
    }
    if (child) {
        *ret_child = child;
        return 0;
    }
    if (!inode_ops[directory->inode->kind]->lookup)
        return -ENOTDIR;
    return inode_ops[directory->inode->kind]->lookup(directory, walk->last, walk->length,
                                                     ret_child);
}

/* ---- links ---- */

static int push_text(struct walk *walk, char *text)
{
    if (*skip_slashes(walk->rest) || *walk->rest) {
        if (walk->depth == LINKS_MAX + 1) {
            free(text);
            return -ELOOP;
        }
        walk->stack[walk->depth].text = walk->text;
        walk->stack[walk->depth++].rest = walk->rest;
    } else {
        free(walk->text);
    }
    walk->text = text;
    walk->rest = text;
    if (*text != '/')
        return 0;
    if (walk->resolve & RESOLVE_BENEATH)
        return -EXDEV;
    /* As Linux: a relative walk that has not met the root yet does not know that it is on the same mount. */
    if (walk->resolve & RESOLVE_NO_XDEV && (!walk->rooted || walk->at.mount != walk->root.mount))
        return -EXDEV;
    walk->rooted = true;
    set_path(&walk->at, &walk->root);
    return 0;
}

static int follow_magic(struct walk *walk, struct inode *inode)
{
    struct path path;
    int error;

    if (!inode_ops[inode->kind]->follow)
        return -ENOSYS;
    error = inode_ops[inode->kind]->follow(inode, &path);
    if (error)
        return error;
    if (walk->resolve & RESOLVE_NO_MAGICLINKS)
        error = -ELOOP;
    else if (walk->resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT) ||
             (walk->resolve & RESOLVE_NO_XDEV && path.mount != walk->at.mount))
        error = -EXDEV;
    if (error) {
        path_put(&path);
        return error;
    }
    path_put(&walk->at);
    walk->at = path;
    return 0;
}

/* 1: a magic link has led to its end, `at`; 0: the walk is to go on with the link's text. */
int walk_follow(struct walk *walk, struct dentry *link)
{
    struct inode *inode = link->inode;
    char *text;
    int64_t length;
    int error;

    if (walk->resolve & RESOLVE_NO_SYMLINKS || ++walk->links > LINKS_MAX)
        return -ELOOP;
    error = follow_magic(walk, inode);
    if (error != -ENOSYS)
        return error ? error : 1;
    text = malloc(PATH_MAX + 1);
    if (!text)
        return -ENOMEM;
    length = inode_ops[inode->kind]->readlink(inode, text, PATH_MAX);
    if (length <= 0) {
        free(text);
        return length ? (int)length : -ENOENT;
    }
    text[length] = '\0';
    inode->accessed = now_coarse();
    return push_text(walk, text);
}

/* ---- the walk ---- */

/* Enters a child, whose reference it takes: the end of a part. */
static int enter(struct walk *walk, struct dentry *child, bool follow)
{
    struct path to = {walk->at.mount, child};
    int error;

    if (!child->inode) {
        dentry_put(child);
        return -ENOENT;
    }
    if (S_ISLNK(child->inode->mode) && follow) {
        error = walk_follow(walk, child);
        dentry_put(child);
        return error < 0 ? error : 0;
    }
    mount_get(to.mount);
    walk_cross(walk, &to);
    error = walk->resolve & RESOLVE_NO_XDEV && to.mount != walk->at.mount ? -EXDEV : 0;
    path_put(&walk->at);
    walk->at = to;
    return error;
}

static int step(struct walk *walk, bool follow)
{
    struct dentry *child;
    int error = may_search(walk);

    if (error)
        return error;
    if (walk->kind == LAST_DOT)
        return 0;
    if (walk->kind == LAST_DOTDOT)
        return go_up(walk);
    error = walk_child(walk, &child);
    return error ? error : enter(walk, child, follow);
}

int walk_parent(struct walk *walk)
{
    int error;

    for (;;) {
        error = take_part(walk);
        if (error || walk->kind == LAST_NONE)
            return error;
        if (walk->final)
            return may_search(walk);
        error = step(walk, true);
        if (error)
            return error;
    }
}

int walk_last(struct walk *walk)
{
    int error = walk_parent(walk);

    return error ? error : walk_finish(walk);
}

/* From where walk_parent stopped to what the last part names. */
int walk_finish(struct walk *walk)
{
    int error = 0;

    while (!error && walk->kind != LAST_NONE) {
        error = step(walk, walk->flags & LOOKUP_FOLLOW || walk->slash);
        if (error)
            return error;
        error = walk_parent(walk); /* what a link at the end has brought */
    }
    if (!error && (walk->slash || walk->flags & LOOKUP_DIRECTORY) &&
        !S_ISDIR(walk->at.dentry->inode->mode))
        return -ENOTDIR;
    return error;
}
