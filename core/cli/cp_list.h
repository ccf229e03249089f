/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* cp_list - file names that a cell gives us. */
#ifndef CELLA_CLI_CP_LIST_H
#define CELLA_CLI_CP_LIST_H

#include "link.h"

/* Entry names from a cell: one component, not "." or "..". */
int cp_name_safe(const char *name, size_t len);
struct cp_entry {
    char name[256];
    uint32_t type, mode;
    uint64_t size;
};
/* Parses the bytes of LIST; calls `each` per entry. -EBADMSG with words. */
int cp_list_parse(const uint8_t *p, size_t len, int (*each)(void *ctx, const struct cp_entry *e),
                  void *ctx, struct cella_error *err);

#endif
