/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * mm - address spaces: made, copied, and what is mapped in them.
 * Private pages lie in one tree by address (space.h), apart from the areas: cutting and merging areas moves no page.
 * Invariants: a page of that tree lies within an area that is private. Before a page leaves the tree, the host hides it.
 * Threads: the kernel lock.
 */
#include <string.h>
#include <sys/mman.h>

#include "../fs.h"
#include "space.h"

bool mm_exceeds(struct mm *mm, int limit, uint64_t value)
{
    return current && current->mm == mm && current->process &&
           value > current->process->limits[limit].rlim_cur;
}

struct mm *mm_new(void)
{
    struct mm *mm = arena_alloc(ARENA_MM, sizeof(*mm));

    if (!mm)
        return NULL;
    mm->areas = arena_alloc(ARENA_MM, sizeof(struct space));
    if (!mm->areas || platform->new_as(&mm->host_as)) {
        arena_free(mm->areas);
        arena_free(mm);
        return NULL;
    }
    mm->host_cpu_seen = platform->cpu ? platform->cpu(mm->host_as) : 0;
    mm->refs = 1;
    mm->top = PLATFORM_GUEST_MAX;
    mm->dumpable = 1;
    return mm;
}

void mm_get(struct mm *mm)
{
    if (mm->refs == 0 || mm->refs == UINT32_MAX)
        kpanic("memory: an address space has %u references and gets one", mm->refs);
    mm->refs++;
}

void mm_put(struct mm *mm)
{
    struct space *space;

    kernel_assert_locked();
    if (!mm)
        return;
    if (mm->refs == 0)
        kpanic("memory: an address space has no reference and loses one");
    if (--mm->refs > 0)
        return;
    space = space_of(mm);
    if (mm->host_as)
        platform->release_as(mm->host_as); /* before its pages can be another's */
    quarantine_done(space);
    while (space->n)
        area_remove(mm, space->n - 1);
    pagemap_clear(&space->pages);
    arena_free(space->areas);
    arena_free(space);
    if (mm->exe)
        file_put(mm->exe);
    arena_free(mm);
}

void mm_drop_pages(struct mm *mm, uint64_t start, uint64_t end)
{
    struct pagemap *map = &space_of(mm)->pages;
    uint64_t index = start >> PAGE_SHIFT;
    struct page *page;

    while ((page = pagemap_next(map, &index, end >> PAGE_SHIFT))) {
        pagemap_take(map, index);
        page_quarantine(page);
    }
    count_private(mm);
}

/* ---- fork ---- */

static int copy_areas(struct mm *to, struct mm *from)
{
    struct space *space = space_of(from);
    uint32_t i;

    for (i = 0; i < space->n; i++) {
        struct vma *vma = space->areas[i], *copy;
        uint64_t size = vma->end - vma->start;

        if (vma->flags & VMA_DONTFORK || vma->flags & VMA_WIPEONFORK)
            mm_drop_pages(to, vma->start, vma->end);
        if (vma->flags & VMA_DONTFORK) {
            to->bytes_mapped -= size;
            continue;
        }
        copy = area_copy(vma, to);
        if (!copy || area_insert(to, space_of(to)->n, copy)) {
            if (copy)
                area_discard(copy);
            return -ENOMEM;
        }
        copy->used = vma->shown;
        copy->shown = false;
        copy->flags &= ~VMA_LOCKED;
    }
    return 0;
}

int mm_fork(struct mm *from, struct mm **ret_mm)
{
    struct mm *to = mm_new();
    struct space *space;
    int error;

    if (!to)
        return -ENOMEM;
    space = to->areas;
    *to = (struct mm){.refs = 1,
                      .host_as = to->host_as,
                      .host_cpu_seen = to->host_cpu_seen,
                      .areas = space,
                      .brk_start = from->brk_start,
                      .brk = from->brk,
                      .stack_start = from->stack_start,
                      .arg_start = from->arg_start,
                      .arg_end = from->arg_end,
                      .env_start = from->env_start,
                      .env_end = from->env_end,
                      .bytes_mapped = from->bytes_mapped,
                      .top = from->top,
                      .exe = from->exe,
                      .auxv_size = from->auxv_size,
                      .dumpable = from->dumpable};
    memcpy(to->auxv, from->auxv, sizeof(to->auxv));
    if (to->exe)
        file_get(to->exe);
    error = pagemap_copy(&space->pages, &space_of(from)->pages);
    if (!error)
        error = copy_areas(to, from);
    space->forked = true;
    count_private(to);
    /* Now its pages have several references: none may be written any more, also when this has failed half way. */
    host_after_fork(from);
    if (error) {
        mm_put(to);
        return error;
    }
    *ret_mm = to;
    return 0;
}

