/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* base.h - what base/ gives to main alone, and takes from the rooms whose timers it fires. */
#ifndef SENTRY_BASE_H
#define SENTRY_BASE_H

#include "kernel.h"

int events_begin(void); /* starts its thread; -errno */

void itimer_fire(void *owner);      /* task/itimer.c */
void posix_timer_fire(void *owner); /* task/posix_timer.c */
void timerfd_fire(void *owner);     /* ipc/timerfd.c */
void cputime_fire(void *owner);     /* task/cputime.c */

#endif
