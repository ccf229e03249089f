/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fault - a guest touched what its stub does not show: makes the page, and shows it with its neighbours.
 * A fault costs tens of microseconds of the host, a page far less: so untouched memory is made in chunks that grow with the
 * faults of an area, a file of the image is shown whole, and what is there around the address is shown along.
 * Invariants: a page with several references is copied before it is changed; what is made counts against the limit at once.
 * Threads: the kernel lock.
 */
#include <string.h>
#include <sys/mman.h>

#include "space.h"

#define CHUNK_MIN 2 /* log2 of pages */
#define CHUNK_MAX 6
#define SHOW_PAGES 64u
#define SIBLINGS 4
#define LOAD_PAGES 16ul
#define SMALL_DATA (16 * PAGE_SIZE)
#define AHEAD_MAX 4 /* log2 of pages */
#define STUCK 16    /* the same fault again and again: it is not what we take it for */

enum reason { FAULT, COPY }; /* why a page is needed */

/* The private pages of [start, end) that are not there yet; -ENOMEM when not even the one at `need` could be made. */
static int make_private(struct mm *mm, uint64_t start, uint64_t end, uint64_t need)
{
    struct pagemap *map = &space_of(mm)->pages;
    struct page *pages[1u << CHUNK_MAX], *before;
    uint64_t at = start;
    unsigned n, i, got;

    while (at < end) {
        if (pagemap_get(map, at >> PAGE_SHIFT)) {
            at += PAGE_SIZE;
            continue;
        }
        for (n = 1; n < 1u << CHUNK_MAX && at + n * PAGE_SIZE < end; n++)
            if (pagemap_get(map, (at >> PAGE_SHIFT) + n))
                break;
        before = pagemap_get(map, (at >> PAGE_SHIFT) - 1);
        got = page_alloc_run(n, before, pages);
        for (i = 0; i < got && pagemap_set(map, (at >> PAGE_SHIFT) + i, pages[i]) == 0; i++)
            continue;
        at += i * PAGE_SIZE;
        for (n = i; n < got; n++)
            page_put(pages[n]);
        if (i == 0)
            break;
    }
    count_private(mm);
    return pagemap_get(map, need >> PAGE_SHIFT) ? 0 : -ENOMEM;
}

/* A private page of its own in place of one that others have, too, or of the object's. */
static int copy_private(struct mm *mm, struct vma *vma, uint64_t address, struct page *from,
                        enum reason reason)
{
    struct pagemap *map = &space_of(mm)->pages;
    uint64_t offset = vma->offset + (address - vma->start);
    struct page *page;
    int error = 0;

    if (!page_alloc_run(1, pagemap_get(map, (address >> PAGE_SHIFT) - 1), &page))
        return -ENOMEM;
    if (from) {
        memcpy(page_bytes(page), page_bytes(from), PAGE_SIZE);
    } else {
        int64_t n = object_read(vma->object, offset, page_bytes(page), PAGE_SIZE);

        error = n < 0 ? (int)n : 0;
    }
    if (!error)
        error = pagemap_set(map, address >> PAGE_SHIFT, page);
    if (error) {
        page_put(page);
        return error;
    }
    count_private(mm);
    if (vma->shown && reason == COPY) /* a fault shows the new one over it */
        host_hide(mm, address, address + PAGE_SIZE);
    if (from)
        page_quarantine(from);
    return 0;
}

/* A guest that writes page after page of what it shares since a fork: the next ones are copied with this one. */
static int copy_ahead(struct mm *mm, struct vma *vma, uint64_t address, struct page *page)
{
    struct pagemap *map = &space_of(mm)->pages;
    uint64_t end, last;
    int error = copy_private(mm, vma, address, page, FAULT);

    vma->ahead = vma->copied != address || memfile_scarce() ? 0
                 : vma->ahead < AHEAD_MAX                   ? (uint8_t)(vma->ahead + 1)
                                                            : AHEAD_MAX;
    end = address + (PAGE_SIZE << vma->ahead);
    last = (address | ((SHOW_PAGES << PAGE_SHIFT) - 1)) + 1; /* what is shown over what was there */
    end = end < last ? end : last;
    for (address += PAGE_SIZE; !error && address < end && address < vma->end;
         address += PAGE_SIZE) {
        page = pagemap_get(map, address >> PAGE_SHIFT);
        if (!page || page_refs(page) == 1 || copy_private(mm, vma, address, page, FAULT))
            break;
    }
    vma->copied = address;
    return error;
}

