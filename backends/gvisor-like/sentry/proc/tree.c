/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * tree - the directories of /proc, /sys and /sys/fs/cgroup: lookups and listings, from the tables.
 *
 * Nothing is remembered: names come from the tables and from the tasks and descriptors that there are. A node of a task that
 * has ended leads to nothing any more (its start time is part of it).
 * Threads: the kernel lock.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

#include "proc.h"

#define POSITION_FIRST 2      /* after the dots */
#define POSITION_MORE 0x10000 /* tasks and descriptors: this and their number */

static const struct entry *table_of(unsigned tree, unsigned *ret_n)
{
    switch ((enum tree)tree) {
    case TREE_PROC:
        *ret_n = n_tree_proc;
        return tree_proc;
    case TREE_TASK:
        *ret_n = n_tree_task;
        return tree_task;
    case TREE_SYS:
        *ret_n = n_tree_sys;
        return tree_sys;
    case TREE_CGROUP:
        *ret_n = n_tree_cgroup;
        return tree_cgroup;
    case TREES:
        break;
    }
    *ret_n = 0;
    return NULL;
}

const struct entry *node_entry(const struct node *node)
{
    unsigned n;
    const struct entry *entries = table_of(node->tree, &n);

    if (node->index >= n)
        kpanic("proc: entry %u of tree %d, which has %u", (unsigned)node->index, (int)node->tree,
               n);
    return &entries[node->index];
}

static bool is_whole(const struct node *node)
{
    return node->length == strlen(node_entry(node)->path);
}

struct task *node_task(const struct node *node)
{
    struct task *task = node->of_task ? task_by_tid(node->tid) : NULL;
    struct process *process = node->of_task ? NULL : process_by_pid(node->tid);

    if (process)
        task = process->leader;
    return task && task->start_time == node->start_time ? task : NULL;
}

struct file *node_file(const struct node *node)
{
    struct task *task = node_task(node);
    struct file *file;

    if (!task || !task->files || fdtable_next(task->files, node->fd, &file, NULL) != node->fd)
        return NULL;
    return file;
}

/* ---- inodes ---- */

static uint64_t number_of(const struct node *node)
{
    uint64_t h = node->tree + 1u;

    h = h * 1000003 + node->index;
    h = h * 1000003 + node->length;
    h = h * 1000003 + (uint32_t)node->tid * 2u + node->of_task;
    h = h * 1000003 + (uint32_t)node->fd;
    return (h & 0xffffffff) | 0x100000000ull;
}

static uint32_t mode_of(const struct node *node)
{
    const struct entry *entry = node_entry(node);

    if (node->fd >= 0)
        return node->kind == ENTRY_FDS ? S_IFLNK | 0700 : S_IFREG | 0444;
    if (!is_whole(node))
        return S_IFDIR | 0555;
    switch ((enum entry_kind)entry->kind) {
    case ENTRY_TEXT:
    case ENTRY_MEMORY:
        return S_IFREG | entry->mode;
    case ENTRY_FDS:
        return S_IFDIR | 0500;
    case ENTRY_FDINFO:
    case ENTRY_TASKS:
        return S_IFDIR | 0555;
    case ENTRY_LINK:
    case ENTRY_EXE:
    case ENTRY_CWD:
    case ENTRY_ROOT:
    case ENTRY_NAMESPACE:
        break;
    }
    return S_IFLNK | 0777;
}

static uint32_t fd_mode(const struct node *node)
{
    struct file *file = node_file(node);
    uint32_t mode = S_IFLNK;

    if (file && file->mode & FMODE_READ)
        mode |= 0500;
    if (file && file->mode & FMODE_WRITE)
        mode |= 0300;
    return mode;
}

static struct inode *inode_of(const struct node *node, const struct inode *directory)
{
    uint32_t mode = node->fd >= 0 && node->kind == ENTRY_FDS ? fd_mode(node) : mode_of(node);
    struct inode *inode = inode_new(node->tree < TREE_SYS ? INODE_PROC : INODE_SYS, mode);
    struct node *own = inode ? arena_alloc(ARENA_BYTES, sizeof(*own)) : NULL;
    struct task *task = node->tree == TREE_TASK ? node_task(node) : NULL;

    if (!own) {
        inode_put(inode);
        return NULL;
    }
    *own = *node;
    inode->data = own;
    inode->number = number_of(node);
    inode->device = directory ? directory->device : fs_state->next_device++;
    inode->uid = task && task->mm && task->mm->dumpable == 1 ? task->cred->euid : 0;
    inode->gid = task && task->mm && task->mm->dumpable == 1 ? task->cred->egid : 0;
    inode->links = S_ISDIR(mode) ? 2 : 1;
    return inode;
}

static void tree_release(struct inode *inode)
{
    arena_free(inode->data);
    inode->data = NULL;
}

/* ---- lookup ---- */

