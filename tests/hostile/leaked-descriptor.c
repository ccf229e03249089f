/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Leaves a descriptor that every exec would pass on, in create. */
#include "honest.h"

static int create(const struct cella_host *host, const struct cella_spec *spec, void **ret_self,
                  struct cella_error *err)
{
    (void)!open("/dev/zero", O_RDONLY);
    return honest_create(host, spec, ret_self, err);
}

static const struct cella_backend_ops ops = {HONEST_BACKEND("leaked-descriptor"), .create = create};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
