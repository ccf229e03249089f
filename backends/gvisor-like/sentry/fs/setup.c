/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * setup - the file systems a cell begins with: the image as root, /dev, /proc, /sys, /dev/shm, what the class asks for.
 *
 * Runs once, before there is a task of the guest: a task made here, with the rights of root, walks the names.
 * What a mount point needs is made in memory where the image lacks it.
 * Threads: the one that sets up, with the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>

#define BYTES_FOR_A_NAME                                                                           \
    8192u /* of the cell's memory for each name the guest may make, as tmpfs has it */

/* ---- a task of the kernel's own ---- */

struct setup {
    struct task task, *before;
    struct cred cred;
    struct process process;
};

static void setup_begin(struct setup *setup)
{
    *setup = (struct setup){.before = current};
    setup->cred.refs = 1;
    setup->cred.cap_effective = setup->cred.cap_permitted = ~0ull;
    setup->task.cred = &setup->cred;
    setup->task.process = &setup->process;
    current = &setup->task;
}

static void setup_end(struct setup *setup)
{
    fsctx_put(setup->task.fs);
    current = setup->before;
}

/* ---- pieces ---- */

static uint64_t names_limit(void)
{
    return memfile_limit() / BYTES_FOR_A_NAME;
}

static int make_name(const char *name, uint32_t mode, uint64_t rdev)
{
    struct walk walk;
    struct dentry *child;
    int error = walk_begin(&walk, AT_FDCWD, name, 0, 0);

    if (!error)
        error = walk_parent(&walk);
    if (!error)
        error = walk.kind == LAST_NAME ? walk_child(&walk, &child) : -EEXIST;
    if (!error) {
        const struct inode_ops *ops = inode_ops[walk.at.dentry->inode->kind];

        if (child->inode)
            error = -EEXIST;
        else if (S_ISDIR(mode))
            error = ops->mkdir ? ops->mkdir(walk.at.dentry, child, mode & 07777) : -EPERM;
        else
            error = ops->create ? ops->create(walk.at.dentry, child, mode, rdev) : -EPERM;
        dentry_put(child);
    }
    walk_end(&walk);
    return error == -EEXIST ? 0 : error;
}

/* The directories of a name, as far as they are missing: a read-only root is so for the guest only. */
static int make_directories(const char *name)
{
    char text[PATH_MAX];
    size_t i, length = strlen(name);
    int error = 0;

    if (length >= sizeof(text))
        return -ENAMETOOLONG;
    memcpy(text, name, length + 1);
    for (i = 1; i <= length && !error; i++)
        if (text[i] == '/' || !text[i]) {
            text[i] = '\0';
            error = make_name(text, S_IFDIR | 0755, 0);
            text[i] = name[i];
        }
    return error;
}

static int make_symlink(const char *name, const char *target)
{
    struct walk walk;
    struct dentry *child;
    int error = walk_begin(&walk, AT_FDCWD, name, 0, 0);

    if (!error)
        error = walk_parent(&walk);
    if (!error)
        error = walk_child(&walk, &child);
    if (!error) {
        if (!child->inode)
            error = inode_ops[INODE_MEMFS]->symlink(walk.at.dentry, child, target);
        dentry_put(child);
    }
    walk_end(&walk);
    return error;
}

static int mount_memory(const char *target, uint32_t mode, uint64_t size, uint64_t inodes,
                        uint32_t flags)
{
    struct memfs *memfs = memfs_new(size, inodes, false);
    struct inode *inode = memfs ? memfs_inode(memfs, S_IFDIR | mode) : NULL;
    struct dentry *root = inode ? dentry_root(inode) : NULL;
    int error = make_directories(target);

    memfs_put(memfs);
    if (!root)
        return -ENOMEM;
    inode->dir_complete = 1;
    return error ? error : mount_at("tmpfs", "tmpfs", target, flags, root, NULL);
}

/* ---- root ---- */

static int mount_root(uint32_t gofer_root, const struct gofer_attr *attr, bool readonly_root,
                      uint64_t disk_limit)
{
    struct memfs *memfs = memfs_new(disk_limit, names_limit(), gofer_root != 0);
    struct dentry *root;
    struct inode *inode;
    int error;

    if (!memfs)
        return -ENOMEM;
    fs_state->root = memfs;
    if (gofer_root) {
        error = memfs_from_image(memfs, gofer_root, attr, &inode);
        if (error)
            return error;
    } else {
        inode = memfs_inode(memfs, S_IFDIR | 0755);
        if (!inode)
            return -ENOMEM;
        inode->dir_complete = 1;
    }
    root = dentry_root(inode);
    if (!root)
        return -ENOMEM;
    return mount_at(gofer_root ? "cella" : "tmpfs", "cella", NULL, readonly_root ? MS_RDONLY : 0,
                    root, &root_mount);
}

