/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The ptrace platform with real guest code, and mm on top of it: what a guest does, the sentry sees, and nobody else. */
#include <sys/ptrace.h>

#include "platform_world.h"

static void test_calls(void **state)
{
    struct guest guest;
    unsigned i;

    (void)state;
    LOAD(&guest, loop_calls);
    for (i = 1; i < 100; i++) {
        assert_int_equal(run(&guest), PLATFORM_SYSCALL);
        assert_int_equal(guest.regs.orig_rax, SYS_getpid);
        assert_int_equal(guest.regs.rax, (uint64_t)-ENOSYS);
        assert_false(guest.stop.compat);
        if (i > 1)
            assert_int_equal(guest.regs.rbx, (i - 1) * 3);
        guest.regs.rax = i * 3;
    }
}

static void test_memory(void **state)
{
    struct guest guest;
    uint64_t value = 0;

    (void)state;
    LOAD(&guest, store_load);
    guest.regs.rdi = DATA + 5 * PAGE_SIZE;
    guest.regs.rsi = 0x1122334455667788;
    assert_int_equal(run(&guest), PLATFORM_SYSCALL);
    assert_int_equal(guest.regs.rdx, 0x1122334455667788);
    assert_int_equal(copy_in(current->mm, &value, DATA + 5 * PAGE_SIZE, 8), 0);
    assert_int_equal(value, 0x1122334455667788);
    guest.regs.rip = CODE;
    guest.regs.rdi = DATA + 64 * PAGE_SIZE;
    assert_int_equal(run(&guest), PLATFORM_FAULT);
    assert_int_equal(guest.signo, SIGSEGV);
    assert_int_equal(guest.code, SEGV_MAPERR);
    mm_protect(current->mm, DATA + 5 * PAGE_SIZE, PAGE_SIZE, PROT_READ);
    guest.regs.rip = CODE;
    guest.regs.rdi = DATA + 5 * PAGE_SIZE;
    assert_int_equal(run(&guest), PLATFORM_FAULT);
    assert_int_equal(guest.code, SEGV_ACCERR);
    mm_unmap(current->mm, DATA + 5 * PAGE_SIZE, PAGE_SIZE);
    guest.regs.rip = CODE;
    assert_int_equal(run(&guest), PLATFORM_FAULT);
    assert_int_equal(guest.code, SEGV_MAPERR);
}

static void test_stack_grows(void **state)
{
    struct guest guest;

    (void)state;
    LOAD(&guest, push);
    guest.regs.rcx = 100000;
    assert_int_equal(run(&guest), PLATFORM_SYSCALL);
    assert_int_equal(guest.regs.rsp, STACK - 800000);
    assert_true(guest.faults < 20);
}

static void test_fork(void **state)
{
    struct mm *mm = current->mm, *child;
    struct guest guest, other;
    uint64_t value;

    (void)state;
    LOAD(&guest, store_load);
    guest.regs.rdi = DATA;
    guest.regs.rsi = 7;
    run(&guest);
    assert_int_equal(mm_fork(mm, &child), 0);
    other = guest;
    guest.regs.rip = other.regs.rip = CODE;
    guest.regs.rsi = 8;
    run(&guest);
    copy_in(child, &value, DATA, 8);
    assert_int_equal(value, 7);
    fake_enter(child);
    other.regs.rsi = 9;
    run(&other);
    assert_int_equal(other.regs.rdx, 9);
    fake_enter(mm);
    copy_in(mm, &value, DATA, 8);
    assert_int_equal(value, 8);
    mm_put(child);
    guest.regs.rip = CODE;
    guest.regs.rsi = 10;
    run(&guest);
    copy_in(mm, &value, DATA, 8);
    assert_int_equal(value, 10);
}

