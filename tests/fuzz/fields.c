/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The field parser over arbitrary bytes: what it returns lies inside the input and adds up to what it consumed. */
#include <assert.h>

#include "link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t pos = 0, sum = 0, n;
    struct field f;
    const char *s;
    uint32_t v32;
    uint64_t v64;
    int r, found = -ENOENT;

    while ((r = field_next(data, size, &pos, &f)) > 0) {
        assert(f.p >= data && f.p + f.len <= data + size);
        sum += 8 + (size_t)f.len;
        assert(pos == sum);
        if (f.tag == CELLA_TAG_MESSAGE && found == -ENOENT)
            found = memchr(f.p, 0, f.len) ? -EBADMSG : 0;
    }
    assert(r == -EBADMSG || pos == size);
    if (found != -ENOENT || r == 0)
        assert(field_get_str(data, size, CELLA_TAG_MESSAGE, &s, &n) == found);
    if (field_get_u32(data, size, CELLA_TAG_STATUS, &v32) == 0 &&
        field_get_u64(data, size, CELLA_TAG_SIZE, &v64) == 0)
        assert(size >= 28);
    return 0;
}
