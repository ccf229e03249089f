/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * aml - bytes of ACPI's language. A block's length field always takes two bytes, which holds 4095; that is
 * more than the whole buffer. `full` sticks. Threads: none of its own.
 */
#include <string.h>

#include "acpi.h"

enum {
    OP_ZERO = 0x00,
    OP_ONE = 0x01,
    OP_NAME = 0x08,
    OP_BYTE = 0x0a,
    OP_WORD = 0x0b,
    OP_DWORD = 0x0c,
    OP_STRING = 0x0d,
    OP_QWORD = 0x0e,
    OP_SCOPE = 0x10,
    OP_BUFFER = 0x11,
    OP_PACKAGE = 0x12,
    OP_METHOD = 0x14,
    OP_DUAL = 0x2e,
    OP_MULTI = 0x2f,
    OP_EXT = 0x5b,
    OP_EXT_DEVICE = 0x82,
    OP_ROOT = 0x5c,
    OP_ARG0 = 0x68,
    OP_NOTIFY = 0x86,
    OP_EQUAL = 0x93,
    OP_IF = 0xa0
};

#define SERIALIZED 8u

static void put(struct aml *a, const void *p, size_t n)
{
    if (a->full || n > sizeof(a->data) - a->len) {
        a->full = 1;
        return;
    }
    memcpy(a->data + a->len, p, n);
    a->len += n;
}

static void byte(struct aml *a, unsigned v)
{
    uint8_t b = (uint8_t)v;

    put(a, &b, 1);
}

static void le(struct aml *a, uint64_t v, size_t n)
{
    put(a, &v, n);
}

/* "\\_SB" or "\\_SB.VGEN" or "COM1": segments of four characters. */
static void path_put(struct aml *a, const char *path)
{
    size_t n = 1, i;

    if (*path == '\\') {
        byte(a, OP_ROOT);
        path++;
    }
    for (i = 0; path[i]; i++)
        n += path[i] == '.';
    if (n == 2)
        byte(a, OP_DUAL);
    else if (n > 2) {
        byte(a, OP_MULTI);
        byte(a, (unsigned)n);
    }
    while (*path) {
        char segment[4] = {'_', '_', '_', '_'};
        for (i = 0; i < 4 && *path && *path != '.'; i++)
            segment[i] = *path++;
        put(a, segment, 4);
        if (*path == '.')
            path++;
    }
}

static size_t open_block(struct aml *a)
{
    size_t at = a->len;

    le(a, 0, 2);
    return at;
}

/* The length counts itself. Two bytes: low four bits with "one more byte follows", then eight bits. */
void aml_close(struct aml *a, size_t at)
{
    size_t n = a->len - at;

    if (a->full)
        return;
    a->data[at] = (uint8_t)(0x40 | (n & 15));
    a->data[at + 1] = (uint8_t)(n >> 4);
}

size_t aml_scope(struct aml *a, const char *path)
{
    size_t at;

    byte(a, OP_SCOPE);
    at = open_block(a);
    path_put(a, path);
    return at;
}

size_t aml_device(struct aml *a, const char *name)
{
    size_t at;

    byte(a, OP_EXT);
    byte(a, OP_EXT_DEVICE);
    at = open_block(a);
    path_put(a, name);
    return at;
}

size_t aml_method(struct aml *a, const char *name, unsigned args)
{
    size_t at;

    byte(a, OP_METHOD);
    at = open_block(a);
    path_put(a, name);
    byte(a, args | SERIALIZED);
    return at;
}

size_t aml_if_arg0(struct aml *a, uint8_t value)
{
    size_t at;

    byte(a, OP_IF);
    at = open_block(a);
    byte(a, OP_EQUAL);
    byte(a, OP_ARG0);
    aml_int(a, value);
    return at;
}

size_t aml_package(struct aml *a, uint8_t n)
{
    size_t at;

    byte(a, OP_PACKAGE);
    at = open_block(a);
    byte(a, n);
    return at;
}

void aml_name(struct aml *a, const char *name)
{
    byte(a, OP_NAME);
    path_put(a, name);
}

void aml_int(struct aml *a, uint64_t v)
{
    if (v <= 1) {
        byte(a, v ? OP_ONE : OP_ZERO);
    } else if (v <= 0xff) {
        byte(a, OP_BYTE);
        le(a, v, 1);
    } else if (v <= 0xffff) {
        byte(a, OP_WORD);
        le(a, v, 2);
    } else if (v <= 0xffffffff) {
        byte(a, OP_DWORD);
        le(a, v, 4);
    } else {
        byte(a, OP_QWORD);
        le(a, v, 8);
    }
}

void aml_text(struct aml *a, const char *s)
{
    byte(a, OP_STRING);
    put(a, s, strlen(s) + 1);
}

static unsigned hex(char c)
{
    return c <= '9' ? (unsigned)(c - '0') : (unsigned)(c - 'A' + 10);
}

/* Three letters of five bits, four hexadecimal digits; big-endian. */
void aml_eisa(struct aml *a, const char *id)
{
    uint32_t v = ((uint32_t)(id[0] - '@') << 26) | ((uint32_t)(id[1] - '@') << 21) |
                 ((uint32_t)(id[2] - '@') << 16) | hex(id[3]) << 12 | hex(id[4]) << 8 |
                 hex(id[5]) << 4 | hex(id[6]);

    byte(a, OP_DWORD);
    le(a, __builtin_bswap32(v), 4);
}

static void memory_put(struct aml *a, const struct aml_resources *r)
{
    byte(a, 0x86); /* 32-bit fixed memory range */
    le(a, 9, 2);
    byte(a, 1); /* may be written */
    le(a, r->memory, 4);
    le(a, r->memory_len, 4);
}

static void port_put(struct aml *a, const struct aml_resources *r)
{
    byte(a, 0x47); /* I/O ports */
    byte(a, 1);    /* all sixteen address lines are decoded */
    le(a, r->port, 2);
    le(a, r->port, 2);
    byte(a, 1);
    byte(a, r->port_len);
}

static void irq_put(struct aml *a, uint32_t irq)
{
    byte(a, 0x89); /* extended interrupt */
    le(a, 6, 2);
    byte(a, 3); /* consumer, edge, active high, not shared */
    byte(a, 1);
    le(a, irq, 4);
}

void aml_resources(struct aml *a, const struct aml_resources *r)
{
    size_t at, from,
        len = (r->memory_len ? 12u : 0u) + (r->port_len ? 8u : 0u) + 9u * r->n_irq + 2u;
    uint32_t i;

    aml_name(a, "_CRS");
    byte(a, OP_BUFFER);
    at = open_block(a);
    byte(a, OP_WORD);
    le(a, len, 2);
    from = a->len;
    if (r->memory_len)
        memory_put(a, r);
    if (r->port_len)
        port_put(a, r);
    for (i = 0; i < r->n_irq && i < 2; i++)
        irq_put(a, r->irq[i]);
    byte(a, 0x79); /* end, without a checksum */
    byte(a, 0);
    if (a->len - from != len)
        a->full = 1;
    aml_close(a, at);
}

void aml_notify(struct aml *a, const char *path, uint8_t value)
{
    byte(a, OP_NOTIFY);
    path_put(a, path);
    aml_int(a, value);
}
