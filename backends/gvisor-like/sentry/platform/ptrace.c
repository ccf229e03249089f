/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * ptrace - the platform that runs guest code in stubs traced by PTRACE_SYSEMU: system calls stop before the host sees them.
 * Why first: complete as a boundary, and works on every host that has ptrace.
 * One thread of a stub for each context, traced by the thread of the sentry that runs it. Threads that rest are not traced:
 * a context takes one that rests, and leaves it resting. A new thread is cloned by a context of the same stub when its guest
 * asks for one, as only the tracer of a stopped thread can.
 * Invariants: registers are judged before the host gets them, and orig_rax is -1, so that the host restarts nothing. A resting
 * thread is in the code page; what the guest left in it is overwritten by the next context. Requests are written under the
 * kernel lock. No interruption is lost: it is a signal that waits in the stub, or a flag that run() looks at.
 * Threads: run() and xstate by the context's own; the rest with the kernel lock. The list of resting threads has its own.
 */
#include <elf.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptrace.h"

static struct platform_as *source; /* where new stubs are copied from */
static struct platform_as *pool;   /* stubs without mappings */
static unsigned n_pool;
static unsigned char first_xstate[XSTATE_MAX];
static size_t xstate_size;

/* What the sentry's own filter lets through for this, after stub_make():
   @seccomp sentry: ptrace(0=PTRACE_SEIZE) ptrace(0=PTRACE_INTERRUPT) ptrace(0=PTRACE_DETACH) ptrace(0=PTRACE_CONT)
   @seccomp sentry: ptrace(0=PTRACE_SYSEMU) ptrace(0=PTRACE_GETREGS) ptrace(0=PTRACE_SETREGS) ptrace(0=PTRACE_GETREGSET)
   @seccomp sentry: ptrace(0=PTRACE_SETREGSET) ptrace(0=PTRACE_GETSIGINFO) ptrace(0=PTRACE_GET_SYSCALL_INFO)
   @seccomp sentry: wait4(2=__WALL) wait4(2=WNOHANG|__WALL) kill(1=SIGKILL) tgkill(2=SIGURG) brk mmap munmap futex */

/* ---- threads of a stub ---- */

/* Waits for a stop; -ESRCH: the thread is gone. */
static int wait_stop(struct platform_context *context, int *ret_status)
{
    for (;;) {
        pid_t pid = waitpid(context->tid, ret_status, __WALL);

        if (pid < 0 && errno == EINTR)
            continue;
        if (pid == context->tid && WIFSTOPPED(*ret_status))
            return 0;
        context->as->dead = context->dead = context->reaped = true;
        context->as->reaped |= context->tid == context->as->pid;
        return -ESRCH;
    }
}

/* The whole stub ends; waits for one thread of it that was traced. The first one's end comes after the others'. */
static void end_stub(struct platform_as *as, pid_t tid)
{
    int status;
    pid_t pid;

    if (!as->reaped)
        kill(as->pid, SIGKILL);
    do
        pid = waitpid(tid, &status, __WALL);
    while (pid < 0 ? errno == EINTR : WIFSTOPPED(status));
}

/* A thread that is traced when it dies stays until its tracer has seen that, and with it the first of its stub. */
static void bury(struct platform_context *context)
{
    context->as->dead = true;
    if (!context->reaped && context->tid != context->as->pid)
        end_stub(context->as, context->tid);
}

/* A resting thread becomes this thread's. */
static int attach(struct platform_context *context)
{
    int status;

    if (ptrace(PTRACE_SEIZE, context->tid, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD))
        return -errno;
    if (ptrace(PTRACE_INTERRUPT, context->tid, 0, 0))
        return -errno;
    return wait_stop(context, &status);
}

static void detach(struct platform_context *context, uint64_t to)
{
    struct user_regs_struct regs = ptrace_own_regs(to);

    if (context->dead)
        return;
    if (ptrace(PTRACE_SETREGS, context->tid, 0, &regs) || ptrace(PTRACE_DETACH, context->tid, 0, 0))
        context->as->dead = context->dead = true;
}

struct user_regs_struct ptrace_own_regs(uint64_t rip)
{
    return (struct user_regs_struct){
        .rip = rip, .cs = USER_CS, .ss = USER_SS, .eflags = 0x202, .orig_rax = UINT64_MAX};
}

