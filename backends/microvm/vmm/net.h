/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* net - what tests need beside devices.h: the device over any descriptor that gives and takes frames. */
#ifndef CELLA_VMM_NET_H
#define CELLA_VMM_NET_H

#include "devices.h"

/* headers: a virtio_net_hdr_v1 comes before each frame. offloads: the other side knows checksums and TSO; needs headers. */
struct net *net_on(const struct virtio_bind *bind, uint32_t number, int borrow_fd,
                   const uint8_t mac[6], int headers, int offloads);

#endif