/* A number without sign and leading zeros; -1. */
static int32_t number(const char *name, size_t length)
{
    int64_t n = 0;
    size_t i;

    if (!length || length > 9 || (name[0] == '0' && length > 1))
        return -1;
    for (i = 0; i < length; i++) {
        if (name[i] < '0' || name[i] > '9')
            return -1;
        n = n * 10 + name[i] - '0';
    }
    return (int32_t)n;
}

static int task_node(int32_t tid, bool of_task, struct node *ret)
{
    struct process *process = of_task ? NULL : process_by_pid(tid);
    struct task *task = of_task ? task_by_tid(tid) : process ? process->leader : NULL;

    if (!task)
        return -ENOENT;
    *ret = (struct node){.tree = TREE_TASK,
                         .tid = tid,
                         .of_task = of_task,
                         .fd = -1,
                         .start_time = task->start_time};
    return 0;
}

/* In a directory of tasks or descriptors. */
static int lookup_special(const struct node *node, int32_t n, struct node *ret)
{
    struct task *task = node_task(node);

    if (n < 0 || !task)
        return -ENOENT;
    if (node->kind == ENTRY_TASKS) {
        struct task *other = task_by_tid(n);
        return other && other->process == task->process ? task_node(n, true, ret) : -ENOENT;
    }
    *ret = *node;
    ret->fd = n;
    return node_file(ret) ? 0 : -ENOENT;
}

/* The first entry that `name` in the node's directory leads to. */
static int lookup_table(const struct node *node, const char *name, size_t length, struct node *ret)
{
    unsigned n, i;
    const struct entry *table = table_of(node->tree, &n);
    const char *base = table[node->index].path;
    size_t at = node->length ? node->length + 1u : 0;

    for (i = node->length ? node->index : 0; i < n; i++) {
        const char *path = table[i].path;
        if (strncmp(path, base, node->length) != 0 || (at && path[at - 1] != '/'))
            break;
        if (strlen(path) < at + length || memcmp(path + at, name, length) != 0 ||
            (path[at + length] && path[at + length] != '/'))
            continue;
        if (node->of_task && table[i].kind == ENTRY_TASKS)
            return -ENOENT;
        *ret = *node;
        ret->index = i;
        ret->length = (uint16_t)(at + length);
        ret->kind = path[at + length] ? ENTRY_TEXT : table[i].kind;
        return 0;
    }
    return -ENOENT;
}

static int find(const struct node *node, const char *name, size_t length, struct node *ret)
{
    int32_t n = number(name, length);

    if (node->fd >= 0)
        return -ENOENT;
    if (node->kind == ENTRY_TASKS || node->kind == ENTRY_FDS || node->kind == ENTRY_FDINFO)
        return lookup_special(node, n, ret);
    if (node->tree == TREE_TASK && !node_task(node))
        return -ENOENT;
    if (node->tree == TREE_PROC && !node->length && n > 0)
        return task_node(n, !process_by_pid(n), ret);
    return lookup_table(node, name, length, ret);
}

bool node_may_look(const struct node *node)
{
    struct task *task = node_task(node);

    return task && (task->process == current->process || cred_may_look(task));
}

static int tree_lookup(struct dentry *directory, const char *name, size_t length,
                       struct dentry **ret_dentry)
{
    const struct node *node = directory->inode->data;
    struct inode *inode = NULL;
    struct node child;
    int error;

    *ret_dentry = dentry_find(directory, name, length);
    if (*ret_dentry)
        return 0;
    if (node->kind == ENTRY_FDS && !node_may_look(node))
        return -EACCES;
    error = find(node, name, length, &child);
    if (error && error != -ENOENT)
        return error;
    if (!error && !(inode = inode_of(&child, directory->inode)))
        return -ENOMEM;
    *ret_dentry = dentry_new(directory, name, length, inode);
    if (*ret_dentry)
        return 0;
    if (inode)
        inode_put(inode);
    return -ENOMEM;
}

/* ---- listings ---- */

static uint8_t type_of(const struct node *node)
{
    return (uint8_t)(mode_of(node) >> 12);
}

static bool emit(struct file *file, struct dir_context *context, const char *name, size_t length,
                 const struct node *child, int64_t next)
{
    if (!dir_emit(context, name, length, number_of(child), type_of(child), next))
        return false;
    file->position = next;
    return true;
}

/* Names of the table: false when there is no more room. Positions are the entries' indices. */
static bool iterate_table(struct file *file, struct dir_context *context, const struct node *node)
{
    unsigned n, i = (unsigned)(file->position - POSITION_FIRST), first;
    const struct entry *table = table_of(node->tree, &n);
    const char *base = table[node->index].path, *name;
    size_t at = node->length ? node->length + 1u : 0, length;
    struct node child;

    first = node->length ? node->index : 0;
    for (i = i < first ? first : i; i < n; i++) {
        name = table[i].path + at;
        if (strncmp(table[i].path, base, node->length) != 0 || (at && name[-1] != '/'))
            break;
        length = strcspn(name, "/");
        if (i > first && !strncmp(table[i - 1].path, table[i].path, at + length) &&
            (!table[i - 1].path[at + length] || table[i - 1].path[at + length] == '/'))
            continue;
        if (find(node, name, length, &child) == 0 &&
            !emit(file, context, name, length, &child, POSITION_FIRST + i + 1))
            return false;
    }
    file->position = POSITION_MORE;
    return true;
}

