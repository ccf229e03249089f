/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * arena - where every object of the kernel lives: one mapping at a fixed address.
 * Why: a copy of its bytes at the same address is a copy of the kernel (kernel.h has the rules).
 * The arena is chunks of 64 KiB. One holds small objects of one class, or is part of a run that is one large object. A chunk
 * whose last object is gone belongs to nobody again and its pages go back to the host, so that a guest that made many objects
 * of one size, and ended, has not taken the memory from all other sizes for ever.
 * Invariants: an object has a header that names its kind and class, judged when it is freed; a freed object is on the list
 * of its chunk, and the chunk on that of its class as long as it has one; all that is needed to go on stands in the arena
 * itself, in struct head and the table of chunks behind it.
 * Threads: the kernel lock.
 */
#include <string.h>
#include <sys/mman.h>

#include "kernel.h"

#ifdef __has_feature /* clang */
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(SANITIZED)
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#define LEAK_ROOT(address, size)                                                                   \
    __lsan_register_root_region((address), (size)) /* what it points to is no leak */
#else
#define LEAK_ROOT(address, size) ((void)(address), (void)(size))
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

#define ARENA_BASE 0x200000000000ul
#define CHUNK (64ul << 10)
#define OBJECT_MAX (16ul << 20)
#define ALIVE 0xce11a11e
#define FREED 0xdeadce11

struct cell { /* in front of each object */
    uint32_t magic;
    uint16_t kind, class;
    union {
        uint64_t size;
        struct cell *next; /* when free */
    };
};

/* 4112: a page of a pipe and its header. */
static const uint32_t sizes[] = {32,   48,   64,   96,   128,  192,  256,  384,  512,   768,
                                 1024, 1536, 2048, 3072, 4096, 4112, 6144, 8192, 16384, 32768};
#define CLASSES (sizeof(sizes) / sizeof(sizes[0]))
#define LARGE CLASSES /* the class of what takes chunks of its own */

struct chunk {
    struct cell *free;       /* its objects that are free */
    uint32_t previous, next; /* in the list of its class; 0 none: the first chunk is in no list */
    uint32_t n;              /* objects alive; of the first chunk of a run: how many chunks */
    uint8_t class;
    bool taken;
};

struct head { /* at ARENA_BASE */
    uint64_t used;
    uint64_t counts[ARENA_KINDS];
    uint32_t n_chunks, low;  /* no chunk below `low` is free */
    uint32_t roomy[CLASSES]; /* the first chunk with a free object */
    struct chunk chunks[];
};

static struct head *const head = (struct head *)ARENA_BASE;

static void *chunk_at(uint32_t index)
{
    return (char *)head + index * CHUNK;
}

static uint32_t chunk_of(const void *object)
{
    return (uint32_t)(((uintptr_t)object - ARENA_BASE) / CHUNK);
}

