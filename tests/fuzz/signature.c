/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The signature parser on any text. What it accepts must keep the limits its users rely on. */
#include "plugin_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct signature s = {.n_params = 0};
    struct errbuf eb;
    char *text = strndup((const char *)data, size);
    uint32_t i;

    if (!text)
        return 0;
    if (signature_parse(text, &s, errbuf_init(&eb)) == 0) {
        if (s.n_params > CELLA_METHOD_PARAMS_MAX || !s.result)
            __builtin_trap();
        for (i = 0; i < s.n_params; i++)
            if (!s.params[i].type || !memchr(s.params[i].name, 0, SIG_NAME_MAX))
                __builtin_trap();
    } else if (!eb.text[0]) {
        __builtin_trap();
    }
    free(text);
    return 0;
}
