/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * links - the links of /proc: a task's directories, its program, its descriptors. They lead to what is open, not to a name:
 * what has no name is opened anew all the same. Threads: the kernel lock.
 */
#include <stdio.h>
#include <string.h>

#include "proc.h"

static bool path_of(const struct node *node, struct path *ret)
{
    struct task *task = node_task(node);
    struct file *file = node->fd >= 0 ? node_file(node) : NULL;

    *ret = (struct path){0};
    if (node->fd < 0 && task && node->kind == ENTRY_CWD && task->fs)
        *ret = task->fs->cwd;
    else if (node->fd < 0 && task && node->kind == ENTRY_ROOT && task->fs)
        *ret = task->fs->root;
    else if (node->fd < 0 && task && node->kind == ENTRY_EXE && task->mm)
        file = task->mm->exe;
    if (file)
        *ret = (struct path){.mount = file->mount, .dentry = file->dentry};
    return ret->dentry != NULL;
}

/* Descriptors without a name: one is made up, so that what they are can be opened anew. */
static int follow_nameless(const struct node *node, struct path *ret)
{
    struct file *file = node->fd >= 0 ? node_file(node) : NULL;

    if (!file || !file->inode)
        return -ENOENT;
    ret->dentry = dentry_detached(NULL, "", file->inode);
    if (!ret->dentry)
        return -ENOMEM;
    inode_get(file->inode);
    ret->mount = root_mount;
    mount_get(root_mount);
    return 0;
}

int tree_follow(struct inode *inode, struct path *ret)
{
    const struct node *node = inode->data;

    if (node->fd < 0 && node->kind == ENTRY_LINK)
        return -ENOSYS;
    if (node->fd < 0 && node->kind == ENTRY_NAMESPACE)
        return -EACCES;
    if (!node_may_look(node))
        return -EACCES;
    if (!path_of(node, ret))
        return follow_nameless(node, ret);
    path_get(ret);
    return 0;
}

static int64_t nameless(const struct node *node, char *buffer, size_t size)
{
    struct file *file = node->fd >= 0 ? node_file(node) : NULL;

    if (!file)
        return -ENOENT;
    if (file->inode && S_ISSOCK(file->inode->mode))
        return snprintf(buffer, size, "socket:[%llu]", (unsigned long long)file->inode->number);
    return ipc_link_name(file, buffer, size);
}

int64_t tree_readlink(struct inode *inode, char *buffer, size_t size)
{
    const struct node *node = inode->data;
    const struct entry *entry = node_entry(node);
    struct text text = {0};
    struct path path;
    int64_t n;

    if (node->fd < 0 && (node->kind == ENTRY_LINK || node->kind == ENTRY_NAMESPACE)) {
        if (entry->fixed)
            text_bytes(&text, entry->fixed, strlen(entry->fixed));
        else
            entry->make(&text, node);
        n = (int64_t)(text.length < size ? text.length : size);
        if (text.bytes)
            memcpy(buffer, text.bytes, (size_t)n);
        arena_free(text.bytes);
        return n;
    }
    if (!node_may_look(node))
        return -EACCES;
    if (path_of(node, &path))
        return path_name(&path, buffer, size);
    return nameless(node, buffer, size);
}
