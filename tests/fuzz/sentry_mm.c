/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Guest memory against a model of it: the bytes are operations on a few pages of a few address spaces, done in mm and in a table
 * of what each page must hold and allow. What a guest would see by its stub's mappings, what the kernel reads, and
 * every answer must be as the table has it; at the end nothing may be left.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../unit/sentry/fake_platform.h"
#include "fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
SYSCALL(mremap);
SYSCALL(madvise);

__attribute__((weak)) bool capable(int capability)
{
    return capability == 0;
}

#define PAGES 20u
#define BASE (0x20000000ul - 9 * PAGE_SIZE) /* nodes of several levels meet in its midst */
#define SPACES 3u
#define OBJECTS 2u
#define OBJECT_PAGES 8u

enum kind { NOTHING, ANON, SHARED, PRIVATE };

struct cell {
    enum kind kind;
    uint8_t prot, object, index, value;
    bool own; /* a private copy was written */
};

struct model_object {
    struct object *object;
    unsigned pages;
    uint8_t values[OBJECT_PAGES];
    bool changed[OBJECT_PAGES]; /* a private mapping of it may have the page as it was */
};

static struct {
    const uint8_t *data;
    size_t size;
    struct mm *spaces[SPACES];
    unsigned now;
    struct cell cells[SPACES][PAGES];
    struct model_object objects[OBJECTS];
} m;

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static unsigned next(unsigned limit)
{
    if (m.size == 0)
        return 0;
    m.size--;
    return *m.data++ % limit;
}

static int next_prot(void)
{
    static const int prots[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE,
                                PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC};

    return prots[next(5)];
}

static struct cell *cells(void)
{
    return m.cells[m.now];
}

static uint64_t address(unsigned page)
{
    return BASE + page * PAGE_SIZE;
}

static void next_range(unsigned *page, unsigned *n)
{
    *page = next(PAGES);
    *n = 1 + next(PAGES - *page);
}

/* SIGBUS past the end; else what the page reads as. */
static bool exists(const struct cell *cell)
{
    return cell->kind == ANON ||
           (cell->kind != NOTHING && cell->index < m.objects[cell->object].pages);
}

static uint8_t value(const struct cell *cell)
{
    return cell->kind == ANON || cell->own ? cell->value
                                           : m.objects[cell->object].values[cell->index];
}

/* POSIX leaves open whether a private mapping sees what is written to its file later. */
static bool reads_as(const struct cell *cell, uint8_t byte)
{
    if (cell->kind == PRIVATE && !cell->own && cell->object == 1 &&
        m.objects[1].changed[cell->index])
        return true;
    return byte == value(cell);
}

static void write_model(struct cell *cell, uint8_t byte)
{
    if (cell->kind == SHARED) {
        m.objects[cell->object].values[cell->index] = byte;
        m.objects[cell->object].changed[cell->index] = true;
    } else {
        cell->own = true;
        cell->value = byte;
    }
}

static void op_map(enum kind kind)
{
    unsigned page, n, i, object = next(OBJECTS), index = next(OBJECT_PAGES);
    int prot = next_prot();
    int64_t at;

    next_range(&page, &n);
    at = mm_map(m.spaces[m.now], address(page), n * PAGE_SIZE, prot, 7,
                MM_FIXED | (kind == SHARED ? MM_SHARED : 0), NULL,
                kind == ANON ? NULL : m.objects[object].object,
                kind == ANON ? 0 : index * PAGE_SIZE);
    MUST(at == (int64_t)address(page));
    for (i = 0; i < n; i++)
        cells()[page + i] = (struct cell){.kind = kind,
                                          .prot = (uint8_t)prot,
                                          .object = (uint8_t)object,
                                          .index = (uint8_t)(index + i)};
}

static void op_unmap(void)
{
    unsigned page, n;

    next_range(&page, &n);
    MUST(mm_unmap(m.spaces[m.now], address(page), n * PAGE_SIZE) == 0);
    memset(&cells()[page], 0, n * sizeof(struct cell));
}

static void op_protect(void)
{
    unsigned page, n, i;
    int prot = next_prot(), expected = 0;

    next_range(&page, &n);
    for (i = 0; i < n && !expected; i++) {
        if (cells()[page + i].kind == NOTHING)
            expected = -ENOMEM;
        else
            cells()[page + i].prot = (uint8_t)prot;
    }
    MUST(mm_protect(m.spaces[m.now], address(page), n * PAGE_SIZE, prot) == expected);
}

