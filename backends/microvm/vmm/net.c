/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * net - virtio-net (VIRTIO 1.2, 5.1) over a tap: one pair of queues, no control queue.
 *
 * What the tap can is asked, not assumed: without IFF_VNET_HDR there are no offloads, and the header is made and taken
 * off here. With it the guest is offered what TUNSETOFFLOAD accepts, and the tap is told what the guest chose.
 * A guest's header is copied, judged against what was negotiated, and written anew; a frame whose header
 * is wrong is dropped, as on a wire. Frames of another source address pass: who may send what is decided outside.
 *
 * From the tap one frame is held, while the guest has no buffer or the rate does not allow it; the rest waits, and is
 * dropped, in the tap's own queue. To the tap, what cannot go now stays in the ring.
 * Threads: the caller has the machine's lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_net.h>

#include "limiter.h"
#include "net.h"

#define HDR sizeof(struct virtio_net_hdr_v1)
#define ETH 14u
#define FRAME_MAX (65535u + ETH + 4u) /* what TSO makes of one packet, and a VLAN tag */
#define MERGE_MAX 64u                 /* buffers of one frame: a page each is 17 */
#define BUDGET 128u                   /* frames before others have their turn */
#define BIT(f) (1ull << (f))
#define TUN_OFFLOADS (TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)

enum queue { RX, TX, N_QUEUES };

struct net {
    struct virtio v;
    int borrow_fd, headers, offloads;
    uint8_t mac[6];
    struct limiter rx, tx;
    uint8_t frame[HDR + FRAME_MAX + 1]; /* a byte more: what is longer is noticed */
    uint32_t held;                      /* bytes of it, the header included; 0 = none */
    int paid;                           /* the rate allows it */
    int starved, rx_waits, tx_full, gone;
    struct chain c;
};

static int negotiated(const struct net *n, unsigned feature)
{
    return (n->v.driver_features >> feature) & 1;
}

static void arm(struct net *n)
{
    uint32_t e = 0;

    if (virtio_live(&n->v) && !n->gone) {
        e |= n->starved || n->rx_waits ? 0 : EPOLLIN;
        e |= n->tx_full ? EPOLLOUT : 0;
    }
    (void)loop_change(n->v.loop, n->borrow_fd, e);
}

/* -------------------------------------------------------------------- to the guest */

/* 5.1.6.4.1: nothing that the driver did not ask for. */
static void clean_header(struct net *n)
{
    struct virtio_net_hdr_v1 h;

    memcpy(&h, n->frame, HDR);
    if (!negotiated(n, VIRTIO_NET_F_GUEST_CSUM))
        memset(&h, 0, sizeof(h));
    h.num_buffers = 0;
    memcpy(n->frame, &h, HDR);
}

/* Holds the next frame of the tap. 1, 0 = there is none.
   @seccomp vmm: read */
static int take(struct net *n)
{
    size_t skip = n->headers ? 0 : HDR;
    ssize_t got;

    if (n->held > 0)
        return 1;
    do
        got = read(n->borrow_fd, n->frame + skip, sizeof(n->frame) - skip);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return 0;
    if (!n->headers)
        memset(n->frame, 0, HDR);
    got += (ssize_t)skip;
    n->paid = 0;
    n->held = (size_t)got < HDR + ETH || (size_t)got > HDR + FRAME_MAX ? 0 : (uint32_t)got;
    if (n->held > 0)
        clean_header(n);
    return 1;
}

static void unpop(struct net *n, uint32_t k)
{
    while (k-- > 0)
        virtq_unpop(&n->v.q[RX]);
}

/* The byte of the guest's that is at `at` in the buffer that was popped last. */
static uint8_t *byte_at(struct net *n, uint64_t at)
{
    struct iovec one[1];

    return iov_slice(n->c.iov, n->c.n_in, at, 1, one) == 1 ? one[0].iov_base : NULL;
}

/* The held frame into one buffer or, with MRG_RXBUF, several (5.1.6.3.2), which become used together. 1 = done with it,
   0 = there are not enough yet, -EPROTO. */
