/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Any text as a request path and as a pattern: a canonical path stays what it is, has none of the
 * segments that servers walk up by, and is covered by "/" "**"; a pattern that is accepted covers at
 * most paths below its first wildcard.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "table_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_path(const char *text)
{
    static char once[POLICY_PATH_MAX], again[POLICY_PATH_MAX];

    if (policy_path_canon(text, once) < 0)
        return;
    if (policy_path_canon(once, again) < 0 || strcmp(once, again) != 0)
        abort();
    if (*once != '/' || strstr(once, "//") || strstr(once, "/./") || strstr(once, "/../") ||
        strstr(once, "/..;") || strpbrk(once, "?#\\ ") || strcasestr(once, "%2f") ||
        strcasestr(once, "%5c") || strcasestr(once, "%2e") || strcasestr(once, "%00") ||
        (strlen(once) >= 3 && !strcmp(once + strlen(once) - 3, "/..")))
        abort();
    if (!policy_path_match("/**", once) || !policy_path_match(once, once))
        abort();
}

static void check_pattern(const char *pattern, const char *path)
{
    static char canon[POLICY_PATH_MAX];
    size_t fixed;

    if (policy_path_pattern(pattern) || policy_path_canon(path, canon) < 0 ||
        !policy_path_match(pattern, canon))
        return;
    fixed = strcspn(pattern, "*");
    if (strncmp(pattern, canon, fixed) != 0 || (!pattern[fixed] && canon[fixed]))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text, *second;

    if (size > 2 * POLICY_PATH_MAX)
        return 0;
    text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    second = memchr(text, '\n', size); /* pattern, then path */
    if (second) {
        *second = 0;
        check_pattern(text, second + 1);
    }
    check_path(text);
    free(text);
    return 0;
}
