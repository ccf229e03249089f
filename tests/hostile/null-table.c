/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The entry returns nothing. */
#include "honest.h"

CELLA_EXPORT const void *cella_plugin_entry_v1(void);
CELLA_EXPORT const void *cella_plugin_entry_v1(void)
{
    return NULL;
}
static const struct cella_elf_note note_
    __attribute__((used, section(".note.cella"), aligned(4))) = {
        6,
        sizeof(struct cella_note),
        CELLA_NOTE_TYPE,
        {'c', 'e', 'l', 'l', 'a', 0, 0, 0},
        {CELLA_NOTE_MAGIC, CELLA_KIND_BACKEND, CELLA_ABI_MAJOR, 0, 0}};
