/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * account - who talked to whom, how much, since when; and the alerts of the document.
 *
 * One line for each (rule or reason, destination, protocol). The cell chooses destinations, so lines
 * are bounded, and refused ones cannot crowd out allowed ones: what has no line of its own is in
 * "other". With "observe": {"allowed": "aggregate"} an allowed destination is an event at once when
 * it is new and then once a minute with the number of flows and their bytes; the rest is told when
 * the cell ends. Flows that a change or a limit ended are always events of their own. One thread,
 * the warden's.
 */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "egress.h"

#define LINES_MAX 1024u
#define DENIED_MAX 256u /* lines that only hold refusals */
#define TELL_NS 60000000000u

static struct line *line_find(struct egress *e, const char *rule, const char *destination,
                              const char *proto)
{
    size_t i;

    for (i = 0; i < e->n_lines; i++)
        if (!strcmp(e->lines[i].rule, rule) && !strcmp(e->lines[i].proto, proto) &&
            !strcmp(e->lines[i].destination, destination))
            return &e->lines[i];
    return NULL;
}

static struct line *line_add(struct egress *e, const char *rule, const char *destination,
                             const char *proto)
{
    struct line *l;

    if (e->n_lines == e->cap_lines) {
        size_t cap = e->cap_lines ? e->cap_lines * 2 : 8;
        struct line *p = realloc(e->lines, cap * sizeof(*p));
        if (!p)
            return NULL;
        e->lines = p;
        e->cap_lines = cap;
    }
    l = &e->lines[e->n_lines];
    *l = (struct line){.destination = strdup(destination)};
    if (!l->destination)
        return NULL;
    snprintf(l->rule, sizeof(l->rule), "%s", rule);
    snprintf(l->proto, sizeof(l->proto), "%s", proto);
    l->first_ns = wall_ns();
    e->n_lines++;
    return l;
}

static struct line *line_of(struct egress *e, const struct ctl_msg *m, const char *destination,
                            const char *proto)
{
    const char *rule = m->rule[0] ? m->rule : reason_word(m->reason);
    struct line *l = line_find(e, rule, destination, proto);
    int denied = m->type == CTL_DENY;

    if (l)
        return l;
    if (e->n_lines < LINES_MAX - 1 && (!denied || e->n_denied < DENIED_MAX - 1)) {
        e->n_denied += denied;
        return line_add(e, rule, destination, proto);
    }
    l = line_find(e, "other", "other", "");
    return l ? l : line_add(e, "other", "other", "");
}

static void destination_of(const struct ctl_msg *m, const char *dst, char out[CTL_NAME_MAX + 8])
{
    const char *who = m->name[0] && m->reason != REASON_IPV6_CLOSED ? m->name : dst;

    if (m->port && !m->qtype)
        snprintf(out, CTL_NAME_MAX + 8, "%s:%u", who, m->port);
    else
        snprintf(out, CTL_NAME_MAX + 8, "%s", who);
}

/* ----------------------------------------------------------------- alerts */

static int alert(struct egress *e, const char *what, const struct ctl_msg *m, const char *member,
                 uint64_t value)
{
    struct fields f = {.n = 0};

    put_str(&f, "alert", what);
    put_str(&f, "rule", m->rule);
    put_str(&f, "name", m->reason == REASON_IPV6_CLOSED ? "" : m->name);
    if (m->port)
        put_int(&f, "port", m->port);
    if (member)
        put_int(&f, member, value);
    put_int(&f, "gen", m->gen);
    return emit(e, "net.alert", &f);
}

/* Adds to the window of alert `i`; 1 when it has just gone over. */
static int over(struct egress *e, size_t i, uint64_t add)
{
    const struct document_alert *a = &e->document.alerts[i];
    struct alert_window *w = &e->alerts[i];
    uint64_t now = now_ns();

    if (!w->began_ns || now - w->began_ns >= a->per_ns)
        *w = (struct alert_window){.began_ns = now};
    w->sum += add;
    if (w->said || w->sum < a->amount)
        return 0;
    w->said = 1;
    return 1;
}