static void chunk_of(struct vma *vma, uint64_t address, uint64_t *ret_start, uint64_t *ret_end)
{
    unsigned order = vma->chunk < CHUNK_MIN ? CHUNK_MIN : vma->chunk;
    uint64_t size = PAGE_SIZE << (memfile_scarce() ? 0 : order);
    uint64_t start = address & ~(size - 1), end = start + size;

    *ret_start = start > vma->start ? start : vma->start;
    *ret_end = end < vma->end ? end : vma->end;
    if (order < CHUNK_MAX)
        vma->chunk = (uint8_t)(order + 2);
}

static int reach_shared(struct vma *vma, uint64_t address, bool write)
{
    uint64_t index = (vma->offset + (address - vma->start)) >> PAGE_SHIFT;
    struct page *page;
    int kind = object_peek(vma->object, index, &page), error;

    if (kind < 0 || kind == OBJECT_PAGE || (kind == OBJECT_BACKED && !write))
        return kind < 0 ? kind : 0;
    error = object_page(vma->object, index, true, &page);
    if (!error)
        page_put(page); /* the object keeps its own reference */
    return error;
}

static int reach_private(struct mm *mm, struct vma *vma, uint64_t address, bool write,
                         enum reason reason)
{
    struct page *page = pagemap_get(&space_of(mm)->pages, address >> PAGE_SHIFT), *of_object;
    uint64_t start = address, end = address + PAGE_SIZE;
    int kind;

    if (page)
        return !write || page_refs(page) == 1 ? 0
               : reason == FAULT              ? copy_ahead(mm, vma, address, page)
                                              : copy_private(mm, vma, address, page, reason);
    if (vma->object) {
        kind = object_peek(vma->object, (vma->offset + (address - vma->start)) >> PAGE_SHIFT,
                           &of_object);
        if (kind < 0)
            return kind;
        if (kind == OBJECT_HOLE && !write) /* all see what is written there later */
            return reach_shared(vma, address, true);
        return write ? copy_private(mm, vma, address, NULL, reason) : 0;
    } else if (reason == FAULT) {
        chunk_of(vma, address, &start, &end);
    }
    return make_private(mm, start, end, address);
}

static int reach(struct mm *mm, struct vma *vma, uint64_t address, bool write, enum reason reason)
{
    return vma->flags & VMA_SHARED ? reach_shared(vma, address, write)
                                   : reach_private(mm, vma, address, write, reason);
}

/* The object's page is to be shown and the host does not map its backing: loads it. */
static int load_backing(struct vma *vma, uint64_t address)
{
    uint64_t first = address & ~((LOAD_PAGES << PAGE_SHIFT) - 1), at = address, index;
    struct page *page;
    int error = 0;

    for (at = address; !error && at < vma->end && at < first + (LOAD_PAGES << PAGE_SHIFT);
         at += PAGE_SIZE) {
        index = (vma->offset + (at - vma->start)) >> PAGE_SHIFT;
        if (object_peek(vma->object, index, &page) != OBJECT_BACKED)
            continue;
        error = object_page(vma->object, index, false, &page);
        if (!error)
            page_put(page);
    }
    return at > address + PAGE_SIZE ? 0 : error;
}

