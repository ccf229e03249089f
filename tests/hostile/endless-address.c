/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* attach returns an address without an end. */
#include "honest.h"

static int attach(const struct cella_host *host, const struct cella_attach *attach_,
                  void **ret_self, struct cella_attached *ret_attached, struct cella_error *err)
{
    honest_attach(host, attach_, ret_self, ret_attached, err);
    memset(ret_attached->address, '1', sizeof(ret_attached->address));
    return 0;
}

static const struct cella_enforcer_ops ops = {HONEST_ENFORCER("endless-address"), .attach = attach};
CELLA_REGISTER(CELLA_KIND_ENFORCER, ops)
