/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * gate - what happens to a cell whose gate has died: the class's "on_gate_death".
 *
 * Nothing passes from the death on: rules and listeners are the enforcer's matter, and they are closed without
 * a gate. "stop" ends the cell. "restart" asks the enforcer for a new gate under the policy in force,
 * RESTARTS_MAX times a minute at most, because a cell that can kill its gate must not make the host start
 * processes for ever; then, and when the new one does not come up, the cell ends as well. Each death and each
 * start is an event; a start that cannot be recorded does not count. Threads: one.
 */
#include "warden.h"

#define RESTARTS_MAX GATE_RESTARTS_MAX
#define WINDOW_NS 60000000000ull

/* 1: another start is within the bound, and is counted. */
static int within_bound(struct warden *w)
{
    uint64_t now = now_ns(), *at = &w->gate_restarted[w->gate_restarts % RESTARTS_MAX];

    if (w->gate_restarts >= RESTARTS_MAX && now - *at < WINDOW_NS)
        return 0;
    *at = now;
    w->gate_restarts++;
    return 1;
}

static int restart(struct warden *w, struct cella_error *err)
{
    uint64_t took = now_ns();
    int r;

    if (!within_bound(w))
        return fail(err, -EBUSY, "it has died more than %u times within a minute", RESTARTS_MAX);
    gate_unwatch(w);
    r = enforcer_restart(&w->enforcer, &w->attached, err);
    if (r == 0)
        r = gate_watch(w, err);
    if (r == 0)
        r = shown_trust(w, &w->attached.ca_pem, err);
    if (r < 0)
        return r;
    json_object_set_new(w->cell, "gate_restarts", json_integer((json_int_t)w->gate_restarts));
    r = warden_save(w);
    if (r < 0)
        return fail(err, r, "the record of the cell: %s", strerror(-r));
    return warden_audit(w, err, "net.gate", "s:state", "restarted", "i:pid",
                        (int64_t)w->attached.gate_pid, "i:gen", (int64_t)w->generation, "s:phase",
                        w->policy.phase, "i:restarts", (int64_t)w->gate_restarts, "i:took_us",
                        (int64_t)((now_ns() - took) / 1000), NULL);
}

static void died(void *data, int fd, uint32_t ready)
{
    struct warden *w = data;
    struct errbuf eb;

    (void)fd;
    (void)ready;
    if (w->ended || !w->enforcer_on)
        return;
    if (w->state == W_SPARE) { /* not a cell yet: another is prepared */
        cell_end(w, "gate", "the gate process of a prepared machine died");
        return;
    }
    warden_audit(w, NULL, "net.gate", "s:state", "died", "i:pid", (int64_t)w->attached.gate_pid,
                 "i:gen", (int64_t)w->generation, NULL);
    if (w->class->on_gate_death == CONFIG_GATE_STOP)
        cell_end(w, "gate",
                 "the gate process died; nothing can pass any more and the cell was stopped");
    else if (restart(w, errbuf_init(&eb)) < 0)
        cell_end(
            w, "gate",
            "the gate process died and was not started again: %s; nothing can pass any more and "
            "the cell was stopped",
            eb.text);
}

int gate_watch(struct warden *w, struct cella_error *err)
{
    int r = 0;

    if (w->attached.borrow_exit_fd >= 0)
        r = loop_watch(w->loop, w->attached.borrow_exit_fd, CELLA_FD_IN, died, w);
    json_object_set_new(w->cell, "gate_pid", json_integer((json_int_t)w->attached.gate_pid));
    return r < 0 ? fail(err, r, "watching the gate: %s", strerror(-r)) : 0;
}

void gate_unwatch(struct warden *w)
{
    if (w->attached.borrow_exit_fd >= 0)
        loop_unwatch(w->loop, w->attached.borrow_exit_fd);
}
