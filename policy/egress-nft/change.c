/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * change - from one policy table to another while the cell runs.
 *
 * Tighten the kernel to what old and new both allow -> publish the new table to the gate, which resets what
 * it no longer allows -> loosen the kernel. Whatever fails on the way, what is in force is not wider than
 * either. A gate that does not answer is stopped: between two policies there is no safe one to go on with, and a
 * gate that takes its place begins with what both allow.
 * One thread, the warden's; events that arrive meanwhile are digested, not lost.
 */
#include <sys/socket.h>

#include "egress.h"

#define PUBLISH_NS 2000000000u

static int kernel_set(struct egress *e, const struct policy_table *t, struct cella_error *err)
{
    char slot[16], *argv[] = {"cella-gate-setup", "apply", slot, NULL};
    int ns[3] = {e->gate_ns, e->uplink, -1};

    snprintf(slot, sizeof(slot), "%u", e->slot);
    return helper_run(e->host, argv, t, ns, err);
}

/* The gate takes the table and tells how many flows it reset; without an answer it is stopped. */
static int publish(struct egress *e, const struct policy_table *t, uint64_t *ret_killed,
                   struct cella_error *err)
{
    struct ctl_msg m = {.type = CTL_PUBLISH};
    uint64_t deadline = now_ns() + PUBLISH_NS;
    struct ctl_msg got;
    int fd = table_memfd(t), r;

    if (fd < 0)
        return fail(err, fd, "no memory file for the policy: %s", strerror(-fd));
    e->replied.type = 0;
    r = send_fds(e->ctl, &m, sizeof(m), &fd, 1);
    close(fd);
    while (r == 0 && e->ctl >= 0 && e->replied.type != CTL_PUBLISHED) {
        r = ctl_wait(e->ctl, deadline, &got, NULL, NULL);
        if (r == 0)
            r = gate_message(e, &got);
    }
    if (r == 0 && e->replied.gen == t->head.generation) {
        *ret_killed = e->replied.tx;
        r = intercept_publish(e, t, ret_killed);
        return r < 0
                   ? fail(
                         err, r,
                         "the HTTP engine did not take the new policy: %s; it was stopped, nothing "
                         "of layer http passes",
                         strerror(-r))
                   : 0;
    }
    gate_down(e);
    return fail(err, r < 0 ? r : -EPROTO,
                "the gate did not take the new policy: %s; it was stopped, "
                "nothing passes",
                strerror(r < 0 ? -r : EPROTO));
}

static int gate_gone(struct cella_error *err)
{
    return fail(err, -EPIPE,
                "the gate of this cell has died; nothing passes, and no policy can be "
                "applied. Start a new cell");
}

void table_adopt(struct egress *e, struct policy_table *t)
{
    policy_table_fini(&e->table);
    e->table = *t;
    *t = (struct policy_table){0};
}

/* Old and new table to what both allow, in kernel and gate, after a failure. */
static int hold_tighter(struct egress *e, struct policy_table *both, int r, struct cella_error *err)
{
    uint64_t killed;

    if (e->ctl < 0 || publish(e, both, &killed, NULL) == 0 || e->ctl < 0)
        table_adopt(e, both);
    if (r < 0)
        fail_wrap(err, "the policy was not changed; what old and new both allow is in force");
    return r;
}

int table_change(struct egress *e, struct policy_table *t, uint64_t *ret_killed,
                 struct cella_error *err)
{
    struct policy_table both = {0};
    uint64_t generation = t->head.generation, before = e->table.head.generation;
    int tighten = !policy_table_within(&e->table, t), loosen = !policy_table_within(t, &e->table);
    int r = e->ctl < 0 ? gate_gone(err) : 0;

    if (r < 0)
        return r;
    r = policy_table_intersect(t, &e->table, &both);
    if (r < 0)
        return fail(err, r, "comparing the policies: %s; nothing was changed", strerror(-r));
    /* messages under either generation are believable from here on */
    e->table.head.generation = generation > before ? generation : before;
    if (tighten) {
        r = kernel_set(e, &both, err);
        if (r < 0)
            r = hold_tighter(e, &both, r, err);
    }
    if (r == 0) {
        r = publish(e, t, ret_killed, err);
        if (r < 0)
            hold_tighter(e, &both, 0, NULL);
    }
    if (r == 0) {
        table_adopt(e, t);
        if (loosen && kernel_set(e, &e->table, err) < 0)
            r = hold_tighter(e, &both, err ? err->code : -EIO, err);
    }
    policy_table_fini(&both);
    return r;
}
