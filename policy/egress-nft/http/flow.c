/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * flow - the life of a flow: taken from the gate, handshakes, exchanges, end; and publications.
 *
 * Every readiness leads to flow_pump(), which goes round (read, digest, write) until nothing moves. A flow that
 * still moves after ROUNDS_MAX waits for the next turn of the loop, so that one flow cannot hold the
 * others. Dead flows are freed after the turn, because epoll may still hold an event for them.
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

#include "http.h"

#define DIGESTS_MAX 4

/* -------------------------------------------------------------------- end */

static void tell_gate(struct flow *f, uint32_t type, uint32_t reason, int reset)
{
    struct engine_msg m = {.type = type,
                           .id = f->id,
                           .gen = f->gen,
                           .dst = f->dst,
                           .port = f->port,
                           .tls = (uint16_t)f->tls,
                           .reason = reason,
                           .reset = (uint32_t)reset,
                           .limited = (uint32_t)f->cell.starved,
                           .tx = side_read_total(&f->cell),
                           .rx = side_written_total(&f->cell)};

    snprintf(m.rule, sizeof(m.rule), "%s", f->rule);
    snprintf(m.name, sizeof(m.name), "%s", f->name);
    f->told_tx = m.tx;
    f->told_rx = m.rx;
    engine_tell_gate(f->e, &m);
}

static void judged_drop(struct judged *j)
{
    free(j->path);
    *j = (struct judged){0};
}

void judged_set(struct judged *j, const char *method, const char *path, size_t path_len, int ws)
{
    judged_drop(j);
    snprintf(j->method, sizeof(j->method), "%s", method);
    j->path = strndup(path, path_len);
    j->websocket = ws;
}

void flow_end(struct flow *f, int hard, uint32_t reason)
{
    struct engine *e = f->e;
    struct flow **p;

    if (f->dead)
        return;
    f->dead = 1;
    for (p = &e->list; *p && *p != f; p = &(*p)->next)
        ;
    if (*p)
        *p = f->next;
    e->n_flows--;
    tell_gate(f, ENGINE_END, reason, hard != 0);
    h2_free(f);
    side_close(e, &f->cell, hard);
    side_close(e, &f->up, hard || f->phase == PHASE_CLOSING);
    judged_drop(&f->judged);
    if (f->basic)
        explicit_bzero(f->basic, strlen(f->basic));
    free(f->basic);
    f->basic = NULL;
    f->next = e->dead;
    e->dead = f;
}

void flow_reap(struct engine *e)
{
    struct flow *f;

    while (e->again) { /* the dead must not be visited */
        f = e->again;
        if (!f->dead)
            break;
        e->again = f->again;
        f->queued = 0;
    }
    for (f = e->again; f; f = f->again)
        while (f->again && f->again->dead) {
            f->again->queued = 0;
            f->again = f->again->again;
        }
    while (e->dead) {
        f = e->dead;
        e->dead = f->next;
        free(f);
    }
}

void flow_closing(struct flow *f)
{
    f->phase = PHASE_CLOSING;
    f->deadline = watch_now() + LINGER_NS;
    f->cell.fin = 1;
    if (f->up.w.fd >= 0)
        side_close(f->e, &f->up, f->up.out.len || (f->h1.r != R_IDLE && f->h1.r != R_DONE));
}

/* ------------------------------------------------------------------- pump */

static long move(struct side *from, struct side *to)
{
    size_t n = to->out.len < OUT_MAX ? OUT_MAX - to->out.len : 0;

    if (n > from->in.len)
        n = from->in.len;
    if (n) {
        if (bytes_add(&to->out, bytes_at(&from->in), n) < 0)
            return -ENOMEM;
        bytes_drop(&from->in, n);
    }
    if (from->eof && !from->in.len && !to->fin) {
        to->fin = 1;
        return 1;
    }
    return (long)n;
}

static long raw_step(struct flow *f)
{
    long a = move(&f->cell, &f->up), b = a < 0 ? a : move(&f->up, &f->cell);

    return b < 0 ? b : a + b;
}

static size_t room(const struct flow *f, const struct side *s)
{
    switch (f->phase) {
    case PHASE_H1:
        return h1_room(f, s);
    case PHASE_H2:
    case PHASE_RAW:
        return IN_MAX;
    case PHASE_CLOSING:
        return s == &f->cell ? IN_MAX : 0;
    case PHASE_HELLO:
    case PHASE_UP:
    case PHASE_CELL:
    default:
        return 0;
    }
}

