/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What a cell says to the sink of a measurement. The answer is bounded, and a redirect names nothing but a place. */
#include <stdlib.h>
#include <string.h>

#include "gate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char out[ANSWER_MAX];
    int n = answer_write(data, size, out);
    const char *at;

    if (n < -1 || n >= (int)sizeof(out))
        abort();
    if (n <= 0)
        return 0;
    if (strlen(out) != (size_t)n || memcmp(out + n - 4, "\r\n\r\n", 4) != 0)
        abort();
    at = strstr(out, "Location: http://");
    if (at && at[17 + strspn(at + 17, "abcdefghijklmnopqrstuvwxyz0123456789.-:")] != '/')
        abort();
    return 0;
}