static int alerts(struct egress *e, const struct ctl_msg *m, int is_new)
{
    uint64_t refused = m->type == CTL_DENY ? m->count + m->suppressed : 0;
    size_t i;
    int r = 0;

    for (i = 0; r >= 0 && i < e->document.n_alerts; i++) {
        const struct document_alert *a = &e->document.alerts[i];
        struct alert_window *w = &e->alerts[i];
        switch (a->on) {
        case DOCUMENT_NEW_NAME:
            if (is_new && m->name[0] && !m->qtype) /* connections, not questions */
                r = alert(e, "new_name", m, NULL, 0);
            break;
        case DOCUMENT_TX_OVER:
            if (m->tx_delta && over(e, i, m->tx_delta))
                r = alert(e, "tx_over", m, "tx", w->sum);
            break;
        case DOCUMENT_DENY_BURST:
            if (refused && over(e, i, refused))
                r = alert(e, "deny_burst", m, "count", w->sum);
            break;
        case DOCUMENT_DNS_SUSPECT: /* one a minute is enough: each is a denial of its own too */
            if (m->reason == REASON_DNS_SUSPECT &&
                (!w->began_ns || now_ns() - w->began_ns >= TELL_NS)) {
                w->began_ns = now_ns();
                r = alert(e, "dns_suspect", m, NULL, 0);
            }
            break;
        }
    }
    return r < 0 ? -EIO : 0;
}

/* -------------------------------------------------------------- aggregate */

static int tell(struct egress *e, struct line *l)
{
    char who[CTL_NAME_MAX + 8];
    const char *colon = strrchr(l->destination, ':');
    struct fields f = {.n = 0};
    struct in_addr a;

    snprintf(who, sizeof(who), "%s", l->destination);
    if (colon && !l->question)
        who[colon - l->destination] = 0;
    put_str(&f, "verdict", "allow");
    put_str(&f, "rule", l->rule);
    put_str(&f, "proto", l->proto);
    put_str(&f, inet_pton(AF_INET, who, &a) == 1 ? "dst" : "name", who);
    if (colon && !l->question)
        put_int(&f, "port", strtoul(colon + 1, NULL, 10));
    put_int(&f, "gen", e->table.head.generation);
    if (!l->question) {
        put_int(&f, "tx", l->untold_tx);
        put_int(&f, "rx", l->untold_rx);
    }
    put_int(&f, "count", l->untold);
    l->untold = l->untold_tx = l->untold_rx = 0;
    l->told_ns = now_ns();
    return emit(e, l->question ? "net.allow" : "net.flow", &f) < 0 ? -EIO : 0;
}

/* 1: the message is an event of its own. */
static int aggregate(struct egress *e, const struct ctl_msg *m, struct line *l, int is_new)
{
    if (e->document.observe != DOCUMENT_AGGREGATE || m->type == CTL_DENY || m->reason || !l)
        return 1;
    if (!strcmp(l->destination, "other")) /* its totals would name nobody */
        return 1;
    if (is_new) {
        l->told_ns = now_ns();
        return 1;
    }
    l->untold += m->type == CTL_ALLOW ? m->count : 0;
    l->untold_tx += m->tx_delta;
    l->untold_rx += m->rx_delta;
    return now_ns() - l->told_ns >= TELL_NS ? tell(e, l) : 0;
}

int account(struct egress *e, const struct ctl_msg *m, const char *dst, const char *proto)
{
    char destination[CTL_NAME_MAX + 8];
    struct line *l;
    int is_new, r;

    destination_of(m, dst, destination);
    l = line_of(e, m, destination, proto);
    is_new = m->type == CTL_ALLOW && l && !l->allowed;
    if (l) {
        if (m->type == CTL_ALLOW && !m->method[0]) /* with a method: a request, no connection */
            l->allowed += m->count;
        if (m->type == CTL_DENY)
            l->denied += m->count + m->suppressed;
        l->question = m->qtype != 0;
        l->tx += m->tx_delta;
        l->rx += m->rx_delta;
        l->last_ns = wall_ns();
    }
    r = alerts(e, m, is_new);
    return r < 0 ? r : aggregate(e, m, l, is_new);
}

void account_end(struct egress *e)
{
    size_t i;

    for (i = 0; i < e->n_lines; i++) {
        if (e->lines[i].untold || e->lines[i].untold_tx || e->lines[i].untold_rx)
            tell(e, &e->lines[i]);
        free(e->lines[i].destination);
    }
    free(e->lines);
    e->lines = NULL;
    e->n_lines = e->cap_lines = e->n_denied = 0;
}
