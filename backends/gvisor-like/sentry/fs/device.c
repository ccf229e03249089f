/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * device - the devices without state: null, zero, full, random, urandom; which numbers mean a device at all.
 *
 * A node of any other number can be made where the guest may make nodes, and opens as "no such device".
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <string.h>
#include <sys/random.h>
#include <sys/sysmacros.h>

/* @seccomp sentry: getrandom */

#pragma weak tty_open

#define MEM_MAJOR_ 1u
#define TTYAUX_MAJOR_ 5u
#define PTS_MAJOR_ 136u

static const struct {
    unsigned minor;
    enum file_kind kind;
} memory_devices[] = {
    {3, FILE_NULL}, {5, FILE_ZERO}, {7, FILE_FULL}, {8, FILE_RANDOM}, {9, FILE_RANDOM}};

static const uint8_t zeros[PAGE_SIZE];

static bool of_terminals(uint64_t rdev)
{
    return (major(rdev) == TTYAUX_MAJOR_ && minor(rdev) <= 2) || major(rdev) == PTS_MAJOR_;
}

static int memory_device(uint64_t rdev)
{
    size_t i;

    if (major(rdev) == MEM_MAJOR_)
        for (i = 0; i < sizeof(memory_devices) / sizeof(memory_devices[0]); i++)
            if (memory_devices[i].minor == minor(rdev))
                return (int)memory_devices[i].kind;
    return -ENXIO;
}

bool device_known(uint32_t mode, uint64_t rdev)
{
    return S_ISCHR(mode) && (memory_device(rdev) >= 0 || of_terminals(rdev));
}

int device_open(struct inode *inode, struct file *file)
{
    int kind;

    if (!S_ISCHR(inode->mode))
        return -ENXIO;
    if (of_terminals(inode->rdev))
        return tty_open ? tty_open(inode, file) : -ENXIO;
    kind = memory_device(inode->rdev);
    if (kind < 0)
        return kind;
    file->kind = (uint16_t)kind;
    file->mode |= FMODE_SEEK;
    return 0;
}

static int64_t null_read(struct file *file, struct uio *to, int64_t *position)
{
    (void)file;
    (void)to;
    (void)position;
    return 0;
}

/* Takes all there is, and looks at none of it. */
static int64_t null_write(struct file *file, struct uio *from, int64_t *position)
{
    int64_t size = (int64_t)from->left;

    (void)file;
    (void)position;
    from->left = 0;
    return size;
}

static int64_t zero_read(struct file *file, struct uio *to, int64_t *position)
{
    int64_t total = 0, put;

    (void)file;
    (void)position;
    while (to->left) {
        put = uio_to(to, zeros, to->left < sizeof(zeros) ? to->left : sizeof(zeros));
        if (put <= 0)
            return total ? total : put;
        total += put;
    }
    return total;
}

static int64_t full_write(struct file *file, struct uio *from, int64_t *position)
{
    (void)file;
    (void)position;
    return from->left ? -ENOSPC : 0;
}

static int64_t random_read(struct file *file, struct uio *to, int64_t *position)
{
    uint8_t bytes[1024];
    int64_t total = 0, put;
    ssize_t got;

    (void)file;
    (void)position;
    while (to->left) {
        got = getrandom(bytes, to->left < sizeof(bytes) ? to->left : sizeof(bytes), 0);
        if (got <= 0)
            return total ? total : -EIO;
        put = uio_to(to, bytes, (size_t)got);
        if (put <= 0)
            return total ? total : put;
        total += put;
        if (signal_pending(current))
            break;
    }
    return total;
}

/* What is written to it would be mixed into the pool: the host's does not need it. */
static int64_t random_write(struct file *file, struct uio *from, int64_t *position)
{
    return null_write(file, from, position);
}

static int64_t random_ioctl(struct file *file, uint32_t request, uint64_t argument)
{
    int32_t bits = 256;

    (void)file;
    switch (request) {
    case 0x80045200: /* RNDGETENTCNT */
        return copy_out(current->mm, argument, &bits, sizeof(bits));
    case 0x40045201: /* RNDADDTOENTCNT */
    case 0x40085203: /* RNDADDENTROPY */
    case 0x5204:     /* RNDZAPENTCNT */
    case 0x5206:     /* RNDCLEARPOOL */
    case 0x5207:     /* RNDRESEEDCRNG */
        return -EPERM;
    default:
        return -EINVAL;
    }
}

static int64_t device_seek(struct file *file, int64_t offset, int whence)
{
    (void)offset;
    (void)whence;
    return file->position = 0;
}

static uint32_t random_poll(struct file *file, struct waiter *waiter)
{
    (void)file;
    (void)waiter;
    return POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM;
}

/* A mapping of zeros of its own: shared by nobody but who it is forked to. */
static int zero_map(struct file *file, struct object **ret_object)
{
    (void)file;
    *ret_object = NULL; /* as anonymous memory: mm makes what it needs */
    return 0;
}

const struct file_ops file_ops_null = {.read = null_read, .write = null_write, .seek = device_seek};
const struct file_ops file_ops_zero = {
    .read = zero_read, .write = null_write, .seek = device_seek, .map = zero_map};
const struct file_ops file_ops_full = {.read = zero_read, .write = full_write, .seek = device_seek};
const struct file_ops file_ops_random = {.read = random_read,
                                         .write = random_write,
                                         .poll = random_poll,
                                         .seek = device_seek,
                                         .ioctl = random_ioctl};
