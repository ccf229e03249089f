/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * reach - while the host measures what the cell can reach, nothing of the measurement leaves.
 *
 * Two ranges of the cell's source ports, for a bounded time. `judged`: the policy holds as always, but a flow
 * it allows ends in a sink of this process instead of being dialled. `twin`: whatever the kernel brings here
 * ends in the sink, which shows that the probe would see success. The sink counts the bytes of flows that carry
 * the nonce, and answers with what it got. Per port it is also counted what reached this process at all and what
 * was refused, in the kernel or here.
 *
 * Mustn't: dial, resolve or send anything upstream for a port of either range; go on after its deadline. A
 * workload that uses these ports reaches the sink and no more. The pool is fixed; one thread.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gate.h"

#define NONCE_LEN 12
#define HEAD_MAX 1024u
#define PIN_SECS 10

struct sink {
    struct watch w;
    uint16_t sport;
    int used, marked; /* marked: the nonce was in it */
    uint64_t total;
    size_t n_head;
    uint8_t head[HEAD_MAX];
};

static struct {
    int on, expired;
    uint16_t lo, hi, twin_lo, twin_hi;
    uint64_t deadline;
    char nonce[NONCE_LEN + 1];
    struct ctl_seen seen[2 * REACH_PORTS_MAX]; /* judged, then twin */
    struct sink sinks[FLOWS_MAX];
} reach;

static void sinks_close(struct gate *g);

/* Counter of the port, or NULL when it is nobody's. */
static struct ctl_seen *port_seen(struct gate *g, uint16_t sport)
{
    if (!reach.on)
        return NULL;
    if (gate_now() >= reach.deadline) {
        reach.on = 0;
        reach.expired = 1;
        sinks_close(g);
        return NULL;
    }
    if (sport >= reach.lo && sport <= reach.hi)
        return &reach.seen[sport - reach.lo];
    if (sport >= reach.twin_lo && sport <= reach.twin_hi)
        return &reach.seen[REACH_PORTS_MAX + sport - reach.twin_lo];
    return NULL;
}

int reach_diverts(struct gate *g, uint16_t sport)
{
    return port_seen(g, sport) != NULL;
}

int reach_twin(struct gate *g, uint16_t sport)
{
    return port_seen(g, sport) && sport >= reach.twin_lo && sport <= reach.twin_hi;
}

void reach_carried(struct gate *g, uint16_t sport)
{
    struct ctl_seen *s = port_seen(g, sport);

    if (s && s->carried < UINT16_MAX)
        s->carried++;
}

int reach_refused(struct gate *g)
{
    struct ctl_seen *s = g->attempt ? port_seen(g, g->attempt) : NULL;

    g->attempt = 0;
    if (s && s->refused < UINT16_MAX)
        s->refused++;
    return s != NULL;
}

static void count(struct gate *g, uint16_t sport, uint64_t n)
{
    struct ctl_seen *s = port_seen(g, sport);

    if (s)
        s->bytes = n > UINT32_MAX - s->bytes ? UINT32_MAX : s->bytes + (uint32_t)n;
}

static int has_nonce(const uint8_t *p, size_t n)
{
    return memmem(p, n, reach.nonce, NONCE_LEN) != NULL;
}

/* ------------------------------------------------------------------- sink */

static void sink_close(struct gate *g, struct sink *s)
{
    watch_del(g, &s->w);
    close(s->w.fd);
    s->used = 0;
}

static void sinks_close(struct gate *g)
{
    size_t i;

    for (i = 0; i < FLOWS_MAX; i++)
        if (reach.sinks[i].used)
            sink_close(g, &reach.sinks[i]);
}

static void sink_ready(struct gate *g, struct watch *w, uint32_t ready)
{
    struct sink *s = (struct sink *)(void *)w;
    uint8_t buf[4096];
    ssize_t n;
    size_t keep;

    (void)ready;
    if (!s->used)
        return;
    n = recv(w->fd, buf, sizeof(buf), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        sink_close(g, s);
        return;
    }
    keep = HEAD_MAX - s->n_head < (size_t)n ? HEAD_MAX - s->n_head : (size_t)n;
    memcpy(s->head + s->n_head, buf, keep);
    s->n_head += keep;
    s->total += (uint64_t)n;
    if (s->marked) {
        count(g, s->sport, (uint64_t)n);
    } else if (has_nonce(s->head, s->n_head)) {
        s->marked = 1;
        count(g, s->sport, s->total);
    }
    if (send(w->fd, buf, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) != n)
        sink_close(g, s); /* its reader does not keep up; the probe always does */
}

int reach_sink(struct gate *g, uint16_t sport)
{
    int pair[2];
    size_t i;

    for (i = 0; i < FLOWS_MAX && reach.sinks[i].used; i++)
        ;
    if (i == FLOWS_MAX)
        return -EMFILE;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -errno;
    reach.sinks[i] =
        (struct sink){.w = {.fn = sink_ready, .fd = pair[1]}, .sport = sport, .used = 1};
    watch_set(g, &reach.sinks[i].w, EPOLLIN);
    return pair[0];
}

