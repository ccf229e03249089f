/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* An option's own default is out of its range. */
#include "honest.h"

static const struct cella_option options[] = {
    {"pool", "a pool", "99", NULL, CELLA_OPT_INT, 0, 1, 9}};
static const struct cella_backend_ops ops = {
    HONEST_BACKEND("option-default"),
    .options = options,
    .n_options = 1,
    .option_stride = sizeof(options[0]),
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