static int place(struct net *n)
{
    struct virtq *q = &n->v.q[RX];
    uint8_t *low = NULL, *high = NULL;
    uint32_t len[MERGE_MAX], at = 0, k = 0, i;
    uint16_t head[MERGE_MAX];
    int r;

    while (at < n->held) {
        r = k < MERGE_MAX ? virtq_pop(q, &n->c) : 0;
        if (r < 0 || (r == 1 && (n->c.n_out > 0 || n->c.in_bytes < HDR)))
            return -EPROTO;
        if (r == 0) {
            unpop(n, k);
            return k == MERGE_MAX || k == q->size; /* it will never fit: dropped */
        }
        if (k == 0) {
            low = byte_at(n, offsetof(struct virtio_net_hdr_v1, num_buffers));
            high = byte_at(n, offsetof(struct virtio_net_hdr_v1, num_buffers) + 1);
        }
        len[k] = n->held - at < n->c.in_bytes ? n->held - at : (uint32_t)n->c.in_bytes;
        head[k] = n->c.head;
        (void)chain_put(&n->c, 0, n->frame + at, len[k]);
        at += len[k++];
        if (at < n->held && !negotiated(n, VIRTIO_NET_F_MRG_RXBUF)) {
            unpop(n, k);
            return 1; /* the buffer is too small: dropped */
        }
    }
    if (!low || !high) /* nothing is held */
        return 1;
    *low = (uint8_t)k;
    *high = 0;
    for (i = 0; i < k; i++)
        virtq_fill(q, head[i], len[i]);
    virtq_publish(q);
    return 1;
}

static void run_rx(struct net *n);

static void on_rx_due(void *self)
{
    struct net *n = self;

    n->rx_waits = 0;
    run_rx(n);
}

static void run_rx(struct net *n)
{
    uint64_t wait;
    uint32_t i;
    int r = 1;

    for (i = 0; i < BUDGET && virtio_live(&n->v) && !n->rx_waits && take(n); i++) {
        if (n->held == 0)
            continue;
        wait = n->paid ? 0 : limiter_take(&n->rx, n->held - HDR, limiter_now());
        if (wait > 0) {
            n->rx_waits = 1;
            (void)loop_timer(n->v.loop, wait, on_rx_due, n);
            break;
        }
        n->paid = 1;
        r = place(n);
        if (r < 0)
            virtio_broken(&n->v, "a buffer to receive with that breaks the rules");
        n->starved = r == 0;
        if (r != 1)
            break;
        n->held = 0;
    }
    virtio_irq_queue(&n->v, RX);
    arm(n);
}

/* ------------------------------------------------------------------ from the guest */

/* What of the header may reach the host's network stack; 0 = the frame is dropped. */
static int judge(const struct net *n, const struct virtio_net_hdr_v1 *in, uint64_t len,
                 struct virtio_net_hdr_v1 *ret)
{
    int tso4 = in->gso_type == VIRTIO_NET_HDR_GSO_TCPV4;
    int tso6 = in->gso_type == VIRTIO_NET_HDR_GSO_TCPV6;
    int csum = in->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM;

    memset(ret, 0, sizeof(*ret));
    if (len < ETH || len > FRAME_MAX)
        return 0;
    if (csum) {
        if (!negotiated(n, VIRTIO_NET_F_CSUM) ||
            (uint64_t)in->csum_start + in->csum_offset + 2 > len)
            return 0;
        ret->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
        ret->csum_start = in->csum_start;
        ret->csum_offset = in->csum_offset;
    }
    if (in->gso_type == VIRTIO_NET_HDR_GSO_NONE)
        return 1;
    if (!csum || in->gso_size == 0 || in->hdr_len > len ||
        !((tso4 && negotiated(n, VIRTIO_NET_F_HOST_TSO4)) ||
          (tso6 && negotiated(n, VIRTIO_NET_F_HOST_TSO6))))
        return 0;
    ret->gso_type = in->gso_type;
    ret->gso_size = in->gso_size;
    ret->hdr_len = in->hdr_len;
    return 1;
}

static void on_tx_due(void *self);

/* 1 = sent or dropped, 0 = stays in the ring, -EPROTO
   @seccomp vmm: writev */
