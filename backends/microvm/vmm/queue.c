/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * queue - split virtqueues (VIRTIO 1.2, 2.7), the device's side.
 *
 * The rings and everything in them belong to the guest, which may rewrite them while they are read.
 * So each index, length and address is copied once, the copy is judged, and only the copy is used. Addresses become
 * pointers by ram_at() alone; a chain that was handed out consists of ranges of RAM, and RAM never moves.
 *
 * A chain has at most CHAIN_MAX pieces; at most `size` descriptors of the queue's own table, which a loop must
 * exceed; at most one indirect table, at its end (2.7.5.3). Pieces without length are dropped.
 *
 * Threads: the caller has the machine's lock. The guest's processors are the other side of the ring.
 */
#include <errno.h>
#include <string.h>

#include <linux/virtio_ring.h>

#include "virtio.h"

#define DESC_BYTES 16u

struct desc {
    uint64_t addr;
    uint32_t len;
    uint16_t flags, next;
};
_Static_assert(sizeof(struct desc) == DESC_BYTES, "a descriptor is 16 bytes");

static uint64_t avail_bytes(const struct virtq *q)
{
    return 6 + 2ull * q->size;
}

static uint64_t used_bytes(const struct virtq *q)
{
    return 6 + 8ull * q->size;
}

/* The 16 bits at `at` bytes into a part of the ring; parts are aligned to at least 2. */
static uint16_t *word(const struct virtq *q, uint64_t part, uint64_t at)
{
    return ram_at(q->ram, part + at, 2);
}

int virtq_judge(const struct virtq *q)
{
    if (q->size == 0 || q->size > q->max || q->size > VIRTIO_QUEUE_MAX ||
        (q->size & (q->size - 1)) != 0)
        return -EPROTO;
    if (q->desc % 16 != 0 || q->avail % 2 != 0 || q->used % 4 != 0)
        return -EPROTO;
    if (!ram_at(q->ram, q->desc, (uint64_t)DESC_BYTES * q->size) ||
        !ram_at(q->ram, q->avail, avail_bytes(q)) || !ram_at(q->ram, q->used, used_bytes(q)))
        return -EPROTO;
    return 0;
}

/* How many requests wait; 0, and with `always` any number, only after the guest knows that a kick for the next one is
   wanted (2.7.10). */
