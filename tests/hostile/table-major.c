/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Note and table disagree about the major. */
#include "honest.h"

static const struct cella_backend_ops ops = {
    HONEST_BACKEND("table-major"),
    .hdr = {sizeof(struct cella_backend_ops), CELLA_KIND_BACKEND, CELLA_ABI_MAJOR + 1, 0, 0},
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
