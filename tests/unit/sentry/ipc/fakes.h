/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* fakes.h - what ipc/ asks of other rooms, for world.c. */
#ifndef TEST_IPC_FAKES_H
#define TEST_IPC_FAKES_H

#include "fs.h"

void fake_guest(const void *at, size_t size); /* the guest has no memory but this */
void fake_begin(void);                        /* arena, the first task */
void fake_end(void);           /* closes all; says on stderr what is left, and exits with 5 then */
unsigned fake_close_all(void); /* with the lock: how much is left */
void fake_forget_names(void);
void fake_task_begin(void), fake_task_end(void);
int64_t fake_call(long number, const uint64_t a[6]); /* read, write, close, dup, fcntl, ioctl, … */
int64_t fake_unlink(const char *name);
void fake_raise(int signo);
unsigned fake_sigpipes(void);
uint64_t fake_signals(void);
int64_t fake_open(const char *name, uint32_t flags);
struct process *fake_process(int32_t pid); /* another one, alive */

#endif
