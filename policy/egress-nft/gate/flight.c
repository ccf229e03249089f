/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * flight - connections by name: what the cell means, whether its first bytes say the same, and
 * where that is.
 *
 * The address dialled by the cell stands for a name (names.c). Layer "raw": the name is enough.
 * Layer "tls": the ClientHello must name it. Layer "http": the same, or bytes that are no TLS; the
 * HTTP engine looks at the rest. The bytes are only peeked at, so they stay where the relay or the
 * engine reads them from. Only then is the name resolved, by the gate itself, each address checked,
 * and one of them dialled.
 *
 * Should: answer a refused TLS client with an alert and then a reset. Mustn't: send a packet
 * upstream, not even a DNS question, before the verdict; wait for first bytes for ever; dial an
 * address that was not checked in this very turn. One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "flow.h"

#define FIRST_NS 10000000000u
#define RESOLVE_NS 10000000000u
#define ALERT_ACCESS_DENIED 49
#define ALERT_UNRECOGNIZED_NAME 112

static void low_water(int fd, size_t n)
{
    int v = (int)n;

    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &v, sizeof(v));
}

static void refuse(struct gate *g, struct flow *f, uint32_t reason, uint8_t alert)
{
    const uint8_t record[] = {21, 3, 3, 0, 2, 2, alert};

    if (alert)
        send(f->cell.fd, record, sizeof(record), MSG_DONTWAIT | MSG_NOSIGNAL);
    flow_end(g, f, 1, reason);
}

/* ------------------------------------------------------------------- names */

/* Of the names pinned to the address, the first of the strictest layer; `sni`: that one only. */
static uint32_t pinned_name(struct gate *g, const struct flow *f, const char *sni,
                            struct name **ret_name, const struct policy_rule **ret)
{
    const struct policy_rule *r;
    struct name *n;
    uint32_t reason = REASON_NO_RULE;
    unsigned at = 0;

    *ret = NULL;
    while ((n = pin_next(f->asked, &at))) {
        uint32_t why;

        if (sni && strcmp(sni, name_text(n)) != 0)
            continue;
        why = name_check(g, name_text(n), f->port, POLICY_TCP, &r);
        if (why == REASON_NONE ? reason == REASON_NONE && r->layer <= (*ret)->layer
                               : reason != REASON_NO_RULE)
            continue;
        reason = why;
        *ret = r;
        *ret_name = n;
    }
    return reason;
}

uint32_t flight_name(struct gate *g, struct flow *f, const struct policy_rule **ret)
{
    *ret = NULL;
    if (!is_synthetic(f->asked)) {
        f->pinned = 1;
        return pinned_name(g, f, NULL, &f->name, ret);
    }
    f->name = name_at(f->asked);
    if (!f->name)
        return REASON_HARD_DENY;
    /* the mapping is of a mode that is not in force any more */
    if (policy_mode(&g->table) != POLICY_SYNTHETIC)
        return REASON_NO_RULE;
    return name_check(g, name_text(f->name), f->port, POLICY_TCP, ret);
}

/* ----------------------------------------------------------------- resolve */

static void hint_no_resolver(struct gate *g, struct flow *f)
{
    struct ctl_msg m = {.reason = REASON_BROKER_DOWN,
                        .proto = IPPROTO_TCP,
                        .dst = f->asked,
                        .port = f->port,
                        .hint = "no resolver is configured; set the option resolvers of egress-nft "
                                "or a nameserver in /etc/resolv.conf"};

    snprintf(m.rule, sizeof(m.rule), "%s", f->rule);
    snprintf(m.name, sizeof(m.name), "%s", name_text(f->name));
    g->attempt = f->sport;
    gate_deny_hint(g, &m);
    flow_end(g, f, 1, REASON_NONE);
}