/* Runs code of ours from regs->rip to the trap before `end`; the registers there. */
static int run_own(struct platform_context *context, struct user_regs_struct *regs, uint64_t end)
{
    int status;

    if (ptrace(PTRACE_SETREGS, context->tid, 0, regs))
        goto gone;
    for (;;) {
        if (ptrace(PTRACE_CONT, context->tid, 0, 0))
            goto gone;
        if (wait_stop(context, &status))
            return -ESRCH;
        if (WSTOPSIG(status) == SIGTRAP && status >> 16 == 0)
            break;
        if (WSTOPSIG(status) == INTERRUPT_SIGNAL) /* meant for the guest: run() says it */
            __atomic_store_n(&context->interrupted, true, __ATOMIC_SEQ_CST);
    }
    if (ptrace(PTRACE_GETREGS, context->tid, 0, regs) || regs->rip != end)
        goto gone;
    return 0;
gone:
    context->as->dead = context->dead = true;
    return -ESRCH;
}

static int64_t clone_in(struct platform_context *context, uint64_t flags)
{
    struct user_regs_struct regs = ptrace_own_regs(stub.clone);
    int error;

    regs.rax = SYS_clone;
    regs.rdi = flags;
    error = run_own(context, &regs, stub.clone_end);
    return error ? error : (int64_t)regs.rax;
}

static int do_requests(struct platform_context *context, unsigned n)
{
    struct user_regs_struct regs = ptrace_own_regs(stub.batch);
    int error;

    kernel_assert_locked();
    regs.rbx = stub.guest_requests;
    regs.rbp = n;
    error = run_own(context, &regs, stub.batch_end);
    memset(stub.requests, 0,
           n * sizeof(stub.requests[0])); /* the next guest that looks is another */
    if (error)
        return error;
    return regs.rax > -4096ul ? (int)regs.rax : 0;
}

static void rest(struct platform_as *as, pid_t tid)
{
    pthread_mutex_lock(&as->lock);
    as->resting[as->n_resting++] = tid;
    pthread_mutex_unlock(&as->lock);
}

/* The guest of this context is about to ask for one that rests. Others may be, too, and come first: there is one for each. */
static void spare_thread(struct platform_context *context)
{
    struct platform_as *as = context->as;
    int64_t tid;

    pthread_mutex_lock(&as->lock);
    context->asks = true;
    as->n_asking++;
    /* The last place is the first thread's. */
    if (as->n_resting < as->n_asking && as->n_resting < RESTING_MAX - 1) {
        tid = clone_in(context, STUB_CLONE_THREAD);
        if (tid > 0) {
            as->resting[as->n_resting++] = (pid_t)tid;
            as->threads++;
        }
    }
    pthread_mutex_unlock(&as->lock);
}

static void has_asked(struct platform_context *context)
{
    if (!context->asks)
        return;
    pthread_mutex_lock(&context->as->lock);
    context->asks = false;
    context->as->n_asking--;
    pthread_mutex_unlock(&context->as->lock);
}

/* ---- address spaces ---- */

static struct platform_as *as_new(void)
{
    struct platform_as *as = calloc(1, sizeof(*as));

    if (as)
        pthread_mutex_init(&as->lock, NULL);
    return as;
}

static void as_free(struct platform_as *as)
{
    pthread_mutex_destroy(&as->lock);
    free(as);
}

static int copy_source(struct platform_as *as)
{
    struct platform_context context = {.as = source, .tid = source->pid};
    int error = attach(&context);
    int64_t pid;

    if (error)
        return error;
    pid = clone_in(&context, STUB_CLONE_PROCESS);
    detach(&context, stub.pause);
    if (pid < 0)
        return (int)pid;
    as->pid = (pid_t)pid;
    as->threads = 1;
    as->fresh = true;
    rest(as, as->pid);
    return 0;
}

/* One without mappings, if there is one that lives: the host may have killed it while it rested. */
static struct platform_as *from_pool(void)
{
    struct platform_as *as;

    while ((as = pool)) {
        pool = as->next;
        n_pool--;
        if (waitpid(as->pid, NULL, WNOHANG | __WALL) == 0)
            return as;
        as_free(as);
    }
    return NULL;
}

static int new_as(struct platform_as **ret_as)
{
    struct platform_as *as;
    int error;

    kernel_assert_locked();
    as = from_pool();
    if (as) {
        *ret_as = as;
        return 0;
    }
    as = as_new();
    if (!as)
        return -ENOMEM;
    error = source->dead ? -ESRCH : copy_source(as);
    if (error) {
        as_free(as);
        return error;
    }
    *ret_as = as;
    return 0;
}

