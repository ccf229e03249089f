/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * advice - what a guest says of its memory, and asks of it: madvise, msync, mincore, mlock.
 * Nothing is ever swapped: locking makes the pages and counts them. The image is never written: msync has nothing to do but to
 * say that all is there.
 * Threads: the kernel lock.
 */
#include <linux/capability.h>
#include <sys/mman.h>

#include "../task.h"
#include "space.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

/* The range as calls have it: start on a page, the size rounded up. -EINVAL. */
static int range_of(uint64_t start, uint64_t size, struct range *ret)
{
    uint64_t rounded = (size + PAGE_SIZE - 1) & PAGE_MASK;

    if (start % PAGE_SIZE || (size && !rounded) || start + rounded < start)
        return -EINVAL;
    *ret = (struct range){start, start + rounded};
    return 0;
}

typedef int (*each_area)(struct mm *mm, struct vma *vma, const struct range *part, int what);

/* Every area of the range by the function; -ENOMEM after all when there were holes. */
static int for_areas(struct mm *mm, const struct range *range, each_area each, int what)
{
    struct space *space = space_of(mm);
    uint64_t at = range->start;
    uint32_t index;
    int error, holes = 0;

    for (index = area_index(space, at); at < range->end; index++) {
        struct vma *vma = index < space->n ? space->areas[index] : NULL;
        struct range part;

        if (!vma || vma->start >= range->end)
            return -ENOMEM;
        if (vma->start > at)
            holes = -ENOMEM;
        part.start = vma->start > at ? vma->start : at;
        part.end = vma->end < range->end ? vma->end : range->end;
        error = each(mm, vma, &part, what);
        if (error)
            return error;
        at = part.end;
    }
    return holes;
}

/* ---- madvise ---- */

static int forget_private(struct mm *mm, struct vma *vma, const struct range *part, int what)
{
    uint64_t index = part->start >> PAGE_SHIFT;

    if (vma->flags & VMA_LOCKED && what != MADV_DONTNEED_LOCKED)
        return -EINVAL;
    if (what == MADV_FREE && (vma->object || vma->flags & VMA_SHARED))
        return -EINVAL;
    if (vma->flags & VMA_SHARED ||
        !pagemap_next(&space_of(mm)->pages, &index, part->end >> PAGE_SHIFT))
        return 0; /* the object has what it shows */
    host_hide_shown(mm, part->start, part->end);
    mm_drop_pages(mm, part->start, part->end);
    return 0;
}

static int remove_shared(struct mm *mm, struct vma *vma, const struct range *part, int what)
{
    (void)mm;
    (void)what;
    if (vma->flags & VMA_LOCKED || !vma->object)
        return -EINVAL;
    if (!(vma->flags & VMA_SHARED) || !(vma->max_prot & PROT_WRITE))
        return -EACCES;
    return object_punch(vma->object, vma->offset + (part->start - vma->start),
                        part->end - part->start);
}

static int nothing(struct mm *mm, struct vma *vma, const struct range *part, int what)
{
    (void)mm;
    (void)vma;
    (void)part;
    (void)what;
    return 0;
}

static int check_wipe(struct mm *mm, struct vma *vma, const struct range *part, int what)
{
    (void)mm;
    (void)part;
    return what == MADV_WIPEONFORK && (vma->object || vma->flags & VMA_SHARED) ? -EINVAL : 0;
}

static int set_flag(struct mm *mm, struct vma *vma, const struct range *part, int what)
{
    (void)mm;
    (void)part;
    switch (what) {
    case MADV_DONTFORK:
        vma->flags |= VMA_DONTFORK;
        break;
    case MADV_DOFORK:
        vma->flags &= ~VMA_DONTFORK;
        break;
    case MADV_WIPEONFORK:
        vma->flags |= VMA_WIPEONFORK;
        break;
    default:
        vma->flags &= ~VMA_WIPEONFORK;
        break;
    }
    return 0;
}