static void resolved(struct gate *g, void *data, const struct resolved *r)
{
    struct flow *f = data;
    unsigned i;

    for (i = 0; i < r->n; i++)
        if (addr_usable(g, r->addr[i], f->port, POLICY_TCP))
            f->addr[f->n_addrs++] = r->addr[i];
    if (f->n_addrs) {
        flow_dial(g, f);
    } else if (r->status == UPSTREAM_OK) {
        f->dst = r->addr[0];
        flow_end(g, f, 1, REASON_RESOLVED_PRIVATE);
    } else if (r->status == UPSTREAM_NOWHERE) {
        hint_no_resolver(g, f);
    } else {
        flow_end(g, f, 1, r->status == UPSTREAM_BUSY ? REASON_LIMIT : REASON_UPSTREAM);
    }
}

/* The verdict is there: now something may happen upstream. */
static void resolve(struct gate *g, struct flow *f)
{
    struct resolved r = {.status = UPSTREAM_OK, .n = 1, .addr = {f->asked}};

    low_water(f->cell.fd, 1);
    watch_set(g, &f->cell, 0);
    flow_state(g, f, FLOW_RESOLVE, RESOLVE_NS);
    if (f->sport) { /* of a measurement: nothing upstream, not even a question */
        f->addr[f->n_addrs++] = f->asked;
        flow_dial(g, f);
    } else if (f->pinned) {
        resolved(g, f, &r);
    } else {
        upstream_ask(g, f->name, resolved, f);
    }
}

/* ------------------------------------------------------------- first bytes */

static void hello_came(struct gate *g, struct flow *f, const struct hello *h)
{
    const struct policy_rule *r = NULL;
    struct name *n = NULL;

    if (f->pinned ? pinned_name(g, f, h->sni, &n, &r) != REASON_NONE
                  : strcmp(h->sni, name_text(f->name)) != 0) {
        refuse(g, f, REASON_SNI_MISMATCH, ALERT_UNRECOGNIZED_NAME);
        return;
    }
    if (r) { /* by the name that it says, which is one of those pinned */
        f->name = n;
        limits_close(g, &f->limits); /* it was let in as another of the names here */
        if (!limits_open(g, &f->limits, r->id, &r->limits)) {
            snprintf(f->rule, sizeof(f->rule), "%s", r->id);
            refuse(g, f, REASON_LIMIT, ALERT_ACCESS_DENIED);
            return;
        }
        flow_rule(g, f, r);
    }
    f->tls = 1;
    resolve(g, f);
}

static void no_tls(struct gate *g, struct flow *f)
{
    if (f->layer == POLICY_HTTP)
        resolve(g, f);
    else
        refuse(g, f, REASON_NOT_TLS, 0);
}

void flight_ready(struct gate *g, struct flow *f, uint32_t ready)
{
    static uint8_t first[HELLO_WIRE_MAX];
    ssize_t n = recv(f->cell.fd, first, sizeof(first), MSG_PEEK | MSG_DONTWAIT);
    struct hello h;

    if (n < 0 && errno == EAGAIN && !(ready & (EPOLLERR | EPOLLHUP)))
        return;
    if (n <= 0) { /* it said nothing that could be judged */
        refuse(g, f, REASON_NOT_TLS, 0);
        return;
    }
    switch (hello_read(first, (size_t)n, &h)) {
    case HELLO_MORE:
        if (ready & (EPOLLRDHUP | EPOLLERR | EPOLLHUP))
            refuse(g, f, REASON_NOT_TLS, 0);
        else
            low_water(f->cell.fd, h.need);
        return;
    case HELLO_OK:
        hello_came(g, f, &h);
        return;
    case HELLO_NOT_TLS:
        no_tls(g, f);
        return;
    case HELLO_NO_SNI:
        refuse(g, f, REASON_SNI_MISSING, ALERT_ACCESS_DENIED);
        return;
    case HELLO_BAD_NAME:
        refuse(g, f, REASON_NAME_INVALID, ALERT_UNRECOGNIZED_NAME);
        return;
    case HELLO_BAD:
        break;
    }
    refuse(g, f, REASON_NOT_TLS, ALERT_ACCESS_DENIED);
}

void flight_begin(struct gate *g, struct flow *f)
{
    if (f->layer == POLICY_RAW) {
        resolve(g, f);
        return;
    }
    flow_state(g, f, FLOW_PEEK, FIRST_NS);
    watch_set(g, &f->cell, EPOLLIN | EPOLLRDHUP);
}
