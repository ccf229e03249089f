/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * storm - a driver that hates its devices: random values in every register and in every field of every queue, between
 * enough of what is right that a device comes to believe them. In a guest (storm_init.c) it is the workload; in a test
 * (test_vmm_storm.c) it drives the same devices without a processor. Then rng_works() is a driver as it should be.
 *
 * A device may do to the guest's memory what it was told: so whatever is RAM in what is written here is one of the
 * storm's own pages, and everything else is no RAM. Each device has pages of its own: one that is
 * late reads what was written for it. Threads: none.
 */
#ifndef CELLA_TEST_STORM_H
#define CELLA_TEST_STORM_H

#include <linux/virtio_mmio.h>
#include <stdint.h>
#include <string.h>

#define STORM_DEVICES 6
#define STORM_QUEUES 5
#define STORM_PAGES 8 /* of each device: queues, and buffers */
#define STORM_PAGE 4096u
#define STORM_VSOCK 2
#define STORM_RNG 3
#define STORM_BALLOON 4
#define STORM_NO_RAM 0x40000000u /* at and above it there is none */

struct storm {
    void (*set)(struct storm *s, uint32_t dev, uint32_t reg, unsigned width, uint32_t v);
    uint32_t (*get)(struct storm *s, uint32_t dev, uint32_t reg);
    void (*moment)(struct storm *s); /* devices get their turn */
    volatile uint8_t *mem;           /* the pages, one after the other */
    uint64_t gpa[STORM_DEVICES * STORM_PAGES];
    uint32_t devices;
    uint64_t seed;
    unsigned long rounds, writes;
};

static inline uint32_t storm_random(struct storm *s)
{
    s->seed ^= s->seed << 13;
    s->seed ^= s->seed >> 7;
    s->seed ^= s->seed << 17;
    return (uint32_t)(s->seed >> 16);
}

static inline uint32_t storm_below(struct storm *s, uint32_t n)
{
    return storm_random(s) % n;
}

static inline void storm_set(struct storm *s, uint32_t dev, uint32_t reg, uint32_t v)
{
    s->set(s, dev, reg, 4, v);
    s->writes++;
}

static inline void storm_put(struct storm *s, uint32_t page, uint32_t at, const void *v, size_t n)
{
    const uint8_t *from = v;

    while (n--)
        s->mem[(size_t)page * STORM_PAGE + at++] = *from++;
}

/* Somewhere in one of the device's pages, or no RAM. */
static inline uint64_t storm_address(struct storm *s, uint32_t dev, uint32_t *len)
{
    static const uint64_t far[] = {3ull << 30,   4ull << 30, 0xc0001000, 0xfee00000,   ~0ull,
                                   ~0ull - 4095, 1ull << 63, 0xffffffff, STORM_NO_RAM, 1ull << 52};
    uint32_t page = dev * STORM_PAGES + storm_below(s, STORM_PAGES),
             at = storm_random(s) % STORM_PAGE;

    switch (storm_below(s, 8)) {
    case 0: /* no RAM */
        *len = storm_random(s);
        return far[storm_below(s, sizeof(far) / sizeof(far[0]))];
    case 1: /* begins as RAM, and ends nowhere */
        *len = 0x7fffffff + storm_below(s, 3) * 0x40000000u;
        return s->gpa[page] + at;
    case 2:
        *len = storm_below(s, 17);
        return s->gpa[page] + (at & ~15u);
    default:
        *len = storm_below(s, STORM_PAGE - at) + 1;
        return s->gpa[page] + at;
    }
}

static inline void storm_descriptors(struct storm *s, uint32_t dev, uint32_t page, uint32_t num)
{
    uint32_t i;

    for (i = 0; i < num && i < 64; i++) {
        struct {
            uint64_t addr;
            uint32_t len;
            uint16_t flags, next;
        } d;
        d.addr = storm_address(s, dev, &d.len);
        d.flags = (uint16_t)(storm_below(s, 16) ? storm_below(s, 8) : storm_random(s));
        d.next = (uint16_t)(storm_below(s, 16) ? (i + 1) % num : storm_random(s));
        if (storm_below(s, 2))
            d.flags &= 3; /* an indirect table is seldom one */
        storm_put(s, page, i * 16, &d, sizeof(d));
    }
}

/* Chains of three that could be requests: a header, data in sectors, a byte of status. */
static inline void storm_requests(struct storm *s, uint32_t dev, uint32_t page, uint32_t num)
{
    uint32_t i, buffers = dev * STORM_PAGES + STORM_QUEUES, k;

    for (i = 0; i + 2 < num && i < 62; i += 3) {
        struct {
            uint64_t addr;
            uint32_t len;
            uint16_t flags, next;
        } d[3] = {{s->gpa[buffers] + storm_below(s, 32) * 64, dev < 2 ? 16 : 44, 1, 0},
                  {s->gpa[buffers + 1], 512 * (1 + storm_below(s, 8)), 1, 0},
                  {s->gpa[buffers + 2] + storm_below(s, 64), 1, 2, 0}};
        d[1].flags |= storm_below(s, 2) ? 2 : 0;
        for (k = 0; k < 3; k++) {
            d[k].next = (uint16_t)(i + k + 1);
            if (storm_below(s, 60) == 0)
                d[k].addr = storm_address(s, dev, &d[k].len);
        }
        storm_put(s, page, i * 16, d, sizeof(d));
    }
}

