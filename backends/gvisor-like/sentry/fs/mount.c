/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * mount - file systems at names, names from the root of a task, and the calls that mount.
 *
 * A mount is found by its parent and the dentry it is at; dentry->mounted only says that it is worth looking.
 * A guest's root may mount tmpfs and bind directories; everything else is refused: there are no devices to mount.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

struct mount *root_mount;

void mount_get(struct mount *mount)
{
    mount->refs++;
}

void mount_put(struct mount *mount)
{
    struct mount *parent;

    while (mount && !--mount->refs) {
        parent = mount->parent;
        if (mount->at)
            dentry_put(mount->at);
        dentry_put(mount->root);
        memfs_put(mount->data);
        arena_free((void *)(uintptr_t)mount->type);
        arena_free((void *)(uintptr_t)mount->source);
        arena_free(mount);
        mount = parent;
    }
}

struct mount *mount_find(const struct mount *parent, const struct dentry *at)
{
    struct mount *mount;

    TAILQ_FOREACH_REVERSE(mount, &fs_state->mounts, mount_list, link)
    if (mount->parent == parent && mount->at == at)
        return mount;
    return NULL;
}

int mount_writable(const struct mount *mount)
{
    return mount->flags & MS_RDONLY ? -EROFS : 0;
}

/* One that is at no place yet; the reference to `root` is taken over. */
static struct mount *mount_new(const char *type, const char *source, uint32_t flags,
                               struct dentry *root)
{
    struct mount *mount = arena_alloc(ARENA_MOUNT, sizeof(*mount));

    if (!mount)
        return NULL;
    mount->type = arena_strdup(type, strlen(type));
    mount->source = arena_strdup(source, strlen(source));
    if (!mount->type || !mount->source) {
        arena_free((void *)(uintptr_t)mount->type);
        arena_free((void *)(uintptr_t)mount->source);
        arena_free(mount);
        return NULL;
    }
    mount->refs = 1; /* of the list */
    mount->id = ++fs_state->next_mount;
    mount->flags = flags;
    mount->root = root;
    if (root->inode->super) {
        mount->data = root->inode->super;
        root->inode->super->refs++;
        mount->limit = root->inode->super->account.limit;
    }
    return mount;
}

static int attach(struct mount *mount, const struct path *at)
{
    mount->parent = at->mount;
    mount->at = at->dentry;
    if (at->mount) {
        path_get(at);
        at->dentry->mounted = mount;
    }
    TAILQ_INSERT_TAIL(&fs_state->mounts, mount, link);
    return 0;
}

/* target NULL: the root of everything. */
int mount_at(const char *type, const char *source, const char *target, uint32_t flags,
             struct dentry *root, struct mount **ret_mount)
{
    struct path at = {0};
    struct mount *mount;
    int error;

    if (target) {
        error = path_lookup(AT_FDCWD, target, LOOKUP_FOLLOW, &at);
        if (error)
            return error;
        if (S_ISDIR(at.dentry->inode->mode) != S_ISDIR(root->inode->mode)) {
            path_put(&at);
            return -ENOTDIR;
        }
    }
    mount = mount_new(type, source, flags, root);
    if (mount)
        attach(mount, &at);
    path_put(&at);
    if (!mount)
        return -ENOMEM;
    if (ret_mount)
        *ret_mount = mount;
    return 0;
}

static void detach(struct mount *mount)
{
    struct mount *other;

    TAILQ_REMOVE(&fs_state->mounts, mount, link);
    if (mount->at) {
        mount->at->mounted = NULL;
        TAILQ_FOREACH(other, &fs_state->mounts, link)
        if (other->at == mount->at)
            mount->at->mounted = other;
    }
    mount_put(mount);
}

/* ---- names from the root ---- */

struct name_build {
    char *buffer;
    size_t size, start; /* it is built from the end */
};

static int prepend(struct name_build *build, const char *text, size_t length)
{
    if (length > build->start)
        return -ENAMETOOLONG;
    build->start -= length;
    memcpy(build->buffer + build->start, text, length);
    return 0;
}

/* 1: the top is not the task's root. */
static int prepend_parts(struct name_build *build, const struct path *path)
{
    const struct path *root = &current->fs->root;
    const struct mount *mount = path->mount;
    const struct dentry *dentry = path->dentry;
    int error = 0;

    while (!(mount == root->mount && dentry == root->dentry)) {
        if (mount && dentry == mount->root) {
            if (!mount->parent)
                return 1;
            dentry = mount->at;
            mount = mount->parent;
            continue;
        }
        if (dentry->parent == dentry && !dentry->deleted)
            return mount ? 1 : 0;
        error = prepend(build, dentry->name, dentry->length);
        if (!error)
            error = prepend(build, "/", 1);
        if (error)
            return error;
        if (dentry->parent == dentry)
            return 0; /* one that never had a name, e.g. memfd */
        dentry = dentry->parent;
    }
    return 0;
}

int64_t path_name(const struct path *path, char *buffer, size_t size)
{
    struct name_build build = {buffer, size, size};
    int unreachable, error = 0;

    if (!size)
        return -ENAMETOOLONG;
    buffer[--build.start] = '\0';
    if (path->dentry->deleted)
        error = prepend(&build, " (deleted)", 10);
    unreachable = error ? error : prepend_parts(&build, path);
    if (unreachable < 0)
        return unreachable;
    if (buffer[build.start] != '/')
        error = prepend(&build, "/", 1);
    if (!error && unreachable)
        error = prepend(&build, "(unreachable)", 13);
    if (error)
        return error;
    memmove(buffer, buffer + build.start, size - build.start);
    return (int64_t)(size - build.start - 1);
}

