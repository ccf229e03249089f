/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * pipe - pipes, and what FIFOs are when they are open.
 * Why a ring of pages, as Linux has it, and not one of bytes: how much fits into a full pipe, what is atomic and when it can be
 * written again follow from it, and programs have come to count on that.
 * Invariants: a slot that is used holds at least one byte between calls; readers and writers count files, and waitq is woken
 * whenever either becomes 0 or more than 0. The capacity of all pipes is counted in ipc()->pipe_slots.
 * Threads: the kernel lock.
 */
#include <string.h>

#include "pipe.h"

#define SLOTS_DEFAULT 16u
#define SLOTS_MAX 256u /* 1 MiB: /proc/sys/fs/pipe-max-size */

static uint32_t slots_soft(void)
{
    return (uint32_t)(ipc_share((uint64_t)PIPE_SLOTS_SOFT * PAGE_SIZE) / PAGE_SIZE);
}

struct pipe *pipe_make(void)
{
    struct pipe *pipe;
    uint32_t n = ipc()->pipe_slots + SLOTS_DEFAULT > slots_soft() ? 2 : SLOTS_DEFAULT;

    if (ipc()->pipe_slots + n > 2 * slots_soft())
        return NULL;
    pipe = arena_alloc(ARENA_PIPE, sizeof(*pipe));
    if (!pipe)
        return NULL;
    pipe->slots = arena_alloc(ARENA_BYTES, n * sizeof(*pipe->slots));
    if (!pipe->slots) {
        arena_free(pipe);
        return NULL;
    }
    pipe->n_slots = n;
    pipe->refs = 1;
    ipc()->pipe_slots += n;
    waitq_init(&pipe->waitq);
    return pipe;
}

void pipe_put(struct pipe *pipe)
{
    if (--pipe->refs)
        return;
    while (pipe->used)
        pipe_drop_first(pipe);
    if (pipe->inode)
        pipe->inode->data = NULL;
    ipc()->pipe_slots -= pipe->n_slots;
    arena_free(pipe->slots);
    arena_free(pipe);
}

struct pipe *file_pipe(struct file *file)
{
    return file->kind == FILE_PIPE ? file->data : NULL;
}

struct pipe_slot *pipe_slot(struct pipe *pipe, uint32_t index)
{
    return &pipe->slots[(pipe->first + index) % pipe->n_slots];
}

bool pipe_full(const struct pipe *pipe)
{
    return pipe->used >= pipe->n_slots;
}

void pipe_drop_first(struct pipe *pipe)
{
    struct pipe_slot *slot = pipe_slot(pipe, 0);

    arena_free(slot->bytes);
    *slot = (struct pipe_slot){0};
    pipe->first = (pipe->first + 1) % pipe->n_slots;
    pipe->used--;
}

struct pipe_slot *pipe_add(struct pipe *pipe)
{
    struct pipe_slot *slot = pipe_slot(pipe, pipe->used);

    slot->bytes = arena_alloc(ARENA_BYTES, PAGE_SIZE);
    if (!slot->bytes)
        return NULL;
    slot->offset = slot->length = 0;
    slot->packet = slot->alone = false;
    pipe->used++;
    return slot;
}

void pipe_undo_add(struct pipe *pipe)
{
    struct pipe_slot *slot = pipe_slot(pipe, --pipe->used);

    arena_free(slot->bytes);
    *slot = (struct pipe_slot){0};
}

void pipe_wake(struct pipe *pipe, uint32_t events)
{
    waitq_wake(&pipe->waitq, events);
}

/* ---- reading and writing ---- */

/* From one slot; true: go on with the next. */
static bool read_slot(struct pipe *pipe, struct uio *to, int64_t *done)
{
    struct pipe_slot *slot = pipe_slot(pipe, 0);
    bool packet = slot->packet;
    int64_t n = uio_to(to, slot->bytes + slot->offset, slot->length);

    if (n < 0) {
        if (!*done)
            *done = n;
        return false;
    }
    *done += n;
    slot->offset = (uint16_t)(slot->offset + n);
    slot->length = (uint16_t)(slot->length - n);
    if (packet)
        slot->length = 0;
    if (slot->length)
        return false;
    pipe_drop_first(pipe);
    return !packet && to->left;
}

int pipe_wait_data(struct file *file, bool nonblock)
{
    struct pipe *pipe = file->data;
    int r;

    if (pipe->used)
        return 1;
    if (!pipe->writers)
        return 0;
    if (nonblock)
        return -EAGAIN;
    r = WAIT_UNTIL(&pipe->waitq, POLLIN | POLLHUP, WAIT_FOREVER, pipe->used || !pipe->writers);
    return r < 0 ? r : pipe->used > 0;
}

