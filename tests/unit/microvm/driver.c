/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * driver - rings in memory, registers by bus_write(). Descriptors are used one after the other and never freed: a
 * test makes few requests, and the index wraps. Threads: one.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

#define REG(d, r) ((d)->base + (r))
#define ALL_STATUS                                                                                 \
    (VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK)

int drv_init(struct drv *d)
{
    memset(d, 0, sizeof(*d));
    d->ram_fd = memfd_create("guest", MFD_CLOEXEC);
    if (d->ram_fd < 0 || ftruncate(d->ram_fd, (off_t)DRV_RAM) < 0)
        return -errno;
    d->loop = loop_new();
    if (!d->loop)
        return -ENOMEM;
    d->bind = (struct virtio_bind){.loop = d->loop, .bus = &d->bus, .ram = &d->ram};
    return ram_map(&d->ram, d->ram_fd, DRV_RAM, 0);
}

void drv_fini(struct drv *d)
{
    ram_unmap(&d->ram);
    loop_free(d->loop);
    close(d->ram_fd);
}

void *drv_at(struct drv *d, uint64_t gpa)
{
    return d->ram.base + gpa;
}

uint32_t drv_get(struct drv *d, uint64_t reg)
{
    uint32_t v;

    bus_read(&d->bus, REG(d, reg), &v, sizeof(v));
    return v;
}

void drv_set(struct drv *d, uint64_t reg, uint32_t value)
{
    bus_write(&d->bus, REG(d, reg), &value, sizeof(value));
}

uint32_t drv_negotiate(struct drv *d, struct virtio *v, uint64_t want)
{
    uint64_t offered;

    d->v = v;
    d->base = VIRTIO_MMIO_BASE + VIRTIO_MMIO_SIZE * v->number;
    drv_set(d, VIRTIO_MMIO_STATUS, 0);
    memset(d->q, 0, sizeof(d->q));
    drv_set(d, VIRTIO_MMIO_STATUS, VIRTIO_CONFIG_S_ACKNOWLEDGE);
    drv_set(d, VIRTIO_MMIO_STATUS, VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER);
    drv_set(d, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 1);
    offered = (uint64_t)drv_get(d, VIRTIO_MMIO_DEVICE_FEATURES) << 32;
    drv_set(d, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 0);
    offered |= drv_get(d, VIRTIO_MMIO_DEVICE_FEATURES);
    offered &= want | 1ull << VIRTIO_F_VERSION_1;
    drv_set(d, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
    drv_set(d, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)(offered >> 32));
    drv_set(d, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
    drv_set(d, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)offered);
    drv_set(d, VIRTIO_MMIO_STATUS, ALL_STATUS);
    return drv_get(d, VIRTIO_MMIO_STATUS);
}

void drv_queue(struct drv *d, uint32_t q, uint16_t size)
{
    uint64_t at = DRV_QUEUE_AT(q);

    memset(drv_at(d, at), 0, 0x10000);
    d->q[q] = (struct drv_queue){.size = size};
    drv_set(d, VIRTIO_MMIO_QUEUE_SEL, q);
    drv_set(d, VIRTIO_MMIO_QUEUE_NUM, size);
    drv_set(d, VIRTIO_MMIO_QUEUE_DESC_LOW, (uint32_t)at);
    drv_set(d, VIRTIO_MMIO_QUEUE_DESC_HIGH, 0);
    drv_set(d, VIRTIO_MMIO_QUEUE_AVAIL_LOW, (uint32_t)at + 0x4000);
    drv_set(d, VIRTIO_MMIO_QUEUE_AVAIL_HIGH, 0);
    drv_set(d, VIRTIO_MMIO_QUEUE_USED_LOW, (uint32_t)at + 0x8000);
    drv_set(d, VIRTIO_MMIO_QUEUE_USED_HIGH, 0);
    drv_set(d, VIRTIO_MMIO_QUEUE_READY, 1);
}

void drv_start(struct drv *d, struct virtio *v, uint64_t want, uint32_t n_queues)
{
    uint32_t i;

    drv_negotiate(d, v, want);
    for (i = 0; i < n_queues; i++)
        drv_queue(d, i, DRV_SIZE);
    drv_set(d, VIRTIO_MMIO_STATUS, ALL_STATUS | VIRTIO_CONFIG_S_DRIVER_OK);
}