static int send_one(struct net *n)
{
    struct virtio_net_hdr_v1 h, clean;
    struct iovec iov[CHAIN_MAX + 1];
    uint64_t len = n->c.out_bytes - HDR, wait;
    uint32_t k;
    ssize_t r;

    if (n->c.n_in > 0 || chain_get(&n->c, 0, &h, HDR) < 0)
        return -EPROTO;
    if (!judge(n, &h, len, &clean))
        return 1;
    wait = limiter_take(&n->tx, len, limiter_now());
    if (wait > 0) {
        (void)loop_timer(n->v.loop, wait, on_tx_due, n);
        return 0;
    }
    iov[0] = (struct iovec){.iov_base = &clean, .iov_len = HDR};
    k = iov_slice(n->c.iov, n->c.n_out, HDR, len, iov + 1);
    do
        r = n->headers ? writev(n->borrow_fd, iov, (int)k + 1)
                       : writev(n->borrow_fd, iov + 1, (int)k);
    while (r < 0 && errno == EINTR);
    if (r < 0 && errno == EAGAIN) {
        n->tx_full = 1;
        return 0;
    }
    return 1; /* an error other than that is the network's loss */
}

static void run_tx(struct net *n)
{
    uint32_t i = 0;
    int r = 0;

    if (!virtio_live(&n->v) || n->tx_full)
        return;
    while (i < BUDGET && (r = virtq_pop(&n->v.q[TX], &n->c)) == 1) {
        r = send_one(n);
        if (r == 0)
            virtq_unpop(&n->v.q[TX]);
        if (r <= 0)
            break;
        virtq_push(&n->v.q[TX], n->c.head, 0);
        i++;
    }
    if (r < 0)
        virtio_broken(&n->v, "a frame that breaks the rules");
    else if (i == BUDGET)
        (void)loop_timer(n->v.loop, 1, on_tx_due, n);
    virtio_irq_queue(&n->v, TX);
    arm(n);
}

static void on_tx_due(void *self)
{
    run_tx(self);
}

static void on_tap(void *self, int fd, uint32_t events)
{
    struct net *n = self;

    (void)fd;
    if (events & (EPOLLERR | EPOLLHUP))
        n->gone = 1; /* the interface has been removed: there is nothing to wake up for */
    if (events & EPOLLOUT) {
        n->tx_full = 0;
        run_tx(n);
    }
    if (events & EPOLLIN)
        run_rx(n);
    arm(n);
}

/* --------------------------------------------------------------------- the device */

static uint64_t features(void *self)
{
    const struct net *n = self;
    uint64_t f = BIT(VIRTIO_NET_F_MAC) | BIT(VIRTIO_NET_F_MRG_RXBUF);

    if (n->offloads)
        f |= BIT(VIRTIO_NET_F_CSUM) | BIT(VIRTIO_NET_F_GUEST_CSUM) | BIT(VIRTIO_NET_F_HOST_TSO4) |
             BIT(VIRTIO_NET_F_HOST_TSO6) | BIT(VIRTIO_NET_F_GUEST_TSO4) |
             BIT(VIRTIO_NET_F_GUEST_TSO6);
    return f;
}

static void config_read(void *self, uint32_t offset, void *out, unsigned len)
{
    const struct net *n = self;
    uint8_t c[8] = {0};

    memcpy(c, n->mac, sizeof(n->mac));
    memcpy(out, c + offset, len);
}

/* @seccomp vmm vcpu: ioctl(TUNSETOFFLOAD) */
static int activate(void *self)
{
    struct net *n = self;
    unsigned long flags = 0;

    /* 5.1.3.1 */
    if (!negotiated(n, VIRTIO_NET_F_CSUM) &&
        (negotiated(n, VIRTIO_NET_F_HOST_TSO4) || negotiated(n, VIRTIO_NET_F_HOST_TSO6)))
        return -EPROTO;
    if (!negotiated(n, VIRTIO_NET_F_GUEST_CSUM) &&
        (negotiated(n, VIRTIO_NET_F_GUEST_TSO4) || negotiated(n, VIRTIO_NET_F_GUEST_TSO6)))
        return -EPROTO;
    flags |= negotiated(n, VIRTIO_NET_F_GUEST_CSUM) ? TUN_F_CSUM : 0;
    flags |= negotiated(n, VIRTIO_NET_F_GUEST_TSO4) ? TUN_F_TSO4 : 0;
    flags |= negotiated(n, VIRTIO_NET_F_GUEST_TSO6) ? TUN_F_TSO6 : 0;
    if (n->offloads && ioctl(n->borrow_fd, TUNSETOFFLOAD, flags) < 0 && errno != ENOTTY)
        return -errno;
    n->starved = 0;
    return 0;
}

