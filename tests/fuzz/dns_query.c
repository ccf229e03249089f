/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* Any datagram on port 53: what is read is bounded, and each answer fits, belongs to the query and
   repeats its question byte for byte. */
#include <stdlib.h>
#include <string.h>

#include "gate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_one(const uint8_t *data, const struct dns_query *q, const struct dns_answer *a)
{
    uint8_t out[DNS_REPLY_MAX];
    size_t n = dns_write(data, q, a, out);

    if (n < q->end || n > sizeof(out) || out[0] != data[0] || out[1] != data[1])
        abort();
    if (!(out[2] & 0x80) || (out[3] & 15) != a->rcode || out[6] || out[7] != a->n)
        abort();
    if (memcmp(out + 12, data + 12, q->end - 12u) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t addrs[ADDRS_MAX] = {1, 2, 3};
    struct dns_answer refused = {.rcode = 5, .ede = 15};
    struct dns_answer addresses = {.ede = 255, .n = ADDRS_MAX, .ttl = 30, .addr = addrs};
    char again[NAME_MAX_LEN + 1];
    struct dns_query q;

    if (dns_read(data, size, &q) < 0)
        return 0;
    if (!memchr(q.name, 0, sizeof(q.name)) || q.end < 12 || q.end > size ||
        q.end > DNS_QUESTION_MAX)
        abort();
    if (q.host[0] && (name_canon(q.host, strlen(q.host), again) < 0 || strcmp(again, q.host) != 0))
        abort();
    write_one(data, &q, &refused);
    if (!q.rcode)
        write_one(data, &q, &addresses);
    return 0;
}
