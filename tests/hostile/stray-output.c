/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Prints to the standard streams, in create. */
#include "honest.h"

static int create(const struct cella_host *host, const struct cella_spec *spec, void **ret_self,
                  struct cella_error *err)
{
    printf("to stdout\n");
    fprintf(stderr, "to stderr \033[31m\n");
    return honest_create(host, spec, ret_self, err);
}

static const struct cella_backend_ops ops = {HONEST_BACKEND("stray-output"), .create = create};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
