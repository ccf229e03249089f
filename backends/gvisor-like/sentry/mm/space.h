/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * space.h - what the files of mm/ know of each other: areas, private pages, what the host still shows.
 *
 * What a stub shows of a page must go before the page is given to another. A change by a task in its own address space
 * is done at once. For others it is owed: the range is noted in their mm, and done at the boundary before a guest thread runs
 * there; the page waits in quarantine until all that were running then have done so.
 */
#ifndef SENTRY_MM_SPACE_H
#define SENTRY_MM_SPACE_H

#include "../mm.h"

#define AREAS_MAX 65530u /* as Linux's max_map_count */
#define GUARD_GAP (256ul << PAGE_SHIFT)
#define OWED_MAX 16

#define VMA_SHARED 1u
#define VMA_GROWSDOWN 2u
#define VMA_DONTFORK 4u
#define VMA_WIPEONFORK 8u
#define VMA_LOCKED 16u

struct vma {
    uint64_t start, end;
    uint64_t offset; /* in the object, of start */
    struct mm *mm;
    struct file *file;     /* reference, or NULL */
    struct object *object; /* reference; NULL: private anonymous */
    TAILQ_ENTRY(vma) link; /* object->mappings */
    uint32_t flags;
    uint8_t prot, max_prot;
    uint8_t chunk; /* log2 of the pages that the next fault makes */
    uint8_t ahead; /* log2 of the pages that the next copy makes, when it follows the last: */
    uint64_t copied;
    bool used;  /* shown in the parent when it was forked */
    bool shown; /* the host may show something of it */
};

struct range {
    uint64_t start, end;
};

struct space { /* mm->areas */
    struct vma **areas;
    uint32_t n, capacity, hint;
    uint32_t n_owed;
    struct pagemap pages; /* private ones, by address >> PAGE_SHIFT */
    struct range owed[OWED_MAX];
    struct range ready; /* pages made by copy_out that the guest is about to touch */
    bool waits;         /* in the list of those that quarantine waits for */
    bool forked;        /* has not run yet */
    bool barrier;       /* asked for MEMBARRIER_CMD_PRIVATE_EXPEDITED */
    TAILQ_ENTRY(space) link;
};

static inline struct space *space_of(const struct mm *mm)
{
    return mm->areas;
}

static inline void count_private(struct mm *mm)
{
    mm->pages_private = space_of(mm)->pages.count;
    if (mm->pages_peak < mm->pages_private)
        mm->pages_peak = mm->pages_private;
}

/* ---- mm/pagemap.c ---- */
struct page *pagemap_get(const struct pagemap *map, uint64_t index);
int pagemap_set(struct pagemap *map, uint64_t index, struct page *page); /* over what is there */
struct page *pagemap_take(struct pagemap *map, uint64_t index);          /* NULL: nothing there */
/* The first at or after *index and before end, or NULL. */
struct page *pagemap_next(const struct pagemap *map, uint64_t *index, uint64_t end);
/* `to` is empty and gets the same pages, each with a reference. -ENOMEM: to is empty again. */
int pagemap_copy(struct pagemap *to, const struct pagemap *from);
void pagemap_clear(struct pagemap *map); /* puts all */

/* ---- mm/memfile.c ---- */
/* Up to n pages that follow each other, `after` that page when it can be; how many, 0: memory has ended. */
unsigned page_alloc_run(unsigned n, const struct page *after, struct page **ret_pages);
uint64_t page_offset(const struct page *page); /* in the memory file */
uint32_t page_refs(const struct page *page);
int memfile_fd(void);
bool memfile_scarce(void);
TAILQ_HEAD(backed_list, object);
struct backed_list *memfile_backed(void); /* objects with a backing, the oldest first */
/* Gives up a reference when no stub that runs now can show the page any more. */
void page_quarantine(struct page *page);
void quarantine_done(struct space *space); /* it has done what it owed */
void quarantine_wait(struct space *space); /* it owes something, and guest threads run in it */

/* ---- mm/object.c ---- */
#define OBJECT_HOLE 0
#define OBJECT_PAGE 1
#define OBJECT_BACKED 2
/* What a page of it is, without making anything; -EFAULT: past its end. PAGE: *ret_page borrowed. */
int object_peek(const struct object *object, uint64_t index, struct page **ret_page);

/* ---- mm/backing.c ---- */
void backing_take(struct object *object, int host_fd, uint64_t size); /* the object has none yet */
void backing_close(struct object *object);                            /* none: nothing */

/* ---- mm/area.c ---- */
/* Index of the first area that ends after the address; n when there is none. */
uint32_t area_index(struct space *space, uint64_t address);
struct vma *area_find(struct mm *mm, uint64_t address); /* that holds it */
int area_insert(struct mm *mm, uint32_t index, struct vma *vma);
void area_remove(struct mm *mm, uint32_t index); /* and frees it; its pages are the caller's care */
void area_discard(struct vma *vma);              /* one that is not inserted */
/* Cuts areas so that none crosses start or end; the index of the first in it. -ENOMEM. */
int area_isolate(struct mm *mm, uint64_t start, uint64_t end, uint32_t *ret_index);
void area_merge(struct mm *mm, uint64_t start,
                uint64_t end); /* with their neighbours, where they are alike */
bool area_is_free(struct mm *mm, uint64_t start, uint64_t end);
/* A free place, from mm->top down; 0: none. */
uint64_t area_place(struct mm *mm, uint64_t size);
/* The area of an address, growing a stack down to it. */
struct vma *area_reach(struct mm *mm, uint64_t address);
struct vma *area_copy(const struct vma *from,
                      struct mm *mm); /* not inserted; references of its own */

/* ---- mm/host.c ---- */
/* The host shows nothing of the range any more: now, or owed. */
void host_hide(struct mm *mm, uint64_t start, uint64_t end);
/* The same for every area of the range that may be shown; false: none was. */
bool host_hide_shown(struct mm *mm, uint64_t start, uint64_t end);
/* Its private pages have a second owner: none is shown writable any more. */
void host_after_fork(struct mm *mm);
/* Shows what is there of [start, end) of one area: gathered, and done together by host_show_done(). */
#define SHOWING_MAX 64u
struct showing {
    unsigned n;
    struct platform_change changes[SHOWING_MAX];
};
int host_show(struct showing *showing, struct vma *vma, uint64_t start, uint64_t end);
int host_show_done(struct mm *mm, struct showing *showing);
void host_forget_all(struct mm *mm); /* nothing is shown: a new address space of the host */

/* The object ends at the offset now: what is behind it is hidden, and private copies of it are gone, too. */
void host_cut(struct object *object, uint64_t offset);

/* ---- mm/fault.c ---- */
/* The private or shared page at an address, for a copy by the kernel: write makes it one that may be changed. *ret_page NULL:
   reads as the object has it, or zero. -EFAULT, -ENOMEM. */
int page_reach(struct mm *mm, struct vma *vma, uint64_t address, bool write,
               struct page **ret_page);
/* Makes what is not there, as for a write when `write`. */
int fault_populate(struct mm *mm, uint64_t start, uint64_t end, bool write);

/* ---- mm/mm.c ---- */
void mm_drop_pages(struct mm *mm, uint64_t start, uint64_t end); /* private ones; hidden before */
/* ---- mm/advice.c ---- */
bool mm_may_lock(const struct mm *mm, uint64_t size); /* RLIMIT_MEMLOCK, CAP_IPC_LOCK */
int mm_lock(struct mm *mm, uint64_t start, uint64_t size, bool on);

bool mm_exceeds(struct mm *mm, int limit, uint64_t value); /* RLIMIT_* of current */

#endif