/* ---------------------------------------------------------------- datagrams */

void reach_datagram(struct gate *g, uint16_t sport, const uint8_t *p, size_t n)
{
    if (has_nonce(p, n))
        count(g, sport, n);
}

/* Any query with one question gets one record, so that the probe sees an answer. */
static int twin_answer(const uint8_t *q, size_t len, uint8_t out[DNS_REPLY_MAX])
{
    static const uint8_t data[16] = {198, 18, 255, 254};
    size_t at = 12, n;
    uint16_t type;

    if (len < 17 || q[2] & 0x80 || q[4] || q[5] != 1)
        return -1;
    while (at < len && q[at] && q[at] < 64)
        at += 1u + q[at];
    if (at + 5 > len || q[at])
        return -1;
    type = (uint16_t)(q[at + 1] << 8 | q[at + 2]);
    at += 5;
    n = type == 28 ? 16 : 4;
    if (at + 12 + n > DNS_REPLY_MAX)
        return -1;
    memcpy(out, q, at);
    out[2] = (uint8_t)(0x80 | (q[2] & 1));
    out[3] = 0x80;
    memset(out + 6, 0, 6);
    out[7] = 1;
    memcpy(out + at, (const uint8_t[]){0xc0, 12, q[at - 4], q[at - 3], 0, 1, 0, 0, 0, 0, 0}, 11);
    out[at + 11] = (uint8_t)n;
    memcpy(out + at + 12, data, n);
    return (int)(at + 12 + n);
}

int reach_udp(struct gate *g, uint16_t sport, uint16_t dport, const uint8_t *msg, size_t len,
              uint8_t out[DNS_REPLY_MAX])
{
    int answer;

    if (!reach_diverts(g, sport))
        return -1;
    reach_carried(g, sport);
    if (!reach_twin(g, sport))
        return -1;
    answer = dport == 53 ? twin_answer(msg, len, out) : 0;
    if (answer >
        0) /* a question for an exact name has no room for the nonce; its port says whose it is */
        count(g, sport, len);
    else
        reach_datagram(g, sport, msg, len);
    return answer > 0 ? answer : 0;
}

/* 192.0.2.128 and above: nobody's. */
uint32_t reach_addr(struct name *n)
{
    uint32_t addr = 0xc0000280u + name_addr(n) % 127u;

    pin_add(addr, n, PIN_SECS);
    return addr;
}

/* ------------------------------------------------------------------ control */

static void begin(struct gate *g, const struct ctl_msg *m)
{
    uint64_t lo = m->tx, hi = m->rx, twin_lo = m->tx_delta, twin_hi = m->rx_delta;

    sinks_close(g);
    if (!lo || lo > hi || hi > 65535 || hi - lo >= REACH_PORTS_MAX || twin_lo > twin_hi ||
        twin_hi > 65535 || twin_hi - twin_lo >= REACH_PORTS_MAX || m->count > 60000 ||
        strnlen(m->name, sizeof(m->name)) != NONCE_LEN) {
        g->quit = 1; /* the warden and this process do not speak the same language */
        return;
    }
    memset(reach.seen, 0, sizeof(reach.seen));
    memcpy(reach.nonce, m->name, NONCE_LEN);
    reach.lo = (uint16_t)lo;
    reach.hi = (uint16_t)hi;
    reach.twin_lo = (uint16_t)twin_lo;
    reach.twin_hi = (uint16_t)twin_hi;
    reach.deadline = gate_now() + m->count * UINT64_C(1000000);
    reach.on = 1;
    reach.expired = 0;
}

static void tell_seen(struct gate *g)
{
    struct ctl_msg m = {.type = CTL_REACH_SEEN};
    struct ctl_seen batch[REACH_BATCH];
    size_t i;

    for (i = 0; i < 2 * REACH_PORTS_MAX; i++) {
        struct ctl_seen *s = &reach.seen[i];
        if (s->bytes || s->carried || s->refused) {
            s->port = (uint16_t)(i < REACH_PORTS_MAX ? reach.lo + i
                                                     : reach.twin_lo + (i - REACH_PORTS_MAX));
            batch[m.count++] = *s;
        }
        if (m.count == REACH_BATCH || (m.count && i == 2 * REACH_PORTS_MAX - 1)) {
            memcpy(m.name, batch, m.count * sizeof(batch[0]));
            if (gate_tell(g, &m) < 0)
                reach.expired = 1; /* incomplete: the warden must not judge by it */
            m.count = 0;
        }
    }
}

void reach_control(struct gate *g, const struct ctl_msg *m)
{
    struct ctl_msg done = {.type = CTL_REACH_DONE};

    if (m->type == CTL_REACH_BEGIN) {
        begin(g, m);
    } else {
        nflog_flush(g);
        if (reach.on && gate_now() >= reach.deadline)
            reach.expired = 1;
        reach.on = 0;
        sinks_close(g);
        tell_seen(g);
        memset(reach.seen, 0, sizeof(reach.seen));
    }
    done.count = reach.expired != 0;
    if (gate_tell(g, &done) < 0)
        g->quit = 1;
}
