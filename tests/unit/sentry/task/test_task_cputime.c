/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Processor time and pages: who is given what, and how often. */
#include <linux/sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fs.h"
#include "world.h"

#define STATUS (MEMORY + 0x200)
#define USAGE (MEMORY + 0x300) /* struct rusage: user, system, maxrss */
#define TIME (MEMORY + 0x500)
#define CHILD 100u /* r15 of a child */
#define CPU_PER_THREAD 6u
#define THREAD_FLAGS                                                                               \
    (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)

static uint64_t seen[16];
static volatile bool in_guest, asked;

static uint64_t user_at(uint64_t usage) /* us */
{
    return peek(usage) * 1000000 + peek(usage + 8);
}

static uint64_t system_at(uint64_t usage)
{
    return user_at(usage + 16);
}

static uint64_t time_at(uint64_t address) /* ns */
{
    return peek(address) * NS_PER_SECOND + peek(address + 8);
}

static bool is_child(struct user_regs_struct *r)
{
    if (r->rax)
        return false;
    r->r15 = CHILD;
    return true;
}

/* By the thread of the sentry that runs this program. */
static void work(uint64_t ns)
{
    struct timespec now;

    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec < ns);
}

/* Two children, one after the other, that run for a second each, in address spaces whose clocks stand anywhere. */
static void has_children(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
    case 3:
        call3(r, SYS_fork, 0, 0, 0);
        return;
    case 1:
    case 4:
        if (is_child(r)) {
            fake_use(current->mm, NS_PER_SECOND);
            work(30000000);
            quit(r, 0);
            return;
        }
        call(r, SYS_wait4, r->rax, STATUS, 0, USAGE, 0, 0);
        return;
    case 2:
    case 5:
        seen[r->r15 - 3] = user_at(USAGE);
        seen[r->r15 - 2] = system_at(USAGE);
        call3(r, SYS_getpid, 0, 0, 0);
        return;
    case 6:
        call3(r, SYS_getrusage, (uint64_t)RUSAGE_CHILDREN, USAGE, 0);
        return;
    case 7:
        seen[6] = user_at(USAGE);
        seen[7] = system_at(USAGE);
        call3(r, SYS_getrusage, RUSAGE_SELF, USAGE, 0);
        return;
    default:
        seen[8] = user_at(USAGE);
        quit(r, 0);
    }
}

static void a_childs_time_is_counted_once(void **state)
{
    (void)state;
    world_count(true);
    fake_clock_begins = 5 * NS_PER_SECOND;
    assert_int_equal(world_run(has_children, NULL), 0);
    world_count(false);
    assert_int_equal(seen[0], 1000000);
    assert_int_equal(seen[3], 1000000);
    assert_int_equal(seen[6], 2000000);
    assert_int_equal(seen[8], 0);
    assert_true(seen[1] >= 30000 && seen[4] >= 30000); /* and 30 ms of system time */
    assert_true(seen[7] + 1 >= seen[1] + seen[4]);
}

/* Nobody waits for a child whose end is ignored, and so nobody is told what it used; the machine has used it. */
static void ignores_a_child(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        call(r, SYS_rt_sigaction, SIGCHLD, action(1, 0, 0), 0, 8, 0, 0);
        return;
    case 1:
        kernel_lock();
        reaped_cpu(&seen[0], &seen[1]);
        kernel_unlock();
        call3(r, SYS_fork, 0, 0, 0);
        return;
    case 2:
        if (is_child(r)) {
            fake_use(current->mm, NS_PER_SECOND);
            quit(r, 0);
            return;
        }
        call(r, SYS_wait4, (uint64_t)-1, STATUS, 0, 0, 0, 0);
        return;
    case 3:
        seen[2] = r->rax;
        call3(r, SYS_getrusage, (uint64_t)RUSAGE_CHILDREN, USAGE, 0);
        return;
    default:
        seen[3] = user_at(USAGE);
        kernel_lock();
        reaped_cpu(&seen[4], &seen[1]);
        kernel_unlock();
        quit(r, 0);
    }
}

static void an_ignored_childs_time_is_nobodys(void **state)
{
    (void)state;
    world_count(true);
    assert_int_equal(world_run(ignores_a_child, NULL), 0);
    world_count(false);
    assert_int_equal(seen[2], -ECHILD);
    assert_int_equal(seen[3], 0);
    assert_int_equal(seen[4] - seen[0], NS_PER_SECOND);
}

