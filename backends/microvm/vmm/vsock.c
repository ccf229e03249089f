/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * vsock - virtio-vsock (VIRTIO 1.2, 5.10), stream sockets, multiplexed on one unix socket: the packets.
 *
 * Connections begin at the host. What the guest begins, and whatever belongs to no connection, is answered with RST.
 * Nothing is kept for a guest without bound: data goes from the client's socket into the guest's buffers and not
 * through ours, and only while the guest has credit; what is pending for a connection is one bit each; refusals have
 * a list of their own, and beyond it are dropped. Data of the guest goes to the client at once, or into ALLOC bytes,
 * which is the credit that we give; a guest that sends more loses the connection.
 *
 * After a load all connections are those of another life: the guest gets TRANSPORT_RESET, which leaves its
 * listeners alone, and new connections wait until it has taken that in. It has when the event's buffer is back.
 * Threads: the caller has the machine's lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <linux/virtio_ids.h>

#include "vsock_int.h"

#define HOST_CID 2u
#define GUEST_CID 3u
#define HDR sizeof(struct virtio_vsock_hdr)
#define BUDGET 256u

enum queue { RX, TX, EVENT, N_QUEUES };

/* -------------------------------------------------------------------- to the guest */

/* A buffer of the guest's with room for a header and `least` bytes. 0 = there is none. */
static int rx_pop(struct vsock *v, uint64_t least)
{
    int r;

    if (!virtio_live(&v->v) || v->starved)
        return 0;
    r = virtq_pop(&v->v.q[RX], &v->chain);
    if (r == 1 && (v->chain.n_out > 0 || v->chain.in_bytes < HDR + least))
        r = -EPROTO;
    if (r < 0) {
        virtio_broken(&v->v, "a buffer to receive with that breaks the rules");
        return 0;
    }
    v->starved = r == 0;
    return r;
}

static void rx_push(struct vsock *v, const struct virtio_vsock_hdr *h)
{
    (void)chain_put(&v->chain, 0, h, HDR);
    virtq_push(&v->v.q[RX], v->chain.head, (uint32_t)HDR + h->len);
}

static struct virtio_vsock_hdr header(struct conn *c, uint16_t op)
{
    c->fwd_told = c->fwd;
    return (struct virtio_vsock_hdr){.src_cid = HOST_CID,
                                     .dst_cid = GUEST_CID,
                                     .src_port = c->host_port,
                                     .dst_port = c->port,
                                     .type = VIRTIO_VSOCK_TYPE_STREAM,
                                     .op = op,
                                     .buf_alloc = ALLOC,
                                     .fwd_cnt = c->fwd};
}

static void send_rsts(struct vsock *v)
{
    uint32_t i;

    for (i = 0; i < v->n_rst && rx_pop(v, 0) == 1; i++) {
        struct virtio_vsock_hdr h = {.src_cid = HOST_CID,
                                     .dst_cid = GUEST_CID,
                                     .src_port = v->rst[i].host_port,
                                     .dst_port = v->rst[i].port,
                                     .type = (uint16_t)v->rst[i].type,
                                     .op = VIRTIO_VSOCK_OP_RST};
        rx_push(v, &h);
    }
    v->n_rst -= i;
    memmove(v->rst, v->rst + i, v->n_rst * sizeof(v->rst[0]));
}

static void send_ctl(struct vsock *v, struct conn *c)
{
    static const struct {
        uint32_t bit;
        uint16_t op;
    } order[] = {{CTL_REQUEST, VIRTIO_VSOCK_OP_REQUEST},
                 {CTL_UPDATE, VIRTIO_VSOCK_OP_CREDIT_UPDATE},
                 {CTL_ASK, VIRTIO_VSOCK_OP_CREDIT_REQUEST},
                 {CTL_SHUTDOWN, VIRTIO_VSOCK_OP_SHUTDOWN}};
    struct virtio_vsock_hdr h;
    uint32_t i;

    for (i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        if (!(c->ctl & order[i].bit))
            continue;
        if (rx_pop(v, 0) != 1)
            return;
        h = header(c, order[i].op);
        if (order[i].bit == CTL_SHUTDOWN)
            h.flags = c->shut;
        c->ctl &= ~order[i].bit;
        rx_push(v, &h);
    }
}

void vsock_pump(struct vsock *v)
{
    uint32_t i;

    send_rsts(v);
    for (i = 0; i < CONNS; i++)
        if (v->c[i].ctl)
            send_ctl(v, &v->c[i]);
    if (virtio_live(&v->v))
        virtio_irq_queue(&v->v, RX);
}

void vsock_rst(struct vsock *v, uint32_t host_port, uint32_t port, uint32_t type)
{
    if (v->n_rst == RSTS)
        return;
    v->rst[v->n_rst].host_port = host_port;
    v->rst[v->n_rst].port = port;
    v->rst[v->n_rst++].type = type;
}

/* What the guest has room for; nothing when its figures make no sense. */
uint32_t vsock_credit(const struct conn *c)
{
    uint32_t under_way = c->sent - c->peer_fwd;

    return under_way < c->peer_alloc ? c->peer_alloc - under_way : 0;
}

