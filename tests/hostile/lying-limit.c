/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Claims a limit that create and pause then refuse. */
#include "honest.h"

static int probe(const struct cella_host *host, const struct cella_probe_report *report,
                 struct cella_probe *ret_probe, struct cella_error *err)
{
    honest_probe(host, report, ret_probe, err);
    report->capability(report->ctx, "limit.pids", CELLA_NATIVE, NULL);
    report->capability(report->ctx, "limit.cpu", CELLA_NATIVE, NULL);
    report->capability(report->ctx, "pause", CELLA_EMULATED, "by asking nicely");
    return 0;
}

static int create(const struct cella_host *host, const struct cella_spec *spec, void **ret_self,
                  struct cella_error *err)
{
    if (spec->limits && spec->limits->pids)
        return cella_error_set(err, -ENOTSUP, 0, "no pids controller");
    return honest_create(host, spec, ret_self, err);
}

static int refuse(void *self, struct cella_error *err)
{
    return -EOPNOTSUPP;
}

static const struct cella_backend_ops ops = {
    HONEST_BACKEND("lying-limit"),
    .probe = probe,
    .create = create,
    .pause = refuse,
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
