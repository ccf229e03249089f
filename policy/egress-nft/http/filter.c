/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * filter - the HTTP engine's own system call filter. The program is computed at build time
 * (gen-filter.c), so the engine carries no filter compiler. A sanitizer needs more calls; such builds
 * run without.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include "http.h"

#ifndef ENGINE_NO_FILTER
#include "http-filter.h"

int filter_install(void)
{
    static const struct sock_fprog prog = {
        sizeof(http_filter) / sizeof(http_filter[0]),
        (struct sock_filter *)(uintptr_t)http_filter,
    };

    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) < 0 ? -errno : 0;
}
#else
int filter_install(void)
{
    return 0;
}
#endif