/* Whether all that its guest had mapped is gone, so that it can be another's. */
static bool clean(struct platform_as *as)
{
    struct platform_context context = {.as = as, .tid = as->pid};
    const struct platform_change all = {.kind = PLATFORM_UNMAP,
                                        .address = PLATFORM_GUEST_MIN,
                                        .size = PLATFORM_GUEST_MAX - PLATFORM_GUEST_MIN};

    if (as->dead || as->threads != 1 || as->fresh || n_pool == POOL_MAX || attach(&context))
        return false;
    if (ptrace_change(&context, &all, 1)) {
        as->dead = true;
        return false;
    }
    detach(&context, stub.pause);
    return !as->dead;
}

static void release_as(struct platform_as *as)
{
    kernel_assert_locked();
    if (clean(as)) {
        as->next = pool;
        pool = as;
        n_pool++;
        return;
    }
    if (!as->reaped)
        end_stub(as, as->pid);
    as_free(as);
}

int ptrace_change(struct platform_context *context, const struct platform_change *changes,
                  unsigned n_changes)
{
    unsigned i, n;
    int error = context->dead ? -ESRCH : 0;

    for (; n_changes && !error; n_changes -= n, changes += n) {
        for (n = 0; n < n_changes && n < STUB_REQUESTS; n++) {
            const struct platform_change *change = &changes[n];
            const uint64_t args[6] = {change->address,           change->size,
                                      (uint64_t)change->prot,    MAP_SHARED | MAP_FIXED,
                                      (uint64_t)change->host_fd, change->offset};

            stub.requests[n].number = change->kind == PLATFORM_MAP ? SYS_mmap : SYS_munmap;
            for (i = 0; i < (change->kind == PLATFORM_MAP ? 6 : 2); i++)
                stub.requests[n].args[i] = args[i];
            if (change->address < PLATFORM_GUEST_MIN || change->size > PLATFORM_GUEST_MAX ||
                change->address > PLATFORM_GUEST_MAX - change->size)
                kpanic("platform: %#lx bytes at %#lx are not the guest's", change->size,
                       change->address);
        }
        error = do_requests(context, n);
    }
    return error;
}

/* ---- contexts ---- */

static int set_regset(struct platform_context *context, const void *state, size_t size)
{
    struct iovec part = {(void *)(uintptr_t)state, size};

    return ptrace(PTRACE_SETREGSET, context->tid, NT_X86_XSTATE, &part) ? -errno : 0;
}

/* What the new stub lacks: a death that follows the sentry's. */
static int bind_to_parent(struct platform_context *context)
{
    stub.requests[0] = (struct stub_request){SYS_prctl, {PR_SET_PDEATHSIG, SIGKILL}};
    context->as->fresh = false;
    return do_requests(context, 1);
}

static int new_context(struct platform_as *as, struct platform_context **ret_context)
{
    struct platform_context *context = calloc(1, sizeof(*context));
    int error = 0;

    kernel_assert_locked();
    if (!context)
        return -ENOMEM;
    context->as = as;
    pthread_mutex_lock(&as->lock);
    if (as->n_resting)
        context->tid = as->resting[--as->n_resting];
    else
        error = -EAGAIN;
    pthread_mutex_unlock(&as->lock);
    if (!error)
        error = attach(context);
    if (!error && as->fresh)
        error = bind_to_parent(context);
    if (!error)
        error = set_regset(context, first_xstate, xstate_size);
    if (error) {
        if (context->tid)
            bury(context);
        free(context);
        return error;
    }
    near_join(context);
    *ret_context = context;
    return 0;
}

static void release_context(struct platform_context *context)
{
    struct platform_as *as = context->as;
    bool stays;

    kernel_assert_locked();
    has_asked(context);
    pthread_mutex_lock(&as->lock);
    stays = context->tid == as->pid || as->n_resting < RESTING_KEPT - 1;
    pthread_mutex_unlock(&as->lock);
    near_leave(context);
    detach(context, stays ? stub.pause : stub.exit);
    if (!context->dead && stays)
        rest(as, context->tid);
    else
        as->threads--;
    if (context->dead)
        bury(context);
    free(context);
}

static void interrupt(struct platform_context *context)
{
    __atomic_store_n(&context->interrupted, true, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&context->running, __ATOMIC_SEQ_CST))
        syscall(SYS_tgkill, context->as->pid, context->tid, INTERRUPT_SIGNAL);
}

