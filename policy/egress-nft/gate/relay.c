/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * relay - TCP flows: accepted from the cell, checked, dialled from the uplink namespace, spliced.
 *
 * A destination is allowed by network (verdict.c), or it stands for a name (flight.c); either way
 * an address that was checked just now is dialled, and no other. An allowed flow is reported before
 * it is dialled, and refused when that fails. Bytes move in lane.c; those of layer "http" in
 * another process (handover.c).
 *
 * Should: keep half-close; reset both ends on any error and when a new policy does not allow the
 * flow as it is. Mustn't: let a flow outlive its verdict, its limits or the deadline of its state.
 * Dead flows are freed after the turn, because epoll may still hold an event for them. One thread.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "flow.h"

#define CONNECT_NS 15000000000u

/* ------------------------------------------------------------------ events */

static void fill(const struct flow *f, struct ctl_msg *m)
{
    m->proto = IPPROTO_TCP;
    m->dst = f->dst ? f->dst : f->asked;
    m->port = f->port;
    m->count = 1;
    m->gen = f->gen;
    snprintf(m->rule, sizeof(m->rule), "%s", f->rule);
    snprintf(m->name, sizeof(m->name), "%s", f->name ? name_text(f->name) : "");
}

static void flow_tell(struct gate *g, struct flow *f, uint32_t type, uint32_t reason)
{
    struct ctl_msg m = {.type = type,
                        .reason = reason,
                        .tx = f->tx.moved,
                        .rx = f->rx.moved,
                        .tx_delta = f->tx.moved - f->tx.told,
                        .rx_delta = f->rx.moved - f->rx.told};

    if (f->sport)
        return;
    fill(f, &m);
    if (gate_tell(g, &m) < 0) {
        gate_suppressed(g, 1);
        return;
    }
    f->tx.told = f->tx.moved;
    f->rx.told = f->rx.moved;
}

static void tell_end(struct gate *g, struct flow *f, uint32_t reason)
{
    struct ctl_msg m = {.reason = reason};

    if (f->told) {
        flow_tell(g, f, CTL_FLOW, reason);
        g->attempt = f->sport;
        if (reason == REASON_POLICY_CHANGED)
            reach_refused(g);
        g->attempt = 0;
    } else if (reason != REASON_NONE) {
        fill(f, &m);
        g->attempt = f->sport;
        gate_deny_hint(g, &m);
    }
}

/* ------------------------------------------------------------------- flows */

/* Whether close() resets. It does from birth on (what is accepted has it from its listener), so that a gate that
   dies leaves resets behind and nobody takes a cut transfer for a whole one. */
