/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * reach - the plugin's side of a measurement: ports opened in the kernel and announced to the gate, and what
 * the gate saw of them, checked.
 *
 * Order: the gate knows the ports before the kernel brings it anything, and forgets them after. The kernel's
 * elements have a timeout and the gate a deadline, so a warden that is stopped in between leaves nothing
 * open. Tightening goes the way of a change of policy: the kernel first, then the gate, which resets what the policy
 * in force does not allow. A cell without a link has no gate; then there is nothing to begin, and nothing arrives.
 */
#include <sys/socket.h>

#include "egress.h"

#define REACH_NS 2000000000u

/* [lo, hi] and no others, as long as the measurement may take; hi 0: none. */
static int kernel_ports(struct egress *e, uint32_t lo, uint32_t hi, struct cella_error *err)
{
    uint64_t now = now_ns();
    uint64_t left = e->reach.until > now ? (e->reach.until - now) / 1000000000u + 1 : 1;
    char slot[16], from[16], to[16], time[16];
    char *argv[] = {"cella-gate-setup", "reach", slot, from, to, time, NULL};
    int ns[3] = {e->gate_ns, e->uplink, -1};

    snprintf(slot, sizeof(slot), "%u", e->slot);
    snprintf(from, sizeof(from), "%u", hi ? lo : 1);
    snprintf(to, sizeof(to), "%u", hi ? hi : 1);
    snprintf(time, sizeof(time), "%u", hi ? (unsigned)left : 0);
    return helper_run(e->host, argv, NULL, ns, err);
}

static int ask_gate(struct egress *e, const struct ctl_msg *m, struct cella_error *err)
{
    uint64_t deadline = now_ns() + REACH_NS;
    struct ctl_msg question = *m, got;
    int r;

    question.suppressed = ++e->reach.asked;
    e->reach.done = 0;
    e->reach.next = 0;
    r = e->ctl < 0 ? -EPIPE : send_fds(e->ctl, &question, sizeof(question), NULL, 0);
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

/* 0: no ports are held; -EINVAL: they do not follow the twins. */
static int held_ports(const struct cella_reach *r, uint32_t *ret_lo, uint32_t *ret_hi)
{
    int has = r->hdr.size >= offsetof(struct cella_reach, held_hi) + sizeof(r->held_hi);

    *ret_lo = has ? r->held_lo : 0;
    *ret_hi = has ? r->held_hi : 0;
    if (!*ret_lo && !*ret_hi)
        return 0;
    return *ret_lo == r->twin_hi + 1 && *ret_hi >= *ret_lo && *ret_hi <= 65535 &&
                   *ret_hi - *ret_lo < REACH_HELD_MAX
               ? 0
               : -EINVAL;
}

int egress_reach_begin(void *self, const struct cella_reach *reach, struct cella_error *err)
{
    struct egress *e = self;
    uint32_t held_lo, held_hi;
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
        strlen(reach->nonce) != CELLA_ID_LEN || held_ports(reach, &held_lo, &held_hi) < 0)
        return fail(err, -EINVAL,
                    "reach: two disjoint ranges of at most %u ports, at most %u held ports after "
                    "the second, a nonce of %d characters and at most 60 s are needed",
                    REACH_PORTS_MAX, REACH_HELD_MAX, CELLA_ID_LEN);
    if (e->reach.on)
        return fail(err, -EBUSY, "reach: a measurement of this cell is under way");
    free(e->reach.seen);
    e->reach.seen = NULL;
    e->reach.n_seen = 0;
    e->reach.on = 1;
    e->reach.lost = 0;
    if (e->link == CELLA_LINK_NONE)
        return 0;
    e->reach.until = now_ns() + reach->timeout_ms * UINT64_C(1000000);
    e->reach.twin_lo = reach->twin_lo;
    e->reach.twin_hi = reach->twin_hi;
    m.dst = held_lo;
    m.port = (uint16_t)held_hi;
    memcpy(m.name, reach->nonce, CELLA_ID_LEN);
    r = ask_gate(e, &m, err);
    if (r == 0)
        r = kernel_ports(e, reach->twin_lo, held_hi ? held_hi : reach->twin_hi, err);
    if (r < 0) {
        m = (struct ctl_msg){.type = CTL_REACH_END};
        ask_gate(e, &m, NULL);
        e->reach.on = 0;
        fail_wrap(err, "reach");
    }
    return r;
}

int egress_reach_tighten(void *self, struct cella_error *err)
{
    struct egress *e = self;
    struct ctl_msg m = {.type = CTL_REACH_TIGHT};
    int r;

    if (!e->reach.on)
        return fail(err, -EPROTO, "reach: no measurement of this cell is under way");
    if (e->link == CELLA_LINK_NONE)
        return 0;
    r = kernel_ports(e, e->reach.twin_lo, e->reach.twin_hi, err);
    if (r == 0)
        r = ask_gate(e, &m, err);
    return r < 0 ? fail_wrap(err, "reach") : 0;
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
    do { /* what it saw is more than fits between us at once */
        r = ask_gate(e, &m, err);
        if (r == 0 && e->reach.next && e->reach.next <= m.tx)
            r = fail(err, -EBADMSG, "the gate tells the same again");
        m.tx = e->reach.next;
    } while (r == 0 && m.tx);
    if (kernel_ports(e, 0, 0, r < 0 ? NULL : err) < 0 && r == 0)
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

    if (m->type == CTL_REACH_DONE && m->suppressed != e->reach.asked) {
        e->reach.n_seen = 0; /* of a question that was given up, as what was told before it */
        return 0;
    }
    if (m->type == CTL_REACH_DONE) {
        e->reach.done = 1;
        e->reach.next = m->tx;
        e->reach.expired = m->count != 0;
        return 0;
    }
    if (m->count > REACH_BATCH || e->reach.n_seen + m->count > 2 * REACH_PORTS_MAX + REACH_HELD_MAX)
        return -EBADMSG;
    p = realloc(e->reach.seen, (e->reach.n_seen + m->count) * sizeof(*p) + 1);
    if (!p)
        return -EIO;
    e->reach.seen = p;
    memcpy(p + e->reach.n_seen, m->name, m->count * sizeof(*p));
    e->reach.n_seen += m->count;
    return 0;
}
