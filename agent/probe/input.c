/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* input - the lines that the probe is given, as rows. What does not fit its place makes the line no row. Threads: none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"

char probe_nonce[64];

static int word(char *out, size_t max, const char *in)
{
    size_t n = strlen(in);

    if (n >= max)
        return -1;
    memcpy(out, strcmp(in, "-") ? in : "", strcmp(in, "-") ? n + 1 : 1);
    return 0;
}

static int port(const char *s, uint16_t *ret)
{
    char *end;
    unsigned long v = strtoul(s, &end, 10);

    *ret = (uint16_t)v;
    return *s && !*end && v <= 65535 ? 0 : -1;
}

int row_parse(char *line, struct row *r)
{
    char *w[7], *save = NULL, *at;
    size_t n = 0;

    for (at = strtok_r(line, " \n", &save); at && n < 7; at = strtok_r(NULL, " \n", &save))
        w[n++] = at;
    memset(r, 0, sizeof(*r));
    r->fd = -1;
    if (n != 7 || at || port(w[3], &r->port) < 0 || port(w[4], &r->sport) < 0 ||
        word(r->id, sizeof(r->id), w[0]) < 0 || word(r->kind, sizeof(r->kind), w[1]) < 0 ||
        word(r->address, sizeof(r->address), w[2]) < 0 ||
        word(r->name, sizeof(r->name), w[5]) < 0 || word(r->options, sizeof(r->options), w[6]) < 0)
        return -1;
    return 0;
}

int head_parse(const char *line, unsigned *ret_patience, unsigned *ret_total)
{
    return sscanf(line, "cella-probe-2 %63s %u %u", probe_nonce, ret_patience, ret_total) == 3 &&
                   *ret_patience <= 60000 && *ret_total <= 60000
               ? 0
               : -1;
}