/* Digests what was read: >0 something changed, 0 nothing, <0 the flow is broken. */
static long digest(struct flow *f)
{
    switch (f->phase) {
    case PHASE_HELLO:
    case PHASE_UP:
    case PHASE_CELL:
        return tls_step(f);
    case PHASE_H1:
        return h1_step(f);
    case PHASE_H2:
        return h2_step(f);
    case PHASE_RAW:
        return raw_step(f);
    case PHASE_CLOSING:
    default:
        bytes_fini(&f->cell.in); /* what the cell still sends is read and forgotten */
        return 0;
    }
}

static long fill(struct flow *f, struct side *s)
{
    size_t want = s->w.fd >= 0 ? room(f, s) : 0;

    return want ? side_fill(s, want) : 0;
}

static int finished(const struct flow *f)
{
    if (f->phase == PHASE_CLOSING)
        return f->cell.fin_sent && f->cell.eof;
    if (f->phase == PHASE_RAW)
        return f->cell.fin_sent && f->up.fin_sent;
    return f->phase == PHASE_H2 && h2_done(f);
}

/* Once for each direction, until the gate has answered. */
static void ask(struct flow *f)
{
    if (!(f->cell.starved & ~f->asked))
        return;
    f->asked |= f->cell.starved;
    tell_gate(f, ENGINE_WANT, REASON_NONE, 0);
}

void flow_may(struct engine *e, const struct engine_msg *m)
{
    struct flow *f;

    for (f = e->list; f && f->id != m->id; f = f->next)
        ;
    if (!f)
        return;
    f->cell.may_read = m->tx;
    f->cell.may_write = m->rx;
    f->asked = f->cell.starved = 0;
    f->cell.ready = 1;
    flow_pump(f);
}

static void arm(struct flow *f)
{
    struct engine *e = f->e;
    int shaking = f->phase <= PHASE_CELL;

    ask(f);

    side_arm(e, &f->cell,
             shaking ? f->phase != PHASE_UP && f->cell.wants_more
                     : room(f, &f->cell) > f->cell.in.len);
    side_arm(e, &f->up,
             shaking ? f->phase == PHASE_UP && f->up.wants_more : room(f, &f->up) > f->up.in.len);
}

/* As much as a few steps make of what was read, so that a head and its body leave in one write. */
static long digest_all(struct flow *f)
{
    long r, total = 0;
    int i;

    for (i = 0; i < DIGESTS_MAX; i++) {
        r = digest(f);
        if (r <= 0 || f->dead || f->phase <= PHASE_CELL)
            return r < 0 ? r : total + r;
        total += r;
    }
    return total;
}

/* One round. >0: go on. */
static long turn(struct flow *f)
{
    long a = 0, b = 0, c, d = 0, u = 0;

    if (f->phase > PHASE_CELL) {
        a = fill(f, &f->cell);
        b = a < 0 ? a : fill(f, &f->up);
        if (b == -ECONNRESET && a >= 0 &&
            (f->phase == PHASE_H2 || (f->phase == PHASE_H1 && !f->h1.answered)))
            b = f->up.eof = 1; /* the cell gets a typed answer for a server that hung up */
        if (b < 0)
            return b;
    }
    c = digest_all(f);
    if (c < 0 || f->dead)
        return c;
    if (f->phase > PHASE_CELL) {
        d = side_flush(&f->cell);
        if (d < 0)
            return d;
        u = f->up.w.fd >= 0 ? side_flush(&f->up) : 0;
        if (u < 0 && f->phase != PHASE_RAW) {
            bytes_fini(&f->up.out); /* it may have answered already: go on reading */
            u = 0;
        }
        if (u < 0)
            return u;
    }
    return a + b + c + d + u;
}

void flow_pump(struct flow *f)
{
    long r = 1;
    int i;

    for (i = 0; r > 0 && i < ROUNDS_MAX; i++) {
        r = turn(f);
        if (f->dead)
            return;
        if (r < 0) {
            flow_end(f, r != -EPERM, REASON_NONE);
            return;
        }
        if (finished(f)) {
            flow_end(f, 0, REASON_NONE);
            return;
        }
    }
    if (r > 0 && !f->queued) {
        f->queued = 1;
        f->again = f->e->again;
        f->e->again = f;
    }
    arm(f);
}

void flow_again(struct engine *e)
{
    struct flow *f = e->again, *next;

    e->again = NULL;
    for (; f; f = next) {
        next = f->again;
        f->queued = 0;
        if (!f->dead)
            flow_pump(f);
    }
}

