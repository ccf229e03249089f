/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * object - bytes that several may map and read: a file's content, shared memory.
 * Why no cache of the backing: the host has one. A page is in memory here when it was changed, or when the host does not let
 * the stub map its file; the rest is read, or mapped, from the backing itself.
 * Invariants: what the backing has below `backed` and is not in `pages` is its content; above it and not in `pages` are zeros.
 * `backed` only falls. The bytes of a page past `size` are zero.
 * Threads: the kernel lock; guests that map a page change it at any time.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "space.h"

struct object *object_new(uint64_t size)
{
    static uint64_t last;
    struct object *object = arena_alloc(ARENA_OBJECT, sizeof(*object));

    if (!object)
        return NULL;
    object->refs = 1;
    object->size = size;
    object->serial = ++last;
    object->host_fd = -1;
    TAILQ_INIT(&object->mappings);
    return object;
}

struct object *object_new_backed(int host_fd, uint64_t size)
{
    struct object *object = object_new(size);

    if (!object) {
        close(host_fd);
        return NULL;
    }
    backing_take(object, host_fd, size);
    return object;
}

void object_get(struct object *object)
{
    if (object->refs == 0 || object->refs == UINT32_MAX)
        kpanic("memory: an object has %u references and gets one", object->refs);
    object->refs++;
}

/* A page that is to be written counts against the account. */
static int charge(struct object *object)
{
    struct object_account *account = object->account;

    if (!account)
        return 0;
    if (account->limit && account->used + PAGE_SIZE > account->limit) {
        account->refused++;
        return -ENOSPC;
    }
    account->used += PAGE_SIZE;
    object->charged += PAGE_SIZE;
    return 0;
}

/* Pages are gone: what is charged is at most what is there. */
static void give_back(struct object *object)
{
    uint64_t left = object->pages.count * PAGE_SIZE;

    if (object->charged <= left)
        return;
    object->account->used -= object->charged - left;
    object->charged = left;
}

void object_put(struct object *object)
{
    kernel_assert_locked();
    if (!object)
        return;
    if (object->refs == 0)
        kpanic("memory: an object has no reference and loses one");
    if (--object->refs > 0)
        return;
    pagemap_clear(&object->pages);
    give_back(object);
    backing_close(object);
    arena_free(object);
}

