/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * mm.h - guest memory: pages of the memory file, objects that hold them, address spaces that show them.
 *
 * All guest memory is pages of one memory file (a memfd that the sentry has mapped whole, and stubs page by page). A page
 * (struct page) has a count of references; one with several is never written by way of a private mapping.
 * An object (struct object) is pages by index: the content of a file, shared anonymous memory, a SysV segment. What it does
 * not hold yet comes from its backing (a descriptor of the gofer's, read-only) or is zero.
 * An address space (struct mm) is areas (struct vma); a private area has pages of its own above its object's.
 * The host's mappings in the stub follow, and never show more than the areas allow.
 *
 * The host does not say whether a fault was a read or a write. MAPERR: what is there is mapped as far as that needs no
 * copy; ACCERR: it was mapped with less than the area allows, so it was the missing access.
 */
#ifndef SENTRY_MM_H
#define SENTRY_MM_H

#include "platform.h"

#include <sys/uio.h>

struct page;
struct file;
struct vma;

/* Pages by index: a tree that is as high as its highest index needs (mm/pagemap.c). */
struct pagemap {
    void *root;
    uint32_t height, reserved;
    uint64_t count;
};

/* ---- the memory file (mm/memfile.c) ---- */

/* limit: bytes of guest memory, the cell's limit; `host_fd` is the memory file's descriptor. */
int memfile_init(uint64_t limit, int *ret_host_fd);
uint64_t memfile_used(void), memfile_limit(void), memfile_peak(void);
/* Below what is used: nothing more is given until it fits. -EINVAL: more than the memory file can hold. */
int memfile_set_limit(uint64_t bytes);
struct page *page_alloc(
    void); /* zeroed, one reference; NULL when the limit is reached and nothing can be evicted */
void page_get(struct page *page);
void page_put(struct page *page);
void *page_bytes(
    struct page *page); /* in the sentry's mapping: PAGE_SIZE bytes, guest-writable at any time */

/* ---- objects (mm/object.c) ---- */

struct object_account {   /* what written pages count against: a tmpfs, the cell's disk */
    uint64_t limit, used; /* bytes; limit 0: none */
    uint64_t refused;     /* pages that found no room */
};

struct object {
    uint32_t refs;
    uint32_t indirect; /* the host does not map the backing into a stub: its pages are loaded */
    uint64_t size;     /* bytes; pages past it are SIGBUS in a mapping of a file */
    int host_fd;       /* backing, read-only, or -1; owned */
    TAILQ_ENTRY(object) backed_link; /* host_fd >= 0 */
    uint64_t
        backed; /* bytes that the backing still holds: what was cut by truncation never comes back */
    uint64_t resident;          /* pages in memory */
    struct pagemap pages;       /* what is not as the backing has it, or has none */
    TAILQ_HEAD(, vma) mappings; /* areas that show it */
    struct object_account
        *account;     /* or NULL; set before anything is written. Past its limit: -ENOSPC */
    uint64_t charged; /* bytes of it that count there */
    uint64_t serial;  /* no other object ever had it */
};

struct object *object_new(uint64_t size); /* zeros */
/* The content begins as `size` bytes of a descriptor, which the object owns from here, also when it fails. */
struct object *object_new_backed(int host_fd, uint64_t size);
/* Copies what a few written objects still have in their backing, where that is little, and closes their descriptors: how many.
   For when descriptors run out. */
unsigned objects_let_go(void);
void object_get(struct object *object);
void object_put(struct object *object);
/* A page with a reference of its own, loaded when needed; write: it is to be changed (a hole gets its page), else a hole
   gives NULL and 0. -ENOMEM, -EIO. */
int object_page(struct object *object, uint64_t index, bool write, struct page **ret_page);
/* Bytes within its size; fewer at the end. */
int64_t object_read(struct object *object, uint64_t offset, void *buffer, size_t size);
/* Grows it when needed. Partial when memory ends: what was written, or -ENOMEM. */
int64_t object_write(struct object *object, uint64_t offset, const void *bytes, size_t size);
/* Cuts or grows; pages past the end vanish from every mapping. */
int object_truncate(struct object *object, uint64_t size);
int object_punch(struct object *object, uint64_t offset,
                 uint64_t size); /* zeros, pages given back */
int64_t object_seek_data(struct object *object, uint64_t offset,
                         bool hole);                 /* SEEK_DATA, SEEK_HOLE; -ENXIO */
bool object_may_change(const struct object *object); /* by a shared mapping */

/* ---- address spaces (mm/mm.c, mm/vma.c, mm/fault.c) ---- */

struct mm {
    uint32_t refs;
    uint32_t tasks;              /* that run in it */
    uint64_t host_cpu_seen;      /* of the platform's cpu(), what tasks have been given */
    uint64_t cpu_looked;         /* when that was: CLOCK_MONOTONIC_COARSE */
    struct platform_as *host_as; /* made again, never copied */
    void *areas;                 /* of mm/vma.c */
    uint64_t n_areas;
    uint64_t brk_start, brk;
    uint64_t stack_start; /* end (highest address) of the first stack */
    uint64_t arg_start, arg_end, env_start, env_end;
    uint64_t bytes_mapped, pages_private, locked;
    uint64_t pages_peak; /* the most that pages_private has been */
    uint64_t top;        /* where the search for free places begins, downwards */
    struct file *exe;    /* reference; /proc/self/exe */
    uint8_t auxv[512];   /* as on the stack, for /proc/self/auxv */
    uint32_t auxv_size;
    uint32_t dumpable;
};

struct vma_info { /* one area, for /proc/PID/maps, smaps and tests */
    uint64_t start, end, offset;
    int prot;
    bool shared, grows_down;
    struct file *file;                /* borrowed, or NULL */
    uint64_t resident, private_pages; /* pages */
    const char *name;                 /* "[heap]", "[stack]" or NULL */
};

struct mm *
mm_new(void); /* empty, with an address space of the platform; NULL: no memory or no process */
void mm_get(struct mm *mm);
void mm_put(struct mm *mm);
/* A copy, copy on write. */
int mm_fork(struct mm *from, struct mm **ret_mm);

#define MM_FIXED 1u
#define MM_NOREPLACE 2u
#define MM_SHARED 4u
#define MM_GROWSDOWN 8u
#define MM_POPULATE 16u
#define MM_STACK 32u
/* file NULL: anonymous. object: borrowed (of the file, or of shared memory); NULL: private anonymous. max_prot: PROT_* that
   mprotect may give (a shared mapping of a file not open for writing has none). Gives the address. */
int64_t mm_map(struct mm *mm, uint64_t address, uint64_t size, int prot, int max_prot,
               unsigned flags, struct file *file, struct object *object, uint64_t offset);
int mm_unmap(struct mm *mm, uint64_t address, uint64_t size);
int mm_protect(struct mm *mm, uint64_t address, uint64_t size, int prot);
/* Gives its areas in order, from the first that ends after `address`; false when there is none. */
bool mm_next_area(struct mm *mm, uint64_t address, struct vma_info *ret_area);
/* A stop of the guest at an address: 0 mapped, run again; or the signal (SIGSEGV, SIGBUS) and its si_code. */
int mm_fault(struct mm *mm, const struct platform_stop *stop, const struct user_regs_struct *regs,
             int *ret_signal, int *ret_code);
/* Pages of an object from `offset` on may no longer be seen as they were: every address space that shows them forgets them
   before any guest thread of it runs again. (object_truncate, object_punch) */
void mm_forget(struct object *object, uint64_t offset, uint64_t size);
/* Called at the boundary, before a task runs: does what others have asked of its address space. */
void mm_boundary(struct mm *mm);

/* ---- guest addresses (mm/uaccess.c): the only place where a guest's pointer is followed ---- */

/* Whole or -EFAULT (what was copied before the fault stays copied). The kernel lock is held, so no unmapping meets it. */
int copy_in(struct mm *mm, void *to, uint64_t from, size_t size);
int copy_out(struct mm *mm, uint64_t to, const void *from, size_t size);
int64_t copy_in_some(struct mm *mm, void *to, uint64_t from,
                     size_t size); /* as far as it goes; -EFAULT when not a byte */
int64_t copy_out_some(struct mm *mm, uint64_t to, const void *from, size_t size);
int zero_out(struct mm *mm, uint64_t to, size_t size);
/* A string with its NUL in `size` bytes: its length; -EFAULT, -ENAMETOOLONG. */
int64_t copy_in_string(struct mm *mm, char *to, uint64_t from, size_t size);
/* An aligned 32-bit word as futexes need it: atomic against guest threads that run. */
int guest_word_load(struct mm *mm, uint64_t address, uint32_t *ret_value);
int guest_word_cas(struct mm *mm, uint64_t address, uint32_t expected, uint32_t value,
                   uint32_t *ret_seen);
/* What a shared futex is named by: the serial number of the page's object, which may be gone while somebody waits, and offset;
   for private memory the mm and address. */
struct futex_key {
    void *base; /* a name: never followed */
    uint64_t offset;
};
int futex_key(struct mm *mm, uint64_t address, bool shared, struct futex_key *ret_key);

/* ---- bytes of a system call: a guest's buffers or the kernel's own ---- */

#define UIO_MAX 1024 /* IOV_MAX */
struct uio {
    struct mm *mm; /* NULL: addresses are the kernel's */
    struct iovec *parts;
    unsigned n_parts, part;
    size_t offset; /* in this part */
    size_t left;   /* bytes, at most 0x7ffff000 in all */
};
/* One buffer; `part` is storage of the caller's. */
void uio_one(struct uio *uio, struct iovec *part, struct mm *mm, uint64_t address, size_t size);
/* A guest's array of struct iovec: -EINVAL, -EFAULT, -ENOMEM. uio_free() after it. */
int uio_guest(struct uio *uio, struct mm *mm, uint64_t parts, uint64_t count);
void uio_free(struct uio *uio);
/* Moves as much as goes, advancing: bytes, 0 at the end, -EFAULT when not one byte. from: uio -> kernel; to: kernel -> uio. */
int64_t uio_from(struct uio *uio, void *buffer, size_t size);
int64_t uio_to(struct uio *uio, const void *bytes, size_t size);

#endif
