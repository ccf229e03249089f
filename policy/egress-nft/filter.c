/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * filter - the system call filter of the gate, and of the HTTP engine. The program FILTER_PROGRAM is
 * computed at build time (gen-filter.c with the calls.c of either), so neither carries a filter
 * compiler. A sanitizer needs more calls; such builds (NO_FILTER) run without.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include WATCH_HEADER

#ifndef NO_FILTER
#include FILTER_PROGRAM

int filter_install(void)
{
    static const struct sock_fprog prog = {
        sizeof(filter_program) / sizeof(filter_program[0]),
        (struct sock_filter *)(uintptr_t)filter_program,
    };

    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) < 0 ? -errno : 0;
}
#else
int filter_install(void)
{
    return 0;
}
#endif
