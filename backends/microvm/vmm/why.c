/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * why - reasons, and the one way out. The process ends by exit_group alone: no handler runs, nothing is flushed,
 * because other threads are in the middle of something and the guest has no claim on it any more.
 * Threads: any. Who comes second waits for the end that the first one brings.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "control.h"
#include "why.h"

static pthread_mutex_t last_word = PTHREAD_MUTEX_INITIALIZER;

int why(struct why *w, int code, const char *fmt, ...)
{
    va_list ap;

    if (w) {
        va_start(ap, fmt);
        vsnprintf(w->text, sizeof(w->text), fmt, ap);
        va_end(ap);
    }
    return code;
}

/* @seccomp vmm vcpu: write exit_group futex */
void vmm_end(enum vmm_exit status, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    int n;

    pthread_mutex_lock(&last_word);
    va_start(ap, fmt);
    n = vsnprintf(line, sizeof(line) - 1, fmt, ap);
    va_end(ap);
    if (n > (int)sizeof(line) - 2)
        n = sizeof(line) - 2;
    if (n > 0) {
        line[n++] = '\n';
        (void)!write(VMM_FD_STDERR, line, (size_t)n);
    }
    _exit(status);
}
