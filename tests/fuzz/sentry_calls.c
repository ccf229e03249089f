/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * System calls with any arguments: the bytes are calls of one process over an empty tree of files, one after another, each with
 * arguments that are small numbers, descriptors, good and bad addresses, or anything. Whatever is asked, the kernel answers, and
 * when the process has ended nothing of it is left.
 *
 * The process is marked as killed, so that no call waits: each gives up where it would. Pending signals are delivered between
 * calls, as at the boundary.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "../unit/sentry/fake_platform.h"
#include "fs.h"
#include "syscall.h"
#include "task/room.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BASE 0x20000000ul
#define BYTES 0x8000ul /* two areas with a hole between them */
#define CALLS_MOST 64u

static struct {
    const uint8_t *data;
    size_t size;
} in;

static uint8_t next(void)
{
    if (!in.size)
        return 0;
    in.size--;
    return *in.data++;
}

static uint64_t number(unsigned bytes)
{
    uint64_t value = 0;

    while (bytes--)
        value = value << 8 | next();
    return value;
}

static uint64_t argument(void)
{
    static const uint64_t odd[] = {~0ull,
                                   1ull << 63,
                                   INT32_MAX,
                                   (uint32_t)INT32_MIN,
                                   (uint64_t)INT32_MIN,
                                   0x7effffffffffull,
                                   UINT32_MAX,
                                   8,
                                   0xffff8000,
                                   BASE + BYTES - 3,
                                   (uint64_t)-100,
                                   1ull << 40,
                                   PAGE_SIZE * 3,
                                   0x7fffffff0,
                                   0x100000000,
                                   BASE + 3 * BYTES - 1};
    uint8_t kind = next();

    switch (kind >> 5) {
    case 0:
    case 1:
        return kind & 63;
    case 2:
        return odd[kind & 15];
    case 3:
    case 4:
        return BASE + (uint64_t)next() * 8;
    case 5:
        return BASE + 2 * BYTES + (uint64_t)next() * 8 + (kind & 7);
    case 6:
        return number(2);
    default:
        return number(8);
    }
}

static void check(bool right)
{
    if (!right)
        abort();
}

static void begin_once(void)
{
    static bool begun;

    if (begun) {
        kernel_lock();
        return;
    }
    begun = true;
    platform = &platform_fake;
    fake_sentry(64ul << 20);
    check(syscall_init() == 0);
    check(fs_setup(0, NULL, false, 16ul << 20, NULL, 0) == 0);
}

static struct task *process_begin(void)
{
    static const char names[] = "/dev/null\0/tmp/a\0/tmp/b\0.\0user.x";
    struct task *task;

    check(task_first("fuzz", &task) == 0);
    current = task;
    task->mm = mm_new();
    task->files = fdtable_new();
    task->fs = fsctx_new();
    check(task->mm && task->files && task->fs);
    task->mm->tasks++;
    task->mm->dumpable = 1;
    check(platform->new_context(task->mm->host_as, &task->host_context) == 0);
    check(mm_map(task->mm, BASE, BYTES, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, MM_FIXED,
                 NULL, NULL, 0) == (int64_t)BASE);
    check(mm_map(task->mm, BASE + 2 * BYTES, BYTES, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE,
                 MM_FIXED, NULL, NULL, 0) == (int64_t)(BASE + 2 * BYTES));
    check(copy_out(task->mm, BASE, names, sizeof(names)) == 0);
    task->regs.rsp = BASE + BYTES;
    task->killed = true;
    return task;
}

/* What a task would do at the boundary, but for waiting there. */
static bool boundary(struct task *task)
{
    struct process *process = task->process;

    if (process->group_exit || task->dying)
        return false;
    mm_boundary(task->mm);
    if (process->group_stop)
        return false;
    task->killed = false;
    signals_deliver();
    task->vfork_waiting = false;
    if (task->restore_blocked) {
        task->restore_blocked = false;
        set_blocked(task, task->saved_blocked);
    }
    if (process->group_exit)
        return false;
    task->killed = true;
    return true;
}

static void fill(struct task *task)
{
    uint8_t length = next(), bytes[64];
    uint64_t to = BASE + (uint64_t)next() * 8;
    unsigned i;

    for (i = 0; i < sizeof(bytes); i++)
        bytes[i] = i < length % sizeof(bytes) ? next() : 0;
    copy_out(task->mm, to, bytes, length % sizeof(bytes));
}

static bool one_call(struct task *task)
{
    unsigned n = (unsigned)number(2) % 512;

    if (n >= 480) {
        fill(task);
        return true;
    }
    task->regs.orig_rax = task->regs.rax = n;
    task->regs.rdi = argument();
    task->regs.rsi = argument();
    task->regs.rdx = argument();
    task->regs.r10 = argument();
    task->regs.r8 = argument();
    task->regs.r9 = argument();
    task->in_call = true;
    task->regs.rax = (uint64_t)syscall_dispatch(task);
    return boundary(task);
}

static void process_end(struct task *task)
{
    struct process *process = task->process;

    process->group_stop = 0;
    process_kill(process, SIGKILL);
    task_finish();
    current = NULL;
    process_reap(process);
    check(task_count() == 0);
    check(arena_count(ARENA_PROCESS) == 0 && arena_count(ARENA_MM) == 0);
    check(arena_count(ARENA_SIGNAL) == 0 && arena_count(ARENA_FDTABLE) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct task *task;
    unsigned calls = 0;

    in.data = data;
    in.size = size;
    begin_once();
    task = process_begin();
    while (in.size && calls++ < CALLS_MOST && one_call(task))
        ;
    process_end(task);
    kernel_unlock();
    return 0;
}
