/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Tasks from clone to exit: forks and waits, threads, vfork, execve, holds, limits. */
#include <linux/sched.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs.h"
#include "world.h"

#define WORD (MEMORY + 0x100)
#define STATUS (MEMORY + 0x200)
#define INFO (MEMORY + 0x300)
#define CHILD 100u /* r15 of a child */
#define THREAD_FLAGS                                                                               \
    (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_PARENT_SETTID |      \
     CLONE_CHILD_CLEARTID)

static int64_t seen[32]; /* what calls gave, for the test to look at */

static void clear(void)
{
    memset(seen, 0, sizeof(seen));
}

static void fork_here(struct user_regs_struct *r)
{
    call3(r, SYS_fork, 0, 0, 0);
}

/* In the child (rax 0) its program goes on at CHILD. */
static bool is_child(struct user_regs_struct *r)
{
    if (r->rax)
        return false;
    r->r15 = CHILD;
    return true;
}

static void forks_and_waits(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        fork_here(r);
        return;
    case 1:
        if (is_child(r)) {
            poke(WORD, 1); /* its own copy */
            quit(r, 7);
            return;
        }
        seen[0] = (int64_t)r->rax;
        call(r, SYS_wait4, (uint64_t)-1, STATUS, 0, 0, 0, 0);
        return;
    case 2:
        seen[1] = (int64_t)r->rax;
        seen[2] = peek32(STATUS);
        seen[3] = (int64_t)peek(WORD);
        call(r, SYS_wait4, (uint64_t)-1, STATUS, WNOHANG, 0, 0, 0);
        return;
    default:
        seen[4] = (int64_t)r->rax;
        quit(r, 3);
    }
}

static void a_child_is_waited_for(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(forks_and_waits, NULL), 3 << 8);
    assert_true(seen[0] > 1);
    assert_int_equal(seen[1], seen[0]);
    assert_int_equal(seen[2], 7 << 8);
    assert_int_equal(seen[3], 0);
    assert_int_equal(seen[4], -ECHILD);
}

/* A child that sleeps is killed; waitid looks twice, and takes it the second time. */
static void kills_and_looks(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        fork_here(r);
        return;
    case 1:
        if (is_child(r)) {
            call3(r, SYS_pause, 0, 0, 0);
            return;
        }
        seen[0] = (int64_t)r->rax;
        call(r, SYS_wait4, (uint64_t)seen[0], STATUS, WNOHANG, 0, 0, 0);
        return;
    case 2:
        seen[1] = (int64_t)r->rax;
        call3(r, SYS_kill, (uint64_t)seen[0], SIGTERM, 0);
        return;
    case 3:
        call(r, SYS_waitid, P_PID, (uint64_t)seen[0], INFO, WEXITED | WNOWAIT, 0, 0);
        return;
    case 4:
        seen[2] = (int64_t)r->rax;
        seen[3] = peek32(INFO + 8);  /* si_code */
        seen[4] = peek32(INFO + 24); /* si_status */
        call(r, SYS_waitid, P_ALL, 0, INFO, WEXITED, 0, 0);
        return;
    case 5:
        seen[5] = (int64_t)r->rax;
        seen[6] = peek32(INFO + 16); /* si_pid */
        call(r, SYS_waitid, P_ALL, 0, INFO, WEXITED, 0, 0);
        return;
    default:
        seen[7] = (int64_t)r->rax;
        quit(r, 0);
    }
}

static void waitid_looks_and_takes(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(kills_and_looks, NULL), 0);
    assert_int_equal(seen[1], 0);
    assert_int_equal(seen[2], 0);
    assert_int_equal(seen[3], CLD_KILLED);
    assert_int_equal(seen[4], SIGTERM);
    assert_int_equal(seen[5], 0);
    assert_int_equal(seen[6], seen[0]);
    assert_int_equal(seen[7], -ECHILD);
}

/* ---- threads ---- */

static void clone_thread(struct user_regs_struct *r, uint64_t stack)
{
    call(r, SYS_clone, THREAD_FLAGS, stack, WORD, WORD, 0, 0);
}