int page_reach(struct mm *mm, struct vma *vma, uint64_t address, bool write, struct page **ret_page)
{
    struct page *page = NULL;
    int error = 0;

    address &= PAGE_MASK;
    if (!(vma->flags & VMA_SHARED))
        page = pagemap_get(&space_of(mm)->pages, address >> PAGE_SHIFT);
    if (write && (!page || page_refs(page) > 1))
        error = reach(mm, vma, address, true, COPY);
    if (error)
        return error;
    if (!(vma->flags & VMA_SHARED))
        page = pagemap_get(&space_of(mm)->pages, address >> PAGE_SHIFT);
    if (!page && vma->object) {
        error =
            object_peek(vma->object, (vma->offset + (address - vma->start)) >> PAGE_SHIFT, &page);
        if (error < 0)
            return error;
    }
    *ret_page = page;
    return 0;
}

/* Whether the area shows its backing at an address, of which the host can show all in one piece. */
static bool shows_backing(struct mm *mm, const struct vma *vma, uint64_t address)
{
    uint64_t index = (vma->offset + (address - vma->start)) >> PAGE_SHIFT;
    struct page *page;

    return vma->object && !vma->object->indirect && vma->prot != PROT_NONE &&
           object_peek(vma->object, index, &page) == OBJECT_BACKED &&
           (vma->flags & VMA_SHARED || !pagemap_get(&space_of(mm)->pages, address >> PAGE_SHIFT));
}

/* What a program relocates when it is loaded: few pages, nearly all of them written; each would be two faults. */
static void copy_small(struct mm *mm, struct vma *vma)
{
    struct page *page;
    uint64_t at;

    for (at = vma->start; at < vma->end; at += PAGE_SIZE) {
        uint64_t index = (vma->offset + (at - vma->start)) >> PAGE_SHIFT;

        if (!pagemap_get(&space_of(mm)->pages, at >> PAGE_SHIFT) &&
            object_peek(vma->object, index, &page) == OBJECT_BACKED &&
            copy_private(mm, vma, at, NULL, FAULT))
            return;
    }
}

static bool is_small_data(const struct vma *vma)
{
    return vma->object && !(vma->flags & VMA_SHARED) && vma->prot & PROT_WRITE && !vma->shown &&
           vma->end - vma->start <= SMALL_DATA && !memfile_scarce();
}

/* The other areas of a file whose first one is needed now: a library has four or five. */
static int show_siblings(struct mm *mm, const struct vma *vma, struct showing *showing)
{
    struct space *space = space_of(mm);
    uint32_t at = area_index(space, vma->start), i = at > SIBLINGS ? at - SIBLINGS : 0;
    int error = 0;

    for (; i < space->n && i <= at + SIBLINGS && !error; i++) {
        struct vma *other = space->areas[i];

        if (other == vma || other->object != vma->object || other->shown ||
            !shows_backing(mm, other, other->start))
            continue;
        if (is_small_data(other))
            copy_small(mm, other);
        error = host_show(showing, other, other->start, other->end);
    }
    return error;
}

static int show_around(struct mm *mm, struct vma *vma, uint64_t address)
{
    uint64_t size = SHOW_PAGES << PAGE_SHIFT, start = address & ~(size - 1), end = start + size;
    bool whole = !vma->shown && shows_backing(mm, vma, address);
    struct showing showing = {.n = 0};
    int error;

    if (whole || start < vma->start)
        start = vma->start;
    if (whole || end > vma->end)
        end = vma->end;
    error = host_show(&showing, vma, start, end);
    if (whole && !error)
        error = show_siblings(mm, vma, &showing);
    return error ? error : host_show_done(mm, &showing);
}

static int show(struct mm *mm, struct vma *vma, uint64_t address)
{
    int error = show_around(mm, vma, address);

    if (vma->object && !vma->object->indirect &&
        (error == -EPERM || error == -EACCES || error == -ENODEV)) {
        vma->object->indirect = 1;
        error = load_backing(vma, address);
        if (!error)
            error = show_around(mm, vma, address);
    }
    return error;
}

/* A page that the guest may write is shown so, and still it faults there: not for a write, then. Another of its threads may
   have been faster; but not so often in a row. */
