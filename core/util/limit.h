/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* limit - what a backend does about a limit that this host cannot keep. */
#ifndef CELLA_LIMIT_H
#define CELLA_LIMIT_H

#include <cella/host.h>

#include "util.h"

/* `code` and err->msg: why it could not be set. 0 = the audit knows; negative: the cell must not be made. */
int limit_unenforced(const struct cella_host *host, int best_effort, const char *name, int code,
                     struct cella_error *err);

/* `value` of a method that sets a limit: -EINVAL for 0. argument: its name there; name: of the limit. */
int limit_given(uint64_t value, const char *argument, const char *name, struct cella_error *err);

#endif
