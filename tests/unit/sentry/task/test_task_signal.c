/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Signals: frames and the way back, restarts, masks, queues, stops, who may send what. */
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

#define STATUS (MEMORY + 0x200)
#define INFO (MEMORY + 0x300)
#define TIME (MEMORY + 0x500)
#define MASK (MEMORY + 0x600)
#define CHILD 100u
#define SA_RESTART_ 0x10000000ul
#define SA_NODEFER_ 0x40000000ul
#define SA_ONSTACK_ 0x08000000ul
#define SA_RESETHAND_ 0x80000000ul

static int64_t seen[32];
static struct user_regs_struct before, inside, after;

static void clear(void)
{
    memset(seen, 0, sizeof(seen));
}

static void handle(struct user_regs_struct *r, int signo, uint64_t flags)
{
    call(r, SYS_rt_sigaction, (uint64_t)signo, action(HANDLER, flags, SIGBIT(SIGUSR2)), 0, 8, 0, 0);
}

static void raise_it(struct user_regs_struct *r, int signo)
{
    call3(r, SYS_kill, 1, (uint64_t)signo, 0);
}

/* What a handler is given, noted; then it returns. */
static void notes(struct user_regs_struct *r)
{
    uint64_t fpstate;

    inside = *r;
    seen[10]++;
    seen[11] = (int64_t)current->blocked;
    seen[12] = peek32(r->rsi);     /* si_signo */
    seen[13] = peek32(r->rsi + 8); /* si_code */
    fpstate = peek(r->rdx + 40 + 184);
    seen[14] = (int64_t)(fpstate % 64);
    seen[15] = peek32(fpstate + 464);
    seen[16] = peek32(fpstate + XSTATE);
    seen[17] = (int64_t)peek(r->rdx + 40 + 256); /* uc_sigmask */
    seen[18] = (int64_t)peek(r->rdx);            /* uc_flags */
    seen[19] = (int64_t)peek(r->rdx + 40 + 16 * 8);
    memset(xstate(), 0xee, XSTATE);
    handler_return(r);
}

static void is_interrupted(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        handle(r, SIGUSR1, 0);
        return;
    case 1:
        r->rbx = 0x1111;
        r->r12 = 0x2222;
        r->eflags |= 0x400;               /* the direction flag is no handler's */
        memset(xstate() + 32, 0x11, 384); /* x87 and SSE registers */
        before = *r;
        raise_it(r, SIGUSR1);
        return;
    default:
        after = *r;
        seen[0] = xstate()[100];
        seen[1] = (int64_t)current->blocked;
        quit(r, (int)r->rax);
    }
}

static void a_handler_leaves_no_trace(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(is_interrupted, notes), 0);
    assert_int_equal(seen[10], 1);
    assert_int_equal(inside.rdi, SIGUSR1);
    assert_int_equal(inside.rip, HANDLER);
    assert_int_equal(inside.rsp % 16, 8);
    assert_int_equal(inside.eflags & 0x400, 0);
    assert_true(before.rsp - inside.rsp > 128 + XSTATE);
    assert_int_equal(seen[11], SIGBIT(SIGUSR1) | SIGBIT(SIGUSR2));
    assert_int_equal(seen[12], SIGUSR1);
    assert_int_equal(seen[13], SI_USER);
    assert_int_equal(seen[14], 0);
    assert_int_equal(seen[15], 0x46505853);
    assert_int_equal(seen[16], 0x46505845);
    assert_int_equal(seen[17], 0);
    assert_int_equal(seen[18], 7);
    assert_int_equal(after.rbx, 0x1111);
    assert_int_equal(after.r12, 0x2222);
    assert_int_equal(after.rsp, before.rsp);
    assert_int_equal(after.eflags & 0x400, 0x400);
    assert_int_equal(seen[0], 0x11);
    assert_int_equal(seen[1], 0);
}

