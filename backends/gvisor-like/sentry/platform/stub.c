/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * stub - makes the first stub, which all others are copied from.
 * It is forked from the sentry, before the sentry's own filter, and throws away all that it has from it: mappings (also the
 * vdso), handlers of signals, rseq; what stays is the shared table of descriptors, so that a number of the sentry's can be
 * mapped there. Its death follows its parent's, its filter allows what requests need.
 * Invariants: between the fork and the jump into the code page, the child calls nothing that takes a lock.
 * Threads: the main thread, once.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../platform.h"
#include "stub.h"

#define USER_END 0x7ffffffff000ul /* of 47 bits of address */
#define STEP (1ul << 34)          /* between places that are tried */

extern const char stub_code[], stub_code_pause[], stub_code_exit[], stub_code_begin[],
    stub_code_batch[], stub_code_batch_end[], stub_code_clone[], stub_code_clone_end[],
    stub_code_end[];

struct stub_layout stub;

/* Two pages above all guest addresses where the sentry has nothing. */
static int lay_out(void)
{
    uint64_t at;
    char *pages;

    for (at = PLATFORM_GUEST_MAX + STEP; at < USER_END - STEP; at += STEP) {
        pages = mmap((void *)at, 2 * PAGE_SIZE, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (pages == MAP_FAILED)
            continue;
        if ((uint64_t)pages != at) {
            munmap(pages, 2 * PAGE_SIZE);
            continue;
        }
        memcpy(pages, stub_code, (size_t)(stub_code_end - stub_code));
        stub = (struct stub_layout){
            .base = at,
            .pause = at + (uint64_t)(stub_code_pause - stub_code),
            .exit = at + (uint64_t)(stub_code_exit - stub_code),
            .batch = at + (uint64_t)(stub_code_batch - stub_code),
            .batch_end = at + (uint64_t)(stub_code_batch_end - stub_code),
            .clone = at + (uint64_t)(stub_code_clone - stub_code),
            .clone_end = at + (uint64_t)(stub_code_clone_end - stub_code),
            .requests = (struct stub_request *)(pages + PAGE_SIZE),
            .guest_requests = at + PAGE_SIZE,
        };
        return 0;
    }
    return -ENOMEM;
}

#define LOAD(member) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define LOAD_HIGH(member)                                                                          \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member) + 4)
#define EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), yes, no)
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define UNLESS(value) EQUAL(value, 1, 0), RETURN(SECCOMP_RET_KILL_PROCESS)

int stub_confine(uint64_t base)
{
    struct sock_filter code[] = {
        LOAD(arch),
        UNLESS(AUDIT_ARCH_X86_64),
        LOAD(nr),
        /* A guest's call of the vsyscall page, which the host makes by itself and never runs for it. */
        EQUAL(SYS_gettimeofday, 2, 0),
        EQUAL(SYS_time, 1, 0),
        EQUAL(SYS_getcpu, 0, 1),
        RETURN(SECCOMP_RET_TRAP),
        LOAD_HIGH(instruction_pointer),
        UNLESS(base >> 32),
        LOAD(instruction_pointer),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (uint32_t)PAGE_MASK),
        UNLESS(base),
        LOAD(nr),
        EQUAL(SYS_pause, 4, 0),
        EQUAL(SYS_munmap, 3, 0),
        EQUAL(SYS_exit, 2, 0),
        EQUAL(SYS_mmap, 2, 0),
        EQUAL(SYS_clone, 8, 22),
        RETURN(SECCOMP_RET_ALLOW),
        /* mmap: a shared mapping of a descriptor, where the sentry says */
        LOAD_HIGH(args[3]),
        UNLESS(0),
        LOAD(args[3]),
        UNLESS(MAP_SHARED | MAP_FIXED),
        RETURN(SECCOMP_RET_ALLOW),
        /* clone: another stub, another thread */
        LOAD_HIGH(args[0]),
        UNLESS(0),
        LOAD(args[0]),
        EQUAL(STUB_CLONE_PROCESS, 2, 0),
        UNLESS(STUB_CLONE_THREAD),
        LOAD(args[1]), /* never with a stack */
        UNLESS(0),
        LOAD_HIGH(args[1]),
        UNLESS(0),
        RETURN(SECCOMP_RET_ALLOW),
        /* prctl: its death follows its parent's */
        UNLESS(SYS_prctl),
        LOAD(args[0]),
        UNLESS(PR_SET_PDEATHSIG),
        LOAD(args[1]),
        UNLESS(SIGKILL),
        RETURN(SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -errno;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) ? -errno : 0;
}

/* The host would write to the sentry's rseq area, which is the guest's memory soon. */
static void leave_rseq(void)
{
    if (__rseq_size > 0)
        syscall(SYS_rseq, (char *)__builtin_thread_pointer() + __rseq_offset,
                (unsigned long)(__rseq_size > 32 ? __rseq_size : 32), RSEQ_FLAG_UNREGISTER,
                RSEQ_SIG);
}

static void default_signals(void)
{
    const struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        uint64_t mask;
    } action = {0};
    const uint64_t none = 0;
    int signo;

    for (signo = 1; signo <= 64; signo++)
        syscall(SYS_rt_sigaction, signo, &action, NULL, sizeof(uint64_t));
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(uint64_t));
}

_Noreturn static void child(pid_t parent)
{
    volatile uint64_t *go = &stub.requests[0].number;
    uint64_t begin = stub.base + (uint64_t)(stub_code_begin - stub_code);
    uint64_t above = stub.base + 2 * PAGE_SIZE;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) || getppid() != parent ||
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)) /* or its owner's threads may not trace it */
        _exit(1);
    while (!*go)
        sched_yield();
    leave_rseq();
    default_signals();
    if (mprotect((void *)stub.base, PAGE_SIZE, PROT_READ | PROT_EXEC) ||
        mprotect((void *)(stub.base + PAGE_SIZE), PAGE_SIZE, PROT_READ) || stub_confine(stub.base))
        _exit(2);
    register uint64_t high __asm__("r12") = above;
    register uint64_t high_size __asm__("r13") = USER_END - above;
    __asm__ volatile("jmp *%0"
                     :
                     : "r"(begin), "D"(0ul), "S"(stub.base), "r"(high), "r"(high_size)
                     : "memory");
    __builtin_unreachable();
}

int stub_make(pid_t *ret_pid)
{
    pid_t pid, parent = getpid();
    int error, status;

    error = lay_out();
    if (error)
        return error;
    pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    if (pid < 0)
        return -errno;
    if (pid == 0)
        child(parent);
    if (ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD)) {
        error = -errno;
        goto failed;
    }
    __atomic_store_n(&stub.requests[0].number, 1, __ATOMIC_SEQ_CST);
    /* The code page is the sentry's no more: there it is neither written nor run. */
    if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status) ||
        WSTOPSIG(status) != SIGTRAP) {
        error = -EPROTO;
        goto failed;
    }
    munmap((void *)stub.base, PAGE_SIZE);
    stub.requests[0].number = 0;
    *ret_pid = pid;
    return 0;
failed:
    kill(pid, SIGKILL);
    waitpid(pid, NULL, __WALL);
    return error;
}
