/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* world - see world.h. Files are numbers without anything behind them. */
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "fs.h"
#include "world.h"
#include "control.h"

static program first_program, handler_program;
static struct platform scripted;
static _Thread_local int fault_wanted;
static _Thread_local bool spins;

#define MAKE_CALL 0x10u

struct fdtable {
    uint32_t refs;
};

/* ---- what task/ asks of fs/ ---- */

struct fdtable *fdtable_new(void)
{
    struct fdtable *table = arena_alloc(ARENA_FDTABLE, sizeof(*table));

    table->refs = 1;
    return table;
}

int fdtable_fork(struct fdtable *from, struct fdtable **ret_table)
{
    (void)from;
    *ret_table = fdtable_new();
    return 0;
}

void fdtable_get(struct fdtable *table)
{
    table->refs++;
}

void fdtable_put(struct fdtable *table)
{
    if (--table->refs == 0)
        arena_free(table);
}

void fdtable_close_on_exec(struct fdtable *table)
{
    (void)table;
}

struct fsctx *fsctx_new(void)
{
    struct fsctx *ctx = arena_alloc(ARENA_FSCTX, sizeof(*ctx));

    ctx->refs = 1;
    return ctx;
}

int fsctx_fork(struct fsctx *from, struct fsctx **ret)
{
    (void)from;
    *ret = fsctx_new();
    return 0;
}

void fsctx_get(struct fsctx *ctx)
{
    ctx->refs++;
}

void fsctx_put(struct fsctx *ctx)
{
    if (--ctx->refs == 0)
        arena_free(ctx);
}

int fd_install(struct file *file, uint32_t flags, int lowest)
{
    (void)file;
    (void)flags;
    return lowest;
}

int fd_close(int fd)
{
    (void)fd;
    return 0;
}

struct file *fd_get(int fd)
{
    (void)fd;
    return NULL;
}

void control_oom_kill(void)
{
}

void timerfd_fire(void *owner)
{
    (void)owner;
}

/* ---- system calls: the rows of task/ alone ---- */

/* As exec.c does, with an empty program: the guest goes on in the same place. */
int64_t sys_execve(const uint64_t a[6]);
int64_t sys_execve(const uint64_t a[6])
{
    struct mm *old = current->mm, *new;
    int result = mm_fork(old, &new);

    (void)a;
    if (result == 0)
        result = task_exec_begin();
    if (result < 0)
        return result;
    current->mm = new;
    task_exec_end(old, "/bin/other");
    return 0;
}

int64_t sys_execveat(const uint64_t a[6]);
int64_t sys_execveat(const uint64_t a[6])
{
    return sys_execve(a);
}

#define CALL(name_, status_, note_) int64_t sys_##name_(const uint64_t a[6]);
#define REFUSE(name_, error_, note_)
#include "task/calls.def"
#undef CALL
#define CALL(name_, status_, note_) [SYS_##name_] = sys_##name_,

static const syscall_function functions[512] = {
#include "task/calls.def"
};

int64_t syscall_dispatch(struct task *task)
{
    const struct user_regs_struct *r = &task->regs;
    const uint64_t a[6] = {r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9};

    assert_true(r->orig_rax < 512);
    assert_non_null(functions[r->orig_rax]);
    return functions[r->orig_rax](a);
}

/* ---- the platform ---- */

static _Thread_local unsigned char registers[XSTATE]; /* of the guest whose thread this is */

size_t platform_xstate_size(void)
{
    return XSTATE;
}

static int get_xstate(struct platform_context *context, void *ret_state, size_t size)
{
    static const uint64_t enabled = 7;

    (void)context;
    assert_int_equal(size, XSTATE);
    memcpy(ret_state, registers, size);
    memcpy((char *)ret_state + 464, &enabled, sizeof(enabled));
    return 0;
}

static int set_xstate(struct platform_context *context, const void *state, size_t size)
{
    (void)context;
    assert_int_equal(size, XSTATE);
    memcpy(registers, state, size);
    return 0;
}

unsigned sleepers(void)
{
    const struct task *task;
    unsigned n = 0;

    kernel_lock();
    TAILQ_FOREACH(task, all_tasks, link)
    n += task->sleeping;
    kernel_unlock();
    return n;
}

unsigned char *xstate(void)
{
    return registers;
}

static int run(struct platform_context *context, struct user_regs_struct *r,
               struct platform_stop *ret_stop)
{
    uint64_t place = r->rip & ~0xfful;