static int64_t pipe_read(struct file *file, struct uio *to, int64_t *position)
{
    struct pipe *pipe = file->data;
    int64_t done = 0;
    bool was_full;
    int r;

    (void)position;
    if (!to->left)
        return 0;
    r = pipe_wait_data(file, file->flags & O_NONBLOCK);
    if (r <= 0)
        return r;
    was_full = pipe_full(pipe);
    while (pipe->used && read_slot(pipe, to, &done))
        ;
    if (was_full && !pipe_full(pipe))
        pipe_wake(pipe, READY_OUT);
    return done;
}

int pipe_wait_room(struct file *file, bool nonblock)
{
    struct pipe *pipe = file->data;
    int r = 0;

    if (pipe->readers && pipe_full(pipe)) {
        if (nonblock)
            return -EAGAIN;
        r = WAIT_UNTIL(&pipe->waitq, POLLOUT | POLLERR, WAIT_FOREVER,
                       !pipe->readers || !pipe_full(pipe));
    }
    if (!pipe->readers) {
        task_kill_with(SIGPIPE);
        return -EPIPE;
    }
    return r;
}

/* The odd bytes of a write go behind those of the last slot where they fit whole. */
static int64_t write_merge(struct pipe *pipe, struct uio *from)
{
    struct pipe_slot *last;
    size_t odd = from->left % PAGE_SIZE;
    int64_t n;

    if (!odd || !pipe->used)
        return 0;
    last = pipe_slot(pipe, pipe->used - 1);
    if (last->packet || last->alone || last->offset + last->length + odd > PAGE_SIZE)
        return 0;
    n = uio_from(from, last->bytes + last->offset + last->length, odd);
    if (n != (int64_t)odd)
        return -EFAULT;
    last->length = (uint16_t)(last->length + n);
    return n;
}

static int64_t write_slot(struct pipe *pipe, struct uio *from, bool packet)
{
    size_t size = from->left < PAGE_SIZE ? from->left : PAGE_SIZE;
    struct pipe_slot *slot = pipe_add(pipe);
    int64_t n;

    if (!slot)
        return -ENOMEM;
    n = uio_from(from, slot->bytes, size);
    if (n != (int64_t)size) { /* all of a page or nothing of it */
        pipe_undo_add(pipe);
        return -EFAULT;
    }
    slot->length = (uint16_t)n;
    slot->packet = packet;
    return n;
}

static int64_t pipe_write(struct file *file, struct uio *from, int64_t *position)
{
    struct pipe *pipe = file->data;
    int64_t done = 0, n = 0;

    (void)position;
    if (!from->left)
        return 0;
    if (!pipe->readers)
        return pipe_wait_room(file, true);
    if (!(file->flags & O_DIRECT))
        n = write_merge(pipe, from);
    if (n < 0)
        return n;
    done = n;
    while (from->left) {
        if (done && (pipe_full(pipe) || !pipe->readers))
            pipe_wake(pipe, READY_IN); /* before it sleeps */
        n = pipe_wait_room(file, file->flags & O_NONBLOCK);
        if (n == 0)
            n = write_slot(pipe, from, file->flags & O_DIRECT);
        if (n <= 0)
            break;
        done += n;
    }
    pipe_wake(pipe, READY_IN); /* an edge for epoll even when nothing went in: as Linux has it */
    return done ? done : n;
}

static uint32_t pipe_poll(struct file *file, struct waiter *waiter)
{
    struct pipe *pipe = file->data;
    uint32_t ready = 0;

    if (waiter)
        waiter_add(waiter, &pipe->waitq, waiter->events);
    if (file->mode & FMODE_READ) {
        if (pipe->used)
            ready |= READY_IN;
        if (!pipe->writers && file->position != pipe->opened_write)
            ready |= POLLHUP;
    }
    if (file->mode & FMODE_WRITE) {
        if (!pipe_full(pipe))
            ready |= READY_OUT;
        if (!pipe->readers)
            ready |= POLLERR;
    }
    return ready;
}

static int64_t pipe_ioctl(struct file *file, uint32_t request, uint64_t argument)
{
    struct pipe *pipe = file->data;
    uint32_t i;
    int bytes = 0;

    if (request != FIONREAD)
        return -ENOTTY;
    for (i = 0; i < pipe->used; i++)
        bytes += pipe_slot(pipe, i)->length;
    return put_int(argument, bytes);
}

void pipe_release(struct file *file)
{
    struct pipe *pipe = file->data;

    if (file->mode & FMODE_READ)
        pipe->readers--;
    if (file->mode & FMODE_WRITE)
        pipe->writers--;
    if (!pipe->readers != !pipe->writers)
        pipe_wake(pipe, READY_IN | READY_OUT | POLLERR | POLLHUP);
    pipe_put(pipe);
}

