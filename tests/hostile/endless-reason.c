/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A verdict whose texts have no end. */
#include "honest.h"

static int decide(void *self, const struct cella_request *request,
                  struct cella_verdict *ret_verdict, struct cella_error *err)
{
    ret_verdict->value = CELLA_ALLOW;
    memset(ret_verdict->rule, 'r', sizeof(ret_verdict->rule));
    memset(ret_verdict->reason, 'x', sizeof(ret_verdict->reason));
    return 0;
}

static const struct cella_decider_ops ops = {HONEST_DECIDER("endless-reason"), .decide = decide};
CELLA_REGISTER(CELLA_KIND_DECIDER, ops)
