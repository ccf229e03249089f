/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * A first flight: whatever the bytes, the verdict does not depend on how they were cut, "more"
 * always asks for bytes that are not there yet, and a name that comes out is one that name_canon()
 * leaves as it is.
 */
#include <stdlib.h>
#include <string.h>

#include "hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads as the relay does, asking again only when `need` bytes are there. */
static enum hello_result in_pieces(const uint8_t *data, size_t size, struct hello *h)
{
    size_t n = 0;
    enum hello_result r = hello_read(data, 0, h);

    while (r == HELLO_MORE && n < size) {
        if (h->need <= n)
            abort();
        n = h->need < size ? h->need : size;
        r = hello_read(data, n, h);
    }
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hello whole, cut;
    char again[NAME_MAX_LEN + 1];
    enum hello_result r = hello_read(data, size, &whole);

    if (in_pieces(data, size, &cut) != r)
        abort();
    if (r == HELLO_MORE && (whole.need <= size || whole.need > HELLO_WIRE_MAX))
        abort();
    if (r != HELLO_OK)
        return 0;
    if (strcmp(whole.sni, cut.sni) || whole.alpn != cut.alpn)
        abort();
    if (name_canon(whole.sni, strlen(whole.sni), again) < 0 || strcmp(again, whole.sni))
        abort();
    return 0;
}
