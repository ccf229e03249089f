/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* toy - a device that keeps what it gets and answers with 'A's, for the tests of rings and registers. */
#ifndef TEST_TOY_H
#define TEST_TOY_H

#include "driver.h"
#define EVENT_IDX (1ull << VIRTIO_RING_F_EVENT_IDX)
#define INDIRECT (1ull << VIRTIO_RING_F_INDIRECT_DESC)
#define RUNNING                                                                                    \
    (VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK |          \
     VIRTIO_CONFIG_S_DRIVER_OK)

struct toy {
    struct virtio v;
    int served, kicks, resets, activations, hold;
    struct chain last;
    char got[64];
    uint32_t config[2], saved;
};

struct world {
    struct drv d;
    struct toy t;
};

extern const struct virtio_ops toy_ops;
static __attribute__((unused))
const struct piece hello[] = {{DRV_BUFFERS, 5, 0}, {DRV_BUFFERS + 4096, 8, 1}};

int toy_setup(void **state);
int toy_teardown(void **state);
void put_hello(struct world *w);
void assert_works(struct world *w);
void assert_broken(struct world *w);

#endif
