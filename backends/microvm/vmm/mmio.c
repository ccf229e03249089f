/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * mmio - the registers of a virtio-mmio device, version 2 (VIRTIO 1.2, 4.2.2), and the life that they drive (3.1).
 *
 * A driver takes a device through ACKNOWLEDGE, DRIVER, FEATURES_OK and DRIVER_OK; a step out of order is ignored, and
 * the driver sees that when it reads the status back. Queues can be described between FEATURES_OK and DRIVER_OK
 * only, and they are judged once, at DRIVER_OK; until then no number of theirs is used for anything. A write of 0
 * resets the device at any moment. A driver that breaks the rules of a ring gets NEEDS_RESET, and no service before
 * it has reset the device: it harms nobody but itself.
 *
 * Kicks: under KVM the notify register is an ioeventfd for each queue, so that kicks reach the VMM thread and
 * no processor's; a kick that came before DRIVER_OK is made good by one kick for each queue then.
 * Threads: registers on processors' threads, kicks on the VMM thread; both with the machine's lock.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <linux/virtio_ring.h>

#include "mmio.h"

#define MAGIC 0x74726976u
#define VENDOR 0x616c6563u
#define SHM_NONE UINT32_MAX /* 4.2.2: what the length of a region that is not there reads as */

static uint64_t offered(const struct virtio *v)
{
    return v->ops->features(v->self) | 1ull << VIRTIO_F_VERSION_1 |
           1ull << VIRTIO_RING_F_EVENT_IDX | 1ull << VIRTIO_RING_F_INDIRECT_DESC;
}

int mmio_features_right(const struct virtio *v)
{
    return (v->driver_features & ~offered(v)) == 0 &&
           (v->driver_features & 1ull << VIRTIO_F_VERSION_1) != 0;
}

/* @seccomp vmm vcpu: write */
void mmio_irq(struct virtio *v, uint32_t bit)
{
    uint64_t one = 1;

    v->irq_status |= bit;
    (void)!write(v->irq_fd, &one, sizeof(one)); /* full = the guest has it to come anyway */
}

void virtio_irq_queue(struct virtio *v, uint32_t queue)
{
    if (virtq_wants_irq(&v->q[queue]))
        mmio_irq(v, VIRTIO_MMIO_INT_VRING);
}

void virtio_irq_config(struct virtio *v)
{
    v->generation++;
    if (v->status & DRIVER_OK)
        mmio_irq(v, VIRTIO_MMIO_INT_CONFIG);
}

void virtio_broken(struct virtio *v, const char *why)
{
    if (v->broken)
        return;
    v->broken = 1;
    snprintf(v->why, sizeof(v->why), "%s: %s", v->ops->name, why);
    v->status |= NEEDS_RESET; /* 2.1.2 */
    if (v->status & DRIVER_OK)
        mmio_irq(v, VIRTIO_MMIO_INT_CONFIG);
}

/* ------------------------------------------------------------------------ kicks */

static void serve(struct virtio *v, uint32_t queue)
{
    if (virtio_live(v) && v->q[queue].ready)
        v->ops->kick(v->self, queue);
}

/* @seccomp vmm: read */
static void on_kick(void *self, int fd, uint32_t events)
{
    struct virtio *v = self;
    uint64_t n;
    uint32_t i;

    (void)events;
    (void)!read(fd, &n, sizeof(n));
    for (i = 0; i < v->ops->n_queues; i++)
        if (v->q[i].kick_fd == fd)
            serve(v, i);
}

/* Under KVM always on the VMM thread, whoever asks for it. */
static void kick_one(struct virtio *v, uint32_t queue)
{
    uint64_t one = 1;

    if (!v->kick_bound)
        serve(v, queue);
    else
        (void)!write(v->q[queue].kick_fd, &one, sizeof(one));
}

void mmio_kick_all(struct virtio *v)
{
    uint32_t i;

    for (i = 0; i < v->ops->n_queues; i++)
        kick_one(v, i);
}

/* ------------------------------------------------------------------------- life */

static void forget_queues(struct virtio *v)
{
    uint32_t i;

    for (i = 0; i < v->ops->n_queues; i++) {
        struct virtq *q = &v->q[i];
        *q = (struct virtq){.max = q->max, .kick_fd = q->kick_fd, .ram = q->ram};
    }
}

void mmio_reset(struct virtio *v)
{
    if (v->ops->reset)
        v->ops->reset(v->self);
    forget_queues(v);
    v->active = v->broken = v->quiet = 0;
    v->why[0] = '\0';
    v->status = v->irq_status = 0;
    v->features_sel = v->driver_features_sel = v->queue_sel = 0;
    v->driver_features = 0;
}

