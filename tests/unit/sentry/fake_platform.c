/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fake_platform - a platform that runs nothing: what a stub would show is a list of pages here, and a test reads and writes
 * by it as a guest would (fake_touch), so that a page shown too long, or to the wrong one, is seen.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_platform.h"
#include "fs.h"

struct shown {
    uint64_t address, offset;
    int host_fd, prot;
};

struct platform_as {
    struct shown *pages;
    unsigned n, capacity, contexts;
    uint64_t used;
};

struct platform_context {
    struct platform_as *as;
};

uint64_t fake_clock_begins;
unsigned fake_changes, fake_faults, fake_interrupts;
int fake_change_error, fake_refuse_file;
static int memory_fd = -1;

/* What other rooms define. */
static struct task_list tasks = TAILQ_HEAD_INITIALIZER(tasks);
__attribute__((weak)) struct task_list *all_tasks = &tasks;
__attribute__((weak)) void file_get(struct file *file)
{
    file->refs++;
}
__attribute__((weak)) void file_put(struct file *file)
{
    file->refs--;
}

__attribute__((weak)) bool signal_pending(const struct task *task)
{
    return task->dying;
}
__attribute__((weak)) bool epoll_ready(void *item)
{
    return item != NULL;
}

const struct platform *platform = &platform_fake;

static int fake_init(int fd)
{
    memory_fd = fd;
    return 0;
}

static int fake_new_as(struct platform_as **ret_as)
{
    *ret_as = calloc(1, sizeof(**ret_as));
    if (!*ret_as)
        return -ENOMEM;
    (*ret_as)->used = fake_clock_begins;
    return 0;
}

static void fake_release_as(struct platform_as *as)
{
    assert(as->contexts == 0);
    free(as->pages);
    free(as);
}

static void hide(struct platform_as *as, uint64_t address, uint64_t size)
{
    unsigned i, kept = 0;

    for (i = 0; i < as->n; i++)
        if (as->pages[i].address < address || as->pages[i].address - address >= size)
            as->pages[kept++] = as->pages[i];
    as->n = kept;
}

static void show(struct platform_as *as, const struct platform_change *change)
{
    uint64_t at;

    for (at = 0; at < change->size; at += PAGE_SIZE) {
        if (as->n == as->capacity) {
            as->capacity = as->capacity ? as->capacity * 2 : 64;
            as->pages = realloc(as->pages, as->capacity * sizeof(*as->pages));
            assert(as->pages);
        }
        as->pages[as->n++] = (struct shown){change->address + at, change->offset + at,
                                            change->host_fd, change->prot};
    }
}

static int fake_change(struct platform_context *context, const struct platform_change *changes,
                       unsigned n)
{
    unsigned i;
    int error = fake_change_error;

    kernel_assert_locked();
    fake_changes++;
    fake_change_error = 0;
    if (error)
        return error;
    for (i = 0; i < n; i++) {
        assert(changes[i].size && changes[i].size % PAGE_SIZE == 0);
        assert(changes[i].address >= PLATFORM_GUEST_MIN &&
               changes[i].address + changes[i].size <= PLATFORM_GUEST_MAX);
        if (changes[i].kind == PLATFORM_MAP && changes[i].host_fd != memory_fd && fake_refuse_file)
            return -fake_refuse_file;
        hide(context->as, changes[i].address, changes[i].size);
        if (changes[i].kind == PLATFORM_MAP)
            show(context->as, &changes[i]);
    }
    return 0;
}

static int fake_new_context(struct platform_as *as, struct platform_context **ret_context)
{
    *ret_context = calloc(1, sizeof(**ret_context));
    if (!*ret_context)
        return -ENOMEM;
    (*ret_context)->as = as;
    as->contexts++;
    return 0;
}

static void fake_release_context(struct platform_context *context)
{
    context->as->contexts--;
    free(context);
}

static int fake_run(struct platform_context *context, struct user_regs_struct *regs,
                    struct platform_stop *ret_stop)
{
    (void)context;
    (void)regs;
    *ret_stop = (struct platform_stop){.event = PLATFORM_INTERRUPT};
    return 0;
}

static void fake_interrupt(struct platform_context *context)
{
    (void)context;
    fake_interrupts++;
}

static int fake_get_xstate(struct platform_context *context, void *ret_state, size_t size)
{
    (void)context;
    memset(ret_state, 0, size);
    return 0;
}

