/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * memfs - the file system in memory: names.
 *
 * Its directories are dentries in memory; one that began as a directory of the image asks the gofer for names it has not
 * seen (memfs_image.c). What the guest makes is a pinned dentry; what it takes away of the image leaves a pinned
 * dentry without an inode in its place. So rename, unlink and links are those of any file system in memory, and nothing
 * of the image is ever copied or written. A tmpfs is one that has no image.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <linux/magic.h>
#include <string.h>
#include <sys/sysmacros.h>

#pragma weak socket_inode_release

#define NAME_BYTES 20u /* what a name adds to the size of its directory, as tmpfs has it */

struct memfs *memfs_new(uint64_t limit, uint64_t max_names, bool image)
{
    struct memfs *memfs = arena_alloc(ARENA_MOUNT, sizeof(*memfs));
    unsigned i;

    if (!memfs)
        return NULL;
    memfs->refs = 1;
    memfs->magic = image ? EXT4_SUPER_MAGIC : TMPFS_MAGIC;
    memfs->device = makedev(0, fs_state->next_device++);
    memfs->account.limit = limit;
    memfs->max_names = max_names;
    if (!image)
        return memfs;
    memfs->image = arena_alloc(ARENA_BYTES, MEMFS_BUCKETS * sizeof(*memfs->image));
    if (!memfs->image) {
        arena_free(memfs);
        return NULL;
    }
    for (i = 0; i < MEMFS_BUCKETS; i++)
        TAILQ_INIT(&memfs->image[i]);
    return memfs;
}

void memfs_put(struct memfs *memfs)
{
    if (!memfs || --memfs->refs)
        return;
    arena_free(memfs->image);
    arena_free(memfs);
}

struct inode *memfs_inode(struct memfs *memfs, uint32_t mode)
{
    struct inode *inode = inode_new(INODE_MEMFS, mode);

    if (!inode)
        return NULL;
    inode->super = memfs;
    inode->device = memfs->device;
    if (S_ISDIR(mode))
        inode->size = 2 * NAME_BYTES;
    memfs->refs++;
    return inode;
}

static void memfs_release(struct inode *inode)
{
    struct memfs *memfs = inode->super;

    if (inode->object && inode->object->refs > 1)
        memfs->refs++; /* somebody maps it still: what it is charged to stays */
    if (inode->object)
        object_put(inode->object);
    inode->object = NULL;
    if (inode->flags & INODE_HASHED)
        TAILQ_REMOVE(&memfs->image[inode->number % MEMFS_BUCKETS], inode, image);
    if (inode->gofer)
        gofer_close(inode->gofer);
    if (S_ISLNK(inode->mode)) {
        if (!memfs_of_image(inode))
            memfs_give_bytes(memfs, inode->size);
        arena_free(inode->data);
    } else if (S_ISFIFO(inode->mode) && inode->data)
        fifo_release(inode);
    else if (S_ISSOCK(inode->mode) && inode->data && socket_inode_release)
        socket_inode_release(inode);
    inode_free_xattrs(inode);
    arena_free(inode->origin_name);
    inode_put(inode->origin);
    memfs_put(memfs);
}

#define BYTES_OF_A_NAME                                                                            \
    256u /* so many bytes beside pages for each name there may be, and some more */
#define BYTES_MORE (1u << 20)

int memfs_charge_bytes(struct memfs *memfs, size_t bytes)
{
    if (memfs->max_names &&
        memfs->n_bytes + bytes > memfs->max_names * BYTES_OF_A_NAME + BYTES_MORE)
        return -ENOSPC;
    memfs->n_bytes += bytes;
    return 0;
}

void memfs_give_bytes(struct memfs *memfs, size_t bytes)
{
    memfs->n_bytes -= bytes;
}

/* ---- making names ---- */

static int room_for_a_name(const struct dentry *directory)
{
    const struct memfs *memfs = directory->inode->super;

    return memfs->max_names && memfs->n_names >= memfs->max_names ? -ENOSPC : 0;
}

static void uncount(struct dentry *dentry, struct memfs *memfs)
{
    if (dentry->counted)
        memfs->n_names--;
    dentry->counted = false;
}

/* `dentry`, which names nothing, is now the name of an inode, whose reference it takes. */
static void instantiate(struct dentry *directory, struct dentry *dentry, struct inode *inode)
{
    dentry->inode = inode;
    dentry_pin(dentry);
    dentry_to_end(dentry);
    dentry->counted = true;
    directory->inode->super->n_names++;
    directory->inode->size += NAME_BYTES;
    inode_modified(directory->inode);
    inode->flags |= INODE_DIRTY;
}

