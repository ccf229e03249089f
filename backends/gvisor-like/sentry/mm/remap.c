/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * remap - mremap: an area that shrinks, grows where it is, or moves with its pages, alone or all but an empty area in its place.
 * Invariants: a move that fails leaves all where it was: first the pages get their second place, then they leave the first.
 * Threads: the kernel lock.
 */
#include <sys/mman.h>

#include "../task.h"
#include "space.h"

#define FLAGS ((uint64_t)(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP))

struct move {
    uint64_t from, from_size, to, to_size;
    uint64_t flags;
};

static int copy_places(struct pagemap *map, const struct move *move)
{
    uint64_t first = move->from >> PAGE_SHIFT, to = move->to >> PAGE_SHIFT, index = first;
    uint64_t end = (move->from + move->from_size) >> PAGE_SHIFT, undo;
    struct page *page;

    for (; (page = pagemap_next(map, &index, end)); index++) {
        if (pagemap_set(map, to + (index - first), page) == 0)
            continue;
        for (undo = first; pagemap_next(map, &undo, index); undo++)
            pagemap_take(map, to + (undo - first));
        return -ENOMEM;
    }
    return 0;
}

static void leave_places(struct pagemap *map, uint64_t start, uint64_t end)
{
    uint64_t index = start >> PAGE_SHIFT;

    while (pagemap_next(map, &index, end >> PAGE_SHIFT))
        pagemap_take(map, index);
}

/* What stays where the pages were: as one that was just made. */
static void stay(struct mm *mm, struct vma *old, const struct move *move)
{
    old->flags &= ~VMA_LOCKED; /* the new one is, and counts for it */
    mm->bytes_mapped += move->from_size;
    area_merge(mm, move->from, move->from + move->from_size);
}

/* To a place that is free; from is one area, whole. */
static int move_area(struct mm *mm, uint32_t index, const struct move *move)
{
    struct space *space = space_of(mm);
    struct vma *old = space->areas[index], *vma = area_copy(old, mm);
    int error;

    if (!vma)
        return -ENOMEM;
    vma->start = move->to;
    vma->end = move->to + move->to_size;
    vma->flags &= ~VMA_GROWSDOWN;
    vma->shown = false;
    error = area_insert(mm, area_index(space, move->to), vma);
    if (error) {
        area_discard(vma);
        return error;
    }
    error = copy_places(&space->pages, move);
    if (error) {
        area_remove(mm, area_index(space, move->to));
        return error;
    }
    host_hide_shown(mm, move->from, move->from + move->from_size);
    leave_places(&space->pages, move->from, move->from + move->from_size);
    if (move->flags & MREMAP_DONTUNMAP)
        stay(mm, old, move);
    else
        area_remove(mm, area_index(space, move->from));
    mm->bytes_mapped += move->to_size - move->from_size;
    area_merge(mm, move->to, move->to + move->to_size);
    return 0;
}

/* The one area that holds all of `from`. */
static int find(struct mm *mm, const struct move *move, struct vma **ret_vma)
{
    struct vma *vma = area_find(mm, move->from);

    if (!vma || move->from_size > vma->end - move->from)
        return -EFAULT;
    *ret_vma = vma;
    return 0;
}

static int64_t move_to(struct mm *mm, struct move *move)
{
    uint32_t index;
    int error;

    if (move->to_size < move->from_size) {
        error = mm_unmap(mm, move->from + move->to_size, move->from_size - move->to_size);
        if (error)
            return error;
        move->from_size = move->to_size;
    }
    error = area_isolate(mm, move->from, move->from + move->from_size, &index);
    if (!error)
        error = move_area(mm, index, move);
    return error ? error : (int64_t)move->to;
}

/* The place that is asked for, when it is free, or another. */
static uint64_t place_near(struct mm *mm, const struct move *move)
{
    if (move->to >= PLATFORM_GUEST_MIN && area_is_free(mm, move->to, move->to + move->to_size))
        return move->to;
    return area_place(mm, move->to_size);
}