static int set_flags(struct mm *mm, const struct range *range, int what)
{
    uint32_t index;
    int error = for_areas(mm, range, check_wipe, what);

    if (error)
        return error;
    error = area_isolate(mm, range->start, range->end, &index);
    if (error)
        return error;
    error = for_areas(mm, range, set_flag, what);
    area_merge(mm, range->start, range->end);
    return error;
}

static int advise(struct mm *mm, const struct range *range, int what)
{
    switch (what) {
    case MADV_DONTNEED:
    case MADV_DONTNEED_LOCKED:
    case MADV_FREE:
        return for_areas(mm, range, forget_private, what);
    case MADV_REMOVE:
        return for_areas(mm, range, remove_shared, what);
    case MADV_DONTFORK:
    case MADV_DOFORK:
    case MADV_WIPEONFORK:
    case MADV_KEEPONFORK:
        return set_flags(mm, range, what);
    case MADV_POPULATE_READ:
    case MADV_POPULATE_WRITE:
        return fault_populate(mm, range->start, range->end, what == MADV_POPULATE_WRITE);
    default:
        return for_areas(mm, range, nothing, what);
    }
}

static bool advice_known(int what)
{
    return (what >= MADV_NORMAL && what <= MADV_DONTNEED) ||
           (what >= MADV_FREE && what <= MADV_DONTNEED_LOCKED);
}

SYSCALL(madvise)
{
    struct range range;
    int what = (int)a[2], error;

    error = advice_known(what) ? range_of(a[0], a[1], &range) : -EINVAL;
    if (error || range.start == range.end)
        return error;
    if (range.end > PLATFORM_GUEST_MAX)
        return -ENOMEM;
    return advise(current->mm, &range, what);
}

/* ---- msync, mincore ---- */

static int check_sync(struct mm *mm, struct vma *vma, const struct range *part, int what)
{
    (void)mm;
    (void)part;
    return what & MS_INVALIDATE && vma->flags & VMA_LOCKED ? -EBUSY : 0;
}

SYSCALL(msync)
{
    struct range range;
    int error, flags = (int)a[2];

    if (flags & ~(MS_ASYNC | MS_INVALIDATE | MS_SYNC) || (flags & MS_ASYNC && flags & MS_SYNC) ||
        a[0] % PAGE_SIZE)
        return -EINVAL;
    error = range_of(a[0], a[1], &range);
    if (error)
        return -ENOMEM;
    return range.start == range.end ? 0 : for_areas(current->mm, &range, check_sync, flags);
}

static char in_memory(struct mm *mm, const struct vma *vma, uint64_t address)
{
    struct page *page;

    if (!(vma->flags & VMA_SHARED) && pagemap_get(&space_of(mm)->pages, address >> PAGE_SHIFT))
        return 1;
    if (!vma->object)
        return 0;
    return object_peek(vma->object, (vma->offset + (address - vma->start)) >> PAGE_SHIFT, &page) >
           OBJECT_HOLE;
}

SYSCALL(mincore)
{
    struct mm *mm = current->mm;
    struct range range;
    char states[512];
    uint64_t to = a[2];
    int error;

    if (a[0] % PAGE_SIZE)
        return -EINVAL;
    if (range_of(a[0], a[1], &range) || range.end > PLATFORM_GUEST_MAX)
        return -ENOMEM;
    while (range.start < range.end) {
        unsigned n = 0;

        for (; n < sizeof(states) && range.start < range.end; range.start += PAGE_SIZE) {
            const struct vma *vma = area_find(mm, range.start);

            if (!vma)
                return -ENOMEM;
            states[n++] = in_memory(mm, vma, range.start);
        }
        error = copy_out(mm, to, states, n);
        if (error)
            return error;
        to += n;
    }
    return 0;
}

/* ---- mlock ---- */

