/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * memfile - the memory file: all pages of guests, counted.
 * Why a file: the sentry has it mapped whole, and a stub maps pages of it at the addresses that its guest has them.
 * It is sparse, four times as large as the limit, so that neighbours in an address space find room to be neighbours here:
 * then a stub needs few mappings. What counts against the limit is pages in use.
 * Invariants: a page with no reference is free, and no stub that runs shows it (space.h, quarantine). A free page that was
 * used is dirty: zeroed when it is used again, or given back to the host with others.
 * Threads: the kernel lock; guests write to pages at any time.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "space.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x10u
#endif

#define BLOCK 256u /* pages */
#define WORDS (BLOCK / 64)
#define DIRTY_MAX 2048u /* 8 MiB are given back together */
#define ROOM 4          /* size of the file over the limit */

struct page {
    uint32_t refs, index;
    uint32_t leaving; /* references that quarantine gives up */
    uint32_t next;    /* in quarantine: index + 1 */
};

struct block {
    uint32_t n_free, n_dirty;
    uint64_t free[WORDS], dirty[WORDS];
    struct page pages[BLOCK];
};

struct memfile {
    int host_fd;
    uint8_t *host_bytes;               /* the sentry's mapping */
    uint64_t limit, used, peak, dirty; /* pages */
    uint32_t n_blocks, cursor;         /* cursor: word where the search goes on */
    uint32_t first, last;              /* quarantine: index + 1 */
    TAILQ_HEAD(, space) waited_for;
    struct backed_list backed;
    struct block *blocks[];
};

static struct memfile *memory;

