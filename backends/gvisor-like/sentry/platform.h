/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * platform.h - what runs guest code. An implementation is one table; the kernel knows only this.
 *
 * An address space is what the host holds for one struct mm: a stub process that maps what platform map() says, and whose
 * threads run guest code. Its mappings are a cache of what mm knows: they can be thrown away at any time and come back
 * by faults. A context is one guest thread in it, run by the thread of the sentry that made it, and no other.
 *
 * Guest addresses are below PLATFORM_GUEST_MAX; the stub's own pages are above it.
 * All but run() are called with the kernel lock held; run() without it.
 */
#ifndef SENTRY_PLATFORM_H
#define SENTRY_PLATFORM_H

#include "kernel.h"

#include <signal.h>
#include <sys/user.h>

#define PLATFORM_GUEST_MIN 0x10000ul
#define PLATFORM_GUEST_MAX 0x7f0000000000ul

enum platform_event {
    PLATFORM_SYSCALL, /* regs: orig_rax the number, rax -ENOSYS; rip after the instruction */
    PLATFORM_FAULT, /* info: SIGSEGV or SIGBUS of the host, si_addr, si_code MAPERR (nothing mapped) or ACCERR */
    PLATFORM_SIGNAL, /* info: another exception: SIGFPE, SIGILL, SIGTRAP, SIGBUS (alignment), general protection */
    PLATFORM_INTERRUPT, /* platform interrupt() was called */
    PLATFORM_DEAD, /* the stub is gone (killed by the host, out of memory): the guest process dies with SIGKILL */
};

struct platform_stop {
    enum platform_event event;
    siginfo_t info;
    bool compat; /* SYSCALL by int 0x80, or in 32-bit mode */
};

struct platform_as;      /* not of the arena */
struct platform_context; /* not of the arena */

enum platform_change_kind { PLATFORM_MAP, PLATFORM_UNMAP };

struct platform_change {
    enum platform_change_kind kind;
    int prot;    /* MAP: PROT_* */
    int host_fd; /* MAP: shows its bytes from `offset` on, shared: the memory file, or a file of the gofer's, read-only */
    uint64_t address, size, offset;
};

struct platform {
    const char *name;
    /* Once, in the main thread, before the sentry's filter: whatever the host must give for it. memory_fd: the memory file. */
    int (*init)(int memory_fd);
    int (*new_as)(struct platform_as **ret_as);
    /* No context is left. Nothing of the address space remains in the host. */
    void (*release_as)(struct platform_as *as);
    /* Does these in order; the first that fails ends it: its -errno, and what the range shows is not known. The kernel lock
       is held. By a context of this address space, the caller's own. */
    int (*change)(struct platform_context *context, const struct platform_change *changes,
                  unsigned n_changes);
    /* A guest thread of `as`, for the calling thread of the sentry, which alone may use it. */
    int (*new_context)(struct platform_as *as, struct platform_context **ret_context);
    void (*release_context)(struct platform_context *context);
    /* Runs guest code with these registers until something happens. Without the kernel lock. The registers the guest gave
       are judged (segments, flags, canonical addresses) before they are used. */
    int (*run)(struct platform_context *context, struct user_regs_struct *regs,
               struct platform_stop *ret_stop);
    /* Processor time of all that ever ran in it, ns; may be NULL. */
    uint64_t (*cpu)(struct platform_as *as);
    /* From any thread: a run() that goes on, or the next one, ends soon with INTERRUPT. */
    void (*interrupt)(struct platform_context *context);
    /* The extended state (XSAVE layout, platform_xstate_size bytes) of a stopped context. */
    int (*get_xstate)(struct platform_context *context, void *ret_state, size_t size);
    int (*set_xstate)(struct platform_context *context, const void *state, size_t size);
};

extern const struct platform platform_ptrace; /* platform/ptrace.c */
extern const struct platform *platform;       /* the one in use */
size_t platform_xstate_size(void); /* of this processor, what the host enables; at most 16 KiB */

#endif