static int memfs_create(struct dentry *directory, struct dentry *dentry, uint32_t mode,
                        uint64_t rdev)
{
    struct inode *inode;

    if (room_for_a_name(directory) || !(inode = memfs_inode(directory->inode->super, mode)))
        return -ENOSPC;
    inode->rdev = rdev;
    inode_init_owner(inode, directory->inode);
    instantiate(directory, dentry, inode);
    return 0;
}

static int memfs_mkdir(struct dentry *directory, struct dentry *dentry, uint32_t mode)
{
    int error = memfs_create(directory, dentry, S_IFDIR | mode, 0);

    if (!error) {
        dentry->inode->dir_complete = 1;
        directory->inode->links++;
    }
    return error;
}

static int memfs_symlink(struct dentry *directory, struct dentry *dentry, const char *target)
{
    struct memfs *memfs = directory->inode->super;
    size_t length = strlen(target);
    char *text = NULL;
    int error = memfs_charge_bytes(memfs, length);

    if (error)
        return error;
    text = arena_strdup(target, length);
    error = text ? memfs_create(directory, dentry, S_IFLNK | 0777, 0) : -ENOSPC;
    if (error) {
        arena_free(text);
        memfs_give_bytes(memfs, length);
        return error;
    }
    dentry->inode->data = text;
    dentry->inode->size = length;
    return 0;
}

static int memfs_link(struct dentry *directory, struct dentry *dentry, struct inode *inode)
{
    if (room_for_a_name(directory))
        return -ENOSPC;
    inode->links++;
    inode->flags &= ~INODE_UNNAMED;
    inode_get(inode);
    instantiate(directory, dentry, inode);
    inode_changed(inode);
    return 0;
}

/* ---- taking names away ---- */

/* What tells that a name of the image is gone. Before it is taken away: this may fail, the rest may not. */
static int leave_mark(struct dentry *directory, const struct dentry *dentry,
                      struct dentry **ret_mark)
{
    struct dentry *mark;

    *ret_mark = NULL;
    if (!dentry->in_image)
        return 0;
    mark = dentry_new(directory, dentry->name, dentry->length, NULL);
    if (!mark)
        return -ENOMEM;
    mark->in_image = true;
    dentry_pin(mark);
    dentry_put(mark);
    *ret_mark = mark;
    return 0;
}

static void drop_mark(struct dentry *mark)
{
    dentry_get(mark);
    dentry_unhash(mark);
    dentry_unpin(mark);
    dentry_put(mark);
}

static void lose_link(struct inode *inode)
{
    if (S_ISDIR(inode->mode) || inode->links == 0)
        inode->links = 0;
    else
        inode->links--;
    inode_changed(inode);
    if (!inode->links)
        memfs_unkeep(inode);
}

static void shrink_directory(struct inode *directory)
{
    directory->size -= directory->size >= NAME_BYTES ? NAME_BYTES : directory->size;
    inode_modified(directory);
}

static int memfs_unlink(struct dentry *directory, struct dentry *dentry)
{
    struct dentry *mark;
    int error = leave_mark(directory, dentry, &mark);

    if (error)
        return error;
    dentry_unhash(dentry);
    uncount(dentry, directory->inode->super);
    shrink_directory(directory->inode);
    lose_link(dentry->inode);
    dentry_unpin(dentry);
    return 0;
}

/* 1: it has a name in it. */
static int has_names(struct dentry *dentry)
{
    struct dentry *child;
    int error = memfs_complete(dentry);

    if (error)
        return error;
    TAILQ_FOREACH(child, &dentry->inode->children, siblings)
    if (child->inode || child->unresolved)
        return 1;
    return 0;
}

/* The marks in a directory that goes. */
static void drop_marks(struct dentry *dentry)
{
    struct dentry *child, *next;

    for (child = TAILQ_FIRST(&dentry->inode->children); child; child = next) {
        next = TAILQ_NEXT(child, siblings);
        drop_mark(child);
    }
}

static int memfs_rmdir(struct dentry *directory, struct dentry *dentry)
{
    int error = has_names(dentry);

    if (error)
        return error < 0 ? error : -ENOTEMPTY;
    error = memfs_unlink(directory, dentry);
    if (!error) {
        directory->inode->links--;
        drop_marks(dentry);
    }
    return error;
}

/* ---- rename ---- */