static void reset_on_close(int fd, int on)
{
    struct linger hard = {on, 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
}

/* A reset now, whoever else has the descriptor. */
static void reset_now(int fd)
{
    struct sockaddr a = {.sa_family = AF_UNSPEC};

    connect(fd, &a, sizeof(a));
}

static int has_deadline(const struct flow *f)
{
    return f->deadline != 0;
}

void flow_state(struct gate *g, struct flow *f, enum flow_state state, uint64_t ns)
{
    g->n_pending -= (unsigned)has_deadline(f);
    f->state = state;
    f->deadline = ns ? watch_now() + ns : 0;
    g->n_pending += (unsigned)has_deadline(f);
}

static void close_ends(struct flow *f, int hard)
{
    const int fds[] = {f->cell.fd, f->up.fd};
    int i;

    for (i = 0; i < 2; i++) {
        if (fds[i] < 0)
            continue;
        if (!hard)
            reset_on_close(fds[i], 0);
        else if (f->state == FLOW_ENGINE)
            reset_now(fds[i]);
        close(fds[i]);
    }
}

void flow_end(struct gate *g, struct flow *f, int hard, uint32_t reason)
{
    struct flow **p;

    if (f->dead)
        return;
    f->dead = 1;
    for (p = &g->flows; *p && *p != f; p = &(*p)->next)
        ;
    if (*p)
        *p = f->next;
    *(f->sport ? &g->n_measured : &g->n_flows) -= 1;
    if (f->state == FLOW_RESOLVE)
        upstream_cancel(f);
    engine_refund(g, f);
    tell_end(g, f, reason);
    watch_del(g, &f->cell);
    watch_del(g, &f->up);
    close_ends(f, hard);
    flow_state(g, f, f->state, 0);
    limits_close(g, &f->limits);
    lane_drop(g, &f->tx);
    lane_drop(g, &f->rx);
    f->next = g->dead;
    g->dead = f;
    watch_set(g, &g->relay, EPOLLIN);
}

static void flow_pump(struct gate *g, struct flow *f)
{
    int r = lanes_pump(g, f);

    if (r < 0)
        flow_end(g, f, 1, r == -EDQUOT ? REASON_LIMIT : REASON_NONE);
    else if (f->tx.done && f->rx.done)
        flow_end(g, f, 0, REASON_NONE);
}

static int socket_error(int fd)
{
    int e = 0;
    socklen_t len = sizeof(e);

    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0 ? errno : e;
}

static void cell_ready(struct gate *g, struct watch *w, uint32_t ready)
{
    struct flow *f = (struct flow *)(void *)((char *)w - offsetof(struct flow, cell));

    if (f->dead)
        return;
    if (f->state == FLOW_PEEK)
        flight_ready(g, f, ready);
    else if (ready & EPOLLERR || (f->state != FLOW_OPEN && ready & EPOLLHUP))
        flow_end(g, f, 1, REASON_NONE);
    else if (f->state == FLOW_OPEN)
        flow_pump(g, f);
}

/* --------------------------------------------------------------------- dial */

static void connected(struct gate *g, struct flow *f)
{
    int r;

    if (f->layer != POLICY_HTTP || (f->sport && f->tls)) {
        flow_state(g, f, FLOW_OPEN, 0);
        flow_pump(g, f);
        return;
    }
    watch_del(g, &f->cell);
    watch_del(g, &f->up);
    r = engine_give(g, f);
    if (r == 0)
        flow_state(g, f, FLOW_ENGINE, 0);
    else
        flow_end(g, f, 1, r == -EAGAIN ? REASON_LIMIT : REASON_BROKER_DOWN);
}

static void up_failed(struct gate *g, struct flow *f)
{
    watch_del(g, &f->up);
    if (f->up.fd >= 0)
        close(f->up.fd);
    f->up.fd = -1;
    if (f->next_addr < f->n_addrs)
        flow_dial(g, f);
    else
        flow_end(g, f, 1, REASON_UPSTREAM);
}

static void up_ready(struct gate *g, struct watch *w, uint32_t ready)
{
    struct flow *f = (struct flow *)(void *)((char *)w - offsetof(struct flow, up));

    if (f->dead)
        return;
    if (f->state == FLOW_CONNECT) {
        if (!(ready & (EPOLLOUT | EPOLLERR | EPOLLHUP)))
            return;
        if (socket_error(w->fd))
            up_failed(g, f);
        else
            connected(g, f);
    } else if (ready & EPOLLERR) {
        flow_end(g, f, 1, REASON_NONE);
    } else {
        flow_pump(g, f);
    }
}

static int dial(struct gate *g, struct flow *f)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(f->port), .sin_addr = {htonl(f->dst)}};
    int on = 1, fd = f->sport ? reach_sink(g, f->sport)
                              : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    f->up.fd = fd;
    reset_on_close(fd, 1);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(f->cell.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (!f->sport && connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 && errno != EINPROGRESS)
        return -errno;
    watch_set(g, &f->cell, 0);
    watch_set(g, &f->up, EPOLLOUT);
    return 0;
}

