/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What outlives a call, a thread, a process: timers and waiters that know it, signals that were for it, what is owed. */
#include <linux/sched.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mm/space.h"
#include "world.h"

#define STATUS (MEMORY + 0x200)
#define INFO (MEMORY + 0x300)
#define TIME (MEMORY + 0x500)
#define MASK (MEMORY + 0x600)
#define WORD (MEMORY + 0x680)
#define EVENT (MEMORY + 0x700) /* struct sigevent */
#define CHILD 100u             /* r15 of a child */
#define TRIES 20000u           /* ms: what does not come in that time never does */
#define THREAD_FLAGS                                                                               \
    (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)

static int64_t seen[8];
static unsigned tries;

static int begin(void **state)
{
    (void)state;
    memset(seen, 0, sizeof(seen));
    tries = 0;
    return 0;
}

static bool is_child(struct user_regs_struct *r)
{
    if (r->rax)
        return false;
    r->r15 = CHILD;
    return true;
}

/* ---- processes ---- */

static struct waiter watcher; /* as an epoll has it for a signalfd */
static uint64_t child;

static void dies_watched(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        call3(r, SYS_fork, 0, 0, 0);
        return;
    case 1:
        if (is_child(r)) {
            quit(r, 0);
            return;
        }
        child = r->rax;
        call(r, SYS_waitid, P_PID, child, 0, WEXITED | WNOWAIT, 0, 0);
        return;
    case 2:
        watcher = (struct waiter){.kind = WAITER_EPOLL};
        kernel_lock();
        waiter_add(&watcher, &process_by_pid((int32_t)child)->signal_waitq, POLLIN);
        kernel_unlock();
        poke(TIME, 1000);
        poke(TIME + 8, RLIM_INFINITY);
        call(r, SYS_prlimit64, child, RLIMIT_CPU, TIME, 0, 0, 0);
        return;
    case 3:
        seen[0] = (int64_t)r->rax;
        kernel_lock();
        seen[1] = process_by_pid((int32_t)child)->cpu_timer.when != 0;
        kernel_unlock();
        call(r, SYS_wait4, child, STATUS, 0, 0, 0, 0);
        return;
    default:
        seen[2] = watcher.queue != NULL;
        quit(r, 0);
    }
}

static void nobody_knows_the_dead(void **state)
{
    (void)state;
    assert_int_equal(world_run(dies_watched, NULL), 0);
    assert_int_equal(seen[0], 0);
    assert_int_equal(seen[1], 0);
    assert_int_equal(seen[2], 0);
}

static unsigned terminals; /* processes that hold the one there is */

void tty_inherit(struct process *new, const struct process *from)
{
    new->tty = from->tty;
    terminals += new->tty != NULL;
}

void tty_forget(struct process *process)
{
    terminals -= process->tty != NULL;
    process->tty = NULL;
}

static void has_a_terminal(struct user_regs_struct *r)
{
    static int terminal;

    switch (r->r15++) {
    case 0:
        current->process->tty = (struct tty *)(void *)&terminal;
        terminals = 1;
        call3(r, SYS_fork, 0, 0, 0);
        return;
    case 1:
        if (is_child(r)) {
            seen[0] = terminals;
            quit(r, 0);
            return;
        }
        call(r, SYS_wait4, r->rax, STATUS, 0, 0, 0, 0);
        return;
    default:
        seen[1] = terminals;
        quit(r, 0);
    }
}

static void a_terminal_is_let_go(void **state)
{
    (void)state;
    assert_int_equal(world_run(has_a_terminal, NULL), 0);
    assert_int_equal(seen[0], 2);
    assert_int_equal(seen[1], 1);
    assert_int_equal(terminals, 0);
}

static void becomes_another(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        call3(r, SYS_prctl, PR_SET_PDEATHSIG, SIGUSR1, 0);
        return;
    case 1:
        call3(r, SYS_execve, 0, 0, 0);
        return;
    case 2:
        call3(r, SYS_prctl, PR_GET_PDEATHSIG, WORD, 0);
        return;
    default:
        quit(r, (int)peek32(WORD));
    }
}

