/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The table sets flags that nobody has defined. */
#include "honest.h"

static const struct cella_backend_ops ops = {
    HONEST_BACKEND("table-flags"),
    .hdr = {sizeof(struct cella_backend_ops), CELLA_KIND_BACKEND, CELLA_ABI_MAJOR, 0, 4},
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
