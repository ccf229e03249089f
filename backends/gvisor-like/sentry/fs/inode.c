/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * inode - things with a mode, an owner and a content: their life, permission, attributes.
 *
 * The rules of who may change what (mode, owner, times, size) are here once, for every kind of inode; the kind stores the
 * result. An inode that the guest changed is DIRTY: the image no longer says what it is, so it is never forgotten.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/mount.h>

struct fs_state *fs_state;

int fs_state_init(void)
{
    fs_state = arena_alloc(ARENA_BYTES, sizeof(*fs_state));
    if (!fs_state)
        return -ENOMEM;
    fs_state->names = arena_alloc(ARENA_BYTES, (size_t)FS_BUCKETS_MIN * sizeof(struct dentry *));
    if (!fs_state->names)
        return -ENOMEM;
    fs_state->n_buckets = FS_BUCKETS_MIN;
    TAILQ_INIT(&fs_state->unused);
    TAILQ_INIT(&fs_state->mounts);
    /* Above what images number their inodes with, as a rule; of one file system a number is unique all the same. */
    fs_state->next_inode = 1ull << 40;
    fs_state->next_device = 0x20;
    return 0;
}

size_t number_text(char *to, uint64_t number)
{
    char digits[20];
    size_t n = 0, i;

    do
        digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    for (i = 0; i < n; i++)
        to[i] = digits[n - 1 - i];
    return n;
}

struct timespec now_coarse(void)
{
    uint64_t now = clock_realtime();

    return (struct timespec){(time_t)(now / 1000000000ull), (long)(now % 1000000000ull)};
}

struct inode *inode_new(enum inode_kind kind, uint32_t mode)
{
    struct inode *inode = arena_alloc(ARENA_INODE, sizeof(*inode));

    if (!inode)
        return NULL;
    inode->refs = 1;
    inode->kind = (uint16_t)kind;
    inode->mode = mode;
    inode->links = S_ISDIR(mode) ? 2 : 1;
    inode->number = ++fs_state->next_inode;
    inode->accessed = inode->modified = inode->changed = inode->born = now_coarse();
    TAILQ_INIT(&inode->children);
    waitq_init(&inode->waitq);
    return inode;
}

void inode_get(struct inode *inode)
{
    inode->refs++;
}

void inode_put(struct inode *inode)
{
    if (!inode || --inode->refs)
        return;
    if (inode_ops[inode->kind] && inode_ops[inode->kind]->release)
        inode_ops[inode->kind]->release(inode);
    if (inode->object)
        object_put(inode->object);
    locks_free(inode);
    inode_free_xattrs(inode);
    arena_free(inode);
}

int inode_permission(struct inode *inode, int may)
{
    const struct cred *cred = current->cred;
    uint32_t bits = inode->mode;

    if (cred->fsuid == inode->uid)
        bits >>= 6;
    else if (cred_in_group(cred, inode->gid))
        bits >>= 3;
    if (!((uint32_t)may & ~bits & 7))
        return 0;
    if (S_ISDIR(inode->mode)) {
        if (!(may & 2) && capable(CAP_DAC_READ_SEARCH))
            return 0;
        return capable(CAP_DAC_OVERRIDE) ? 0 : -EACCES;
    }
    if (may == 4 && capable(CAP_DAC_READ_SEARCH))
        return 0;
    if ((!(may & 1) || inode->mode & 0111) && capable(CAP_DAC_OVERRIDE))
        return 0;
    return -EACCES;
}

bool inode_owner_or_capable(const struct inode *inode)
{
    return current->cred->fsuid == inode->uid || capable(CAP_FOWNER);
}

int inode_may_delete(const struct inode *directory, const struct inode *victim)
{
    if (!(directory->mode & S_ISVTX) || current->cred->fsuid == directory->uid ||
        current->cred->fsuid == victim->uid || capable(CAP_FOWNER))
        return 0;
    return -EPERM;
}

void inode_changed(struct inode *inode)
{
    inode->changed = now_coarse();
    if (inode->flags & INODE_DIRTY)
        return;
    inode->flags |= INODE_DIRTY;
    if (inode->kind == INODE_MEMFS)
        memfs_keep(inode);
}

void inode_modified(struct inode *inode)
{
    inode_changed(inode);
    inode->modified = inode->changed;
}

static bool later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

/* Not DIRTY: a time of access that is forgotten with its inode is no loss. */
void inode_accessed(struct file *file)
{
    struct inode *inode = file->inode;
    struct timespec now;

    if (!inode || file->flags & O_NOATIME || (file->mount && file->mount->flags & MS_RDONLY))
        return;
    now = now_coarse();
    if (later(&inode->accessed, &inode->modified) && later(&inode->accessed, &inode->changed) &&
        now.tv_sec - inode->accessed.tv_sec < 24 * 3600)
        return;
    inode->accessed = now;
}

