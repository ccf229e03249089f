/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* vmm_guest - a guest whose every move is the fuzzer's, for the devices of cella-vmm. */
#ifndef FUZZ_VMM_GUEST_H
#define FUZZ_VMM_GUEST_H

#include "../unit/microvm/driver.h"

struct input {
    const uint8_t *p;
    size_t n;
};

uint8_t in_u8(struct input *i);
uint16_t in_u16(struct input *i);
uint32_t in_u32(struct input *i);
uint64_t in_u64(struct input *i);
/* Up to `most` bytes; how many. */
size_t in_bytes(struct input *i, void *out, size_t most);

struct guest {
    struct drv d;
    struct virtio *v;
    /* The device anew, and what the host does beside it: op is any byte. May be NULL. */
    void (*again)(struct guest *g);
    void (*host)(struct guest *g, uint8_t op, struct input *i);
    uint32_t n_queues;
};

/* Memory and loop are made once, and cleaned. */
void guest_begin(struct guest *g);
/* Does what the input says until it ends. The device is g->v, made before. */
void guest_run(struct guest *g, struct input *i);
/* Save; the device anew; load, with some bytes changed; resume. */
void guest_reload(struct guest *g, struct input *i);
void guest_turn(struct guest *g);

#endif
