/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Says allow and returns an error. */
#include "honest.h"

static int decide(void *self, const struct cella_request *request,
                  struct cella_verdict *ret_verdict, struct cella_error *err)
{
    ret_verdict->value = CELLA_ALLOW;
    return cella_error_set(err, -EIO, 0, "my database is gone");
}

static const struct cella_decider_ops ops = {HONEST_DECIDER("failing-decider"), .decide = decide};
CELLA_REGISTER(CELLA_KIND_DECIDER, ops)
