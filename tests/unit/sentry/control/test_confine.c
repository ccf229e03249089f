/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What the sentry may ask of the host: the filter is run here over single calls, as the kernel would, and once for real. */
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "confine.h"
#include "control.h"

#define THREAD                                                                                     \
    (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |            \
     CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

static bool jumps(const struct sock_filter *f, uint32_t a)
{
    switch (BPF_OP(f->code)) {
    case BPF_JEQ:
        return a == f->k;
    case BPF_JGT:
        return a > f->k;
    case BPF_JGE:
        return a >= f->k;
    case BPF_JSET:
        return (a & f->k) != 0;
    default:
        fail_msg("jump %#x", f->code);
    }
    return false;
}

static uint32_t judge(const struct seccomp_data *data)
{
    const struct sock_filter *f = confine_program.filter, *end = f + confine_program.len;
    uint32_t a = 0;

    for (; f < end; f++)
        switch (f->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            memcpy(&a, (const char *)data + f->k, sizeof(a));
            break;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= f->k;
            break;
        case BPF_JMP | BPF_JA:
            f += f->k;
            break;
        case BPF_RET | BPF_K:
            return f->k;
        default:
            f += jumps(f, a) ? f->jt : f->jf;
        }
    fail_msg("the filter has no end");
    return 0;
}

static uint32_t call(int nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3)
{
    struct seccomp_data d = {.nr = nr, .arch = AUDIT_ARCH_X86_64, .args = {a0, a1, a2, a3}};

    return judge(&d);
}

static void is_short(void **state)
{
    int nr, open = 0;

    (void)state;
    for (nr = 0; nr < 512; nr++)
        open += call(nr, 0, 0, 0, 0) == SECCOMP_RET_ALLOW;
    assert_true(confine_calls <= 80);
    assert_true(open > 0 && open <= (int)confine_calls);
}

static void refuses(void **state)
{
    static const int never[] = {SYS_open,
                                SYS_openat,
                                SYS_openat2,
                                SYS_creat,
                                SYS_socket,
                                SYS_connect,
                                SYS_bind,
                                SYS_execve,
                                SYS_execveat,
                                SYS_fork,
                                SYS_vfork,
                                SYS_unshare,
                                SYS_setns,
                                SYS_mount,
                                SYS_bpf,
                                SYS_io_uring_setup,
                                SYS_chroot,
                                SYS_pivot_root,
                                SYS_process_vm_readv,
                                SYS_process_vm_writev,
                                SYS_memfd_create,
                                SYS_pidfd_getfd,
                                SYS_open_by_handle_at,
                                SYS_keyctl,
                                SYS_setuid,
                                SYS_capset,
                                SYS_shmget,
                                SYS_userfaultfd,
                                SYS_perf_event_open};
    struct seccomp_data other = {.nr = SYS_read, .arch = AUDIT_ARCH_I386};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(never) / sizeof(never[0]); i++)
        if (call(never[i], 0, 0, 0, 0) == SECCOMP_RET_ALLOW)
            fail_msg("system call %d is allowed", never[i]);
    assert_int_equal(call(SYS_clone3, 0, 0, 0, 0), SECCOMP_RET_ERRNO | 38 /* ENOSYS */);
    assert_int_equal(call(SYS_clone, SIGCHLD, 0, 0, 0), SECCOMP_RET_TRAP);
    assert_int_equal(call(SYS_clone, THREAD | CLONE_NEWUSER, 0, 0, 0), SECCOMP_RET_TRAP);
    assert_int_equal(call(SYS_clone, THREAD, 0, 0, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_mmap, 0, 4096, PROT_READ | PROT_EXEC, 0), SECCOMP_RET_TRAP);
    assert_int_equal(call(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_mprotect, 0, 4096, PROT_EXEC, 0), SECCOMP_RET_TRAP);
    assert_int_equal(call(SYS_ptrace, PTRACE_ATTACH, 1, 0, 0), SECCOMP_RET_TRAP);
    assert_int_equal(call(SYS_ptrace, PTRACE_POKEDATA, 1, 0, 0), SECCOMP_RET_TRAP);
    assert_int_equal(call(SYS_ptrace, PTRACE_SYSEMU, 1, 0, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(call(SYS_kill, 1, SIGTERM, 0, 0), SECCOMP_RET_TRAP);
    assert_int_equal(call(SYS_recvmsg, 4, 0, 0, 0), SECCOMP_RET_TRAP); /* not close-on-exec */
    assert_int_equal(judge(&other), SECCOMP_RET_KILL_PROCESS);
    other = (struct seccomp_data){.nr = 0x40000000 | SYS_read, .arch = AUDIT_ARCH_X86_64};
    assert_true(judge(&other) != SECCOMP_RET_ALLOW);
}

#if !defined(__SANITIZE_ADDRESS__)
static void bites(void **state)
{
    int p[2], status;
    char text[200] = "";
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(p), 0);
    pid = fork();
    if (pid == 0) {
        dup2(p[1], SENTRY_FD_LOG);
        if (confine_sentry() < 0)
            _exit(77);
        (void)!write(SENTRY_FD_LOG, "confined\n", 9);
        syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY);
        _exit(78);
    }
    close(p[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(read(p[0], text, sizeof(text) - 1) > 0);
    assert_string_equal(text, "confined\nsentry: a thread asked the host for system call 0257\n");
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), SENTRY_EXIT_HOST);
    close(p[0]);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_short),
        cmocka_unit_test(refuses),
#if !defined(__SANITIZE_ADDRESS__)
        cmocka_unit_test(bites),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