static void test_exceptions(void **state)
{
    struct guest guest;

    (void)state;
    LOAD(&guest, divide);
    assert_int_equal(run(&guest), PLATFORM_SIGNAL);
    assert_int_equal(guest.stop.info.si_signo, SIGFPE);
    copy_out(current->mm, CODE, "\x0f\x0b", 2);
    guest.regs.rip = CODE;
    assert_int_equal(run(&guest), PLATFORM_SIGNAL);
    assert_int_equal(guest.stop.info.si_signo, SIGILL);
    copy_out(current->mm, CODE, "\xcc", 1);
    guest.regs.rip = CODE;
    assert_int_equal(run(&guest), PLATFORM_SIGNAL);
    assert_int_equal(guest.stop.info.si_signo, SIGTRAP);
    copy_out(current->mm, CODE, "\xf4", 1); /* hlt */
    guest.regs.rip = CODE;
    assert_int_equal(run(&guest), PLATFORM_SIGNAL);
    assert_int_equal(guest.stop.info.si_signo, SIGSEGV);
    copy_out(current->mm, CODE, "\x90\x90\x90\x0f\x05", 5);
    guest.regs.rip = CODE;
    guest.regs.eflags = 0x100; /* single step */
    assert_int_equal(run(&guest), PLATFORM_SIGNAL);
    assert_int_equal(guest.stop.info.si_signo, SIGTRAP);
    assert_int_equal(guest.regs.rip, CODE + 1);
}

static void test_xstate(void **state)
{
    static unsigned char before[XSTATE_MAX], after[XSTATE_MAX];
    size_t size = platform_xstate_size();
    struct guest guest;

    (void)state;
    assert_in_range(size, 576, XSTATE_MAX);
    assert_int_equal(platform->get_xstate(current->host_context, before, size), 0);
    assert_int_equal(before[0] | before[1] << 8, 0x37f);
    LOAD(&guest, fpu);
    guest.regs.rdi = 0xabcdef;
    assert_int_equal(run(&guest), PLATFORM_SYSCALL);
    assert_int_equal(platform->get_xstate(current->host_context, after, size), 0);
    assert_int_equal(*(uint64_t *)(after + 160 + 48), 0xabcdef);
    *(uint64_t *)(after + 160 + 48) = 0x123456;
    assert_int_equal(platform->set_xstate(current->host_context, after, size), 0);
    assert_int_equal(run(&guest), PLATFORM_SYSCALL);
    assert_int_equal(guest.regs.rsi, 0x123456);
    fake_enter(current->mm); /* another context: nothing of the last one's */
    assert_int_equal(platform->get_xstate(current->host_context, after, size), 0);
    assert_int_equal(*(uint64_t *)(after + 160 + 48), 0);
}

static void *interrupter(void *argument)
{
    usleep(20000);
    kernel_lock();
    platform->interrupt(argument);
    kernel_unlock();
    return NULL;
}

static void test_interrupt(void **state)
{
    struct guest guest;
    pthread_t thread;

    (void)state;
    LOAD(&guest, spin);
    guest.regs.rdi = DATA;
    pthread_create(&thread, NULL, interrupter, current->host_context);
    assert_int_equal(run(&guest), PLATFORM_INTERRUPT);
    pthread_join(thread, NULL);
    platform->interrupt(current->host_context); /* before it runs */
    assert_int_equal(run(&guest), PLATFORM_INTERRUPT);
    platform->interrupt(current->host_context); /* while it is changed */
    mm_unmap(current->mm, DATA, PAGE_SIZE);
    assert_int_equal(run(&guest), PLATFORM_INTERRUPT);
}

static void test_death(void **state)
{
    struct guest guest;

    (void)state;
    LOAD(&guest, loop_calls);
    run(&guest);
    assert_int_equal(kill(current->host_context->as->pid, SIGKILL), 0);
    assert_int_equal(run(&guest), PLATFORM_DEAD);
    assert_int_equal(run(&guest), PLATFORM_DEAD);
    mm_unmap(current->mm, CODE, PAGE_SIZE);
}

