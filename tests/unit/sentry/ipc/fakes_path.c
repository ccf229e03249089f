/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* fakes_path - names of sockets and FIFOs: a list, without directories. */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "fakes.h"
#include "fs/vfs.h"
#include "ipc/ipc.h"

static struct dentry *names[64];
static struct mount mount;

static int find(const char *name)
{
    int i;

    for (i = 0; i < 64; i++)
        if (names[i] && !strcmp(names[i]->name, name))
            return i;
    return -1;
}

int vfs_mknod(int dirfd, const char *name, uint32_t mode, uint64_t rdev, struct path *ret_path)
{
    int i = 0;

    (void)dirfd;
    (void)rdev;
    if (find(name) >= 0)
        return -EEXIST;
    while (i < 64 && names[i])
        i++;
    if (i == 64)
        return -ENOSPC;
    names[i] = calloc(1, sizeof(*names[i]));
    names[i]->name = strdup(name);
    names[i]->refs = 1;
    names[i]->inode = inode_new(INODE_MEMFS, mode);
    if (!ret_path)
        return 0;
    *ret_path = (struct path){&mount, names[i]};
    names[i]->refs++;
    return 0;
}

int path_lookup(int dirfd, const char *name, unsigned flags, struct path *ret_path)
{
    int i = find(name);

    (void)dirfd;
    (void)flags;
    if (i < 0)
        return -ENOENT;
    *ret_path = (struct path){&mount, names[i]};
    names[i]->refs++;
    return 0;
}

int path_lookup_guest(int dirfd, uint64_t guest, unsigned flags, struct path *ret_path)
{
    return path_lookup(dirfd, (const char *)guest, flags, ret_path);
}

void path_put(struct path *path)
{
    if (--path->dentry->refs)
        return;
    inode_put(path->dentry->inode);
    free(path->dentry->name);
    free(path->dentry);
}

int64_t fake_unlink(const char *name)
{
    int i = find(name);
    struct path path;

    if (i < 0)
        return -ENOENT;
    path = (struct path){&mount, names[i]};
    names[i] = NULL;
    path_put(&path);
    return 0;
}

void fake_forget_names(void)
{
    int i;

    for (i = 0; i < 64; i++)
        if (names[i])
            fake_unlink(names[i]->name);
}

int inode_permission(struct inode *inode, int may)
{
    (void)inode;
    (void)may;
    return 0;
}

/* Terminals, by their numbers. */
int64_t fake_open(const char *name, uint32_t flags)
{
    struct file *file = file_new(FILE_NULL, flags);
    unsigned n = 0;
    int64_t r;

    file->inode = inode_new(INODE_MEMFS, S_IFCHR | 0666);
    if (!strcmp(name, "/dev/ptmx"))
        file->inode->rdev = makedev(5, 2);
    else if (sscanf(name, "/dev/pts/%u", &n) == 1)
        file->inode->rdev = makedev(136, n);
    else
        file->inode->rdev = makedev(5, 0);
    r = tty_open(file->inode, file);
    if (r == 0)
        return fd_install(file, 0, 0);
    file->kind = FILE_NULL;
    file_put(file);
    return r;
}

/* ---- of /dev/pts: never asked, for the tests do not mount it ---- */

struct memfs *memfs_new(uint64_t limit, uint64_t max_inodes, bool image)
{
    (void)limit;
    (void)max_inodes;
    (void)image;
    return NULL;
}

void memfs_put(struct memfs *memfs)
{
    (void)memfs;
}

struct inode *memfs_inode(struct memfs *memfs, uint32_t mode)
{
    (void)memfs;
    (void)mode;
    return NULL;
}

struct dentry *dentry_root(struct inode *inode)
{
    (void)inode;
    return NULL;
}

struct dentry *dentry_new(struct dentry *parent, const char *name, size_t length,
                          struct inode *inode)
{
    (void)parent;
    (void)name;
    (void)length;
    (void)inode;
    return NULL;
}

struct dentry *dentry_find(struct dentry *parent, const char *name, size_t length)
{
    return dentry_new(parent, name, length, NULL);
}

void dentry_get(struct dentry *dentry)
{
    (void)dentry;
}

void dentry_put(struct dentry *dentry)
{
    (void)dentry;
}

size_t number_text(char *to, uint64_t number)
{
    (void)to;
    return (size_t)number;
}

int mount_at(const char *type, const char *source, const char *target, uint32_t flags,
             struct dentry *root, struct mount **ret_mount)
{
    (void)type;
    (void)source;
    (void)target;
    (void)flags;
    (void)root;
    (void)ret_mount;
    return -ENOSYS;
}

const struct inode_ops *const inode_ops[INODE_KINDS] = {0};

/* Terminals of these tests are opened by tty_open() alone. */
int open_inode(const struct path *path, struct inode *inode, uint32_t flags, struct file **ret_file)
{
    (void)path;
    (void)inode;
    (void)flags;
    (void)ret_file;
    return -EIO;
}
