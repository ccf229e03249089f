/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * lock - the kernel lock: one for all of the kernel's objects (kernel.h says why one is enough).
 * Threads: all of the sentry's.
 */
#include <pthread.h>

#include "kernel.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool mine;

/* @seccomp sentry: futex */
void kernel_lock(void)
{
    pthread_mutex_lock(&lock);
    mine = true;
}

void kernel_unlock(void)
{
    mine = false;
    pthread_mutex_unlock(&lock);
}

void kernel_assert_locked(void)
{
    if (!mine)
        kpanic("an object of the kernel is touched without the kernel lock");
}
