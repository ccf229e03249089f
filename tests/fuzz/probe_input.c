/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The lines that the probe is given, and what it makes of a row: its packets. */
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
    static uint8_t out[PAYLOAD_MAX];
    char *text = malloc(size + 1), *line, *save = NULL;
    struct row r;
    unsigned a, b;

    memcpy(text, data, size);
    text[size] = 0;
    for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        struct sockaddr_storage to;
        socklen_t len;
        head_parse(line, &a, &b);
        if (row_parse(line, &r) < 0)
            continue;
        address_parse(r.address, r.port, &to, &len);
        for (r.lookup = 0; r.lookup < 2; r.lookup++)
            for (r.act = 0; r.act < 2; r.act++)
                if (payload(&r, out) > sizeof(out))
                    abort();
    }
    free(text);
    return 0;
}