/* -EPROTO when the driver asked for what cannot be. */
int mmio_start(struct virtio *v)
{
    uint32_t i;
    int r;

    for (i = 0; i < v->ops->n_queues; i++) {
        struct virtq *q = &v->q[i];
        q->event_idx = (v->driver_features >> VIRTIO_RING_F_EVENT_IDX) & 1;
        q->indirect = (v->driver_features >> VIRTIO_RING_F_INDIRECT_DESC) & 1;
        if (q->ready && virtq_judge(q) < 0) {
            virtio_broken(v, "a queue's size, alignment or place is wrong");
            return -EPROTO;
        }
    }
    r = v->ops->activate ? v->ops->activate(v->self) : 0;
    if (r < 0) {
        virtio_broken(v, "the features that the driver chose cannot be had");
        return r;
    }
    v->active = 1;
    return 0;
}

/* 3.1.1 and 2.1.1: one step after the other, and no bit is ever taken back but by a reset. */
static void set_status(struct virtio *v, uint32_t value)
{
    uint32_t known = ACK | DRIVER | FEATURES_OK | DRIVER_OK | FAILED;
    uint32_t keep = v->status & ~(uint32_t)NEEDS_RESET, more;

    if (value == 0) {
        mmio_reset(v);
        return;
    }
    value &= ~(uint32_t)NEEDS_RESET;
    more = value & ~keep;
    if ((value & keep) != keep || (value & ~known) || ((value & DRIVER) && !(value & ACK)) ||
        ((more & FEATURES_OK) && !(keep & DRIVER)) || ((more & DRIVER_OK) && !(keep & FEATURES_OK)))
        return;
    if ((more & FEATURES_OK) && !mmio_features_right(v))
        return;
    v->status |= value;
    if ((more & DRIVER_OK) && mmio_start(v) == 0)
        mmio_kick_all(v);
}

/* -------------------------------------------------------------------- registers */

static struct virtq *selected(struct virtio *v)
{
    return v->queue_sel < v->ops->n_queues ? &v->q[v->queue_sel] : NULL;
}

/* May the driver describe the selected queue now? */
static struct virtq *open_queue(struct virtio *v)
{
    struct virtq *q = selected(v);

    return q && (v->status & FEATURES_OK) && !(v->status & DRIVER_OK) && !q->ready ? q : NULL;
}

static uint32_t reg_read(struct virtio *v, uint64_t at)
{
    const struct virtq *q = selected(v);

    switch (at) {
    case VIRTIO_MMIO_MAGIC_VALUE:
        return MAGIC;
    case VIRTIO_MMIO_VERSION:
        return 2;
    case VIRTIO_MMIO_DEVICE_ID:
        return v->ops->id;
    case VIRTIO_MMIO_VENDOR_ID:
        return VENDOR;
    case VIRTIO_MMIO_DEVICE_FEATURES:
        return v->features_sel > 1 ? 0 : (uint32_t)(offered(v) >> (32 * v->features_sel));
    case VIRTIO_MMIO_QUEUE_NUM_MAX:
        return q ? q->max : 0;
    case VIRTIO_MMIO_QUEUE_READY:
        return q ? q->ready : 0;
    case VIRTIO_MMIO_INTERRUPT_STATUS:
        return v->irq_status;
    case VIRTIO_MMIO_STATUS:
        return v->status;
    case VIRTIO_MMIO_CONFIG_GENERATION:
        return v->generation;
    case VIRTIO_MMIO_SHM_LEN_LOW:
    case VIRTIO_MMIO_SHM_LEN_HIGH:
    case VIRTIO_MMIO_SHM_BASE_LOW:
    case VIRTIO_MMIO_SHM_BASE_HIGH:
        return SHM_NONE;
    default:
        return 0;
    }
}

static void set_half(uint64_t *v, int high, uint32_t value)
{
    uint64_t keep = high ? *v & UINT32_MAX : *v & ~(uint64_t)UINT32_MAX;

    *v = keep | (uint64_t)value << (high ? 32 : 0);
}

static void queue_write(struct virtio *v, uint64_t at, uint32_t value)
{
    struct virtq *q = open_queue(v);

    if (at == VIRTIO_MMIO_QUEUE_READY && value == 0 && selected(v)) {
        selected(v)->ready = 0; /* served no more; described again only after a reset */
        return;
    }
    if (!q)
        return;
    switch (at) {
    case VIRTIO_MMIO_QUEUE_NUM:
        q->size = value <= q->max ? (uint16_t)value : 0;
        break;
    case VIRTIO_MMIO_QUEUE_READY:
        q->ready = value == 1;
        break;
    case VIRTIO_MMIO_QUEUE_DESC_LOW:
    case VIRTIO_MMIO_QUEUE_DESC_HIGH:
        set_half(&q->desc, at == VIRTIO_MMIO_QUEUE_DESC_HIGH, value);
        break;
    case VIRTIO_MMIO_QUEUE_AVAIL_LOW:
    case VIRTIO_MMIO_QUEUE_AVAIL_HIGH:
        set_half(&q->avail, at == VIRTIO_MMIO_QUEUE_AVAIL_HIGH, value);
        break;
    case VIRTIO_MMIO_QUEUE_USED_LOW:
    case VIRTIO_MMIO_QUEUE_USED_HIGH:
        set_half(&q->used, at == VIRTIO_MMIO_QUEUE_USED_HIGH, value);
        break;
    default:
        break;
    }
}

