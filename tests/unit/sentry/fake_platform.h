/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fake_platform.h - a platform without a host process, for unit tests of the sentry: it notes what is mapped, page by page.
 * fake_sentry() makes lock, arena and memory file; fake_task() a `current` with a process and an address space.
 * What another room has not landed (file_get, all_tasks …) is defined weakly in fake_platform.c.
 */
#ifndef FAKE_PLATFORM_H
#define FAKE_PLATFORM_H

#include "task.h"

extern const struct platform platform_fake;

void fake_sentry(uint64_t memory); /* once for a program; the kernel lock is held after it */
struct task *fake_task(void);      /* current: also in all_tasks, pid 1 */
void fake_task_end(void);          /* and gone again, with its address space */
void fake_enter(struct mm *mm);    /* current runs in it, with a context of its own */

/* A guest's access: a pointer to the byte, faulting as often as it needs; NULL: *ret_signal. */
void *fake_touch(struct mm *mm, uint64_t address, int access, int *ret_signal, int *ret_code);
/* What the host shows at an address: PROT_*, 0: nothing. */
int fake_shown(const struct mm *mm, uint64_t address);
/* Processor time, for a table whose cpu is fake_cpu: an address space's clock stands at fake_clock_begins when it is made. */
uint64_t fake_cpu(struct platform_as *as);
void fake_use(struct mm *mm, uint64_t ns);
extern uint64_t fake_clock_begins;
unsigned fake_mappings(const struct mm *mm);                /* pages shown */
extern unsigned fake_changes, fake_faults, fake_interrupts; /* since the test set them to 0 */
extern int fake_change_error;                               /* what the next change answers, once */
extern int fake_refuse_file; /* errno for changes that map anything but the memory file; 0: none */

#endif
