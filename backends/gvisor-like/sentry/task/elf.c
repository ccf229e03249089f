/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * elf - programs: segments and interpreter into a new address space, and the first stack.
 * Why so: gABI and the x86-64 psABI (3.4.1, process initialisation); where they are silent, what Linux's binfmt_elf does.
 * Everything read of the file is the guest's word: bounded here, and mm_map() judges addresses.
 * Threads: the kernel lock.
 */
#include <cpuid.h>
#include <elf.h>
#include <fcntl.h>
#include <linux/auxvec.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>

#include "exec.h"

#define PROGRAM_BASE 0x555555554000ul /* of what may lie anywhere and has an interpreter */
#define PROGRAM_SPREAD_PAGES 0x10000000ul
#define STACK_SPREAD_PAGES 0x400000ul
#define BRK_SPREAD_PAGES 0x2000ul
#define MAPPED_SPREAD_PAGES 0x400000ul
#define STACK_ROOM_MIN (128ul << 20)
#define STACK_ROOM_MAX (PLATFORM_GUEST_MAX / 6 * 5)
#define STACK_FIRST (132ul << 10) /* below the arguments: more comes by faults */
#define HEADERS_MAX (64ul << 10)
#define AUXV_ROWS 24
#define MIN_SIGNAL_STACK 3632 /* a frame with the largest state we keep is told by auxv_fill() */

struct image { /* one file that is mapped */
    struct file *file;
    struct object *object;
    Elf64_Ehdr header;
    Elf64_Phdr *segments;               /* heap */
    uint64_t base, entry, headers, end; /* where it came to lie; end of its bss */
};

static uint64_t random_pages(uint64_t pages)
{
    uint64_t value = 0;

    /* @seccomp sentry: getrandom */
    if (getrandom(&value, sizeof(value), 0) != sizeof(value))
        kpanic("getrandom: %s", strerror(errno));
    return value % pages * PAGE_SIZE;
}

/* ---- the file ---- */

static int read_header(struct image *image)
{
    Elf64_Ehdr *h = &image->header;

    if (file_read_at(image->file, h, sizeof(*h), 0) != (int64_t)sizeof(*h) ||
        memcmp(h->e_ident, ELFMAG, SELFMAG) != 0)
        return -ENOEXEC;
    if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB ||
        h->e_machine != EM_X86_64 || (h->e_type != ET_EXEC && h->e_type != ET_DYN))
        return -ENOEXEC;
    if (h->e_phentsize != sizeof(Elf64_Phdr) || !h->e_phnum ||
        h->e_phnum * sizeof(Elf64_Phdr) > HEADERS_MAX)
        return -ENOEXEC;
    return 0;
}

static int read_segments(struct image *image)
{
    size_t size = image->header.e_phnum * sizeof(Elf64_Phdr);
    unsigned i;

    image->segments = malloc(size);
    if (!image->segments)
        return -ENOMEM;
    if (image->header.e_phoff > INT64_MAX ||
        file_read_at(image->file, image->segments, size, image->header.e_phoff) != (int64_t)size)
        return -ENOEXEC;
    for (i = 0; i < image->header.e_phnum; i++) {
        const Elf64_Phdr *p = &image->segments[i];

        if (p->p_type == PT_LOAD &&
            (p->p_filesz > p->p_memsz || p->p_memsz > PLATFORM_GUEST_MAX ||
             p->p_vaddr > PLATFORM_GUEST_MAX || p->p_offset > (1ull << 48) ||
             (p->p_vaddr - p->p_offset) % PAGE_SIZE))
            return -ENOEXEC;
    }
    return 0;
}

static const Elf64_Phdr *find_segment(const struct image *image, uint32_t type)
{
    unsigned i;

    for (i = 0; i < image->header.e_phnum; i++)
        if (image->segments[i].p_type == type)
            return &image->segments[i];
    return NULL;
}

static void image_close(struct image *image)
{
    free(image->segments);
    image->segments = NULL;
}

static int image_open(struct image *image, struct file *file)
{
    const struct file_ops *ops = file_ops[file->kind];
    int result;

    image->file = file;
    result = read_header(image);
    if (!result)
        result = read_segments(image);
    if (!result)
        result = ops->map ? ops->map(file, &image->object) : -ENOEXEC;
    if (result < 0)
        image_close(image);
    return result;
}