struct other {
    struct mm *mm;
    struct guest guest;
    enum platform_event event;
};

/* A thread of the sentry with a task of its own in the same address space. */
static void *run_other(void *argument)
{
    struct other *other = argument;
    struct task task = {.mm = other->mm};

    kernel_lock();
    current = &task;
    TAILQ_INSERT_TAIL(all_tasks, &task, link);
    assert_int_equal(platform->new_context(other->mm->host_as, &task.host_context), 0);
    other->event = run(&other->guest);
    platform->release_context(task.host_context);
    TAILQ_REMOVE(all_tasks, &task, link);
    current = NULL;
    kernel_unlock();
    return NULL;
}

/* Our guest has called vfork, so that there is a thread for the other, whose code is another. */
static void make_other(struct other *other, struct guest *guest, const char *from, const char *end)
{
    *other = (struct other){.mm = current->mm};
    LOAD(guest, loop_calls);
    copy_out(current->mm, CODE, "\xb8\x3a\0\0\0\x0f\x05", 7);
    copy_out(current->mm, CODE + 16, from, (size_t)(end - from));
    assert_int_equal(run(guest), PLATFORM_SYSCALL);
    other->guest.regs = (struct user_regs_struct){.rip = CODE + 16, .rsp = STACK, .rdi = DATA};
}

static int stage; /* of what follows; with the kernel's lock */

static void until_stage(int wanted)
{
    for (; stage < wanted; kernel_lock()) {
        kernel_unlock();
        usleep(1000);
    }
}

/* Its thread of the stub dies while it is stopped, and no wait has said so. It gives back the address space, too:
   the end of this thread would let go of what it traces. */
static void *die_stopped(void *argument)
{
    struct other *other = argument;
    struct task task = {.mm = other->mm};
    struct user_regs_struct regs;

    kernel_lock();
    current = &task;
    TAILQ_INSERT_TAIL(all_tasks, &task, link);
    assert_int_equal(platform->new_context(other->mm->host_as, &task.host_context), 0);
    assert_int_equal(run(&other->guest), PLATFORM_SYSCALL);
    assert_int_equal(kill(task.host_context->as->pid, SIGKILL), 0);
    while (ptrace(PTRACE_GETREGS, task.host_context->tid, 0, &regs) == 0)
        continue;
    other->event = run(&other->guest);
    platform->release_context(task.host_context);
    TAILQ_REMOVE(all_tasks, &task, link);
    stage = 1;
    until_stage(2);
    mm_put(other->mm);
    current = NULL;
    kernel_unlock();
    return NULL;
}

static void test_death_of_a_stopped_thread(void **state)
{
    struct other other;
    struct guest guest;
    pthread_t thread;

    (void)state;
    make_other(&other, &guest, blob_store_load, blob_store_load_end);
    pthread_create(&thread, NULL, die_stopped, &other);
    until_stage(1);
    assert_int_equal(other.event, PLATFORM_DEAD);
    assert_int_equal(run(&guest), PLATFORM_DEAD);
    fake_enter(mm_new());
    current->mm->tasks = 1;
    stage = 2;
    kernel_unlock();
    pthread_join(thread, NULL);
    kernel_lock();
}