/* ---- opening ---- */

void pipe_opened(struct pipe *pipe, struct file *file)
{
    if (file->mode & FMODE_READ) {
        pipe->readers++;
        pipe->opened_read++;
    }
    if (file->mode & FMODE_WRITE) {
        pipe->writers++;
        pipe->opened_write++;
    }
    pipe_wake(pipe, 0);
}

static struct file *pipe_end(struct pipe *pipe, struct inode *inode, uint32_t flags)
{
    struct file *file = file_new(FILE_PIPE, flags);

    if (!file)
        return NULL;
    file->mode |= FMODE_STREAM;
    file->mode &= (uint16_t)~FMODE_SEEK;
    file->data = pipe;
    file->inode = inode;
    inode_get(inode);
    pipe->refs++;
    pipe_opened(pipe, file);
    return file;
}

int pipe_new(struct file **ret_read, struct file **ret_write, uint32_t flags)
{
    struct pipe *pipe = pipe_make();
    struct inode *inode;
    int r = -ENFILE;

    if (!pipe)
        return r;
    inode = inode_new(INODE_ANON, S_IFIFO | 0600);
    if (inode) {
        inode->uid = current->cred->fsuid; /* whose it is, may open it again */
        inode->gid = current->cred->fsgid;
        flags &= O_NONBLOCK | O_DIRECT;
        *ret_read = pipe_end(pipe, inode, O_RDONLY | (flags & O_NONBLOCK));
        *ret_write = *ret_read ? pipe_end(pipe, inode, O_WRONLY | flags) : NULL;
        if (*ret_write) {
            inode->data = pipe; /* it can be opened again, by /proc/PID/fd */
            pipe->inode = inode;
            r = 0;
        } else if (*ret_read)
            file_put(*ret_read);
        inode_put(inode);
    }
    pipe_put(pipe);
    return r;
}

/* ---- calls ---- */

static int64_t resize(struct pipe *pipe, uint64_t bytes)
{
    struct pipe_slot *slots;
    uint32_t i, n = 1;

    if (bytes > 1u << 31)
        return -EINVAL;
    while (n * PAGE_SIZE < bytes)
        n *= 2;
    if (n > SLOTS_MAX)
        return -EPERM;
    if (n < pipe->used)
        return -EBUSY;
    if (n > pipe->n_slots && ipc()->pipe_slots + n - pipe->n_slots > slots_soft())
        return -EPERM;
    slots = arena_alloc(ARENA_BYTES, n * sizeof(*slots));
    if (!slots)
        return -ENOMEM;
    for (i = 0; i < pipe->used; i++)
        slots[i] = *pipe_slot(pipe, i);
    arena_free(pipe->slots);
    ipc()->pipe_slots += (uint64_t)n - pipe->n_slots;
    pipe->slots = slots;
    pipe->n_slots = n;
    pipe->first = 0;
    if (!pipe_full(pipe))
        pipe_wake(pipe, READY_OUT);
    return (int64_t)(n * PAGE_SIZE);
}

int64_t pipe_fcntl(struct file *file, int command, uint64_t argument)
{
    struct pipe *pipe = file_pipe(file);

    if (!pipe)
        return -EBADF;
    if (command == F_SETPIPE_SZ)
        return resize(pipe, (uint32_t)argument);
    return command == F_GETPIPE_SZ ? (int64_t)(pipe->n_slots * PAGE_SIZE) : -EINVAL;
}

static int64_t pipe_call(uint64_t to, uint64_t flags)
{
    struct file *ends[2];
    int64_t r;
    int fds[2];

    if (flags & ~(uint64_t)(O_CLOEXEC | O_NONBLOCK | O_DIRECT))
        return -EINVAL;
    r = pipe_new(&ends[0], &ends[1], (uint32_t)flags);
    if (r < 0)
        return r;
    r = install(ends[0], flags & O_CLOEXEC);
    if (r < 0) {
        file_put(ends[1]);
        return r;
    }
    fds[0] = (int)r;
    r = install(ends[1], flags & O_CLOEXEC);
    if (r >= 0) {
        fds[1] = (int)r;
        r = copy_out(current->mm, to, fds, sizeof(fds));
        if (r < 0)
            fd_close(fds[1]);
    }
    if (r < 0)
        fd_close(fds[0]);
    return r < 0 ? r : 0;
}

SYSCALL(pipe)
{
    return pipe_call(a[0], 0);
}

SYSCALL(pipe2)
{
    return pipe_call(a[0], a[1] & 0xffffffff);
}

const struct file_ops pipe_ops = {
    .read = pipe_read,
    .write = pipe_write,
    .poll = pipe_poll,
    .ioctl = pipe_ioctl,
    .release = pipe_release,
};
