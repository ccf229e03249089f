/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * filter - what the gofer may ask of the host's kernel: the list is what the annotations beside the code ask for.
 * Anything else ends it at once.
 *
 * The C library's own, and the end: @seccomp gofer: exit_group rt_sigreturn restart_syscall
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gofer.h"
#include "gofer_filter.h"

int gofer_filter(void)
{
#if defined(__SANITIZE_ADDRESS__)
    (void)filter_gofer;
    return -ENOSYS;
#else
    struct sock_fprog program = {.len = sizeof(filter_gofer) / sizeof(filter_gofer[0]),
                                 .filter = (struct sock_filter *)filter_gofer};

    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0 ? -errno : 0;
#endif
}
