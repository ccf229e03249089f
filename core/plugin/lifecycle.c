/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * lifecycle - which operation of a backend may be called in which state, as a table.
 *
 * An operation that the table does not allow never reaches the plugin; the caller gets -EPROTO and
 * a message with state and operation. `same` as the next state means the state does not change.
 * Threads: constant data.
 */
#include "plugin_int.h"

#define IN(state) (1u << (BACKEND_##state))
#define SAME_STATE (-1)

struct transition {
    const char *op;
    unsigned allowed; /* set of states */
    int next;
};

static const struct transition transitions[] = {
    [BACKEND_OP_CREATE] = {"create", IN(NONE), BACKEND_CREATED},
    [BACKEND_OP_START] = {"start", IN(CREATED), BACKEND_RUNNING},
    [BACKEND_OP_STOP] = {"stop", IN(PREPARED) | IN(CREATED) | IN(RUNNING) | IN(PAUSED),
                         BACKEND_STOPPED},
    [BACKEND_OP_CONNECT] = {"connect", IN(RUNNING), SAME_STATE},
    [BACKEND_OP_PAUSE] = {"pause", IN(RUNNING), BACKEND_PAUSED},
    [BACKEND_OP_RESUME] = {"resume", IN(PAUSED), BACKEND_RUNNING},
    [BACKEND_OP_STATS] = {"stats", IN(RUNNING) | IN(PAUSED) | IN(STOPPED), SAME_STATE},
    [BACKEND_OP_RESIZE] = {"resize", IN(RUNNING) | IN(PAUSED), SAME_STATE},
    [BACKEND_OP_SNAPSHOT] = {"snapshot", IN(RUNNING) | IN(PAUSED), SAME_STATE},
    [BACKEND_OP_RESTORE] = {"restore", IN(NONE), BACKEND_CREATED},
    [BACKEND_OP_PREPARE] = {"prepare", IN(NONE), BACKEND_PREPARED},
    [BACKEND_OP_LOAD] = {"load", IN(PREPARED), BACKEND_CREATED},
    [BACKEND_OP_DESTROY] = {"destroy",
                            IN(PREPARED) | IN(CREATED) | IN(RUNNING) | IN(PAUSED) | IN(STOPPED),
                            BACKEND_NONE},
};
_Static_assert(ARRAY_LEN(transitions) == BACKEND_OP_COUNT, "one row per operation");

const char *backend_state_name(enum backend_state s)
{
    static const char *const names[] = {"none",   "created", "running",
                                        "paused", "stopped", "prepared"};

    return (unsigned)s < ARRAY_LEN(names) ? names[s] : "unknown";
}

const char *backend_op_name(enum backend_op op)
{
    return (unsigned)op < BACKEND_OP_COUNT ? transitions[op].op : "unknown";
}

int lifecycle_check(const char *plugin, enum backend_state state, enum backend_op op,
                    enum backend_state *ret_next, struct cella_error *err)
{
    if ((unsigned)op >= BACKEND_OP_COUNT || (unsigned)state > BACKEND_PREPARED ||
        !(transitions[op].allowed & (1u << state)))
        return fail(err, -EPROTO, "%s: %s is not possible while the cell is %s", plugin,
                    backend_op_name(op), backend_state_name(state));
    *ret_next =
        transitions[op].next == SAME_STATE ? state : (enum backend_state)transitions[op].next;
    return 0;
}
