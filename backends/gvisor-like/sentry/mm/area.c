/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * area - the areas of an address space: a sorted array of pointers.
 * Why an array: a search is a few steps over neighbours, and the most that a guest may have (AREAS_MAX) moves by half a
 * megabyte in the worst insertion, less than what the guest pays for its system call.
 * Invariants: sorted, none overlaps another, each within [PLATFORM_GUEST_MIN, PLATFORM_GUEST_MAX), borders on pages.
 * Threads: the kernel lock.
 */
#include <string.h>
#include <sys/mman.h>

#include "../fs.h"
#include "space.h"

#define GROWTH (64ul << 10)

uint32_t area_index(struct space *space, uint64_t address)
{
    uint32_t low = 0, high = space->n;

    if (space->hint < space->n) { /* where the last search ended */
        const struct vma *vma = space->areas[space->hint];

        if (vma->start <= address && address < vma->end)
            return space->hint;
    }
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (space->areas[middle]->end > address)
            high = middle;
        else
            low = middle + 1;
    }
    space->hint = low;
    return low;
}

struct vma *area_find(struct mm *mm, uint64_t address)
{
    struct space *space = space_of(mm);
    uint32_t index = area_index(space, address);

    return index < space->n && space->areas[index]->start <= address ? space->areas[index] : NULL;
}

static int make_room(struct space *space)
{
    uint32_t capacity = space->capacity ? space->capacity * 2 : 64;
    struct vma **areas;

    if (space->n < space->capacity)
        return 0;
    areas = arena_alloc(ARENA_VMA, capacity * sizeof(struct vma *));
    if (!areas)
        return -ENOMEM;
    if (space->n)
        memcpy(areas, space->areas, space->n * sizeof(struct vma *));
    arena_free(space->areas);
    space->areas = areas;
    space->capacity = capacity;
    return 0;
}

int area_insert(struct mm *mm, uint32_t index, struct vma *vma)
{
    struct space *space = space_of(mm);

    if (space->n >= AREAS_MAX || make_room(space))
        return -ENOMEM;
    memmove(&space->areas[index + 1], &space->areas[index],
            (space->n - index) * sizeof(struct vma *));
    space->areas[index] = vma;
    mm->n_areas = ++space->n;
    if (vma->object)
        TAILQ_INSERT_TAIL(&vma->object->mappings, vma, link);
    return 0;
}

void area_discard(struct vma *vma)
{
    if (vma->file)
        file_put(vma->file);
    object_put(vma->object);
    arena_free(vma);
}

void area_remove(struct mm *mm, uint32_t index)
{
    struct space *space = space_of(mm);
    struct vma *vma = space->areas[index];

    mm->n_areas = --space->n;
    memmove(&space->areas[index], &space->areas[index + 1],
            (space->n - index) * sizeof(struct vma *));
    if (vma->object)
        TAILQ_REMOVE(&vma->object->mappings, vma, link);
    area_discard(vma);
}

struct vma *area_copy(const struct vma *from, struct mm *mm)
{
    struct vma *vma = arena_alloc(ARENA_VMA, sizeof(*vma));

    if (!vma)
        return NULL;
    *vma = *from;
    vma->mm = mm;
    if (vma->file)
        file_get(vma->file);
    if (vma->object)
        object_get(vma->object);
    return vma;
}

/* The area at index becomes two, the second from address on. */
static int split(struct mm *mm, uint32_t index, uint64_t address)
{
    struct vma *low = space_of(mm)->areas[index], *high = area_copy(low, mm);
    int error;

    if (!high)
        return -ENOMEM;
    high->start = address;
    high->offset += address - low->start;
    error = area_insert(mm, index + 1, high);
    if (error) {
        area_discard(high);
        return error;
    }
    low->end = address;
    high->flags &= ~VMA_GROWSDOWN; /* only the lowest part grows */
    return 0;
}

