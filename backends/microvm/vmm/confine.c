/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * confine - puts the filters on. Each thread takes its own, as its last act before anything of the guest can run:
 * the processors' threads before they park for the first time, the VMM thread before it reads CONT.
 *
 *   Should: be the last stage; what is opened, mapped or started later has to be in the lists.
 *   Mustn't: allow execve, open, socket, ptrace, clone or memory that can be executed.
 *
 * The calls of the C library that no line of ours shows: @seccomp vmm vcpu: brk munmap mmap rt_sigprocmask
 * Answers to signals, and what a stopped process goes on with: @seccomp vmm vcpu: rt_sigreturn restart_syscall
 * Where the clock is no matter of the vDSO: @seccomp vmm vcpu: clock_gettime
 */
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/seccomp.h>

#include "confine.h"
#include "control.h"
#include "filters.h"
#include "refuse.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

const struct sock_fprog confine_vmm_program = {.len = LEN(filter_vmm),
                                               .filter = (struct sock_filter *)filter_vmm};
const struct sock_fprog confine_vcpu_program = {.len = LEN(filter_vcpu),
                                                .filter = (struct sock_filter *)filter_vcpu};

int confine_prepare(struct why *w)
{
    int r = refuse_by("seccomp: a thread asked for system call ", VMM_FD_STDERR, VMM_EXIT_HOST);

    if (r < 0)
        return why(w, r, "SIGSYS: %s", strerror(-r));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return why(w, -errno, "no new privileges: %s", strerror(errno));
    return 0;
}

static int put_on(const struct sock_fprog *program)
{
#if defined(__SANITIZE_ADDRESS__)
    (void)program;
    return -ENOSYS;
#else
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program) < 0 ? -errno : 0;
#endif
}

int confine_vmm(void)
{
    return put_on(&confine_vmm_program);
}

int confine_vcpu(void)
{
    return put_on(&confine_vcpu_program);
}