/* On the alternate stack, once; and one that is too small kills. */
static void uses_another_stack(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        poke(TIME, MEMORY + 0x4000);
        poke(TIME + 8, 0);
        poke(TIME + 16, 0x4000);
        call3(r, SYS_sigaltstack, TIME, 0, 0);
        return;
    case 1:
        handle(r, SIGUSR1, SA_ONSTACK_ | SA_RESETHAND_);
        return;
    case 2:
        raise_it(r, SIGUSR1);
        return;
    case 3:
        seen[0] = (int64_t)current->process->sighand->actions[SIGUSR1 - 1].handler;
        poke(TIME + 16, 2048);
        call3(r, SYS_sigaltstack, TIME, 0, 0);
        return;
    case 4:
        handle(r, SIGUSR1, SA_ONSTACK_);
        return;
    case 5:
        current->altstack_size = 600; /* a frame does not go there */
        raise_it(r, SIGUSR1);
        return;
    default:
        fail();
    }
}

static void the_alternate_stack_is_used(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(uses_another_stack, notes), SIGSEGV);
    assert_int_equal(seen[10], 1);
    assert_true(inside.rsp > MEMORY + 0x4000 && inside.rsp < MEMORY + 0x8000);
    assert_int_equal(seen[0], 0);
}

/* ---- restarts ---- */

static int restart_flags;

/* A millisecond, and on in `place`. */
static void waits_on(struct user_regs_struct *r, uint64_t place)
{
    r->r15 = place;
    call3(r, SYS_nanosleep, timespec(TIME, 1000000), 0, 0);
}

/* A child interrupts its parent's call; the handler runs; what the call gave is seen. */
static void interrupts(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        handle(r, SIGUSR1, (uint64_t)(unsigned)restart_flags);
        return;
    case 1:
        call3(r, SYS_fork, 0, 0, 0);
        return;
    case 2:
        if (r->rax == 0) {
            waits_on(r, CHILD);
            return;
        }
        call(r, SYS_wait4, (uint64_t)-1, STATUS, 0, 0, 0, 0);
        return;
    case 3:
        seen[0] = (int64_t)r->rax;
        timespec(TIME, 30000000);
        poke(TIME + 16, 99);
        call3(r, SYS_nanosleep, TIME, TIME + 16, 0);
        return;
    case 4:
        seen[1] = (int64_t)r->rax;
        seen[2] = (int64_t)peek(TIME + 16);
        quit(r, 0);
        return;
    case CHILD:
        if (sleepers() == 1) /* the other */
            raise_it(r, SIGUSR1);
        else
            waits_on(r, CHILD);
        return;
    case CHILD + 1:
        if (seen[10]) /* the call has been interrupted, and not by this end */
            quit(r, 0);
        else
            waits_on(r, CHILD + 1);
        return;
    default:
        fail();
    }
}

static void a_call_is_restarted_or_not(void **state)
{
    (void)state;
    clear();
    restart_flags = 0;
    assert_int_equal(world_run(interrupts, notes), 0);
    assert_int_equal(seen[10], 1);
    assert_int_equal(seen[0], -EINTR);
    assert_int_equal(seen[1], 0);
    clear();
    restart_flags = SA_RESTART_;
    assert_int_equal(world_run(interrupts, notes), 0);
    assert_int_equal(seen[10], 1);
    assert_true(seen[0] > 0);
}

/* nanosleep is never begun again after a handler: what is left is told. A stop and SIGCONT leave it asleep. */
static void sleeps(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        handle(r, SIGUSR1, SA_RESTART_);
        return;
    case 1:
        call3(r, SYS_fork, 0, 0, 0);
        return;
    case 2:
        if (r->rax == 0) {
            waits_on(r, CHILD);
            return;
        }
        timespec(TIME, 3600 * NS_PER_SECOND);
        call3(r, SYS_nanosleep, TIME, TIME + 16, 0);
        return;
    case 3:
        seen[0] = (int64_t)r->rax;
        seen[1] = (int64_t)peek(TIME + 16);
        quit(r, 0);
        return;
    case CHILD:
        if (sleepers() == 1) /* the other */
            raise_it(r, SIGWINCH);
        else
            waits_on(r, CHILD);
        return;
    case CHILD + 1:
        raise_it(r, SIGUSR1);
        return;
    default:
        call3(r, SYS_pause, 0, 0, 0);
    }
}