/* The interpreter's name: its length; 0 there is none. */
static int interpreter_name(const struct image *image, char name[4096])
{
    const Elf64_Phdr *p = find_segment(image, PT_INTERP);

    if (!p)
        return 0;
    if (p->p_filesz < 2 || p->p_filesz > 4096 || p->p_offset > (1ull << 48) ||
        file_read_at(image->file, name, p->p_filesz, p->p_offset) != (int64_t)p->p_filesz ||
        name[p->p_filesz - 1])
        return -ENOEXEC;
    return (int)strnlen(name, p->p_filesz);
}

/* ---- into memory ---- */

static int protection(const Elf64_Phdr *p)
{
    return (p->p_flags & PF_R ? PROT_READ : 0) | (p->p_flags & PF_W ? PROT_WRITE : 0) |
           (p->p_flags & PF_X ? PROT_EXEC : 0);
}

static int map_bytes(struct mm *mm, struct image *image, const Elf64_Phdr *p)
{
    uint64_t start = (image->base + p->p_vaddr) & PAGE_MASK, slack = p->p_vaddr % PAGE_SIZE;
    int64_t at;

    if (!p->p_filesz)
        return 0;
    at = mm_map(mm, start, (p->p_filesz + slack + PAGE_SIZE - 1) & PAGE_MASK, protection(p),
                PROT_READ | PROT_WRITE | PROT_EXEC, MM_FIXED, image->file, image->object,
                p->p_offset - slack);
    return at < 0 ? (int)at : 0;
}

/* What is zero: the rest of the last page, and the pages after it. */
static int map_zeros(struct mm *mm, struct image *image, const Elf64_Phdr *p)
{
    uint64_t from = image->base + p->p_vaddr + p->p_filesz,
             to = image->base + p->p_vaddr + p->p_memsz;
    uint64_t page = p->p_filesz ? (from + PAGE_SIZE - 1) & PAGE_MASK : from & PAGE_MASK;
    int64_t at;

    if (p->p_memsz == p->p_filesz)
        return 0;
    if (p->p_filesz && page > from && (p->p_flags & PF_W) && zero_out(mm, from, page - from) < 0)
        return -ENOEXEC;
    to = (to + PAGE_SIZE - 1) & PAGE_MASK;
    if (to <= page)
        return 0;
    at = mm_map(mm, page, to - page, protection(p), PROT_READ | PROT_WRITE | PROT_EXEC, MM_FIXED,
                NULL, NULL, 0);
    return at < 0 ? (int)at : 0;
}

/* First and last byte of all segments, by pages. */
static int extent(const struct image *image, uint64_t *ret_start, uint64_t *ret_end)
{
    uint64_t start = UINT64_MAX, end = 0;
    unsigned i;

    for (i = 0; i < image->header.e_phnum; i++) {
        const Elf64_Phdr *p = &image->segments[i];

        if (p->p_type != PT_LOAD || !p->p_memsz)
            continue;
        if ((p->p_vaddr & PAGE_MASK) < start)
            start = p->p_vaddr & PAGE_MASK;
        if (p->p_vaddr + p->p_memsz > end)
            end = p->p_vaddr + p->p_memsz;
    }
    *ret_start = start;
    *ret_end = (end + PAGE_SIZE - 1) & PAGE_MASK;
    return end > PLATFORM_GUEST_MAX || start >= *ret_end ? -ENOEXEC : 0;
}

static uint64_t alignment(const struct image *image)
{
    uint64_t most = PAGE_SIZE;
    unsigned i;

    for (i = 0; i < image->header.e_phnum; i++) {
        uint64_t align = image->segments[i].p_align;

        if (image->segments[i].p_type == PT_LOAD && align > most && !(align & (align - 1)) &&
            align <= 1ull << 30)
            most = align;
    }
    return most;
}

/* Where it may lie: a place for all its segments is found by mapping nothing there, so that each finds its own. */
static int place(struct mm *mm, struct image *image, bool interpreted)
{
    uint64_t start, end, align = alignment(image);
    int64_t at;
    int result = extent(image, &start, &end);

    if (result < 0 || image->header.e_type == ET_EXEC)
        return result;
    if (interpreted) {
        image->base = ((PROGRAM_BASE + random_pages(PROGRAM_SPREAD_PAGES)) & ~(align - 1)) - start;
        return 0;
    }
    at = mm_map(mm, 0, end - start + align - PAGE_SIZE, PROT_NONE, PROT_NONE, 0, NULL, NULL, 0);
    if (at < 0)
        return (int)at;
    result = mm_unmap(mm, (uint64_t)at, end - start + align - PAGE_SIZE);
    image->base = (((uint64_t)at + align - 1) & ~(align - 1)) - start;
    return result;
}