void drv_desc(struct drv *d, uint32_t q, uint16_t i, uint64_t addr, uint32_t len, uint16_t flags,
              uint16_t next)
{
    struct vring_desc v = {.addr = addr, .len = len, .flags = flags, .next = next};

    memcpy(drv_at(d, DRV_QUEUE_AT(q) + 16ull * i), &v, sizeof(v));
}

void drv_offer(struct drv *d, uint32_t q, uint16_t head)
{
    struct drv_queue *k = &d->q[q];
    uint16_t *avail = drv_at(d, DRV_QUEUE_AT(q) + 0x4000);

    avail[2 + k->avail % k->size] = head;
    __atomic_store_n(&avail[1], ++k->avail, __ATOMIC_RELEASE);
}

uint16_t drv_add(struct drv *d, uint32_t q, const struct piece *p, uint32_t n)
{
    struct drv_queue *k = &d->q[q];
    uint16_t head = k->free;
    uint32_t i;

    for (i = 0; i < n; i++) {
        uint16_t at = k->free, next = (uint16_t)((at + 1) % k->size);
        drv_desc(
            d, q, at, p[i].at, p[i].len,
            (uint16_t)((p[i].in ? VRING_DESC_F_WRITE : 0) | (i + 1 < n ? VRING_DESC_F_NEXT : 0)),
            next);
        k->free = next;
    }
    drv_offer(d, q, head);
    return head;
}

void drv_kick(struct drv *d, uint32_t q)
{
    drv_set(d, VIRTIO_MMIO_QUEUE_NOTIFY, q);
}

int drv_used(struct drv *d, uint32_t q, uint32_t *ret_head, uint32_t *ret_len)
{
    struct drv_queue *k = &d->q[q];
    uint8_t *used = drv_at(d, DRV_QUEUE_AT(q) + 0x8000);
    uint32_t e[2];

    if (__atomic_load_n((uint16_t *)(used + 2), __ATOMIC_ACQUIRE) == k->seen)
        return 0;
    memcpy(e, used + 4 + 8 * (k->seen % k->size), sizeof(e));
    k->seen++;
    *ret_head = e[0];
    *ret_len = e[1];
    return 1;
}

struct run {
    struct loop *loop;
    int (*done)(void *ctx);
    void *ctx;
    int late;
};

static void on_late(void *self)
{
    ((struct run *)self)->late = 1;
}

static void look(void *self)
{
    struct run *r = self;

    if (r->late || (r->done && r->done(r->ctx)))
        loop_end(r->loop);
}

void drv_run(struct drv *d, unsigned ms, int (*done)(void *ctx), void *ctx)
{
    struct run r = {.loop = d->loop, .done = done, .ctx = ctx};
    unsigned i;

    if (done && done(ctx))
        return;
    loop_timer(d->loop, (uint64_t)ms * 1000000u + 1, on_late, &r);
    loop_run(d->loop, NULL, look, &r);
    for (i = 0; r.late && i < 8; i++) { /* the time may have passed over what there was to do */
        r.late = 0;
        loop_timer(d->loop, 1, on_late, &r);
        loop_run(d->loop, NULL, look, &r);
    }
    loop_timer(d->loop, 0, on_late, &r);
}

struct waited {
    struct drv *d;
    uint32_t q, head, len;
    int got;
};

static int came(void *ctx)
{
    struct waited *w = ctx;

    w->got = w->got || drv_used(w->d, w->q, &w->head, &w->len);
    return w->got;
}

int drv_wait(struct drv *d, uint32_t q, uint32_t *ret_len)
{
    struct waited w = {.d = d, .q = q};

    drv_run(d, 20000, came, &w);
    *ret_len = w.len;
    return w.got ? (int)w.head : -ETIMEDOUT;
}

uint64_t drv_irqs(struct drv *d)
{
    uint64_t n = 0;

    (void)!read(d->v->irq_fd, &n, sizeof(n));
    return n;
}
