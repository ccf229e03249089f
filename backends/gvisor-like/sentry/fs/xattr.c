/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * xattr - extended attributes: user.*, trusted.* and security.*; of the system.* ones this kernel has none.
 *
 * Kept as a list at the inode. What the image has comes into it, whole, at the first question; after that the gofer is
 * not asked again.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/xattr.h>

#define XATTRS_MAX (1u << 17) /* bytes of one inode, names and values */

struct xattr {
    TAILQ_ENTRY(xattr) link;
    uint32_t size;
    bool counted; /* the guest's */
    char *name;
    char *value;
};

struct xattrs {
    TAILQ_HEAD(, xattr) list;
    size_t bytes;
};

static void free_one(struct inode *inode, struct xattr *xattr)
{
    struct xattrs *xattrs = inode->xattrs;
    size_t bytes = strlen(xattr->name) + xattr->size + sizeof(*xattr);

    if (xattr->counted)
        memfs_give_bytes(inode->super, bytes);
    TAILQ_REMOVE(&xattrs->list, xattr, link);
    xattrs->bytes -= strlen(xattr->name) + xattr->size;
    arena_free(xattr->name);
    arena_free(xattr->value);
    arena_free(xattr);
}

void inode_free_xattrs(struct inode *inode)
{
    struct xattrs *xattrs = inode->xattrs;

    if (!xattrs)
        return;
    while (!TAILQ_EMPTY(&xattrs->list))
        free_one(inode, TAILQ_FIRST(&xattrs->list));
    arena_free(xattrs);
    inode->xattrs = NULL;
}

static struct xattr *find(const struct inode *inode, const char *name)
{
    const struct xattrs *xattrs = inode->xattrs;
    struct xattr *xattr;

    if (xattrs)
        TAILQ_FOREACH(xattr, &xattrs->list, link)
    if (!strcmp(xattr->name, name))
        return xattr;
    return NULL;
}

/* A new one at the end, or another value of the old. */
static int store(struct inode *inode, const char *name, const void *value, size_t size,
                 bool counted)
{
    struct xattrs *xattrs = inode->xattrs;
    struct xattr *old, *xattr;
    size_t bytes = strlen(name) + size + sizeof(*xattr);

    if (!xattrs) {
        xattrs = arena_alloc(ARENA_BYTES, sizeof(*xattrs));
        if (!xattrs)
            return -ENOMEM;
        TAILQ_INIT(&xattrs->list);
        inode->xattrs = xattrs;
    }
    old = find(inode, name);
    if (xattrs->bytes + strlen(name) + size > XATTRS_MAX)
        return -ENOSPC;
    if (counted && memfs_charge_bytes(inode->super, bytes))
        return -ENOSPC;
    xattr = arena_alloc(ARENA_BYTES, sizeof(*xattr));
    if (xattr) {
        *xattr = (struct xattr){.size = (uint32_t)size, .counted = counted};
        xattr->name = arena_strdup(name, strlen(name));
        xattr->value = arena_strdup(value, size);
    }
    if (!xattr || !xattr->name || !xattr->value) {
        if (xattr) {
            arena_free(xattr->name);
            arena_free(xattr->value);
        }
        arena_free(xattr);
        if (counted)
            memfs_give_bytes(inode->super, bytes);
        return -ENOSPC;
    }
    if (old)
        TAILQ_INSERT_AFTER(&xattrs->list, old, xattr, link);
    else
        TAILQ_INSERT_TAIL(&xattrs->list, xattr, link);
    xattrs->bytes += strlen(name) + size;
    if (old)
        free_one(inode, old);
    return 0;
}

/* ---- what the image has ---- */

static int take_one(struct inode *inode, const char *name, char *value)
{
    int64_t size = gofer_getxattr(inode->gofer, name, value, XATTR_SIZE_MAX);

    if (size < 0)
        return size == -ENODATA || size == -EACCES || size == -EPERM ? 0 : (int)size;
    return store(inode, name, value, (size_t)size, false);
}