int area_isolate(struct mm *mm, uint64_t start, uint64_t end, uint32_t *ret_index)
{
    struct space *space = space_of(mm);
    uint32_t index = area_index(space, start), last;
    int error;

    if (index < space->n && space->areas[index]->start < start) {
        error = split(mm, index, start);
        if (error)
            return error;
        index++;
    }
    last = area_index(space, end - 1);
    if (last < space->n && space->areas[last]->start < end && space->areas[last]->end > end) {
        error = split(mm, last, end);
        if (error)
            return error;
    }
    *ret_index = index;
    return 0;
}

static bool alike(const struct vma *low, const struct vma *high)
{
    return low->end == high->start && low->flags == (high->flags | (low->flags & VMA_GROWSDOWN)) &&
           low->prot == high->prot && low->max_prot == high->max_prot && low->file == high->file &&
           low->object == high->object &&
           (!low->object || low->offset + (low->end - low->start) == high->offset);
}

void area_merge(struct mm *mm, uint64_t start, uint64_t end)
{
    struct space *space = space_of(mm);
    uint32_t index = area_index(space, start ? start - 1 : 0);

    while (index + 1 < space->n && space->areas[index]->start <= end) {
        struct vma *low = space->areas[index], *high = space->areas[index + 1];

        if (!alike(low, high)) {
            index++;
            continue;
        }
        low->shown |= high->shown;
        low->chunk = low->chunk > high->chunk ? low->chunk : high->chunk;
        low->end = high->end;
        area_remove(mm, index + 1);
    }
}

static uint64_t gap(const struct vma *vma)
{
    uint64_t most = vma->flags & VMA_GROWSDOWN ? GUARD_GAP : 0;

    return most < vma->start ? most : vma->start;
}

bool area_is_free(struct mm *mm, uint64_t start, uint64_t end)
{
    struct space *space = space_of(mm);
    uint32_t index = area_index(space, start);

    return index == space->n || space->areas[index]->start >= end + gap(space->areas[index]);
}

uint64_t area_place(struct mm *mm, uint64_t size)
{
    struct space *space = space_of(mm);
    uint64_t top = mm->top ? mm->top : PLATFORM_GUEST_MAX;
    uint32_t index = area_index(space, top - 1);

    if (index < space->n && space->areas[index]->start < top)
        top = space->areas[index]->start - gap(space->areas[index]);
    else if (index < space->n && space->areas[index]->start - gap(space->areas[index]) < top)
        top = space->areas[index]->start - gap(space->areas[index]);
    for (;; index--) {
        uint64_t floor = index ? space->areas[index - 1]->end : PLATFORM_GUEST_MIN;

        if (top >= floor && top - floor >= size && top - size >= PLATFORM_GUEST_MIN)
            return top - size;
        if (index == 0)
            return 0;
        top = space->areas[index - 1]->start - gap(space->areas[index - 1]);
    }
}

static bool may_grow(struct mm *mm, const struct vma *vma, uint64_t start, uint64_t floor)
{
    return start >= floor && !mm_exceeds(mm, RLIMIT_STACK, vma->end - start) &&
           !mm_exceeds(mm, RLIMIT_AS, mm->bytes_mapped + (vma->start - start));
}

struct vma *area_reach(struct mm *mm, uint64_t address)
{
    struct space *space = space_of(mm);
    uint32_t index = area_index(space, address);
    uint64_t start, floor;
    struct vma *vma;

    if (index == space->n)
        return NULL;
    vma = space->areas[index];
    if (vma->start <= address)
        return vma;
    if (!(vma->flags & VMA_GROWSDOWN) || address < PLATFORM_GUEST_MIN)
        return NULL;
    floor = index ? space->areas[index - 1]->end : PLATFORM_GUEST_MIN;
    if (index && space->areas[index - 1]->prot != PROT_NONE)
        floor += GUARD_GAP;
    start = address & ~(GROWTH - 1); /* more than is needed, where it may: the next fault is near */
    if (!may_grow(mm, vma, start, floor))
        start = address & PAGE_MASK;
    if (!may_grow(mm, vma, start, floor))
        return NULL;
    mm->bytes_mapped += vma->start - start;
    vma->start = start; /* anonymous: no offset to move */
    return vma;
}
