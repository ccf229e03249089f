/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The ptrace platform: what guest code must not do, and does not. */
#include "platform_world.h"

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

/* One that rests may be killed by the host, which is short of memory: it is passed over. */
static void test_killed_at_rest(void **state)
{
    struct guest guest;
    struct mm *mm = current->mm;
    pid_t pid = current->host_context->as->pid;
    siginfo_t info;

    (void)state;
    LOAD(&guest, store_load);
    guest.regs.rdi = DATA;
    assert_int_equal(run(&guest), PLATFORM_SYSCALL);
    fake_enter(NULL);
    mm_put(mm);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | __WALL), 0);
    mm = mm_new();
    assert_non_null(mm);
    fake_enter(mm);
    LOAD(&guest, store_load);
    guest.regs.rdi = DATA;
    assert_int_equal(run(&guest), PLATFORM_SYSCALL);
    assert_int_not_equal(current->host_context->as->pid, pid);
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
        TEST(no_execute),    TEST(no_execute_across),
        TEST(reuse),         TEST(killed_at_rest),
        TEST(int80),         TEST(compat),
        TEST(stub_code),     TEST(vsyscall),
        TEST(bad_registers), TEST(filter),
    };

    platform = &platform_ptrace;
    fake_sentry(64ul << 20);
    kernel_unlock();
    cmocka_set_test_filter(getenv("CMOCKA_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
