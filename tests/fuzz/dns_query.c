/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* Any datagram on port 53: the answer fits, belongs to the query, and never says anything but no. */
#include <stdlib.h>
#include <string.h>

#include "gate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t out[DNS_REPLY_MAX];
    struct dns_query q;
    int n = dns_refuse(data, size, out, &q);

    if (!memchr(q.name, 0, sizeof(q.name)))
        abort();
    if (n < 0)
        return 0;
    if (n < 12 || (size_t)n > sizeof(out) || out[0] != data[0] || out[1] != data[1])
        abort();
    if (!(out[2] & 0x80) || !(out[3] & 15) || out[6] || out[7])
        abort(); /* an answer, an error, no records */
    if (q.refused != ((out[3] & 15) == 5))
        abort();
    return 0;
}
