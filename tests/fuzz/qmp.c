/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What a QEMU that the guest has taken over may answer. */
#include "engine.h"
#include "qmp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf in = BUF_INIT;
    char text[64];
    json_t *o;
    int rounds = 0;

    if (buf_add(&in, data, size) < 0)
        return 0;
    while (qmp_take(&in, &o) == 1) {
        const char *s = json_string_value(json_object_get(o, "event"));
        if (s)
            text_clean(s, strlen(s), text, sizeof(text));
        json_decref(o);
        if (++rounds > 1000000)
            __builtin_trap();
    }
    text_clean((const char *)data, size, text, sizeof(text));
    buf_fini(&in);
    return 0;
}
