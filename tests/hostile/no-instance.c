/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Succeeds without an instance. */
#include "honest.h"

static int create(const struct cella_host *host, const struct cella_spec *spec, void **ret_self,
                  struct cella_error *err)
{
    return 0;
}

static const struct cella_backend_ops ops = {HONEST_BACKEND("no-instance"), .create = create};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
