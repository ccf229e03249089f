/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * eventfd - a counter that can be waited for.
 * Invariants: count is never UINT64_MAX.
 * Threads: the kernel lock.
 */
#include <sys/eventfd.h>

#include "state.h"

struct eventfd {
    uint64_t count;
    bool semaphore;
    struct waitq waitq;
};

static int64_t counter_read(struct file *file, struct uio *to, int64_t *position)
{
    struct eventfd *e = file->data;
    uint64_t value;
    int64_t n;
    int r = 0;

    (void)position;
    if (to->left < sizeof(value))
        return -EINVAL;
    if (!e->count && (file->flags & O_NONBLOCK))
        return -EAGAIN;
    if (!e->count)
        r = WAIT_UNTIL(&e->waitq, POLLIN, WAIT_FOREVER, e->count > 0);
    if (r < 0)
        return r;
    value = e->semaphore ? 1 : e->count;
    e->count -= value;
    waitq_wake(&e->waitq, READY_OUT);
    n = uio_to(to, &value, sizeof(value));
    return n == (int64_t)sizeof(value) ? n : -EFAULT;
}

static int64_t counter_write(struct file *file, struct uio *from, int64_t *position)
{
    struct eventfd *e = file->data;
    uint64_t value;
    int r = 0;

    (void)position;
    if (from->left < sizeof(value))
        return -EINVAL;
    if (uio_from(from, &value, sizeof(value)) != (int64_t)sizeof(value))
        return -EFAULT;
    if (value == UINT64_MAX)
        return -EINVAL;
    if (UINT64_MAX - e->count <= value && (file->flags & O_NONBLOCK))
        return -EAGAIN;
    if (UINT64_MAX - e->count <= value)
        r = WAIT_UNTIL(&e->waitq, POLLOUT, WAIT_FOREVER, UINT64_MAX - e->count > value);
    if (r < 0)
        return r;
    e->count += value;
    waitq_wake(&e->waitq, READY_IN);
    return sizeof(value);
}

static uint32_t counter_poll(struct file *file, struct waiter *waiter)
{
    struct eventfd *e = file->data;

    if (waiter)
        waiter_add(waiter, &e->waitq, waiter->events);
    /* Neither POLLRDNORM nor POLLWRNORM: as Linux has it. */
    return (e->count ? POLLIN : 0) | (e->count < UINT64_MAX - 1 ? POLLOUT : 0);
}

static void counter_release(struct file *file)
{
    arena_free(file->data);
    anon_file_gone();
}

static int64_t create(uint32_t count, uint32_t flags)
{
    struct eventfd *e;
    struct file *file;

    if (flags & ~(uint32_t)(EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK))
        return -EINVAL;
    e = arena_alloc(ARENA_BYTES, sizeof(*e));
    if (!e)
        return -ENOMEM;
    file = anon_file(FILE_EVENTFD, O_RDWR | (flags & O_NONBLOCK), 0600);
    if (!file) {
        arena_free(e);
        return -ENFILE;
    }
    e->count = count;
    e->semaphore = flags & EFD_SEMAPHORE;
    waitq_init(&e->waitq);
    file->data = e;
    return install(file, flags & O_CLOEXEC);
}

SYSCALL(eventfd)
{
    return create((uint32_t)a[0], 0);
}

SYSCALL(eventfd2)
{
    return create((uint32_t)a[0], (uint32_t)a[1]);
}

const struct file_ops eventfd_ops = {
    .read = counter_read,
    .write = counter_write,
    .poll = counter_poll,
    .release = counter_release,
};
