/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * reach - while the host measures what the cell can reach, nothing of the measurement leaves.
 *
 * Ranges of the cell's source ports, for a bounded time. `judged`: the policy holds as always, but a flow
 * it allows ends in a sink of this process instead of being dialled. `twin`: whatever the kernel brings here
 * ends in the sink, which shows that the probe would see success. `held`: a twin until the rules are tightened, then
 * judged, and so is what is open from there; its bytes count from then on. That is how it is seen what a flow of a looser
 * policy comes to under this one, and no policy is ever looser for it. The sink counts the bytes of flows that carry
 * the nonce, and answers (answer.c). Per port it is also counted what reached this process at all and what
 * was refused, in the kernel or here.
 *
 * Mustn't: dial, resolve or send anything upstream for a port of either range; go on after its deadline. A
 * workload that uses these ports reaches the sink and no more. The pool is fixed; one thread.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gate.h"

#define NONCE_LEN 12
#define HEAD_MAX 1024u
#define PIN_SECS 10
#define TELL_MAX 24u

struct sink {
    struct watch w;
    uint16_t sport;
    int used, marked; /* marked: the nonce was in it */
    uint64_t total;
    size_t n_head;
    uint8_t head[HEAD_MAX];
};

/* Judged, twin and held ports, one after the other. */
#define SEEN_MAX (2 * REACH_PORTS_MAX + REACH_HELD_MAX)

static struct {
    int on, expired, tight;
    struct {
        uint16_t lo, hi;
    } range[3]; /* judged, twin, held; lo 0: none */
    uint64_t deadline;
    char nonce[NONCE_LEN + 1];
    struct ctl_seen *seen; /* SEEN_MAX, while it is on */
    struct sink sinks[FLOWS_MAX];
} reach;
enum { JUDGED, TWIN, HELD };

static void sinks_close(struct gate *g);

static void off(struct gate *g)
{
    reach.on = 0;
    sinks_close(g);
    free(reach.seen);
    reach.seen = NULL;
}

/* Which range the port is of, or -1: nobody's. */
static int range_of(struct gate *g, uint16_t sport)
{
    int i;

    if (!reach.on)
        return -1;
    if (watch_now() >= reach.deadline) {
        off(g);
        reach.expired = 1;
        return -1;
    }
    for (i = 0; i < 3; i++)
        if (reach.range[i].lo && sport >= reach.range[i].lo && sport <= reach.range[i].hi)
            return i;
    return -1;
}

/* Counter of the port, or NULL. */
static struct ctl_seen *port_seen(struct gate *g, uint16_t sport)
{
    int i = range_of(g, sport);

    return i < 0 ? NULL : &reach.seen[(unsigned)i * REACH_PORTS_MAX + sport - reach.range[i].lo];
}

int reach_diverts(struct gate *g, uint16_t sport)
{
    return range_of(g, sport) >= 0;
}

int reach_twin(struct gate *g, uint16_t sport)
{
    int i = range_of(g, sport);

    return i == TWIN || (i == HELD && !reach.tight);
}