int arena_init(size_t bytes)
{
    void *at = mmap((void *)ARENA_BASE, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    size_t own;

    if (at == MAP_FAILED)
        return -errno;
    if (at != (void *)ARENA_BASE) { /* a host kernel without MAP_FIXED_NOREPLACE */
        munmap(at, bytes);
        return -EADDRINUSE;
    }
    madvise(at, bytes, MADV_DONTDUMP);
    head->n_chunks = (uint32_t)(bytes / CHUNK);
    own = sizeof(*head) + head->n_chunks * sizeof(struct chunk);
    head->low = (uint32_t)((own + CHUNK - 1) / CHUNK);
    ASAN_POISON_MEMORY_REGION(chunk_at(head->low), bytes - head->low * CHUNK);
    LEAK_ROOT(at, bytes);
    return 0;
}

/* ---- chunks ---- */

/* The first of n free chunks in a row, which are taken; 0: there are none. */
static uint32_t take_run(uint32_t n)
{
    uint32_t at, found = 0;

    for (at = head->low; at < head->n_chunks && found < n; at++)
        found = head->chunks[at].taken ? 0 : found + 1;
    if (found < n)
        return 0;
    at -= n;
    for (found = 0; found < n; found++)
        head->chunks[at + found] = (struct chunk){.taken = true, .class = LARGE};
    if (n == 1 || at == head->low)
        head->low = at + n;
    ASAN_UNPOISON_MEMORY_REGION(chunk_at(at), n * CHUNK);
    return at;
}

static void give_run(uint32_t at, uint32_t n)
{
    madvise(chunk_at(at), n * CHUNK, MADV_DONTNEED);
    memset(&head->chunks[at], 0, n * sizeof(struct chunk));
    if (at < head->low)
        head->low = at;
    ASAN_POISON_MEMORY_REGION(chunk_at(at), n * CHUNK);
}

static void list_add(uint32_t at)
{
    struct chunk *chunk = &head->chunks[at];

    chunk->previous = 0;
    chunk->next = head->roomy[chunk->class];
    if (chunk->next)
        head->chunks[chunk->next].previous = at;
    head->roomy[chunk->class] = at;
}

static void list_remove(uint32_t at)
{
    struct chunk *chunk = &head->chunks[at];

    if (chunk->next)
        head->chunks[chunk->next].previous = chunk->previous;
    if (chunk->previous)
        head->chunks[chunk->previous].next = chunk->next;
    else
        head->roomy[chunk->class] = chunk->next;
}

/* ---- objects in them ---- */

static uint8_t class_of(size_t bytes)
{
    uint8_t class = 0;

    while (class < LARGE && sizes[class] < bytes)
        class ++;
    return class;
}

/* What an object takes. */
static size_t room_of(const struct cell *cell)
{
    return cell->class < LARGE ? sizes[cell->class] : head->chunks[chunk_of(cell)].n * CHUNK;
}

static void put_free(struct chunk *chunk, struct cell *cell)
{
    cell->magic = FREED;
    cell->class = chunk->class;
    cell->next = chunk->free;
    chunk->free = cell;
    ASAN_POISON_MEMORY_REGION(cell + 1, sizes[chunk->class] - sizeof(*cell));
}

static bool refill(uint8_t class)
{
    uint32_t at = take_run(1), size = sizes[class], i;

    if (!at)
        return false;
    head->chunks[at].class = class;
    for (i = CHUNK / size; i-- > 0;) /* the first one is given first */
        put_free(&head->chunks[at], (struct cell *)((char *)chunk_at(at) + i * size));
    list_add(at);
    return true;
}

static struct cell *take_small(uint8_t class)
{
    struct chunk *chunk;
    struct cell *cell;
    uint32_t at;

    if (!head->roomy[class] && !refill(class))
        return NULL;
    at = head->roomy[class];
    chunk = &head->chunks[at];
    cell = chunk->free;
    if (chunk_of(cell) != at || cell->magic != FREED || cell->class != class)
        kpanic("arena: the list of free objects of %u bytes is broken", sizes[class]);
    chunk->free = cell->next;
    chunk->n++;
    if (!chunk->free)
        list_remove(at);
    return cell;
}

static struct cell *take_large(size_t bytes)
{
    uint32_t n = (uint32_t)((bytes + CHUNK - 1) / CHUNK), at = take_run(n);

    if (!at)
        return NULL;
    head->chunks[at].n = n;
    return chunk_at(at);
}

void *arena_alloc(enum arena_kind kind, size_t size)
{
    uint8_t class = class_of(size + sizeof(struct cell));
    struct cell *cell;

    kernel_assert_locked();
    if (size > OBJECT_MAX)
        return NULL;
    cell = class < LARGE ? take_small(class) : take_large(size + sizeof(*cell));
    if (!cell)
        return NULL;
    ASAN_UNPOISON_MEMORY_REGION(cell + 1, size);
    if (class < LARGE)
        memset(cell + 1, 0, size); /* the pages of a run are new */
    *cell = (struct cell){.magic = ALIVE, .kind = (uint16_t)kind, .class = class, .size = size};
    head->counts[kind]++;
    head->used += room_of(cell);
    return cell + 1;
}

/* One empty chunk of a class stays: who makes and frees one object does not ask the host each time. */
static void free_small(struct cell *cell)
{
    uint32_t at = chunk_of(cell);
    struct chunk *chunk = &head->chunks[at];

    if (!chunk->free)
        list_add(at);
    put_free(chunk, cell);
    if (--chunk->n || (!chunk->next && !chunk->previous))
        return;
    list_remove(at);
    give_run(at, 1);
}

/* Where an object of its class begins, in a chunk that is of its class? */
static bool is_object(uintptr_t at)
{
    const struct cell *cell = (struct cell *)at - 1;
    const struct chunk *chunk;
    uint32_t index;

    if (at < ARENA_BASE + sizeof(*head) || at >= ARENA_BASE + head->n_chunks * CHUNK || at % 16)
        return false;
    index = chunk_of(cell);
    chunk = &head->chunks[index];
    if (!chunk->taken || cell->magic != ALIVE || cell->kind >= ARENA_KINDS ||
        cell->class != chunk->class)
        return false;
    at = (uintptr_t)cell - (uintptr_t)chunk_at(index);
    return chunk->class < LARGE ? at % sizes[chunk->class] == 0 : at == 0 && chunk->n;
}

void arena_free(void *object)
{
    struct cell *cell;

    if (!object)
        return;
    kernel_assert_locked();
    if (!is_object((uintptr_t)object))
        kpanic("arena: %p is freed, which is no object of it", object);
    cell = (struct cell *)object - 1;
    head->counts[cell->kind]--;
    head->used -= room_of(cell);
    cell->magic = FREED;
    if (cell->class < LARGE)
        free_small(cell);
    else
        give_run(chunk_of(cell), head->chunks[chunk_of(cell)].n);
}

char *arena_strdup(const char *text, size_t length)
{
    char *copy = arena_alloc(ARENA_BYTES, length + 1);

    if (copy)
        memcpy(copy, text, length);
    return copy;
}

uint64_t arena_count(enum arena_kind kind)
{
    return head->counts[kind];
}

uint64_t arena_size(void)
{
    return (uint64_t)head->n_chunks * CHUNK;
}

uint64_t arena_used(void)
{
    return head->used;
}