static int fake_set_xstate(struct platform_context *context, const void *state, size_t size)
{
    (void)context;
    (void)state;
    (void)size;
    return 0;
}

const struct platform platform_fake = {
    .name = "fake",
    .init = fake_init,
    .new_as = fake_new_as,
    .release_as = fake_release_as,
    .change = fake_change,
    .new_context = fake_new_context,
    .release_context = fake_release_context,
    .run = fake_run,
    .interrupt = fake_interrupt,
    .get_xstate = fake_get_xstate,
    .set_xstate = fake_set_xstate,
};

uint64_t fake_cpu(struct platform_as *as)
{
    return as->used;
}

void fake_use(struct mm *mm, uint64_t ns)
{
    mm->host_as->used += ns;
}

void fake_sentry(uint64_t memory)
{
    int fd, error;

    error = arena_init(1ul << 30);
    assert(error == 0);
    kernel_lock();
    error = memfile_init(memory, &fd);
    assert(error == 0);
    error = platform->init(fd);
    assert(error == 0);
    (void)error;
}

void fake_enter(struct mm *mm)
{
    if (current->host_context)
        platform->release_context(current->host_context);
    current->host_context = NULL;
    current->mm = mm;
    if (mm && platform->new_context(mm->host_as, &current->host_context))
        abort();
}

void fake_task_end(void)
{
    struct task *task = current;
    struct mm *mm = task->mm;

    fake_enter(NULL);
    mm_put(mm);
    TAILQ_REMOVE(all_tasks, task, link);
    arena_free(task->process);
    arena_free(task);
    current = NULL;
}

struct task *fake_task(void)
{
    struct task *task = arena_alloc(ARENA_TASK, sizeof(*task));
    struct process *process = arena_alloc(ARENA_PROCESS, sizeof(*process));
    unsigned i;

    assert(task && process);
    for (i = 0; i < RLIM_NLIMITS; i++)
        process->limits[i] = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
    TAILQ_INIT(&process->tasks);
    TAILQ_INIT(&process->children);
    process->pid = 1;
    process->leader = task;
    process->n_tasks = 1;
    TAILQ_INSERT_TAIL(&process->tasks, task, process_link);
    task->process = process;
    task->tid = 1;
    TAILQ_INSERT_TAIL(all_tasks, task, link);
    current = task;
    fake_enter(mm_new());
    current->mm->tasks = 1;
    return task;
}

static const struct shown *find(const struct mm *mm, uint64_t address)
{
    unsigned i;

    for (i = 0; i < mm->host_as->n; i++)
        if (mm->host_as->pages[i].address == (address & PAGE_MASK))
            return &mm->host_as->pages[i];
    return NULL;
}

int fake_shown(const struct mm *mm, uint64_t address)
{
    const struct shown *shown = find(mm, address);

    return shown ? shown->prot : 0;
}

unsigned fake_mappings(const struct mm *mm)
{
    return mm->host_as->n;
}

/* The bytes a stub would see: kept mapped, as the few that a test touches may be. */
static void *bytes_of(const struct shown *shown)
{
    int prot = shown->host_fd == memory_fd ? PROT_READ | PROT_WRITE : PROT_READ;
    void *at = mmap(NULL, PAGE_SIZE, prot, MAP_SHARED, shown->host_fd, (off_t)shown->offset);

    assert(at != MAP_FAILED);
    return at;
}

void *fake_touch(struct mm *mm, uint64_t address, int access, int *ret_signal, int *ret_code)
{
    unsigned times;

    for (times = 0; times < 100; times++) {
        const struct shown *shown = find(mm, address);
        struct user_regs_struct regs = {.rip = access & PROT_EXEC ? address : 0x11000,
                                        .rsp = UINT64_MAX - PAGE_SIZE * 2};
        struct platform_stop stop = {.event = PLATFORM_FAULT};

        mm_boundary(mm);
        shown = find(mm, address);
        if (shown && (shown->prot & access) == access)
            return (char *)bytes_of(shown) + address % PAGE_SIZE;
        stop.info.si_signo = SIGSEGV;
        stop.info.si_code = shown ? SEGV_ACCERR : SEGV_MAPERR;
        stop.info.si_addr = (void *)(uintptr_t)address;
        fake_faults++;
        if (mm_fault(mm, &stop, &regs, ret_signal, ret_code))
            return NULL;
    }
    *ret_signal = *ret_code = 0;
    return NULL;
}
