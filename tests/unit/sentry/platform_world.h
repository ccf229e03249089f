/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* platform_world - real guest code on the ptrace platform, with mm on top of it. */
#ifndef CELLA_TEST_PLATFORM_WORLD_H
#define CELLA_TEST_PLATFORM_WORLD_H

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

static inline int set_up(void **state)
{
    (void)state;
    alarm(60); /* a guest that does not stop is a failure */
    kernel_lock();
    fake_task();
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    fake_task_end();
    assert_int_equal(memfile_used(), 0);
    kernel_unlock();
    alarm(0);
    return 0;
}

static inline void load(struct guest *guest, const char *from, const char *end)
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
static inline enum platform_event run(struct guest *guest)
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

#endif