static void reg_write(struct virtio *v, uint64_t at, uint32_t value)
{
    switch (at) {
    case VIRTIO_MMIO_DEVICE_FEATURES_SEL:
        v->features_sel = value;
        break;
    case VIRTIO_MMIO_DRIVER_FEATURES_SEL:
        v->driver_features_sel = value;
        break;
    case VIRTIO_MMIO_DRIVER_FEATURES:
        /* 2.2.1: fixed once both sides have agreed; what is above bit 63 nobody offers */
        if (!(v->status & FEATURES_OK) && (v->status & DRIVER) && v->driver_features_sel <= 1)
            set_half(&v->driver_features, v->driver_features_sel == 1, value);
        break;
    case VIRTIO_MMIO_QUEUE_SEL:
        v->queue_sel = value;
        break;
    case VIRTIO_MMIO_QUEUE_NOTIFY:
        if (value < v->ops->n_queues)
            kick_one(v, value);
        break;
    case VIRTIO_MMIO_INTERRUPT_ACK:
        v->irq_status &= ~value;
        break;
    case VIRTIO_MMIO_STATUS:
        set_status(v, value);
        break;
    default:
        queue_write(v, at, value);
    }
}

static void on_read(void *self, uint64_t offset, void *out, unsigned len)
{
    struct virtio *v = self;
    uint32_t value;

    memset(out, 0, len);
    if (offset >= VIRTIO_MMIO_CONFIG) {
        offset -= VIRTIO_MMIO_CONFIG;
        if (offset < v->ops->config_len && len <= v->ops->config_len - offset)
            v->ops->config_read(v->self, (uint32_t)offset, out, len);
        return;
    }
    if (len != 4 || offset % 4 != 0) /* 4.2.2.2 */
        return;
    value = reg_read(v, offset);
    memcpy(out, &value, sizeof(value));
}

static void on_write(void *self, uint64_t offset, const void *in, unsigned len)
{
    struct virtio *v = self;
    uint32_t value;

    if (offset >= VIRTIO_MMIO_CONFIG) {
        offset -= VIRTIO_MMIO_CONFIG;
        if (v->ops->config_write && offset < v->ops->config_len &&
            len <= v->ops->config_len - offset && (v->status & DRIVER))
            v->ops->config_write(v->self, (uint32_t)offset, in, len);
        return;
    }
    if (len != 4 || offset % 4 != 0)
        return;
    memcpy(&value, in, sizeof(value));
    reg_write(v, offset, value);
}

/* ------------------------------------------------------------------ new and free */

static int bind_fds(struct virtio *v, const struct virtio_bind *b)
{
    uint64_t base = VIRTIO_MMIO_BASE + VIRTIO_MMIO_SIZE * v->number;
    uint32_t i;
    int r = 0;

    v->irq_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (v->irq_fd < 0)
        return -errno;
    if (b->irq_bind)
        r = b->irq_bind(b->ctx, VIRTIO_GSI_BASE + v->number, v->irq_fd);
    for (i = 0; i < v->ops->n_queues && r >= 0; i++) {
        v->q[i].kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (v->q[i].kick_fd < 0)
            return -errno;
        if (!b->kick_bind)
            continue;
        r = b->kick_bind(b->ctx, base + VIRTIO_MMIO_QUEUE_NOTIFY, i, v->q[i].kick_fd);
        if (r >= 0)
            r = loop_watch(v->loop, v->q[i].kick_fd, EPOLLIN, on_kick, v);
    }
    return r < 0 ? r : 0;
}

int virtio_init(struct virtio *v, const struct virtio_ops *ops, void *self, uint32_t number,
                const struct virtio_bind *bind)
{
    struct bus_range range = {.base = VIRTIO_MMIO_BASE + VIRTIO_MMIO_SIZE * number,
                              .len = VIRTIO_MMIO_SIZE,
                              .self = v,
                              .read = on_read,
                              .write = on_write};
    uint32_t i;
    int r;

    memset(v, 0, sizeof(*v));
    v->ops = ops;
    v->self = self;
    v->loop = bind->loop;
    v->ram = bind->ram;
    v->number = number;
    v->irq_fd = -1;
    v->kick_bound = bind->kick_bind != NULL;
    for (i = 0; i < VIRTIO_QUEUES_MAX; i++)
        v->q[i] = (struct virtq){.max = ops->queue_max, .kick_fd = -1, .ram = bind->ram};
    r = bind_fds(v, bind);
    if (r >= 0)
        r = bus_add(bind->bus, &range);
    if (r < 0)
        virtio_fini(v);
    return r;
}

void virtio_fini(struct virtio *v)
{
    uint32_t i;

    if (!v->ops)
        return;
    for (i = 0; i < v->ops->n_queues; i++) {
        if (v->q[i].kick_fd < 0)
            continue;
        loop_unwatch(v->loop, v->q[i].kick_fd);
        close(v->q[i].kick_fd);
        v->q[i].kick_fd = -1;
    }
    if (v->irq_fd >= 0)
        close(v->irq_fd);
    v->irq_fd = -1;
    v->ops = NULL;
}
