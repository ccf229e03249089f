/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * state - bytes of a snapshot, written and read in one order. The host is little-endian by the nature of this
 * program, so figures are copied as they are. Both sides have one sticky fault, so that callers put and get
 * without looking, and judge once at the end. Threads: none of its own.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

#define HEADER 16u /* tag, version, length */

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the state is little-endian");

static int grow(struct state_out *o, size_t more)
{
    size_t cap = o->cap ? o->cap : 4096;
    uint8_t *p;

    if (o->oom)
        return 0;
    if (more > STATE_MAX - o->len) {
        o->oom = 1;
        return 0;
    }
    if (o->len + more <= o->cap)
        return 1;
    while (cap < o->len + more)
        cap *= 2;
    p = malloc(cap); /* realloc() would ask for mremap(), which no thread may */
    if (!p) {
        o->oom = 1;
        return 0;
    }
    if (o->len)
        memcpy(p, o->data, o->len);
    free(o->data);
    o->data = p;
    o->cap = cap;
    return 1;
}

void state_put(struct state_out *o, const void *data, size_t len)
{
    if (!len || !grow(o, len))
        return;
    memcpy(o->data + o->len, data, len);
    o->len += len;
}

void state_begin(struct state_out *o, uint32_t tag, uint32_t version)
{
    o->section = o->len;
    state_put_u32(o, tag);
    state_put_u32(o, version);
    state_put_u64(o, 0);
}

void state_end(struct state_out *o)
{
    uint64_t len = o->len - o->section - HEADER;

    if (!o->oom)
        memcpy(o->data + o->section + 8, &len, sizeof(len));
}

void state_put_u8(struct state_out *o, uint8_t v)
{
    state_put(o, &v, sizeof(v));
}

void state_put_u16(struct state_out *o, uint16_t v)
{
    state_put(o, &v, sizeof(v));
}

void state_put_u32(struct state_out *o, uint32_t v)
{
    state_put(o, &v, sizeof(v));
}

void state_put_u64(struct state_out *o, uint64_t v)
{
    state_put(o, &v, sizeof(v));
}

void state_out_free(struct state_out *o)
{
    free(o->data);
    memset(o, 0, sizeof(*o));
}

void state_open(struct state_in *i, const void *data, size_t len)
{
    memset(i, 0, sizeof(*i));
    i->data = data;
    i->len = len;
    i->bad = len > STATE_MAX;
}

void state_enter(struct state_in *i, uint32_t tag, uint32_t version)
{
    uint32_t head[2];
    uint64_t len;

    if (i->bad || i->len - i->at < HEADER) {
        i->bad = 1;
        return;
    }
    memcpy(head, i->data + i->at, sizeof(head));
    memcpy(&len, i->data + i->at + 8, sizeof(len));
    if (head[0] != tag || head[1] != version || len > i->len - i->at - HEADER) {
        i->bad = 1;
        return;
    }
    i->at += HEADER;
    i->end = i->at + len;
}

void state_leave(struct state_in *i)
{
    if (i->at != i->end)
        i->bad = 1;
    i->end = i->at;
}

void state_get(struct state_in *i, void *out, size_t len)
{
    if (i->bad || i->at > i->end || len > i->end - i->at) {
        i->bad = 1;
        memset(out, 0, len);
        return;
    }
    memcpy(out, i->data + i->at, len);
    i->at += len;
}

uint8_t state_get_u8(struct state_in *i)
{
    uint8_t v;

    state_get(i, &v, sizeof(v));
    return v;
}

uint16_t state_get_u16(struct state_in *i)
{
    uint16_t v;

    state_get(i, &v, sizeof(v));
    return v;
}

uint32_t state_get_u32(struct state_in *i)
{
    uint32_t v;

    state_get(i, &v, sizeof(v));
    return v;
}

uint64_t state_get_u64(struct state_in *i)
{
    uint64_t v;

    state_get(i, &v, sizeof(v));
    return v;
}

uint64_t state_get_max(struct state_in *i, uint64_t max)
{
    uint64_t v = state_get_u64(i);

    if (v > max) {
        i->bad = 1;
        return 0;
    }
    return v;
}
