/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Renders an event made of arbitrary bytes: each field is a type byte, a name and a value, cut at zero bytes. The line
 * must be one JSON object without newline and with exactly the keys expected, and a kept string must start
 * with what was given.
 */
#include <jansson.h>

#include "chain.h"

#define FIELDS 40

static uint32_t take_fields(char *p, size_t size, struct cella_field fields[FIELDS])
{
    char *end = p + size;
    uint32_t n = 0;

    while (p + 1 < end && n < FIELDS) {
        char kind = *p++;
        char *name = p, *value;

        p += strlen(p) + 1;
        if (p >= end)
            break;
        value = p;
        p += strlen(p) + 1;
        fields[n] =
            (struct cella_field){.name = name, .type = 1000u * (unsigned)(kind & 3), .i64 = kind};
        if (fields[n].type == CELLA_FIELD_STR)
            fields[n].str = (struct cella_span){value, strlen(value)};
        n++;
    }
    return n;
}

static int expected(const char *name, const struct cella_field *fields, uint32_t n)
{
    static const char *const own[] = {"v",    "chain", "seq",       "ts",
                                      "prev", "kind",  "truncated", "dropped_fields"};
    uint32_t i;

    for (i = 0; i < ARRAY_LEN(own); i++)
        if (!strcmp(own[i], name))
            return 1;
    for (i = 0; i < n; i++)
        if (!strcmp(fields[i].name, name))
            return 1;
    return 0;
}

static void check(const struct buf *line, const struct cella_field *fields, uint32_t n)
{
    json_t *o = json_loadb(line->ptr, line->len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL), *v;
    json_int_t dropped;
    const char *name;

    if (!o || memchr(line->ptr, '\n', line->len) || line->len > LINE_MAX_BYTES)
        abort();
    json_object_foreach(o, name, v) if (!expected(name, fields, n)) abort();
    if (json_integer_value(json_object_get(o, "seq")) != 7 ||
        strcmp(json_string_value(json_object_get(o, "kind")), "x.y") != 0)
        abort();
    dropped = json_integer_value(json_object_get(o, "dropped_fields"));
    if (json_object_size(o) !=
        6 + n - (size_t)dropped + (dropped > 0) + (json_object_get(o, "truncated") != NULL))
        abort();
    json_decref(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char prev[HASH_HEX] =
        "0123456789012345678901234567890123456789012345678901234567890123";
    struct line_head head = {"abc", 7, 0, prev, "x.y"};
    struct cella_field fields[FIELDS];
    struct buf line = BUF_INIT;
    char *copy = malloc(size + 1);
    uint32_t n;

    memcpy(copy, data, size);
    copy[size] = 0;
    n = take_fields(copy, size, fields);
    if (line_render(&line, &head, fields, n, sizeof(fields[0])) == 0)
        check(&line, fields, n);
    buf_fini(&line);
    free(copy);
    return 0;
}
