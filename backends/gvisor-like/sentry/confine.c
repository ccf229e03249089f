/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * confine - puts the sentry's filter on, as the last act before START: the list is what the annotations beside the code
 * ask for, made at build time (core/util/confine). A call that is not on it ends the sentry, and with it
 * the cell, after its number was said.
 *
 *   Should: be the last stage; every descriptor that is not a file of the image has to be there.
 *   Mustn't: allow execve, open, socket, a process, or memory that can be executed. Threads are made with exactly the flags of
 *   pthread_create; clone3, whose flags a filter cannot see, is answered with ENOSYS.
 *
 * Of pthread_create: @seccomp sentry: clone3!ENOSYS mmap munmap mprotect rt_sigprocmask set_robust_list rseq
 * @seccomp sentry: clone(0=PTHREAD_CREATE_FLAGS)
 * Of the arena and of stacks: @seccomp sentry: madvise(2=MADV_DONTNEED) madvise(2=MADV_DONTDUMP)
 * Answers to signals: @seccomp sentry: rt_sigreturn restart_syscall
 * The end: @seccomp sentry: exit exit_group
 */
#include <errno.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/seccomp.h>

#include "confine.h"
#include "control.h"
#include "refuse.h"
#include "sentry_filter.h"

const struct sock_fprog confine_program = {.len = sizeof(filter_sentry) / sizeof(filter_sentry[0]),
                                           .filter = (struct sock_filter *)filter_sentry};
const unsigned confine_calls = FILTER_sentry_CALLS;

int confine_sentry(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return -ENOSYS;
#else
    long r = refuse_by("sentry: a thread asked the host for system call ", SENTRY_FD_LOG,
                       SENTRY_EXIT_HOST);

    if (r < 0)
        return (int)r;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &confine_program);
    return r < 0 ? -errno : r > 0 ? -ESRCH : 0; /* > 0: a thread that has another filter */
#endif
}