static bool stuck(struct mm *mm, const struct vma *vma, uint64_t address, uint64_t rip)
{
    static _Thread_local struct {
        uint64_t address, rip;
        unsigned times;
    } last;
    struct page *page = NULL;
    bool shown;

    if (vma->flags & VMA_SHARED)
        shown = object_peek(vma->object, (vma->offset + (address - vma->start)) >> PAGE_SHIFT,
                            &page) == OBJECT_PAGE;
    else
        shown = (page = pagemap_get(&space_of(mm)->pages, address >> PAGE_SHIFT)) &&
                page_refs(page) == 1;
    if (!shown || !vma->shown || last.address != address || last.rip != rip)
        last.times = 0;
    last.address = address;
    last.rip = rip;
    return ++last.times > STUCK;
}

/* What the access was: 0 may be (then *ret_write says how it is taken), or -EACCES. */
static int judge(struct mm *mm, const struct vma *vma, const struct platform_stop *stop,
                 const struct user_regs_struct *regs, bool *ret_write)
{
    uint64_t address = (uint64_t)(uintptr_t)stop->info.si_addr;
    bool denied = stop->info.si_code == SEGV_ACCERR;

    if (vma->prot == PROT_NONE)
        return -EACCES;
    if (!(vma->prot & PROT_EXEC) && address == regs->rip)
        return -EACCES;
    if (denied && !(vma->prot & PROT_WRITE))
        return -EACCES;
    if (denied && !(vma->prot & PROT_EXEC) && stuck(mm, vma, address, regs->rip))
        return -EACCES;
    /* Near the stack pointer it is most often a push. */
    *ret_write = denied || (vma->prot & PROT_WRITE && !(vma->flags & VMA_SHARED) &&
                            address + 256 >= regs->rsp && address < regs->rsp + PAGE_SIZE);
    return 0;
}

static int fail_with(int signo, int code, int *ret_signal, int *ret_code)
{
    *ret_signal = signo;
    *ret_code = code;
    return signo;
}

int mm_fault(struct mm *mm, const struct platform_stop *stop, const struct user_regs_struct *regs,
             int *ret_signal, int *ret_code)
{
    uint64_t address = (uint64_t)(uintptr_t)stop->info.si_addr;
    struct vma *vma;
    bool write;
    int error;

    kernel_assert_locked();
    vma = address < PLATFORM_GUEST_MAX ? area_reach(mm, address) : NULL;
    if (!vma)
        return fail_with(SIGSEGV, SEGV_MAPERR, ret_signal, ret_code);
    if (stop->info.si_signo == SIGBUS) /* the host's file is shorter than it was */
        return fail_with(SIGBUS, BUS_ADRERR, ret_signal, ret_code);
    if (judge(mm, vma, stop, regs, &write))
        return fail_with(SIGSEGV, SEGV_ACCERR, ret_signal, ret_code);
    address &= PAGE_MASK;
    error = reach(mm, vma, address, write, FAULT);
    if (!error && is_small_data(vma))
        copy_small(mm, vma);
    if (!error && vma->object && vma->object->indirect)
        error = load_backing(vma, address);
    if (!error)
        error = show(mm, vma, address);
    if (error && vma->shown)
        host_hide(mm, address, address + PAGE_SIZE); /* it may show a page that was replaced */
    if (error == -EFAULT || error == -EIO || error == -ENOSPC)
        return fail_with(SIGBUS, BUS_ADRERR, ret_signal, ret_code);
    if (error == -ENOMEM) /* as Linux's killer would */
        return fail_with(SIGKILL, SI_KERNEL, ret_signal, ret_code);
    return 0; /* any other is the stub's: its death is seen when it is run */
}

int fault_populate(struct mm *mm, uint64_t start, uint64_t end, bool write)
{
    struct space *space = space_of(mm);
    uint64_t at = start;
    int error = 0;

    while (at < end && !error) {
        struct vma *vma = area_find(mm, at);

        if (!vma)
            return -ENOMEM;
        if (vma->prot == PROT_NONE)
            return -EFAULT;
        for (; !error && at < end && at < vma->end; at += PAGE_SIZE)
            if (!pagemap_get(&space->pages, at >> PAGE_SHIFT))
                error = reach(mm, vma, at, write && vma->prot & PROT_WRITE, COPY);
    }
    return error;
}
