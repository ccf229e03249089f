/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A guest with its random numbers, or its balloon. */
#include <stdlib.h>

#include "vmm_guest.h"

static struct rng *r;
static struct balloon *b;
static uint8_t which;

static void again(struct guest *g)
{
    rng_free(r);
    balloon_free(b);
    r = NULL;
    b = NULL;
    if (which & 1)
        r = rng_new(&g->d.bind, DEV_RNG);
    else
        b = balloon_new(&g->d.bind, DEV_BALLOON, DRV_RAM);
    if (!r && !b)
        abort();
    g->v = r ? rng_virtio(r) : balloon_virtio(b);
}

static void host(struct guest *g, uint8_t op, struct input *i)
{
    (void)g;
    if (b)
        (void)balloon_leave(b, op & 1 ? in_u64(i) : in_u32(i));
    if (b && balloon_taken(b) > DRV_RAM)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct guest g = {.again = again, .host = host};
    struct input i = {data, size};

    guest_begin(&g);
    which = in_u8(&i);
    g.n_queues = which & 1 ? 1 : 5;
    r = NULL;
    b = NULL;
    again(&g);
    guest_run(&g, &i);
    rng_free(r);
    balloon_free(b);
    return 0;
}