static int take_all(struct inode *inode, char *names, char *value)
{
    int64_t size = gofer_listxattr(inode->gofer, names, XATTR_LIST_MAX), at;
    int error = 0;

    if (size < 0)
        return size == -EOPNOTSUPP ? 0 : (int)size;
    names[size] = '\0';
    for (at = 0; at < size && !error; at += (int64_t)strlen(names + at) + 1)
        if (names[at] && strlen(names + at) <= XATTR_NAME_MAX &&
            strncmp(names + at, "system.", 7) != 0)
            error = take_one(inode, names + at, value);
    return error;
}

static int complete(struct inode *inode)
{
    char *memory;
    int error;

    if (inode->kind != INODE_MEMFS)
        return -EOPNOTSUPP;
    if (inode->flags & INODE_XATTRS || !memfs_of_image(inode))
        return 0;
    error = memfs_handle(inode);
    if (error)
        return error;
    memory = malloc(XATTR_LIST_MAX + 1 + XATTR_SIZE_MAX);
    if (!memory)
        return -ENOMEM;
    error = take_all(inode, memory, memory + XATTR_LIST_MAX + 1);
    free(memory);
    if (!error)
        inode->flags |= INODE_XATTRS;
    return error;
}

/* ---- who may what ---- */

static bool begins(const char *name, const char *prefix)
{
    return !strncmp(name, prefix, strlen(prefix));
}

static int judge_user(struct inode *inode, bool write)
{
    if (!S_ISREG(inode->mode) && !S_ISDIR(inode->mode))
        return write ? -EPERM : -ENODATA;
    if (S_ISDIR(inode->mode) && inode->mode & S_ISVTX && write && !inode_owner_or_capable(inode))
        return -EPERM;
    return inode_permission(inode, write ? 2 : 4);
}

static int judge_name(struct inode *inode, const char *name, bool write)
{
    int error;

    if (begins(name, "user.")) {
        error = judge_user(inode, write);
        return error || name[5] ? error : -EOPNOTSUPP;
    }
    if (begins(name, "security.") && name[9])
        return write && !capable(CAP_SYS_ADMIN) ? -EPERM : 0;
    if (begins(name, "trusted.") && name[8])
        return capable(CAP_SYS_ADMIN) ? 0 : write ? -EPERM : -ENODATA;
    error = begins(name, "system.") ? 0 : inode_permission(inode, write ? 2 : 4);
    return error ? error : -EOPNOTSUPP;
}

static int64_t name_of(char name[XATTR_NAME_MAX + 1], uint64_t guest)
{
    int64_t length = copy_in_string(current->mm, name, guest, XATTR_NAME_MAX + 1);

    if (length == 0 || length == -ENAMETOOLONG)
        return -ERANGE;
    return length;
}

/* ---- set, get, list, remove ---- */

enum by { BY_NAME, BY_LINK, BY_FD };

/* After the arguments were judged, as Linux does it. */
static int find_target(enum by by, const uint64_t a[6], struct target *target)
{
    if (by == BY_FD)
        return target_of_fd((int)a[0], false, target);
    return target_find(AT_FDCWD, a[0], by == BY_NAME ? LOOKUP_FOLLOW : 0, target);
}

static void told(const struct target *target)
{
    struct dentry *dentry = target->file ? target->file->dentry : target->path.dentry;

    if (dentry)
        fs_notify(dentry, IN_ATTRIB);
}

static int64_t set_value(struct target *target, const char *name, const void *value, size_t size,
                         int flags)
{
    struct inode *inode = target->inode;
    int error = target_writable(target);

    if (!error)
        error = judge_name(inode, name, true);
    if (!error)
        error = complete(inode);
    if (error)
        return error;
    if (flags & XATTR_CREATE && find(inode, name))
        return -EEXIST;
    if (flags & XATTR_REPLACE && !find(inode, name))
        return -ENODATA;
    error = store(inode, name, value, size, true);
    if (!error) {
        inode->flags |= INODE_XATTRS;
        inode_changed(inode);
        told(target);
    }
    return error;
}

