/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * handover - connections given to the HTTP engine, and what it says about them. engine.h is the
 * contract.
 *
 * The gate keeps its own descriptors of both ends: it stays the one who ends a flow when the
 * policy, the cell or the engine itself goes. The engine parses hostile bytes, so its messages are
 * checked: a number that is not a flow of its, or totals that run backwards, end the engine. Where bytes are limited
 * it gets them in portions, charged beforehand: the rules' accounts are here, for spliced flows too. One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../engine.h"
#include "flow.h"

#define GRANT_MAX 65536 /* bytes at a time */
#define GRANT_MIN 1024

int engine_here(const struct gate *g)
{
    return g->engine.fd >= 0;
}

static void engine_lost(struct gate *g)
{
    struct flow *f, *next;

    if (g->engine.fd < 0)
        return;
    watch_del(g, &g->engine);
    close(g->engine.fd);
    g->engine.fd = -1;
    for (f = g->flows; f; f = next) {
        next = f->next;
        if (f->state == FLOW_ENGINE)
            flow_end(g, f, 1, REASON_BROKER_DOWN);
    }
}

static struct flow *flow_of(const struct gate *g, uint32_t id)
{
    struct flow *f;

    for (f = g->flows; f; f = f->next)
        if (f->state == FLOW_ENGINE && f->id == id)
            return f;
    return NULL;
}

/* ------------------------------------------------------------------ limits */

static struct lane *lane_of(struct flow *f, int tx)
{
    return tx ? &f->tx : &f->rx;
}

/* What the engine moved counts, as far as it was not granted before. */
static void charge(struct gate *g, struct flow *f, int tx, uint64_t moved)
{
    struct lane *l = lane_of(f, tx);

    if (moved > l->charged) {
        limits_spend(g, &f->limits, tx, moved - l->charged);
        l->charged = moved;
    }
    l->moved = moved;
}

void engine_refund(struct gate *g, struct flow *f)
{
    int tx;

    for (tx = 0; f->state == FLOW_ENGINE && tx < 2; tx++) {
        struct lane *l = lane_of(f, tx);
        if (l->charged > l->moved)
            limits_refund(g, &f->limits, tx, l->charged - l->moved);
        l->charged = l->moved;
    }
}

static int send_may(const struct gate *g, struct flow *f)
{
    struct engine_msg m = {.type = ENGINE_MAY,
                           .id = f->id,
                           .tx = limits_any(g, &f->limits, 1) ? f->tx.charged : UINT64_MAX,
                           .rx = limits_any(g, &f->limits, 0) ? f->rx.charged : UINT64_MAX};

    return send(g->engine.fd, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* A quarter of what is left at most: others may want some, and what lies here idle is nobody's. */
static long portion(struct gate *g, const struct flow *f, int tx)
{
    long left = limits_budget(g, &f->limits, tx, 4 * GRANT_MAX);

    return left > 4 * GRANT_MIN ? left / 4 : left > GRANT_MIN ? GRANT_MIN : left;
}

void engine_grant(struct gate *g, struct flow *f)
{
    int tx, granted = 0;

    for (tx = 0; tx < 2; tx++) {
        struct lane *l = lane_of(f, tx);
        long n = l->paused ? portion(g, f, tx) : 0;
        if (n < 0) {
            flow_end(g, f, 1, REASON_LIMIT);
            return;
        }
        if (n == 0)
            continue;
        limits_spend(g, &f->limits, tx, (size_t)n);
        l->charged += (uint64_t)n;
        lane_pause(g, l, 0);
        granted |= 1 << tx;
    }
    if (granted && send_may(g, f) < 0)
        for (tx = 0; tx < 2; tx++) /* it does not read; again with the next tokens */
            lane_pause(g, lane_of(f, tx), granted >> tx & 1);
}

void engine_relimit(struct gate *g, struct flow *f)
{
    if (f->state == FLOW_ENGINE && send_may(g, f) < 0)
        flow_end(g, f, 1, REASON_POLICY_CHANGED); /* it would go on under the old ones */
}

/* ---------------------------------------------------------------- messages */

/* -1: it cannot be true. */
static int engine_message(struct gate *g, const struct engine_msg *m)
{
    struct flow *f = flow_of(g, m->id);

    if ((m->type != ENGINE_PROGRESS && m->type != ENGINE_END && m->type != ENGINE_WANT) ||
        m->reason >= REASONS || m->reset > 1 || m->limited > (ENGINE_TX | ENGINE_RX))
        return -1;
    if (!f) /* ended by the gate meanwhile */
        return 0;
    if (m->tx < f->tx.moved || m->rx < f->rx.moved || m->tx >> 60 || m->rx >> 60)
        return -1;
    charge(g, f, 1, m->tx);
    charge(g, f, 0, m->rx);
    if (m->type == ENGINE_END) {
        flow_end(g, f, m->reset || m->reason != REASON_NONE, m->reason);
    } else if (m->type == ENGINE_WANT) {
        lane_pause(g, &f->tx, f->tx.paused || m->limited & ENGINE_TX);
        lane_pause(g, &f->rx, f->rx.paused || m->limited & ENGINE_RX);
        engine_grant(g, f);
    }
    return 0;
}

static void engine_ready(struct gate *g, struct watch *w, uint32_t ready)
{
    struct engine_msg m;
    unsigned turn;

    (void)ready;
    for (turn = 0; turn < TURN_MAX; turn++) {
        ssize_t n = recv(w->fd, &m, sizeof(m), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n != (ssize_t)sizeof(m) || engine_message(g, &m) < 0) {
            engine_lost(g);
            return;
        }
    }
}

void engine_set(struct gate *g, int own_fd)
{
    engine_lost(g);
    if (own_fd < 0)
        return;
    g->engine = (struct watch){.fn = engine_ready, .fd = own_fd};
    watch_set(g, &g->engine, EPOLLIN);
}

int engine_give(struct gate *g, const struct flow *f)
{
    struct engine_msg m = {.type = ENGINE_FLOW,
                           .id = f->id,
                           .gen = f->gen,
                           .dst = f->dst,
                           .port = f->port,
                           .tls = f->tls,
                           .measured = f->sport != 0,
                           .limited = (limits_any(g, &f->limits, 1) ? ENGINE_TX : 0u) |
                                      (limits_any(g, &f->limits, 0) ? ENGINE_RX : 0u)};
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct iovec iov = {&m, sizeof(m)};
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof(control)};
    const int fds[2] = {f->cell.fd, f->up.fd};

    snprintf(m.rule, sizeof(m.rule), "%s", f->rule);
    snprintf(m.name, sizeof(m.name), "%s", name_text(f->name));
    control.align.cmsg_level = SOL_SOCKET;
    control.align.cmsg_type = SCM_RIGHTS;
    control.align.cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(&control.align), fds, sizeof(fds));
    if (g->engine.fd < 0)
        return -EPIPE;
    return sendmsg(g->engine.fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}
