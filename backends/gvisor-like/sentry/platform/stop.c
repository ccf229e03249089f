/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * stop - registers on their way to the host, and stops on their way back.
 * Registers come from frames of signals that guests write: nothing in them is believed. A stop is the host's word.
 * Threads: the context's own.
 */
#include <linux/audit.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "ptrace.h"

#define FLAGS_USER 0x254dd5ul /* CF PF AF ZF SF TF DF OF NT RF AC ID */
#define FLAGS_ALWAYS 0x202ul

bool ptrace_judge(struct user_regs_struct *regs, struct platform_stop *ret_stop)
{
    regs->cs = USER_CS;
    regs->ss = USER_SS;
    regs->ds = regs->es = regs->fs = regs->gs = 0;
    regs->eflags = (regs->eflags & FLAGS_USER) | FLAGS_ALWAYS;
    regs->orig_rax = UINT64_MAX; /* the host has nothing to restart */
    ret_stop->info.si_signo = SIGSEGV;
    if (regs->rip >= PLATFORM_GUEST_MAX) {
        ret_stop->event = PLATFORM_FAULT;
        ret_stop->info.si_code = SEGV_MAPERR;
        ret_stop->info.si_addr = (void *)regs->rip;
        return true;
    }
    if (regs->fs_base >= PLATFORM_GUEST_MAX || regs->gs_base >= PLATFORM_GUEST_MAX) {
        regs->fs_base = regs->fs_base >= PLATFORM_GUEST_MAX ? 0 : regs->fs_base;
        regs->gs_base = regs->gs_base >= PLATFORM_GUEST_MAX ? 0 : regs->gs_base;
        ret_stop->event = PLATFORM_SIGNAL;
        ret_stop->info.si_code = SI_KERNEL;
        return true;
    }
    return false;
}

/* By `int 0x80` or in 32-bit mode. `syscall` leaves rip in rcx, so the host need seldom be asked; a guest that forges that
   gets the answer of the 64-bit call. */
static bool is_compat(const struct platform_context *context, const struct user_regs_struct *regs)
{
    struct __ptrace_syscall_info info;

    if (regs->cs != USER_CS)
        return true;
    if (regs->rcx == regs->rip)
        return false;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, context->tid, sizeof(info), &info) < 0)
        return true;
    return info.arch != AUDIT_ARCH_X86_64;
}

static bool exception(const siginfo_t *info, struct platform_stop *ret_stop)
{
    bool address = info->si_signo == SIGSEGV
                       ? info->si_code == SEGV_MAPERR || info->si_code == SEGV_ACCERR
                       : info->si_signo == SIGBUS && info->si_code == BUS_ADRERR;

    ret_stop->info = *info;
    ret_stop->event = address ? PLATFORM_FAULT : PLATFORM_SIGNAL;
    return false;
}

/* The host was to do a call of the vsyscall page, and the filter has kept it from that: rip is behind it. */
static bool vsyscall(const siginfo_t *info, struct user_regs_struct *regs,
                     struct platform_stop *ret_stop)
{
    regs->orig_rax = (uint64_t)(uint32_t)info->si_syscall;
    regs->rax = (uint64_t)-ENOSYS;
    ret_stop->event = PLATFORM_SYSCALL;
    return false;
}

bool ptrace_read_stop(struct platform_context *context, int status, struct user_regs_struct *regs,
                      struct platform_stop *ret_stop)
{
    int signo = WSTOPSIG(status);
    siginfo_t info;

    if (signo == (SIGTRAP | 0x80)) {
        ret_stop->event = PLATFORM_SYSCALL;
        ret_stop->compat = is_compat(context, regs);
        return false;
    }
    if (status >> 16) /* a stop of the group: nobody stops stubs but the host's operator */
        return true;
    if (signo == INTERRUPT_SIGNAL) {
        __atomic_store_n(&context->interrupted, false, __ATOMIC_SEQ_CST);
        ret_stop->event = PLATFORM_INTERRUPT;
        return false;
    }
    memset(&info, 0, sizeof(info));
    if (ptrace(PTRACE_GETSIGINFO, context->tid, 0, &info) || info.si_code <= 0)
        return true; /* sent by somebody: not an exception */
    switch (signo) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
        return exception(&info, ret_stop);
    case SIGSYS:
        return vsyscall(&info, regs, ret_stop);
    default:
        return true;
    }
}
