/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * virtio - VIRTIO 1.2 devices over virtio-mmio version 2 (section 4.2), split queues (2.7).
 *
 * mmio.c     registers, status machine, activation, interrupts
 * queue.c    the rings: every index, length and address of the guest is copied once and judged here
 * block.c net.c vsock.c rng.c balloon.c   the devices
 * layers.c   what a disk is made of: one writable file over files that nobody writes
 * limiter.c  bytes a second
 *
 * Threads: the VMM thread runs the queues (kicks arrive as ioeventfds); registers are reached from processors' threads.
 * Both with the machine's lock.
 */
#ifndef CELLA_VMM_VIRTIO_H
#define CELLA_VMM_VIRTIO_H

#include <stdint.h>
#include <sys/uio.h>

#include "bus.h"
#include "loop.h"
#include "ram.h"
#include "state.h"

#define VIRTIO_MMIO_BASE 0xc0001000ull /* device n at + n * 0x1000 */
#define VIRTIO_MMIO_SIZE 0x1000ull
#define VIRTIO_GSI_BASE 5u /* device n has GSI 5 + n; edge */
#define VIRTIO_QUEUES_MAX 5u
#define VIRTIO_QUEUE_MAX 256u

struct virtq {
    uint16_t size, max; /* a power of two */
    uint8_t ready, event_idx, indirect;
    uint64_t desc, avail, used;
    uint16_t next_avail, next_used, signalled;
    int kick_fd; /* eventfd */
    const struct ram *ram;
};

#define CHAIN_MAX VIRTIO_QUEUE_MAX
/* One request: what the guest lets us read, then what it lets us write, as ranges of RAM that were judged. */
struct chain {
    uint16_t head;
    uint32_t n_out, n_in; /* iov[0, n_out) to read from, iov[n_out, n_out + n_in) to write to */
    uint64_t out_bytes, in_bytes;
    struct iovec iov[CHAIN_MAX];
};

/* At activation: are size, alignment and place of the three parts right? -EPROTO. */
int virtq_judge(const struct virtq *q);
/* Takes the next request: 1, 0 = none (and the guest has been told to kick for the next one), -EPROTO = the ring breaks
   the rules; the device must be marked broken then. */
int virtq_pop(struct virtq *q, struct chain *c);
/* Puts the request that was popped last back, untouched. */
void virtq_unpop(struct virtq *q);
/* How many requests wait; a kick for the next one that comes is wanted in any case. -EPROTO as above. */
int virtq_waiting(struct virtq *q);
void virtq_push(struct virtq *q, uint16_t head, uint32_t written);
/* The same in two steps: several are filled, then the guest sees all of them. */
void virtq_fill(struct virtq *q, uint16_t head, uint32_t written);
void virtq_publish(struct virtq *q);
/* Does the guest want an interrupt for what was pushed since the last one? */
int virtq_wants_irq(struct virtq *q);

/* [from, from + len) of what may be read or written, wherever the guest cut it (2.7.4). -EFAULT when there is less. */
int chain_get(const struct chain *c, uint64_t from, void *out, uint64_t len);
int chain_put(const struct chain *c, uint64_t from, const void *in, uint64_t len);
/* The pieces of iov that are [from, from + len); out has room for n. Returns how many. */
uint32_t iov_slice(const struct iovec *iov, uint32_t n, uint64_t from, uint64_t len,
                   struct iovec *out);

struct virtio;

struct virtio_ops {
    const char *name;
    uint32_t id;
    uint32_t n_queues;
    uint16_t queue_max;
    uint32_t config_len;
    /* beside VERSION_1, EVENT_IDX and INDIRECT_DESC, which the transport adds */
    uint64_t (*features)(void *self);
    void (*config_read)(void *self, uint32_t offset, void *out, unsigned len);
    void (*config_write)(void *self, uint32_t offset, const void *in,
                         unsigned len); /* may be NULL */
    /* All but features, config_read and kick may be NULL. [offset, offset + len) is inside of config_len. */
    int (*activate)(void *self); /* queues are valid; features are v->driver_features */
    void (*reset)(void *self);   /* the rings and the guest's buffers are not touched after it */
    void (*kick)(void *self, uint32_t queue);
    int (*drain)(void *self); /* before a save: nothing is in flight when it returns */
    void (*save)(void *self, struct state_out *o);
    void (*load)(void *self, struct state_in *i); /* after activate(); marks i as bad itself */
    void (*resumed)(void *self); /* after a load, when processors are about to run */
};

struct virtio {
    const struct virtio_ops *ops;
    void *self;
    struct loop *loop;
    const struct ram *ram;
    uint32_t number;
    int irq_fd; /* eventfd bound to the GSI */
    uint32_t status, irq_status, generation;
    uint32_t features_sel, driver_features_sel, queue_sel;
    uint64_t driver_features;
    int active, broken;
    int quiet; /* between a drain, or a load, and the resume: nothing of the guest is touched */
    int kick_bound; /* kicks come through kick_fd, on the VMM thread */
    char why[120];  /* of broken */
    struct virtq q[VIRTIO_QUEUES_MAX];
};

/* May the device serve its queues? */
static inline int virtio_live(const struct virtio *v)
{
    return v->active && !v->broken && !v->quiet;
}

/* Registers device number n. kvm_notify(ctx, address, queue, kick_fd) binds an ioeventfd; NULL = kicks come through
   the register only (tests, fuzzing). */
struct virtio_bind {
    struct loop *loop;
    struct bus *bus;
    const struct ram *ram;
    int (*kick_bind)(void *ctx, uint64_t address, uint32_t queue, int kick_fd);
    int (*irq_bind)(void *ctx, uint32_t gsi, int irq_fd);
    void *ctx;
};
int virtio_init(struct virtio *v, const struct virtio_ops *ops, void *self, uint32_t number,
                const struct virtio_bind *bind);
void virtio_fini(struct virtio *v);
void virtio_irq_queue(struct virtio *v, uint32_t queue); /* if the guest wants it */
void virtio_irq_config(struct virtio *v);
/* The guest has broken the rules: NEEDS_RESET is set, nothing more is served until it resets the device. */
void virtio_broken(struct virtio *v, const char *why);
/* Snapshot: drain all, save all; from the drain to the resume no device touches the guest's memory. A new machine: load each (once, before anything else reached it; -EINVAL), then
   resume each. After a save that is not the end, resume each, too. */
int virtio_drain(struct virtio *v);
void virtio_save(struct virtio *v, struct state_out *o);
int virtio_load(struct virtio *v, struct state_in *i);
void virtio_resume(struct virtio *v);

#endif
