/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * bus - what a processor's access to a port or to device memory reaches. Handlers run on the thread of that
 * processor, with the machine's lock held; they never wait. What nobody answers reads as ones and is forgotten
 * when written.
 */
#ifndef CELLA_VMM_BUS_H
#define CELLA_VMM_BUS_H

#include <stdint.h>

#define BUS_MAX 24u

struct bus_range {
    uint64_t base, len;
    void *self;
    /* len is 1, 2, 4 or 8 and [offset, offset + len) is inside the range. */
    void (*read)(void *self, uint64_t offset, void *out, unsigned len);
    void (*write)(void *self, uint64_t offset, const void *in, unsigned len);
};

struct bus {
    struct bus_range v[BUS_MAX];
    uint32_t n;
};

int bus_add(struct bus *b, const struct bus_range *r); /* -EEXIST overlap, -ENOSPC */
void bus_read(const struct bus *b, uint64_t at, void *out, unsigned len);
void bus_write(const struct bus *b, uint64_t at, const void *in, unsigned len);

#endif
