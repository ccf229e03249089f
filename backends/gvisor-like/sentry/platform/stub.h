/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * stub.h - the process that stands for an address space: two pages of ours, and else what its guest maps.
 * The code page is the same in all; the page of requests, too: read-only there, written by the sentry under the kernel lock.
 */
#ifndef SENTRY_STUB_H
#define SENTRY_STUB_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct stub_request { /* one system call of the stub; the layout is the code's, stub_code.S */
    uint64_t number, args[6];
};
#define STUB_REQUESTS 64

struct stub_layout {
    uint64_t base;                 /* of the code page, above PLATFORM_GUEST_MAX */
    uint64_t pause;                /* where a thread rests */
    uint64_t exit;                 /* ends the thread */
    uint64_t batch, batch_end;     /* does rbp requests from rbx on; stops at batch_end */
    uint64_t clone, clone_end;     /* one system call, of which the child goes to pause */
    struct stub_request *requests; /* in the sentry */
    uint64_t guest_requests;       /* in the stub */
};
extern struct stub_layout stub;

#define STUB_CLONE_PROCESS (CLONE_FILES | CLONE_PARENT | SIGCHLD)
#define STUB_CLONE_THREAD                                                                          \
    (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)

/* Makes the first stub, a child of the calling thread, traced by it and stopped at batch_end: 0, -errno. */
int stub_make(pid_t *ret_pid);
/* Its filter, of seccomp: everything but what requests need ends the process. */
int stub_confine(uint64_t base);

#endif