/* ---- the calls ---- */

static bool has_option(const char *options, const char *name, const char **ret_value)
{
    size_t length = strlen(name);

    for (; options && *options; options = strchr(options, ',') ? strchr(options, ',') + 1 : "")
        if (!strncmp(options, name, length) && options[length] == '=') {
            *ret_value = options + length + 1;
            return true;
        }
    return false;
}

static uint64_t size_option(const char *options, uint64_t otherwise)
{
    const char *value;
    char *end;
    uint64_t size;

    if (!has_option(options, "size", &value))
        return otherwise;
    size = strtoull(value, &end, 10);
    if (*end == 'k' || *end == 'K')
        size <<= 10;
    else if (*end == 'm' || *end == 'M')
        size <<= 20;
    else if (*end == 'g' || *end == 'G')
        size <<= 30;
    else if (*end == '%')
        size = memfile_limit() / 100 * (size > 100 ? 100 : size);
    return size;
}

static int mount_tmpfs(const char *source, const char *target, uint32_t flags, const char *options)
{
    struct memfs *memfs =
        memfs_new(size_option(options, memfile_limit() / 2), memfile_limit() / 8192 / 4, false);
    struct dentry *root = NULL;
    struct inode *inode;
    const char *mode;
    int error = -ENOMEM;

    if (!memfs)
        return -ENOMEM;
    inode = memfs_inode(memfs, S_IFDIR | 01777);
    memfs_put(memfs); /* the inode holds it */
    if (!inode)
        return -ENOMEM;
    if (has_option(options, "mode", &mode))
        inode->mode = S_IFDIR | (strtoul(mode, NULL, 8) & 07777);
    inode->dir_complete = 1;
    root = dentry_root(inode);
    if (root)
        error = mount_at("tmpfs", source, target, flags, root, NULL);
    else
        inode_put(inode);
    if (error && root)
        dentry_put(root);
    return error;
}

static int mount_bind(const char *source, const char *target, uint32_t flags)
{
    struct path from;
    int error = path_lookup(AT_FDCWD, source, LOOKUP_FOLLOW, &from);

    if (error)
        return error;
    dentry_get(from.dentry);
    error = mount_at(from.mount->type, from.mount->source, target, from.mount->flags | flags,
                     from.dentry, NULL);
    if (error)
        dentry_put(from.dentry);
    path_put(&from);
    return error;
}

static int remount(const char *target, uint32_t flags)
{
    struct path at;
    int error = path_lookup(AT_FDCWD, target, LOOKUP_FOLLOW, &at);

    if (error)
        return error;
    if (at.dentry != at.mount->root)
        error = -EINVAL;
    else if (!at.mount->parent && !(flags & MS_RDONLY) && at.mount->flags & MS_RDONLY)
        error = -EPERM; /* the cell's root is read-only by the operator's word */
    else
        at.mount->flags = flags;
    path_put(&at);
    return error;
}

#define KEPT_FLAGS (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)

SYSCALL(mount)
{
    char source[PATH_MAX] = "none", target[PATH_MAX], type[64] = "", options[PATH_MAX] = "";
    uint64_t flags = a[3];
    int64_t error = 0;

    if (!capable(CAP_SYS_ADMIN))
        return -EPERM;
    if (a[2])
        error = copy_in_string(current->mm, type, a[2], sizeof(type));
    if (error >= 0 && a[0])
        error = copy_in_string(current->mm, source, a[0], sizeof(source));
    if (error >= 0)
        error = name_in(target, a[1], 0);
    if (error >= 0 && a[4])
        error = copy_in_string(current->mm, options, a[4], sizeof(options));
    if (error < 0)
        return error;
    if ((flags & MS_MGC_MSK) == MS_MGC_VAL)
        flags &= ~(uint64_t)MS_MGC_MSK;
    if (flags & MS_REMOUNT)
        return remount(target, (uint32_t)(flags & KEPT_FLAGS));
    if (flags & MS_BIND)
        return mount_bind(source, target, 0);
    if (flags & (MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE))
        return 0; /* there is one mount namespace: nothing goes anywhere */
    if (flags & MS_MOVE)
        return -EPERM;
    if (!strcmp(type, "tmpfs"))
        return mount_tmpfs(source, target, (uint32_t)(flags & KEPT_FLAGS), options);
    return -EPERM;
}

static bool has_mounts_below(const struct mount *mount)
{
    const struct mount *other;

    TAILQ_FOREACH(other, &fs_state->mounts, link)
    if (other->parent == mount)
        return true;
    return false;
}

SYSCALL(umount2)
{
    struct mount *mount;
    struct path at;
    int error;

    if (a[1] & ~(uint64_t)(MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW))
        return -EINVAL;
    if (!capable(CAP_SYS_ADMIN))
        return -EPERM;
    error = path_lookup_guest(AT_FDCWD, a[0], a[1] & UMOUNT_NOFOLLOW ? 0 : LOOKUP_FOLLOW, &at);
    if (error)
        return error;
    mount = at.mount;
    if (at.dentry != mount->root)
        error = -EINVAL;
    else if (!mount->parent || strcmp(mount->type, "proc") == 0)
        error = -EPERM;
    else if (has_mounts_below(mount) || (!(a[1] & MNT_DETACH) && mount->refs > 2))
        error = -EBUSY; /* the list's reference and that of `at` */
    if (!error)
        detach(mount);
    path_put(&at);
    return error;
}
