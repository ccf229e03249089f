/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * copy - bytes from file to file within the kernel: sendfile, copy_file_range.
 *
 * By way of a buffer of the kernel's. What was read and could not be written is not lost: the position of the source is
 * moved by what was written.
 * Threads: the kernel lock; a full pipe or socket may let it go, so the buffer is the call's own.
 */
#include "vfs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK (1u << 16)
#define COPY_MAX 0x7ffff000u

/* 0 the end; what was written of one chunk. */
static int64_t copy_chunk(struct file *in, int64_t *in_at, struct file *out, int64_t *out_at,
                          char *buffer, size_t size)
{
    int64_t at = *in_at, got, put;
    struct iovec part;
    struct uio uio;

    uio_one(&uio, &part, NULL, (uintptr_t)buffer, size);
    got = file_read(in, &uio, &at);
    if (got <= 0)
        return got;
    uio_one(&uio, &part, NULL, (uintptr_t)buffer, (size_t)got);
    put = file_write(out, &uio, out_at);
    if (put > 0)
        *in_at += put;
    return put;
}

static int64_t copy_bytes(struct file *in, int64_t *in_at, struct file *out, int64_t *out_at,
                          uint64_t size)
{
    char *buffer = size ? malloc(CHUNK) : NULL;
    int64_t total = 0, n = 1;
    size_t want;

    if (!buffer)
        return size ? -ENOMEM : 0;
    while ((uint64_t)total < size && n > 0) {
        want = size - (uint64_t)total < CHUNK ? (size_t)(size - (uint64_t)total) : CHUNK;
        n = copy_chunk(in, in_at, out, out_at, buffer, want);
        if (n > 0)
            total += n;
        if (n > 0 && ((size_t)n < want || signal_pending(current)))
            break;
    }
    free(buffer);
    return total ? total : n;
}

/* What can be read as if it were in the page cache. */
static bool can_send(const struct file *in)
{
    return in->kind == FILE_REGULAR || in->kind == FILE_PROC || in->kind == FILE_ZERO ||
           in->kind == FILE_FULL || in->kind == FILE_RANDOM;
}

static int judge_send(const struct file *out, const struct file *in, const int64_t *offset)
{
    if (!in || !in->inode || !(in->mode & FMODE_READ))
        return -EBADF;
    if (offset && !(in->mode & FMODE_SEEK))
        return -ESPIPE;
    if (offset && *offset < 0)
        return -EINVAL;
    if (!out || !(out->mode & FMODE_WRITE))
        return -EBADF;
    if ((out->flags & O_APPEND && out->kind != FILE_PIPE) ||
        (in->kind == FILE_PIPE && out->kind != FILE_PIPE))
        return -EINVAL;
    return 0;
}

/* A pipe is asked for room before the file is looked at, and gets no more than it has room for: who sends to a pipe that
   it reads itself relies on it. */
static int64_t send_bytes(struct file *out, struct file *in, int64_t *offset, uint64_t size)
{
    int64_t error = 0;

    if (out->kind == FILE_PIPE)
        error = pipe_wait_room(out, out->flags & O_NONBLOCK);
    else
        inode_accessed(in); /* even when nothing is asked for */
    if (error || !size)
        return error;
    if (!can_send(in))
        return -EINVAL;
    return out->kind == FILE_PIPE ? splice_to_pipe(in, offset, out, size, 0)
                                  : copy_bytes(in, offset, out, NULL, size);
}

static int64_t send_file(struct file *out, struct file *in, uint64_t guest_offset, uint64_t size)
{
    int64_t offset = 0, result;

    if (guest_offset && copy_in(current->mm, &offset, guest_offset, sizeof(offset)))
        return -EFAULT;
    result = judge_send(out, in, guest_offset ? &offset : NULL);
    if (result)
        return result;
    if (size > COPY_MAX)
        size = COPY_MAX;
    if (!guest_offset)
        offset = in->position;
    result = send_bytes(out, in, &offset, size);
    if (!guest_offset && result > 0)
        in->position = offset; /* at the end: `out` may be the same open file */
    if (guest_offset && result >= 0 && copy_out(current->mm, guest_offset, &offset, sizeof(offset)))
        return -EFAULT;
    return result;
}

SYSCALL(sendfile)
{
    struct file *out = fd_get_io((int)a[0]), *in = fd_get_io((int)a[1]);
    int64_t result = send_file(out, in, a[2], a[3]);

    file_put(out);
    file_put(in);
    return result;
}

static int judge_range(const struct file *in, const struct file *out, int64_t in_at, int64_t out_at,
                       uint64_t *size)
{
    if (!in->inode || !out->inode || S_ISDIR(in->inode->mode) || S_ISDIR(out->inode->mode))
        return in->inode && out->inode ? -EISDIR : -EINVAL;
    if (!S_ISREG(in->inode->mode) || !S_ISREG(out->inode->mode))
        return -EINVAL;
    if (!(in->mode & FMODE_READ) || !(out->mode & FMODE_WRITE) || out->flags & O_APPEND)
        return -EBADF;
    if (in->kind != FILE_REGULAR || out->kind != FILE_REGULAR)
        return -EXDEV; /* programs fall back to read and write */
    if (in_at < 0 || out_at < 0)
        return -EINVAL;
    if (*size > COPY_MAX)
        *size = COPY_MAX;
    if (in_at > INT64_MAX - (int64_t)*size || out_at > INT64_MAX - (int64_t)*size)
        return -EOVERFLOW;
    if ((uint64_t)in_at >= in->inode->object->size)
        *size = 0;
    else if (*size > in->inode->object->size - (uint64_t)in_at)
        *size = in->inode->object->size - (uint64_t)in_at;
    if (in->inode == out->inode && in_at < out_at + (int64_t)*size &&
        out_at < in_at + (int64_t)*size)
        return -EINVAL;
    return 0;
}

static int64_t copy_range(struct file *in, uint64_t guest_in, struct file *out, uint64_t guest_out,
                          uint64_t size)
{
    int64_t in_at = in->position, out_at = out->position, result;

    if ((guest_in && copy_in(current->mm, &in_at, guest_in, sizeof(in_at))) ||
        (guest_out && copy_in(current->mm, &out_at, guest_out, sizeof(out_at))))
        return -EFAULT;
    result = judge_range(in, out, in_at, out_at, &size);
    if (result || !size)
        return result;
    result = copy_bytes(in, &in_at, out, &out_at, size);
    if (result <= 0)
        return result;
    if (guest_in ? copy_out(current->mm, guest_in, &in_at, sizeof(in_at)) != 0
                 : (in->position = in_at, false))
        return -EFAULT;
    if (guest_out ? copy_out(current->mm, guest_out, &out_at, sizeof(out_at)) != 0
                  : (out->position = out_at, false))
        return -EFAULT;
    return result;
}

SYSCALL(copy_file_range)
{
    struct file *in, *out;
    int64_t result;

    in = fd_get_io((int)a[0]);
    out = fd_get_io((int)a[2]);
    if (!in || !out)
        result = -EBADF;
    else
        result = a[5] ? -EINVAL : copy_range(in, a[1], out, a[3], a[4]);
    file_put(in);
    file_put(out);
    return result;
}
