/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * uaccess - copies between the kernel and guest memory: the only place where a guest's pointer is followed.
 * An address is looked up in the areas, as the processor would in page tables, and the bytes are those of the memory file
 * in the sentry's own mapping: a bad pointer is an answer, never a fault of ours.
 * Invariants: nothing is written by way of a page with several references. Guests change bytes while they are copied:
 * what is judged is the copy.
 * Threads: the kernel lock.
 */
#include <string.h>
#include <sys/mman.h>

#include "../task.h"
#include "space.h"

enum direction { FROM_GUEST, TO_GUEST };

/* Bytes of one page; 0 or -errno. */
static int copy_page(struct mm *mm, uint64_t address, void *buffer, size_t size,
                     enum direction direction)
{
    struct vma *vma = area_reach(mm, address);
    struct page *page;
    int error;

    if (!vma ||
        !(vma->prot & (direction == FROM_GUEST ? PROT_READ | PROT_EXEC | PROT_WRITE : PROT_WRITE)))
        return -EFAULT;
    error = page_reach(mm, vma, address, direction != FROM_GUEST, &page);
    if (error)
        return error;
    if (page) {
        char *bytes = (char *)page_bytes(page) + address % PAGE_SIZE;

        if (direction == FROM_GUEST)
            memcpy(buffer, bytes, size);
        else
            memcpy(bytes, buffer, size);
        return 0;
    }
    memset(buffer, 0, size); /* read: nothing there, or the backing */
    if (vma->object &&
        object_read(vma->object, vma->offset + (address - vma->start), buffer, size) < 0)
        return -EFAULT;
    return 0;
}

/* As far as it goes. *ret_error: what stopped it. */
static size_t copy(struct mm *mm, uint64_t address, void *buffer, size_t size,
                   enum direction direction, int *ret_error)
{
    size_t done = 0;

    kernel_assert_locked();
    *ret_error = 0;
    if (size && (address >= PLATFORM_GUEST_MAX || size > PLATFORM_GUEST_MAX - address)) {
        *ret_error = -EFAULT;
        if (address >= PLATFORM_GUEST_MAX)
            return 0;
        size = PLATFORM_GUEST_MAX - address;
    }
    while (done < size) {
        uint64_t at = address + done;
        size_t n = PAGE_SIZE - at % PAGE_SIZE;

        if (n > size - done)
            n = size - done;
        *ret_error = copy_page(mm, at, (char *)buffer + done, n, direction);
        if (*ret_error)
            break;
        done += n;
    }
    return done;
}

int copy_in(struct mm *mm, void *to, uint64_t from, size_t size)
{
    int error;

    return copy(mm, from, to, size, FROM_GUEST, &error) == size ? 0 : -EFAULT;
}

int copy_out(struct mm *mm, uint64_t to, const void *from, size_t size)
{
    int error;

    return copy(mm, to, (void *)(uintptr_t)from, size, TO_GUEST, &error) == size ? 0 : -EFAULT;
}

int64_t copy_in_some(struct mm *mm, void *to, uint64_t from, size_t size)
{
    int error;
    size_t done = copy(mm, from, to, size, FROM_GUEST, &error);

    return done || !size ? (int64_t)done : -EFAULT;
}

int64_t copy_out_some(struct mm *mm, uint64_t to, const void *from, size_t size)
{
    int error;
    size_t done = copy(mm, to, (void *)(uintptr_t)from, size, TO_GUEST, &error);

    return done || !size ? (int64_t)done : -EFAULT;
}

int zero_out(struct mm *mm, uint64_t to, size_t size)
{
    static char zeros[PAGE_SIZE];

    while (size) {
        size_t n = size < PAGE_SIZE ? size : PAGE_SIZE;
        int error = copy_out(mm, to, zeros, n);

        if (error)
            return error;
        to += n;
        size -= n;
    }
    return 0;
}

int64_t copy_in_string(struct mm *mm, char *to, uint64_t from, size_t size)
{
    size_t done = 0;
    int error;

    while (done < size) {
        size_t n = PAGE_SIZE - (from + done) % PAGE_SIZE, got;
        char *end;

        if (n > size - done)
            n = size - done;
        got = copy(mm, from + done, to + done, n, FROM_GUEST, &error);
        end = memchr(to + done, 0, got);
        if (end)
            return end - to;
        if (got < n)
            return -EFAULT;
        done += n;
    }
    return -ENAMETOOLONG;
}

/* ---- words ---- */

static int word(struct mm *mm, uint64_t address, bool write, uint32_t **ret_word)
{
    struct vma *vma;
    struct page *page;
    int error;

    kernel_assert_locked();
    if (address % sizeof(uint32_t))
        return -EINVAL;
    if (address >= PLATFORM_GUEST_MAX)
        return -EFAULT;
    vma = area_reach(mm, address);
    if (!vma || vma->prot == PROT_NONE || (write && !(vma->prot & PROT_WRITE)))
        return -EFAULT;
    error = page_reach(mm, vma, address, write, &page);
    if (error)
        return -EFAULT;
    *ret_word = page ? (uint32_t *)((char *)page_bytes(page) + address % PAGE_SIZE) : NULL;
    return 0;
}

int guest_word_load(struct mm *mm, uint64_t address, uint32_t *ret_value)
{
    uint32_t *at;
    int error = word(mm, address, false, &at);

    if (error)
        return error;
    if (!at)
        return copy_in(mm, ret_value, address, sizeof(*ret_value));
    *ret_value = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    return 0;
}

int guest_word_cas(struct mm *mm, uint64_t address, uint32_t expected, uint32_t value,
                   uint32_t *ret_seen)
{
    uint32_t *at;
    int error = word(mm, address, true, &at);

    if (error)
        return error;
    *ret_seen = expected;
    __atomic_compare_exchange_n(at, ret_seen, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return 0;
}

int futex_key(struct mm *mm, uint64_t address, bool shared, struct futex_key *ret_key)
{
    struct vma *vma;

    if (address % sizeof(uint32_t))
        return -EINVAL;
    if (address >= PLATFORM_GUEST_MAX)
        return -EFAULT;
    *ret_key = (struct futex_key){mm, address};
    if (!shared)
        return 0;
    vma = area_find(mm, address);
    if (!vma || vma->prot == PROT_NONE)
        return -EFAULT;
    if (vma->flags & VMA_SHARED)
        *ret_key = (struct futex_key){(void *)(uintptr_t)vma->object->serial, /* NOLINT: a name */
                                      vma->offset + (address - vma->start)};
    return 0;
}
