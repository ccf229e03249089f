/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fields - numbers and fields of <cella/link.h>, written and read. A field that says it is longer than what is there ends
 * the reading; nothing is allocated for one. Threads: no state.
 */
#include "link_internal.h"

void put_le16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

void put_le32(uint8_t *p, uint32_t v)
{
    put_le16(p, (uint16_t)v);
    put_le16(p + 2, (uint16_t)(v >> 16));
}

uint16_t le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

uint32_t le32(const uint8_t *p)
{
    return (uint32_t)le16(p) | (uint32_t)le16(p + 2) << 16;
}

uint64_t le64(const uint8_t *p)
{
    return (uint64_t)le32(p) | (uint64_t)le32(p + 4) << 32;
}

int field_add(struct buf *b, uint16_t tag, const void *p, size_t len)
{
    uint8_t head[8] = {0};

    if (len > UINT32_MAX)
        return -E2BIG;
    put_le16(head, tag);
    put_le32(head + 4, (uint32_t)len);
    if (buf_add(b, head, sizeof(head)) < 0)
        return -ENOMEM;
    return buf_add(b, p, len);
}

int field_add_u32(struct buf *b, uint16_t tag, uint32_t v)
{
    uint8_t le[4];

    put_le32(le, v);
    return field_add(b, tag, le, sizeof(le));
}

int field_add_u64(struct buf *b, uint16_t tag, uint64_t v)
{
    uint8_t le[8];

    put_le32(le, (uint32_t)v);
    put_le32(le + 4, (uint32_t)(v >> 32));
    return field_add(b, tag, le, sizeof(le));
}

int field_add_str(struct buf *b, uint16_t tag, const char *s)
{
    return field_add(b, tag, s, strlen(s));
}

int field_next(const uint8_t *payload, size_t len, size_t *pos, struct field *ret)
{
    size_t left = len - *pos;
    const uint8_t *p;
    uint32_t n;

    if (*pos > len)
        return -EBADMSG;
    if (left == 0)
        return 0;
    if (left < 8)
        return -EBADMSG;
    p = payload + *pos;
    n = le32(p + 4);
    if (le16(p + 2) != 0 || n > left - 8)
        return -EBADMSG;
    *ret = (struct field){le16(p), n, p + 8};
    *pos += 8 + (size_t)n;
    return 1;
}

static int field_find(const uint8_t *payload, size_t len, uint16_t tag, struct field *ret)
{
    struct field f;
    size_t pos = 0;
    int r;

    while ((r = field_next(payload, len, &pos, &f)) > 0)
        if (f.tag == tag) {
            *ret = f;
            return 0;
        }
    return r < 0 ? r : -ENOENT;
}

int field_get_u32(const uint8_t *payload, size_t len, uint16_t tag, uint32_t *ret)
{
    struct field f;
    int r = field_find(payload, len, tag, &f);

    if (r < 0)
        return r;
    if (f.len != 4)
        return -EBADMSG;
    *ret = le32(f.p);
    return 0;
}

int field_get_u64(const uint8_t *payload, size_t len, uint16_t tag, uint64_t *ret)
{
    struct field f;
    int r = field_find(payload, len, tag, &f);

    if (r < 0)
        return r;
    if (f.len != 8)
        return -EBADMSG;
    *ret = le64(f.p);
    return 0;
}

int field_get_str(const uint8_t *payload, size_t len, uint16_t tag, const char **ret,
                  size_t *ret_len)
{
    struct field f;
    int r = field_find(payload, len, tag, &f);

    if (r < 0)
        return r;
    if (memchr(f.p, 0, f.len))
        return -EBADMSG;
    *ret = (const char *)f.p;
    *ret_len = f.len;
    return 0;
}