static void ready(struct engine *e, struct watch *w, uint32_t events)
{
    struct flow *f = w->flow;

    (void)e;
    if (f->dead)
        return;
    if (events & ~(uint32_t)EPOLLOUT)
        *(w == &f->cell.w ? &f->cell.ready : &f->up.ready) = 1;
    if (events & EPOLLERR && w == &f->cell.w) { /* nobody is left to answer */
        flow_end(f, 1, REASON_NONE);
        return;
    }
    flow_pump(f);
}

/* -------------------------------------------------------------------- new */

/* The descriptor is connected to what the gate says, and to nothing no document can open. */
static int upstream_is(int fd, uint32_t dst, uint16_t port)
{
    struct sockaddr_in a = {0};
    socklen_t len = sizeof(a);

    return getpeername(fd, (struct sockaddr *)&a, &len) == 0 && a.sin_family == AF_INET &&
           ntohl(a.sin_addr.s_addr) == dst && ntohs(a.sin_port) == port && !policy_hard(dst, dst);
}

/* The gate's sink instead of a server: nothing but plain HTTP may go there. */
static int upstream_is_sink(int fd, const struct flow *f)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof(a);

    return !f->tls && getpeername(fd, (struct sockaddr *)&a, &len) == 0 && a.ss_family == AF_UNIX;
}

void flow_new(struct engine *e, const struct engine_msg *m, int own_cell, int own_up)
{
    struct flow *f = calloc(1, sizeof(*f));
    int on = 1;

    if (!f) {
        close(own_cell);
        close(own_up);
        e->quit = 1;
        return;
    }
    f->e = e;
    f->id = m->id;
    f->gen = m->gen;
    f->dst = m->dst;
    f->port = m->port;
    f->tls = m->tls != 0;
    f->measured = m->measured != 0;
    f->cell.may_read = m->limited & ENGINE_TX ? 0 : UINT64_MAX;
    f->cell.may_write = m->limited & ENGINE_RX ? 0 : UINT64_MAX;
    f->up.may_read = f->up.may_write = UINT64_MAX;
    f->cell.ready = f->up.ready = 1;
    f->phase = f->tls ? PHASE_HELLO : PHASE_H1;
    f->deadline = f->tls ? watch_now() + HANDSHAKE_NS : 0;
    f->cell.w = (struct watch){.fn = ready, .flow = f, .fd = own_cell};
    f->up.w = (struct watch){.fn = ready, .flow = f, .fd = own_up};
    snprintf(f->rule, sizeof(f->rule), "%s", m->rule);
    snprintf(f->name, sizeof(f->name), "%s", m->name);
    f->next = e->list;
    e->list = f;
    e->n_flows++;
    setsockopt(own_cell, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(own_up, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (!judge_again(f, &f->judged)) {
        deny_event(f, REASON_NO_RULE, NULL, NULL);
        flow_end(f, 1, REASON_NO_RULE);
    } else if (!(f->measured ? upstream_is_sink(own_up, f)
                             : upstream_is(own_up, f->dst, f->port)) ||
               (f->tls && tls_cell(f) < 0)) {
        deny_event(f, REASON_HARD_DENY, NULL, NULL);
        flow_end(f, 1, REASON_HARD_DENY);
    } else {
        flow_pump(f);
    }
}

/* ------------------------------------------------------------ all of them */

void flow_tick(struct engine *e)
{
    struct flow *f, *next;
    uint64_t now = watch_now();

    for (f = e->list; f; f = next) {
        next = f->next;
        if (f->deadline && now >= f->deadline)
            flow_end(f, f->phase != PHASE_CLOSING, REASON_NONE);
    }
}

uint64_t flow_judge_all(struct engine *e)
{
    static const struct judged idle;
    struct flow *f, *next;
    uint64_t killed = 0;

    for (f = e->list; f; f = next) {
        next = f->next;
        if (!judge_again(f, &idle)) { /* the gate sees that as well, and counts it */
            flow_end(f, 1, REASON_POLICY_CHANGED);
            continue;
        }
        if (f->phase != PHASE_H2 && !judge_again(f, &f->judged)) {
            flow_end(f, 1, REASON_POLICY_CHANGED);
            killed++;
            continue;
        }
        f->gen = e->table.head.generation;
        if (f->phase == PHASE_H2) {
            killed += h2_judge(f);
            flow_pump(f);
        }
    }
    return killed;
}

void flow_end_all(struct engine *e)
{
    while (e->list)
        flow_end(e->list, 1, REASON_NONE);
}

void flow_progress(struct engine *e)
{
    struct flow *f;

    for (f = e->list; f; f = f->next)
        if (side_read_total(&f->cell) != f->told_tx || side_written_total(&f->cell) != f->told_rx)
            tell_gate(f, ENGINE_PROGRESS, REASON_NONE, 0);
}