static int waiting(struct virtq *q, int always)
{
    uint16_t *idx = word(q, q->avail, 2), *event = word(q, q->used, used_bytes(q) - 2);
    uint16_t n;

    if (!idx || !event)
        return -EPROTO;
    n = (uint16_t)(__atomic_load_n(idx, __ATOMIC_ACQUIRE) - q->next_avail);
    if (q->event_idx && (n == 0 || always)) {
        __atomic_store_n(event, (uint16_t)(q->next_avail + n), __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        n = (uint16_t)(__atomic_load_n(idx, __ATOMIC_ACQUIRE) - q->next_avail);
    }
    return n > q->size ? -EPROTO : n;
}

int virtq_waiting(struct virtq *q)
{
    return q->ready ? waiting(q, 1) : 0;
}

static int take_piece(const struct virtq *q, const struct desc *d, struct chain *c)
{
    void *p;

    if (d->len == 0)
        return 0;
    if (c->n_out + c->n_in == CHAIN_MAX || c->out_bytes + c->in_bytes + d->len > UINT32_MAX)
        return -EPROTO;
    p = ram_at(q->ram, d->addr, d->len);
    if (!p)
        return -EPROTO;
    c->iov[c->n_out + c->n_in].iov_base = p;
    c->iov[c->n_out + c->n_in].iov_len = d->len;
    if (d->flags & VRING_DESC_F_WRITE) {
        c->n_in++;
        c->in_bytes += d->len;
        return 0;
    }
    if (c->n_in > 0) /* 2.7.4.2: what is written comes after what is read */
        return -EPROTO;
    c->n_out++;
    c->out_bytes += d->len;
    return 0;
}

/* Follows one table of n descriptors from `at`. An indirect table is met in the queue's own only. */
static int walk(const struct virtq *q, uint64_t table, uint32_t n, uint32_t at, struct chain *c,
                struct desc *ret_indirect)
{
    struct desc d;
    uint32_t steps;
    int r;

    for (steps = 0; steps < n; steps++) {
        if (ram_read(q->ram, table + (uint64_t)DESC_BYTES * at, &d, sizeof(d)) < 0)
            return -EPROTO;
        if (d.flags & VRING_DESC_F_INDIRECT) {
            if (!ret_indirect || !q->indirect || (d.flags & VRING_DESC_F_NEXT))
                return -EPROTO;
            *ret_indirect = d;
            return 0;
        }
        r = take_piece(q, &d, c);
        if (r < 0)
            return r;
        if (!(d.flags & VRING_DESC_F_NEXT))
            return 0;
        if (d.next >= n)
            return -EPROTO;
        at = d.next;
    }
    return -EPROTO; /* longer than its table: a loop */
}

int virtq_pop(struct virtq *q, struct chain *c)
{
    struct desc indirect = {0};
    uint16_t *slot, head;
    int r;

    if (!q->ready)
        return 0;
    r = waiting(q, 0);
    if (r <= 0)
        return r;
    slot = word(q, q->avail, 4 + 2ull * (q->next_avail & (q->size - 1u)));
    if (!slot)
        return -EPROTO;
    head = __atomic_load_n(slot, __ATOMIC_RELAXED);
    if (head >= q->size)
        return -EPROTO;
    c->head = head;
    c->n_out = c->n_in = 0;
    c->out_bytes = c->in_bytes = 0;
    r = walk(q, q->desc, q->size, head, c, &indirect);
    if (r == 0 && (indirect.flags & VRING_DESC_F_INDIRECT)) {
        if (indirect.len == 0 || indirect.len % DESC_BYTES != 0 ||
            indirect.len / DESC_BYTES > CHAIN_MAX || !ram_at(q->ram, indirect.addr, indirect.len))
            return -EPROTO;
        r = walk(q, indirect.addr, indirect.len / DESC_BYTES, 0, c, NULL);
    }
    if (r < 0)
        return r;
    q->next_avail++;
    return 1;
}

void virtq_unpop(struct virtq *q)
{
    q->next_avail--;
}

void virtq_fill(struct virtq *q, uint16_t head, uint32_t written)
{
    uint32_t *slot;

    if (!q->ready)
        return;
    slot = ram_at(q->ram, q->used + 4 + 8ull * (q->next_used & (q->size - 1u)), 8);
    if (!slot)
        return;
    slot[0] = head;
    slot[1] = written;
    q->next_used++;
}

void virtq_publish(struct virtq *q)
{
    uint16_t *idx;

    if (!q->ready)
        return;
    idx = word(q, q->used, 2);
    if (idx)
        __atomic_store_n(idx, q->next_used, __ATOMIC_RELEASE);
}

void virtq_push(struct virtq *q, uint16_t head, uint32_t written)
{
    virtq_fill(q, head, written);
    virtq_publish(q);
}

int virtq_wants_irq(struct virtq *q)
{
    uint16_t *flags, *event, before = q->signalled;

    if (!q->ready || q->next_used == before)
        return 0;
    flags = word(q, q->avail, 0);
    event = word(q, q->avail, avail_bytes(q) - 2);
    if (!flags || !event)
        return 0;
    /* The new index must be seen before the guest's wish is read (2.7.7.2). */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    q->signalled = q->next_used;
    if (q->event_idx)
        return vring_need_event(__atomic_load_n(event, __ATOMIC_RELAXED), q->next_used, before);
    return !(__atomic_load_n(flags, __ATOMIC_RELAXED) & VRING_AVAIL_F_NO_INTERRUPT);
}

uint32_t iov_slice(const struct iovec *iov, uint32_t n, uint64_t from, uint64_t len,
                   struct iovec *out)
{
    uint32_t i, k = 0;

    for (i = 0; i < n && len > 0; i++) {
        uint64_t have = iov[i].iov_len;

        if (from >= have) {
            from -= have;
            continue;
        }
        have -= from;
        out[k].iov_base = (uint8_t *)iov[i].iov_base + from;
        out[k].iov_len = have < len ? have : len;
        len -= out[k++].iov_len;
        from = 0;
    }
    return k;
}

static int copy(const struct iovec *iov, uint32_t n, uint64_t from, uint8_t *mine, uint64_t len,
                int to_guest)
{
    uint32_t i;

    for (i = 0; i < n && len > 0; i++) {
        uint64_t have = iov[i].iov_len;
        uint8_t *p = iov[i].iov_base;

        if (from >= have) {
            from -= have;
            continue;
        }
        have = have - from < len ? have - from : len;
        if (to_guest)
            memcpy(p + from, mine, have);
        else
            memcpy(mine, p + from, have);
        mine += have;
        len -= have;
        from = 0;
    }
    return len == 0 ? 0 : -EFAULT;
}

int chain_get(const struct chain *c, uint64_t from, void *out, uint64_t len)
{
    return copy(c->iov, c->n_out, from, out, len, 0);
}

int chain_put(const struct chain *c, uint64_t from, const void *in, uint64_t len)
{
    return copy(c->iov + c->n_out, c->n_in, from, (uint8_t *)(uintptr_t)in, len, 1);
}