/* ---- map, unmap, protect ---- */

static bool range_valid(uint64_t address, uint64_t size)
{
    return address >= PLATFORM_GUEST_MIN && address < PLATFORM_GUEST_MAX &&
           size <= PLATFORM_GUEST_MAX - address;
}

/* Where it goes, after what is in its way has gone; or -errno. */
static int64_t place(struct mm *mm, uint64_t address, uint64_t size, unsigned flags)
{
    int error;

    if (!(flags & MM_FIXED)) {
        address &= PAGE_MASK;
        if (!address || !range_valid(address, size) || !area_is_free(mm, address, address + size))
            address = area_place(mm, size);
        return address ? (int64_t)address : -ENOMEM;
    }
    if (address % PAGE_SIZE)
        return -EINVAL;
    if (!range_valid(address, size))
        return address < PLATFORM_GUEST_MIN ? -EPERM : -ENOMEM;
    if (flags & MM_NOREPLACE) {
        struct space *space = space_of(mm);
        uint32_t index = area_index(space, address);

        return index < space->n && space->areas[index]->start < address + size ? -EEXIST
                                                                               : (int64_t)address;
    }
    error = mm_unmap(mm, address, size);
    return error ? error : (int64_t)address;
}

int64_t mm_map(struct mm *mm, uint64_t address, uint64_t size, int prot, int max_prot,
               unsigned flags, struct file *file, struct object *object, uint64_t offset)
{
    struct vma *vma;
    int64_t at;

    kernel_assert_locked();
    size = (size + PAGE_SIZE - 1) & PAGE_MASK;
    if (size == 0 || size > PLATFORM_GUEST_MAX)
        return size ? -ENOMEM : -EINVAL;
    if (offset % PAGE_SIZE || offset + size < offset || (flags & MM_SHARED && !object))
        return -EINVAL;
    if (mm_exceeds(mm, RLIMIT_AS, mm->bytes_mapped + size))
        return -ENOMEM;
    at = place(mm, address, size, flags);
    if (at < 0)
        return at;
    vma = arena_alloc(ARENA_VMA, sizeof(*vma));
    if (!vma)
        return -ENOMEM;
    *vma = (struct vma){.start = (uint64_t)at,
                        .end = (uint64_t)at + size,
                        .offset = offset,
                        .mm = mm,
                        .file = file,
                        .object = object,
                        .flags = (flags & MM_SHARED ? VMA_SHARED : 0) |
                                 (flags & MM_GROWSDOWN ? VMA_GROWSDOWN : 0),
                        .prot = (uint8_t)prot,
                        .max_prot = (uint8_t)max_prot};
    if (area_insert(mm, area_index(space_of(mm), vma->start), vma)) {
        arena_free(vma);
        return -ENOMEM;
    }
    if (file)
        file_get(file);
    if (object)
        object_get(object);
    mm->bytes_mapped += size;
    area_merge(mm, (uint64_t)at, (uint64_t)at + size);
    if (flags & MM_POPULATE && prot != PROT_NONE)
        fault_populate(mm, (uint64_t)at, (uint64_t)at + size, true); /* as far as it goes */
    return at;
}

