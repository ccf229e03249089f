/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Breaks no rule: the positive twin of every file beside it. */
#include "honest.h"

static const struct cella_backend_ops ops = {HONEST_BACKEND("honest")};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
