/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * answer - what the sink of a measurement says. Bytes are echoed, so that the probe sees that they arrived; a whole
 * request of HTTP is answered as a server would, because an engine that understands HTTP may stand between. A request may
 * name a place to be sent to, so that it can be seen what a redirect leads to: the cell sends itself, and no further
 * than the policy. Reads hostile bytes; writes only what is checked here. Threads: none.
 */
#include <stdio.h>
#include <string.h>

#include "gate.h"

static const char redirect[] = "\r\nx-cella-redirect:";

static int is_request(const uint8_t *p, size_t n)
{
    size_t i;

    for (i = 0; i < n && i < 16 && p[i] >= 'A' && p[i] <= 'Z'; i++)
        ;
    return i && (i == n || (i < 16 && p[i] == ' '));
}

static int place_char(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == ':';
}

/* The place that the head names; "" when none. */
static void place_of(const uint8_t *p, size_t n, char ret[256])
{
    size_t at, len = 0;

    for (at = 0; at + sizeof(redirect) - 1 <= n; at++)
        if (!strncasecmp((const char *)p + at, redirect, sizeof(redirect) - 1))
            break;
    if (at + sizeof(redirect) - 1 <= n) {
        at += sizeof(redirect) - 1;
        while (at < n && p[at] == ' ')
            at++;
        while (at < n && place_char(p[at]) && len < 255)
            ret[len++] = (char)p[at++];
    }
    ret[len] = 0;
}

int answer_write(const uint8_t *p, size_t n, char out[ANSWER_MAX])
{
    char place[256];

    if (!is_request(p, n))
        return 0;
    if (!memmem(p, n, "\r\n\r\n", 4))
        return -1;
    place_of(p, n, place);
    if (place[0])
        return snprintf(out, ANSWER_MAX,
                        "HTTP/1.1 302 Found\r\nLocation: http://%s/\r\nContent-Length: 0\r\n\r\n",
                        place);
    return snprintf(out, ANSWER_MAX, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
}
