/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * events - what the warden is told, at a rate it can take.
 *
 * Denials pass a token bucket; what does not fit is counted and the count rides on the next event,
 * so that nothing is dropped silently. When the warden is slow the queue fills; then denials are
 * counted too, and flows are refused (relay.c), because an allowed flow nobody recorded must not
 * exist.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "gate.h"

#define QUEUE_MAX 64u
#define REPLIES_MAX 32u /* and room for what the warden waits for */
#define BURST 256u
#define REFILL_NS (1000000000u / 64u) /* 64 denials a second for ever */

struct bucket {
    unsigned tokens;
    uint64_t refilled;
};

struct events {
    struct ctl_msg queue[QUEUE_MAX + REPLIES_MAX]; /* ring; untouched pages cost nothing */
    unsigned head, n;
    struct bucket denials, answers;
    uint64_t suppressed;
    uint32_t unsaid; /* answered questions without an event */
};

void events_init(struct gate *g)
{
    static struct events events;

    events.denials = events.answers = (struct bucket){BURST, watch_now()};
    g->events = &events;
}

static int send_now(struct gate *g, const struct ctl_msg *m)
{
    ssize_t n;

    do
        n = send(g->ctl.fd, m, sizeof(*m), MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN && errno != ENOBUFS)
        g->quit = 1; /* the warden is gone */
    return n < 0 ? -errno : 0;
}

static int is_event(const struct ctl_msg *m)
{
    return m->type == CTL_DENY || m->type == CTL_ALLOW || m->type == CTL_FLOW ||
           m->type == CTL_PROGRESS;
}

int gate_tell(struct gate *g, const struct ctl_msg *m)
{
    struct events *e = g->events;

    if (!e->n && send_now(g, m) == 0)
        return 0;
    if (e->n >= (is_event(m) ? QUEUE_MAX : QUEUE_MAX + REPLIES_MAX))
        return -EAGAIN;
    e->queue[(e->head + e->n++) % (QUEUE_MAX + REPLIES_MAX)] = *m;
    watch_set(g, &g->ctl, EPOLLIN | EPOLLOUT);
    return 0;
}

void events_drain(struct gate *g)
{
    struct events *e = g->events;

    while (e->n && send_now(g, &e->queue[e->head]) == 0) {
        e->head = (e->head + 1) % (QUEUE_MAX + REPLIES_MAX);
        e->n--;
    }
    if (!e->n)
        watch_set(g, &g->ctl, EPOLLIN);
}

void gate_suppressed(struct gate *g, uint64_t n)
{
    g->events->suppressed += n;
}

static int take_token(struct bucket *b)
{
    uint64_t gained = (watch_now() - b->refilled) / REFILL_NS;

    if (gained) {
        b->refilled += gained * REFILL_NS;
        b->tokens = gained + b->tokens > BURST ? BURST : b->tokens + (unsigned)gained;
    }
    if (!b->tokens)
        return 0;
    b->tokens--;
    return 1;
}

void gate_deny_hint(struct gate *g, const struct ctl_msg *what)
{
    struct events *e = g->events;
    struct ctl_msg m = *what;

    m.type = CTL_DENY;
    m.count = 1;
    m.gen = g->table.head.generation;
    m.suppressed = e->suppressed;
    m.probe = reach_refused(g) != 0;
    if (!take_token(&e->denials) || gate_tell(g, &m) < 0)
        e->suppressed++;
    else
        e->suppressed = 0;
}

void gate_deny(struct gate *g, uint32_t proto, uint32_t dst, uint16_t port, uint32_t reason,
               const char *rule, const char *name, uint16_t qtype)
{
    struct ctl_msg m = {.reason = reason, .proto = proto, .dst = dst, .port = port, .qtype = qtype};

    snprintf(m.rule, sizeof(m.rule), "%s", rule ? rule : "");
    snprintf(m.name, sizeof(m.name), "%s", name ? name : "");
    gate_deny_hint(g, &m);
}

/* With a budget of its own; what does not fit rides on the next as its count. */
void gate_answered(struct gate *g, uint32_t proto, uint32_t dst, const char *name, uint16_t qtype)
{
    struct events *e = g->events;
    struct ctl_msg m = {.type = CTL_ALLOW,
                        .proto = proto,
                        .dst = dst,
                        .port = 53,
                        .qtype = qtype,
                        .count = 1 + e->unsaid,
                        .gen = g->table.head.generation};

    if (!g->table.head.dns.log_allowed)
        return;
    snprintf(m.name, sizeof(m.name), "%s", name);
    if (take_token(&e->answers) && gate_tell(g, &m) == 0)
        e->unsaid = 0;
    else if (e->unsaid < 100000)
        e->unsaid++;
}

void events_close_account(struct gate *g)
{
    struct events *e = g->events;
    struct ctl_msg m = {.type = CTL_DENY,
                        .reason = REASON_LIMIT,
                        .suppressed = e->suppressed,
                        .gen = g->table.head.generation};

    if (e->suppressed && gate_tell(g, &m) == 0)
        e->suppressed = 0;
}
