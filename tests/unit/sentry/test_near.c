/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* near.c with real guest code: one processor for the two that take turns, all of them for who does not. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_platform.h"
#include "platform/ptrace.h"

#define CODE 0x400000ul
#define RWX (PROT_READ | PROT_WRITE | PROT_EXEC)

static const char calls[] =
    "\xb8\x27\0\0\0\x0f\x05\xeb\xf7";  /* 1: mov $39, %eax; syscall; jmp 1b */
static const char spin[] = "\xeb\xfe"; /* 1: jmp 1b */
static cpu_set_t everywhere;
static struct user_regs_struct regs;

static void load(const char *code, size_t size)
{
    regs = (struct user_regs_struct){.rip = CODE};
    mm_map(current->mm, CODE, PAGE_SIZE, RWX, RWX, MM_FIXED, NULL, NULL, 0);
    assert_int_equal(copy_out(current->mm, CODE, code, size), 0);
}

static enum platform_event run(void)
{
    struct platform_stop stop;
    int signo = 0, code = 0;

    for (;;) {
        mm_boundary(current->mm);
        kernel_unlock();
        assert_int_equal(platform->run(current->host_context, &regs, &stop), 0);
        kernel_lock();
        if (stop.event != PLATFORM_FAULT)
            return stop.event;
        assert_int_equal(mm_fault(current->mm, &stop, &regs, &signo, &code), 0);
        assert_int_equal(signo, 0);
    }
}

static cpu_set_t allowed(pid_t tid)
{
    cpu_set_t set;

    assert_int_equal(sched_getaffinity(tid, sizeof(set), &set), 0);
    return set;
}

static bool together(void)
{
    cpu_set_t ours = allowed(0), theirs = allowed(current->host_context->tid);

    return CPU_COUNT(&ours) == 1 && CPU_EQUAL(&ours, &theirs);
}

static bool loose(pid_t sentry, pid_t guest)
{
    cpu_set_t ours = allowed(sentry), theirs = allowed(guest);

    return CPU_EQUAL(&ours, &everywhere) && CPU_EQUAL(&theirs, &everywhere);
}

/* The runs of a pair that takes turns are short, if the host lets it: so after a while, not at once. */
static void come_together(void)
{
    do
        assert_int_equal(run(), PLATFORM_SYSCALL);
    while (!together());
}

static int set_up(void **state)
{
    (void)state;
    alarm(30); /* what does not come to pass is a failure */
    kernel_lock();
    fake_task();
    return 0;
}

static int tear_down(void **state)
{
    struct mm *mm = current->mm;

    (void)state;
    alarm(0);
    fake_enter(NULL);
    mm_put(mm);
    TAILQ_REMOVE(all_tasks, current, link);
    kernel_unlock();
    assert_true(loose(0, 0)); /* whoever is left */
    return 0;
}

static void test_taking_turns(void **state)
{
    (void)state;
    load(calls, sizeof(calls) - 1);
    come_together();
}

/* A thread has its maker's processors, and that one may have had one at that time. */
static void test_made_by_one_that_is_bound(void **state)
{
    cpu_set_t here;

    (void)state;
    CPU_ZERO(&here);
    CPU_SET((unsigned)sched_getcpu(), &here);
    assert_int_equal(sched_setaffinity(0, sizeof(here), &here), 0);
    fake_enter(current->mm);
    assert_true(loose(0, current->host_context->tid));
}

static void test_at_rest(void **state)
{
    (void)state;
    load(calls, sizeof(calls) - 1);
    come_together();
    while (!loose(0, current->host_context->tid))
        usleep(1000);
}

struct pair {
    struct platform_context *context;
    pid_t sentry;
};

static void *wait_until_loose(void *argument)
{
    struct pair *pair = argument;

    while (!loose(pair->sentry, pair->context->tid))
        usleep(1000);
    platform->interrupt(pair->context);
    return NULL;
}

static void test_long_run(void **state)
{
    struct pair pair = {current->host_context, gettid()};
    pthread_t thread;

    (void)state;
    load(calls, sizeof(calls) - 1);
    come_together();
    assert_int_equal(copy_out(current->mm, CODE, spin, sizeof(spin) - 1), 0);
    regs.rip = CODE;
    pthread_create(&thread, NULL, wait_until_loose, &pair);
    assert_int_equal(run(), PLATFORM_INTERRUPT);
    pthread_join(thread, NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(taking_turns), TEST(made_by_one_that_is_bound),
                                       TEST(at_rest), TEST(long_run)};

    if (sched_getaffinity(0, sizeof(everywhere), &everywhere) || CPU_COUNT(&everywhere) < 2) {
        puts("one processor: nothing to be near to");
        return 77;
    }
    platform = &platform_ptrace;
    fake_sentry(64ul << 20);
    kernel_unlock();
    cmocka_set_test_filter(getenv("CMOCKA_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
