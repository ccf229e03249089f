/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* driver - a guest for unit tests and fuzz targets: memory, a bus, and a driver that does what a kernel's would, or what
   a kernel's never would. */
#ifndef TEST_DRIVER_H
#define TEST_DRIVER_H

#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <linux/virtio_ring.h>

#include "devices.h"

#define DRV_RAM (32ull << 20)
#define DRV_QUEUE_AT(q) (0x100000ull + 0x10000ull * (q))
#define DRV_BUFFERS 0x200000ull
#define DRV_SIZE 64u

struct drv_queue {
    uint16_t size, free, avail, seen;
};

struct drv {
    struct ram ram;
    int ram_fd;
    struct bus bus;
    struct loop *loop;
    struct virtio_bind bind;
    uint64_t base; /* of the device under test */
    struct drv_queue q[VIRTIO_QUEUES_MAX];
    struct virtio *v;
};

/* A piece of a request. */
struct piece {
    uint64_t at;
    uint32_t len;
    int in; /* the device writes it */
};

int drv_init(struct drv *d);
void drv_fini(struct drv *d);
uint32_t drv_get(struct drv *d, uint64_t reg);
void drv_set(struct drv *d, uint64_t reg, uint32_t value);
/* Up to FEATURES_OK with what of `want` is offered; the status that was read back. */
uint32_t drv_negotiate(struct drv *d, struct virtio *v, uint64_t want);
void drv_queue(struct drv *d, uint32_t q, uint16_t size);
/* All of the above and DRIVER_OK. */
void drv_start(struct drv *d, struct virtio *v, uint64_t want, uint32_t n_queues);
void drv_desc(struct drv *d, uint32_t q, uint16_t i, uint64_t addr, uint32_t len, uint16_t flags,
              uint16_t next);
void drv_offer(struct drv *d, uint32_t q, uint16_t head);
uint16_t drv_add(struct drv *d, uint32_t q, const struct piece *p, uint32_t n);
void drv_kick(struct drv *d, uint32_t q);
/* The next used element; 0 = none yet. */
int drv_used(struct drv *d, uint32_t q, uint32_t *ret_head, uint32_t *ret_len);
/* Runs the loop until there is one, at most two seconds. */
int drv_wait(struct drv *d, uint32_t q, uint32_t *ret_len);
/* Runs the loop so long, or until done(ctx). */
void drv_run(struct drv *d, unsigned ms, int (*done)(void *ctx), void *ctx);
void *drv_at(struct drv *d, uint64_t gpa);
/* Interrupts since the last call. */
uint64_t drv_irqs(struct drv *d);

#endif
