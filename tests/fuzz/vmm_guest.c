/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * vmm_guest - reads moves from the input: registers, descriptors, rings and memory of any content, kicks, resets, proper
 * starts (so that the fuzzer comes past them), saves and loads. Addresses come from a few places where something
 * is, or ends, so that not all of them miss. Threads: one.
 */
#include <stdlib.h>
#include <string.h>

#include "vmm_guest.h"

#define MOVES 300
#define CLEAN 0x60000ull /* rings and the first buffers */

uint8_t in_u8(struct input *i)
{
    if (i->n == 0)
        return 0;
    i->n--;
    return *i->p++;
}

uint16_t in_u16(struct input *i)
{
    uint16_t v = in_u8(i);

    return (uint16_t)(v | in_u8(i) << 8);
}

uint32_t in_u32(struct input *i)
{
    uint32_t v = in_u16(i);

    return v | (uint32_t)in_u16(i) << 16;
}

uint64_t in_u64(struct input *i)
{
    uint64_t v = in_u32(i);

    return v | (uint64_t)in_u32(i) << 32;
}

size_t in_bytes(struct input *i, void *out, size_t most)
{
    size_t n = most < i->n ? most : i->n;

    memcpy(out, i->p, n);
    i->p += n;
    i->n -= n;
    return n;
}

void guest_begin(struct guest *g)
{
    static struct drv once;
    static int made;

    if (!made && drv_init(&once) < 0)
        abort();
    made = 1;
    memset(once.ram.base + DRV_QUEUE_AT(0), 0, CLEAN);
    memset(once.ram.base + DRV_BUFFERS, 0, CLEAN);
    memset(&once.bus, 0, sizeof(once.bus));
    g->d = once;
    g->d.bind.bus = &g->d.bus;
    g->d.bind.ram = &once.ram;
}

void guest_turn(struct guest *g)
{
    drv_run(&g->d, 0, NULL, NULL);
}

static uint64_t address(struct input *i)
{
    uint8_t kind = in_u8(i);
    uint64_t off = in_u16(i);

    switch (kind % 8) {
    case 0:
        return DRV_RAM - off;
    case 1:
        return DRV_QUEUE_AT(kind / 8 % 6) + off;
    case 2:
        return in_u64(i);
    case 3:
        return RAM_HOLE + off;
    default:
        return DRV_BUFFERS + off;
    }
}

static void descriptor(struct guest *g, struct input *i)
{
    uint32_t q = in_u8(i) % VIRTIO_QUEUES_MAX;
    uint16_t at = in_u8(i) % DRV_SIZE, flags = in_u8(i), next = in_u8(i);
    uint64_t where = address(i);
    uint32_t len = flags & 0x80 ? in_u32(i) : in_u16(i);

    drv_desc(&g->d, q, at, where, len, flags & 7, flags & 0x40 ? next : next % DRV_SIZE);
}

/* A whole request as a driver would make it. */
static void request(struct guest *g, struct input *i)
{
    uint32_t q = in_u8(i) % VIRTIO_QUEUES_MAX, n = 1 + in_u8(i) % 4, k;
    struct piece p[4];
    uint8_t data[256];
    size_t len;

    if (!g->d.q[q].size)
        return;
    for (k = 0; k < n; k++) {
        uint8_t how = in_u8(i);
        p[k].at = DRV_BUFFERS + 0x1000ull * (how % 16);
        p[k].len = how & 0x40 ? in_u16(i) : in_u8(i);
        p[k].in = how >> 7;
    }
    len = in_u8(i);
    len = in_bytes(i, data, len);
    memcpy(drv_at(&g->d, p[0].at), data, len);
    drv_add(&g->d, q, p, n);
    drv_kick(&g->d, q);
}

static void memory(struct guest *g, struct input *i)
{
    uint64_t where = address(i);
    uint8_t data[64];
    size_t n = in_u8(i) % sizeof(data);

    n = in_bytes(i, data, n);
    (void)ram_write(&g->d.ram, where, data, n);
}

static void start(struct guest *g, struct input *i)
{
    uint64_t want = in_u64(i);

    drv_start(&g->d, g->v, want, g->n_queues);
}

static void offer(struct guest *g, struct input *i)
{
    uint32_t q = in_u8(i) % VIRTIO_QUEUES_MAX;
    uint16_t head = in_u8(i);

    if (!g->d.q[q].size)
        return;
    drv_offer(&g->d, q, head);
    drv_kick(&g->d, q);
}

void guest_reload(struct guest *g, struct input *i)
{
    struct state_out o = {0};
    struct state_in in;
    uint32_t changes = in_u8(i) % 4;

    (void)virtio_drain(g->v);
    virtio_save(g->v, &o);
    while (changes-- > 0 && o.len > 0)
        o.data[in_u16(i) % o.len] = in_u8(i);
    memset(&g->d.bus, 0, sizeof(g->d.bus));
    g->again(g);
    state_open(&in, o.data, o.len);
    if (virtio_load(g->v, &in) == 0)
        virtio_resume(g->v);
    state_out_free(&o);
}

static void move(struct guest *g, struct input *i)
{
    uint8_t op = in_u8(i), at;
    uint64_t v;

    switch (op % 16) {
    case 0:
    case 1:
        at = in_u8(i);
        drv_set(&g->d, 4ull * at, at < 0x40 && op & 0x10 ? in_u8(i) : in_u32(i));
        break;
    case 2:
        (void)drv_get(&g->d, 4ull * in_u8(i));
        break;
    case 3:
    case 4:
        descriptor(g, i);
        break;
    case 5:
        offer(g, i);
        break;
    case 6:
        drv_set(&g->d, VIRTIO_MMIO_QUEUE_NOTIFY, in_u8(i));
        break;
    case 7:
        memory(g, i);
        break;
    case 8:
        start(g, i);
        break;
    case 9:
    case 10:
        request(g, i);
        break;
    case 11:
        guest_turn(g);
        break;
    case 12:
        if (g->again)
            guest_reload(g, i);
        break;
    case 13:
        v = in_u64(i);
        bus_write(&g->d.bus, g->d.base + VIRTIO_MMIO_CONFIG + in_u8(i), &v, 1u << (op >> 4) % 4);
        break;
    default:
        if (g->host)
            g->host(g, in_u8(i), i);
    }
}

void guest_run(struct guest *g, struct input *i)
{
    int n;

    g->d.base = VIRTIO_MMIO_BASE + VIRTIO_MMIO_SIZE * g->v->number;
    g->d.v = g->v;
    for (n = 0; n < MOVES && i->n > 0; n++)
        move(g, i);
    guest_turn(g);
}