/* ---- /dev ---- */

static const struct {
    const char *name;
    unsigned major, minor;
} nodes[] = {
    {"/dev/null", 1, 3},    {"/dev/zero", 1, 5}, {"/dev/full", 1, 7},    {"/dev/random", 1, 8},
    {"/dev/urandom", 1, 9}, {"/dev/tty", 5, 0},  {"/dev/console", 5, 1},
};

static const struct {
    const char *name, *target;
} links[] = {
    {"/dev/fd", "/proc/self/fd"},       {"/dev/stdin", "/proc/self/fd/0"},
    {"/dev/stdout", "/proc/self/fd/1"}, {"/dev/stderr", "/proc/self/fd/2"},
    {"/dev/ptmx", "pts/ptmx"},          {"/dev/core", "/proc/kcore"},
};

static int setup_dev(uint64_t disk_limit)
{
    uint64_t shared =
        memfile_limit() / 2; /* as Linux's tmpfs; and not a way around the disk's limit */

    int error = mount_memory("/dev", 0755, 1 << 20, 4096, MS_NOSUID);
    size_t i;

    for (i = 0; i < sizeof(nodes) / sizeof(nodes[0]) && !error; i++)
        error = make_name(nodes[i].name, S_IFCHR | (nodes[i].minor == 1 ? 0620 : 0666),
                          makedev(nodes[i].major, nodes[i].minor));
    for (i = 0; i < sizeof(links) / sizeof(links[0]) && !error; i++)
        error = make_symlink(links[i].name, links[i].target);
    if (!error)
        error = make_directories("/dev/pts");
    if (!error)
        error =
            mount_memory("/dev/shm", 01777, disk_limit && disk_limit < shared ? disk_limit : shared,
                         names_limit() / 4, MS_NOSUID | MS_NODEV);
    return error;
}

/* ---- file systems of other rooms: each mounts itself where it is told ---- */

int proc_setup(const char *target) __attribute__((weak));
int sysfs_setup(const char *target) __attribute__((weak));
int devpts_setup(const char *target) __attribute__((weak));

static int setup_other(int (*setup)(const char *), const char *target)
{
    int error = make_directories(target);

    return error || !setup ? error : setup(target);
}

int fs_setup(uint32_t gofer_root, const struct gofer_attr *attr, bool readonly_root,
             uint64_t disk_limit, const struct fs_mount *mounts, unsigned n_mounts)
{
    struct setup *setup = calloc(1, sizeof(*setup));
    unsigned i;
    int error;

    if (!setup)
        return -ENOMEM;
    setup_begin(setup);
    error = fs_state ? 0 : fs_state_init();
    if (!error)
        error = mount_root(gofer_root, attr, readonly_root, disk_limit);
    if (!error)
        error = (setup->task.fs = fsctx_new()) ? 0 : -ENOMEM;
    if (!error)
        error = (fs_state->anonymous = memfs_new(0, 0, false)) ? 0 : -ENOMEM;
    if (!error)
        error = setup_dev(disk_limit);
    if (!error)
        error = setup_other(proc_setup, "/proc");
    if (!error)
        error = setup_other(sysfs_setup, "/sys");
    if (!error)
        error = setup_other(devpts_setup, "/dev/pts");
    for (i = 0; i < n_mounts && !error; i++)
        error = mount_memory(mounts[i].target, 01777, mounts[i].size, names_limit() / 4,
                             MS_NOSUID | MS_NODEV | (mounts[i].readonly ? MS_RDONLY : 0));
    setup_end(setup);
    free(setup);
    return error;
}

int fs_program(int host_fd, uint64_t size, struct file **ret_file)
{
    struct inode *inode = memfs_inode(fs_state->anonymous, S_IFREG | 0755);
    struct path path = {0};
    int error = -ENOMEM;

    if (inode)
        inode->object = object_new_backed(host_fd, size);
    path.dentry = inode && inode->object ? dentry_detached(NULL, "init", inode) : NULL;
    if (path.dentry) {
        error = open_inode(&path, inode, O_RDONLY, ret_file);
        dentry_put(path.dentry);
    } else {
        inode_put(inode);
    }
    return error;
}

uint64_t fs_disk_used(void)
{
    return fs_state->root->account.used;
}

uint64_t fs_disk_refused(void)
{
    return fs_state->root->account.refused;
}
