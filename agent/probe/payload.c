/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* payload - what each kind says; the nonce is in all of it. Answers are read with bounds. Threads: none. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"

static uint16_t dns_type(const char *s)
{
    static const struct {
        const char *name;
        uint16_t type;
    } types[] = {{"A", 1},     {"NULL", 10},  {"TXT", 16}, {"AAAA", 28},
                 {"SVCB", 64}, {"HTTPS", 65}, {"ANY", 255}};
    size_t i;

    for (i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (!strcmp(types[i].name, s))
            return types[i].type;
    return 1;
}

/* `name` of at most 253 bytes; what does not fit a label is cut. */
size_t dns_query(const char *name, const char *type, uint8_t *out)
{
    static const uint8_t head[12] = {0xce, 0x11, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0};
    uint16_t t = dns_type(type);
    size_t n = sizeof(head);

    memcpy(out, head, sizeof(head));
    while (*name) {
        size_t len = strcspn(name, ".");
        size_t take = len > 63 ? 63 : len;
        if (n + take + 6 > 512)
            break;
        out[n++] = (uint8_t)take;
        memcpy(out + n, name, take);
        n += take;
        name += len + (name[len] == '.');
    }
    out[n++] = 0;
    out[n++] = (uint8_t)(t >> 8);
    out[n++] = (uint8_t)t;
    out[n++] = 0;
    out[n++] = 1;
    return n;
}

static size_t skip_name(const uint8_t *p, size_t n, size_t at)
{
    while (at < n && p[at]) {
        if (p[at] >= 0xc0)
            return at + 2;
        at += 1u + p[at];
    }
    return at + 1;
}

long dns_answers(const uint8_t *p, size_t n, uint32_t *ret_address)
{
    long count;
    size_t at = 12;
    uint32_t a;

    *ret_address = 0;
    if (n < 12 || !(p[2] & 0x80) || p[3] & 15)
        return 0;
    count = p[6] << 8 | p[7];
    if (p[5])
        at = skip_name(p, n, at) + 4;
    at = skip_name(p, n, at);
    if (count && at + 14 <= n && p[at + 1] == 1 && p[at + 9] == 4) {
        memcpy(&a, p + at + 10, 4);
        *ret_address = ntohl(a);
    }
    return count;
}

size_t icmp_echo(uint8_t *out)
{
    uint32_t sum = 0;
    size_t n, i;

    memcpy(out, (const uint8_t[]){8, 0, 0, 0, 0xce, 0x11, 0, 1}, 8);
    n = 8 + strlen(probe_nonce);
    memcpy(out + 8, probe_nonce, n - 8);
    if (n & 1)
        out[n++] = 0;
    for (i = 0; i < n; i += 2)
        sum += (uint32_t)(out[i] << 8 | out[i + 1]);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~(sum + (sum >> 16)) & 0xffff;
    out[2] = (uint8_t)(sum >> 8);
    out[3] = (uint8_t)sum;
    return n;
}

static void put16(uint8_t *p, size_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

/* A small TLS 1.2/1.3 ClientHello with this server name; its random starts with the nonce. */
static size_t client_hello(const char *name, uint8_t *out)
{
    static const uint8_t groups[] = {0, 10, 0, 4, 0, 2, 0, 23, 0, 13, 0, 4, 0, 2, 4, 3};
    static const uint8_t versions[] = {0, 43, 0, 3, 2, 3, 4};
    size_t host = strlen(name), n = 9, ext, len;

    memcpy(out, (const uint8_t[]){22, 3, 1, 0, 0, 1, 0, 0, 0}, 9);
    put16(out + n, 0x0303);
    n += 2;
    memset(out + n, 0x5a, 32);
    len = strlen(probe_nonce);
    memcpy(out + n, probe_nonce, len > 32 ? 32 : len);
    n += 32;
    memcpy(out + n, (const uint8_t[]){0, 0, 4, 0x13, 1, 0xc0, 0x2b, 1, 0}, 9);
    n += 9;
    ext = n;
    n += 2;
    if (host) {
        put16(out + n, 0);
        put16(out + n + 2, host + 5);
        put16(out + n + 4, host + 3);
        out[n + 6] = 0;
        put16(out + n + 7, host);
        memcpy(out + n + 9, name, host);
        n += 9 + host;
    }
    memcpy(out + n, groups, sizeof(groups));
    n += sizeof(groups);
    memcpy(out + n, versions, sizeof(versions));
    n += sizeof(versions);
    put16(out + ext, n - ext - 2);
    put16(out + 3, n - 5);
    put16(out + 7, n - 9);
    return n;
}

static size_t http_request(const struct row *r, uint8_t *out)
{
    const char *method = "GET", *path = "/", *host = r->name;

    option(r, "method", &method);
    option(r, "path", &path);
    option(r, "host", &host);
    return (size_t)snprintf(
        (char *)out, PAYLOAD_MAX,
        "%.64s %.1100s HTTP/1.1\r\nHost: %.255s\r\nX-Cella-Reach: %s\r\n%s%s\r\n", method, path,
        host, probe_nonce,
        option(r, "upgrade", NULL) ? "Connection: upgrade\r\nUpgrade: websocket\r\n"
                                     "Sec-WebSocket-Version: 13\r\n"
                                     "Sec-WebSocket-Key: Y2VsbGEtcmVhY2gtcHJvYg==\r\n"
                                   : "",
        option(r, "smuggle", NULL) ? "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n" : "");
}

size_t payload(const struct row *r, uint8_t out[PAYLOAD_MAX])
{
    const char *v = "A", *sni = r->name;
    size_t n, size;

    if (!strncmp(r->kind, "dns", 3) || r->lookup) {
        char name[600];
        size_t skip = strcmp(r->kind, "dns-tcp") ? 0 : 2;
        option(r, "type", &v);
        /* an exact name of a rule is asked as it is; others carry the nonce */
        snprintf(name, sizeof(name), option(r, "exact", NULL) || r->lookup ? "%.0s%s" : "%s.%s",
                 probe_nonce, r->name);
        n = dns_query(name, v, out + skip);
        if (skip)
            put16(out, n);
        return n + skip;
    }
    if (!strcmp(r->kind, "tls") && !option(r, "plain", NULL)) {
        option(r, "sni", &sni);
        return client_hello(strcmp(sni, "-") ? sni : "", out);
    }
    if (!strcmp(r->kind, "http"))
        return http_request(r, out);
    if (!strcmp(r->kind, "icmp"))
        return icmp_echo(out);
    n = (size_t)snprintf((char *)out, 512, "cella-reach %s %s\r\n", probe_nonce, r->id);
    size = option(r, "size", &v) ? strtoul(v, NULL, 10) : 0;
    if (size > n && size < PAYLOAD_MAX) {
        memset(out + n, '.', size - n);
        n = size;
    }
    return n;
}