/* @seccomp vmm: readv */
int vsock_feed(struct vsock *v, struct conn *c)
{
    struct iovec iov[CHAIN_MAX];
    struct virtio_vsock_hdr h;
    uint64_t room = vsock_credit(c);
    uint32_t n;
    ssize_t got;

    if (room == 0) {
        c->ctl |= CTL_ASK;
        return 0;
    }
    if (rx_pop(v, 1) != 1)
        return 0;
    if (room > v->chain.in_bytes - HDR)
        room = v->chain.in_bytes - HDR;
    n = iov_slice(v->chain.iov, v->chain.n_in, HDR, room, iov);
    got = readv(c->fd, iov, (int)n);
    if (got <= 0) {
        virtq_unpop(&v->v.q[RX]);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        return got < 0 ? -errno : -EPIPE;
    }
    h = header(c, VIRTIO_VSOCK_OP_RW);
    h.len = (uint32_t)got;
    c->sent += (uint32_t)got;
    rx_push(v, &h);
    return 1;
}

/* ------------------------------------------------------------------ from the guest */

static struct conn *find(struct vsock *v, uint32_t host_port, uint32_t port)
{
    uint32_t i;

    for (i = 0; i < CONNS; i++) {
        struct conn *c = &v->c[i];
        if ((c->state == REQUESTED || c->state == OPEN || c->state == LINGER) &&
            !(c->ctl & CTL_REQUEST) && c->host_port == host_port && c->port == port)
            return c;
    }
    return NULL;
}

static void data(struct vsock *v, struct conn *c, uint32_t len)
{
    struct iovec iov[CHAIN_MAX];
    uint32_t n, held = c->got - c->fwd;

    /* 5.10.6.3: no more than the credit; and nothing after the end. */
    if (len > v->chain.out_bytes - HDR || (c->peer_shut & VIRTIO_VSOCK_SHUTDOWN_SEND) ||
        held > ALLOC || len > ALLOC - held) {
        vsock_kill(v, c);
        return;
    }
    c->got += len;
    n = iov_slice(v->chain.iov, v->chain.n_out, HDR, len, iov);
    vsock_deliver(v, c, iov, n, len);
}

static void to_open(struct vsock *v, struct conn *c, const struct virtio_vsock_hdr *h)
{
    switch (h->op) {
    case VIRTIO_VSOCK_OP_RW:
        data(v, c, h->len);
        break;
    case VIRTIO_VSOCK_OP_SHUTDOWN:
        vsock_peer_shut(v, c, h->flags);
        break;
    case VIRTIO_VSOCK_OP_CREDIT_UPDATE:
        break;
    case VIRTIO_VSOCK_OP_CREDIT_REQUEST:
        c->ctl |= CTL_UPDATE;
        break;
    case VIRTIO_VSOCK_OP_RST:
        vsock_peer_gone(v, c);
        break;
    default:
        vsock_kill(v, c);
    }
}

static void packet(struct vsock *v, const struct virtio_vsock_hdr *h)
{
    struct conn *c;

    if (h->src_cid != GUEST_CID || h->dst_cid != HOST_CID)
        return; /* nobody it could be answered to */
    c = h->type == VIRTIO_VSOCK_TYPE_STREAM ? find(v, h->dst_port, h->src_port) : NULL;
    if (!c) {
        if (h->op != VIRTIO_VSOCK_OP_RST)
            vsock_rst(v, h->dst_port, h->src_port, h->type);
        return;
    }
    c->peer_alloc = h->buf_alloc;
    c->peer_fwd = h->fwd_cnt;
    if (c->state == OPEN)
        to_open(v, c, h);
    else if (c->state == REQUESTED && h->op == VIRTIO_VSOCK_OP_RESPONSE)
        vsock_accepted(v, c);
    else if (c->state == REQUESTED && h->op == VIRTIO_VSOCK_OP_RST)
        vsock_refused(v, c);
    else if (h->op == VIRTIO_VSOCK_OP_RST)
        vsock_drop(v, c);
    else if (c->state != LINGER ||
             (h->op != VIRTIO_VSOCK_OP_CREDIT_UPDATE && h->op != VIRTIO_VSOCK_OP_CREDIT_REQUEST))
        vsock_kill(v, c);
    if (c->state == OPEN)
        vsock_arm(v, c);
}

static void run_tx(void *self)
{
    struct vsock *v = self;
    struct virtio_vsock_hdr h;
    uint32_t n = 0;
    int r = 0;

    if (!virtio_live(&v->v))
        return;
    while (n < BUDGET && (r = virtq_pop(&v->v.q[TX], &v->chain)) == 1) {
        n++;
        if (chain_get(&v->chain, 0, &h, HDR) == 0)
            packet(v, &h);
        else
            r = -EPROTO;
        if (r < 0)
            break;
        virtq_push(&v->v.q[TX], v->chain.head, 0);
    }
    if (r < 0)
        virtio_broken(&v->v, "a packet that breaks the rules");
    else if (n == BUDGET)
        (void)loop_timer(v->v.loop, 1, run_tx, v);
    virtio_irq_queue(&v->v, TX);
    vsock_pump(v);
}