bool mm_may_lock(const struct mm *mm, uint64_t size)
{
    uint64_t limit = current->process->limits[RLIMIT_MEMLOCK].rlim_cur;

    return capable(CAP_IPC_LOCK) || (mm->locked + size >= size && mm->locked + size <= limit);
}

static int lock_area(struct mm *mm, struct vma *vma, const struct range *part, int on)
{
    if (on && !(vma->flags & VMA_LOCKED))
        mm->locked += part->end - part->start;
    if (!on && vma->flags & VMA_LOCKED)
        mm->locked -= part->end - part->start;
    vma->flags = on ? vma->flags | VMA_LOCKED : vma->flags & ~VMA_LOCKED;
    return 0;
}

int mm_lock(struct mm *mm, uint64_t start, uint64_t size, bool on)
{
    struct range range;
    uint32_t index;
    int error = range_of(start & PAGE_MASK, size + start % PAGE_SIZE, &range);

    if (error || range.start == range.end)
        return error;
    error = area_isolate(mm, range.start, range.end, &index);
    if (!error)
        error = for_areas(mm, &range, lock_area, on);
    area_merge(mm, range.start, range.end);
    return error;
}

/* What is locked already is not counted twice. */
static int count_locked(struct mm *mm, struct vma *vma, const struct range *part, int what)
{
    (void)what;
    if (vma->flags & VMA_LOCKED)
        mm->locked -= part->end - part->start;
    return 0;
}

static int64_t lock(uint64_t start, uint64_t size, bool now)
{
    struct mm *mm = current->mm;
    uint64_t locked = mm->locked;
    struct range range;
    int error = range_of(start & PAGE_MASK, size + start % PAGE_SIZE, &range);
    bool may;

    if (error)
        return error;
    if (range.end > PLATFORM_GUEST_MAX)
        return -ENOMEM;
    if (!capable(CAP_IPC_LOCK) && current->process->limits[RLIMIT_MEMLOCK].rlim_cur == 0)
        return -EPERM;
    for_areas(mm, &range, count_locked, 0);
    may = mm_may_lock(mm, range.end - range.start);
    mm->locked = locked;
    if (!may)
        return -ENOMEM;
    error = mm_lock(mm, start, size, true);
    if (!error && now)
        error = fault_populate(mm, range.start, range.end, true);
    return error == -EFAULT ? -ENOMEM : error;
}

SYSCALL(mlock)
{
    return lock(a[0], a[1], true);
}

SYSCALL(mlock2)
{
    if (a[2] & ~(uint64_t)MLOCK_ONFAULT)
        return -EINVAL;
    return lock(a[0], a[1], !(a[2] & MLOCK_ONFAULT));
}

SYSCALL(munlock)
{
    return mm_lock(current->mm, a[0], a[1], false);
}

static void lock_all(struct mm *mm, bool on)
{
    struct space *space = space_of(mm);
    uint32_t i;

    for (i = 0; i < space->n; i++)
        space->areas[i]->flags =
            on ? space->areas[i]->flags | VMA_LOCKED : space->areas[i]->flags & ~VMA_LOCKED;
    mm->locked = on ? mm->bytes_mapped : 0;
    area_merge(mm, PLATFORM_GUEST_MIN, PLATFORM_GUEST_MAX);
}

SYSCALL(mlockall)
{
    struct mm *mm = current->mm;

    if (a[0] == 0 || a[0] & ~(uint64_t)(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) ||
        a[0] == MCL_ONFAULT)
        return -EINVAL;
    if (!capable(CAP_IPC_LOCK) && current->process->limits[RLIMIT_MEMLOCK].rlim_cur == 0)
        return -EPERM;
    if (!(a[0] & MCL_CURRENT))
        return 0;
    if (mm->bytes_mapped > mm->locked && !mm_may_lock(mm, mm->bytes_mapped - mm->locked))
        return -ENOMEM;
    lock_all(mm, true);
    return 0;
}

SYSCALL(munlockall)
{
    (void)a;
    lock_all(current->mm, false);
    return 0;
}