/* The headers of those: of disks, and of sockets. */
static inline void storm_headers(struct storm *s, uint32_t dev, uint32_t page)
{
    uint32_t at, to = storm_below(s, 4);

    for (at = 0; at < STORM_PAGE / 2; at += 64) {
        struct {
            uint32_t type, reserved;
            uint64_t sector;
        } disk = {storm_below(s, 2) ? storm_below(s, 2) : storm_below(s, 15), 0,
                  storm_below(s, 16) ? storm_below(s, 2040) : storm_random(s)};
        struct {
            uint64_t from, to;
            uint32_t from_port, to_port, len;
            uint16_t type, op;
            uint32_t flags, room, taken;
        } socket = {3,
                    2,
                    1024 + to,
                    storm_below(s, 8),
                    storm_below(s, 3000),
                    1,
                    (uint16_t)storm_below(s, 9),
                    storm_below(s, 4),
                    storm_random(s),
                    storm_random(s)};
        if (dev < 2)
            storm_put(s, page, at, &disk, sizeof(disk));
        else if (dev == STORM_VSOCK)
            storm_put(s, page, at, &socket, 44);
    }
}

/* Small numbers, which headers of requests are made of; for the balloon, whose words are pages of RAM, large ones. */
static inline void storm_words(struct storm *s, uint32_t dev, uint32_t page)
{
    uint32_t at, w;

    for (at = 0; at < STORM_PAGE; at += 4) {
        w = storm_below(s, 4) ? storm_below(s, 40) : storm_random(s);
        if (dev == STORM_BALLOON)
            w = storm_below(s, 2)
                    ? (uint32_t)(s->gpa[dev * STORM_PAGES + storm_below(s, STORM_PAGES)] >> 12)
                    : w | STORM_NO_RAM;
        storm_put(s, page, at, &w, 4);
    }
    if (page % STORM_PAGES == STORM_QUEUES)
        storm_headers(s, dev, page);
}

static inline void storm_avail(struct storm *s, uint32_t page, uint32_t num)
{
    uint16_t v, i;

    for (i = 0; i < 64; i++) {
        v = (uint16_t)(storm_below(s, 40) ? storm_below(s, num) : storm_random(s));
        if (storm_below(s, 3))
            v = (uint16_t)(v / 3 * 3);
        storm_put(s, page, 1024 + 4 + i * 2u, &v, 2);
    }
    v = (uint16_t)(storm_below(s, 8) ? storm_below(s, 64) : storm_random(s));
    storm_put(s, page, 1024 + 2, &v, 2);
    v = (uint16_t)storm_below(s, 2);
    storm_put(s, page, 1024, &v, 2);
}

static inline void storm_ring(struct storm *s, uint32_t dev, uint32_t q, uint32_t reg, uint64_t v)
{
    uint32_t ignored;

    if (storm_below(s, 40) == 0)
        v = storm_address(s, dev, &ignored);
    (void)q;
    storm_set(s, dev, reg, (uint32_t)v);
    storm_set(s, dev, reg + 4, (uint32_t)(v >> 32));
}

static inline void storm_queue(struct storm *s, uint32_t dev, uint32_t q)
{
    uint32_t page = dev * STORM_PAGES + q, num = 4u << storm_below(s, 5);

    if (storm_below(s, 16) == 0)
        num = storm_below(s, 64) + 1;
    storm_descriptors(s, dev, page, num);
    if (storm_below(s, 3))
        storm_requests(s, dev, page, num);
    storm_avail(s, page, num);
    storm_set(s, dev, VIRTIO_MMIO_QUEUE_SEL, q);
    storm_set(s, dev, VIRTIO_MMIO_QUEUE_NUM, storm_below(s, 32) ? num : storm_random(s));
    storm_ring(s, dev, q, VIRTIO_MMIO_QUEUE_DESC_LOW, s->gpa[page]);
    storm_ring(s, dev, q, VIRTIO_MMIO_QUEUE_AVAIL_LOW, s->gpa[page] + 1024);
    storm_ring(s, dev, q, VIRTIO_MMIO_QUEUE_USED_LOW, s->gpa[page] + 2048);
    storm_set(s, dev, VIRTIO_MMIO_QUEUE_READY, 1);
}

