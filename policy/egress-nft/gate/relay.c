/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * relay - TCP flows: accepted from the cell, checked, dialled from the uplink namespace, spliced.
 *
 * The kernel rules let a connection come this far; the check here is the one that counts and
 * repeats all of it: hard-deny set, the uplink's own addresses as they are now, the table. Exactly
 * the checked address is dialled. An allowed flow is reported before it is dialled, and refused
 * when that fails.
 *
 * Bytes go through a pipe per direction and never into this process. A direction reads only when
 * its pipe is empty, so a slow reader holds at most one pipe and two socket buffers. FIN is passed
 * on after the last byte; any error resets both ends. Dead flows are freed after the turn, because
 * epoll may still hold an event for them. One thread.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gate.h"

#define CONNECT_NS 15000000000u
#define PIPE_BYTES (256 * 1024)
#define PIPES_KEPT 8u
#define PUMP_ROUNDS 8

struct pipes {
    int fd[2];
};

/* Bytes of one direction, on their way from one side to the other. */
struct lane {
    struct pipes pipe; /* only while it holds bytes */
    size_t held;
    uint64_t moved, told;
    int eof, done;
};

struct flow {
    struct watch cell, up; /* first two members: callbacks find the flow from them */
    struct flow *next;
    struct lane tx, rx; /* cell to upstream, and back */
    uint32_t dst;
    uint16_t port;
    uint16_t sport; /* of a reach measurement: this flow ends in the sink; else 0 */
    uint16_t dead;
    int connecting;
    uint64_t deadline, gen;
    char rule[POLICY_ID_MAX + 1];
};

/* ------------------------------------------------------------------ pipes */

static struct pipes kept[PIPES_KEPT];
static unsigned n_kept;

static int pipe_take(struct pipes *p)
{
    if (n_kept) {
        *p = kept[--n_kept];
        return 0;
    }
    if (pipe2(p->fd, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    fcntl(p->fd[0], F_SETPIPE_SZ, PIPE_BYTES); /* the default size does too */
    return 0;
}

static void pipe_give(struct pipes *p, int empty)
{
    if (p->fd[0] < 0)
        return;
    if (empty && n_kept < PIPES_KEPT) {
        kept[n_kept++] = *p;
    } else {
        close(p->fd[0]);
        close(p->fd[1]);
    }
    p->fd[0] = p->fd[1] = -1;
}

/* --------------------------------------------------------------- verdicts */

int uplink_owns(uint32_t addr)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(addr)}};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), own = 0;

    if (fd < 0)
        return 1; /* cannot tell: closed */
    /* Connecting a datagram socket sends nothing; it only asks the routing table. */
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
        own = getsockname(fd, (struct sockaddr *)&a, &len) < 0 || a.sin_addr.s_addr == htonl(addr);
    close(fd);
    return own && !policy_is_test_server(addr);
}

uint32_t relay_check(const struct gate *g, uint32_t dst, uint16_t port,
                     const struct policy_entry **ret_entry)
{
    const struct policy_entry *e;

    *ret_entry = NULL;
    if (policy_hard(dst, dst) || port == POLICY_HARD_PORT || uplink_owns(dst))
        return REASON_HARD_DENY;
    e = policy_table_find(&g->table, dst, port);
    *ret_entry = e;
    if (!e)
        return REASON_NO_RULE;
    return e->verdict == POLICY_ALLOW ? REASON_NONE : REASON_DENY_RULE;
}

/* ------------------------------------------------------------------ flows */

static void flow_tell(struct gate *g, struct flow *f, uint32_t type, uint32_t reason)
{
    struct ctl_msg m = {.type = type,
                        .reason = reason,
                        .proto = IPPROTO_TCP,
                        .dst = f->dst,
                        .port = f->port,
                        .count = 1,
                        .gen = f->gen,
                        .tx = f->tx.moved,
                        .rx = f->rx.moved,
                        .tx_delta = f->tx.moved - f->tx.told,
                        .rx_delta = f->rx.moved - f->rx.told};

    if (f->sport)
        return;
    snprintf(m.rule, sizeof(m.rule), "%s", f->rule);
    if (gate_tell(g, &m) < 0) {
        gate_suppressed(g, 1);
        return;
    }
    f->tx.told = f->tx.moved;
    f->rx.told = f->rx.moved;
}

