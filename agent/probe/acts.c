/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * acts - rows of two acts: a second request on the connection of a first, what a redirect leads to, and bytes on a
 * connection that was there before the rules tightened.
 *
 * What is looked for belongs to the second act alone, and only that carries the nonce. A first act that fails makes the
 * row one that could not be tried. Answers come from outside: bounded, and only a Location is read. Threads: none.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "probe.h"

#define is(r, k) (!strcmp((r)->kind, (k)))

int row_two_acts(const struct row *r)
{
    return is(r, "redirect") || option(r, "held", NULL) || option(r, "reuse", NULL);
}

static int host_char(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
}

int location_parse(const uint8_t *in, size_t n, char ret_host[256], uint16_t *ret_port)
{
    static const char name[] = "\r\nlocation: http://";
    size_t at, len = 0;
    unsigned port = 0;

    for (at = 0; at + sizeof(name) - 1 < n; at++)
        if (!strncasecmp((const char *)in + at, name, sizeof(name) - 1))
            break;
    if (at + sizeof(name) - 1 >= n)
        return -1;
    for (at += sizeof(name) - 1; at < n && host_char(in[at]); at++) {
        if (len == 255)
            return -1;
        ret_host[len++] = (char)in[at];
    }
    ret_host[len] = 0;
    if (at < n && in[at] == ':') {
        for (at++; at < n && in[at] >= '0' && in[at] <= '9' && port <= 65535; at++)
            port = port * 10 + (unsigned)(in[at] - '0');
        if (!port)
            return -1;
    }
    *ret_port = (uint16_t)(port ? port : 80);
    return len && port <= 65535 && at < n && (in[at] == '/' || in[at] == '\r') ? 0 : -1;
}

/* The whole head of an answer without a body that says `class` hundred. */
static int answer_is(const uint8_t *in, size_t n, const char *classes)
{
    return n >= 16 && !memcmp(in, "HTTP/1.", 7) && strchr(classes, in[9]) &&
           !memcmp(in + n - 4, "\r\n\r\n", 4);
}

/* Goes where the answer says, from the row's own source port. */
static void follow(struct row *r)
{
    struct sockaddr_storage a;
    const char *resolver = "";
    socklen_t len;
    int n = address_parse(r->target, r->port, &a, &len);

    close(r->fd);
    r->fd = -1;
    if (n == -EINVAL && option(r, "dns", &resolver)) {
        r->lookup = 1;
        snprintf(r->name, sizeof(r->name), "%s", r->target);
        n = address_parse(resolver, 53, &a, &len);
    }
    if (n < 0) {
        r->got = -1;
        row_end(r, -n);
        return;
    }
    row_start(r, &a, len);
}

void row_first_answer(struct row *r, const uint8_t *in, size_t n)
{
    int away = is(r, "redirect") || option(r, "redirect", NULL);
    uint16_t port = r->port;

    if (option(r, "held", NULL)) {
        r->phase = ROW_HELD;
        return;
    }
    if (is(r, "dns-tcp")) {
        r->act = 1;
        row_say(r);
        return;
    }
    if (!answer_is(in, n, away ? "3" : "2") ||
        (away && location_parse(in, n, r->target, &port) < 0)) {
        row_end(r, EPROTO);
        return;
    }
    r->act = 1;
    if (is(r, "redirect")) {
        r->port = port;
        follow(r);
    } else {
        row_say(r);
    }
}