/* Joins a thread as pthread_join does; it leaves a lock held that is on its robust list. */
#define LIST (MEMORY + 0x400) /* head: next, offset, pending; entry; lock */
static void joins(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        clone_thread(r, MEMORY + 0x8000);
        return;
    case 1:
        if (is_child(r)) {
            seen[0] = (int64_t)r->rsp;
            seen[1] = peek32(WORD);
            poke(LIST, LIST + 24);
            poke(LIST + 8, 16);
            poke(LIST + 16, 0);
            poke(LIST + 24, LIST);
            poke(LIST + 40, (uint64_t)seen[1] | 0x80000000u);
            call3(r, SYS_set_robust_list, LIST, 24, 0);
            return;
        }
        seen[2] = (int64_t)r->rax;
        call(r, SYS_futex, WORD, 0 /* WAIT */, (uint64_t)seen[2], 0, 0, 0);
        return;
    case 2:
        if (peek32(WORD)) { /* woken without a cause */
            r->r15 = 2;
            call(r, SYS_futex, WORD, 0, (uint64_t)seen[2], 0, 0, 0);
            return;
        }
        seen[3] = peek32(LIST + 40);
        call3(r, SYS_exit, 9, 0, 0);
        return;
    case CHILD:
        seen[4] = (int64_t)r->rax;
        call3(r, SYS_exit, 1, 0, 0);
        return;
    default:
        fail();
    }
}

static void a_thread_is_joined_and_its_locks_are_found(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(joins, NULL), 9 << 8);
    assert_int_equal(seen[0], MEMORY + 0x8000);
    assert_int_equal(seen[1], seen[2]);
    assert_int_equal(seen[3], 0xc0000000u); /* FUTEX_OWNER_DIED, and the bit for those who wait */
    assert_int_equal(seen[4], 0);
}

/* The leader goes first: what is left of the process goes with its last task. */
static void leader_goes_first(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        clone_thread(r, MEMORY + 0x8000);
        return;
    case 1:
        if (is_child(r)) {
            call3(r, SYS_nanosleep, timespec(MEMORY + 0x500, 1000000), 0, 0);
            return;
        }
        call3(r, SYS_exit, 4, 0, 0);
        return;
    case CHILD:
        if (current->process->n_tasks > 1) {
            r->r15 = CHILD;
            call3(r, SYS_nanosleep, timespec(MEMORY + 0x500, 1000000), 0, 0);
            return;
        }
        call3(r, SYS_exit, 5, 0, 0);
        return;
    default:
        fail();
    }
}

static void the_last_task_need_not_lead(void **state)
{
    (void)state;
    assert_int_equal(world_run(leader_goes_first, NULL), 4 << 8);
}

/* exit_group of one ends all; clone's flags are checked. */
static void flags(struct user_regs_struct *r)
{
    static const uint64_t wrong[] = {CLONE_THREAD, CLONE_SIGHAND, CLONE_NEWPID, CLONE_NEWUSER};

    if (r->r15 > 0 && r->r15 <= 4)
        seen[r->r15 - 1] = (int64_t)r->rax;
    if (r->r15 < 4) {
        call(r, SYS_clone, wrong[r->r15++], 0, 0, 0, 0, 0);
        return;
    }
    switch (r->r15++) {
    case 4:
        clone_thread(r, MEMORY + 0x8000);
        return;
    case 5:
        if (is_child(r)) {
            quit(r, 5);
            return;
        }
        call3(r, SYS_pause, 0, 0, 0);
        return;
    default:
        fail();
    }
}

static void flags_are_checked_and_one_ends_all(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(flags, NULL), 5 << 8);
    assert_int_equal(seen[0], -EINVAL);
    assert_int_equal(seen[1], -EINVAL);
    assert_int_equal(seen[2], -EPERM);
    assert_int_equal(seen[3], -EPERM);
}

/* ---- vfork, execve ---- */

