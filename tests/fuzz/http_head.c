/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Any bytes as a request, a response and a trailer section. What is accepted holds no byte that ends a line or a
 * field early, one length at most, and measures the same when it comes byte by byte.
 */
#include <stdlib.h>
#include <string.h>

#include "head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct head h;

static void check(const char *p, size_t n)
{
    unsigned i, lengths, codings;

    if (h.fields.n > HEAD_FIELDS_MAX)
        abort();
    for (i = 0; i < h.fields.n; i++) {
        const struct field *f = &h.fields.f[i];
        if (f->name < p || f->value + f->value_len > p + n || !token_valid(f->name, f->name_len) ||
            !value_valid(f->value, f->value_len))
            abort();
    }
    fields_find(&h.fields, "content-length", &lengths);
    fields_find(&h.fields, "transfer-encoding", &codings);
    if (lengths + codings > 1)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *p = malloc(size + 1); /* exact size: a read beyond it is seen */
    size_t scanned = 0, part = 0, i;
    long len, again = 0;
    const char *target, *authority;
    size_t target_len, authority_len;

    memcpy(p, data, size);
    len = head_scan(p, size, &scanned);
    for (i = 1; i <= size && !again; i++)
        again = head_scan(p, i, &part);
    if (size && len != again)
        abort();
    if (len > 0) {
        if (head_request(p, (size_t)len, &h) == 0) {
            check(p, (size_t)len);
            target = h.line.value;
            target_len = h.line.value_len;
            if (target_absolute(&target, &target_len, &authority, &authority_len) &&
                authority_is(authority, authority_len, "api.example", 443) && authority_len < 11)
                abort();
            if (target_valid(target, target_len, 0) &&
                (memchr(target, ' ', target_len) || *target != '/'))
                abort();
        }
        if (head_response(p, (size_t)len, &h) == 0)
            check(p, (size_t)len);
        fields_parse(p, (size_t)len, &h.fields);
    }
    free(p);
    return 0;
}