void flow_dial(struct gate *g, struct flow *f)
{
    struct ctl_msg m = {.type = CTL_ALLOW};

    f->dst = f->addr[f->next_addr++];
    fill(f, &m);
    if (!f->sport && gate_tell(g, &m) < 0) {
        flow_end(g, f, 1, REASON_LIMIT);
        return;
    }
    f->told = 1;
    flow_state(g, f, FLOW_CONNECT, CONNECT_NS);
    if (dial(g, f) < 0)
        up_failed(g, f);
}

/* ------------------------------------------------------------------- accept */

void flow_rule(struct gate *g, struct flow *f, const struct policy_rule *r)
{
    f->gen = g->table.head.generation;
    f->layer = r->layer;
    snprintf(f->rule, sizeof(f->rule), "%s", r->id);
    limits_move(g, &f->limits, r->id, &r->limits);
}

static struct flow *flow_new(struct gate *g, int own_fd, uint32_t asked, uint16_t port,
                             uint16_t sport)
{
    static uint32_t ids;
    struct flow *f = calloc(1, sizeof(*f));

    if (!f) {
        close(own_fd);
        gate_deny(g, IPPROTO_TCP, asked, port, REASON_LIMIT, NULL, NULL, 0);
        return NULL;
    }
    *f = (struct flow){.cell = {.fn = cell_ready, .fd = own_fd},
                       .up = {.fn = up_ready, .fd = -1},
                       .tx = {.pipe = {{-1, -1}}, .tx = 1},
                       .rx = {.pipe = {{-1, -1}}},
                       .asked = asked,
                       .port = port,
                       .sport = reach_diverts(g, sport) ? sport : 0,
                       .id = ++ids,
                       .gen = g->table.head.generation};
    f->next = g->flows;
    g->flows = f;
    f->limits.free = f->sport != 0;
    *(f->sport ? &g->n_measured : &g->n_flows) += 1;
    return f;
}

/* By network, else by the name the address stands for. */
static uint32_t judge_new(struct gate *g, struct flow *f, const struct policy_rule **ret)
{
    const struct policy_entry *e;
    uint32_t reason;

    *ret = NULL;
    if (is_synthetic(f->asked))
        return flight_name(g, f, ret);
    reason = relay_check(g, f->asked, f->port, &e);
    if (reason == REASON_NO_RULE && policy_mode(&g->table) == POLICY_REAL)
        return flight_name(g, f, ret);
    if (e)
        *ret = &g->table.rules[e->rule];
    return reason;
}

static int too_many(const struct gate *g, const struct flow *f)
{
    return (f->sport ? g->n_measured : g->n_flows) > FLOWS_MAX;
}

static void flow_begin(struct gate *g, struct flow *f)
{
    const struct policy_rule *r;
    uint32_t reason = judge_new(g, f, &r);

    if (r)
        snprintf(f->rule, sizeof(f->rule), "%s", r->id);
    if (reason == REASON_NONE && (too_many(g, f) || !limits_open(g, &f->limits, r->id, &r->limits)))
        reason = REASON_LIMIT;
    if (reason == REASON_NONE && f->name && r->layer == POLICY_HTTP && !engine_here(g))
        reason = REASON_BROKER_DOWN;
    if (reason != REASON_NONE) {
        flow_end(g, f, 1, reason);
        return;
    }
    flow_rule(g, f, r);
    if (f->name) {
        flight_begin(g, f);
        return;
    }
    f->layer = POLICY_RAW;
    f->addr[f->n_addrs++] = f->asked;
    flow_dial(g, f);
}

/* The positive twin of a measurement: no verdict, and no further than the sink. */
static void flow_sink(struct gate *g, struct flow *f)
{
    if (too_many(g, f)) {
        flow_end(g, f, 1, REASON_LIMIT);
        return;
    }
    f->addr[f->n_addrs++] = f->asked;
    flow_dial(g, f);
}