static void test_threads(void **state)
{
    enum { N = 12 };
    struct other others[N];
    pthread_t threads[N];
    struct guest guest;
    unsigned i;
    uint64_t value;

    (void)state;
    LOAD(&guest, loop_calls);
    copy_out(current->mm, CODE, "\xb8\x3a\0\0\0\x0f\x05",
             7); /* vfork: the platform readies a thread */
    for (i = 0; i < N; i++) {
        guest.regs.rip = CODE;
        assert_int_equal(run(&guest), PLATFORM_SYSCALL);
        others[i] = (struct other){.mm = current->mm};
        others[i].guest.regs = (struct user_regs_struct){
            .rip = CODE + 16, .rsp = STACK, .rdi = DATA + i * PAGE_SIZE, .rsi = i + 1};
        if (i == 0)
            copy_out(current->mm, CODE + 16, blob_store_load,
                     (size_t)(blob_store_load_end - blob_store_load));
        pthread_create(&threads[i], NULL, run_other, &others[i]);
        if (i % 3 == 0) { /* some at once, some one by one */
            kernel_unlock();
            usleep(3000);
            kernel_lock();
        } else {
            kernel_unlock();
            pthread_join(threads[i], NULL);
            kernel_lock();
        }
    }
    kernel_unlock();
    for (i = 0; i < N; i += 3)
        pthread_join(threads[i], NULL);
    kernel_lock();
    for (i = 0; i < N; i++) {
        assert_int_equal(others[i].event, PLATFORM_SYSCALL);
        copy_in(current->mm, &value, DATA + i * PAGE_SIZE, 8);
        assert_int_equal(value, i + 1);
    }
}

/* Takes the thread that was readied for it, and asks for one, too. */
static void *ask_too(void *argument)
{
    struct other *other = argument;
    struct task task = {.mm = other->mm};

    kernel_lock();
    current = &task;
    TAILQ_INSERT_TAIL(all_tasks, &task, link);
    assert_int_equal(platform->new_context(other->mm->host_as, &task.host_context), 0);
    other->event = run(&other->guest);
    stage = 1;
    until_stage(2);
    platform->release_context(task.host_context);
    TAILQ_REMOVE(all_tasks, &task, link);
    current = NULL;
    kernel_unlock();
    return NULL;
}

/* Two guests have asked for a thread before either has taken one: there are two. */
static void test_two_ask_at_once(void **state)
{
    struct platform_context *contexts[2];
    struct other other;
    struct guest guest;
    pthread_t thread;
    int errors[2], i;

    (void)state;
    make_other(&other, &guest, blob_store_load, blob_store_load_end);
    other.guest.regs.rip = CODE; /* vfork */
    pthread_create(&thread, NULL, ask_too, &other);
    until_stage(1);
    assert_int_equal(other.event, PLATFORM_SYSCALL);
    guest.regs.rip = CODE;
    assert_int_equal(run(&guest), PLATFORM_SYSCALL);
    for (i = 0; i < 2; i++)
        errors[i] = platform->new_context(current->mm->host_as, &contexts[i]);
    for (i = 0; i < 2; i++)
        if (!errors[i])
            platform->release_context(contexts[i]);
    stage = 2;
    kernel_unlock();
    pthread_join(thread, NULL);
    kernel_lock();
    stage = 0;
    assert_int_equal(errors[0], 0);
    assert_int_equal(errors[1], 0);
}

/* munmap by one thread ends what another writes there, at once. */
static void test_unmap_under_writer(void **state)
{
    struct other other;
    struct guest guest;
    pthread_t thread;

    (void)state;
    make_other(&other, &guest, blob_spin, blob_spin_end);
    pthread_create(&thread, NULL, run_other, &other);
    kernel_unlock();
    usleep(20000);
    kernel_lock();
    assert_int_equal(mm_unmap(current->mm, DATA, PAGE_SIZE), 0);
    kernel_unlock();
    pthread_join(thread, NULL);
    kernel_lock();
    assert_int_equal(other.event, PLATFORM_FAULT);
    assert_int_equal(other.guest.signo, SIGSEGV);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(calls),           TEST(memory),
        TEST(stack_grows),     TEST(fork),
        TEST(exceptions),      TEST(xstate),
        TEST(interrupt),       TEST(death),
        TEST(threads),         TEST(unmap_under_writer),
        TEST(two_ask_at_once), TEST(death_of_a_stopped_thread),
    };

    platform = &platform_ptrace;
    fake_sentry(64ul << 20);
    kernel_unlock();
    cmocka_set_test_filter(getenv("CMOCKA_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
