/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The table claims fewer bytes than the baseline of its major. */
#include "honest.h"

static const struct cella_backend_ops ops = {
    HONEST_BACKEND("short-size"),
    .hdr = {CELLA_BACKEND_OPS_BASELINE - 8, CELLA_KIND_BACKEND, CELLA_ABI_MAJOR, 0, 0},
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