static void vforks(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        call3(r, SYS_vfork, 0, 0, 0);
        return;
    case 1:
        if (is_child(r)) {
            call3(r, SYS_nanosleep, timespec(MEMORY + 0x500, 20000000), 0, 0);
            return;
        }
        seen[0] = (int64_t)peek(WORD); /* the child was first, and in this memory */
        call(r, SYS_wait4, (uint64_t)-1, STATUS, 0, 0, 0, 0);
        return;
    case 2:
        seen[1] = peek32(STATUS);
        seen[2] = (int64_t)peek(WORD);
        quit(r, 0);
        return;
    case CHILD:
        poke(WORD, 1);
        call3(r, SYS_execve, 0, 0, 0);
        return;
    case CHILD + 1:
        poke(WORD, 2); /* its own by now */
        quit(r, 4);
        return;
    default:
        fail();
    }
}

static void vfork_waits_for_execve(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(vforks, NULL), 0);
    assert_int_equal(seen[0], 1);
    assert_int_equal(seen[1], 4 << 8);
    assert_int_equal(seen[2], 1);
}

/* Of a process's two tasks the one that does not lead it calls execve. */
static void execs_in_a_thread(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        clone_thread(r, MEMORY + 0x8000);
        return;
    case 1:
        if (is_child(r)) {
            call3(r, SYS_execve, 0, 0, 0);
            return;
        }
        call3(r, SYS_pause, 0, 0, 0);
        return;
    case CHILD:
        seen[0] = (int64_t)r->rax;
        call3(r, SYS_gettid, 0, 0, 0);
        return;
    case CHILD + 1:
        seen[1] = (int64_t)r->rax;
        seen[2] = current->process->n_tasks;
        quit(r, 6);
        return;
    default:
        fail();
    }
}

static void execve_leaves_one_task_that_leads(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(execs_in_a_thread, NULL), 6 << 8);
    assert_int_equal(seen[0], 0);
    assert_int_equal(seen[1], 1);
    assert_int_equal(seen[2], 1);
}

/* ---- orphans ---- */

/* A child leaves a grandchild to init, which waits for both. */
static void leaves_orphans(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        fork_here(r);
        return;
    case 1:
        if (is_child(r)) {
            fork_here(r);
            return;
        }
        call(r, SYS_wait4, (uint64_t)-1, STATUS, 0, 0, 0, 0);
        return;
    case 2:
        seen[0] = peek32(STATUS);
        call(r, SYS_wait4, (uint64_t)-1, STATUS, 0, 0, 0, 0);
        return;
    case 3:
        seen[1] = peek32(STATUS);
        quit(r, 0);
        return;
    case CHILD:
        if (r->rax) {
            quit(r, 1);
            return;
        }
        call3(r, SYS_nanosleep, timespec(MEMORY + 0x500, 20000000), 0, 0);
        return;
    case CHILD + 1:
        call3(r, SYS_getppid, 0, 0, 0);
        return;
    case CHILD + 2:
        r->r15 = CHILD + 1; /* until its parent has gone */
        if (r->rax == 1)
            quit(r, 11);
        else
            call3(r, SYS_nanosleep, timespec(MEMORY + 0x500, 1000000), 0, 0);
        return;
    default:
        fail();
    }
}

static void orphans_are_inits(void **state)
{
    (void)state;
    clear();
    assert_int_equal(world_run(leaves_orphans, NULL), 0);
    assert_int_equal(seen[0], 1 << 8);
    assert_int_equal(seen[1], 11 << 8);
}

/* The end of init ends what it has left. */
static void init_goes_first(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
    case 2:
        fork_here(r);
        return;
    case 1:
        if (is_child(r))
            call3(r, SYS_pause, 0, 0, 0);
        else
            call3(r, SYS_getpid, 0, 0, 0);
        return;
    case 3:
        if (is_child(r))
            call3(r, SYS_pause, 0, 0, 0);
        else
            quit(r, 2);
        return;
    default:
        fail();
    }
}

static void the_end_of_init_is_the_end(void **state)
{
    (void)state;
    assert_int_equal(world_run(init_goes_first, NULL), 2 << 8);
}

/* ---- limits, holds ---- */

