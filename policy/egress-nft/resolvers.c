/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * resolvers - which DNS servers the gate may ask: the option, else the host's /etc/resolv.conf.
 *
 * Only addresses in canonical form, with an optional port; the list is checked here once, because
 * the gate hands it to c-ares as it is. An empty list is legal: names then cannot be resolved, and
 * every flow by name is refused with words saying so. The servers are the operator's choice, so
 * private addresses are fine. Threads: none.
 */
#include <arpa/inet.h>
#include <stdio.h>

#include "egress.h"

#define RESOLVERS_MAX 4

/* "a.b.c.d" or "a.b.c.d:port", to the list. 1 added, 0 not one. */
static int add_one(char list[RESOLVERS_LEN], const char *text, size_t len)
{
    char one[64], addr[INET_ADDRSTRLEN], *colon;
    struct in_addr a;
    int64_t port = 53;
    size_t at = strlen(list);

    if (len >= sizeof(one))
        return 0;
    memcpy(one, text, len);
    one[len] = 0;
    colon = strchr(one, ':');
    if (colon) {
        *colon = 0;
        if (parse_i64(colon + 1, &port) < 0 || port < 1 || port > 65535)
            return 0;
    }
    if (inet_pton(AF_INET, one, &a) != 1)
        return 0;
    inet_ntop(AF_INET, &a, addr, sizeof(addr));
    return (size_t)snprintf(list + at, RESOLVERS_LEN - at, "%s%s:%d", at ? "," : "", addr,
                            (int)port) < RESOLVERS_LEN - at;
}

static int from_option(const char *text, char ret[RESOLVERS_LEN], struct cella_error *err)
{
    const char *p = text;
    int n = 0;

    for (;;) {
        size_t len = strcspn(p, ",");
        if (n++ == RESOLVERS_MAX || !add_one(ret, p, len))
            return fail(
                err, -EINVAL,
                "option resolvers: \"%s\" is not a list of at most %d IPv4 addresses; expected "
                "\"192.0.2.53\" or \"192.0.2.53:5353,192.0.2.54\"",
                text, RESOLVERS_MAX);
        if (!p[len])
            return 0;
        p += len + 1;
    }
}

/* IPv6 servers are passed over. No file: no server. */
static void from_host(char ret[RESOLVERS_LEN])
{
    FILE *f = fopen("/etc/resolv.conf", "re");
    char line[256], server[64];
    int n = 0;

    while (f && n < RESOLVERS_MAX && fgets(line, sizeof(line), f))
        if (sscanf(line, " nameserver %63s", server) == 1)
            n += add_one(ret, server, strlen(server));
    if (f)
        fclose(f);
}

int resolvers_find(const struct cella_options *options, char ret[RESOLVERS_LEN],
                   struct cella_error *err)
{
    const char *text = "";
    uint32_t i;

    for (i = 0; options && i < options->n_values; i++) {
        const struct cella_option_value *v =
            (const void *)((const char *)options->values + (size_t)i * options->value_stride);
        if (!strcmp(v->name, "resolvers") && v->str)
            text = v->str;
    }
    ret[0] = 0;
    if (!strcmp(text, "none"))
        return 0;
    if (*text)
        return from_option(text, ret, err);
    from_host(ret);
    return 0;
}
