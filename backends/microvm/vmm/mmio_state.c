/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * mmio_state - a virtio device in a snapshot: the transport's registers and rings in one section, what the device itself
 * keeps in the next.
 *
 * What is loaded is judged as if a guest had written it: only what its writes could have led to is taken, the rings are
 * judged against the memory again, and the device is activated with the features that it has offered. A kick is
 * no state: after a load every queue gets one. Threads: the VMM thread, while no processor runs.
 */
#include <errno.h>
#include <stdio.h>

#include "mmio.h"

#define SECTION STATE_TAG('V', 'M', 'I', 'O')
#define SECTION_DEVICE STATE_TAG('V', 'D', 'E', 'V')

int virtio_drain(struct virtio *v)
{
    int r = v->active && v->ops->drain ? v->ops->drain(v->self) : 0;

    v->quiet = 1;
    return r;
}

void virtio_save(struct virtio *v, struct state_out *o)
{
    uint32_t i;

    state_begin(o, SECTION, 1);
    state_put_u32(o, v->number);
    state_put_u32(o, v->ops->id);
    state_put_u32(o, v->status);
    state_put_u32(o, v->irq_status);
    state_put_u32(o, v->generation);
    state_put_u32(o, v->features_sel);
    state_put_u32(o, v->driver_features_sel);
    state_put_u32(o, v->queue_sel);
    state_put_u64(o, v->driver_features);
    state_put_u8(o, v->active != 0);
    state_put_u8(o, v->broken != 0);
    state_put_u32(o, v->ops->n_queues);
    for (i = 0; i < v->ops->n_queues; i++) {
        const struct virtq *q = &v->q[i];
        state_put_u16(o, q->size);
        state_put_u8(o, q->ready);
        state_put_u64(o, q->desc);
        state_put_u64(o, q->avail);
        state_put_u64(o, q->used);
        state_put_u16(o, q->next_avail);
        state_put_u16(o, q->next_used);
        state_put_u16(o, q->signalled);
    }
    state_end(o);
    state_begin(o, SECTION_DEVICE, 1);
    if (v->ops->save)
        v->ops->save(v->self, o);
    state_end(o);
}

static void load_queue(struct virtq *q, struct state_in *i)
{
    q->size = state_get_u16(i);
    q->ready = state_get_u8(i);
    q->desc = state_get_u64(i);
    q->avail = state_get_u64(i);
    q->used = state_get_u64(i);
    q->next_avail = state_get_u16(i);
    q->next_used = state_get_u16(i);
    q->signalled = state_get_u16(i);
    if (q->size > q->max || q->ready > 1)
        i->bad = 1;
}

/* Could the registers' writes have led to this? */
static int plausible(const struct virtio *v, uint32_t active, uint32_t broken)
{
    uint32_t known = ACK | DRIVER | FEATURES_OK | DRIVER_OK | FAILED | NEEDS_RESET;
    uint32_t s = v->status;

    if ((s & ~known) || ((s & FEATURES_OK) && (!(s & DRIVER) || !mmio_features_right(v))) ||
        ((s & DRIVER) && !(s & ACK)) || ((s & DRIVER_OK) && !(s & FEATURES_OK)))
        return 0;
    if (active > 1 || broken > 1 || (active && !(s & DRIVER_OK)))
        return 0;
    return ((s & NEEDS_RESET) != 0) == (broken == 1) &&
           (v->irq_status & ~(uint32_t)(VIRTIO_MMIO_INT_VRING | VIRTIO_MMIO_INT_CONFIG)) == 0;
}

int virtio_load(struct virtio *v, struct state_in *i)
{
    uint32_t active, broken, k;

    state_enter(i, SECTION, 1);
    if (state_get_u32(i) != v->number || state_get_u32(i) != v->ops->id)
        i->bad = 1;
    v->status = state_get_u32(i);
    v->irq_status = state_get_u32(i);
    v->generation = state_get_u32(i);
    v->features_sel = state_get_u32(i);
    v->driver_features_sel = state_get_u32(i);
    v->queue_sel = state_get_u32(i);
    v->driver_features = state_get_u64(i);
    active = state_get_u8(i);
    broken = state_get_u8(i);
    if (state_get_u32(i) != v->ops->n_queues)
        i->bad = 1;
    for (k = 0; k < v->ops->n_queues; k++)
        load_queue(&v->q[k], i);
    state_leave(i);
    if (!i->bad && !plausible(v, active, broken))
        i->bad = 1;
    if (!i->bad && active && mmio_start(v) < 0)
        i->bad = 1;
    if (!i->bad && broken && !v->broken) {
        v->broken = 1;
        snprintf(v->why, sizeof(v->why), "%s: broken before the snapshot", v->ops->name);
    }
    state_enter(i, SECTION_DEVICE, 1);
    if (v->ops->load && !i->bad)
        v->ops->load(v->self, i);
    state_leave(i);
    v->quiet = 1;
    if (!i->bad)
        return 0;
    mmio_reset(v);
    return -EINVAL;
}

/* Kicks and interrupts that were on their way when the machine stood still are in no state: they are made again,
   and one too many harms nobody. */
void virtio_resume(struct virtio *v)
{
    v->quiet = 0;
    if (v->irq_status)
        mmio_irq(v, v->irq_status);
    if (!v->active || v->broken)
        return;
    if (v->ops->resumed)
        v->ops->resumed(v->self);
    mmio_kick_all(v);
}
