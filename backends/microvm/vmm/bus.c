/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * bus - which handler an address belongs to. Every address and width is the guest's: what is odd reaches no
 * handler. Few ranges, so they are looked through one by one. Threads: the caller holds the machine's lock.
 */
#include <errno.h>
#include <string.h>

#include "bus.h"

int bus_add(struct bus *b, const struct bus_range *r)
{
    uint32_t i;

    if (!r->len || r->base + r->len < r->base)
        return -ERANGE;
    for (i = 0; i < b->n; i++)
        if (r->base < b->v[i].base + b->v[i].len && b->v[i].base < r->base + r->len)
            return -EEXIST;
    if (b->n == BUS_MAX)
        return -ENOSPC;
    b->v[b->n++] = *r;
    return 0;
}

static const struct bus_range *find(const struct bus *b, uint64_t at, unsigned len)
{
    uint32_t i;

    if (len != 1 && len != 2 && len != 4 && len != 8)
        return NULL;
    for (i = 0; i < b->n; i++) {
        const struct bus_range *r = &b->v[i];
        if (at >= r->base && at - r->base < r->len)
            return len <= r->len - (at - r->base) ? r : NULL;
    }
    return NULL;
}

void bus_read(const struct bus *b, uint64_t at, void *out, unsigned len)
{
    const struct bus_range *r = find(b, at, len);

    memset(out, 0xff, len);
    if (r && r->read)
        r->read(r->self, at - r->base, out, len);
}

void bus_write(const struct bus *b, uint64_t at, const void *in, unsigned len)
{
    const struct bus_range *r = find(b, at, len);

    if (r && r->write)
        r->write(r->self, at - r->base, in, len);
}