static int64_t set_xattr(enum by by, const uint64_t a[6])
{
    char name[XATTR_NAME_MAX + 1];
    struct target target;
    char *value = NULL;
    int64_t error;

    if (a[4] & ~(uint64_t)(XATTR_CREATE | XATTR_REPLACE))
        return -EINVAL;
    error = name_of(name, a[1]);
    if (error < 0)
        return error;
    if (a[3] > XATTR_SIZE_MAX)
        return -E2BIG;
    value = malloc(a[3] + 1);
    if (!value)
        return -ENOMEM;
    error = a[3] ? copy_in(current->mm, value, a[2], a[3]) : 0;
    if (!error)
        error = find_target(by, a, &target);
    if (!error) {
        error = set_value(&target, name, value, a[3], (int)a[4]);
        target_put(&target);
    }
    free(value);
    return error;
}

static int64_t value_of(struct inode *inode, const char *name, uint64_t to, uint64_t size)
{
    const struct xattr *xattr;
    int64_t error = judge_name(inode, name, false);

    if (!error)
        error = complete(inode);
    if (error)
        return error;
    xattr = find(inode, name);
    if (!xattr)
        return -ENODATA;
    if (size && size < xattr->size)
        return -ERANGE;
    if (size && xattr->size && copy_out(current->mm, to, xattr->value, xattr->size))
        return -EFAULT;
    return (int64_t)xattr->size;
}

static int64_t get_xattr(enum by by, const uint64_t a[6])
{
    char name[XATTR_NAME_MAX + 1];
    struct target target;
    int64_t error = name_of(name, a[1]);

    if (error < 0)
        return error;
    error = find_target(by, a, &target);
    if (error)
        return error;
    error = value_of(target.inode, name, a[2], a[3]);
    target_put(&target);
    return error;
}

static int64_t list_of(const struct inode *inode, uint64_t to, uint64_t size)
{
    const struct xattrs *xattrs = inode->xattrs;
    const struct xattr *xattr;
    int64_t total = 0;

    if (xattrs)
        TAILQ_FOREACH(xattr, &xattrs->list, link)
        {
            size_t length = strlen(xattr->name) + 1;

            if (begins(xattr->name, "trusted.") && !capable(CAP_SYS_ADMIN))
                continue;
            if (size && (uint64_t)total + length > size)
                return -ERANGE;
            if (size && copy_out(current->mm, to + (uint64_t)total, xattr->name, length))
                return -EFAULT;
            total += (int64_t)length;
        }
    return total;
}

static int64_t list_xattr(enum by by, const uint64_t a[6])
{
    struct target target;
    int64_t error = find_target(by, a, &target);

    if (error)
        return error;
    error = complete(target.inode);
    if (error == -EOPNOTSUPP)
        error = 0; /* nothing to list */
    else if (!error)
        error = list_of(target.inode, a[1], a[2]);
    target_put(&target);
    return error;
}

static int64_t remove_value(struct target *target, const char *name)
{
    struct xattr *xattr;
    int64_t error = target_writable(target);

    if (!error)
        error = judge_name(target->inode, name, true);
    if (!error)
        error = complete(target->inode);
    if (error)
        return error;
    xattr = find(target->inode, name);
    if (!xattr)
        return -ENODATA;
    free_one(target->inode, xattr);
    inode_changed(target->inode);
    told(target);
    return 0;
}

static int64_t remove_xattr(enum by by, const uint64_t a[6])
{
    char name[XATTR_NAME_MAX + 1];
    struct target target;
    int64_t error = name_of(name, a[1]);

    if (error < 0)
        return error;
    error = find_target(by, a, &target);
    if (error)
        return error;
    error = remove_value(&target, name);
    target_put(&target);
    return error;
}

/* ---- the calls: by a name, a name that may be a link, a descriptor ---- */

#define THREE(verb_, function_)                                                                    \
    SYSCALL(verb_)                                                                                 \
    {                                                                                              \
        return function_(BY_NAME, a);                                                              \
    }                                                                                              \
    SYSCALL(l##verb_)                                                                              \
    {                                                                                              \
        return function_(BY_LINK, a);                                                              \
    }                                                                                              \
    SYSCALL(f##verb_)                                                                              \
    {                                                                                              \
        return function_(BY_FD, a);                                                                \
    }

THREE(setxattr, set_xattr)
THREE(getxattr, get_xattr)
THREE(listxattr, list_xattr)
THREE(removexattr, remove_xattr)
