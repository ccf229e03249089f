/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* devices - how machine.c makes each device. All return NULL and errno when they cannot be made. */
#ifndef CELLA_VMM_DEVICES_H
#define CELLA_VMM_DEVICES_H

#include "virtio.h"

/* In this order on the bus: root disk, writable disk, vsock, rng, balloon, net. */
enum device_number { DEV_ROOT, DEV_RW, DEV_VSOCK, DEV_RNG, DEV_BALLOON, DEV_NET, DEV_N };

struct block;
struct block *block_new(const struct virtio_bind *bind, uint32_t number, const char *serial,
                        const int *borrow_layer_fds, uint32_t n_layers, uint64_t bytes,
                        int read_only);
/* Its layers, of one that was made without any: before the guest runs. */
int block_fill(struct block *b, const int *borrow_layer_fds, uint32_t n_layers);
void block_limit(struct block *b, uint64_t read_bps, uint64_t write_bps);
struct virtio *block_virtio(struct block *b);
void block_figures(const struct block *b, uint64_t *ret_read, uint64_t *ret_written);
void block_free(struct block *b);

struct net;
struct net *net_new(const struct virtio_bind *bind, uint32_t number, int borrow_tap_fd,
                    const uint8_t mac[6]);
void net_limit(struct net *n, uint64_t rx_bps, uint64_t tx_bps);
struct virtio *net_virtio(struct net *n);
void net_free(struct net *n);

/* The multiplexer: a client of the unix socket says in its first line where to.
     "CONNECT <port>\n"  gets "OK <port>\n" when the guest has accepted, then bytes; the end, when it has not, or when
                         there is no driver
     "PORT <port>\n"     gets no answer. It is held and tried (from 2 ms, at most every 20 ms) until the guest's listener
                         accepts, before there is a driver and across a transport reset, too. What the client
                         sends meanwhile stays in the socket. Then it is like the other
   The guest connects to nobody: RST. */
struct vsock;
struct vsock *vsock_new(const struct virtio_bind *bind, uint32_t number, int borrow_listen_fd);
struct virtio *vsock_virtio(struct vsock *v);
void vsock_free(struct vsock *v);

struct rng;
struct rng *rng_new(const struct virtio_bind *bind, uint32_t number);
struct virtio *rng_virtio(struct rng *r);
void rng_free(struct rng *r);

/* Inflate, deflate on out of memory, free page reporting; pages go back to the host by ram_discard(). */
struct balloon;
struct balloon *balloon_new(const struct virtio_bind *bind, uint32_t number, uint64_t ram_bytes);
int balloon_leave(struct balloon *b, uint64_t bytes);
uint64_t balloon_taken(const struct balloon *b);
struct virtio *balloon_virtio(struct balloon *b);
void balloon_free(struct balloon *b);

#endif