int mm_unmap(struct mm *mm, uint64_t address, uint64_t size)
{
    struct space *space = space_of(mm);
    uint64_t end;
    uint32_t index;
    int error;

    kernel_assert_locked();
    if (address % PAGE_SIZE || size == 0 || address >= PLATFORM_GUEST_MAX ||
        size > PLATFORM_GUEST_MAX - address)
        return -EINVAL;
    end = (address + size + PAGE_SIZE - 1) & PAGE_MASK;
    error = area_isolate(mm, address, end, &index);
    if (error)
        return error;
    host_hide_shown(mm, address, end);
    mm_drop_pages(mm, address, end);
    while (index < space->n && space->areas[index]->start < end) {
        struct vma *vma = space->areas[index];

        mm->bytes_mapped -= vma->end - vma->start;
        if (vma->flags & VMA_LOCKED)
            mm->locked -= vma->end - vma->start;
        area_remove(mm, index);
    }
    return 0;
}

/* All of the range is mapped and may be so; else -ENOMEM or -EACCES, at the first that is not: *ret_end. */
static int may_protect(struct mm *mm, uint64_t start, uint64_t end, int prot, uint64_t *ret_end)
{
    struct space *space = space_of(mm);
    uint32_t index = area_index(space, start);

    for (*ret_end = start; *ret_end < end; index++) {
        if (index >= space->n || space->areas[index]->start > *ret_end)
            return -ENOMEM;
        if (prot & ~space->areas[index]->max_prot)
            return -EACCES;
        *ret_end = space->areas[index]->end;
    }
    *ret_end = end;
    return 0;
}

int mm_protect(struct mm *mm, uint64_t address, uint64_t size, int prot)
{
    struct space *space = space_of(mm);
    struct showing showing = {.n = 0};
    uint64_t end, until;
    uint32_t index;
    int error, denied;

    kernel_assert_locked();
    if (address % PAGE_SIZE)
        return -EINVAL;
    if (size == 0)
        return 0;
    if (!range_valid(address, size))
        return -ENOMEM;
    end = (address + size + PAGE_SIZE - 1) & PAGE_MASK;
    denied = may_protect(mm, address, end, prot,
                         &until); /* what is before it is changed, as Linux does */
    if (until == address)
        return denied;
    error = area_isolate(mm, address, until, &index);
    if (error)
        return error;
    for (; index < space->n && space->areas[index]->start < until; index++) {
        struct vma *vma = space->areas[index];

        if (vma->prot == prot)
            continue;
        vma->prot = (uint8_t)prot;
        if (!vma->shown)
            continue;
        if (prot == PROT_NONE || vma->end - vma->start > 64 * PAGE_SIZE ||
            host_show(&showing, vma, vma->start, vma->end))
            host_hide_shown(mm, vma->start, vma->end);
    }
    if (host_show_done(mm, &showing))
        host_hide_shown(mm, address, until);
    area_merge(mm, address, until);
    return denied;
}

/* ---- for others ---- */

static uint64_t count_pages(const struct pagemap *map, uint64_t first, uint64_t end)
{
    uint64_t n = 0;

    while (pagemap_next(map, &first, end)) {
        n++;
        first++;
    }
    return n;
}

bool mm_next_area(struct mm *mm, uint64_t address, struct vma_info *ret_area)
{
    struct space *space = space_of(mm);
    uint32_t index = area_index(space, address);
    const struct vma *vma;

    kernel_assert_locked();
    if (index >= space->n)
        return false;
    vma = space->areas[index];
    *ret_area = (struct vma_info){.start = vma->start,
                                  .end = vma->end,
                                  .offset = vma->object ? vma->offset : 0,
                                  .prot = vma->prot,
                                  .shared = vma->flags & VMA_SHARED,
                                  .grows_down = vma->flags & VMA_GROWSDOWN,
                                  .file = vma->file};
    if (!(vma->flags & VMA_SHARED))
        ret_area->private_pages =
            count_pages(&space->pages, vma->start >> PAGE_SHIFT, vma->end >> PAGE_SHIFT);
    ret_area->resident = ret_area->private_pages;
    if (vma->object)
        ret_area->resident += count_pages(&vma->object->pages, vma->offset >> PAGE_SHIFT,
                                          (vma->offset + (vma->end - vma->start)) >> PAGE_SHIFT);
    if (mm->stack_start > vma->start && mm->stack_start <= vma->end)
        ret_area->name = "[stack]";
    else if (!vma->file && vma->start < mm->brk && vma->end > mm->brk_start)
        ret_area->name = "[heap]";
    return true;
}