/* Whether the guest is about to ask for a thread of the same address space. */
static bool wants_thread(const struct user_regs_struct *regs)
{
    return regs->orig_rax == SYS_clone3 || regs->orig_rax == SYS_vfork ||
           (regs->orig_rax == SYS_clone && regs->rdi & CLONE_VM);
}

static int run(struct platform_context *context, struct user_regs_struct *regs,
               struct platform_stop *ret_stop)
{
    int status;
    bool again = false;

    memset(ret_stop, 0, sizeof(*ret_stop));
    has_asked(context);
    if (ptrace_judge(regs, ret_stop))
        return 0;
    __atomic_store_n(&context->running, true, __ATOMIC_SEQ_CST);
    if (__atomic_exchange_n(&context->interrupted, false, __ATOMIC_SEQ_CST)) {
        __atomic_store_n(&context->running, false, __ATOMIC_SEQ_CST);
        ret_stop->event = PLATFORM_INTERRUPT;
        return 0;
    }
    ret_stop->event = PLATFORM_DEAD;
    if (context->dead || ptrace(PTRACE_SETREGS, context->tid, 0, regs))
        goto gone;
    near_enter(context);
    do {
        if (ptrace(PTRACE_SYSEMU, context->tid, 0, 0) || wait_stop(context, &status) ||
            ptrace(PTRACE_GETREGS, context->tid, 0, regs))
            goto gone;
        again = ptrace_read_stop(context, status, regs, ret_stop);
    } while (again);
    near_stopped(context);
    __atomic_store_n(&context->running, false, __ATOMIC_SEQ_CST);
    if (ret_stop->event == PLATFORM_SYSCALL && wants_thread(regs))
        spare_thread(context);
    return 0;
gone:
    context->as->dead = context->dead = true;
    ret_stop->event = PLATFORM_DEAD;
    return 0;
}

static int get_xstate(struct platform_context *context, void *ret_state, size_t size)
{
    struct iovec part = {ret_state, size};

    return ptrace(PTRACE_GETREGSET, context->tid, NT_X86_XSTATE, &part) ? -errno : 0;
}

static int set_xstate(struct platform_context *context, const void *state, size_t size)
{
    return set_regset(context, state, size);
}

size_t platform_xstate_size(void)
{
    return xstate_size;
}

/* ---- the beginning ---- */

/* As a new program finds it: everything in its initial state. */
static int learn_xstate(struct platform_context *context)
{
    struct iovec part = {first_xstate, sizeof(first_xstate)};

    if (ptrace(PTRACE_GETREGSET, context->tid, NT_X86_XSTATE, &part))
        return -errno;
    xstate_size = part.iov_len;
    memset(first_xstate, 0, 464); /* all but what the host says of its layout */
    memset(first_xstate + 512, 0, xstate_size - 512);
    first_xstate[0] = 0x7f; /* FCW 0x37f, MXCSR 0x1f80 */
    first_xstate[1] = 0x03;
    first_xstate[24] = 0x80;
    first_xstate[25] = 0x1f;
    first_xstate[512] = 3; /* of x87 and SSE what stands above; the rest is initial */
    return set_regset(context, first_xstate, xstate_size);
}

static int init(int memory_fd)
{
    struct platform_context context = {0};
    int error;

    (void)memory_fd; /* the table of descriptors is shared */
    source = as_new();
    if (!source)
        return -ENOMEM;
    error = stub_make(&source->pid);
    if (error)
        return error;
    context = (struct platform_context){.as = source, .tid = source->pid};
    error = learn_xstate(&context);
    detach(&context, stub.pause);
    if (!error)
        error = source->dead ? -ESRCH : near_begin();
    return error;
}

/* The clock of a process is the kernel's number for it: CPUCLOCK_SCHED of all threads of this pid. A stub serves one address
   space after another, so its time begins anywhere. */
static uint64_t cpu(struct platform_as *as)
{
    clockid_t id = (clockid_t)(~(unsigned)as->pid << 3 | 2);
    struct timespec used;

    if (clock_gettime(id, &used) < 0)
        return 0;
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

const struct platform platform_ptrace = {
    .name = "ptrace",
    .init = init,
    .new_as = new_as,
    .release_as = release_as,
    .change = ptrace_change,
    .new_context = new_context,
    .release_context = release_context,
    .run = run,
    .cpu = cpu,
    .interrupt = interrupt,
    .get_xstate = get_xstate,
    .set_xstate = set_xstate,
};
