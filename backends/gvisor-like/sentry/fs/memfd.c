/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * memfd - memfd_create: a file of memory without a name, that can be sealed. Calls that open nothing a name leads to
 * (handles) are refused in calls.def.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <string.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#define MFD_EXEC 16u
#endif
#define SEAL_EXEC 32u
#define MEMFD_NAME_MAX 249

static int new_memfd(const char *name, uint32_t flags, struct file **ret_file)
{
    struct path path = {0};
    struct inode *inode =
        memfs_inode(fs_state->anonymous, S_IFREG | (flags & MFD_NOEXEC_SEAL ? 0666 : 0777));
    int error;

    if (!inode)
        return -ENOMEM;
    inode_init_owner(inode, NULL);
    inode->links = 0;
    inode->flags |= INODE_DIRTY;
    inode->seals = flags & (MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL) ? 0 : F_SEAL_SEAL;
    if (flags & MFD_NOEXEC_SEAL)
        inode->seals |= SEAL_EXEC;
    path.dentry = dentry_detached(NULL, name, inode);
    if (!path.dentry) {
        inode_put(inode);
        return -ENOMEM;
    }
    error = open_inode(&path, inode, O_RDWR, ret_file);
    dentry_put(path.dentry);
    if (error)
        return error;
    /* Who made it may write it and run it all the same: only a file that a name was opened for counts as written. */
    (*ret_file)->counted_writer = false;
    inode->n_writers--;
    return 0;
}

SYSCALL(memfd_create)
{
    char name[6 + MEMFD_NAME_MAX + 1] = "memfd:";
    uint32_t flags = (uint32_t)a[1];
    struct file *file;
    int64_t error;
    int fd;

    if (flags & MFD_HUGETLB ||
        flags & ~(MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_EXEC) ||
        (flags & (MFD_NOEXEC_SEAL | MFD_EXEC)) == (MFD_NOEXEC_SEAL | MFD_EXEC))
        return -EINVAL;
    error = copy_in_string(current->mm, name + 6, a[0], sizeof(name) - 6);
    if (error < 0)
        return error == -ENAMETOOLONG ? -EINVAL : error;
    error = new_memfd(name, flags, &file);
    if (error)
        return error;
    fd = fd_install(file, flags & MFD_CLOEXEC ? O_CLOEXEC : 0, 0);
    if (fd < 0)
        file_put(file);
    return fd;
}
