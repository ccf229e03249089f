/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The conversion of JSON arguments. Input: a signature, a newline, JSON text. Every string that
 * comes out is read to its end, and a bool must be 0 or 1.
 */
#include "plugin_int.h"

static void use(const struct signature *s, const union arg *a)
{
    volatile size_t sink = 0;
    uint32_t i;

    for (i = 0; i < s->n_params; i++) {
        if (s->params[i].type == SIG_STR)
            sink += strlen(a[i].str);
        if (s->params[i].type == SIG_BOOL && a[i].i32 != 0 && a[i].i32 != 1)
            __builtin_trap();
    }
    (void)sink;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nl = size ? memchr(data, '\n', size) : NULL;
    union arg args[CELLA_METHOD_PARAMS_MAX];
    struct signature s;
    struct errbuf eb;
    char *text;
    json_t *j;

    if (!nl || !(text = strndup((const char *)data, (size_t)(nl - data))))
        return 0;
    if (signature_parse(text, &s, NULL) == 0) {
        j = json_loadb((const char *)nl + 1, size - (size_t)(nl + 1 - data),
                       JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        if (j && signature_args(&s, "x.y", j, args, errbuf_init(&eb)) == 0)
            use(&s, args);
        else if (j && !eb.text[0])
            __builtin_trap();
        json_decref(j);
    }
    free(text);
    return 0;
}
