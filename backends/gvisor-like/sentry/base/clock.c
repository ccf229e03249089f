/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* clock - the host's clocks as the guest may see them. Threads: any. */
#include <time.h>

#include "kernel.h"

static uint64_t began;

/* @seccomp sentry: clock_gettime */
static uint64_t read_clock(clockid_t id)
{
    struct timespec now;

    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t clock_monotonic(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_realtime(void)
{
    return read_clock(CLOCK_REALTIME);
}

uint64_t clock_boottime(void)
{
    uint64_t now = clock_monotonic(), never = 0;

    __atomic_compare_exchange_n(&began, &never, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return now - __atomic_load_n(&began, __ATOMIC_RELAXED);
}