static void forks_too_often(struct user_regs_struct *r)
{
    if (r->r15 && !r->rax) {
        call3(r, SYS_pause, 0, 0, 0);
        return;
    }
    if (r->r15)
        seen[r->r15 - 1] = (int64_t)r->rax;
    if (r->r15++ == 4)
        quit(r, 0);
    else
        fork_here(r);
}

static void tasks_are_limited(void **state)
{
    uint64_t refused = task_refused();

    (void)state;
    clear();
    task_set_limit(3);
    assert_int_equal(world_run(forks_too_often, NULL), 0);
    assert_true(seen[0] > 0 && seen[1] > 0);
    assert_int_equal(seen[2], -EAGAIN);
    assert_int_equal(seen[3], -EAGAIN);
    assert_int_equal(task_refused(), refused + 2);
    task_set_limit(0);
}

static volatile uint64_t turns;
static volatile bool enough;

static void spins_and_sleeps(struct user_regs_struct *r)
{
    switch (r->r15) {
    case 0:
        r->r15 = 1;
        fork_here(r);
        return;
    case 1:
        r->r15 = 2;
        if (is_child(r))
            call3(r, SYS_nanosleep, timespec(MEMORY + 0x500, 3600 * NS_PER_SECOND), 0, 0);
        else
            spin(r);
        return;
    case CHILD:
        fail(); /* the sleep goes on after the hold */
        return;
    default:
        turns++;
        if (enough)
            quit(r, 0);
        else
            spin(r);
    }
}

static void *holder(void *unused)
{
    const struct task *task;
    uint64_t before;

    (void)unused;
    while (turns < 5 || !sleepers()) /* one runs, one sleeps */
        usleep(1000);
    tasks_stop();
    kernel_lock();
    TAILQ_FOREACH(task, all_tasks, link)
    {
        seen[0]++;
        seen[1] += task->parked && !task->in_guest;
        seen[2] += (int64_t)task->regs.rax == -ERESTART_RESTARTBLOCK;
    }
    kernel_unlock();
    before = turns;
    usleep(30000);
    seen[3] = (int64_t)(turns - before);
    tasks_go_on();
    while (turns < before + 5)
        usleep(1000);
    enough = true;
    return NULL;
}

static void all_tasks_are_held_at_the_boundary(void **state)
{
    pthread_t thread;

    (void)state;
    clear();
    turns = 0;
    enough = false;
    pthread_create(&thread, NULL, holder, NULL);
    assert_int_equal(world_run(spins_and_sleeps, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(seen[0], 2);
    assert_int_equal(seen[1], 2);
    assert_int_equal(seen[2], 1);
    assert_int_equal(seen[3], 0);
}

/* A robust list without an end, and one that names memory that is not there: the task ends all the same. */
static void lists_without_end(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        poke(LIST, LIST + 24);
        poke(LIST + 8, 0xffffff0000000000ull);
        poke(LIST + 16, 0x10);
        poke(LIST + 24, LIST + 32);
        poke(LIST + 32, LIST + 24);
        call3(r, SYS_set_robust_list, LIST, 24, 0);
        return;
    default:
        quit(r, 1);
    }
}

static void a_list_without_end_ends(void **state)
{
    (void)state;
    assert_int_equal(world_run(lists_without_end, NULL), 1 << 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_waited_for),
        cmocka_unit_test(waitid_looks_and_takes),
        cmocka_unit_test(a_thread_is_joined_and_its_locks_are_found),
        cmocka_unit_test(the_last_task_need_not_lead),
        cmocka_unit_test(flags_are_checked_and_one_ends_all),
        cmocka_unit_test(vfork_waits_for_execve),
        cmocka_unit_test(execve_leaves_one_task_that_leads),
        cmocka_unit_test(orphans_are_inits),
        cmocka_unit_test(the_end_of_init_is_the_end),
        cmocka_unit_test(tasks_are_limited),
        cmocka_unit_test(a_list_without_end_ends),
        cmocka_unit_test(all_tasks_are_held_at_the_boundary),
    };

    return cmocka_run_group_tests(tests, world_begin, NULL);
}