    (void)context;
    *ret_stop = (struct platform_stop){.event = PLATFORM_SYSCALL};
    if (r->rip != place + MAKE_CALL) {
        r->rip = place;
        (place == HANDLER ? handler_program : first_program)(r);
    }
    if (fault_wanted) {
        ret_stop->event = PLATFORM_SIGNAL;
        ret_stop->info.si_signo = fault_wanted;
        fault_wanted = 0;
        return 0;
    }
    if (spins) {
        spins = false;
        ret_stop->event = PLATFORM_INTERRUPT;
        usleep(1000);
        return 0;
    }
    r->orig_rax = r->rax;
    r->rax = (uint64_t)-ENOSYS;
    r->rip = place + MAKE_CALL + 2;
    return 0;
}

void call(struct user_regs_struct *r, long number, uint64_t a0, uint64_t a1, uint64_t a2,
          uint64_t a3, uint64_t a4, uint64_t a5)
{
    r->rax = (uint64_t)number;
    r->rdi = a0;
    r->rsi = a1;
    r->rdx = a2;
    r->r10 = a3;
    r->r8 = a4;
    r->r9 = a5;
}

void call3(struct user_regs_struct *r, long number, uint64_t a0, uint64_t a1, uint64_t a2)
{
    call(r, number, a0, a1, a2, 0, 0, 0);
}

void quit(struct user_regs_struct *r, int status)
{
    call3(r, SYS_exit_group, (uint64_t)status, 0, 0);
}

void fault(struct user_regs_struct *r, int signo)
{
    (void)r;
    fault_wanted = signo;
}

void spin(struct user_regs_struct *r)
{
    (void)r;
    spins = true;
}

void handler_return(struct user_regs_struct *r)
{
    r->rsp += 8; /* the handler's ret */
    call3(r, SYS_rt_sigreturn, 0, 0, 0);
}

/* ---- memory: `current` is the guest's task, which runs in this very thread ---- */

uint64_t peek(uint64_t address)
{
    uint64_t value = 0;

    kernel_lock();
    assert_int_equal(copy_in(current->mm, &value, address, sizeof(value)), 0);
    kernel_unlock();
    return value;
}

uint32_t peek32(uint64_t address)
{
    uint32_t value = 0;

    kernel_lock();
    assert_int_equal(copy_in(current->mm, &value, address, sizeof(value)), 0);
    kernel_unlock();
    return value;
}

uint64_t poke(uint64_t address, uint64_t value)
{
    kernel_lock();
    assert_int_equal(copy_out(current->mm, address, &value, sizeof(value)), 0);
    kernel_unlock();
    return address;
}

uint64_t action(uint64_t handler, uint64_t flags, uint64_t mask)
{
    uint64_t at = MEMORY + 0x800;

    poke(at, handler);
    poke(at + 8, flags | 0x04000000); /* SA_RESTORER */
    poke(at + 16, 0x400);
    poke(at + 24, mask);
    return at;
}

uint64_t timespec(uint64_t at, uint64_t ns)
{
    poke(at, ns / NS_PER_SECOND);
    poke(at + 8, ns % NS_PER_SECOND);
    return at;
}

/* ---- a cell ---- */

int world_begin(void **state)
{
    (void)state;
    scripted = platform_fake;
    scripted.run = run;
    scripted.get_xstate = get_xstate;
    scripted.set_xstate = set_xstate;
    platform = &scripted;
    fake_sentry(64ul << 20);
    kernel_unlock();
    return events_begin();
}

void world_count(bool on)
{
    scripted.cpu = on ? fake_cpu : NULL;
}

static struct task *first_task(void)
{
    struct task *task;

    assert_int_equal(task_first("cell", &task), 0);
    task->mm = mm_new();
    assert_non_null(task->mm);
    task->mm->dumpable = 1;
    assert_int_equal(mm_map(task->mm, MEMORY, 0x10000, PROT_READ | PROT_WRITE,
                            PROT_READ | PROT_WRITE, MM_FIXED, NULL, NULL, 0),
                     MEMORY);
    task->files = fdtable_new();
    task->fs = fsctx_new();
    task->regs.rip = PROGRAM;
    task->regs.rsp = STACK;
    return task;
}

int world_run(program first, program handler)
{
    int status;

    alarm(30); /* a cell that does not end is a failure */
    first_program = first;
    handler_program = handler;
    kernel_lock();
    assert_int_equal(task_start(first_task()), 0);
    kernel_unlock();
    status = tasks_wait_end();
    alarm(0);
    kernel_lock();
    process_reap(init_process());
    assert_int_equal(arena_count(ARENA_PROCESS), 0);
    assert_int_equal(arena_count(ARENA_SIGNAL), 0);
    assert_int_equal(arena_count(ARENA_CRED), 0);
    assert_int_equal(arena_count(ARENA_MM), 0);
    assert_int_equal(arena_count(ARENA_FDTABLE), 0);
    assert_int_equal(arena_count(ARENA_FSCTX), 0);
    assert_int_equal(task_count(), 0);
    kernel_unlock();
    return status;
}
