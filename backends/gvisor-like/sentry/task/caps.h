/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* caps.h - what prctl asks of caps.c: each gives what the call does. */
#ifndef SENTRY_TASK_CAPS_H
#define SENTRY_TASK_CAPS_H

#include "room.h"

int64_t caps_bounding_read(uint64_t capability);
int64_t caps_bounding_drop(uint64_t capability);
int64_t caps_ambient(uint64_t what, uint64_t capability);
int64_t caps_securebits(uint64_t bits);
int64_t caps_keep(uint64_t keep);

#endif