static void the_signal_of_a_parents_death_outlives_exec(void **state)
{
    (void)state;
    assert_int_equal(world_run(becomes_another, NULL), SIGUSR1 << 8);
}

/* A thread ends that was to take a signal of its process: the other one, which sleeps, takes it. */
static void hands_over(struct user_regs_struct *r)
{
    siginfo_t info = {.si_signo = SIGUSR1};

    switch (r->r15++) {
    case 0:
        call(r, SYS_rt_sigaction, SIGUSR1, action(HANDLER, 0, 0), 0, 8, 0, 0);
        return;
    case 1:
        call(r, SYS_clone, THREAD_FLAGS, MEMORY + 0x8000, 0, 0, 0, 0);
        return;
    case 2:
        if (is_child(r)) {
            call3(r, SYS_pause, 0, 0, 0);
            return;
        }
        while (!sleepers())
            usleep(1000);
        kernel_lock();
        signal_process(current->process, &info);
        kernel_unlock();
        call3(r, SYS_exit, 0, 0, 0);
        return;
    case CHILD:
        seen[0] = (int64_t)r->rax;
        quit(r, 0);
        return;
    default:
        fail();
    }
}

static void a_signal_is_anothers_when_its_task_ends(void **state)
{
    (void)state;
    assert_int_equal(world_run(hands_over, handler_return), 0);
    assert_int_equal(seen[0], -EINTR);
}

/* ---- timers ---- */

static void block(struct user_regs_struct *r)
{
    poke(MASK, SIGBIT(SIGUSR1));
    call(r, SYS_rt_sigprocmask, SIG_BLOCK, MASK, 0, 8, 0, 0);
}

static void make_timer(struct user_regs_struct *r, int32_t clock)
{
    poke(EVENT, 7);
    poke(EVENT + 8, SIGUSR1); /* and SIGEV_SIGNAL */
    call3(r, SYS_timer_create, (uint64_t)clock, EVENT, WORD);
}

static void set_timer(struct user_regs_struct *r)
{
    timespec(TIME, 0);
    timespec(TIME + 16, 1000000);
    call(r, SYS_timer_settime, peek32(WORD), 0, TIME, 0, 0, 0);
}

/* True: so many do not pend yet, and the guest runs on in the same place. */
static bool lacks(struct user_regs_struct *r, unsigned wanted)
{
    const struct sigqueued *queued;
    unsigned n = 0;

    kernel_lock();
    TAILQ_FOREACH(queued, &current->process->pending.queue, link)
    n++;
    kernel_unlock();
    if (n >= wanted || tries++ >= TRIES)
        return false;
    r->r15--;
    spin(r);
    return true;
}

static void take_one(struct user_regs_struct *r)
{
    call(r, SYS_rt_sigtimedwait, MASK, INFO, timespec(TIME, 0), 8, 0, 0);
}

/* The number that a timer sends pends already, by somebody else. */
static void two_send_the_same(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        block(r);
        return;
    case 1:
        call3(r, SYS_kill, 1, SIGUSR1, 0);
        return;
    case 2:
        make_timer(r, CLOCK_MONOTONIC);
        return;
    case 3:
        set_timer(r);
        return;
    case 4:
        if (!lacks(r, 2))
            take_one(r);
        return;
    case 5:
        seen[0] = (int64_t)r->rax;
        seen[1] = (int32_t)peek32(INFO + 8);
        take_one(r);
        return;
    case 6:
        seen[2] = (int64_t)r->rax;
        seen[3] = (int32_t)peek32(INFO + 8);
        set_timer(r);
        return;
    case 7:
        if (!lacks(r, 1))
            take_one(r);
        return;
    default:
        seen[4] = (int64_t)r->rax;
        quit(r, 0);
    }
}

static void a_timer_goes_on_beside_others(void **state)
{
    (void)state;
    assert_int_equal(world_run(two_send_the_same, NULL), 0);
    assert_int_equal(seen[0], SIGUSR1);
    assert_int_equal(seen[1], SI_USER);
    assert_int_equal(seen[2], SIGUSR1);
    assert_int_equal(seen[3], SI_TIMER);
    assert_int_equal(seen[4], SIGUSR1);
}

