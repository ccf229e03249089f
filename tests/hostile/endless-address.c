/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* attach returns an address without an end. */
#include "honest.h"

static const struct cella_host *seen;

static int attach(const struct cella_host *host, const struct cella_attach *attach_,
                  void **ret_self, struct cella_attached *ret_attached, struct cella_error *err)
{
    seen = host;
    honest_attach(host, attach_, ret_self, ret_attached, err);
    memset(ret_attached->address, '1', sizeof(ret_attached->address));
    return 0;
}

/* attach has not succeeded as far as the host's caller knows; the host itself must undo it. */
static void detach(void *self)
{
    if (self && seen)
        seen->log(seen->ctx, CELLA_LOG_INFO, "test", "endless-address: detached");
    free(self);
}

static const struct cella_enforcer_ops ops = {HONEST_ENFORCER("endless-address"), .attach = attach,
                                              .detach = detach};
CELLA_REGISTER(CELLA_KIND_ENFORCER, ops)