/* The mode of what is made in a directory. Whether it may run as the directory's group is judged before the umask. */
uint32_t inode_new_mode(const struct inode *directory, uint32_t mode)
{
    if (directory->mode & S_ISGID && (mode & (S_ISGID | 010)) == (S_ISGID | 010) &&
        !cred_in_group(current->cred, directory->gid) && !capable(CAP_FSETID))
        mode &= ~(uint32_t)S_ISGID;
    return mode & ~current->fs->umask;
}

void inode_init_owner(struct inode *inode, const struct inode *directory)
{
    inode->uid = current->cred->fsuid;
    inode->gid = current->cred->fsgid;
    if (!directory || !(directory->mode & S_ISGID))
        return;
    inode->gid = directory->gid;
    if (S_ISDIR(inode->mode))
        inode->mode |= S_ISGID;
}

/* ---- changes by system calls ---- */

static int may_chown(const struct inode *inode, const struct setattr *change)
{
    const struct cred *cred = current->cred;

    if (change->valid & SETATTR_UID && (cred->fsuid != inode->uid || change->uid != inode->uid) &&
        !capable(CAP_CHOWN))
        return -EPERM;
    if (change->valid & SETATTR_GID &&
        (cred->fsuid != inode->uid ||
         (change->gid != inode->gid && !cred_in_group(cred, change->gid))) &&
        !capable(CAP_CHOWN))
        return -EPERM;
    return 0;
}

/* What a change of owner takes: set-uid, and set-gid of what its group may execute. */
static uint32_t without_privileges(uint32_t mode, bool keep_gid)
{
    if (mode & S_ISUID)
        mode &= ~(uint32_t)S_ISUID;
    if (mode & S_ISGID && (mode & 010 || !keep_gid))
        mode &= ~(uint32_t)S_ISGID;
    return mode;
}

/* Of every chown, also one that names nobody. */
static void chmod_of_chown(const struct inode *inode, struct setattr *change)
{
    if (!(change->valid & SETATTR_KILL) || S_ISDIR(inode->mode))
        return;
    change->mode = without_privileges(inode->mode, cred_in_group(current->cred, inode->gid) ||
                                                       capable(CAP_FSETID));
    if (change->mode != inode->mode)
        change->valid |= SETATTR_MODE;
}

int inode_setattr(struct inode *inode, struct setattr *change)
{
    int error = may_chown(inode, change);

    if (error)
        return error;
    if (change->valid & SETATTR_MODE) {
        if (!inode_owner_or_capable(inode))
            return -EPERM;
        change->mode = (inode->mode & S_IFMT) | (change->mode & 07777);
        if (!cred_in_group(current->cred, change->valid & SETATTR_GID ? change->gid : inode->gid) &&
            !capable(CAP_FSETID))
            change->mode &= ~(uint32_t)S_ISGID;
    } else {
        chmod_of_chown(inode, change);
        if (change->valid & SETATTR_MODE && !inode_owner_or_capable(inode))
            return -EPERM;
    }
    return inode_ops[inode->kind]->setattr ? inode_ops[inode->kind]->setattr(inode, change)
                                           : -EPERM;
}

int inode_kill_privileges(struct inode *inode)
{
    struct setattr change = {.valid = SETATTR_MODE};

    if (!(inode->mode & (S_ISUID | S_ISGID)) || !S_ISREG(inode->mode) || capable(CAP_FSETID))
        return 0;
    change.mode = without_privileges(inode->mode, cred_in_group(current->cred, inode->gid));
    if (change.mode == inode->mode)
        return 0;
    return inode_ops[inode->kind]->setattr ? inode_ops[inode->kind]->setattr(inode, &change) : 0;
}

int inode_getattr(struct inode *inode, struct stat *ret)
{
    uint64_t size = inode->object ? inode->object->size : inode->size;

    *ret = (struct stat){.st_dev = inode->device,
                         .st_ino = inode->number,
                         .st_nlink = inode->links,
                         .st_mode = inode->mode,
                         .st_uid = inode->uid,
                         .st_gid = inode->gid,
                         .st_rdev = inode->rdev,
                         .st_size = (off_t)size,
                         .st_blksize = PAGE_SIZE,
                         .st_atim = inode->accessed,
                         .st_mtim = inode->modified,
                         .st_ctim = inode->changed};
    if (inode_ops[inode->kind] && inode_ops[inode->kind]->getattr)
        return inode_ops[inode->kind]->getattr(inode, ret);
    return 0;
}
