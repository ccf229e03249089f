/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* ptrace.h - what the files of the ptrace platform know of each other. */
#ifndef SENTRY_PTRACE_H
#define SENTRY_PTRACE_H

#include <pthread.h>

#include "../platform.h"
#include "stub.h"

#define INTERRUPT_SIGNAL SIGURG /* a resting thread ignores it */
#define XSTATE_MAX 16384
#define RESTING_MAX 32u
#define RESTING_KEPT 8u /* of threads that have ended */
#define POOL_MAX 8u
#define USER_CS 0x33u
#define USER_SS 0x2bu
#define USER32_CS 0x23u

struct platform_as {
    pid_t pid;
    bool dead, fresh; /* fresh: not yet bound to its parent's death */
    bool reaped;      /* its id may be another's */
    unsigned threads;
    pthread_mutex_t lock; /* of what follows */
    unsigned n_resting;
    unsigned n_asking; /* contexts whose guest is in a call that takes a resting one */
    pid_t resting[RESTING_MAX];
    struct platform_as *next; /* of the pool */
};

/* Of near.c. */
struct near {
    pid_t sentry;     /* the thread of the sentry */
    bool listed;      /* near_leave() has something to do */
    bool bound;       /* atomic: both may run on one processor alone */
    uint32_t runs;    /* atomic: how often guest code was entered */
    uint32_t seen;    /* of them, at the last look */
    uint64_t entered; /* ms */
    uint64_t since;   /* bound, ms */
    TAILQ_ENTRY(platform_context) link;
};

struct platform_context {
    struct platform_as *as;
    pid_t tid;
    bool dead, reaped, asks;
    bool interrupted, running; /* atomic */
    struct near near;
};

int near_begin(void); /* before there is a context; -errno */
void near_join(struct platform_context *context);
void near_leave(struct platform_context *context);
void near_enter(struct platform_context *context);   /* guest code is about to run */
void near_stopped(struct platform_context *context); /* it has stopped */

int ptrace_change(struct platform_context *context, const struct platform_change *changes,
                  unsigned n_changes);
struct user_regs_struct ptrace_own_regs(uint64_t rip);
/* Makes registers ones that the host may get; true: they cannot be run, and the stop says what the guest gets instead. */
bool ptrace_judge(struct user_regs_struct *regs, struct platform_stop *ret_stop);
/* What a stop of the guest is; true: nothing that the kernel need know, go on. */
bool ptrace_read_stop(struct platform_context *context, int status, struct user_regs_struct *regs,
                      struct platform_stop *ret_stop);

#endif
