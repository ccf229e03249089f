/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A verdict outside of the enumeration. */
#include "honest.h"

static int decide(void *self, const struct cella_request *request,
                  struct cella_verdict *ret_verdict, struct cella_error *err)
{
    ret_verdict->value = 2500;
    return 0;
}

static const struct cella_decider_ops ops = {HONEST_DECIDER("unknown-verdict"), .decide = decide};
CELLA_REGISTER(CELLA_KIND_DECIDER, ops)