static int64_t move_and_stay(struct mm *mm, struct move *move)
{
    struct vma *vma;
    int error;

    if (move->to % PAGE_SIZE || move->to > PLATFORM_GUEST_MAX ||
        move->to_size > PLATFORM_GUEST_MAX - move->to || move->to_size != move->from_size ||
        (move->to < move->from + move->from_size && move->from < move->to + move->to_size))
        return -EINVAL;
    error = find(mm, move, &vma);
    if (error)
        return error;
    if (mm_exceeds(mm, RLIMIT_AS, mm->bytes_mapped + move->to_size))
        return -ENOMEM;
    move->to = place_near(mm, move);
    return move->to ? move_to(mm, move) : -ENOMEM;
}

static int64_t move_fixed(struct mm *mm, struct move *move)
{
    struct vma *vma;
    int error;

    if (move->to % PAGE_SIZE || move->to < PLATFORM_GUEST_MIN || move->to >= PLATFORM_GUEST_MAX ||
        move->to_size > PLATFORM_GUEST_MAX - move->to)
        return -EINVAL;
    if (move->to < move->from + move->from_size && move->from < move->to + move->to_size)
        return -EINVAL;
    error = find(mm, move, &vma);
    if (!error && move->flags & MREMAP_DONTUNMAP &&
        mm_exceeds(mm, RLIMIT_AS, mm->bytes_mapped + move->to_size))
        error = -ENOMEM;
    if (!error)
        error = mm_unmap(mm, move->to, move->to_size);
    return error ? error : move_to(mm, move);
}

static int64_t grow(struct mm *mm, struct move *move, struct vma *vma)
{
    uint64_t end = move->from + move->from_size, more = move->to_size - move->from_size;

    if (mm_exceeds(mm, RLIMIT_AS, mm->bytes_mapped + more))
        return -ENOMEM;
    if (vma->flags & VMA_LOCKED && !mm_may_lock(mm, more))
        return -EAGAIN;
    if (vma->object && vma->offset + (vma->end - vma->start) + more < vma->offset)
        return -EINVAL;
    if (vma->end == end && more <= PLATFORM_GUEST_MAX - end && area_is_free(mm, end, end + more)) {
        vma->end += more;
        mm->bytes_mapped += more;
        if (vma->flags & VMA_LOCKED)
            mm->locked += more;
        area_merge(mm, vma->start, vma->end);
        return (int64_t)move->from;
    }
    if (!(move->flags & MREMAP_MAYMOVE))
        return -ENOMEM;
    move->to = area_place(mm, move->to_size);
    if (!move->to)
        return -ENOMEM;
    if (vma->flags & VMA_LOCKED)
        mm->locked += more;
    return move_to(mm, move);
}

SYSCALL(mremap)
{
    struct move move = {.from = a[0],
                        .from_size = (a[1] + PAGE_SIZE - 1) & PAGE_MASK,
                        .to = a[4],
                        .to_size = (a[2] + PAGE_SIZE - 1) & PAGE_MASK,
                        .flags = a[3]};
    struct mm *mm = current->mm;
    struct vma *vma;
    int error;

    if (move.flags & ~FLAGS || move.from % PAGE_SIZE || move.to_size == 0 || move.from_size == 0 ||
        (move.flags & ~(uint64_t)MREMAP_MAYMOVE && !(move.flags & MREMAP_MAYMOVE)) ||
        (move.flags & MREMAP_DONTUNMAP && move.from_size != move.to_size))
        return -EINVAL;
    if (move.from >= PLATFORM_GUEST_MAX || move.from_size > PLATFORM_GUEST_MAX - move.from)
        return -EFAULT;
    if (move.to_size > PLATFORM_GUEST_MAX)
        return -ENOMEM;
    if (move.flags & MREMAP_FIXED)
        return move_fixed(mm, &move);
    if (move.flags & MREMAP_DONTUNMAP)
        return move_and_stay(mm, &move);
    if (move.to_size <= move.from_size) {
        if (!area_find(mm, move.from))
            return -EFAULT;
        error = move.to_size == move.from_size
                    ? 0
                    : mm_unmap(mm, move.from + move.to_size, move.from_size - move.to_size);
        return error ? error : (int64_t)move.from;
    }
    error = find(mm, &move, &vma);
    return error ? error : grow(mm, &move, vma);
}
