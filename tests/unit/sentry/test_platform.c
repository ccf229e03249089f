/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The ptrace platform with real guest code, and mm on top of it: what a guest does, the sentry sees, and nobody else. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_platform.h"
#include "platform/ptrace.h"

#define RW (PROT_READ | PROT_WRITE)
#define RWX (RW | PROT_EXEC)
#define CODE 0x400000ul
#define DATA 0x20000000ul
#define STACK 0x30000000ul

/* Guest code: position independent, each ends in a system call that the test knows. */
#define BLOB(name, text)                                                                           \
    __asm__(".section .rodata\n.globl blob_" #name "\nblob_" #name ":\n" text                      \
            "\n.globl blob_" #name "_end\nblob_" #name "_end:\n.text\n");                          \
    extern const char blob_##name[], blob_##name##_end[]

BLOB(loop_calls, "1: mov $39, %eax\n syscall\n mov %eax, %ebx\n jmp 1b");
BLOB(store_load, "movq %rsi, (%rdi)\n movq (%rdi), %rdx\n mov $1000, %eax\n syscall");
BLOB(spin, "1: incq (%rdi)\n jmp 1b");
BLOB(int80, "mov $20, %eax\n int $0x80\n mov $1, %eax\n syscall");
BLOB(compat, "subq $16, %rsp\n leaq 1f(%rip), %rax\n movl $0x23, 4(%rsp)\n movl %eax, (%rsp)\n"
             "lretl\n .code32\n1: movl $20, %eax\n int $0x80\n .code64");
BLOB(jump, "jmp *%rbx");
BLOB(divide, "xorl %ecx, %ecx\n divl %ecx");
BLOB(vsyscall, "movq $0xffffffffff600000, %rax\n call *%rax\n mov $1000, %eax\n syscall");
BLOB(fpu, "movq %rdi, %xmm3\n mov $1000, %eax\n syscall\n movq %xmm3, %rsi\n mov $1001, %eax\n"
          "syscall");
BLOB(push, "1: push %rax\n decq %rcx\n jnz 1b\n mov $1000, %eax\n syscall");

struct guest {
    struct user_regs_struct regs;
    struct platform_stop stop;
    int signo, code;
    unsigned faults;
};

static int set_up(void **state)
{
    (void)state;
    alarm(30); /* a guest that does not stop is a failure */
    kernel_lock();
    fake_task();
    return 0;
}

static int tear_down(void **state)
{
    struct task *task = current;
    struct mm *mm = task->mm;

    (void)state;
    alarm(0);
    fake_enter(NULL);
    mm_put(mm);
    TAILQ_REMOVE(all_tasks, task, link);
    arena_free(task->process);
    arena_free(task);
    current = NULL;
    assert_int_equal(memfile_used(), 0);
    kernel_unlock();
    return 0;
}

static void load(struct guest *guest, const char *from, const char *end)
{
    struct mm *mm = current->mm;

    *guest = (struct guest){.regs = {.rip = CODE, .rsp = STACK}};
    mm_map(mm, CODE, PAGE_SIZE, PROT_READ | PROT_EXEC | PROT_WRITE, RWX, MM_FIXED, NULL, NULL, 0);
    mm_map(mm, DATA, 64 * PAGE_SIZE, RW, RWX, MM_FIXED, NULL, NULL, 0);
    mm_map(mm, STACK - PAGE_SIZE, PAGE_SIZE, RW, RWX, MM_FIXED | MM_GROWSDOWN, NULL, NULL, 0);
    assert_int_equal(copy_out(mm, CODE, from, (size_t)(end - from)), 0);
}
#define LOAD(guest, name) load(guest, blob_##name, blob_##name##_end)

/* Runs until something that is not a fault of mm's; as task/run.c does. */
static enum platform_event run(struct guest *guest)
{
    for (;;) {
        mm_boundary(current->mm);
        current->in_guest = true;
        kernel_unlock();
        assert_int_equal(platform->run(current->host_context, &guest->regs, &guest->stop), 0);
        kernel_lock();
        current->in_guest = false;
        guest->signo = guest->code = 0;
        if (guest->stop.event != PLATFORM_FAULT ||
            mm_fault(current->mm, &guest->stop, &guest->regs, &guest->signo, &guest->code))
            return guest->stop.event;
        guest->faults++;
    }
}

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

static void test_no_execute(void **state)
{
    struct guest guest;

    (void)state;
    LOAD(&guest, jump);
    copy_out(current->mm, DATA, "\x90\x90\x90", 3);
    guest.regs.rbx = DATA;
    assert_int_equal(run(&guest), PLATFORM_FAULT);
    assert_int_equal(guest.signo, SIGSEGV);
    assert_int_equal(guest.code, SEGV_ACCERR);
}

/* An instruction whose second half lies in a page that is not executable must not fault for ever. */
static void test_no_execute_across(void **state)
{
    struct guest guest;

    (void)state;
    LOAD(&guest, jump);
    mm_map(current->mm, CODE + PAGE_SIZE, PAGE_SIZE, RW, RWX, MM_FIXED, NULL, NULL, 0);
    copy_out(current->mm, CODE + PAGE_SIZE - 1, "\xb8\1\0\0\0", 5); /* mov $1, %eax */
    guest.regs.rip = CODE + PAGE_SIZE - 1;
    assert_int_equal(run(&guest), PLATFORM_FAULT);
    assert_int_equal(guest.signo, SIGSEGV);
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

/* What a stub had mapped is not there for the next guest that gets it. */
static void test_reuse(void **state)
{
    struct guest guest;
    struct mm *mm = current->mm, *next;
    unsigned i;

    (void)state;
    LOAD(&guest, store_load);
    guest.regs.rdi = DATA;
    run(&guest);
    for (i = 0; i < 20; i++) {
        fake_enter(NULL);
        mm_put(mm);
        next = mm_new();
        assert_non_null(next);
        fake_enter(next);
        mm = next;
        guest.regs = (struct user_regs_struct){.rip = CODE, .rsp = STACK};
        assert_int_equal(run(&guest), PLATFORM_FAULT);
        assert_int_equal(guest.signo, SIGSEGV);
        assert_int_equal((uint64_t)guest.stop.info.si_addr, CODE);
        LOAD(&guest, store_load);
        guest.regs.rdi = DATA;
        assert_int_equal(run(&guest), PLATFORM_SYSCALL);
    }
}

static void test_int80(void **state)
{
    struct guest guest;

    (void)state;
    LOAD(&guest, int80);
    assert_int_equal(run(&guest), PLATFORM_SYSCALL);
    assert_true(guest.stop.compat);
    assert_int_equal(guest.regs.orig_rax, 20);
    assert_int_equal(run(&guest), PLATFORM_SYSCALL);
    assert_false(guest.stop.compat);
}

static void test_compat(void **state)
{
    struct guest guest;

    (void)state;
    LOAD(&guest, compat);
    assert_int_equal(run(&guest), PLATFORM_SYSCALL);
    assert_true(guest.stop.compat);
    assert_int_equal(guest.regs.cs, USER32_CS);
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

/* The guest in the stub's own code, with registers of its choice: whatever it asks for there, the sentry is asked. */
static void test_stub_code(void **state)
{
    const uint64_t entries[] = {stub.batch, stub.clone, stub.pause, stub.exit};
    struct guest guest;
    unsigned i;

    (void)state;
    LOAD(&guest, store_load);
    guest.regs.rdi = DATA; /* mapped from here on: a guest is not resumed after a fault up there */
    run(&guest);
    for (i = 0; i < 4; i++) {
        uint64_t request[7] = {SYS_munmap, CODE, PAGE_SIZE};

        copy_out(current->mm, DATA, request, sizeof(request));
        guest.regs = (struct user_regs_struct){
            .rip = CODE, .rsp = STACK, .rax = SYS_munmap, .rdi = CODE, .rsi = PAGE_SIZE, .rbp = 1};
        guest.regs.rbx = entries[i];
        /* jmp *%rbx; batch then reads its request where rbx points: put the jump target elsewhere for it. */
        if (entries[i] == stub.batch) {
            copy_out(current->mm, CODE, "\xff\xe1", 2); /* jmp *%rcx */
            guest.regs.rcx = stub.batch;
            guest.regs.rbx = DATA;
        } else {
            copy_out(current->mm, CODE, "\xff\xe3", 2);
        }
        assert_int_equal(run(&guest), PLATFORM_SYSCALL);
        assert_true(guest.regs.rip > PLATFORM_GUEST_MAX);
        if (entries[i] != stub.pause && entries[i] != stub.exit)
            assert_int_equal(guest.regs.orig_rax, SYS_munmap);
        guest.regs.rax = 0x5ca1ab1e;
        /* A guest is not resumed up there, and finds its page where it was. */
        assert_int_equal(run(&guest), PLATFORM_FAULT);
        assert_int_equal(guest.signo, SIGSEGV);
    }
    LOAD(&guest, loop_calls);
    assert_int_equal(run(&guest), PLATFORM_SYSCALL);
}

static void test_vsyscall(void **state)
{
    struct guest guest;
    uint64_t after;

    (void)state;
    LOAD(&guest, vsyscall);
    if (run(&guest) == PLATFORM_FAULT) { /* a host without the page */
        assert_int_equal(guest.signo, SIGSEGV);
        return;
    }
    assert_int_equal(guest.stop.event, PLATFORM_SYSCALL);
    assert_int_equal(guest.regs.orig_rax, SYS_gettimeofday);
    after = guest.regs.rip;
    assert_true(after > CODE && after < CODE + PAGE_SIZE);
    assert_int_equal(run(&guest), PLATFORM_SYSCALL);
    assert_int_equal(guest.regs.orig_rax, 1000);
}

static void test_bad_registers(void **state)
{
    struct guest guest;

    (void)state;
    LOAD(&guest, loop_calls);
    guest.regs.cs = 0x10;
    guest.regs.ss = guest.regs.ds = guest.regs.fs = 0xffff;
    guest.regs.eflags = UINT64_MAX & ~0x100ul;
    guest.regs.orig_rax = SYS_exit_group;
    guest.regs.rax = (uint64_t)-ERESTARTNOINTR;
    assert_int_equal(run(&guest), PLATFORM_SYSCALL);
    assert_int_equal(guest.regs.orig_rax, SYS_getpid);
    assert_int_equal(guest.regs.cs, USER_CS);
    assert_int_equal(guest.regs.eflags & 0x3000, 0); /* IOPL */
    guest.regs.fs_base = 0xffff800000000000ul;
    assert_int_equal(run(&guest), PLATFORM_SIGNAL);
    assert_int_equal(guest.stop.info.si_signo, SIGSEGV);
    guest.regs.rip = 0x800000000000ul;
    assert_int_equal(run(&guest), PLATFORM_FAULT);
    guest.regs.rip = stub.clone;
    assert_int_equal(run(&guest), PLATFORM_FAULT);
    guest.regs.rip = CODE;
    assert_int_equal(run(&guest), PLATFORM_SYSCALL);
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

/* munmap by one thread ends what another writes there, at once. */
static void test_unmap_under_writer(void **state)
{
    struct other other = {.mm = current->mm};
    struct guest guest;
    pthread_t thread;

    (void)state;
    LOAD(&guest, loop_calls);
    copy_out(current->mm, CODE, "\xb8\x3a\0\0\0\x0f\x05", 7);
    copy_out(current->mm, CODE + 16, blob_spin, (size_t)(blob_spin_end - blob_spin));
    run(&guest);
    other.guest.regs = (struct user_regs_struct){.rip = CODE + 16, .rsp = STACK, .rdi = DATA};
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

/* The stub's filter over one call: made from the page that it names, or from elsewhere. How the process ended. */
static int filtered(bool inside, const uint64_t call[7])
{
    char *page = mmap(NULL, PAGE_SIZE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* Loads number and arguments from rdi, makes the call, and exits from within the page. */
    static const char code[] = "\x48\x8b\x07\x48\x8b\x77\x10\x48\x8b\x57\x18\x4c\x8b\x57\x20"
                               "\x4c\x8b\x47\x28\x4c\x8b\x4f\x30\x48\x8b\x7f\x08\x0f\x05"
                               "\xb8\x3c\0\0\0\x31\xff\x0f\x05";
    int status;
    pid_t pid;

    assert_ptr_not_equal(page, MAP_FAILED);
    memcpy(page, code, sizeof(code));
    mprotect(page, PAGE_SIZE, PROT_READ | PROT_EXEC);
    pid = fork();
    if (pid == 0) {
        if (stub_confine(inside ? (uint64_t)page : (uint64_t)page + PAGE_SIZE))
            _exit(9);
        ((void (*)(const uint64_t *))(uintptr_t)page)(call);
        _exit(8);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    munmap(page, PAGE_SIZE);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

static void test_filter(void **state)
{
    const uint64_t may[][7] = {{SYS_munmap, DATA, PAGE_SIZE},
                               {SYS_mmap, DATA, PAGE_SIZE, PROT_READ, MAP_SHARED | MAP_FIXED, 99},
                               {SYS_prctl, PR_SET_PDEATHSIG, SIGKILL},
                               {SYS_exit}};
    const uint64_t may_not[][7] = {
        {SYS_getpid},
        {SYS_write, 1, 0, 0},
        {SYS_mprotect, DATA, PAGE_SIZE, 7},
        {SYS_mmap, DATA, PAGE_SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, 99},
        {SYS_mmap, DATA, PAGE_SIZE, PROT_READ, MAP_SHARED | MAP_FIXED | 1ul << 40, 99},
        {SYS_clone, SIGCHLD},
        {SYS_clone, CLONE_VM | CLONE_THREAD | CLONE_SIGHAND},
        {SYS_clone, STUB_CLONE_PROCESS, DATA},
        {SYS_prctl, PR_SET_PDEATHSIG, 0},
        {SYS_prctl, PR_SET_DUMPABLE, 1},
        {SYS_exit_group},
        {SYS_ptrace},
        {SYS_openat},
        {SYS_munmap | 0x40000000, DATA, PAGE_SIZE}, /* x32 */
    };
    unsigned i;

    (void)state;
    for (i = 0; i < sizeof(may) / sizeof(may[0]); i++) {
        assert_int_equal(filtered(true, may[i]), 0);
        assert_int_equal(filtered(false, may[i]), SIGSYS); /* from a guest's page */
    }
    for (i = 0; i < sizeof(may_not) / sizeof(may_not[0]); i++)
        assert_int_equal(filtered(true, may_not[i]), SIGSYS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(calls),         TEST(memory),
        TEST(no_execute),    TEST(no_execute_across),
        TEST(stack_grows),   TEST(fork),
        TEST(reuse),         TEST(int80),
        TEST(compat),        TEST(exceptions),
        TEST(stub_code),     TEST(vsyscall),
        TEST(bad_registers), TEST(xstate),
        TEST(interrupt),     TEST(death),
        TEST(threads),       TEST(unmap_under_writer),
        TEST(filter),
    };

    platform = &platform_ptrace;
    fake_sentry(64ul << 20);
    kernel_unlock();
    cmocka_set_test_filter(getenv("CMOCKA_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
