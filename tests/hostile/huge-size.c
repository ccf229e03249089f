/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The table claims more bytes than any table has. */
#include "honest.h"

static const struct cella_backend_ops ops = {
    HONEST_BACKEND("huge-size"),
    .hdr = {0xffffffff, CELLA_KIND_BACKEND, CELLA_ABI_MAJOR, 0, 0},
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
