/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * sigframe - the frame of a signal handler on the guest's stack, and the way back from it: x86-64's rt_sigframe.
 *
 * From high to low: the red zone, the extended state (64-aligned, with its two magic words), the frame, the return address
 * at its start, where the stack pointer then is (8 below a multiple of 16, as after a call).
 * What comes back by rt_sigreturn is the guest's word: flags are masked, segments are ours, extended state is taken only when its
 * header is as was written, and the host judges the rest.
 * Threads: the kernel lock; current.
 */
#include <stdlib.h>
#include <string.h>

#include "room.h"

#define RED_ZONE 128
#define ON_STACK 0x08000000u
#define RESTORER 0x04000000u
#define SIGINFO 0x4u
#define UC_FP_XSTATE 1u
#define UC_SIGCONTEXT_SS 2u
#define UC_STRICT_RESTORE_SS 4u
#define MAGIC1 0x46505853u
#define MAGIC2 0x46505845u
#define SOFTWARE_BYTES 464 /* in the extended state: for software */
#define XSTATE_HEADER 512
#define LEGACY_SIZE 512
#define MXCSR_AT 24
#define MXCSR_MASK 0xffbfu
#define USER_CS 0x33
#define USER_SS 0x2b
#define FLAGS_CHANGEABLE 0x50dd5ul /* AC OF DF TF SF ZF AF PF CF RF */
#define FLAG_TRAP 0x100ul
#define FLAG_DIRECTION 0x400ul
#define FLAG_RESUME 0x10000ul
#define STACK_DISABLE 2u
#define STACK_AUTODISARM 0x80000000u

struct guest_stack {
    uint64_t pointer;
    uint32_t flags, padding;
    uint64_t size;
};

struct guest_context { /* struct sigcontext */
    uint64_t r8, r9, r10, r11, r12, r13, r14, r15, di, si, bp, bx, dx, ax, cx, sp, ip, flags;
    uint16_t cs, gs, fs, ss;
    uint64_t error, trap, old_mask, cr2, fpstate, reserved[8];
};

struct frame {
    uint64_t return_address;
    uint64_t uc_flags, uc_link;
    struct guest_stack stack;
    struct guest_context context;
    uint64_t mask;
    siginfo_t info;
};
static_assert(sizeof(struct guest_context) == 256, "as the kernel has it");
static_assert(sizeof(struct frame) == 440, "as the kernel has it");

struct software { /* the 48 bytes that tell how much state there is */
    uint32_t magic1, extended_size;
    uint64_t features;
    uint32_t xstate_size, padding[7];
};

static bool within_altstack(const struct task *task, uint64_t sp)
{
    return task->altstack_size && sp > task->altstack && sp - task->altstack <= task->altstack_size;
}

static bool on_altstack(const struct task *task, uint64_t sp)
{
    return !(task->altstack_flags & STACK_AUTODISARM) && within_altstack(task, sp);
}

/* Where the frame may begin, downwards; 0: nowhere. */
static uint64_t stack_for(const struct task *task, const struct guest_sigaction *action)
{
    uint64_t sp = task->regs.rsp - RED_ZONE;

    if (on_altstack(task, task->regs.rsp))
        return sp;
    if ((action->flags & ON_STACK) && task->altstack_size)
        return task->altstack + task->altstack_size;
    return sp;
}

static void context_from(struct guest_context *to, const struct task *task)
{
    const struct user_regs_struct *r = &task->regs;

    *to = (struct guest_context){
        .r8 = r->r8,
        .r9 = r->r9,
        .r10 = r->r10,
        .r11 = r->r11,
        .r12 = r->r12,
        .r13 = r->r13,
        .r14 = r->r14,
        .r15 = r->r15,
        .di = r->rdi,
        .si = r->rsi,
        .bp = r->rbp,
        .bx = r->rbx,
        .dx = r->rdx,
        .ax = r->rax,
        .cx = r->rcx,
        .sp = r->rsp,
        .ip = r->rip,
        .flags = r->eflags,
        .cs = USER_CS,
        .ss = USER_SS,
        .error = task->fault_error,
        .trap = task->fault_trap,
        .old_mask = task->blocked,
        .cr2 = task->fault_address,
    };
}

