/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Parses arbitrary text, then walks the tree jansson built: every value must be found again at its
 * pointer, names and values must lie inside the text, and a value must start with the character its
 * type says. Also locates the input itself taken as a pointer.
 */
#include "json_at.h"

static void check_place(const struct json_at *j, const json_t *v, const char *pointer);

static char first_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return '{';
    case JSON_ARRAY:
        return '[';
    case JSON_STRING:
        return '"';
    case JSON_TRUE:
        return 't';
    case JSON_FALSE:
        return 'f';
    case JSON_NULL:
        return 'n';
    case JSON_INTEGER:
    case JSON_REAL:
        break;
    }
    return 0;
}

static char char_at(const struct json_at *j, unsigned line, unsigned col)
{
    size_t i = 0;

    for (; line > 1; line--) {
        const char *nl = memchr(j->text + i, '\n', j->len - i);
        if (!nl)
            abort();
        i = (size_t)(nl - j->text) + 1;
    }
    i += col - 1;
    if (i >= j->len)
        abort();
    return j->text[i];
}

static void child(const struct json_at *j, const json_t *v, const char *pointer, const char *name)
{
    struct buf b = BUF_INIT;

    buf_addf(&b, "%s/", pointer);
    for (; *name; name++) {
        if (*name == '~')
            buf_add(&b, "~0", 2);
        else if (*name == '/')
            buf_add(&b, "~1", 2);
        else
            buf_add(&b, name, 1);
    }
    if (!b.oom)
        check_place(j, v, b.ptr);
    buf_fini(&b);
}

static void check_place(const struct json_at *j, const json_t *v, const char *pointer)
{
    unsigned line, col;
    const char *name;
    char c, number[24];
    size_t i;
    json_t *e;

    if (json_at_locate(j, pointer, 0, &line, &col) < 0)
        abort();
    c = char_at(j, line, col);
    if (first_of(v) ? c != first_of(v) : c != '-' && (c < '0' || c > '9'))
        abort();
    if (json_at_locate(j, pointer, 1, &line, &col) < 0)
        abort();
    char_at(j, line, col);
    json_object_foreach((json_t *)(uintptr_t)v, name, e) child(j, e, pointer, name);
    json_array_foreach(v, i, e)
    {
        snprintf(number, sizeof(number), "%zu", i);
        child(j, e, pointer, number);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct errbuf eb;
    struct json_at j;
    unsigned line, col;
    char *text, *pointer;

    if (size > 2048)
        return 0;
    text = malloc(size ? size : 1); /* exactly as long, so that ASan sees a read beyond the end */
    pointer = malloc(size + 1);
    memcpy(text, data, size);
    memcpy(pointer, data, size);
    pointer[size] = 0;
    if (json_at_parse("f", text, size, &j, errbuf_init(&eb)) == 0) {
        check_place(&j, j.root, "");
        json_at_locate(&j, pointer, 1, &line, &col);
        json_at_fail(&j, pointer, 1, &eb.err, "x");
        json_at_fini(&j);
    } else if (!eb.text[0]) {
        abort();
    }
    free(text);
    free(pointer);
    return 0;
}