/* ------------------------------------------------------------------ transport reset */

static void reset_over(struct vsock *v)
{
    v->reset_pending = v->reset_wait = 0;
    vsock_try_all(v);
}

static void on_reset_late(void *self)
{
    reset_over(self);
}

/* 5.10.6.5. The driver that has nothing to take it with is told when it has. */
static void tell_reset(struct vsock *v)
{
    struct virtio_vsock_event e = {.id = VIRTIO_VSOCK_EVENT_TRANSPORT_RESET};
    int r = virtq_pop(&v->v.q[EVENT], &v->chain);

    (void)loop_timer(v->v.loop, v->reset_most, on_reset_late, v);
    if (r == 0)
        return;
    if (r < 0 || v->chain.n_out > 0 || chain_put(&v->chain, 0, &e, sizeof(e)) < 0) {
        virtio_broken(&v->v, "a buffer for events that breaks the rules");
        return;
    }
    v->reset_pending = 0;
    v->reset_wait = 1;
    virtq_push(&v->v.q[EVENT], v->chain.head, sizeof(e));
    v->events_left = virtq_waiting(&v->v.q[EVENT]);
    virtio_irq_queue(&v->v, EVENT);
}

static void run_event(struct vsock *v)
{
    int n = virtq_waiting(&v->v.q[EVENT]); /* and the next one, too, shall kick */

    if (v->reset_pending && n > 0)
        tell_reset(v);
    else if (v->reset_wait && n > v->events_left) {
        (void)loop_timer(v->v.loop, 0, on_reset_late, v);
        reset_over(v);
    }
}

/* --------------------------------------------------------------------- the device */

static uint64_t features(void *self)
{
    (void)self;
    return 0; /* streams only (5.10.3) */
}

static void config_read(void *self, uint32_t offset, void *out, unsigned len)
{
    struct virtio_vsock_config c = {.guest_cid = GUEST_CID};

    (void)self;
    memcpy(out, (const uint8_t *)&c + offset, len);
}

static int activate(void *self)
{
    struct vsock *v = self;

    v->starved = 0;
    vsock_try_all(v);
    return 0;
}

static void reset(void *self)
{
    struct vsock *v = self;

    (void)loop_timer(v->v.loop, 0, run_tx, v);
    (void)loop_timer(v->v.loop, 0, on_reset_late, v);
    vsock_stop(v, 0);
    v->n_rst = 0;
    v->starved = v->reset_pending = v->reset_wait = 0;
}

static void kick(void *self, uint32_t queue)
{
    struct vsock *v = self;

    if (queue == TX)
        run_tx(v);
    else if (queue == EVENT)
        run_event(v);
    else {
        v->starved = 0;
        vsock_pump(v);
        vsock_arm_all(v);
    }
}

static void save(void *self, struct state_out *o)
{
    state_put_u32(o, ((struct vsock *)self)->next_port);
}

static void load(void *self, struct state_in *i)
{
    struct vsock *v = self;

    v->next_port = state_get_u32(i);
    v->reset_pending = v->v.active;
}

static void resumed(void *self)
{
    struct vsock *v = self;

    if (v->reset_pending)
        tell_reset(v);
    else
        vsock_try_all(v); /* who came meanwhile */
}

static const struct virtio_ops ops = {.name = "vsock",
                                      .id = VIRTIO_ID_VSOCK,
                                      .n_queues = N_QUEUES,
                                      .queue_max = VIRTIO_QUEUE_MAX,
                                      .config_len = sizeof(struct virtio_vsock_config),
                                      .features = features,
                                      .config_read = config_read,
                                      .activate = activate,
                                      .reset = reset,
                                      .kick = kick,
                                      .save = save,
                                      .load = load,
                                      .resumed = resumed};

struct vsock *vsock_new(const struct virtio_bind *bind, uint32_t number, int borrow_listen_fd)
{
    struct vsock *v = calloc(1, sizeof(*v));
    uint32_t i;
    int r;

    if (!v)
        return NULL;
    for (i = 0; i < CONNS; i++)
        v->c[i].fd = -1;
    v->borrow_listen_fd = borrow_listen_fd;
    v->next_port = 1024;
    v->answer_wait = 5000 * MS;
    v->linger_wait = 10000 * MS;
    v->reset_most = 10000 * MS;
    r = virtio_init(&v->v, &ops, v, number, bind);
    if (r == 0)
        r = vsock_listen(v);
    if (r == 0)
        return v;
    vsock_free(v);
    errno = -r;
    return NULL;
}

struct virtio *vsock_virtio(struct vsock *v)
{
    return &v->v;
}

void vsock_free(struct vsock *v)
{
    if (!v)
        return;
    if (v->v.ops) {
        reset(v);
        vsock_stop(v, 1);
    }
    virtio_fini(&v->v);
    free(v);
}
