/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* syscall.h - the table of system calls, for main, inspect and the generator of its page. */
#ifndef SENTRY_SYSCALL_H
#define SENTRY_SYSCALL_H

#include "task.h"

extern const struct syscall_row syscall_rows[]; /* the last has no name */
int syscall_init(void);                         /* -EEXIST: two rows for one number */

#endif