static int32_t own_clock;

static void times_itself(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        block(r);
        return;
    case 1:
        make_timer(r, own_clock);
        return;
    case 2:
        set_timer(r);
        return;
    case 3:
        fake_use(current->mm, NS_PER_SECOND);
        spin(r);
        return;
    case 4:
        if (!lacks(r, 1))
            take_one(r);
        return;
    default:
        quit(r, (int)r->rax);
    }
}

/* By 0 for its own number, as the C library has it, and by the name. */
static void a_timer_knows_whose_clock_it_has(void **state)
{
    static const int32_t clocks[] = {-6, -2, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID};
    unsigned i;

    (void)state;
    world_count(true);
    for (i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++) {
        own_clock = clocks[i];
        tries = 0;
        assert_int_equal(world_run(times_itself, NULL), SIGUSR1 << 8);
    }
    world_count(false);
}

#define TICK 3000000u /* ns */
static uint64_t first_tick, ticks;

static uint64_t next_tick(void)
{
    uint64_t when;

    kernel_lock();
    when = current->process->itimer_real.when;
    kernel_unlock();
    return when;
}

static void ticks_on(struct user_regs_struct *r)
{
    uint64_t when;

    switch (r->r15++) {
    case 0:
        poke(TIME, 0);
        poke(TIME + 8, TICK / 1000);
        poke(TIME + 16, 0);
        poke(TIME + 24, TICK / 1000);
        call3(r, SYS_setitimer, 0 /* ITIMER_REAL */, TIME, 0);
        return;
    case 1:
        first_tick = next_tick();
        spin(r);
        return;
    default:
        when = next_tick();
        if (when < first_tick + 3 * TICK && tries++ < TRIES) {
            spin(r);
            return;
        }
        ticks = when - first_tick;
        quit(r, 0);
    }
}

static void a_late_tick_makes_no_other_late(void **state)
{
    (void)state;
    assert_int_equal(world_run(ticks_on, NULL), 0);
    assert_true(ticks >= 3 * TICK);
    assert_int_equal(ticks % TICK, 0);
}

/* ---- what is owed ---- */

static volatile bool asked;
static volatile uint64_t turns;

static void goes_on(struct user_regs_struct *r)
{
    turns++;
    if (!asked) {
        spin(r);
        return;
    }
    kernel_lock();
    seen[0] = space_of(current->mm)->n_owed;
    kernel_unlock();
    quit(r, 0);
}

/* While all are held, or when the first of them runs again: others still wait for the lock. */
static void *asker(void *unused)
{
    (void)unused;
    while (turns < 5)
        usleep(1000);
    tasks_stop();
    kernel_lock();
    host_hide(task_by_tid(1)->mm, MEMORY, MEMORY + PAGE_SIZE);
    seen[1] = space_of(task_by_tid(1)->mm)->n_owed;
    asked = true;
    kernel_unlock();
    tasks_go_on();
    return NULL;
}

static void what_is_owed_is_done_before_guest_code_runs(void **state)
{
    pthread_t thread;

    (void)state;
    asked = false;
    turns = 0;
    pthread_create(&thread, NULL, asker, NULL);
    assert_int_equal(world_run(goes_on, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(seen[1], 1);
    assert_int_equal(seen[0], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nobody_knows_the_dead, begin),
        cmocka_unit_test_setup(a_terminal_is_let_go, begin),
        cmocka_unit_test_setup(the_signal_of_a_parents_death_outlives_exec, begin),
        cmocka_unit_test_setup(a_signal_is_anothers_when_its_task_ends, begin),
        cmocka_unit_test_setup(a_timer_goes_on_beside_others, begin),
        cmocka_unit_test_setup(a_timer_knows_whose_clock_it_has, begin),
        cmocka_unit_test_setup(a_late_tick_makes_no_other_late, begin),
        cmocka_unit_test_setup(what_is_owed_is_done_before_guest_code_runs, begin),
    };

    return cmocka_run_group_tests(tests, world_begin, NULL);
}