static void op_guest(bool write)
{
    unsigned page = next(PAGES);
    struct cell *cell = &cells()[page];
    int access = write ? PROT_READ | PROT_WRITE : PROT_READ, signo = 0, code = 0;
    uint8_t *at = fake_touch(m.spaces[m.now], address(page), access, &signo, &code);

    if (cell->kind == NOTHING || (cell->prot & access) != access) {
        MUST(!at);
        if (cell->prot != PROT_NONE && !exists(cell) && signo == SIGBUS)
            return; /* the host does not say that it was a write */
        MUST(signo == SIGSEGV);
        MUST(code == (cell->kind == NOTHING ? SEGV_MAPERR : SEGV_ACCERR));
        return;
    }
    if (!exists(cell)) {
        MUST(!at && signo == SIGBUS);
        return;
    }
    MUST(at && reads_as(cell, *at));
    if (write) {
        *at = (uint8_t)(1 + next(255));
        write_model(cell, *at);
    }
    munmap(at, PAGE_SIZE);
}

static void op_kernel(unsigned space, unsigned page, bool write)
{
    struct cell *cell = &m.cells[space][page];
    uint8_t byte = (uint8_t)(1 + next(255));
    bool fine = cell->kind != NOTHING && exists(cell) &&
                (write ? cell->prot & PROT_WRITE : cell->prot != PROT_NONE);
    int result = write ? copy_out(m.spaces[space], address(page), &byte, 1)
                       : copy_in(m.spaces[space], &byte, address(page), 1);

    MUST(result == (fine ? 0 : -EFAULT));
    if (fine && write)
        write_model(cell, byte);
    else if (fine)
        MUST(reads_as(cell, byte));
}

static void enter(unsigned space)
{
    m.now = space;
    fake_enter(m.spaces[space]);
}

static void op_fork(void)
{
    unsigned to = next(SPACES);

    if (m.spaces[to])
        return;
    MUST(mm_fork(m.spaces[m.now], &m.spaces[to]) == 0);
    memcpy(m.cells[to], cells(), sizeof(m.cells[to]));
}

static void op_switch(void)
{
    unsigned to = next(SPACES);

    if (m.spaces[to])
        enter(to);
}

static void op_exit(void)
{
    unsigned which = next(SPACES);

    if (which == m.now || !m.spaces[which])
        return;
    mm_put(m.spaces[which]);
    m.spaces[which] = NULL;
}

static void op_truncate(void)
{
    unsigned number = next(OBJECTS), pages = next(OBJECT_PAGES + 1), space, page;
    struct model_object *object = &m.objects[number];

    MUST(object_truncate(object->object, pages * PAGE_SIZE) == 0);
    for (page = pages; page < OBJECT_PAGES; page++)
        object->values[page] = 0, object->changed[page] = true;
    for (space = 0; space < SPACES; space++)
        for (page = 0; page < PAGES; page++) {
            struct cell *cell = &m.cells[space][page];

            if (cell->kind == PRIVATE && cell->object == number && cell->index >= pages &&
                pages < object->pages)
                cell->own = false;
        }
    object->pages = pages;
}

static void op_punch(void)
{
    struct model_object *object = &m.objects[next(OBJECTS)];
    unsigned from = next(OBJECT_PAGES), n = 1 + next(OBJECT_PAGES - from), i;

    MUST(object_punch(object->object, from * PAGE_SIZE, n * PAGE_SIZE) == 0);
    for (i = from; i < from + n; i++)
        object->values[i] = 0, object->changed[i] = true;
}

static void op_object_write(void)
{
    struct model_object *object = &m.objects[next(OBJECTS)];
    unsigned index = next(OBJECT_PAGES);
    uint8_t byte = (uint8_t)(1 + next(255));

    MUST(object_write(object->object, index * PAGE_SIZE, &byte, 1) == 1);
    object->values[index] = byte;
    object->changed[index] = true;
    if (index >= object->pages)
        object->pages = index + 1;
}

static void op_object_read(void)
{
    struct model_object *object = &m.objects[next(OBJECTS)];
    unsigned index = next(OBJECT_PAGES);
    uint8_t byte = 0;

    MUST(object_read(object->object, index * PAGE_SIZE, &byte, 1) ==
         (index < object->pages ? 1 : 0));
    MUST(index >= object->pages || byte == object->values[index]);
}

static void op_discard(void)
{
    unsigned page, n, i;
    int64_t expected = 0;

    next_range(&page, &n);
    for (i = page; i < page + n; i++) {
        if (cells()[i].kind == NOTHING)
            expected = -ENOMEM;
        if (cells()[i].kind == ANON)
            cells()[i].value = 0;
        if (cells()[i].kind == PRIVATE)
            cells()[i].own = false;
    }
    MUST(sys_madvise((const uint64_t[6]){address(page), n * PAGE_SIZE, MADV_DONTNEED}) == expected);
}

