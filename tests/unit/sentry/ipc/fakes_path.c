/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* fakes_path - names of sockets and FIFOs: a list, without directories. */
#include <stdlib.h>
#include <string.h>

#include "fakes.h"
#include "fs/vfs.h"

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
    while (names[i])
        i++;
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

int inode_permission(struct inode *inode, int may)
{
    (void)inode;
    (void)may;
    return 0;
}
