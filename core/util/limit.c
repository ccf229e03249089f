/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * limit - a limit that this host cannot keep: refused by name, or, where the cell was asked for with best effort, told
 * to the audit. Never neither. Threads: no state.
 */
#include "limit.h"

int limit_unenforced(const struct cella_host *host, int best_effort, const char *name, int code,
                     struct cella_error *err)
{
    const char *why = err && err->msg ? err->msg : "not possible on this host";
    struct cella_field fields[2] = {
        {.name = "limit", .type = CELLA_FIELD_STR, .str = {name, strlen(name)}},
        {.name = "reason", .type = CELLA_FIELD_STR, .str = {why, strlen(why)}},
    };
    struct cella_event event = {.hdr = CELLA_HDR_INIT(struct cella_event, CELLA_KIND_EVENT),
                                .kind = "limit.unenforced",
                                .fields = fields,
                                .n_fields = 2,
                                .field_stride = sizeof(struct cella_field)};

    if (!best_effort) {
        if (err)
            err->code = -ENOTSUP;
        return code == -ENOTSUP || code == -ENOENT ? -ENOTSUP : code;
    }
    code = host->emit(host->ctx, &event);
    return code < 0
               ? fail(err, code, "limit %s is not enforced and the audit could not record it: %s",
                      name, strerror(-code))
               : 0;
}

int limit_given(uint64_t value, const char *argument, const char *name, struct cella_error *err)
{
    return value ? 0
                 : fail(err, -EINVAL, "%s 0: a %s limit cannot be lifted from a running cell",
                        argument, name);
}