/* The extended state at `at`, below the frame's beginning. */
static int put_xstate(struct task *task, uint64_t at)
{
    size_t size = platform_xstate_size();
    unsigned char *state = calloc(1, size + sizeof(uint32_t));
    struct software *software = (struct software *)(void *)(state + SOFTWARE_BYTES);
    uint64_t features;
    uint32_t magic2 = MAGIC2;
    int result;

    if (!state)
        return -ENOMEM;
    result = platform->get_xstate(task->host_context, state, size);
    if (result >= 0) {
        memcpy(&features, state + SOFTWARE_BYTES, sizeof(features)); /* where ptrace has them */
        *software = (struct software){.magic1 = MAGIC1,
                                      .extended_size = (uint32_t)(size + sizeof(magic2)),
                                      .features = features | 3,
                                      .xstate_size = (uint32_t)size};
        state[XSTATE_HEADER] |= 3; /* x87 and SSE are always there */
        memcpy(state + size, &magic2, sizeof(magic2));
        result = copy_out(task->mm, at, state, size + sizeof(magic2));
    }
    free(state);
    return result;
}

static void enter(struct task *task, const struct guest_sigaction *action, uint64_t at, int signo)
{
    struct user_regs_struct *r = &task->regs;

    r->rdi = (uint64_t)signo;
    r->rsi = at + offsetof(struct frame, info);
    r->rdx = at + offsetof(struct frame, uc_flags);
    r->rax = 0;
    r->rsp = at;
    r->rip = action->handler;
    r->cs = USER_CS;
    r->ss = USER_SS;
    r->eflags &= ~(FLAG_DIRECTION | FLAG_RESUME | FLAG_TRAP);
}

int sigframe_push(struct task *task, const struct guest_sigaction *action, const siginfo_t *info,
                  sigbits mask)
{
    struct frame frame = {.return_address = action->restorer, .mask = mask, .info = *info};
    uint64_t sp = stack_for(task, action), fpstate, at;
    bool alternate =
        on_altstack(task, task->regs.rsp) || ((action->flags & ON_STACK) && task->altstack_size);

    if (!(action->flags & RESTORER))
        return -EFAULT;
    fpstate = (sp - platform_xstate_size() - sizeof(uint32_t)) & ~63ul;
    at = ((fpstate - sizeof(frame)) & ~15ul) - 8;
    if (at > sp || (alternate && !within_altstack(task, at)))
        return -EFAULT; /* it would leave the alternate stack */
    frame.uc_flags = UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS;
    frame.stack =
        (struct guest_stack){.pointer = task->altstack,
                             .flags = task->altstack_size ? task->altstack_flags : STACK_DISABLE,
                             .size = task->altstack_size};
    context_from(&frame.context, task);
    frame.context.fpstate = fpstate;
    if (put_xstate(task, fpstate) < 0 || copy_out(task->mm, at, &frame, sizeof(frame)) < 0)
        return -EFAULT;
    if (task->altstack_flags & STACK_AUTODISARM) {
        task->altstack = task->altstack_size = 0;
        task->altstack_flags = STACK_DISABLE;
    }
    enter(task, action, at, info->si_signo);
    task->fault_trap = task->fault_error = task->fault_address = 0;
    return 0;
}

/* ---- the way back ---- */

static void context_to(struct task *task, const struct guest_context *from)
{
    struct user_regs_struct *r = &task->regs;

    r->r8 = from->r8;
    r->r9 = from->r9;
    r->r10 = from->r10;
    r->r11 = from->r11;
    r->r12 = from->r12;
    r->r13 = from->r13;
    r->r14 = from->r14;
    r->r15 = from->r15;
    r->rdi = from->di;
    r->rsi = from->si;
    r->rbp = from->bp;
    r->rbx = from->bx;
    r->rdx = from->dx;
    r->rax = from->ax;
    r->rcx = from->cx;
    r->rsp = from->sp;
    r->rip = from->ip;
    r->eflags = (r->eflags & ~FLAGS_CHANGEABLE) | (from->flags & FLAGS_CHANGEABLE);
    r->cs = USER_CS;
    r->ss = USER_SS;
    r->orig_rax = (uint64_t)-1;
}

