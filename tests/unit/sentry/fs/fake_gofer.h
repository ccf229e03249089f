/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* fake_gofer.h - the gofer's client, answered in the test's own process out of a directory. */
#ifndef FAKE_GOFER_H
#define FAKE_GOFER_H

#include "fs.h"

void fake_gofer_root(const char *directory, uint32_t *ret_root, struct gofer_attr *ret_attr);
extern unsigned fake_gofer_open_handles;
extern int fake_gofer_error; /* what the next walk or open answers, once */

#endif
