/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* mmio - what mmio.c and mmio_state.c share: the life of a device. */
#ifndef CELLA_VMM_MMIO_H
#define CELLA_VMM_MMIO_H

#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>

#include "virtio.h"

#define ACK VIRTIO_CONFIG_S_ACKNOWLEDGE
#define DRIVER VIRTIO_CONFIG_S_DRIVER
#define FEATURES_OK VIRTIO_CONFIG_S_FEATURES_OK
#define DRIVER_OK VIRTIO_CONFIG_S_DRIVER_OK
#define NEEDS_RESET VIRTIO_CONFIG_S_NEEDS_RESET
#define FAILED VIRTIO_CONFIG_S_FAILED

int mmio_features_right(const struct virtio *v);
void mmio_irq(struct virtio *v, uint32_t bit);
/* Judges the queues and starts the device. Negative when the driver asked for what cannot be; then it is broken. */
int mmio_start(struct virtio *v);
void mmio_reset(struct virtio *v);
void mmio_kick_all(struct virtio *v);

#endif
