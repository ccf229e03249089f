/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* near.c with real guest code: one processor for the two that take turns, all of them for who does not. */
#include "platform_world.h"

static cpu_set_t everywhere;

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
static void come_together(struct guest *guest)
{
    LOAD(guest, loop_calls);
    do
        assert_int_equal(run(guest), PLATFORM_SYSCALL);
    while (!together());
}

static int whoever_is_left(void **state)
{
    tear_down(state);
    assert_true(loose(0, 0));
    return 0;
}

static void test_taking_turns(void **state)
{
    struct guest guest;

    (void)state;
    come_together(&guest);
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
    struct guest guest;

    (void)state;
    come_together(&guest);
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
    struct guest guest;
    pthread_t thread;

    (void)state;
    come_together(&guest);
    LOAD(&guest, spin);
    guest.regs.rdi = DATA;
    pthread_create(&thread, NULL, wait_until_loose, &pair);
    assert_int_equal(run(&guest), PLATFORM_INTERRUPT);
    pthread_join(thread, NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, whoever_is_left)

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
