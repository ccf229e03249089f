/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * kinds - each plugin kind's operation table as data: where every operation lies, which must be
 * there, and in words what the host does when one is not.
 *
 * The loader checks by it, `plugin inspect` prints it, tests compare it with the headers. What the
 * words say is done by the wrappers of this directory and nowhere else. Threads: constant data.
 */
#include <stddef.h>

#include "plugin_int.h"

#define OP(type, member, def)                                                                      \
    {                                                                                              \
#member, (uint32_t)offsetof(struct type, member), def                                      \
    }
#define REQUIRED NULL

static const struct op_info backend_ops[] = {
    OP(cella_backend_ops, probe, REQUIRED),
    OP(cella_backend_ops, create, REQUIRED),
    OP(cella_backend_ops, start, REQUIRED),
    OP(cella_backend_ops, stop, REQUIRED),
    OP(cella_backend_ops, destroy, REQUIRED),
    OP(cella_backend_ops, connect, REQUIRED),
    OP(cella_backend_ops, reap, REQUIRED),
    OP(cella_backend_ops, pause, "refused with EOPNOTSUPP"),
    OP(cella_backend_ops, resume, "refused with EOPNOTSUPP"),
    OP(cella_backend_ops, stats, "every figure unknown"),
    OP(cella_backend_ops, resize, "refused with EOPNOTSUPP"),
    OP(cella_backend_ops, snapshot, "refused with EOPNOTSUPP"),
    OP(cella_backend_ops, restore, "refused with EOPNOTSUPP"),
    OP(cella_backend_ops, fork, "refused with EOPNOTSUPP"),
    OP(cella_backend_ops, recover, "refused with EOPNOTSUPP"),
    OP(cella_backend_ops, prepare, "copies are made when they are asked for"),
    OP(cella_backend_ops, load, "required with prepare"),
};

static const struct op_info enforcer_ops[] = {
    OP(cella_enforcer_ops, probe, REQUIRED),
    OP(cella_enforcer_ops, check, "a policy is checked only when it is attached"),
    OP(cella_enforcer_ops, attach, REQUIRED),
    OP(cella_enforcer_ops, detach, REQUIRED),
    OP(cella_enforcer_ops, reap, REQUIRED),
    OP(cella_enforcer_ops, apply, "refused with EOPNOTSUPP"),
    OP(cella_enforcer_ops, phase, "refused with EOPNOTSUPP"),
    OP(cella_enforcer_ops, report, "nothing to report"),
    OP(cella_enforcer_ops, expect, "refused with EOPNOTSUPP"),
    OP(cella_enforcer_ops, reach_begin, "refused with EOPNOTSUPP"),
    OP(cella_enforcer_ops, reach_end, "refused with EOPNOTSUPP"),
    OP(cella_enforcer_ops, attach_wait, "attach does everything"),
    OP(cella_enforcer_ops, restart, "a cell ends with its gate"),
    OP(cella_enforcer_ops, reach_tighten, "rows that are held are not measured"),
    OP(cella_enforcer_ops, ready, "attach begins from nothing"),
    OP(cella_enforcer_ops, unready, "required with ready"),
    OP(cella_enforcer_ops, finish, "detach does it"),
};

static const struct op_info decider_ops[] = {
    OP(cella_decider_ops, create, REQUIRED),
    OP(cella_decider_ops, decide, REQUIRED),
    OP(cella_decider_ops, destroy, REQUIRED),
};

static const struct op_info sink_ops[] = {
    OP(cella_sink_ops, open, REQUIRED),
    OP(cella_sink_ops, event, REQUIRED),
    OP(cella_sink_ops, flush, "nothing to flush"),
    OP(cella_sink_ops, close, REQUIRED),
};

static const struct op_info secret_ops[] = {
    OP(cella_secret_ops, create, REQUIRED),
    OP(cella_secret_ops, get, REQUIRED),
    OP(cella_secret_ops, destroy, REQUIRED),
    OP(cella_secret_ops, rotate_fd, "secrets never rotate"),
};

const char *kind_name(uint32_t kind)
{
    const struct kind_info *k = kind_info_get(kind);

    return k ? k->name : "unknown";
}

int op_present(const struct plugin *p, const struct op_info *op)
{
    void (*f)(void);

    memcpy(&f, (const char *)&p->ops + op->offset, sizeof(f));
    return f != NULL;
}

#define KIND(number, text, type, baseline, methods, table)                                         \
    {                                                                                              \
        number, text, sizeof(struct type), baseline, methods, table, ARRAY_LEN(table)              \
    }

static const struct kind_info kinds[] = {
    KIND(CELLA_KIND_BACKEND, "backend", cella_backend_ops, CELLA_BACKEND_OPS_BASELINE, 1,
         backend_ops),
    KIND(CELLA_KIND_ENFORCER, "enforcer", cella_enforcer_ops, CELLA_ENFORCER_OPS_BASELINE, 1,
         enforcer_ops),
    KIND(CELLA_KIND_DECIDER, "decider", cella_decider_ops, CELLA_DECIDER_OPS_BASELINE, 0,
         decider_ops),
    KIND(CELLA_KIND_SINK, "sink", cella_sink_ops, CELLA_SINK_OPS_BASELINE, 0, sink_ops),
    KIND(CELLA_KIND_SECRET, "secret provider", cella_secret_ops, CELLA_SECRET_OPS_BASELINE, 0,
         secret_ops),
};

const struct kind_info *kind_info_get(uint32_t kind)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(kinds); i++)
        if (kinds[i].kind == kind)
            return &kinds[i];
    return NULL;
}