/* Whether close() resets. Set from birth, so that a gate that dies leaves resets behind and nobody
   takes a cut transfer for a whole one. */
static void reset_on_close(int fd, int on)
{
    struct linger hard = {on, 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
}

/* Ends the flow; `hard` sends RST both ways. */
static void flow_end(struct gate *g, struct flow *f, int hard, uint32_t reason)
{
    struct flow **p;

    if (f->dead)
        return;
    f->dead = 1;
    for (p = &g->flows; *p && *p != f; p = &(*p)->next)
        ;
    if (*p)
        *p = f->next;
    g->n_flows--;
    g->n_connecting -= f->connecting != 0;
    flow_tell(g, f, CTL_FLOW, reason);
    watch_del(g, &f->cell);
    watch_del(g, &f->up);
    if (!hard) {
        reset_on_close(f->cell.fd, 0);
        reset_on_close(f->up.fd, 0);
    }
    close(f->cell.fd);
    if (f->up.fd >= 0)
        close(f->up.fd);
    pipe_give(&f->tx.pipe, !f->tx.held);
    pipe_give(&f->rx.pipe, !f->rx.held);
    f->next = g->dead;
    g->dead = f;
    watch_set(g, &g->relay, EPOLLIN);
}

/* One step of a lane: 1 something moved, 0 nothing to do now, -errno broken. */
static int lane_step(struct lane *l, int from, int to)
{
    ssize_t n;

    if (!l->held) {
        if (l->eof)
            return 0;
        if (l->pipe.fd[0] < 0 && pipe_take(&l->pipe) < 0)
            return -ENFILE;
        n = splice(from, NULL, l->pipe.fd[1], NULL, PIPE_BYTES, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n <= 0)
            pipe_give(&l->pipe, 1);
        if (n < 0)
            return errno == EAGAIN ? 0 : -errno;
        if (n == 0) {
            l->eof = 1;
            return 0;
        }
        l->held = (size_t)n;
    }
    n = splice(l->pipe.fd[0], NULL, to, NULL, l->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n < 0)
        return errno == EAGAIN ? 0 : -errno;
    l->held -= (size_t)n;
    l->moved += (uint64_t)n;
    if (!l->held)
        pipe_give(&l->pipe, 1);
    return n > 0;
}

static int lane_pump(struct lane *l, int from, int to)
{
    int i, r = 1;

    for (i = 0; r > 0 && i < PUMP_ROUNDS; i++)
        r = lane_step(l, from, to);
    if (r < 0)
        return r;
    if (l->eof && !l->held && !l->done) {
        if (shutdown(to, SHUT_WR) < 0 && errno != ENOTCONN)
            return -errno;
        l->done = 1;
    }
    return 0;
}

/* `in` is the lane that reads from w, `out` the one that writes to it. */
static void side_update(struct gate *g, struct watch *w, const struct lane *in,
                        const struct lane *out)
{
    uint32_t want = 0;

    if (in->eof && out->done) { /* nothing more to learn here; EPOLLHUP would repeat for ever */
        watch_del(g, w);
        return;
    }
    if (!in->eof && !in->held)
        want |= EPOLLIN;
    if (out->held)
        want |= EPOLLOUT;
    watch_set(g, w, want);
}

static void flow_pump(struct gate *g, struct flow *f)
{
    if (lane_pump(&f->tx, f->cell.fd, f->up.fd) < 0 ||
        lane_pump(&f->rx, f->up.fd, f->cell.fd) < 0) {
        flow_end(g, f, 1, REASON_NONE);
        return;
    }
    if (f->tx.done && f->rx.done) {
        flow_end(g, f, 0, REASON_NONE);
        return;
    }
    side_update(g, &f->cell, &f->tx, &f->rx);
    side_update(g, &f->up, &f->rx, &f->tx);
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
    if (ready & EPOLLERR || (f->connecting && ready & EPOLLHUP)) {
        flow_end(g, f, 1, REASON_NONE);
        return;
    }
    if (!f->connecting)
        flow_pump(g, f);
}

static void up_ready(struct gate *g, struct watch *w, uint32_t ready)
{
    struct flow *f = (struct flow *)(void *)((char *)w - offsetof(struct flow, up));

    if (f->dead)
        return;
    if (f->connecting) {
        if (!(ready & (EPOLLOUT | EPOLLERR | EPOLLHUP)))
            return;
        if (socket_error(w->fd)) {
            flow_end(g, f, 1, REASON_UPSTREAM);
            return;
        }
        f->connecting = 0;
        g->n_connecting--;
    } else if (ready & EPOLLERR) {
        flow_end(g, f, 1, REASON_NONE);
        return;
    }
    flow_pump(g, f);
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
    f->connecting = 1;
    f->deadline = gate_now() + CONNECT_NS;
    g->n_connecting++;
    watch_set(g, &f->cell, 0);
    watch_set(g, &f->up, EPOLLOUT);
    return 0;
}

static void flow_new(struct gate *g, int own_fd, uint32_t dst, uint16_t port, uint16_t sport,
                     const char *rule)
{
    struct flow *f = calloc(1, sizeof(*f));

    if (!f) {
        close(own_fd);
        gate_deny(g, IPPROTO_TCP, dst, port, REASON_LIMIT, rule, NULL, 0);
        return;
    }
    *f = (struct flow){.cell = {.fn = cell_ready, .fd = own_fd},
                       .up = {.fn = up_ready, .fd = -1},
                       .tx = {.pipe = {{-1, -1}}},
                       .rx = {.pipe = {{-1, -1}}},
                       .dst = dst,
                       .port = port,
                       .sport = reach_diverts(g, sport) ? sport : 0,
                       .gen = g->table.head.generation};
    snprintf(f->rule, sizeof(f->rule), "%s", rule);
    f->next = g->flows;
    g->flows = f;
    g->n_flows++;
    if (!f->sport) {
        struct ctl_msg m = {.type = CTL_ALLOW,
                            .proto = IPPROTO_TCP,
                            .dst = dst,
                            .port = port,
                            .count = 1,
                            .gen = f->gen};
        snprintf(m.rule, sizeof(m.rule), "%s", rule);
        if (gate_tell(g, &m) < 0) {
            flow_end(g, f, 1, REASON_LIMIT);
            return;
        }
    }
    if (dial(g, f) < 0)
        flow_end(g, f, 1, REASON_UPSTREAM);
}

static void accepted(struct gate *g, int own_fd, const struct sockaddr_in *peer)
{
    const struct policy_entry *e;
    struct sockaddr_in a;
    socklen_t len = sizeof(a);
    uint32_t dst, reason;
    uint16_t port, sport = ntohs(peer->sin_port);

    if (getsockname(own_fd, (struct sockaddr *)&a, &len) < 0 || a.sin_family != AF_INET ||
        ntohl(peer->sin_addr.s_addr) != slot_cell(g->slot)) {
        close(own_fd);
        return;
    }
    reset_on_close(own_fd, 1);
    dst = ntohl(a.sin_addr.s_addr);
    port = ntohs(a.sin_port);
    e = NULL;
    reach_carried(g, sport);
    reason = reach_twin(g, sport) ? REASON_NONE : relay_check(g, dst, port, &e);
    if (reason == REASON_NONE && g->n_flows >= FLOWS_MAX)
        reason = REASON_LIMIT;
    if (reason != REASON_NONE) {
        close(own_fd);
        g->attempt = sport;
        gate_deny(g, IPPROTO_TCP, dst, port, reason,
                  e ? policy_table_rule(&g->table, e->rule) : NULL, NULL, 0);
        return;
    }
    flow_new(g, own_fd, dst, port, sport, e ? policy_table_rule(&g->table, e->rule) : "");
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

void relay_tick(struct gate *g)
{
    struct flow *f, *next;
    uint64_t now = gate_now();

    for (f = g->flows; f; f = next) {
        next = f->next;
        if (f->connecting && now >= f->deadline)
            flow_end(g, f, 1, REASON_UPSTREAM);
    }
    watch_set(g, &g->relay, EPOLLIN);
}

uint64_t relay_judge(struct gate *g)
{
    const struct policy_entry *e;
    struct flow *f, *next;
    uint64_t killed = 0;

    for (f = g->flows; f; f = next) {
        next = f->next;
        if (relay_check(g, f->dst, f->port, &e) == REASON_NONE) {
            f->gen = g->table.head.generation;
            snprintf(f->rule, sizeof(f->rule), "%s", policy_table_rule(&g->table, e->rule));
            continue;
        }
        flow_end(g, f, 1, REASON_POLICY_CHANGED);
        killed++;
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
