/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* modules.dep and modules.builtin of a package ("\f" between them), and the head of a kernel. */
#include "modules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct modules m;
    char *text = malloc(len + 1), *builtin, version[128];
    struct errbuf eb;
    size_t i;

    if (!text)
        return 0;
    memcpy(text, data, len);
    text[len] = 0;
    bzimage_version(data, len, version, errbuf_init(&eb));
    builtin = strchr(text, '\f');
    if (builtin)
        *builtin++ = 0;
    m.n = 0;
    modules_need(text, builtin, "virtio_net", &m, errbuf_init(&eb));
    modules_need(text, builtin, "erofs", &m, errbuf_init(&eb));
    for (i = 0; i < m.n; i++)
        if (m.v[i][0] == '/' || !strncmp(m.v[i], "../", 3) || strstr(m.v[i], "/../") ||
            strlen(m.v[i]) >= MODULE_PATH_MAX)
            abort();
    free(text);
    return 0;
}