/* Whole state when both magic words say so, else what FXSAVE has. */
static int take_xstate(struct task *task, uint64_t from, unsigned char *state, size_t size)
{
    struct software software;
    uint32_t magic2 = 0, mxcsr;
    uint64_t enabled, header = 3;
    int result = platform->get_xstate(task->host_context, state, size);

    if (result < 0)
        return result;
    memcpy(&enabled, state + SOFTWARE_BYTES, sizeof(enabled));
    memset(state, 0, size);
    if (copy_in(task->mm, state, from, LEGACY_SIZE) < 0)
        return -EFAULT;
    memcpy(&software, state + SOFTWARE_BYTES, sizeof(software));
    if (software.magic1 == MAGIC1 && software.xstate_size == size &&
        software.extended_size == size + sizeof(magic2) &&
        copy_in(task->mm, &magic2, from + size, sizeof(magic2)) == 0 && magic2 == MAGIC2) {
        if (copy_in(task->mm, state + LEGACY_SIZE, from + LEGACY_SIZE, size - LEGACY_SIZE) < 0)
            return -EFAULT;
        memcpy(&header, state + XSTATE_HEADER, sizeof(header));
        header &= enabled;
    }
    memset(state + SOFTWARE_BYTES, 0, sizeof(software));
    memcpy(state + SOFTWARE_BYTES, &enabled, sizeof(enabled));
    memset(state + XSTATE_HEADER + sizeof(header), 0, 64 - sizeof(header));
    memcpy(state + XSTATE_HEADER, &header, sizeof(header));
    memcpy(&mxcsr, state + MXCSR_AT, sizeof(mxcsr));
    if (mxcsr & ~MXCSR_MASK)
        return -EINVAL;
    return platform->set_xstate(task->host_context, state, size);
}

/* As after exec: the guest has thrown its state away. */
static int clear_xstate(struct task *task, unsigned char *state, size_t size)
{
    const uint16_t fcw = 0x37f;
    const uint32_t mxcsr = 0x1f80;
    const uint64_t none = 0;
    int result = platform->get_xstate(task->host_context, state, size);

    if (result < 0)
        return result;
    memset(state, 0, SOFTWARE_BYTES);
    memcpy(state, &fcw, sizeof(fcw));
    memcpy(state + MXCSR_AT, &mxcsr, sizeof(mxcsr));
    memcpy(state + XSTATE_HEADER, &none, sizeof(none));
    return platform->set_xstate(task->host_context, state, size);
}

static int restore_xstate(struct task *task, uint64_t from)
{
    size_t size = platform_xstate_size();
    unsigned char *state = calloc(1, size);
    int result;

    if (!state)
        return -ENOMEM;
    result = from ? take_xstate(task, from, state, size) : clear_xstate(task, state, size);
    free(state);
    return result;
}

SYSCALL(rt_sigreturn)
{
    struct task *task = current;
    uint64_t at = task->regs.rsp - sizeof(uint64_t);
    struct frame frame;

    (void)a;
    task->in_call = false;
    if (copy_in(task->mm, &frame, at, sizeof(frame)) < 0 ||
        restore_xstate(task, frame.context.fpstate) < 0) {
        task->regs.orig_rax = (uint64_t)-1;
        signal_force(task, SIGSEGV, SI_KERNEL, 0);
        return 0;
    }
    context_to(task, &frame.context);
    set_blocked(task, frame.mask);
    if (frame.stack.flags & STACK_AUTODISARM || !on_altstack(task, task->regs.rsp)) {
        task->altstack = frame.stack.flags & STACK_DISABLE ? 0 : frame.stack.pointer;
        task->altstack_size = frame.stack.flags & STACK_DISABLE ? 0 : frame.stack.size;
        task->altstack_flags = frame.stack.flags & (STACK_DISABLE | STACK_AUTODISARM);
    }
    return (int64_t)task->regs.rax;
}
