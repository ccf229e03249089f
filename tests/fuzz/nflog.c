/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* Any netlink datagram, and any packet inside one. */
#include <stdlib.h>

#include "gate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nflog_msg m;
    struct packet p;
    size_t at = 0, before = 0;

    packet_parse(data, size, &p);
    while (nflog_next(data, size, &at, &m) > 0) {
        if (at <= before || at > size || m.payload < data || m.len > size ||
            m.payload + m.len > data + size)
            abort();
        before = at;
        packet_parse(m.payload, m.len, &p);
    }
    return 0;
}
