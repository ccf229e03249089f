/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * host - what the stub of an address space shows, as seen from the areas.
 * A stub's mappings are changed only by a task of its own address space, with its platform context. What another asks for is
 * noted (owed) and done at the boundary. When there is too much to note, all mappings go: they are a cache.
 * Invariants: an area without `shown` has nothing in the host. A page is shown writable only when its area allows it and, in
 * a private area, when it has one reference. Nothing is shown of an area without access.
 * Threads: the kernel lock.
 */
#include <sys/mman.h>

#include "../task.h"
#include "space.h"

#define KEEP_PAGES 256ul
#define FIRST_BYTES (64ul << 20)

/* The context to change this stub with, or NULL. */
static struct platform_context *context_of(const struct mm *mm)
{
    return current && current->mm == mm ? current->host_context : NULL;
}

static bool runs_in_guest(const struct mm *mm)
{
    struct task *task;

    if (all_tasks)
        TAILQ_FOREACH(task, all_tasks, link)
    if (task->mm == mm && task->in_guest && task->host_context)
        return true;
    return false;
}

static void interrupt_all(const struct mm *mm)
{
    struct task *task;

    TAILQ_FOREACH(task, all_tasks, link)
    if (task->mm == mm && task->in_guest && task->host_context)
        platform->interrupt(task->host_context);
}

static void owe(struct mm *mm, uint64_t start, uint64_t end)
{
    struct space *space = space_of(mm);
    uint32_t i;

    if (runs_in_guest(mm)) {
        quarantine_wait(space);
        interrupt_all(mm);
    }
    for (i = 0; i < space->n_owed; i++)
        if (space->owed[i].start <= end && start <= space->owed[i].end) {
            if (start < space->owed[i].start)
                space->owed[i].start = start;
            if (end > space->owed[i].end)
                space->owed[i].end = end;
            return;
        }
    if (space->n_owed == OWED_MAX) {
        space->n_owed = 1;
        space->owed[0] = (struct range){PLATFORM_GUEST_MIN, PLATFORM_GUEST_MAX};
        return;
    }
    space->owed[space->n_owed++] = (struct range){start, end};
}

/* All mappings go: they come back by faults. false: the stub does not even do that; it is ended. */
static bool hide_all(struct mm *mm, struct platform_context *context)
{
    const struct platform_change all = {.kind = PLATFORM_UNMAP,
                                        .address = PLATFORM_GUEST_MIN,
                                        .size = PLATFORM_GUEST_MAX - PLATFORM_GUEST_MIN};

    host_forget_all(mm);
    return platform->change(context, &all, 1) == 0;
}

void host_forget_all(struct mm *mm)
{
    struct space *space = space_of(mm);
    uint32_t i;

    for (i = 0; i < space->n; i++)
        space->areas[i]->shown = false;
    space->n_owed = 0;
    quarantine_done(space);
}

void host_hide(struct mm *mm, uint64_t start, uint64_t end)
{
    struct platform_context *context = context_of(mm);
    const struct platform_change change = {
        .kind = PLATFORM_UNMAP, .address = start, .size = end - start};

    if (!context)
        owe(mm, start, end);
    else if (platform->change(context, &change, 1))
        hide_all(mm, context); /* fails only when the stub is dead, and so shows nothing */
}

bool host_hide_shown(struct mm *mm, uint64_t start, uint64_t end)
{
    struct space *space = space_of(mm);
    uint32_t i;
    bool any = false;

    for (i = area_index(space, start); i < space->n && space->areas[i]->start < end; i++) {
        any |= space->areas[i]->shown;
        if (space->areas[i]->start >= start && space->areas[i]->end <= end)
            space->areas[i]->shown = false;
    }
    if (any)
        host_hide(mm, start, end);
    return any;
}

/* ---- showing ---- */

/* What a page of an area is shown by; false: it is not there yet, or is not shown. */
static bool shown_by(struct vma *vma, uint64_t address, struct platform_change *ret)
{
    struct page *page = vma->object && vma->flags & VMA_SHARED
                            ? NULL
                            : pagemap_get(&space_of(vma->mm)->pages, address >> PAGE_SHIFT);
    bool write = vma->prot & PROT_WRITE;
    uint64_t offset = vma->offset + (address - vma->start);
    int kind = OBJECT_PAGE;

    if (page) {
        write = write && page_refs(page) == 1;
    } else {
        kind = vma->object ? object_peek(vma->object, offset >> PAGE_SHIFT, &page) : -EFAULT;
        write = write && vma->flags & VMA_SHARED && kind == OBJECT_PAGE;
    }
    if (kind != OBJECT_PAGE && (kind != OBJECT_BACKED || vma->object->indirect))
        return false;
    *ret = (struct platform_change){
        .kind = PLATFORM_MAP,
        .prot = PROT_READ | (vma->prot & PROT_EXEC) | (write ? PROT_WRITE : 0),
        .host_fd = kind == OBJECT_PAGE ? memfile_fd() : vma->object->host_fd,
        .address = address,
        .size = PAGE_SIZE,
        .offset = kind == OBJECT_PAGE ? page_offset(page) : offset,
    };
    return true;
}

/* How many bytes from change->address on the backing shows in one piece, at most to `end`. */
static uint64_t backed_size(const struct vma *vma, uint64_t address, uint64_t end)
{
    const struct object *object = vma->object;
    uint64_t index = address >> PAGE_SHIFT, offset = vma->offset + (address - vma->start);
    uint64_t last = ((object->backed - offset + PAGE_SIZE - 1) & PAGE_MASK) + address;

    end = end < last ? end : last;
    if (!(vma->flags & VMA_SHARED) &&
        pagemap_next(&space_of(vma->mm)->pages, &index, end >> PAGE_SHIFT))
        end = index << PAGE_SHIFT;
    index = offset >> PAGE_SHIFT;
    if (pagemap_next(&object->pages, &index, (offset + (end - address)) >> PAGE_SHIFT))
        end = address + ((index << PAGE_SHIFT) - offset);
    return end - address;
}

