/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * name - names from packets to the one spelling the policy knows.
 *
 * policy_name_canon() is the only canonicalisation; what comes here first is what a C string cannot
 * say: a NUL inside, and a length. A trailing dot, which a document's reader may drop, is no host
 * name in TLS (RFC 6066) and cannot come out of a DNS question, so it is refused. Threads: none
 * needed.
 */
#include <string.h>

#include "hello.h"
#include "table.h"

int name_canon(const void *text, size_t len, char *out)
{
    char name[NAME_MAX_LEN + 1], canon[POLICY_NAME_MAX + 1];

    if (!len || len > NAME_MAX_LEN || memchr(text, 0, len) || ((const char *)text)[len - 1] == '.')
        return -1;
    memcpy(name, text, len);
    name[len] = 0;
    if (policy_name_canon(name, canon) < 0)
        return -1;
    memcpy(out, canon, len + 1);
    return 0;
}