static int make_file(uint64_t size, int *ret_fd, void **ret_bytes)
{
    int error, fd = memfd_create("cella-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);

    if (fd < 0 && errno == EINVAL) /* a host before 6.3 */
        fd = memfd_create("cella-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)size) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        goto failed;
    *ret_bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (*ret_bytes == MAP_FAILED)
        goto failed;
    madvise(*ret_bytes, size, MADV_DONTDUMP);
    *ret_fd = fd;
    return 0;
failed:
    error = -errno;
    close(fd);
    return error;
}

int memfile_init(uint64_t limit, int *ret_host_fd)
{
    uint64_t pages = limit >> PAGE_SHIFT, blocks = (pages * ROOM + BLOCK - 1) / BLOCK;
    struct memfile *file;
    void *bytes;
    int error;

    if (pages == 0 || blocks * sizeof(file->blocks[0]) > (15ul << 20))
        return -EINVAL;
    file = arena_alloc(ARENA_PAGE, sizeof(*file) + blocks * sizeof(file->blocks[0]));
    if (!file)
        return -ENOMEM;
    error = make_file(blocks * BLOCK * PAGE_SIZE, &file->host_fd, &bytes);
    if (error) {
        arena_free(file);
        return error;
    }
    file->host_bytes = bytes;
    file->limit = pages;
    file->n_blocks = (uint32_t)blocks;
    TAILQ_INIT(&file->waited_for);
    TAILQ_INIT(&file->backed);
    memory = file;
    *ret_host_fd = file->host_fd;
    return 0;
}

uint64_t memfile_used(void)
{
    return memory->used << PAGE_SHIFT;
}

uint64_t memfile_limit(void)
{
    return memory->limit << PAGE_SHIFT;
}

int memfile_set_limit(uint64_t bytes)
{
    uint64_t pages = bytes >> PAGE_SHIFT;

    if (pages == 0 || pages > (uint64_t)memory->n_blocks * BLOCK)
        return -EINVAL;
    memory->limit = pages;
    return 0;
}

uint64_t memfile_peak(void)
{
    return memory->peak << PAGE_SHIFT;
}

bool memfile_scarce(void)
{
    return memory->used > memory->limit - memory->limit / 8;
}

struct backed_list *memfile_backed(void)
{
    return &memory->backed;
}

int memfile_fd(void)
{
    return memory->host_fd;
}

void *page_bytes(struct page *page)
{
    return memory->host_bytes + ((uint64_t)page->index << PAGE_SHIFT);
}

uint64_t page_offset(const struct page *page)
{
    return (uint64_t)page->index << PAGE_SHIFT;
}

uint32_t page_refs(const struct page *page)
{
    return page->refs;
}

static struct page *page_at(uint32_t index)
{
    return &memory->blocks[index / BLOCK]->pages[index % BLOCK];
}

static struct block *block_at(uint32_t number)
{
    struct block *block = memory->blocks[number];
    uint32_t i;

    if (block)
        return block;
    block = arena_alloc(ARENA_PAGE, sizeof(*block));
    if (!block)
        return NULL;
    for (i = 0; i < BLOCK; i++)
        block->pages[i].index = number * BLOCK + i;
    memset(block->free, 0xff, sizeof(block->free));
    block->n_free = BLOCK;
    memory->blocks[number] = block;
    return block;
}

static void use(struct block *block, struct page *page)
{
    uint32_t at = page->index % BLOCK;
    uint64_t bit = 1ull << (at % 64);

    block->free[at / 64] &= ~bit;
    block->n_free--;
    if (block->dirty[at / 64] & bit) {
        memset(page_bytes(page), 0, PAGE_SIZE);
        block->dirty[at / 64] &= ~bit;
        block->n_dirty--;
        memory->dirty--;
    }
    page->refs = 1;
    memory->used++;
    if (memory->used > memory->peak)
        memory->peak = memory->used;
}

/* Free pages from index on that follow each other, at most n. */
static unsigned take(uint32_t index, unsigned n, struct page **pages)
{
    unsigned taken = 0;

    for (; taken < n && index / BLOCK < memory->n_blocks; index++) {
        struct block *block = block_at(index / BLOCK);

        if (!block || !(block->free[index % BLOCK / 64] & (1ull << (index % 64))))
            break;
        pages[taken] = &block->pages[index % BLOCK];
        use(block, pages[taken++]);
    }
    return taken;
}

/* The first word after the cursor that has free pages, all 64 of them if `whole`; -1: none. */
static int64_t search(bool whole)
{
    uint32_t n = memory->n_blocks * WORDS, i;

    for (i = 0; i < n; i++) {
        uint32_t word = (memory->cursor + i) % n;
        struct block *block = memory->blocks[word / WORDS];

        if (!block ||
            (whole ? block->free[word % WORDS] == UINT64_MAX : block->free[word % WORDS] != 0)) {
            memory->cursor = word;
            return word;
        }
        if (block->n_free == 0)
            i += WORDS - 1 - word % WORDS;
    }
    return -1;
}

unsigned page_alloc_run(unsigned n, const struct page *after, struct page **ret_pages)
{
    uint64_t left = memory->limit > memory->used ? memory->limit - memory->used : 0;
    unsigned taken = 0;
    int64_t word;

    kernel_assert_locked();
    if (n > left)
        n = (unsigned)left;
    if (n == 0)
        return 0;
    if (after)
        taken = take(after->index + 1, n, ret_pages);
    if (taken == 0 && (n > 1 || after) && (word = search(true)) >= 0)
        taken = take((uint32_t)word * 64, n, ret_pages);
    if (taken == 0 && (word = search(false)) >= 0) {
        struct block *block = block_at((uint32_t)word / WORDS);

        if (block)
            taken = take((uint32_t)word * 64 +
                             (uint32_t)__builtin_ctzll(block->free[(uint32_t)word % WORDS]),
                         n, ret_pages);
    }
    return taken;
}

struct page *page_alloc(void)
{
    struct page *page;

    return page_alloc_run(1, NULL, &page) ? page : NULL;
}

void page_get(struct page *page)
{
    if (page->refs == 0 || page->refs == UINT32_MAX)
        kpanic("memory: page %u has %u references and gets one", page->index, page->refs);
    page->refs++;
}

/* @seccomp sentry: fallocate(1=FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE) */
/* Gives the dirty pages that follow each other from bit `at` on back to the host; where they end. */
static uint32_t give_back_run(struct block *block, uint32_t number, uint32_t at)
{
    uint32_t end = at;

    while (end < BLOCK && block->dirty[end / 64] & (1ull << (end % 64)))
        end++;
    if (end == at)
        return at + 1;
    if (fallocate(memory->host_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)((uint64_t)(number * BLOCK + at) << PAGE_SHIFT),
                  (off_t)((uint64_t)(end - at) << PAGE_SHIFT)))
        return end; /* stays dirty: zeroed when it is used */
    block->n_dirty -= end - at;
    memory->dirty -= end - at;
    for (; at < end; at++)
        block->dirty[at / 64] &= ~(1ull << (at % 64));
    return end;
}

static void give_back(void)
{
    uint32_t number, at;

    for (number = 0; number < memory->n_blocks; number++) {
        struct block *block = memory->blocks[number];

        for (at = 0; block && block->n_dirty > 0 && at < BLOCK;)
            at = give_back_run(block, number, at);
    }
}

void page_put(struct page *page)
{
    struct block *block;
    uint64_t bit;

    kernel_assert_locked();
    if (!page)
        return;
    if (page->refs == 0)
        kpanic("memory: page %u has no reference and loses one", page->index);
    if (--page->refs > 0)
        return;
    block = memory->blocks[page->index / BLOCK];
    bit = 1ull << (page->index % 64);
    block->free[page->index % BLOCK / 64] |= bit;
    block->dirty[page->index % BLOCK / 64] |= bit;
    block->n_free++;
    block->n_dirty++;
    memory->used--;
    if (++memory->dirty >= DIRTY_MAX)
        give_back();
}

/* ---- quarantine: pages that wait until no address space that runs owes anything ---- */

static void leave(struct page *page)
{
    for (; page->leaving > 0; page->leaving--)
        page_put(page);
}

static void release(void)
{
    while (memory->first) {
        struct page *page = page_at(memory->first - 1);

        memory->first = page->next;
        page->next = 0;
        leave(page);
    }
    memory->last = 0;
}

void page_quarantine(struct page *page)
{
    page->leaving++;
    if (TAILQ_EMPTY(&memory->waited_for)) {
        if (page->leaving == 1)
            leave(page);
        return;
    }
    if (page->leaving > 1)
        return;
    page->next = 0;
    if (memory->last)
        page_at(memory->last - 1)->next = page->index + 1;
    else
        memory->first = page->index + 1;
    memory->last = page->index + 1;
}

void quarantine_wait(struct space *space)
{
    if (space->waits)
        return;
    space->waits = true;
    TAILQ_INSERT_TAIL(&memory->waited_for, space, link);
}

void quarantine_done(struct space *space)
{
    if (!space->waits)
        return;
    space->waits = false;
    TAILQ_REMOVE(&memory->waited_for, space, link);
    if (TAILQ_EMPTY(&memory->waited_for))
        release();
}