/* Whole, or -EIO. @seccomp sentry: pread64 */
static int load(const struct object *object, uint64_t offset, void *to, size_t size)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = pread(object->host_fd, (char *)to + done, size - done, (off_t)(offset + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -EIO;
        done += (size_t)n;
    }
    return 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int object_peek(const struct object *object, uint64_t index, struct page **ret_page)
{
    struct page *page;

    if (index >= (object->size + PAGE_SIZE - 1) >> PAGE_SHIFT)
        return -EFAULT;
    page = pagemap_get(&object->pages, index);
    if (page) {
        *ret_page = page;
        return OBJECT_PAGE;
    }
    return index << PAGE_SHIFT < object->backed ? OBJECT_BACKED : OBJECT_HOLE;
}

/* A page that was not in memory; fill: with what the backing has there. write: it is no copy of that for long. */
static int make_page(struct object *object, uint64_t index, bool fill, bool write,
                     struct page **ret_page)
{
    struct page *before = index ? pagemap_get(&object->pages, index - 1) : NULL, *page;
    uint64_t offset = index << PAGE_SHIFT;
    int error = 0;

    if (!page_alloc_run(1, before, &page))
        return -ENOMEM;
    if (write)
        error = charge(object);
    if (!error && fill && offset < object->backed)
        error = load(object, offset, page_bytes(page), least(PAGE_SIZE, object->backed - offset));
    if (!error)
        error = pagemap_set(&object->pages, index, page);
    if (error) {
        page_put(page);
        give_back(object);
        return error;
    }
    object->resident = object->pages.count;
    if (offset < object->backed) /* stubs may show the backing there */
        mm_forget(object, offset, PAGE_SIZE);
    *ret_page = page;
    return 0;
}

static int writable_page(struct object *object, uint64_t index, bool fill, struct page **ret_page)
{
    struct page *page = pagemap_get(&object->pages, index);

    if (!page)
        return make_page(object, index, fill, true, ret_page);
    *ret_page = page;
    return 0;
}

int object_page(struct object *object, uint64_t index, bool write, struct page **ret_page)
{
    struct page *page = pagemap_get(&object->pages, index);
    int error;

    kernel_assert_locked();
    if (!page && !write && index << PAGE_SHIFT >= object->backed) {
        *ret_page = NULL;
        return 0;
    }
    if (!page) {
        error = make_page(object, index, true, write, &page);
        if (error)
            return error;
    }
    page_get(page);
    *ret_page = page;
    return 0;
}

/* How many bytes from offset on are of one kind, at most `size`. */
static size_t stretch(const struct object *object, uint64_t offset, size_t size, int kind)
{
    uint64_t index = offset >> PAGE_SHIFT, end = (offset + size + PAGE_SIZE - 1) >> PAGE_SHIFT;

    if (kind == OBJECT_PAGE)
        return least(size, PAGE_SIZE - offset % PAGE_SIZE);
    if (!pagemap_next(&object->pages, &index, end))
        index = end;
    if (kind == OBJECT_BACKED)
        return least(least(size, object->backed - offset), (index << PAGE_SHIFT) - offset);
    return least(size, (index << PAGE_SHIFT) - offset);
}

int64_t object_read(struct object *object, uint64_t offset, void *buffer, size_t size)
{
    size_t done = 0;

    kernel_assert_locked();
    if (offset >= object->size)
        return 0;
    size = least(size, object->size - offset);
    while (done < size) {
        uint64_t at = offset + done;
        struct page *page = pagemap_get(&object->pages, at >> PAGE_SHIFT);
        int kind = page ? OBJECT_PAGE : at < object->backed ? OBJECT_BACKED : OBJECT_HOLE;
        size_t n = stretch(object, at, size - done, kind);
        char *to = (char *)buffer + done;
        int error = 0;

        if (page)
            memcpy(to, (char *)page_bytes(page) + at % PAGE_SIZE, n);
        else if (kind == OBJECT_BACKED)
            error = load(object, at, to, n);
        else
            memset(to, 0, n);
        if (error)
            return done ? (int64_t)done : error;
        done += n;
    }
    return (int64_t)done;
}

/* It is to grow: what a mapping wrote behind its end in its last page does not show. */
static void zero_tail(struct object *object)
{
    struct page *page = pagemap_get(&object->pages, object->size >> PAGE_SHIFT);
    size_t from = object->size % PAGE_SIZE;

    if (from && page)
        memset((char *)page_bytes(page) + from, 0, PAGE_SIZE - from);
}

int64_t object_write(struct object *object, uint64_t offset, const void *bytes, size_t size)
{
    size_t done = 0;
    int error = 0;

    kernel_assert_locked();
    if (offset > INT64_MAX || size > INT64_MAX - offset)
        return -EFBIG;
    if (size && offset + size > object->size)
        zero_tail(object);
    while (done < size) {
        uint64_t at = offset + done;
        size_t n = least(size - done, PAGE_SIZE - at % PAGE_SIZE);
        struct page *page;

        error = writable_page(object, at >> PAGE_SHIFT, n < PAGE_SIZE, &page);
        if (error)
            break;
        memcpy((char *)page_bytes(page) + at % PAGE_SIZE, (const char *)bytes + done, n);
        done += n;
    }
    if (done && offset + done > object->size)
        object->size = offset + done;
    return done ? (int64_t)done : error;
}

/* [offset, end) within one page reads as zero. */
static int zero_part(struct object *object, uint64_t offset, uint64_t end)
{
    struct page *page = pagemap_get(&object->pages, offset >> PAGE_SHIFT);
    int error;

    if (offset == end || (!page && (offset & PAGE_MASK) >= object->backed))
        return 0;
    error = writable_page(object, offset >> PAGE_SHIFT, true, &page);
    if (!error)
        memset((char *)page_bytes(page) + offset % PAGE_SIZE, 0, end - offset);
    return error;
}

/* Whole pages; hidden from all that map them before they are given up. */
static void drop(struct object *object, uint64_t first, uint64_t end)
{
    struct page *page;

    while ((page = pagemap_next(&object->pages, &first, end))) {
        pagemap_take(&object->pages, first);
        page_quarantine(page);
    }
    object->resident = object->pages.count;
    give_back(object);
}

int object_truncate(struct object *object, uint64_t size)
{
    kernel_assert_locked();
    if (size < object->size) {
        uint64_t whole = (size + PAGE_SIZE - 1) & PAGE_MASK;
        int error = zero_part(object, size, whole);

        if (error)
            return error;
        object->size = size;
        object->backed = least(object->backed, size);
        host_cut(object, whole);
        drop(object, whole >> PAGE_SHIFT, UINT64_MAX >> PAGE_SHIFT);
        if (!object->backed)
            backing_close(object);
    } else {
        zero_tail(object);
    }
    object->size = size;
    return 0;
}

int object_punch(struct object *object, uint64_t offset, uint64_t size)
{
    uint64_t end = least(offset + size < offset ? UINT64_MAX : offset + size,
                         (object->size + PAGE_SIZE - 1) & PAGE_MASK),
             first = (offset + PAGE_SIZE - 1) & PAGE_MASK, last = end & PAGE_MASK, at;
    int error;

    kernel_assert_locked();
    if (offset >= end)
        return 0;
    if (first > last || (first == last && offset >> PAGE_SHIFT == end >> PAGE_SHIFT))
        return zero_part(object, offset, end);
    error = zero_part(object, offset, first);
    if (!error)
        error = zero_part(object, last, end);
    /* What the backing has must not show again. */
    for (at = first; !error && at < least(last, object->backed); at += PAGE_SIZE)
        error = zero_part(object, at, at + PAGE_SIZE);
    if (error)
        return error;
    if (at < last) {
        mm_forget(object, at, last - at);
        drop(object, at >> PAGE_SHIFT, last >> PAGE_SHIFT);
    }
    return 0;
}

int64_t object_seek_data(struct object *object, uint64_t offset, bool hole)
{
    uint64_t index, end = (object->size + PAGE_SIZE - 1) >> PAGE_SHIFT;

    kernel_assert_locked();
    if (offset >= object->size)
        return -ENXIO;
    if (!hole) {
        if (offset < object->backed)
            return (int64_t)offset;
        index = offset >> PAGE_SHIFT;
        if (!pagemap_next(&object->pages, &index, end))
            return -ENXIO;
        return (int64_t)(index << PAGE_SHIFT > offset ? index << PAGE_SHIFT : offset);
    }
    for (index = offset >> PAGE_SHIFT; index < end; index++)
        if (index << PAGE_SHIFT >= object->backed && !pagemap_get(&object->pages, index))
            break;
    return (int64_t)least(object->size,
                          index << PAGE_SHIFT > offset ? index << PAGE_SHIFT : offset);
}

bool object_may_change(const struct object *object)
{
    const struct vma *vma;

    kernel_assert_locked();
    TAILQ_FOREACH(vma, &object->mappings, link)
    if (vma->flags & VMA_SHARED && vma->max_prot & PROT_WRITE)
        return true;
    return false;
}