static void count_directory(struct dentry *from_dir, struct dentry *to_dir,
                            const struct inode *moved)
{
    if (!S_ISDIR(moved->mode) || from_dir == to_dir)
        return;
    from_dir->inode->links--;
    to_dir->inode->links++;
}

static int exchange(struct dentry *from_dir, struct dentry *from, struct dentry *to_dir,
                    struct dentry *to)
{
    int error;

    dentry_pin(from);
    dentry_pin(to);
    error = dentry_exchange(from, to);
    if (error)
        return error;
    count_directory(from_dir, to_dir, from->inode);
    count_directory(to_dir, from_dir, to->inode);
    inode_modified(from_dir->inode);
    inode_modified(to_dir->inode);
    inode_changed(from->inode);
    inode_changed(to->inode);
    return 0;
}

/* The name `to` names nothing any more; what it is in the image stays hidden by what comes in its place. */
static void take_place(struct dentry *to_dir, struct dentry *to)
{
    struct inode *inode = to->inode;

    dentry_unhash(to);
    uncount(to, to_dir->inode->super);
    if (!inode) {
        dentry_unpin(to);
        return;
    }
    if (S_ISDIR(inode->mode)) {
        to_dir->inode->links--;
        drop_marks(to);
    }
    lose_link(inode);
    shrink_directory(to_dir->inode);
    dentry_unpin(to);
}

int memfs_rename(struct dentry *from_dir, struct dentry *from, struct dentry *to_dir,
                 struct dentry *to, unsigned flags)
{
    bool in_image = to->in_image;
    struct dentry *mark;
    int error = 0;

    if (flags & 2 /* RENAME_EXCHANGE */)
        return exchange(from_dir, from, to_dir, to);
    if (to->inode && S_ISDIR(to->inode->mode))
        error = has_names(to);
    if (error)
        return error < 0 ? error : -ENOTEMPTY;
    error = leave_mark(from_dir, from, &mark);
    if (error)
        return error;
    dentry_get(to);
    error = dentry_rename(from, to_dir, to->name, to->length);
    if (error) {
        dentry_put(to);
        if (mark) /* it says that the name is gone, and it is not */
            drop_mark(mark);
        return error;
    }
    take_place(to_dir, to);
    dentry_put(to);
    from->in_image = in_image;
    dentry_pin(from);
    count_directory(from_dir, to_dir, from->inode);
    shrink_directory(from_dir->inode);
    to_dir->inode->size += NAME_BYTES;
    inode_modified(to_dir->inode);
    inode_changed(from->inode);
    return 0;
}

/* ---- attributes ---- */

static int memfs_setattr(struct inode *inode, const struct setattr *change)
{
    int error;

    if (change->valid & SETATTR_SIZE) {
        error = memfs_truncate(inode, change->size);
        if (error)
            return error;
    }
    if (change->valid & SETATTR_MODE)
        inode->mode = change->mode;
    if (change->valid & SETATTR_UID)
        inode->uid = change->uid;
    if (change->valid & SETATTR_GID)
        inode->gid = change->gid;
    inode_changed(inode);
    if (change->valid & SETATTR_SIZE)
        inode->modified = inode->changed;
    if (change->valid & SETATTR_ATIME)
        inode->accessed = change->accessed;
    if (change->valid & SETATTR_MTIME)
        inode->modified = change->modified;
    return 0;
}

/* What the guest wrote, and what of the image it still shows. */
static int memfs_getattr(struct inode *inode, struct stat *ret)
{
    uint64_t written = inode->object ? inode->object->resident : 0;
    uint64_t image = 0;

    if (!S_ISREG(inode->mode))
        return 0;
    if (inode->object && inode->object->host_fd >= 0)
        image = inode->object->backed;
    else if (!inode->object && memfs_of_image(inode))
        image = inode->size;
    image = (image + PAGE_SIZE - 1) >> PAGE_SHIFT;
    ret->st_blocks = (blkcnt_t)((written > image ? written : image) * (PAGE_SIZE / 512));
    return 0;
}

const struct inode_ops inode_ops_memfs = {
    .lookup = memfs_lookup,
    .create = memfs_create,
    .mkdir = memfs_mkdir,
    .symlink = memfs_symlink,
    .link = memfs_link,
    .unlink = memfs_unlink,
    .rmdir = memfs_rmdir,
    .rename = memfs_rename,
    .readlink = memfs_readlink,
    .setattr = memfs_setattr,
    .getattr = memfs_getattr,
    .open = memfs_open,
    .release = memfs_release,
    .iterate = memfs_iterate,
};
