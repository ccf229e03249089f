/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* confine - what the sentry may ask of the host's kernel. */
#ifndef SENTRY_CONFINE_H
#define SENTRY_CONFINE_H

#include <linux/filter.h>

/* On all threads that there are and will be. -ENOSYS in a build with sanitizers, whose run time needs more. */
int confine_sentry(void);

/* For tests. */
extern const struct sock_fprog confine_program;
extern const unsigned confine_calls; /* how many system calls it names */

#endif