/* All clocks of one task say the same: it asks each between two looks at the first. */
static void asks_all(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        fake_use(current->mm, NS_PER_SECOND);
        work(30000000);
        call3(r, SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, TIME, 0);
        return;
    case 1:
        seen[0] = time_at(TIME);
        call3(r, SYS_getrusage, RUSAGE_SELF, USAGE, 0);
        return;
    case 2:
        seen[1] = (user_at(USAGE) + system_at(USAGE)) * 1000 + 1999; /* each was rounded down */
        seen[2] = system_at(USAGE);
        call3(r, SYS_times, TIME, 0, 0);
        return;
    case 3:
        seen[3] = (peek(TIME) + peek(TIME + 8)) * 10000000 + 19999999;
        call3(r, SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, TIME, 0);
        return;
    case 4:
        seen[4] = time_at(TIME);
        call3(r, SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, TIME, 0);
        return;
    default:
        seen[5] = time_at(TIME);
        quit(r, 0);
    }
}

static void all_that_tell_it_agree(void **state)
{
    (void)state;
    world_count(true);
    assert_int_equal(world_run(asks_all, NULL), 0);
    world_count(false);
    assert_true(seen[0] >= NS_PER_SECOND + 30000000);
    assert_true(seen[1] >= seen[0] && seen[3] >= seen[0] && seen[4] >= seen[0]);
    assert_true(seen[2] >= 30000);
    assert_true(seen[5] >= seen[4]);
}

/* One thread runs, the other sleeps and then asks for both. */
static void one_of_two_runs(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        in_guest = asked = false;
        call(r, SYS_clone, THREAD_FLAGS, MEMORY + 0x8000, 0, 0, 0, 0);
        return;
    case 1:
        if (is_child(r)) {
            usleep(500000); /* in guest code: so long that what the other has there is little */
            fake_use(current->mm, NS_PER_SECOND);
            in_guest = true;
            while (!asked)
                usleep(1000);
            call3(r, SYS_exit, 0, 0, 0);
            return;
        }
        seen[0] = r->rax;
        call3(r, SYS_nanosleep, timespec(TIME, 1000000), 0, 0);
        return;
    case 2:
        if (!in_guest) {
            r->r15 = 2;
            call3(r, SYS_nanosleep, timespec(TIME, 1000000), 0, 0);
            return;
        }
        call3(r, SYS_clock_gettime, (uint64_t)(~seen[0] << 3 | CPU_PER_THREAD), TIME, 0);
        return;
    case 3:
        seen[1] = time_at(TIME);
        call3(r, SYS_getrusage, RUSAGE_THREAD, USAGE, 0);
        return;
    case 4:
        seen[2] = user_at(USAGE);
        asked = true;
        quit(r, 0);
        return;
    default:
        fail();
    }
}

static void time_is_the_threads_that_ran(void **state)
{
    (void)state;
    world_count(true);
    assert_int_equal(world_run(one_of_two_runs, NULL), 0);
    world_count(false);
    assert_true(seen[1] >= NS_PER_SECOND * 9 / 10);
    assert_true(seen[2] <= 100000);
}

/* ---- pages ---- */

static void touches(struct user_regs_struct *r)
{
    unsigned i;

    switch (r->r15++) {
    case 0:
        call3(r, SYS_fork, 0, 0, 0);
        return;
    case 1:
        if (is_child(r)) {
            for (i = 0; i < 12; i++)
                poke(MEMORY + i * PAGE_SIZE, 1);
            kernel_lock();
            assert_int_equal(mm_unmap(current->mm, MEMORY + PAGE_SIZE, 11 * PAGE_SIZE), 0);
            kernel_unlock();
            call3(r, SYS_getrusage, RUSAGE_SELF, USAGE, 0);
            return;
        }
        call(r, SYS_wait4, r->rax, STATUS, 0, USAGE, 0, 0);
        return;
    case 2:
        seen[0] = peek(USAGE + 32);
        call3(r, SYS_getrusage, (uint64_t)RUSAGE_CHILDREN, USAGE, 0);
        return;
    case 3:
        seen[1] = peek(USAGE + 32);
        quit(r, 0);
        return;
    case CHILD:
        seen[2] = peek(USAGE + 32);
        quit(r, 0);
        return;
    default:
        fail();
    }
}

static void the_most_pages_are_remembered(void **state)
{
    (void)state;
    assert_int_equal(world_run(touches, NULL), 0);
    assert_true(seen[2] >= 48 && seen[2] <= 64);
    assert_int_equal(seen[0], seen[2]);
    assert_int_equal(seen[1], seen[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_childs_time_is_counted_once),
        cmocka_unit_test(an_ignored_childs_time_is_nobodys),
        cmocka_unit_test(all_that_tell_it_agree),
        cmocka_unit_test(time_is_the_threads_that_ran),
        cmocka_unit_test(the_most_pages_are_remembered),
    };

    return cmocka_run_group_tests(tests, world_begin, NULL);
}
