/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* cp_list - any bytes as the listing of a hostile cell. No name may come out that is not one
 * component. */
#include "cp_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int each(void *ctx, const struct cp_entry *e)
{
    (void)ctx;
    if (!e->name[0] || strchr(e->name, '/') || !strcmp(e->name, ".") || !strcmp(e->name, "..") ||
        strlen(e->name) > 255)
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct errbuf eb;

    cp_list_parse(data, size, each, NULL, errbuf_init(&eb));
    return 0;
}
