/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * chunk - the chunked coding, read byte by byte where it counts. Sizes are hexadecimal digits and nothing
 * else; extensions are read and forgotten (the engine writes its own chunk lines), so no two readers
 * can disagree about one. Pure; no allocation.
 */
#include <errno.h>

#include "head.h"

enum { SIZE_FIRST = 0, SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF };

#define LINE_MAX_ 1024u /* size and extensions */

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One byte of a chunk's first line. */
static int line_byte(struct chunk *c, char b)
{
    int digit = hex(b);

    if (++c->line > LINE_MAX_)
        return -EBADMSG;
    if (c->state <= SIZE && digit >= 0) {
        if (c->left >> 56)
            return -EBADMSG;
        c->left = (c->state == SIZE ? c->left << 4 : 0) | (uint64_t)digit;
        c->state = SIZE;
        return 0;
    }
    if (c->state == SIZE_FIRST)
        return -EBADMSG;
    if (b == '\r') {
        c->state = SIZE_LF;
        return 0;
    }
    if (c->state == SIZE && b != ';')
        return -EBADMSG;
    c->state = EXTENSION;
    return b == '\t' || (b >= ' ' && b <= '~') ? 0 : -EBADMSG;
}

int chunk_next(struct chunk *c, const char *p, size_t n, size_t *ret_used, const char **ret_data,
               size_t *ret_len)
{
    size_t i;

    for (i = 0; i < n; i++) {
        switch (c->state) {
        case DATA:
            *ret_data = p + i;
            *ret_len = c->left < n - i ? (size_t)c->left : n - i;
            c->left -= *ret_len;
            if (!c->left)
                c->state = DATA_CR;
            *ret_used = i + *ret_len;
            return CHUNK_DATA;
        case SIZE_LF:
        case DATA_CR:
        case DATA_LF:
            if (p[i] != (c->state == DATA_CR ? '\r' : '\n'))
                return -EBADMSG;
            if (c->state == SIZE_LF && !c->left) {
                *c = (struct chunk){0};
                *ret_used = i + 1;
                return CHUNK_LAST;
            }
            c->state = c->state == SIZE_LF ? DATA : c->state == DATA_CR ? DATA_LF : SIZE_FIRST;
            c->line = 0;
            break;
        default:
            if (line_byte(c, p[i]) < 0)
                return -EBADMSG;
        }
    }
    *ret_used = n;
    return CHUNK_MORE;
}
