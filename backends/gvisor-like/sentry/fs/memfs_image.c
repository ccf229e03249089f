/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * memfs_image - what a memfs has of the image behind the gofer: names, links, contents, asked for once.
 *
 * The image is never written, so an answer is true for ever, "no such name" too. A directory that is read is completed:
 * each of its names is a dentry then, most without an inode (unresolved) until somebody walks there. Inodes with several
 * names in the image are in a table by number, so that the names lead to the same one.
 * When descriptors run out (the gofer's or ours) names that nobody uses are given back, then contents get pages of their own
 * instead of a descriptor (mm/backing.c), and it is tried again.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <string.h>

#define GIVE_BACK (1ull << 20)

bool fs_free_descriptors(void)
{
    return fs_shrink(GIVE_BACK) > 0 || objects_let_go() > 0;
}

static bool out_of_descriptors(int64_t error)
{
    return (error == -EMFILE || error == -ENFILE) && fs_free_descriptors();
}

/* ---- inodes ---- */

static struct inode *image_inode(const struct memfs *memfs, uint64_t number)
{
    struct inode *inode;

    if (memfs->image)
        TAILQ_FOREACH(inode, &memfs->image[number % MEMFS_BUCKETS], image)
    if (inode->number == number)
        return inode;
    return NULL;
}

/* Takes the handle over, also when it fails. */
int memfs_from_image(struct memfs *memfs, uint32_t handle, const struct gofer_attr *attr,
                     struct inode **ret_inode)
{
    struct inode *inode =
        attr->links > 1 && !S_ISDIR(attr->mode) ? image_inode(memfs, attr->number) : NULL;

    if (inode) {
        gofer_close(handle);
        inode_get(inode);
        *ret_inode = inode;
        return 0;
    }
    inode = memfs_inode(memfs, attr->mode);
    if (!inode) {
        gofer_close(handle);
        return -ENOMEM;
    }
    inode->gofer = handle;
    inode->uid = attr->uid;
    inode->gid = attr->gid;
    inode->links = attr->links;
    inode->number = attr->number;
    inode->size = attr->size;
    inode->rdev = attr->rdev;
    inode->accessed = attr->accessed;
    inode->modified = attr->modified;
    inode->changed = inode->born = attr->changed;
    if (attr->links > 1 && !S_ISDIR(attr->mode) && memfs->image) {
        TAILQ_INSERT_HEAD(&memfs->image[attr->number % MEMFS_BUCKETS], inode, image);
        inode->flags |= INODE_HASHED;
    }
    *ret_inode = inode;
    return 0;
}

void memfs_keep(struct inode *inode)
{
    if (!(inode->flags & INODE_HASHED) || inode->flags & INODE_KEPT)
        return;
    inode->flags |= INODE_KEPT;
    inode_get(inode);
}

void memfs_unkeep(struct inode *inode)
{
    if (!(inode->flags & INODE_KEPT))
        return;
    inode->flags &= ~INODE_KEPT;
    inode_put(inode);
}

/* ---- names ---- */

/* The inode of a name of the image; -ENOENT: it has none. */
static int walk_image(struct dentry *directory, const char *name, size_t length,
                      struct inode **ret_inode)
{
    struct gofer_attr attr;
    uint32_t handle;
    int error;

    do
        error = gofer_walk(directory->inode->gofer, name, length, &handle, &attr);
    while (out_of_descriptors(error));
    return error ? error : memfs_from_image(directory->inode->super, handle, &attr, ret_inode);
}

static int resolve(struct dentry *directory, struct dentry *dentry)
{
    struct inode *inode;
    int error = walk_image(directory, dentry->name, dentry->length, &inode);

    if (error)
        return error;
    dentry->inode = inode;
    dentry->unresolved = false;
    return 0;
}

int memfs_lookup(struct dentry *directory, const char *name, size_t length,
                 struct dentry **ret_dentry)
{
    struct dentry *dentry = dentry_find(directory, name, length);
    struct inode *inode = NULL;
    int error = 0;

    if (dentry) {
        error = dentry->unresolved ? resolve(directory, dentry) : 0;
        if (error)
            dentry_put(dentry);
        else
            *ret_dentry = dentry;
        return error;
    }
    if (directory->inode->gofer && !directory->inode->dir_complete)
        error = walk_image(directory, name, length, &inode);
    if (error && error != -ENOENT)
        return error;
    dentry = dentry_new(directory, name, length, inode);
    if (!dentry) {
        inode_put(inode);
        return -ENOMEM;
    }
    dentry->in_image = inode != NULL;
    *ret_dentry = dentry;
    return 0;
}

struct completion {
    struct dentry *directory, *before;
    uint64_t position;
    int error;
};

static void one_name(void *ctx, const char *name, size_t length, uint64_t number, uint8_t type)
{
    struct completion *c = ctx;
    struct dentry *dentry;

    c->position++;
    if (c->error || !length || length > NAME_MAX || memchr(name, '/', length) ||
        (length <= 2 && !memcmp(name, "..", length)))
        return;
    dentry = dentry_find(c->directory, name, length);
    if (!dentry) {
        dentry = dentry_new(c->directory, name, length, NULL);
        if (!dentry) {
            c->error = -ENOMEM;
            return;
        }
        dentry->unresolved = dentry->in_image = true;
        dentry->type = type;
        dentry->number = number;
    }
    if (!dentry->cookie && (dentry->inode || dentry->unresolved))
        dentry_place(dentry, c->before, c->position);
    if (dentry->cookie == c->position)
        c->before = dentry;
    dentry_put(dentry); /* it stays: the directory's memory is not taken back meanwhile */
}

int memfs_complete(struct dentry *directory)
{
    struct inode *inode = directory->inode;
    struct completion c = {.directory = directory};
    uint64_t cookie = 0;
    int error;

    if (!inode->gofer || inode->dir_complete)
        return 0;
    fs_state->hold++;
    do
        error = gofer_readdir(inode->gofer, &cookie, one_name, &c);
    while (error > 0 && !c.error);
    fs_state->hold--;
    if (error < 0 || c.error)
        return error < 0 ? error : c.error;
    inode->dir_complete = 1;
    return 0;
}

int memfs_iterate(struct file *file, struct dir_context *context)
{
    struct dentry *dentry;
    int error = memfs_complete(file->dentry);

    if (error)
        return error;
    if (!file->inode->links)
        return 0;
    TAILQ_FOREACH(dentry, &file->inode->children, siblings)
    {
        const struct inode *inode = dentry->inode;

        if ((!inode && !dentry->unresolved) || (int64_t)dentry->cookie + 1 < file->position)
            continue;
        if (!dir_emit(context, dentry->name, dentry->length, inode ? inode->number : dentry->number,
                      inode ? (uint8_t)(inode->mode >> 12) : dentry->type,
                      (int64_t)dentry->cookie + 2))
            return 0;
        file->position = (int64_t)dentry->cookie + 2;
    }
    return 0;
}

/* ---- handles ---- */

bool memfs_of_image(const struct inode *inode)
{
    return inode->gofer || inode->origin;
}

static void forget_origin(struct inode *inode)
{
    struct inode *origin = inode->origin;

    arena_free(inode->origin_name);
    inode->origin_name = NULL;
    inode->origin = NULL;
    inode_put(origin);
}

int memfs_handle(struct inode *inode)
{
    struct gofer_attr attr;
    uint32_t handle;
    int error;

    if (inode->gofer)
        return 0;
    do
        error = gofer_walk(inode->origin->gofer, inode->origin_name, strlen(inode->origin_name),
                           &handle, &attr);
    while (out_of_descriptors(error));
    if (error)
        return error;
    inode->gofer = handle;
    forget_origin(inode);
    return 0;
}

/* Its content is what the image has: no page of it was written, and nobody has it open or mapped. */
static bool content_untouched(const struct inode *inode)
{
    const struct object *object = inode->object;

    return object && object->refs == 1 && object->host_fd >= 0 && !object->resident &&
           object->backed == object->size && inode->refs == 1;
}

uint64_t memfs_thin(struct dentry *dentry)
{
    struct inode *inode = dentry->inode;
    uint64_t given = 0;

    if (!inode || inode->kind != INODE_MEMFS || !(S_ISREG(inode->mode) || S_ISLNK(inode->mode)) ||
        !inode->gofer || !dentry->in_image || dentry->pinned)
        return 0;
    inode->origin_name = arena_strdup(dentry->name, dentry->length);
    if (!inode->origin_name)
        return 0;
    inode->origin = dentry->parent->inode;
    inode_get(inode->origin);
    gofer_close(inode->gofer);
    inode->gofer = 0;
    if (content_untouched(inode)) {
        inode->size = inode->object->size;
        object_put(inode->object);
        inode->object = NULL;
    }
    given = sizeof(*inode);
    return given;
}

/* ---- contents ---- */

int64_t memfs_readlink(struct inode *inode, char *buffer, size_t size)
{
    char text[PATH_MAX];
    int64_t length;

    if (!inode->data) {
        length = memfs_handle(inode);
        if (length)
            return length;
        length = gofer_readlink(inode->gofer, text, sizeof(text));
        if (length < 0)
            return length;
        inode->data = arena_strdup(text, (size_t)length);
        if (!inode->data)
            return -ENOMEM;
        inode->size = (uint64_t)length;
    }
    length = (int64_t)strlen(inode->data);
    if ((uint64_t)length > size)
        length = (int64_t)size;
    memcpy(buffer, inode->data, (size_t)length);
    return length;
}

int memfs_object(struct inode *inode)
{
    int error, host_fd = -1;

    if (inode->object)
        return 0;
    if (memfs_of_image(inode) && inode->size) {
        error = memfs_handle(inode);
        if (error)
            return error;
        do
            error = gofer_open(inode->gofer, &host_fd);
        while (out_of_descriptors(error));
        if (error)
            return error;
        inode->object = object_new_backed(host_fd, inode->size);
    } else {
        inode->object = object_new(inode->size);
    }
    if (!inode->object)
        return -ENOMEM;
    inode->object->account = &inode->super->account;
    return 0;
}
