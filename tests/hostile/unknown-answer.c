/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A capability with an answer outside of the enumeration. */
#include "honest.h"

static int probe(const struct cella_host *host, const struct cella_probe_report *report,
                 struct cella_probe *ret_probe, struct cella_error *err)
{
    honest_probe(host, report, ret_probe, err);
    report->capability(report->ctx, "userns", 4000, "more than native");
    return 0;
}

static const struct cella_backend_ops ops = {HONEST_BACKEND("unknown-answer"), .probe = probe};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
