/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * memfs_file - regular files of memfs: their content is an object of guest memory, which mappings show.
 *
 * Bytes go by way of one buffer, for a guest's pages may fail in the middle of a copy and the object must not. Under the
 * kernel lock one buffer is enough.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/inotify.h>

static char bounce[1 << 16];

int memfs_open(struct inode *inode, struct file *file)
{
    switch (inode->mode & S_IFMT) {
    case S_IFREG:
        return memfs_object(inode);
    case S_IFDIR:
        return 0;
    case S_IFIFO:
        return file->mode & (FMODE_READ | FMODE_WRITE) ? fifo_open(inode, file) : -EINVAL;
    case S_IFCHR:
    case S_IFBLK:
        return device_open(inode, file);
    default:
        return -ENXIO;
    }
}

static int seal_error(const struct inode *inode, uint32_t seal)
{
    return inode->seals & seal ? -EPERM : 0;
}

int memfs_truncate(struct inode *inode, uint64_t size)
{
    int error = S_ISREG(inode->mode) ? memfs_object(inode) : -EINVAL;

    if (error)
        return error;
    if (size > FS_MAX_BYTES)
        return -EFBIG;
    if ((size < inode->object->size && seal_error(inode, F_SEAL_SHRINK)) ||
        (size > inode->object->size && seal_error(inode, F_SEAL_GROW)))
        return -EPERM;
    return object_truncate(inode->object, size);
}

static int64_t regular_read(struct file *file, struct uio *to, int64_t *position)
{
    int64_t total = 0, got, put;

    while (to->left) {
        got = object_read(file->inode->object, (uint64_t)*position, bounce,
                          to->left < sizeof(bounce) ? to->left : sizeof(bounce));
        if (got <= 0) {
            total = total ? total : got;
            break;
        }
        put = uio_to(to, bounce, (size_t)got);
        if (put < 0) {
            total = total ? total : put;
            break;
        }
        *position += put;
        total += put;
        if (put < got)
            break;
    }
    inode_accessed(file); /* also when nothing could be given */
    return total;
}

/* How many bytes may go where; or why none. */
static int64_t judge_write(const struct inode *inode, uint64_t position, uint64_t size)
{
    uint64_t end;

    if (inode->seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
        return -EPERM;
    if (position >= FS_MAX_BYTES)
        return -EFBIG;
    if (size > FS_MAX_BYTES - position)
        size = FS_MAX_BYTES - position;
    end = inode->object->size;
    if (position + size > end &&
        inode->seals & F_SEAL_GROW) { /* whole pages up to there, as Linux */
        end &= PAGE_MASK;
        if (position >= end)
            return -EPERM;
        size = end - position;
    }
    return limit_write(position, size);
}

static int64_t regular_write(struct file *file, struct uio *from, int64_t *position)
{
    struct inode *inode = file->inode;
    int64_t total = 0, allowed, got, put, at = *position;

    if (!from->left)
        return 0;
    if (file->flags & O_APPEND)
        at = (int64_t)inode->object->size;
    allowed = judge_write(inode, (uint64_t)at, from->left);
    if (allowed < 0)
        return allowed;
    inode_kill_privileges(inode);
    while (total < allowed) {
        got = uio_from(from, bounce,
                       allowed - total < (int64_t)sizeof(bounce) ? (size_t)(allowed - total)
                                                                 : sizeof(bounce));
        if (got <= 0) {
            total = total ? total : got;
            break;
        }
        put = object_write(inode->object, (uint64_t)at, bounce, (size_t)got);
        if (put <= 0) {
            total = total ? total : put == -ENOMEM ? -ENOSPC : put;
            break;
        }
        at += put;
        total += put;
        if (put < got)
            break;
    }
    if (total > 0)
        *position = at;    /* where nothing was written, O_APPEND moves nothing */
    inode_modified(inode); /* Linux changes the times first, then finds that it cannot */
    return total;
}

static int64_t regular_seek(struct file *file, int64_t offset, int whence)
{
    struct object *object = file->inode->object;

    switch (whence) {
    case SEEK_END:
        if (__builtin_add_overflow(offset, (int64_t)object->size, &offset))
            return -EOVERFLOW;
        break;
    case SEEK_DATA:
    case SEEK_HOLE:
        if (offset < 0 || (uint64_t)offset >= object->size)
            return -ENXIO;
        offset = object_seek_data(object, (uint64_t)offset, whence == SEEK_HOLE);
        if (offset < 0)
            return offset;
        break;
    default:
        return -EINVAL;
    }
    if (offset < 0)
        return -EINVAL;
    return file->position = offset;
}

static int regular_map(struct file *file, struct object **ret_object)
{
    if (file->mode & FMODE_WRITE) /* a shared mapping may write from here on without a word */
        inode_changed(file->inode);
    *ret_object = file->inode->object;
    return 0;
}

static int regular_sync(struct file *file)
{
    (void)file;
    return 0;
}

static int64_t allocate_pages(struct inode *inode, uint64_t offset, uint64_t size, bool keep)
{
    struct page *page;
    uint64_t index, end = offset + size;
    int error;

    if (end > inode->object->size && !keep) {
        error = object_truncate(inode->object, end);
        if (error)
            return error;
    }
    if (end > inode->object->size)
        end = inode->object->size; /* blocks past the end are not kept for anyone */
    for (index = offset >> PAGE_SHIFT; index << PAGE_SHIFT < end; index++) {
        error = object_page(inode->object, index, true, &page);
        if (error)
            return error == -ENOMEM ? -ENOSPC : error;
        page_put(page);
    }
    return 0;
}

static int64_t regular_fallocate(struct file *file, int mode, uint64_t offset, uint64_t size)
{
    struct inode *inode = file->inode;
    uint64_t old = inode->object->size, end = offset + size;
    int64_t result;

    if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) &&
        inode->seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
        return -EPERM;
    if (end > old && !(mode & FALLOC_FL_KEEP_SIZE) && inode->seals & F_SEAL_GROW)
        return -EPERM;
    if (mode & FALLOC_FL_PUNCH_HOLE || mode & FALLOC_FL_ZERO_RANGE) {
        result =
            offset < old ? object_punch(inode->object, offset, end > old ? old - offset : size) : 0;
        if (!result && mode & FALLOC_FL_ZERO_RANGE)
            result = allocate_pages(inode, offset, size, mode & FALLOC_FL_KEEP_SIZE);
    } else {
        result = allocate_pages(inode, offset, size, mode & FALLOC_FL_KEEP_SIZE);
        if (result)
            object_truncate(inode->object, old);
    }
    if (!result) {
        inode_kill_privileges(inode);
        inode_modified(inode);
    }
    return result;
}

/* No poll(): always ready, and nothing that an epoll takes. */
const struct file_ops file_ops_regular = {
    .read = regular_read,
    .write = regular_write,
    .seek = regular_seek,
    .map = regular_map,
    .sync = regular_sync,
    .fallocate = regular_fallocate,
};
