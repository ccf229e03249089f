/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * stat - what a file is (stat, statx), what its file system is (statfs), and whether it may be used (access).
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#define STATX_ATTR_MOUNT_ROOT_ 0x2000ull
#define STATX_MNT_ID_ 0x1000u

static unsigned lookup_of(uint64_t flags)
{
    return (flags & AT_SYMLINK_NOFOLLOW ? 0 : LOOKUP_FOLLOW) |
           (flags & AT_EMPTY_PATH ? LOOKUP_EMPTY : 0);
}

static int64_t stat_guest(int dirfd, uint64_t guest_name, unsigned lookup, uint64_t to)
{
    struct target target;
    struct stat stat;
    int64_t error = target_find(dirfd, guest_name, lookup, &target);

    if (error)
        return error;
    error = inode_getattr(target.inode, &stat);
    target_put(&target);
    return error ? error : copy_out(current->mm, to, &stat, sizeof(stat));
}

SYSCALL(stat)
{
    return stat_guest(AT_FDCWD, a[0], LOOKUP_FOLLOW, a[1]);
}

SYSCALL(lstat)
{
    return stat_guest(AT_FDCWD, a[0], 0, a[1]);
}

SYSCALL(newfstatat)
{
    if (a[3] & ~(uint64_t)(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT))
        return -EINVAL;
    return stat_guest((int)a[0], a[1], lookup_of(a[3]), a[2]);
}

SYSCALL(fstat)
{
    struct target target;
    struct stat stat;
    int64_t error = target_of_fd((int)a[0], true, &target);

    if (error)
        return error;
    error = inode_getattr(target.inode, &stat);
    target_put(&target);
    return error ? error : copy_out(current->mm, a[1], &stat, sizeof(stat));
}

static struct statx_timestamp statx_time(const struct timespec *time)
{
    return (struct statx_timestamp){.tv_sec = time->tv_sec, .tv_nsec = (uint32_t)time->tv_nsec};
}

static int fill_statx(const struct target *target, struct statx *ret)
{
    struct stat s;
    int error = inode_getattr(target->inode, &s);

    *ret = (struct statx){.stx_mask = STATX_BASIC_STATS | STATX_BTIME,
                          .stx_blksize = (uint32_t)s.st_blksize,
                          .stx_nlink = (uint32_t)s.st_nlink,
                          .stx_uid = s.st_uid,
                          .stx_gid = s.st_gid,
                          .stx_mode = (uint16_t)s.st_mode,
                          .stx_ino = s.st_ino,
                          .stx_size = (uint64_t)s.st_size,
                          .stx_blocks = (uint64_t)s.st_blocks,
                          .stx_rdev_major = major(s.st_rdev),
                          .stx_rdev_minor = minor(s.st_rdev),
                          .stx_dev_major = major(s.st_dev),
                          .stx_dev_minor = minor(s.st_dev)};
    ret->stx_atime = statx_time(&s.st_atim);
    ret->stx_mtime = statx_time(&s.st_mtim);
    ret->stx_ctime = statx_time(&s.st_ctim);
    ret->stx_btime = statx_time(&target->inode->born);
    ret->stx_attributes_mask = STATX_ATTR_MOUNT_ROOT_;
    if (target->path.mount) {
        const struct dentry *dentry = target->file ? target->file->dentry : target->path.dentry;

        ret->stx_mask |= STATX_MNT_ID_;
        memcpy((char *)ret + 0x90, &(uint64_t){target->path.mount->id}, 8); /* stx_mnt_id */
        if (dentry == target->path.mount->root)
            ret->stx_attributes |= STATX_ATTR_MOUNT_ROOT_;
    }
    return error;
}

SYSCALL(statx)
{
    struct target target;
    struct statx statx;
    int64_t error;

    if (a[2] & ~(uint64_t)(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT |
                           AT_STATX_SYNC_TYPE) ||
        (a[2] & AT_STATX_SYNC_TYPE) == AT_STATX_SYNC_TYPE || a[3] & STATX__RESERVED)
        return -EINVAL;
    error = target_find((int)a[0], a[1], lookup_of(a[2]), &target);
    if (error)
        return error;
    error = fill_statx(&target, &statx);
    target_put(&target);
    return error ? error : copy_out(current->mm, a[4], &statx, sizeof(statx));
}

/* ---- statfs ---- */

