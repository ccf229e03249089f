/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Its message has a line break and a terminal sequence, and points elsewhere. */
#include "honest.h"

static int create(const struct cella_host *host, const struct cella_spec *spec, void **ret_self,
                  struct cella_error *err)
{
    cella_error_set(err, -EIO, 0, "disk\ncella: all is well \033[2J");
    err->msg = (char *)16;
    err->msg_cap = 0xffffffff;
    return -EIO;
}

static const struct cella_backend_ops ops = {HONEST_BACKEND("forged-message"), .create = create};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
