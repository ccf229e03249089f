/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* strings - arguments and environment of a program that is loaded: one block of the heap. Threads: each its own. */
#include <stdlib.h>
#include <string.h>

#include "exec.h"

int exec_string_add(struct exec_strings *strings, const char *text, size_t length)
{
    size_t room = strings->room ? strings->room : 4096;
    char *larger;

    if (length + 1 > EXEC_STRING_MAX)
        return -E2BIG;
    while (room < strings->size + length + 1)
        room *= 2;
    if (room > strings->room) {
        larger = realloc(strings->bytes, room);
        if (!larger)
            return -ENOMEM;
        strings->bytes = larger;
        strings->room = room;
    }
    memcpy(strings->bytes + strings->size, text, length);
    strings->bytes[strings->size + length] = 0;
    strings->size += length + 1;
    strings->n++;
    return 0;
}

void exec_strings_free(struct exec_strings *strings)
{
    free(strings->bytes);
    *strings = (struct exec_strings){0};
}
