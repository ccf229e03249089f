/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The note parser on any bytes. It reads from memory of exactly the input's size, so that a read
   outside of it is seen. */
#include "plugin_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct elf_source src = {.fd = -1, .mem = data, .size = size};
    struct cella_note note = {.magic = 1};
    struct errbuf eb;
    int r = elf_note_read(&src, &note, errbuf_init(&eb));

    if (r < 0 && (note.magic != 1 || !eb.text[0] || eb.err.code != r))
        __builtin_trap();
    return 0;
}
