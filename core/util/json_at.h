/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * json_at - JSON text with places. Parses strictly with jansson (duplicate keys refused) and gives
 * every later complaint about a value its line and column, found again by JSON pointer.
 */
#ifndef CELLA_JSON_AT_H
#define CELLA_JSON_AT_H

#include <jansson.h>

#include "util.h"

struct json_at {
    const char *file; /* for messages: a path, or "<policy>" */
    const char *text;
    size_t len;
    json_t *root; /* owned */
};

#define JSON_AT_MAX (4u << 20) /* bytes of one text */

/* Depth is bounded by jansson, size by JSON_AT_MAX (-EFBIG). The top must be an object or an array.
   Message: "file:line:column: not valid JSON: what; hint". The text is borrowed and must outlive
   *ret. */
int json_at_parse(const char *file, const char *text, size_t len, struct json_at *ret,
                  struct cella_error *err);
void json_at_fini(struct json_at *j);
/* Line and column (from 1; column in bytes) of the value at `pointer` (RFC 6901); with `key` set,
   of the member's name instead of its value (an array's element has none: its value). -ENOENT. */
int json_at_locate(const struct json_at *j, const char *pointer, int key, unsigned *ret_line,
                   unsigned *ret_col);
/* Sets err to "file:line:column: /pointer: message" and returns -EINVAL. Of a pointer that leads
   nowhere the nearest value around it is named. `j` NULL or without a root: "/pointer: message". */
int json_at_fail(const struct json_at *j, const char *pointer, int key, struct cella_error *err,
                 const char *fmt, ...) CELLA_PRINTF(5, 6);

#endif
