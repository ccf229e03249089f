/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What the probe gets back: answers to its questions for names, and where a redirect leads. */
#include <stdlib.h>
#include <string.h>

#include "probe.h"

uint64_t now_us(void)
{
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char host[256] = "";
    uint32_t address;
    uint16_t port;

    if (dns_answers(data, size, &address) < 0)
        abort();
    if (location_parse(data, size, host, &port) == 0 && (!host[0] || strlen(host) > 255 || !port))
        abort();
    return 0;
}
