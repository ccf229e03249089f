/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * reach - the plugin's side of a measurement: ports opened in the kernel and announced to the gate, and what
 * the gate saw of them, checked.
 *
 * Order: the gate knows the ports before the kernel brings it anything, and forgets them after. The kernel's
 * elements have a timeout and the gate a deadline, so a warden that is stopped in between leaves nothing
 * open. A cell without a link has no gate; then there is nothing to begin, and nothing arrives.
 */
#include <sys/socket.h>

#include "egress.h"

#define REACH_NS 2000000000u

static int kernel_ports(struct egress *e, uint32_t lo, uint32_t hi, uint32_t seconds,
                        struct cella_error *err)
{
    char slot[16], from[16], to[16], time[16];
    char *argv[] = {"cella-gate-setup", "reach", slot, from, to, time, NULL};
    int ns[3] = {e->gate_ns, e->uplink, -1};

    snprintf(slot, sizeof(slot), "%u", e->slot);
    snprintf(from, sizeof(from), "%u", lo);
    snprintf(to, sizeof(to), "%u", hi);
    snprintf(time, sizeof(time), "%u", seconds);
    return helper_run(e->setup_path, argv, NULL, ns, err);
}

static int ask_gate(struct egress *e, const struct ctl_msg *m, struct cella_error *err)
{
    uint64_t deadline = now_ns() + REACH_NS;
    struct ctl_msg got;
    int r;

    e->reach.done = 0;
    r = e->ctl < 0 ? -EPIPE : send_fds(e->ctl, m, sizeof(*m), NULL, 0);
    while (r == 0 && e->ctl >= 0 && !e->reach.done) {
        r = ctl_wait(e->ctl, deadline, &got, NULL, NULL);
        if (r == 0)
            r = gate_message(e, &got);
    }
    if (r == 0 && e->reach.done)
        return 0;
    if (r == -EBADMSG)
        gate_down(e);
    return fail(err, r < 0 ? r : -EPIPE, "the gate did not answer: %s",
                strerror(r < 0 ? -r : EPIPE));
}

static int range_ok(uint32_t lo, uint32_t hi)
{
    return lo && lo <= hi && hi <= 65535 && hi - lo < REACH_PORTS_MAX;
}

int egress_reach_begin(void *self, const struct cella_reach *reach, struct cella_error *err)
{
    struct egress *e = self;
    struct ctl_msg m = {.type = CTL_REACH_BEGIN,
                        .count = reach->timeout_ms,
                        .tx = reach->port_lo,
                        .rx = reach->port_hi,
                        .tx_delta = reach->twin_lo,
                        .rx_delta = reach->twin_hi};
    int r;

    if (!range_ok(reach->port_lo, reach->port_hi) || !range_ok(reach->twin_lo, reach->twin_hi) ||
        (reach->twin_lo <= reach->port_hi && reach->port_lo <= reach->twin_hi) ||
        !reach->timeout_ms || reach->timeout_ms > 60000 || !reach->nonce ||
        strlen(reach->nonce) != CELLA_ID_LEN)
        return fail(err, -EINVAL,
                    "reach: two disjoint ranges of at most %u ports, a nonce of %d "
                    "characters and at most 60 s are needed",
                    REACH_PORTS_MAX, CELLA_ID_LEN);
    if (e->reach.on)
        return fail(err, -EBUSY, "reach: a measurement of this cell is under way");
    free(e->reach.seen);
    e->reach.seen = NULL;
    e->reach.n_seen = 0;
    e->reach.on = 1;
    e->reach.lost = 0;
    if (e->link == CELLA_LINK_NONE)
        return 0;
    memcpy(m.name, reach->nonce, CELLA_ID_LEN);
    r = ask_gate(e, &m, err);
    if (r == 0)
        r = kernel_ports(e, reach->twin_lo, reach->twin_hi, reach->timeout_ms / 1000 + 1, err);
    if (r < 0) {
        m = (struct ctl_msg){.type = CTL_REACH_END};
        ask_gate(e, &m, NULL);
        e->reach.on = 0;
        fail_wrap(err, "reach");
    }
    return r;
}

int egress_reach_end(void *self, void *ctx, void (*seen)(void *, const struct cella_reach_seen *),
                     struct cella_error *err)
{
    struct egress *e = self;
    struct ctl_msg m = {.type = CTL_REACH_END};
    size_t i;
    int r;

    if (!e->reach.on)
        return fail(err, -EPROTO, "reach: no measurement of this cell is under way");
    e->reach.on = 0;
    if (e->link == CELLA_LINK_NONE)
        return 0;
    r = ask_gate(e, &m, err);
    if (kernel_ports(e, 1, 1, 0, r < 0 ? NULL : err) < 0 && r == 0)
        r = err ? err->code : -EIO;
    if (r == 0 && e->reach.lost)
        r = fail(err, -ETIMEDOUT, "the gate died during the measurement and was started again");
    if (r == 0 && e->reach.expired)
        r = fail(err, -ETIMEDOUT, "the measurement took too long; the gate had ended it");
    for (i = 0; r == 0 && seen && i < e->reach.n_seen; i++) {
        const struct ctl_seen *s = &e->reach.seen[i];
        struct cella_reach_seen out = {
            .hdr = CELLA_HDR_INIT(struct cella_reach_seen, CELLA_KIND_REACH_SEEN),
            .port = s->port,
            .bytes = s->bytes,
            .carried = s->carried,
            .refused = s->refused};
        seen(ctx, &out);
    }
    free(e->reach.seen);
    e->reach.seen = NULL;
    e->reach.n_seen = 0;
    if (r < 0)
        fail_wrap(err, "reach");
    return r;
}

int reach_message(struct egress *e, const struct ctl_msg *m)
{
    struct ctl_seen *p;

    if (m->type == CTL_REACH_DONE) {
        e->reach.done = 1;
        e->reach.expired = m->count != 0;
        return 0;
    }
    if (m->count > REACH_BATCH || e->reach.n_seen + m->count > 2 * REACH_PORTS_MAX)
        return -EBADMSG;
    p = realloc(e->reach.seen, (e->reach.n_seen + m->count) * sizeof(*p) + 1);
    if (!p)
        return -EIO;
    e->reach.seen = p;
    memcpy(p + e->reach.n_seen, m->name, m->count * sizeof(*p));
    e->reach.n_seen += m->count;
    return 0;
}
