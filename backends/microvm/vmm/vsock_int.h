/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* vsock_int - what vsock.c (packets of the guest) and vsock_host.c (sockets of the host) share. */
#ifndef CELLA_VMM_VSOCK_INT_H
#define CELLA_VMM_VSOCK_INT_H

#include <linux/virtio_vsock.h>

#include "devices.h"

#define CONNS 64u
#define ALLOC (64u << 10) /* bytes of one connection that we keep for a client that does not read */
#define RSTS 64u          /* refusals that wait for a buffer of the guest; more are dropped */
#define LINE_MAX_ 24u     /* of a client's first line */
#define MS 1000000ull

enum conn_state {
    FREE,
    HELLO,     /* the client has not said where to */
    WAITING,   /* it will be tried, or tried again, when it is due */
    REQUESTED, /* the guest has to answer */
    OPEN,
    LINGER, /* the client has gone: the guest has to answer our SHUTDOWN */
    GONE    /* the guest has gone: what it sent goes to the client */
};

/* Packets without data that the guest is to get. */
#define CTL_REQUEST 1u
#define CTL_UPDATE 2u
#define CTL_ASK 4u
#define CTL_SHUTDOWN 8u

struct conn {
    enum conn_state state;
    int fd;
    int patient; /* PORT: never answered, tried until it is accepted */
    uint32_t port, host_port;
    char line[LINE_MAX_];
    uint32_t line_len;
    uint32_t ctl, shut; /* to be sent; what we have shut, VIRTIO_VSOCK_SHUTDOWN_* */
    uint32_t peer_shut; /* what the guest has shut */
    uint32_t sent;      /* bytes to the guest, modulo 2^32 as all that follow (5.10.6.3) */
    uint32_t peer_alloc, peer_fwd;
    uint32_t got, fwd, fwd_told; /* bytes of the guest; given to the client; as the guest knows */
    uint8_t *buf;                /* a ring of ALLOC bytes, when the client does not read */
    uint32_t buf_at, buf_len;
    uint64_t due, pause; /* ns; 0 = never */
};

struct vsock {
    struct virtio v;
    int borrow_listen_fd;
    struct conn c[CONNS];
    uint32_t next_port;
    struct {
        uint32_t host_port, port, type;
    } rst[RSTS];
    uint32_t n_rst;
    int starved; /* the guest has given no buffer to receive with */
    /* After a load: the guest has not been told; it has been, but has not done it. */
    int reset_pending, reset_wait;
    int events_left; /* buffers of the event queue after that one */
    int accepting;
    /* ns that a guest has to answer a patient client's REQUEST, a SHUTDOWN, and a transport reset. Long: on a busy host
       a guest is slow, and a connection that was taken back too early is lost to both. */
    uint64_t answer_wait, linger_wait, reset_most;
    struct chain chain;
};

/* vsock.c */
void vsock_pump(struct vsock *v);
void vsock_rst(struct vsock *v, uint32_t host_port, uint32_t port, uint32_t type);
/* One packet with data of the client; 1, 0 = not now, negative = the client has gone. */
int vsock_feed(struct vsock *v, struct conn *c);
uint32_t vsock_credit(const struct conn *c);

/* vsock_host.c */
int vsock_listen(struct vsock *v);
void vsock_arm(struct vsock *v, struct conn *c);
void vsock_arm_all(struct vsock *v);
void vsock_try_all(struct vsock *v); /* who waits is due now */
void vsock_schedule(struct vsock *v);
void vsock_accepted(struct vsock *v, struct conn *c);
void vsock_refused(struct vsock *v, struct conn *c);
/* [iov, iov + n) of the guest to the client, what does not fit to the buffer. */
void vsock_deliver(struct vsock *v, struct conn *c, struct iovec *iov, uint32_t n, uint32_t len);
void vsock_peer_shut(struct vsock *v, struct conn *c, uint32_t flags);
void vsock_peer_gone(struct vsock *v, struct conn *c);
void vsock_kill(struct vsock *v, struct conn *c); /* RST to the guest, if it knows of it */
void vsock_drop(struct vsock *v, struct conn *c);
void vsock_stop(struct vsock *v, int all); /* all, or all but those that wait */

#endif
