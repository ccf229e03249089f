/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * arena - where every object of the kernel lives: one mapping at a fixed address.
 * Why: a copy of its bytes at the same address is a copy of the kernel (kernel.h has the rules).
 * Invariants: an object has a header that names its kind and class, judged when it is freed; a freed object is on the list
 * of its class; all that is needed to go on stands in the arena itself, in struct head.
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
#define CHUNK (64ul << 10)   /* what small classes take at a time */
#define BIG_MIN (8ul << 10)  /* above it: powers of two */
#define BIG_MAX (32ul << 20) /* 16 MiB and a header */
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

static const uint32_t small[] = {32,  48,   64,   96,   128,  192,  256,  384, 512,
                                 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192};
#define N_SMALL (sizeof(small) / sizeof(small[0]))
#define N_BIG 13 /* 8 KiB … 32 MiB */

struct head { /* at ARENA_BASE */
    uint64_t size, taken, used;
    uint64_t counts[ARENA_KINDS];
    struct cell *free[N_SMALL + N_BIG];
};

static struct head *const head = (struct head *)ARENA_BASE;

int arena_init(size_t bytes)
{
    void *at = mmap((void *)ARENA_BASE, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

    if (at == MAP_FAILED)
        return -errno;
    if (at != (void *)ARENA_BASE) { /* a host kernel without MAP_FIXED_NOREPLACE */
        munmap(at, bytes);
        return -EADDRINUSE;
    }
    madvise(at, bytes, MADV_DONTDUMP);
    head->size = bytes;
    head->taken = (sizeof(*head) + CHUNK - 1) & ~(CHUNK - 1);
    ASAN_POISON_MEMORY_REGION((char *)at + head->taken, bytes - head->taken);
    LEAK_ROOT(at, bytes);
    return 0;
}

static void *take(size_t bytes)
{
    void *at = (char *)head + head->taken;

    if (bytes > head->size - head->taken)
        return NULL;
    head->taken += bytes;
    ASAN_UNPOISON_MEMORY_REGION(at, bytes);
    return at;
}

static size_t class_size(unsigned class)
{
    return class < N_SMALL ? small[class] : BIG_MIN << (class - N_SMALL);
}

static unsigned class_of(size_t bytes)
{
    unsigned class = 0;

    while (class_size(class) < bytes ||
           (class >= N_SMALL && class_size(class) <= small[N_SMALL - 1]))
        class ++;
    return class;
}

static void put_free(struct cell *cell, unsigned class)
{
    cell->magic = FREED;
    cell->class = (uint16_t) class;
    cell->next = head->free[class];
    head->free[class] = cell;
    ASAN_POISON_MEMORY_REGION(cell + 1, class_size(class) - sizeof(*cell));
}

static bool refill(unsigned class)
{
    size_t size = class_size(class), bytes = class < N_SMALL ? CHUNK : size, at;
    char *chunk = take(bytes);

    if (!chunk)
        return false;
    for (at = 0; at + size <= bytes; at += size)
        put_free((struct cell *)(chunk + at), class);
    return true;
}

void *arena_alloc(enum arena_kind kind, size_t size)
{
    struct cell *cell;
    unsigned class;

    kernel_assert_locked();
    if (size > (16ul << 20))
        return NULL;
    class = class_of(size + sizeof(*cell));
    if (!head->free[class] && !refill(class))
        return NULL;
    cell = head->free[class];
    if (cell->magic != FREED || cell->class != class)
        kpanic("arena: the list of free objects of %zu bytes is broken", class_size(class));
    head->free[class] = cell->next;
    *cell = (struct cell){
        .magic = ALIVE, .kind = (uint16_t)kind, .class = (uint16_t) class, .size = size};
    ASAN_UNPOISON_MEMORY_REGION(cell + 1, size);
    memset(cell + 1, 0, size);
    head->counts[kind]++;
    head->used += class_size(class);
    return cell + 1;
}

/* A large object's pages go back to the host; its first one holds the list. */
static void give_back(struct cell *cell, size_t size)
{
    uintptr_t from = ((uintptr_t)(cell + 1) + PAGE_SIZE - 1) & PAGE_MASK,
              to = ((uintptr_t)cell + size) & PAGE_MASK;

    if (to > from)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

void arena_free(void *object)
{
    uintptr_t at = (uintptr_t)object;
    struct cell *cell;

    if (!object)
        return;
    cell = (struct cell *)object - 1;
    kernel_assert_locked();
    if (at < ARENA_BASE + sizeof(*head) || at >= ARENA_BASE + head->taken || at % 16 ||
        cell->magic != ALIVE || cell->kind >= ARENA_KINDS || cell->class >= N_SMALL + N_BIG)
        kpanic("arena: %p is freed, which is no object of it", object);
    head->counts[cell->kind]--;
    head->used -= class_size(cell->class);
    if (cell->class >= N_SMALL)
        give_back(cell, class_size(cell->class));
    put_free(cell, cell->class);
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

uint64_t arena_used(void)
{
    return head->used;
}