/* Whether the pages are of one area: then the kernel has them as one. */
static bool alike(const struct cell *a, const struct cell *b)
{
    return a->kind != NOTHING && a->kind == b->kind && a->prot == b->prot &&
           (a->kind == ANON || (a->object == b->object && a->index + 1 == b->index));
}

static void op_remap(void)
{
    struct cell moved[PAGES];
    unsigned from, n, to, to_n, i;
    int64_t expected = 0, at;
    bool stays;

    next_range(&from, &n);
    next_range(&to, &to_n);
    stays = n == to_n && next(2);
    if (to < from + n && from < to + to_n)
        expected = -EINVAL;
    for (i = 0; i < n && !expected; i++)
        if (cells()[from + i].kind == NOTHING ||
            (i && !alike(&cells()[from + i - 1], &cells()[from + i])))
            expected = -EFAULT;
    at = sys_mremap((const uint64_t[6]){
        address(from), n * PAGE_SIZE, to_n * PAGE_SIZE,
        MREMAP_MAYMOVE | MREMAP_FIXED | (stays ? MREMAP_DONTUNMAP : 0), address(to)});
    MUST(at == (expected ? expected : (int64_t)address(to)));
    if (expected)
        return;
    for (i = 0; i < to_n; i++) {
        moved[i] = i < n ? cells()[from + i] : cells()[from + n - 1];
        if (i >= n) {
            moved[i].index = (uint8_t)(moved[n - 1].index + (i - n + 1));
            moved[i].own = false;
            moved[i].value = 0;
        }
    }
    for (i = 0; stays && i < n; i++) {
        cells()[from + i].own = false;
        cells()[from + i].value = 0;
    }
    if (!stays)
        memset(&cells()[from], 0, n * sizeof(struct cell));
    memcpy(&cells()[to], moved, to_n * sizeof(struct cell));
}

static void step(void)
{
    unsigned what = next(20);

    switch (what) {
    case 0:
        op_map(ANON);
        break;
    case 1:
        op_map(SHARED);
        break;
    case 2:
        op_map(PRIVATE);
        break;
    case 3:
        op_unmap();
        break;
    case 4:
        op_protect();
        break;
    case 5:
    case 6:
        op_kernel(m.now, next(PAGES), what == 5);
        break;
    case 7:
        op_fork();
        break;
    case 8:
        op_switch();
        break;
    case 9:
        op_exit();
        break;
    case 10:
        op_truncate();
        break;
    case 11:
        op_punch();
        break;
    case 12:
        op_object_write();
        break;
    case 13:
        op_object_read();
        break;
    case 14:
        op_discard();
        break;
    case 15:
        op_remap();
        break;
    default:
        op_guest(what & 1);
    }
}

static void begin(void)
{
    struct mm *first;
    unsigned i;
    int fd = memfd_create("image", MFD_CLOEXEC);

    if (!current) {
        fake_sentry(16ul << 20);
        fake_task();
        first = current->mm;
        fake_enter(NULL);
        mm_put(first);
    }
    m.spaces[0] = mm_new();
    MUST(fd >= 0 && m.spaces[0] && ftruncate(fd, OBJECT_PAGES * PAGE_SIZE) == 0);
    enter(0);
    m.objects[0] = (struct model_object){.object = object_new(OBJECT_PAGES * PAGE_SIZE),
                                         .pages = OBJECT_PAGES};
    for (i = 0; i < OBJECT_PAGES; i++) {
        m.objects[1].values[i] = (uint8_t)('A' + i);
        MUST(pwrite(fd, &m.objects[1].values[i], 1, (off_t)(i * PAGE_SIZE)) == 1);
    }
    m.objects[1].pages = OBJECT_PAGES;
    m.objects[1].object = object_new_backed(fd, OBJECT_PAGES * PAGE_SIZE);
}

static void end(void)
{
    unsigned space, i;

    for (space = 0; space < SPACES; space++)
        for (i = 0; m.spaces[space] && i < PAGES; i++)
            op_kernel(space, i, false);
    fake_enter(NULL);
    for (space = 0; space < SPACES; space++)
        mm_put(m.spaces[space]);
    for (i = 0; i < OBJECTS; i++)
        object_put(m.objects[i].object);
    MUST(memfile_used() == 0 && arena_count(ARENA_VMA) == 0 && arena_count(ARENA_OBJECT) == 0 &&
         arena_count(ARENA_MM) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memset(&m, 0, sizeof(m));
    m.data = data;
    m.size = size;
    begin();
    while (m.size)
        step();
    end();
    return 0;
}
