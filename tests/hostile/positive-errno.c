/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Returns an errno with the wrong sign; nothing was created. */
#include "honest.h"

static int create(const struct cella_host *host, const struct cella_spec *spec, void **ret_self,
                  struct cella_error *err)
{
    return ENOSPC;
}

static const struct cella_backend_ops ops = {HONEST_BACKEND("positive-errno"), .create = create};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