static int map_image(struct mm *mm, struct image *image, bool interpreted)
{
    int result = place(mm, image, interpreted);
    unsigned i;

    for (i = 0; result >= 0 && i < image->header.e_phnum; i++) {
        const Elf64_Phdr *p = &image->segments[i];

        if (p->p_type != PT_LOAD)
            continue;
        result = map_bytes(mm, image, p);
        if (result >= 0)
            result = map_zeros(mm, image, p);
        if (image->base + p->p_vaddr + p->p_memsz > image->end)
            image->end = image->base + p->p_vaddr + p->p_memsz;
        if (image->header.e_phoff >= p->p_offset &&
            image->header.e_phoff < p->p_offset + p->p_filesz)
            image->headers = image->base + p->p_vaddr + image->header.e_phoff - p->p_offset;
    }
    image->entry = image->base + image->header.e_entry;
    return result;
}

/* ---- the first stack ---- */

struct stack {
    struct mm *mm;
    uint64_t at; /* grows down */
    int result;
};

static uint64_t push(struct stack *stack, const void *bytes, size_t size)
{
    stack->at -= size;
    if (stack->result >= 0)
        stack->result = copy_out(stack->mm, stack->at, bytes, size);
    return stack->at;
}

static size_t auxv_fill(uint64_t (*row)[2], const struct exec *exec, const struct image *program,
                        const struct image *interpreter, const uint64_t strings[3])
{
    uint32_t a, b, c, features = 0;
    size_t n = 0;

    __get_cpuid(1, &a, &b, &c, &features);
#define AUX(type_, value_) (row[n][0] = (type_), row[n++][1] = (value_))
    AUX(AT_MINSIGSTKSZ, MIN_SIGNAL_STACK + platform_xstate_size());
    AUX(AT_HWCAP, features);
    AUX(AT_PAGESZ, PAGE_SIZE);
    AUX(AT_CLKTCK, 100);
    AUX(AT_PHDR, program->headers);
    AUX(AT_PHENT, sizeof(Elf64_Phdr));
    AUX(AT_PHNUM, program->header.e_phnum);
    AUX(AT_BASE, interpreter ? interpreter->base : 0);
    AUX(AT_FLAGS, 0);
    AUX(AT_ENTRY, program->entry);
    AUX(AT_UID, exec->cred->uid);
    AUX(AT_EUID, exec->cred->euid);
    AUX(AT_GID, exec->cred->gid);
    AUX(AT_EGID, exec->cred->egid);
    AUX(AT_SECURE, exec->secure);
    AUX(AT_RANDOM, strings[0]);
    AUX(AT_HWCAP2, 0);
    AUX(AT_EXECFN, strings[1]);
    AUX(AT_PLATFORM, strings[2]);
    AUX(AT_NULL, 0);
#undef AUX
    return n;
}

/* Addresses of the strings of one block that lies at `at`. */
static void push_addresses(uint64_t *words, size_t *n, const struct exec_strings *strings,
                           uint64_t at)
{
    const char *text = strings->bytes;
    unsigned i;

    for (i = 0; i < strings->n; i++) {
        words[(*n)++] = at + (uint64_t)(text - strings->bytes);
        text += strlen(text) + 1;
    }
    words[(*n)++] = 0;
}

static void push_words(struct stack *stack, const struct exec *exec, const struct image *program,
                       const struct image *interpreter, const uint64_t strings[3])
{
    size_t room = exec->argv.n + exec->envp.n + 3 + AUXV_ROWS * 2, n = 0, rows;
    uint64_t *words = calloc(room, sizeof(*words)), rows_of[AUXV_ROWS][2];
    struct mm *mm = exec->mm;

    if (!words) {
        stack->result = -ENOMEM;
        return;
    }
    words[n++] = exec->argv.n;
    push_addresses(words, &n, &exec->argv, mm->arg_start);
    push_addresses(words, &n, &exec->envp, mm->env_start);
    rows = auxv_fill(rows_of, exec, program, interpreter, strings);
    memcpy(words + n, rows_of, rows * sizeof(rows_of[0]));
    memcpy(mm->auxv, rows_of, rows * sizeof(rows_of[0]));
    mm->auxv_size = (uint32_t)(rows * sizeof(rows_of[0]));
    n += rows * 2;
    stack->at &= ~15ul;
    if (n % 2)
        stack->at -= 8;
    push(stack, words, n * sizeof(*words));
    free(words);
}

