/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * splice - bytes between a pipe and something else, or two pipes. They are copied: nothing in a cell shares pages of a pipe.
 * Invariants: what is taken out of a pipe is taken only when it has arrived; nobody sees a slot without bytes.
 * Threads: the kernel lock.
 */
#include <string.h>

#include "pipe.h"
#include "socket.h"

#define FLAGS (SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT)

static bool nonblock(const struct file *pipe, uint32_t flags)
{
    return (flags & SPLICE_F_NONBLOCK) || (pipe->flags & O_NONBLOCK);
}

/* The first bytes of the pipe are gone. */
static void consume(struct pipe *pipe, uint32_t n)
{
    struct pipe_slot *slot = pipe_slot(pipe, 0);

    slot->offset = (uint16_t)(slot->offset + n);
    slot->length = (uint16_t)(slot->length - n);
    if (!slot->length)
        pipe_drop_first(pipe);
}

static int64_t write_slot(struct pipe *pipe, struct file *out, int64_t *position, uint64_t most)
{
    struct pipe_slot *slot = pipe_slot(pipe, 0);
    struct iovec part;
    struct uio uio;
    int64_t n;
    uint8_t bytes[PAGE_SIZE];
    uint32_t size = slot->length < most ? slot->length : (uint32_t)most;

    memcpy(bytes, slot->bytes + slot->offset,
           size); /* the write may sleep, and others read meanwhile */
    uio_one(&uio, &part, NULL, (uint64_t)(uintptr_t)bytes, size);
    n = file_write(out, &uio, position);
    if (n > 0 && pipe->used && pipe_slot(pipe, 0)->length >= (uint32_t)n)
        consume(pipe, (uint32_t)n);
    return n;
}

static int64_t from_pipe(struct file *in, struct file *out, int64_t *position, uint64_t length,
                         uint32_t flags)
{
    struct pipe *pipe = in->data;
    int64_t done = 0, n = pipe_wait_data(in, nonblock(in, flags));

    if (n <= 0)
        return n;
    while (length && pipe->used) {
        if ((flags & SPLICE_F_NONBLOCK) && !(file_poll(out, NULL) & POLLOUT)) {
            n = -EAGAIN;
            break;
        }
        n = write_slot(pipe, out, position, length);
        if (n <= 0)
            break;
        done += n;
        length -= (uint64_t)n;
    }
    pipe_wake(pipe, READY_OUT);
    return done ? done : n;
}

/* What one slot takes: of a file a page of its own, for that is what Linux puts there. */
static uint64_t slot_room(const struct file *in, const int64_t *position)
{
    int64_t at = position ? *position : in->position;

    return in->kind == FILE_REGULAR ? PAGE_SIZE - (uint64_t)at % PAGE_SIZE : PAGE_SIZE;
}

/* Whether one more read would neither wait, nor take an error that is the next call's, nor join two messages. */
static bool goes_on(struct file *in)
{
    const struct socket *s = file_socket(in);

    if (!(in->mode & FMODE_STREAM))
        return true;
    return s && socket_stream(s) && (file_poll(in, NULL) & (POLLIN | POLLERR | POLLHUP)) == POLLIN;
}

int64_t splice_to_pipe(struct file *in, int64_t *position, struct file *out, uint64_t length,
                       uint32_t flags)
{
    struct pipe *pipe = out->data;
    struct pipe_slot *slot;
    struct iovec part;
    struct uio uio;
    int64_t done = 0, n = pipe_wait_room(out, nonblock(out, flags));
    uint8_t bytes[PAGE_SIZE];
    uint64_t room;

    if (n == 0 && (flags & SPLICE_F_NONBLOCK) && !(file_poll(in, NULL) & (POLLIN | POLLHUP)))
        n = -EAGAIN;
    while (n >= 0 && length && !pipe_full(pipe)) {
        room = slot_room(in, position);
        room = length < room ? length : room;
        uio_one(&uio, &part, NULL, (uint64_t)(uintptr_t)bytes, room);
        n = file_read(in, &uio, position);
        if (n <= 0)
            break;
        slot = pipe_full(pipe) ? NULL : pipe_add(pipe);
        if (!slot) { /* what was read of a stream is lost: only without memory */
            n = -ENOMEM;
            break;
        }
        memcpy(slot->bytes, bytes, (size_t)n);
        slot->length = (uint16_t)n;
        slot->alone = true;
        done += n;
        length -= (uint64_t)n;
        if (n < (int64_t)room || !goes_on(in))
            break;
    }
    if (done)
        pipe_wake(pipe, READY_IN);
    return done ? done : n;
}

/* Bytes of one slot to the end of another pipe. */
static int64_t copy_slot(const struct pipe_slot *from, struct pipe *to, uint64_t most)
{
    struct pipe_slot *slot = pipe_add(to);

    if (!slot)
        return -ENOMEM;
    slot->length = from->length < most ? from->length : (uint16_t)most;
    slot->packet = from->packet;
    slot->alone = true;
    memcpy(slot->bytes, from->bytes + from->offset, slot->length);
    return slot->length;
}

/* Until there is something to read and room for it: 1, 0 no writers, -errno. */
static int wait_both(struct file *in, struct file *out, uint32_t flags)
{
    const struct pipe *from = in->data, *to = out->data;
    int r;

    do {
        r = pipe_wait_data(in, nonblock(in, flags));
        if (r <= 0)
            return r;
        r = pipe_wait_room(out, nonblock(out, flags));
        if (r < 0)
            return r;
    } while (!from->used || pipe_full(to));
    return 1;
}

