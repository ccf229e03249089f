/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Claims pause, and has no such operation. */
#include "honest.h"

static int probe(const struct cella_host *host, const struct cella_probe_report *report,
                 struct cella_probe *ret_probe, struct cella_error *err)
{
    honest_probe(host, report, ret_probe, err);
    report->capability(report->ctx, "pause", CELLA_NATIVE, NULL);
    return 0;
}

static const struct cella_backend_ops ops = {HONEST_BACKEND("lying-capability"), .probe = probe};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
