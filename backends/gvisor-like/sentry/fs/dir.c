/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * dir - open directories: getdents. The position of an entry in its directory never changes and is d_off of the entry
 * before it, so that a reader may come back to it whatever was made or removed meanwhile.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#define HEAD64 19u /* d_ino, d_off, d_reclen, d_type */
#define HEAD 18u   /* d_ino, d_off, d_reclen; d_type is the last byte */

static size_t record_of(const struct dir_context *context, size_t length)
{
    size_t size = context->old ? HEAD + length + 2 : HEAD64 + length + 1;

    return (size + 7) & ~(size_t)7;
}

bool dir_emit(struct dir_context *context, const char *name, size_t length, uint64_t ino,
              uint8_t type, int64_t next_position)
{
    char record[HEAD64 + NAME_MAX + 16] = {0};
    uint16_t size = (uint16_t)record_of(context, length);

    if (length > NAME_MAX || size > context->to->left) {
        context->full = true;
        return false;
    }
    memcpy(record, &ino, 8);
    memcpy(record + 8, &next_position, 8);
    memcpy(record + 16, &size, 2);
    if (context->old) {
        memcpy(record + HEAD, name, length);
        record[size - 1] = (char)type;
    } else {
        record[HEAD] = (char)type;
        memcpy(record + HEAD64, name, length);
    }
    if (uio_to(context->to, record, size) != size) {
        context->full = context->fault = true;
        return false;
    }
    context->entries++;
    return true;
}

static bool emit_dots(struct file *file, struct dir_context *context)
{
    const struct dentry *dentry = file->dentry;

    if (file->position == 0) {
        if (!dir_emit(context, ".", 1, file->inode->number, DT_DIR, 1))
            return false;
        file->position = 1;
    }
    if (file->position == 1) {
        if (file->mount && dentry == file->mount->root && file->mount->at)
            dentry = file->mount->at;
        if (!dir_emit(context, "..", 2, dentry->parent->inode->number, DT_DIR, 2))
            return false;
        file->position = 2;
    }
    return true;
}

static int directory_iterate(struct file *file, struct dir_context *context)
{
    if (!inode_ops[file->inode->kind]->iterate)
        return -ENOTDIR;
    if (!file->inode->links) /* removed: nothing, not even the dots */
        return -ENOENT;
    return emit_dots(file, context) ? inode_ops[file->inode->kind]->iterate(file, context) : 0;
}

static int64_t directory_seek(struct file *file, int64_t offset, int whence)
{
    if (whence == SEEK_END && offset == 0)
        return file->position = INT64_MAX;
    return whence == SEEK_SET && offset >= 0 ? (file->position = offset) : -EINVAL;
}

static int directory_sync(struct file *file)
{
    (void)file;
    return 0;
}

const struct file_ops file_ops_directory = {
    .iterate = directory_iterate,
    .seek = directory_seek,
    .sync = directory_sync,
};

static int64_t getdents(const uint64_t a[6], bool old)
{
    struct file *file = fd_get_io((int)a[0]);
    struct iovec part;
    struct uio uio;
    struct dir_context context = {.to = &uio, .old = old};
    uint32_t size = (uint32_t)a[2];
    int64_t result;

    if (!file)
        return -EBADF;
    uio_one(&uio, &part, current->mm, a[1], size);
    if (!file_ops[file->kind] || !file_ops[file->kind]->iterate)
        result = -ENOTDIR;
    else
        result = file_ops[file->kind]->iterate(file, &context);
    if (!result && context.entries)
        result = (int64_t)(size - uio.left);
    else if (!result && context.full)
        result = context.fault ? -EFAULT : -EINVAL; /* not one has room */
    if (file->kind == FILE_DIRECTORY && file->inode->links)
        inode_accessed(file); /* also when nothing came out */
    file_put(file);
    return result;
}

SYSCALL(getdents)
{
    return getdents(a, true);
}

SYSCALL(getdents64)
{
    return getdents(a, false);
}
