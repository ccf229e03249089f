/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* machine.json of a snapshot that came from somewhere else. The text gets its digest here, or nothing else would be read;
 * what is accepted must be written as the same again. */
#include <sodium.h>

#include "vm_manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char digest[SPARSE_DIGEST];
    char hex[2 * SPARSE_DIGEST + 1];
    struct manifest *m = calloc(1, 2 * sizeof(*m));
    auto_free char *again = NULL;
    struct buf b = BUF_INIT;
    struct errbuf eb;

    if (!m)
        return 0;
    manifest_read((const char *)data, size, m, errbuf_init(&eb));
    crypto_generichash(digest, sizeof(digest), data, size, NULL, 0);
    hex_encode(digest, sizeof(digest), hex);
    buf_add(&b, data, size);
    buf_addf(&b, ",\"self\":\"%s\"}\n", hex);
    memset(m, 0, sizeof(*m));
    if (manifest_read(b.ptr, b.len, m, &eb.err) == 0) {
        if (manifest_write(m, &again) < 0 ||
            manifest_read(again, strlen(again), m + 1, &eb.err) < 0 || memcmp(m, m + 1, sizeof(*m)))
            __builtin_trap();
    }
    buf_fini(&b);
    free(m);
    return 0;
}
