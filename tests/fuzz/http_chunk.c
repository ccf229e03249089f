/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* Any chunked body, whole or in pieces of one byte: the same data, the same end, the same error. */
#include <stdlib.h>
#include <string.h>

#include "head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct result {
    int end; /* -EBADMSG, CHUNK_LAST or CHUNK_MORE */
    size_t at, bytes;
    uint64_t sum;
};

static struct result run(const char *p, size_t n, size_t step)
{
    struct result r = {0};
    struct chunk c = {0};

    while (r.at < n) {
        size_t len = 0, used = 0, give = step && step < n - r.at ? step : n - r.at, i;
        const char *d = NULL;
        int got = chunk_next(&c, p + r.at, give, &used, &d, &len);
        if (got < 0) {
            r.end = got;
            return r;
        }
        if (used > give || !used || (got == CHUNK_DATA && (d < p + r.at || d + len > p + n)))
            abort();
        for (i = 0; got == CHUNK_DATA && i < len; i++)
            r.sum = r.sum * 31 + (unsigned char)d[i];
        r.bytes += got == CHUNK_DATA ? len : 0;
        r.at += used;
        if (got == CHUNK_LAST) {
            r.end = CHUNK_LAST;
            return r;
        }
    }
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct result a = run((const char *)data, size, 0), b = run((const char *)data, size, 1);

    if (a.end != b.end || a.bytes != b.bytes || a.sum != b.sum)
        abort();
    if (a.end == CHUNK_LAST && a.at != b.at)
        abort();
    return 0;
}