static void statfs_memfs(const struct memfs *memfs, struct statfs *s)
{
    uint64_t limit = memfs->account.limit, used = memfs->account.used;

    s->f_type = memfs->magic;
    if (!limit)
        limit = memfile_limit();
    s->f_blocks = limit / PAGE_SIZE;
    s->f_bfree = s->f_bavail = used < limit ? (limit - used) / PAGE_SIZE : 0;
    s->f_files = memfs->max_names;
    s->f_ffree = memfs->max_names > memfs->n_names ? memfs->max_names - memfs->n_names : 0;
    s->f_fsid.__val[0] = (int)memfs->device;
}

static int64_t statfs_target(const struct target *target, uint64_t to)
{
    const struct inode *inode = target->inode;
    struct statfs s = {.f_bsize = PAGE_SIZE, .f_frsize = PAGE_SIZE, .f_namelen = NAME_MAX};

    switch ((enum inode_kind)inode->kind) {
    case INODE_MEMFS:
        statfs_memfs(inode->super, &s);
        break;
    case INODE_PROC:
        s.f_type = PROC_SUPER_MAGIC;
        break;
    case INODE_SYS:
        s.f_type = SYSFS_MAGIC;
        break;
    case INODE_DEVPTS:
        s.f_type = DEVPTS_SUPER_MAGIC;
        break;
    case INODE_SOCKET:
        s.f_type = SOCKFS_MAGIC;
        break;
    case INODE_ANON:
    case INODE_KINDS:
    default:
        s.f_type = S_ISFIFO(inode->mode) ? PIPEFS_MAGIC : ANON_INODE_FS_MAGIC;
    }
    s.f_flags = 0x20; /* ST_VALID */
    if (target->path.mount)
        s.f_flags |=
            (long)(target->path.mount->flags & (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)) |
            0x1000; /* ST_RELATIME */
    return copy_out(current->mm, to, &s, sizeof(s));
}

SYSCALL(statfs)
{
    struct target target;
    int64_t error = target_find(AT_FDCWD, a[0], LOOKUP_FOLLOW, &target);

    if (error)
        return error;
    error = statfs_target(&target, a[1]);
    target_put(&target);
    return error;
}

SYSCALL(fstatfs)
{
    struct target target;
    int64_t error = target_of_fd((int)a[0], true, &target);

    if (error)
        return error;
    error = statfs_target(&target, a[1]);
    target_put(&target);
    return error;
}

SYSCALL(ustat)
{
    (void)a;
    return -EINVAL; /* no device that a number could name */
}

/* ---- access ---- */

static int judge_access(const struct target *target, int mode)
{
    struct inode *inode = target->inode;
    int error;

    if (mode & X_OK && S_ISREG(inode->mode) && target->path.mount &&
        target->path.mount->flags & MS_NOEXEC)
        return -EACCES;
    error = mode ? inode_permission(inode, mode) : 0;
    if (!error && mode & W_OK &&
        (S_ISREG(inode->mode) || S_ISDIR(inode->mode) || S_ISLNK(inode->mode)))
        error = target_writable(target);
    return error;
}

static int64_t access_now(int dirfd, uint64_t name, int mode, unsigned lookup)
{
    struct target target;
    int error = target_find(dirfd, name, lookup, &target);

    if (error)
        return error;
    error = judge_access(&target, mode);
    target_put(&target);
    return error;
}

/* With the real ids instead of the effective ones: for the length of the call the task has other credentials. */
static int64_t access_guest(int dirfd, uint64_t name, int mode, uint64_t flags)
{
    struct cred *cred = current->cred, real;
    int64_t result;

    if (mode & ~7 || flags & ~(uint64_t)(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
        return -EINVAL;
    if (flags & AT_EACCESS)
        return access_now(dirfd, name, mode, lookup_of(flags));
    real = *cred;
    real.fsuid = cred->uid;
    real.fsgid = cred->gid;
    if (!(cred->securebits & 4)) /* SECBIT_NO_SETUID_FIXUP */
        real.cap_effective = cred->uid ? 0 : cred->cap_permitted;
    current->cred = &real;
    result = access_now(dirfd, name, mode, lookup_of(flags));
    current->cred = cred;
    return result;
}

SYSCALL(access)
{
    return access_guest(AT_FDCWD, a[0], (int)a[1], 0);
}

SYSCALL(faccessat)
{
    return access_guest((int)a[0], a[1], (int)a[2], 0);
}

SYSCALL(faccessat2)
{
    return access_guest((int)a[0], a[1], (int)a[2], (uint32_t)a[3]);
}