static void reset(void *self)
{
    struct net *n = self;

    (void)loop_timer(n->v.loop, 0, on_rx_due, n);
    (void)loop_timer(n->v.loop, 0, on_tx_due, n);
    n->held = 0;
    n->starved = n->rx_waits = n->tx_full = 0;
    (void)loop_change(n->v.loop, n->borrow_fd, 0);
}

static void kick(void *self, uint32_t queue)
{
    struct net *n = self;

    if (queue == TX) {
        run_tx(n);
        return;
    }
    n->starved = 0;
    run_rx(n);
}

static const struct virtio_ops ops = {.name = "net",
                                      .id = VIRTIO_ID_NET,
                                      .n_queues = N_QUEUES,
                                      .queue_max = VIRTIO_QUEUE_MAX,
                                      .config_len = 8,
                                      .features = features,
                                      .config_read = config_read,
                                      .activate = activate,
                                      .reset = reset,
                                      .kick = kick};

struct net *net_on(const struct virtio_bind *bind, uint32_t number, int borrow_fd,
                   const uint8_t mac[6], int headers, int offloads)
{
    struct net *n = calloc(1, sizeof(*n));
    int r, flags = fcntl(borrow_fd, F_GETFL);

    if (!n)
        return NULL;
    memcpy(n->mac, mac, sizeof(n->mac));
    n->borrow_fd = borrow_fd;
    n->headers = headers;
    n->offloads = headers && offloads;
    r = flags < 0 || fcntl(borrow_fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
    if (r == 0)
        r = virtio_init(&n->v, &ops, n, number, bind);
    if (r == 0)
        r = loop_watch(bind->loop, borrow_fd, 0, on_tap, n);
    if (r == 0)
        return n;
    net_free(n);
    errno = -r;
    return NULL;
}

struct net *net_new(const struct virtio_bind *bind, uint32_t number, int borrow_tap_fd,
                    const uint8_t mac[6])
{
    int size = HDR, offloads;
    struct ifreq ifr;

    memset(&ifr, 0, sizeof(ifr));
    if (ioctl(borrow_tap_fd, TUNGETIFF, &ifr) < 0)
        return NULL;
    if (!(ifr.ifr_flags & IFF_TAP) || !(ifr.ifr_flags & IFF_NO_PI)) {
        errno = EPROTOTYPE;
        return NULL;
    }
    if (!(ifr.ifr_flags & IFF_VNET_HDR))
        return net_on(bind, number, borrow_tap_fd, mac, 0, 0);
    if (ioctl(borrow_tap_fd, TUNSETVNETHDRSZ, &size) < 0)
        return NULL;
    offloads = ioctl(borrow_tap_fd, TUNSETOFFLOAD, (unsigned long)TUN_OFFLOADS) == 0;
    if (offloads && ioctl(borrow_tap_fd, TUNSETOFFLOAD, 0ul) < 0)
        return NULL;
    return net_on(bind, number, borrow_tap_fd, mac, 1, offloads);
}

void net_limit(struct net *n, uint64_t rx_bps, uint64_t tx_bps)
{
    uint64_t now = limiter_now();

    limiter_set(&n->rx, rx_bps, now);
    limiter_set(&n->tx, tx_bps, now);
    if (!n->v.active)
        return;
    on_rx_due(n);
    run_tx(n);
}

struct virtio *net_virtio(struct net *n)
{
    return &n->v;
}

void net_free(struct net *n)
{
    if (!n)
        return;
    if (n->v.ops) {
        reset(n);
        loop_unwatch(n->v.loop, n->borrow_fd);
    }
    virtio_fini(&n->v);
    free(n);
}
