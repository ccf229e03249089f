/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The stride of the option table is shorter than an option. */
#include "honest.h"

static const struct cella_option options[] = {
    {"pool", "a pool", "9", NULL, CELLA_OPT_INT, 0, 1, 9}};
static const struct cella_backend_ops ops = {
    HONEST_BACKEND("option-stride"),
    .options = options,
    .n_options = 1,
    .option_stride = 8,
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