int reach_held(struct gate *g, uint16_t sport)
{
    return range_of(g, sport) == HELD;
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

/* Says back what it got, or what a server would. 0, or -1: its reader does not keep up; the probe always does. */
static int sink_answer(struct sink *s, const uint8_t *p, size_t n)
{
    char out[ANSWER_MAX];
    int len = answer_write(s->head, s->n_head, out);

    if (len < 0 && s->n_head < HEAD_MAX)
        return 0;
    if (len > 0) {
        s->n_head = 0; /* another may come on the same connection */
        p = (const uint8_t *)out;
        n = (size_t)len;
    }
    return send(s->w.fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1;
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
    if (!s->used) /* the time was over */
        return;
    if (sink_answer(s, buf, (size_t)n) < 0)
        sink_close(g, s);
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

int reach_udp(struct gate *g, uint16_t sport, uint32_t dst, uint16_t dport, const uint8_t *msg,
              size_t len, uint8_t out[DNS_REPLY_MAX])
{
    int answer;

    if (!reach_diverts(g, sport))
        return -1;
    reach_carried(g, sport);
    if (!reach_twin(g, sport))
        return -1;
    answer = dport == 53 ? twin_answer(msg, len, out) : 0;
    if (answer > 0) {
        /* a question for an exact name has no room for the nonce; its port says whose it is */
        count(g, sport, len);
        return answer;
    }
    reach_datagram(g, sport, msg, len);
    udp_echo(g, sport, dst, dport, msg, len);
    return 0;
}

/* 192.0.2.128 and above: nobody's. */
uint32_t reach_addr(struct name *n)
{
    uint32_t addr = 0xc0000280u + name_addr(n) % 127u;

    pin_add(addr, n, PIN_SECS);
    return addr;
}

/* ------------------------------------------------------------------ control */

static int set_range(int which, uint64_t lo, uint64_t hi, uint64_t max)
{
    if (!lo || lo > hi || hi > 65535 || hi - lo >= max)
        return -1;
    reach.range[which].lo = (uint16_t)lo;
    reach.range[which].hi = (uint16_t)hi;
    return 0;
}

static void begin(struct gate *g, const struct ctl_msg *m)
{
    off(g);
    memset(reach.range, 0, sizeof(reach.range));
    reach.seen = calloc(SEEN_MAX, sizeof(*reach.seen));
    if (!reach.seen) { /* it is as if it had been over at once */
        reach.expired = 1;
        return;
    }
    if (set_range(JUDGED, m->tx, m->rx, REACH_PORTS_MAX) < 0 ||
        set_range(TWIN, m->tx_delta, m->rx_delta, REACH_PORTS_MAX) < 0 ||
        (m->dst && set_range(HELD, m->dst, m->port, REACH_HELD_MAX) < 0) || m->count > 60000 ||
        strnlen(m->name, sizeof(m->name)) != NONCE_LEN) {
        g->quit = 1; /* the warden and this process do not speak the same language */
        return;
    }
    memcpy(reach.nonce, m->name, NONCE_LEN);
    reach.deadline = watch_now() + m->count * UINT64_C(1000000);
    reach.on = 1;
    reach.expired = reach.tight = 0;
}

/* From here on the policy in force holds for what was opened under a looser one. */
static void tighten(struct gate *g)
{
    size_t i;

    dns_udp_ready(g, &g->dns_udp, 0); /* what came before */
    if (!reach.on)
        return;
    reach.tight = 1;
    for (i = 2 * REACH_PORTS_MAX; i < SEEN_MAX; i++)
        reach.seen[i].bytes = 0;
    relay_judge(g, 1);
}

/* From this counter on, as much as surely fits the way to the warden; where to go on, or 0. */
static size_t tell_seen(struct gate *g, size_t from)
{
    struct ctl_msg m = {.type = CTL_REACH_SEEN};
    struct ctl_seen batch[REACH_BATCH];
    size_t i, told = 0;

    for (i = from; i < SEEN_MAX && told < TELL_MAX; i++) {
        struct ctl_seen *s = &reach.seen[i];
        if (s->bytes || s->carried || s->refused) {
            s->port = (uint16_t)(reach.range[i / REACH_PORTS_MAX].lo + i % REACH_PORTS_MAX);
            batch[m.count++] = *s;
        }
        if (m.count == REACH_BATCH || (m.count && i == SEEN_MAX - 1)) {
            memcpy(m.name, batch, m.count * sizeof(batch[0]));
            if (gate_tell(g, &m) < 0)
                reach.expired = 1; /* incomplete: the warden must not judge by it */
            m.count = 0;
            told++;
        }
    }
    return i < SEEN_MAX ? i + 1 : 0;
}

/* First it is over, and what was on its way is counted; when the warden has read that, it asks for the counters. */
static size_t end(struct gate *g, size_t from)
{
    size_t next = 0;

    if (reach.on) {
        nflog_flush(g);
        if (watch_now() >= reach.deadline)
            reach.expired = 1;
        reach.on = 0;
        sinks_close(g);
        return 1;
    }
    if (reach.seen && from && from <= SEEN_MAX)
        next = tell_seen(g, from - 1);
    if (!next)
        off(g);
    return next;
}

void reach_control(struct gate *g, const struct ctl_msg *m)
{
    struct ctl_msg done = {.type = CTL_REACH_DONE, .suppressed = m->suppressed};

    if (m->type == CTL_REACH_BEGIN)
        begin(g, m);
    else if (m->type == CTL_REACH_TIGHT)
        tighten(g);
    else
        done.tx = end(g, m->tx);
    done.count = reach.expired != 0;
    if (gate_tell(g, &done) < 0)
        g->quit = 1;
}