static void a_sleep_tells_what_is_left(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(sleeps, notes), 0);
    assert_int_equal(seen[0], -EINTR);
    assert_in_range(seen[1], 3590, 3600);
}

/* ---- masks and queues ---- */

static void queues(struct user_regs_struct *r)
{
    unsigned step = (unsigned)r->r15++;

    switch (step) {
    case 0:
        poke(MASK, SIGBIT(34) | SIGBIT(35) | SIGBIT(SIGUSR1) | SIGBIT(SIGCHLD));
        call(r, SYS_rt_sigprocmask, SIG_BLOCK, MASK, 0, 8, 0, 0);
        return;
    case 1: /* two of each: of the standard one, one */
    case 2:
    case 3:
    case 4:
    case 5:
    case 6:
        poke(INFO, 0);
        poke(INFO + 8, (uint32_t)SI_QUEUE);
        poke(INFO + 24, step);
        call3(r, SYS_rt_sigqueueinfo, 1, step < 3 ? 35 : step < 5 ? 34 : SIGUSR1, INFO);
        return;
    case 7:
        call3(r, SYS_rt_sigpending, MASK + 8, 8, 0);
        return;
    case 8:
        seen[0] = (int64_t)peek(MASK + 8);
        timespec(TIME, 0);
        call(r, SYS_rt_sigtimedwait, MASK, INFO, TIME, 8, 0, 0);
        return;
    default:
        seen[step - 8] = (int64_t)r->rax * 100 + peek32(INFO + 24);
        if (step == 14)
            quit(r, 0);
        else
            call(r, SYS_rt_sigtimedwait, MASK, INFO, TIME, 8, 0, 0);
    }
}

static void signals_queue(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(queues, NULL), 0);
    assert_int_equal(seen[0], SIGBIT(34) | SIGBIT(35) | SIGBIT(SIGUSR1));
    assert_int_equal(seen[1], SIGUSR1 * 100 + 5);
    assert_int_equal(seen[2], 34 * 100 + 3);
    assert_int_equal(seen[3], 34 * 100 + 4);
    assert_int_equal(seen[4], 35 * 100 + 1);
    assert_int_equal(seen[5], 35 * 100 + 2);
    assert_int_equal(seen[6], -EAGAIN * 100 + 2);
}

/* The mask of sigsuspend is back when its handler has run, and the handler's frame has the old one. */
static void suspends(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        handle(r, SIGUSR1, 0);
        return;
    case 1:
        poke(MASK, SIGBIT(SIGUSR1) | SIGBIT(SIGHUP));
        call(r, SYS_rt_sigprocmask, SIG_SETMASK, MASK, 0, 8, 0, 0);
        return;
    case 2:
        raise_it(r, SIGUSR1);
        return;
    case 3:
        seen[0] = seen[10]; /* none yet */
        poke(MASK, 0);
        call3(r, SYS_rt_sigsuspend, MASK, 8, 0);
        return;
    default:
        seen[1] = (int64_t)r->rax;
        seen[2] = (int64_t)current->blocked;
        quit(r, 0);
    }
}

static void sigsuspend_changes_the_mask_for_a_while(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(suspends, notes), 0);
    assert_int_equal(seen[0], 0);
    assert_int_equal(seen[10], 1);
    assert_int_equal(seen[17], SIGBIT(SIGUSR1) | SIGBIT(SIGHUP));
    assert_int_equal(seen[1], -EINTR);
    assert_int_equal(seen[2], SIGBIT(SIGUSR1) | SIGBIT(SIGHUP));
}

/* ---- rt_sigreturn is given anything ---- */

static void returns_from_nowhere(struct user_regs_struct *r)
{
    if (r->r15++ == 0)
        call3(r, SYS_fork, 0, 0, 0);
    else if (r->rax == 0) {
        r->rsp = 0x10;
        call3(r, SYS_rt_sigreturn, 0, 0, 0);
    } else if (r->r15 == 2)
        call(r, SYS_wait4, (uint64_t)-1, STATUS, 0, 0, 0, 0);
    else
        quit(r, (int)peek32(STATUS));
}