static bool emit_number(struct file *file, struct dir_context *context, const struct node *node,
                        int32_t n)
{
    struct node child;
    char name[16];
    int length = snprintf(name, sizeof(name), "%d", n);

    if (find(node, name, (size_t)length, &child) < 0) { /* it has ended */
        file->position = POSITION_MORE + (int64_t)n + 1;
        return true;
    }
    return emit(file, context, name, (size_t)length, &child, POSITION_MORE + (int64_t)n + 1);
}

/* The next task's or process' number from n on, -1. */
static int32_t next_task(const struct node *node, int32_t n)
{
    struct task *owner = node->tree == TREE_TASK ? node_task(node) : NULL, *task;
    struct process *process;
    int32_t best = -1;

    if (owner) {
        TAILQ_FOREACH(task, &owner->process->tasks, process_link)
        if (task->tid >= n && (best < 0 || task->tid < best))
            best = task->tid;
    } else if (node->tree == TREE_PROC) {
        TAILQ_FOREACH(process, all_processes, link)
        if (process->pid >= n && process->state != PROCESS_DEAD &&
            (best < 0 || process->pid < best))
            best = process->pid;
    }
    return best;
}

static int32_t next_fd(const struct node *node, int32_t n)
{
    struct task *task = node_task(node);
    struct file *file;

    return task && task->files ? fdtable_next(task->files, n, &file, NULL) : -1;
}

static int tree_iterate(struct file *file, struct dir_context *context)
{
    const struct node *node = file->inode->data;
    bool special =
        node->kind == ENTRY_TASKS || node->kind == ENTRY_FDS || node->kind == ENTRY_FDINFO;
    int32_t n;

    if (node->kind == ENTRY_FDS && !node_may_look(node))
        return -EACCES;
    if (special && file->position < POSITION_MORE)
        file->position = POSITION_MORE;
    if (file->position < POSITION_MORE && !iterate_table(file, context, node))
        return 0;
    if (!special && (node->tree != TREE_PROC || node->length))
        return 0;
    for (;;) {
        n = (int32_t)(file->position - POSITION_MORE);
        n = node->kind == ENTRY_FDS || node->kind == ENTRY_FDINFO ? next_fd(node, n)
                                                                  : next_task(node, n);
        if (n < 0 || !emit_number(file, context, node, n))
            return 0;
    }
}

/* ---- files ---- */

static int tree_open(struct inode *inode, struct file *file)
{
    const struct node *node = inode->data;
    const struct entry *entry = node_entry(node);

    if (file->kind != FILE_PROC)
        return 0;
    if (node->tree == TREE_TASK && !node_task(node))
        return -ESRCH;
    if (node->fd < 0 && entry->secret && !node_may_look(node))
        return -EACCES;
    if (node->fd < 0 && entry->kind == ENTRY_MEMORY)
        return file->mode & FMODE_WRITE ? -EACCES : 0;
    file->data = arena_alloc(ARENA_BYTES, sizeof(struct text));
    return file->data ? 0 : -ENOMEM;
}

/* Owner and mode are what they are; a file that can be written may be "truncated". */
static int tree_setattr(struct inode *inode, const struct setattr *change)
{
    (void)inode;
    return change->valid & (SETATTR_MODE | SETATTR_UID | SETATTR_GID) ? -EPERM : 0;
}

const struct inode_ops inode_ops_proc = {
    .lookup = tree_lookup,
    .readlink = tree_readlink,
    .follow = tree_follow,
    .setattr = tree_setattr,
    .open = tree_open,
    .release = tree_release,
    .iterate = tree_iterate,
};

const struct inode_ops inode_ops_sys = {
    .lookup = tree_lookup,
    .readlink = tree_readlink,
    .follow = tree_follow,
    .setattr = tree_setattr,
    .open = tree_open,
    .release = tree_release,
    .iterate = tree_iterate,
};

/* ---- mounts ---- */

static int mount_tree(enum tree tree, const char *type, const char *target, uint32_t flags)
{
    const struct node node = {.tree = (uint8_t)tree, .fd = -1};
    struct inode *inode = inode_of(&node, NULL);
    struct dentry *root = inode ? dentry_root(inode) : NULL;

    if (!root)
        return -ENOMEM;
    return mount_at(type, type, target, flags, root, NULL);
}

int proc_setup(const char *target);
int proc_setup(const char *target)
{
    return mount_tree(TREE_PROC, "proc", target, MS_NOSUID | MS_NODEV | MS_NOEXEC);
}

int sysfs_setup(const char *target);
int sysfs_setup(const char *target)
{
    int error = mount_tree(TREE_SYS, "sysfs", target, MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC);

    return error ? error
                 : mount_tree(TREE_CGROUP, "cgroup2", "/sys/fs/cgroup",
                              MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC);
}
