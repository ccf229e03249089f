/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * dentry - names in directories, by a table of parent and name; and how memory is taken back from them.
 *
 * A dentry refers to its parent. What nobody refers to stays as long as there is room, for the next walk: in the list of
 * unused ones, the longest unused first. What the guest made or removed is pinned (it refers to itself), for the image
 * knows nothing of it. Names of proc and its like go with their last reference: what they name comes and goes by itself.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <string.h>
#include <sys/inotify.h>

#pragma weak inotify_event

#define UNUSED_MAX 65536u
#define COOKIE_GUEST                                                                               \
    (1ull << 32) /* positions of what the guest made; the image's are below, in its order */

static uint32_t bucket_of(const struct dentry *parent, const char *name, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325ull ^ ((uintptr_t)parent >> 4) * 0x9e3779b97f4a7c15ull;
    size_t i;

    for (i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3ull;
    return (uint32_t)(hash ^ hash >> 29) & (fs_state->n_buckets - 1);
}

static struct dentry **slot_of(const struct dentry *dentry)
{
    return &fs_state->names[bucket_of(dentry->parent, dentry->name, dentry->length)];
}

/* Four times the buckets; when there is no memory for it, chains are longer. */
static void grow(void)
{
    struct dentry **old = fs_state->names, *dentry, *next;
    uint32_t n = fs_state->n_buckets, i;
    struct dentry **larger;

    if (n >= 1u << 20 || !(larger = arena_alloc(ARENA_BYTES, (size_t)n * 4 * sizeof(*larger))))
        return;
    fs_state->names = larger;
    fs_state->n_buckets = n * 4;
    for (i = 0; i < n; i++)
        for (dentry = old[i]; dentry; dentry = next) {
            next = dentry->hash_next;
            dentry->hash_next = *slot_of(dentry);
            *slot_of(dentry) = dentry;
        }
    arena_free(old);
}

static void hash_in(struct dentry *dentry)
{
    if (fs_state->n_names++ > fs_state->n_buckets * 2)
        grow();
    dentry->hash_next = *slot_of(dentry);
    *slot_of(dentry) = dentry;
}

static void hash_out(struct dentry *dentry)
{
    struct dentry **link = slot_of(dentry);

    while (*link && *link != dentry)
        link = &(*link)->hash_next;
    if (*link) {
        *link = dentry->hash_next;
        fs_state->n_names--;
    }
    dentry->hash_next = NULL;
}

static void join(struct dentry *dentry)
{
    struct inode *directory = dentry->parent->inode;

    TAILQ_INSERT_HEAD(&directory->children, dentry, siblings);
    directory->n_children++;
}

static void leave(struct dentry *dentry)
{
    struct inode *directory = dentry->parent->inode;

    TAILQ_REMOVE(&directory->children, dentry, siblings);
    directory->n_children--;
}

struct dentry *dentry_root(struct inode *inode)
{
    struct dentry *dentry = arena_alloc(ARENA_DENTRY, sizeof(*dentry));

    if (!dentry)
        return NULL;
    dentry->name = arena_strdup("/", 1);
    if (!dentry->name) {
        arena_free(dentry);
        return NULL;
    }
    dentry->length = 1;
    dentry->refs = 1;
    dentry->parent = dentry;
    dentry->inode = inode;
    return dentry;
}

/* A dentry that no walk finds: of a file that has no name. */
struct dentry *dentry_detached(struct dentry *parent, const char *name, struct inode *inode)
{
    struct dentry *dentry = dentry_root(inode);

    if (!dentry)
        return NULL;
    arena_free(dentry->name);
    dentry->length = (uint32_t)strlen(name);
    dentry->name = arena_strdup(name, dentry->length);
    if (!dentry->name) {
        arena_free(dentry);
        return NULL;
    }
    if (parent) {
        dentry->parent = parent;
        dentry_get(parent);
    }
    dentry->deleted = true;
    return dentry;
}

/* The reference to the inode is taken over when it succeeds. */
struct dentry *dentry_new(struct dentry *parent, const char *name, size_t length,
                          struct inode *inode)
{
    struct dentry *dentry = arena_alloc(ARENA_DENTRY, sizeof(*dentry));

    if (!dentry)
        return NULL;
    dentry->name = arena_strdup(name, length);
    if (!dentry->name) {
        arena_free(dentry);
        return NULL;
    }
    dentry->length = (uint32_t)length;
    dentry->refs = 1;
    dentry->parent = parent;
    dentry->inode = inode;
    dentry_get(parent);
    hash_in(dentry);
    join(dentry);
    return dentry;
}

struct dentry *dentry_find(struct dentry *parent, const char *name, size_t length)
{
    struct dentry *dentry = fs_state->names[bucket_of(parent, name, length)];

    for (; dentry; dentry = dentry->hash_next)
        if (dentry->parent == parent && dentry->length == length &&
            !memcmp(dentry->name, name, length)) {
            dentry_get(dentry);
            return dentry;
        }
    return NULL;
}

static void unused_remove(struct dentry *dentry)
{
    if (!dentry->on_unused)
        return;
    TAILQ_REMOVE(&fs_state->unused, dentry, unused);
    fs_state->n_unused--;
    dentry->on_unused = false;
}

void dentry_get(struct dentry *dentry)
{
    if (!dentry->refs++)
        unused_remove(dentry);
}

bool dentry_cached_kind(const struct dentry *directory)
{
    return directory->inode && directory->inode->kind == INODE_MEMFS;
}

void dentry_unhash(struct dentry *dentry)
{
    if (dentry->deleted || dentry->parent == dentry)
        return;
    hash_out(dentry);
    leave(dentry);
    dentry->deleted = true;
}

/* Is it worth memory although nobody refers to it? */
static bool worth_keeping(const struct dentry *dentry)
{
    const struct inode *directory = dentry->parent->inode;

    if (dentry->deleted || dentry->parent == dentry || !dentry_cached_kind(dentry->parent))
        return false;
    return dentry->inode || dentry->unresolved || (directory->gofer && !directory->dir_complete);
}

void dentry_tell_gone(struct dentry *dentry)
{
    if (dentry->inode && dentry->inode->watches && !dentry->inode->links)
        inotify_event(dentry->inode, dentry, IN_DELETE_SELF, NULL, 0);
}

/* Frees one without references; its parent may be next. */
static struct dentry *dentry_free(struct dentry *dentry)
{
    struct dentry *parent = dentry->parent == dentry ? NULL : dentry->parent;

    unused_remove(dentry);
    dentry_unhash(dentry);
    dentry_tell_gone(dentry);
    inode_put(dentry->inode);
    arena_free(dentry->name);
    arena_free(dentry);
    return parent;
}

void dentry_put(struct dentry *dentry)
{
    while (dentry && !--dentry->refs) {
        if (worth_keeping(dentry)) {
            TAILQ_INSERT_TAIL(&fs_state->unused, dentry, unused);
            dentry->on_unused = true;
            if (++fs_state->n_unused > UNUSED_MAX && !fs_state->hold)
                fs_shrink(UNUSED_MAX / 8 * sizeof(*dentry));
            return;
        }
        dentry = dentry_free(dentry);
    }
}

void dentry_pin(struct dentry *dentry)
{
    if (dentry->pinned)
        return;
    dentry->pinned = true;
    dentry_get(dentry);
}

void dentry_unpin(struct dentry *dentry)
{
    if (!dentry->pinned)
        return;
    dentry->pinned = false;
    dentry_put(dentry);
}

/* The image says the same of it whenever it is asked again. */
static bool forgettable(const struct dentry *dentry)
{
    const struct inode *inode = dentry->inode;

    return !inode || (inode->gofer && !(inode->flags & INODE_DIRTY) &&
                      (inode->refs == 1 || inode->flags & INODE_HASHED));
}

uint64_t fs_shrink(uint64_t bytes)
{
    struct dentry *dentry, *next;
    uint32_t left = fs_state->n_unused;
    uint64_t given = 0;

    for (dentry = TAILQ_FIRST(&fs_state->unused); dentry && left-- && given < bytes;
         dentry = next) {
        next = TAILQ_NEXT(dentry, unused);
        if (!forgettable(dentry)) {
            unused_remove(dentry); /* it is not looked at again until somebody uses it */
            given += memfs_thin(dentry);
            continue;
        }
        given += sizeof(*dentry) + dentry->length;
        if (dentry->inode)
            given += sizeof(*dentry->inode) +
                     (dentry->inode->object ? dentry->inode->object->resident * PAGE_SIZE : 0);
        if (dentry->in_image)
            dentry->parent->inode->dir_complete = 0;
        dentry_put(dentry_free(dentry));
        next = TAILQ_FIRST(&fs_state->unused); /* its parent may have come into the list */
    }
    return given;
}

bool dentry_is_below(const struct dentry *dentry, const struct dentry *ancestor)
{
    for (;; dentry = dentry->parent) {
        if (dentry == ancestor)
            return true;
        if (dentry->parent == dentry)
            return false;
    }
}

/* The last of its directory, which is where the guest's new names go. */
void dentry_to_end(struct dentry *dentry)
{
    struct inode *directory = dentry->parent->inode;

    TAILQ_REMOVE(&directory->children, dentry, siblings);
    dentry->cookie = COOKIE_GUEST + ++directory->cookies;
    TAILQ_INSERT_TAIL(&directory->children, dentry, siblings);
}

/* The `position`th name of the image, after the one before it (NULL: the first). */
void dentry_place(struct dentry *dentry, struct dentry *before, uint64_t position)
{
    struct inode *directory = dentry->parent->inode;
    struct dentry *first;

    dentry->cookie = position;
    TAILQ_REMOVE(&directory->children, dentry, siblings);
    if (before) {
        TAILQ_INSERT_AFTER(&directory->children, before, dentry, siblings);
        return;
    }
    first = TAILQ_FIRST(&directory->children);
    while (first && !first->cookie) /* those whose place is not known are at the head */
        first = TAILQ_NEXT(first, siblings);
    if (first)
        TAILQ_INSERT_BEFORE(first, dentry, siblings);
    else
        TAILQ_INSERT_TAIL(&directory->children, dentry, siblings);
}

/* Becomes directory/name, which no dentry is at. Its place in the directory is the last. */
int dentry_rename(struct dentry *dentry, struct dentry *directory, const char *name, size_t length)
{
    struct dentry *old = dentry->parent;
    char *text = arena_strdup(name, length);

    if (!text)
        return -ENOMEM;
    hash_out(dentry);
    leave(dentry);
    arena_free(dentry->name);
    dentry->name = text;
    dentry->length = (uint32_t)length;
    dentry->parent = directory;
    dentry_get(directory);
    hash_in(dentry);
    join(dentry);
    dentry_to_end(dentry);
    dentry_put(old);
    return 0;
}

/* The two change places; no reference is made or dropped but the parents', which change places, too. */
int dentry_exchange(struct dentry *a, struct dentry *b)
{
    struct dentry *parent = a->parent;
    uint32_t length = a->length;
    char *name = a->name;
    bool in_image = a->in_image;

    hash_out(a);
    hash_out(b);
    leave(a);
    leave(b);
    a->name = b->name;
    a->length = b->length;
    a->parent = b->parent;
    a->in_image = b->in_image;
    b->name = name;
    b->length = length;
    b->parent = parent;
    b->in_image = in_image;
    hash_in(a);
    hash_in(b);
    join(a);
    join(b);
    dentry_to_end(a);
    dentry_to_end(b);
    return 0;
}