static int64_t between(struct file *in, struct file *out, uint64_t length, uint32_t flags,
                       bool keep)
{
    struct pipe *from = in->data, *to = out->data;
    int64_t done = 0, n = wait_both(in, out, flags);
    uint32_t at = 0;

    if (n <= 0)
        return n;
    while (length && at < from->used && !pipe_full(to)) {
        n = copy_slot(pipe_slot(from, at), to, length);
        if (n < 0)
            break;
        done += n;
        length -= (uint64_t)n;
        if (keep)
            at++;
        else
            consume(from, (uint32_t)n);
    }
    pipe_wake(to, READY_IN);
    if (!keep)
        pipe_wake(from, READY_OUT);
    return done ? done : n;
}

/* ---- calls ---- */

static int position_in(const struct file *file, uint64_t guest, int64_t *position)
{
    if (!guest)
        return 0;
    if (!(file->mode & FMODE_SEEK))
        return -EINVAL;
    return copy_in(current->mm, position, guest, sizeof(*position));
}

static int64_t splice_files(struct file *in, uint64_t in_at, struct file *out, uint64_t out_at,
                            uint64_t length, uint32_t flags)
{
    bool in_pipe = file_pipe(in), out_pipe = file_pipe(out);
    int64_t position = 0, n;
    uint64_t guest = in_pipe ? out_at : in_at;
    int r;

    if (!(in->mode & FMODE_READ) || !(out->mode & FMODE_WRITE))
        return -EBADF;
    if ((in_pipe && in_at) || (out_pipe && out_at))
        return -ESPIPE;
    if (in_pipe && out_pipe)
        return in->data == out->data ? -EINVAL : between(in, out, length, flags, false);
    if (!in_pipe && !out_pipe)
        return -EINVAL;
    r = position_in(in_pipe ? out : in, guest, &position);
    if (r < 0)
        return r;
    if (in_pipe && (out->flags & O_APPEND))
        return -EINVAL;
    n = in_pipe ? from_pipe(in, out, guest ? &position : NULL, length, flags)
                : splice_to_pipe(in, guest ? &position : NULL, out, length, flags);
    if (n > 0 && guest && copy_out(current->mm, guest, &position, sizeof(position)) < 0)
        return -EFAULT;
    return n;
}

SYSCALL(splice)
{
    struct file *in, *out;
    uint64_t length = a[4] > 0x7ffff000 ? 0x7ffff000 : a[4];
    int64_t r = -EBADF;

    if (!a[4])
        return 0;
    if ((uint32_t)a[5] & ~(uint32_t)FLAGS)
        return -EINVAL;
    in = fd_get_io((int)a[0]);
    out = fd_get_io((int)a[2]);
    if (in && out)
        r = splice_files(in, a[1], out, a[3], length, (uint32_t)a[5]);
    if (in)
        file_put(in);
    if (out)
        file_put(out);
    return r;
}

SYSCALL(tee)
{
    struct file *in, *out;
    int64_t r = -EBADF;

    if ((uint32_t)a[3] & ~(uint32_t)FLAGS)
        return -EINVAL;
    if (!a[2])
        return 0;
    in = fd_get_io((int)a[0]);
    out = fd_get_io((int)a[1]);
    if (in && out && (in->mode & FMODE_READ) && (out->mode & FMODE_WRITE))
        r = file_pipe(in) && file_pipe(out) && in->data != out->data
                ? between(in, out, a[2], (uint32_t)a[3], true)
                : -EINVAL;
    if (in)
        file_put(in);
    if (out)
        file_put(out);
    return r;
}

static int64_t take_user(struct file *file, struct uio *from, uint32_t flags)
{
    struct pipe *pipe = file->data;
    struct pipe_slot *slot;
    int64_t done = 0, n = from->left ? pipe_wait_room(file, nonblock(file, flags)) : 0;
    size_t size;

    while (n >= 0 && from->left && !pipe_full(pipe)) {
        slot = pipe_add(pipe);
        size = from->left < PAGE_SIZE ? from->left : PAGE_SIZE;
        n = slot ? uio_from(from, slot->bytes, size) : -ENOMEM;
        if (slot && n <= 0)
            pipe_undo_add(pipe);
        if (n <= 0)
            break;
        slot->length = (uint16_t)n;
        slot->alone = true;
        done += n;
    }
    if (done)
        pipe_wake(pipe, READY_IN);
    return done ? done : n;
}

SYSCALL(vmsplice)
{
    struct file *file;
    struct uio uio;
    uint32_t flags = (uint32_t)a[3];
    int64_t r;

    if (flags & ~(uint32_t)FLAGS)
        return -EINVAL;
    file = fd_get_io((int)a[0]);
    if (!file)
        return -EBADF;
    r = uio_guest(&uio, current->mm, a[1], a[2]);
    if (r == 0) {
        if (uio.left && !file_pipe(file))
            r = -EBADF;
        else if (uio.left && (file->mode & FMODE_WRITE))
            r = take_user(file, &uio, flags);
        else if (uio.left && (r = pipe_wait_data(file, nonblock(file, flags))) == 1)
            r = pipe_ops.read(file, &uio, NULL);
        uio_free(&uio);
    }
    file_put(file);
    return r;
}
