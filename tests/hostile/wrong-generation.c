/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* apply says yes and leaves another generation in force. */
#include "honest.h"

static int apply(void *self, const struct cella_policy *policy, struct cella_applied *ret_applied,
                 struct cella_error *err)
{
    ret_applied->generation = policy->generation - 1;
    return 0;
}

static int report(void *self, void *ctx, void (*flow)(void *ctx, const struct cella_flow *flow),
                  struct cella_error *err)
{
    struct {
        struct cella_flow known;
        uint64_t newer;
    } f = {{.hdr = {sizeof(f), CELLA_KIND_FLOW, CELLA_ABI_MAJOR, 0, 0},
            .rule = "r",
            .destination = "d",
            .proto = "tcp"},
           1};

    flow(ctx, &f.known);
    return 0;
}

static const struct cella_enforcer_ops ops = {
    HONEST_ENFORCER("wrong-generation"),
    .apply = apply,
    .report = report,
};
CELLA_REGISTER(CELLA_KIND_ENFORCER, ops)
