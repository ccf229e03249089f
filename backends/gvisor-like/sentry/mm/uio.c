/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * uio - the bytes of a system call, wherever they are: parts of guest memory, or of the kernel's own.
 * Invariants: the parts were judged when they were read: none is longer than INT64_MAX, all together are at most UIO_BYTES.
 * Threads: the kernel lock.
 */
#include <string.h>

#include "space.h"

#define UIO_BYTES 0x7ffff000u

void uio_one(struct uio *uio, struct iovec *part, struct mm *mm, uint64_t address, size_t size)
{
    *part = (struct iovec){(void *)(uintptr_t)address, size};
    *uio = (struct uio){
        .mm = mm, .parts = part, .n_parts = 1, .left = size < UIO_BYTES ? size : UIO_BYTES};
}

int uio_guest(struct uio *uio, struct mm *mm, uint64_t parts, uint64_t count)
{
    uint64_t i, left = 0;

    *uio = (struct uio){.mm = mm};
    if (count > UIO_MAX)
        return -EINVAL;
    if (count == 0)
        return 0;
    uio->parts = arena_alloc(ARENA_BYTES, count * sizeof(struct iovec));
    if (!uio->parts)
        return -ENOMEM;
    if (copy_in(mm, uio->parts, parts, count * sizeof(struct iovec))) {
        uio_free(uio);
        return -EFAULT;
    }
    for (i = 0; i < count; i++) {
        if (uio->parts[i].iov_len > INT64_MAX) {
            uio_free(uio);
            return -EINVAL;
        }
        if (uio->parts[i].iov_len > UIO_BYTES - left)
            uio->parts[i].iov_len = UIO_BYTES - left;
        left += uio->parts[i].iov_len;
    }
    uio->n_parts = (unsigned)count;
    uio->left = left;
    return 0;
}

void uio_free(struct uio *uio)
{
    arena_free(uio->parts);
    uio->parts = NULL;
    uio->n_parts = 0;
    uio->left = 0;
}

/* One stretch; how many bytes, or -EFAULT. */
static int64_t move_some(struct uio *uio, uint64_t at, void *buffer, size_t size, bool out)
{
    if (!uio->mm) {
        if (out)
            memcpy((void *)(uintptr_t)at, buffer, size);
        else
            memcpy(buffer, (void *)(uintptr_t)at, size);
        return (int64_t)size;
    }
    return out ? copy_out_some(uio->mm, at, buffer, size) : copy_in_some(uio->mm, buffer, at, size);
}

static int64_t move(struct uio *uio, void *buffer, size_t size, bool out)
{
    size_t done = 0;

    while (done < size && uio->left && uio->part < uio->n_parts) {
        const struct iovec *part = &uio->parts[uio->part];
        size_t n = part->iov_len - uio->offset;
        int64_t moved;

        if (n == 0) {
            uio->part++;
            uio->offset = 0;
            continue;
        }
        n = n < size - done ? n : size - done;
        n = n < uio->left ? n : uio->left;
        moved = move_some(uio, (uint64_t)(uintptr_t)part->iov_base + uio->offset,
                          (char *)buffer + done, n, out);
        if (moved < 0)
            return done ? (int64_t)done : moved;
        uio->offset += (size_t)moved;
        uio->left -= (size_t)moved;
        done += (size_t)moved;
        if ((size_t)moved < n)
            break;
    }
    return (int64_t)done;
}

int64_t uio_from(struct uio *uio, void *buffer, size_t size)
{
    return move(uio, buffer, size, false);
}

int64_t uio_to(struct uio *uio, const void *bytes, size_t size)
{
    return move(uio, (void *)(uintptr_t)bytes, size, true);
}
