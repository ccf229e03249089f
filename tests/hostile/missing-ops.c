/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Two required operations are missing. */
#include "honest.h"

static const struct cella_backend_ops ops = {
    HONEST_BACKEND("missing-ops"),
    .create = NULL,
    .reap = NULL,
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