static void accepted(struct gate *g, int own_fd, const struct sockaddr_in *peer)
{
    struct sockaddr_in a;
    socklen_t len = sizeof(a);
    struct flow *f;

    if (getsockname(own_fd, (struct sockaddr *)&a, &len) < 0 || a.sin_family != AF_INET ||
        ntohl(peer->sin_addr.s_addr) != slot_cell(g->slot)) {
        close(own_fd);
        return;
    }
    f = flow_new(g, own_fd, ntohl(a.sin_addr.s_addr), ntohs(a.sin_port), ntohs(peer->sin_port));
    if (!f)
        return;
    reach_carried(g, f->sport);
    if (reach_twin(g, f->sport))
        flow_sink(g, f);
    else
        flow_begin(g, f);
}

void relay_ready(struct gate *g, struct watch *w, uint32_t ready)
{
    unsigned turn;

    (void)ready;
    for (turn = 0; turn < TURN_MAX; turn++) {
        struct sockaddr_in peer = {0};
        socklen_t len = sizeof(peer);
        int fd = accept4(w->fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
                watch_set(g, w, 0); /* until a flow ends */
            return;
        }
        accepted(g, fd, &peer);
    }
}

/* --------------------------------------------------------------- as a whole */

void relay_tick(struct gate *g)
{
    struct flow *f, *next;
    uint64_t now = watch_now();

    for (f = g->flows; f; f = next) {
        next = f->next;
        if (!has_deadline(f) || now < f->deadline)
            continue;
        if (f->state == FLOW_CONNECT)
            up_failed(g, f);
        else
            flow_end(g, f, 1, f->state == FLOW_PEEK ? REASON_NOT_TLS : REASON_UPSTREAM);
    }
    watch_set(g, &g->relay, EPOLLIN);
}

void relay_resume(struct gate *g)
{
    struct flow *f, *next;

    for (f = g->flows; f; f = next) {
        next = f->next;
        if (f->state == FLOW_OPEN && (f->tx.paused || f->rx.paused))
            flow_pump(g, f);
        else if (f->state == FLOW_ENGINE && (f->tx.paused || f->rx.paused))
            engine_grant(g, f);
    }
}

/* Whether the new table allows the flow as it is. */
static int still_allowed(struct gate *g, struct flow *f)
{
    const struct policy_rule *r;
    const struct policy_entry *e;

    if (f->sport && reach_twin(g, f->sport))
        return 1;
    if (!f->name) {
        if (relay_check(g, f->asked, f->port, &e) != REASON_NONE)
            return 0;
        r = &g->table.rules[e->rule];
    } else if ((policy_mode(&g->table) == POLICY_REAL) != f->pinned ||
               name_check(g, name_text(f->name), f->port, POLICY_TCP, &r) != REASON_NONE ||
               r->layer != f->layer || (f->dst && !addr_usable(g, f->dst, f->port, POLICY_TCP))) {
        return 0;
    }
    flow_rule(g, f, r);
    if (!f->name)
        f->layer = POLICY_RAW;
    return 1;
}

uint64_t relay_judge(struct gate *g, int held)
{
    struct flow *f, *next;
    uint64_t killed = 0;

    for (f = g->flows; f; f = next) {
        next = f->next;
        if (held && !reach_held(g, f->sport))
            continue;
        if (still_allowed(g, f)) {
            engine_relimit(g, f);
            continue;
        }
        flow_end(g, f, 1, REASON_POLICY_CHANGED);
        killed += !f->sport; /* what is measured is no flow of the cell */
    }
    return killed;
}

void relay_progress(struct gate *g)
{
    struct flow *f;

    for (f = g->flows; f; f = f->next)
        if (f->tx.moved != f->tx.told || f->rx.moved != f->rx.told)
            flow_tell(g, f, CTL_PROGRESS, REASON_NONE);
}

void relay_end_all(struct gate *g)
{
    while (g->flows)
        flow_end(g, g->flows, 1, REASON_NONE);
}

void relay_reap(struct gate *g)
{
    while (g->dead) {
        struct flow *f = g->dead;
        g->dead = f->next;
        free(f);
    }
}
