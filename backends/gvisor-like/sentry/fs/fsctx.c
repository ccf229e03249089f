/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fsctx - where a task stands: root, working directory, umask; and the calls that change them.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>

/* At the root of everything; both paths empty when there is none yet. */
struct fsctx *fsctx_new(void)
{
    struct fsctx *ctx = arena_alloc(ARENA_FSCTX, sizeof(*ctx));

    if (!ctx)
        return NULL;
    ctx->refs = 1;
    ctx->umask = 022;
    if (root_mount) {
        ctx->root = ctx->cwd = (struct path){root_mount, root_mount->root};
        path_get(&ctx->root);
        path_get(&ctx->cwd);
    }
    return ctx;
}

int fsctx_fork(struct fsctx *from, struct fsctx **ret)
{
    struct fsctx *ctx = arena_alloc(ARENA_FSCTX, sizeof(*ctx));

    if (!ctx)
        return -ENOMEM;
    *ctx = *from;
    ctx->refs = 1;
    path_get(&ctx->root);
    path_get(&ctx->cwd);
    *ret = ctx;
    return 0;
}

void fsctx_get(struct fsctx *ctx)
{
    ctx->refs++;
}

void fsctx_put(struct fsctx *ctx)
{
    if (!ctx || --ctx->refs)
        return;
    path_put(&ctx->root);
    path_put(&ctx->cwd);
    arena_free(ctx);
}

/* ---- the calls ---- */

/* Goes where `path` leads, whose references it takes. */
static int go_to(struct path *place, struct path *path)
{
    int error = inode_permission(path->dentry->inode, 1);
    struct path old = *place;

    if (error) {
        path_put(path);
        return error;
    }
    *place = *path;
    path_put(&old);
    return 0;
}

SYSCALL(chdir)
{
    struct path path;
    int error = path_lookup_guest(AT_FDCWD, a[0], LOOKUP_FOLLOW | LOOKUP_DIRECTORY, &path);

    return error ? error : go_to(&current->fs->cwd, &path);
}

SYSCALL(fchdir)
{
    struct file *file = fd_get((int)a[0]);
    struct path path;
    int error = 0;

    if (!file)
        return -EBADF;
    if (!file->dentry || !S_ISDIR(file->inode->mode))
        error = -ENOTDIR;
    if (!error) {
        path = (struct path){file->mount, file->dentry};
        path_get(&path);
        error = go_to(&current->fs->cwd, &path);
    }
    file_put(file);
    return error;
}

SYSCALL(chroot)
{
    struct path path;
    int error = path_lookup_guest(AT_FDCWD, a[0], LOOKUP_FOLLOW | LOOKUP_DIRECTORY, &path);

    if (error)
        return error;
    if (!inode_permission(path.dentry->inode, 1) && !capable(CAP_SYS_CHROOT)) {
        path_put(&path);
        return -EPERM;
    }
    return go_to(&current->fs->root, &path);
}

SYSCALL(getcwd)
{
    char name[PATH_MAX];
    const struct path *cwd = &current->fs->cwd;
    int64_t length;

    if (cwd->dentry->deleted)
        return -ENOENT;
    length = path_name(cwd, name, sizeof(name));
    if (length < 0)
        return length;
    if (a[1] < (uint64_t)length + 1)
        return -ERANGE;
    return copy_out(current->mm, a[0], name, (size_t)length + 1) ? -EFAULT : length + 1;
}

SYSCALL(umask)
{
    uint32_t old = current->fs->umask;

    current->fs->umask = (uint32_t)a[0] & 0777;
    return old;
}
