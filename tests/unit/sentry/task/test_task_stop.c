/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Stops and their reports, what init dies of, who may send what to whom. */
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

#define STATUS (MEMORY + 0x200)
#define INFO (MEMORY + 0x300)
#define MASK (MEMORY + 0x600)
#define CHILD 100u

static int64_t seen[32];

static void clear(void)
{
    memset(seen, 0, sizeof(seen));
}

static void handle(struct user_regs_struct *r, int signo, uint64_t flags)
{
    call(r, SYS_rt_sigaction, (uint64_t)signo, action(HANDLER, flags, 0), 0, 8, 0, 0);
}

static void raise_it(struct user_regs_struct *r, int signo)
{
    call3(r, SYS_kill, 1, (uint64_t)signo, 0);
}

static void notes(struct user_regs_struct *r)
{
    seen[10]++;
    handler_return(r);
}

/* ---- stops ---- */

static void stops_its_child(struct user_regs_struct *r)
{
    static const int options[] = {WUNTRACED, WCONTINUED, 0};
    static const int signals[] = {SIGSTOP, SIGCONT, SIGKILL};
    unsigned step = (unsigned)r->r15++;

    if (step == 0) {
        call3(r, SYS_fork, 0, 0, 0);
        return;
    }
    if (step == 1) {
        if (r->rax == 0) {
            r->r15 = 1;
            call3(r, SYS_pause, 0, 0, 0);
            return;
        }
        seen[0] = (int64_t)r->rax;
        r->rbx = r->rax;
    }
    if (step % 2 == 0)
        call(r, SYS_wait4, r->rbx, STATUS, (uint64_t)options[step / 2 - 1], 0, 0, 0);
    else if (step < 7)
        call3(r, SYS_kill, r->rbx, (uint64_t)signals[step / 2], 0);
    else
        quit(r, 0);
    if (step % 2 && step > 1)
        seen[step / 2] = peek32(STATUS);
}

static void a_child_stops_and_goes_on(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(stops_its_child, NULL), 0);
    assert_int_equal(seen[1], SIGSTOP << 8 | 0x7f);
    assert_int_equal(seen[2], 0xffff);
    assert_int_equal(seen[3], SIGKILL);
}

/* ---- init, faults, permission ---- */

static void kills_itself(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        raise_it(r, SIGTERM);
        return;
    case 1:
        raise_it(r, SIGKILL);
        return;
    default:
        fault(r, SIGFPE);
    }
}

static void init_dies_of_its_own_faults_alone(void **state)
{
    (void)state;
    assert_int_equal(world_run(kills_itself, NULL), SIGFPE);
}

static void faults_while_blocked(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        handle(r, SIGILL, 0);
        return;
    case 1:
        poke(MASK, SIGBIT(SIGILL));
        call(r, SYS_rt_sigprocmask, SIG_BLOCK, MASK, 0, 8, 0, 0);
        return;
    default:
        fault(r, SIGILL);
    }
}

static void a_fault_is_not_blocked(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(faults_while_blocked, notes), SIGILL);
    assert_int_equal(seen[10], 0);
}

static void is_somebody_else(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        call3(r, SYS_fork, 0, 0, 0);
        return;
    case 1:
        if (r->rax == 0) {
            r->r15 = CHILD;
            call3(r, SYS_setuid, 1000, 0, 0);
            return;
        }
        call(r, SYS_wait4, (uint64_t)-1, STATUS, 0, 0, 0, 0);
        return;
    case 2:
        quit(r, 0);
        return;
    case CHILD:
        raise_it(r, SIGUSR1);
        return;
    case CHILD + 1:
        seen[0] = (int64_t)r->rax;
        call3(r, SYS_kill, 1, SIGCONT, 0);
        return;
    case CHILD + 2:
        seen[1] = (int64_t)r->rax;
        call3(r, SYS_kill, 1, 0, 0);
        return;
    case CHILD + 3:
        seen[2] = (int64_t)r->rax;
        poke(INFO + 8, (uint32_t)SI_USER);
        call3(r, SYS_rt_sigqueueinfo, 1, SIGCONT, INFO);
        return;
    case CHILD + 4:
        seen[3] = (int64_t)r->rax;
        call3(r, SYS_kill, 9999, 0, 0);
        return;
    case CHILD + 5:
        seen[4] = (int64_t)r->rax;
        call3(r, SYS_setuid, 0, 0, 0);
        return;
    default:
        seen[5] = (int64_t)r->rax;
        quit(r, 0);
    }
}

static void others_are_not_killed(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(is_somebody_else, NULL), 0);
    assert_int_equal(seen[0], -EPERM);
    assert_int_equal(seen[1], 0); /* of the same session */
    assert_int_equal(seen[2], -EPERM);
    assert_int_equal(seen[3], -EPERM);
    assert_int_equal(seen[4], -ESRCH);
    assert_int_equal(seen[5], -EPERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_stops_and_goes_on),
        cmocka_unit_test(init_dies_of_its_own_faults_alone),
        cmocka_unit_test(a_fault_is_not_blocked),
        cmocka_unit_test(others_are_not_killed),
    };

    return cmocka_run_group_tests(tests, world_begin, NULL);
}
