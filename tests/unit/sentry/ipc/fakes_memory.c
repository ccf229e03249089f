/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* fakes_memory - guest memory is the test's own; a bad address is found by the host (process_vm_readv). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fakes.h"

static uint64_t guest_at, guest_size; /* size 0: all there is */

void fake_guest(const void *at, size_t size)
{
    guest_at = (uintptr_t)at;
    guest_size = size;
}

static int64_t move(void *own, uint64_t guest, size_t size, bool out)
{
    struct iovec here = {own, size}, there = {(void *)guest, size};
    ssize_t n;

    if (!size)
        return 0;
    if (guest_size && guest - guest_at >= guest_size)
        return -EFAULT;
    if (guest_size && size > guest_size - (guest - guest_at))
        here.iov_len = there.iov_len = guest_size - (guest - guest_at);
    n = out ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
            : process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    return n <= 0 ? -EFAULT : n;
}

int copy_in(struct mm *mm, void *to, uint64_t from, size_t size)
{
    (void)mm;
    return move(to, from, size, false) == (int64_t)size ? 0 : -EFAULT;
}

int copy_out(struct mm *mm, uint64_t to, const void *from, size_t size)
{
    (void)mm;
    return move((void *)(uintptr_t)from, to, size, true) == (int64_t)size ? 0 : -EFAULT;
}

int64_t copy_in_string(struct mm *mm, char *to, uint64_t from, size_t size)
{
    size_t i;

    for (i = 0; i < size; i++) {
        if (copy_in(mm, to + i, from + i, 1) < 0)
            return -EFAULT;
        if (!to[i])
            return (int64_t)i;
    }
    return -ENAMETOOLONG;
}

void uio_one(struct uio *uio, struct iovec *part, struct mm *mm, uint64_t address, size_t size)
{
    *part = (struct iovec){(void *)address, size};
    *uio = (struct uio){.mm = mm, .parts = part, .n_parts = 1, .left = size};
}

int uio_guest(struct uio *uio, struct mm *mm, uint64_t parts, uint64_t count)
{
    size_t i;

    *uio = (struct uio){.mm = mm};
    if (count > UIO_MAX)
        return -EINVAL;
    uio->parts = calloc(count + 1, sizeof(struct iovec));
    if (!uio->parts)
        return -ENOMEM;
    if (copy_in(mm, uio->parts, parts, count * sizeof(struct iovec)) < 0) {
        free(uio->parts);
        return -EFAULT;
    }
    uio->n_parts = (unsigned)count;
    for (i = 0; i < count; i++)
        uio->left += uio->parts[i].iov_len;
    return 0;
}

void uio_free(struct uio *uio)
{
    free(uio->parts);
}

static int64_t uio_move(struct uio *uio, char *own, size_t size, bool out)
{
    size_t done = 0, n;
    struct iovec *part;
    int64_t r;

    while (done < size && uio->left) {
        part = &uio->parts[uio->part];
        n = part->iov_len - uio->offset;
        if (!n) {
            uio->part++;
            uio->offset = 0;
            continue;
        }
        n = n < size - done ? n : size - done;
        if (uio->mm) {
            r = move(own + done, (uint64_t)part->iov_base + uio->offset, n, out);
        } else {
            memcpy(out ? (char *)part->iov_base + uio->offset : own + done,
                   out ? own + done : (char *)part->iov_base + uio->offset, n);
            r = (int64_t)n;
        }
        if (r < 0)
            return done ? (int64_t)done : r;
        done += (size_t)r;
        uio->offset += (size_t)r;
        uio->left -= (size_t)r;
    }
    return (int64_t)done;
}

int64_t uio_from(struct uio *uio, void *buffer, size_t size)
{
    return uio_move(uio, buffer, size, false);
}

int64_t uio_to(struct uio *uio, const void *bytes, size_t size)
{
    return uio_move(uio, (void *)(uintptr_t)bytes, size, true);
}

/* ---- segments: never attached here ---- */

struct object *object_new(uint64_t size)
{
    struct object *object = arena_alloc(ARENA_OBJECT, sizeof(*object));

    object->refs = 1;
    object->size = size;
    return object;
}

void object_put(struct object *object)
{
    if (--object->refs == 0)
        arena_free(object);
}

int64_t mm_map(struct mm *mm, uint64_t address, uint64_t size, int prot, int max_prot,
               unsigned flags, struct file *file, struct object *object, uint64_t offset)
{
    (void)mm;
    (void)address;
    (void)size;
    (void)prot;
    (void)max_prot;
    (void)flags;
    (void)file;
    (void)object;
    (void)offset;
    return -ENOMEM;
}

int mm_unmap(struct mm *mm, uint64_t address, uint64_t size)
{
    (void)mm;
    (void)address;
    (void)size;
    return -EINVAL;
}

bool mm_next_area(struct mm *mm, uint64_t address, struct vma_info *ret_area)
{
    (void)mm;
    (void)address;
    (void)ret_area;
    return false;
}