static bool follows(const struct platform_change *change, const struct platform_change *next)
{
    return change->host_fd == next->host_fd && change->prot == next->prot &&
           change->address + change->size == next->address &&
           change->offset + change->size == next->offset;
}

static void mark_shown(struct mm *mm, const struct platform_change *change)
{
    struct space *space = space_of(mm);
    uint32_t i = area_index(space, change->address);

    for (; i < space->n && space->areas[i]->start < change->address + change->size; i++)
        space->areas[i]->shown = true;
}

static int apply(struct mm *mm, const struct platform_change *changes, unsigned n)
{
    struct platform_context *context = context_of(mm);
    int error = n ? platform->change(context, changes, n) : 0;
    unsigned i;

    if (error != -ENOMEM || !hide_all(mm, context))
        return error;
    for (i = 0; i < n; i++) /* there was no room for so many mappings */
        mark_shown(mm, &changes[i]);
    return platform->change(context, changes, n);
}

int host_show(struct showing *showing, struct vma *vma, uint64_t start, uint64_t end)
{
    struct platform_change next, *last;
    uint64_t at;
    int error;

    if (!context_of(vma->mm) || vma->prot == PROT_NONE)
        return 0;
    for (at = start; at < end; at += next.size) {
        next.size = PAGE_SIZE;
        if (!shown_by(vma, at, &next))
            continue;
        if (next.host_fd != memfile_fd())
            next.size = backed_size(vma, at, end);
        last = showing->n ? &showing->changes[showing->n - 1] : NULL;
        if (last && follows(last, &next)) {
            last->size += next.size;
            continue;
        }
        if (showing->n == SHOWING_MAX) {
            error = host_show_done(vma->mm, showing);
            if (error)
                return error;
        }
        showing->changes[showing->n++] = next;
    }
    vma->shown = true;
    return 0;
}

int host_show_done(struct mm *mm, struct showing *showing)
{
    unsigned n = showing->n;

    showing->n = 0;
    return apply(mm, showing->changes, n);
}

/* ---- fork ---- */

static bool is_private_data(const struct vma *vma)
{
    return !(vma->flags & VMA_SHARED) && vma->prot & PROT_WRITE;
}

/* Small areas are shown on, read-only now, as their pages have another owner; large ones come back by faults. */
void host_after_fork(struct mm *mm)
{
    struct showing showing = {.n = 0};
    struct space *space = space_of(mm);
    int error = 0;
    uint32_t i;

    for (i = 0; i < space->n; i++) {
        struct vma *vma = space->areas[i];

        if (!vma->shown || !is_private_data(vma))
            continue;
        if (!error && context_of(mm) && vma->end - vma->start <= KEEP_PAGES * PAGE_SIZE) {
            error = host_show(&showing, vma, vma->start, vma->end);
            continue;
        }
        host_hide(mm, vma->start, vma->end);
        vma->shown = false;
    }
    if (!error)
        error = host_show_done(mm, &showing);
    if (error && context_of(mm))
        hide_all(mm, context_of(mm));
}

/* The child begins with the text that its parent was seen to use. */
static void show_first(struct mm *mm)
{
    struct showing showing = {.n = 0};
    struct space *space = space_of(mm);
    uint32_t i;

    space->forked = false;
    for (i = 0; i < space->n; i++) {
        struct vma *vma = space->areas[i];

        if (vma->used && !vma->shown && !is_private_data(vma) &&
            vma->end - vma->start <= FIRST_BYTES && host_show(&showing, vma, vma->start, vma->end))
            return;
    }
    host_show_done(mm, &showing); /* what could not be shown now faults later */
}

/* ---- what others ask for ---- */

void mm_forget(struct object *object, uint64_t offset, uint64_t size)
{
    uint64_t end = offset + size < offset ? UINT64_MAX : offset + size;
    struct vma *vma;

    TAILQ_FOREACH(vma, &object->mappings, link)
    {
        uint64_t from = vma->offset, to = vma->offset + (vma->end - vma->start);

        if (!vma->shown || from >= end || to <= offset)
            continue;
        from = from > offset ? from : offset;
        to = to < end ? to : end;
        host_hide(vma->mm, vma->start + (from - vma->offset), vma->start + (to - vma->offset));
    }
}

void host_cut(struct object *object, uint64_t offset)
{
    struct vma *vma;

    mm_forget(object, offset, UINT64_MAX - offset);
    TAILQ_FOREACH(vma, &object->mappings, link)
    {
        uint64_t size = vma->end - vma->start;

        if (vma->flags & VMA_SHARED || vma->offset + size <= offset)
            continue;
        mm_drop_pages(vma->mm,
                      vma->offset >= offset ? vma->start : vma->start + (offset - vma->offset),
                      vma->end);
    }
}

void mm_boundary(struct mm *mm)
{
    struct platform_context *context = context_of(mm);
    struct platform_change changes[OWED_MAX];
    struct space *space = space_of(mm);
    uint32_t i, n = space->n_owed;

    if (n && context) {
        for (i = 0; i < n; i++)
            changes[i] =
                (struct platform_change){.kind = PLATFORM_UNMAP,
                                         .address = space->owed[i].start,
                                         .size = space->owed[i].end - space->owed[i].start};
        space->n_owed = 0;
        if (platform->change(context, changes, n))
            hide_all(mm, context);
        quarantine_done(space);
    }
    if (space->forked && context)
        show_first(mm);
}
