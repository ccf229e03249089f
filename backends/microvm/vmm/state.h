/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * state - the devices' and processors' state as bytes, and back. Little-endian; sections {u32 tag, u32 version, u64 length}
 * that a reader must find in the order in which they were written. A snapshot is trusted by whoever loads
 * it, and read as if it were not: a reader that ran over its section, or found a figure out of range, is "bad"
 * from then on, returns zeros, and the load fails.
 */
#ifndef CELLA_VMM_STATE_H
#define CELLA_VMM_STATE_H

#include <stddef.h>
#include <stdint.h>

#define STATE_MAX (16u << 20)
#define STATE_TAG(a, b, c, d)                                                                      \
    ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

struct state_out {
    uint8_t *data;
    size_t len, cap, section; /* where the open section's header is */
    int oom;
};

void state_begin(struct state_out *o, uint32_t tag, uint32_t version);
void state_end(struct state_out *o);
void state_put(struct state_out *o, const void *data, size_t len);
void state_put_u8(struct state_out *o, uint8_t v);
void state_put_u16(struct state_out *o, uint16_t v);
void state_put_u32(struct state_out *o, uint32_t v);
void state_put_u64(struct state_out *o, uint64_t v);
void state_out_free(struct state_out *o);

struct state_in {
    const uint8_t *data;
    size_t len, at, end; /* [at, end) of the open section */
    int bad;
};

void state_open(struct state_in *i, const void *data, size_t len);
/* The next section must have this tag and version, and be whole. */
void state_enter(struct state_in *i, uint32_t tag, uint32_t version);
void state_leave(struct state_in *i); /* bad when anything is left */
void state_get(struct state_in *i, void *out, size_t len);
uint8_t state_get_u8(struct state_in *i);
uint16_t state_get_u16(struct state_in *i);
uint32_t state_get_u32(struct state_in *i);
uint64_t state_get_u64(struct state_in *i);
/* As above, and bad when above max. */
uint64_t state_get_max(struct state_in *i, uint64_t max);

#endif