static void a_frame_that_is_none_kills(void **state)
{
    (void)state;
    assert_int_equal(world_run(returns_from_nowhere, NULL), SIGSEGV << 8);
}

/* The frame is the guest's: what it makes of flags, segments and the mask is bounded. */
static void forges(struct user_regs_struct *r)
{
    uint64_t context = r->rdx + 40;

    seen[10]++;
    poke(context + 17 * 8, ~0ull);      /* flags */
    poke(context + 18 * 8, ~0ull);      /* segments */
    poke(r->rdx + 40 + 256, ~0ull);     /* mask */
    poke(peek(context + 184) + 512, 7); /* the extended state is as it was */
    handler_return(r);
}

static void forges_state(struct user_regs_struct *r)
{
    poke(peek(r->rdx + 40 + 184) + 24, ~0ull); /* mxcsr */
    handler_return(r);
}

static void is_forged(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        handle(r, SIGUSR1, 0);
        return;
    case 1:
        raise_it(r, SIGUSR1);
        return;
    default:
        after = *r;
        seen[0] = (int64_t)current->blocked;
        quit(r, 0);
    }
}

static void a_forged_frame_is_bounded(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(is_forged, forges), 0);
    assert_int_equal(seen[10], 1);
    assert_int_equal(after.eflags & 0x3000, 0); /* privileges for ports */
    assert_int_equal(after.eflags & 0x20000, 0);
    assert_int_equal(after.cs, 0x33);
    assert_int_equal(after.ss, 0x2b);
    assert_int_equal(seen[0], ~(SIGBIT(SIGKILL) | SIGBIT(SIGSTOP)));
    assert_int_equal(world_run(is_forged, forges_state), SIGSEGV);
}

/* As many as the limit of the one who is sent them; kernel signals go on, without their words. */
static void queues_too_much(struct user_regs_struct *r)
{
    unsigned step = (unsigned)r->r15++;

    if (step == 0) {
        poke(MASK, SIGBIT(40) | SIGBIT(SIGUSR1));
        call(r, SYS_rt_sigprocmask, SIG_BLOCK, MASK, 0, 8, 0, 0);
    } else if (step == 1) {
        poke(TIME, 3);
        poke(TIME + 8, 3);
        call(r, SYS_prlimit64, 0, RLIMIT_SIGPENDING, TIME, 0, 0, 0);
    } else if (step < 7) {
        if (step > 2)
            seen[step - 3] = (int64_t)r->rax;
        poke(INFO, 0);
        poke(INFO + 8, (uint32_t)SI_QUEUE);
        call3(r, SYS_rt_sigqueueinfo, 1, 40, INFO);
    } else if (step == 7) {
        seen[4] = (int64_t)r->rax;
        raise_it(r, SIGUSR1);
    } else {
        seen[5] = (int64_t)r->rax;
        seen[6] = (int64_t)(current->process->pending.bits & SIGBIT(SIGUSR1));
        quit(r, 0);
    }
}

static void queues_are_bounded(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(queues_too_much, NULL), 0);
    assert_int_equal(seen[0], 0);
    assert_int_equal(seen[2], 0);
    assert_int_equal(seen[3], -EAGAIN);
    assert_int_equal(seen[4], -EAGAIN);
    assert_int_equal(seen[5], 0);
    assert_true(seen[6]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handler_leaves_no_trace),
        cmocka_unit_test(the_alternate_stack_is_used),
        cmocka_unit_test(a_call_is_restarted_or_not),
        cmocka_unit_test(a_sleep_tells_what_is_left),
        cmocka_unit_test(signals_queue),
        cmocka_unit_test(sigsuspend_changes_the_mask_for_a_while),
        cmocka_unit_test(a_frame_that_is_none_kills),
        cmocka_unit_test(a_forged_frame_is_bounded),
        cmocka_unit_test(queues_are_bounded),
    };

    return cmocka_run_group_tests(tests, world_begin, NULL);
}