static inline void storm_features(struct storm *s, uint32_t dev, uint32_t mask)
{
    uint32_t low, high;

    storm_set(s, dev, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 0);
    low = s->get(s, dev, VIRTIO_MMIO_DEVICE_FEATURES) & mask;
    storm_set(s, dev, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 1);
    high = s->get(s, dev, VIRTIO_MMIO_DEVICE_FEATURES);
    storm_set(s, dev, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
    storm_set(s, dev, VIRTIO_MMIO_DRIVER_FEATURES, low);
    storm_set(s, dev, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
    storm_set(s, dev, VIRTIO_MMIO_DRIVER_FEATURES, high);
}

/* What is no address of a queue gets anything; an address gets what is no RAM. */
static inline void storm_register(struct storm *s, uint32_t dev)
{
    uint32_t reg = storm_below(s, 0x140), v = storm_random(s);
    unsigned width = 1u << storm_below(s, 3);

    if (storm_below(s, 2))
        v = storm_below(s, 16);
    if (storm_below(s, 4))
        reg &= ~3u, width = 4;
    if (reg >= VIRTIO_MMIO_QUEUE_DESC_LOW - 4 && reg < VIRTIO_MMIO_CONFIG_GENERATION)
        v |= STORM_NO_RAM, width = 4;
    s->set(s, dev, reg, width, v);
    s->writes++;
    (void)s->get(s, dev, storm_below(s, 0x140) & ~3u);
}

/* One device is started, more or less as it should be, and then is asked for nonsense. */
static inline void storm_round(struct storm *s)
{
    uint32_t dev = storm_below(s, s->devices), i, n;

    if (storm_below(s, 4)) {
        storm_set(s, dev, VIRTIO_MMIO_STATUS, 0);
        storm_set(s, dev, VIRTIO_MMIO_STATUS, 1);
        storm_set(s, dev, VIRTIO_MMIO_STATUS, 3);
        storm_features(s, dev, storm_below(s, 3) ? ~0u : storm_random(s));
        storm_set(s, dev, VIRTIO_MMIO_STATUS, 11);
    }
    for (i = STORM_QUEUES; i < STORM_PAGES; i++)
        storm_words(s, dev, dev * STORM_PAGES + i);
    for (i = 0; i < STORM_QUEUES; i++)
        storm_queue(s, dev, i);
    storm_set(s, dev, VIRTIO_MMIO_STATUS, storm_below(s, 16) ? 15 : storm_random(s));
    for (n = 4 + storm_below(s, 12); n; n--) {
        storm_set(s, dev, VIRTIO_MMIO_QUEUE_NOTIFY, storm_below(s, STORM_QUEUES + 1));
        if (storm_below(s, 3) == 0)
            storm_register(s, dev);
        if (storm_below(s, 3) == 0)
            storm_avail(s, dev * STORM_PAGES + storm_below(s, STORM_QUEUES), 64);
        s->moment(s);
    }
    s->rounds++;
}

/* The positive twin: 64 random bytes by the book. Returns how many of them are not zero. */
static inline int storm_rng_works(struct storm *s)
{
    static const uint8_t zeros[STORM_PAGE];
    struct {
        uint64_t addr;
        uint32_t len;
        uint16_t flags, next;
    } d;
    uint32_t page = STORM_RNG * STORM_PAGES, i;
    uint16_t one = 1;
    int n = 0;

    storm_set(s, STORM_RNG, VIRTIO_MMIO_STATUS, 0);
    storm_set(s, STORM_RNG, VIRTIO_MMIO_STATUS, 1);
    storm_set(s, STORM_RNG, VIRTIO_MMIO_STATUS, 3);
    storm_features(s, STORM_RNG, 0);
    storm_set(s, STORM_RNG, VIRTIO_MMIO_STATUS, 11);
    storm_put(s, page, 0, zeros, sizeof(zeros));
    storm_put(s, page + STORM_QUEUES, 0, zeros, sizeof(zeros));
    memset(&d, 0, sizeof(d));
    d.addr = s->gpa[page + STORM_QUEUES];
    d.len = 64;
    d.flags = 2; /* the device writes */
    storm_put(s, page, 0, &d, sizeof(d));
    storm_set(s, STORM_RNG, VIRTIO_MMIO_QUEUE_SEL, 0);
    storm_set(s, STORM_RNG, VIRTIO_MMIO_QUEUE_NUM, 8);
    for (i = 0; i < 3; i++) {
        static const uint32_t reg[] = {VIRTIO_MMIO_QUEUE_DESC_LOW, VIRTIO_MMIO_QUEUE_AVAIL_LOW,
                                       VIRTIO_MMIO_QUEUE_USED_LOW};
        uint64_t at = s->gpa[page] + 1024 * i;
        storm_set(s, STORM_RNG, reg[i], (uint32_t)at);
        storm_set(s, STORM_RNG, reg[i] + 4, (uint32_t)(at >> 32));
    }
    storm_set(s, STORM_RNG, VIRTIO_MMIO_QUEUE_READY, 1);
    storm_set(s, STORM_RNG, VIRTIO_MMIO_STATUS, 15);
    storm_put(s, page, 1024 + 2, &one, 2);
    storm_set(s, STORM_RNG, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
    for (i = 0; i < 5000 && s->mem[page * STORM_PAGE + 2048 + 2] != 1; i++)
        s->moment(s);
    for (i = 0; i < 64; i++)
        n += s->mem[(page + STORM_QUEUES) * STORM_PAGE + i] != 0;
    return n;
}

#endif