static int make_stack(struct exec *exec, const struct image *program,
                      const struct image *interpreter, bool executable)
{
    struct stack stack = {.mm = exec->mm};
    size_t size =
        exec->argv.size + exec->envp.size + (exec->argv.n + exec->envp.n) * 8 + STACK_FIRST;
    uint64_t top = exec->mm->stack_start, seed[2], strings[3];
    int64_t at;

    size = (size + PAGE_SIZE - 1) & PAGE_MASK;
    at = mm_map(exec->mm, top - size, size, PROT_READ | PROT_WRITE | (executable ? PROT_EXEC : 0),
                PROT_READ | PROT_WRITE | PROT_EXEC, MM_FIXED | MM_GROWSDOWN | MM_STACK, NULL, NULL,
                0);
    if (at < 0)
        return (int)at;
    stack.at = top - 8;
    strings[1] = push(&stack, exec->name, strlen(exec->name) + 1);
    exec->mm->env_end = stack.at;
    exec->mm->env_start = exec->mm->arg_end = push(&stack, exec->envp.bytes, exec->envp.size);
    exec->mm->arg_start = push(&stack, exec->argv.bytes, exec->argv.size);
    stack.at -= random_pages(2) / 2 & ~15ul; /* where the frames begin is not the same each time */
    strings[2] = push(&stack, "x86_64", 7);
    if (getrandom(seed, sizeof(seed), 0) != sizeof(seed))
        return -EIO;
    stack.at &= ~15ul;
    strings[0] = push(&stack, seed, sizeof(seed));
    push_words(&stack, exec, program, interpreter, strings);
    exec->regs = (struct user_regs_struct){
        .rsp = stack.at, .cs = 0x33, .ss = 0x2b, .eflags = 0x202, .orig_rax = (uint64_t)-1};
    return stack.result;
}

/* ---- all of it ---- */

static int load_interpreter(struct exec *exec, const char *name, struct image *image)
{
    struct file *file;
    int result = exec_open(AT_FDCWD, name, 0, &file);

    if (result < 0)
        return result;
    result = image_open(image, file);
    if (result >= 0)
        result = map_image(exec->mm, image, false);
    image_close(image);
    exec_close(file); /* the areas hold it */
    return result == -ENOEXEC ? -ELIBBAD : result;
}

/* The stack is above everything else: what is mapped begins below the room that it may grow into, which is by the limit of
   now as Linux's mmap_base() has it. */
static void lay_out(struct mm *mm)
{
    uint64_t room = current ? current->process->limits[RLIMIT_STACK].rlim_cur : 0; /* the first */

    room = room < STACK_ROOM_MIN ? STACK_ROOM_MIN : room > STACK_ROOM_MAX ? STACK_ROOM_MAX : room;
    mm->stack_start = PLATFORM_GUEST_MAX - PAGE_SIZE - random_pages(STACK_SPREAD_PAGES);
    mm->top = (mm->stack_start - room - random_pages(MAPPED_SPREAD_PAGES)) & PAGE_MASK;
}

static int load_into(struct exec *exec, struct image *program)
{
    const Elf64_Phdr *p = find_segment(program, PT_GNU_STACK);
    struct image interpreter = {0};
    char name[4096];
    int result = interpreter_name(program, name);
    bool interpreted = result > 0;

    lay_out(exec->mm);
    if (result >= 0)
        result = map_image(exec->mm, program, interpreted);
    if (result >= 0 && interpreted)
        result = load_interpreter(exec, name, &interpreter);
    if (result < 0)
        return result;
    exec->mm->brk_start = exec->mm->brk =
        ((program->end + PAGE_SIZE - 1) & PAGE_MASK) + random_pages(BRK_SPREAD_PAGES);
    result =
        make_stack(exec, program, interpreted ? &interpreter : NULL, !p || (p->p_flags & PF_X));
    exec->regs.rip = interpreted ? interpreter.entry : program->entry;
    return result;
}

int elf_load(struct exec *exec)
{
    struct image program = {0};
    int result = image_open(&program, exec->file);

    if (result < 0)
        return result;
    exec->mm = mm_new();
    result = exec->mm ? load_into(exec, &program) : -ENOMEM;
    image_close(&program);
    if (result < 0) {
        mm_put(exec->mm);
        exec->mm = NULL;
        return result;
    }
    exec_hold(exec->file);
    exec->mm->exe = exec->file;
    return 0;
}
