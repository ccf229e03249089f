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
    } types[] = {{"A", 1},      {"NS", 2},      {"CNAME", 5}, {"SOA", 6},        {"NULL", 10},
                 {"PTR", 12},   {"MX", 15},     {"TXT", 16},  {"AAAA", 28},      {"SRV", 33},
                 {"NAPTR", 35}, {"DNSKEY", 48}, {"SVCB", 64}, {"HTTPS", 65},     {"IXFR", 251},
                 {"AXFR", 252}, {"ANY", 255},   {"CAA", 257}, {"PRIVATE", 65280}};
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

size_t icmp_echo(int six, uint8_t *out)
{
    uint32_t sum = 0;
    size_t n, i;

    memcpy(out, (const uint8_t[]){six ? 128 : 8, 0, 0, 0, 0xce, 0x11, 0, 1}, 8);
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

/* `first` of the two is the method, path or host; the second request's own, or the same. */
static const char *of_act(const struct row *r, const char *first, const char *second,
                          const char *value)
{
    option(r, first, &value);
    if (r->act)
        option(r, second, &value);
    return value;
}

static size_t http_request(const struct row *r, uint8_t *out)
{
    const char *to = NULL;
    int first = row_two_acts(r) && !r->act;
    size_t n = (size_t)snprintf(
        (char *)out, PAYLOAD_MAX, "%.64s %.1100s HTTP/1.1\r\nHost: %.255s\r\n",
        of_act(r, "method", "method2", "GET"), of_act(r, "path", "path2", "/"),
        r->target[0] ? r->target : of_act(r, "host", "host2", r->name[0] ? r->name : r->address));

    if (!first)
        n += (size_t)snprintf((char *)out + n, PAYLOAD_MAX - n, "X-Cella-Reach: %s\r\n",
                              probe_nonce);
    else if (option(r, "redirect", &to) || option(r, "to", &to))
        n += (size_t)snprintf((char *)out + n, PAYLOAD_MAX - n, "X-Cella-Redirect: %.255s\r\n",
                              to ? to : "");
    n += (size_t)snprintf(
        (char *)out + n, PAYLOAD_MAX - n, "%s%s\r\n",
        option(r, "upgrade", NULL) ? "Connection: upgrade\r\nUpgrade: websocket\r\n"
                                     "Sec-WebSocket-Version: 13\r\n"
                                     "Sec-WebSocket-Key: Y2VsbGEtcmVhY2gtcHJvYg==\r\n"
                                   : "",
        option(r, "smuggle", NULL) ? "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n" : "");
    return n;
}

/* An exact name of a rule is asked as it is, as is the first of two; others carry the nonce. */
static size_t question(const struct row *r, uint8_t *out)
{
    char name[600];
    const char *type = "A";
    size_t skip = strcmp(r->kind, "dns-tcp") ? 0 : 2, n;
    int bare = option(r, "exact", NULL) || r->lookup || (row_two_acts(r) && !r->act);

    option(r, "type", &type);
    snprintf(name, sizeof(name), "%s%s%s", bare ? "" : probe_nonce, bare ? "" : ".", r->name);
    n = dns_query(name, r->lookup ? "A" : type, out + skip);
    if (skip)
        put16(out, n);
    return n + skip;
}

size_t payload(const struct row *r, uint8_t out[PAYLOAD_MAX])
{
    const char *v = "", *sni = r->name;
    size_t n, size;
    int first = row_two_acts(r) && !r->act;

    if (!strncmp(r->kind, "dns", 3) || r->lookup)
        return question(r, out);
    if (!strcmp(r->kind, "tls") && !option(r, "plain", NULL)) {
        option(r, "sni", &sni);
        return client_hello(strcmp(sni, "-") ? sni : "", out);
    }
    if (!strcmp(r->kind, "http") || (!strcmp(r->kind, "redirect") && first))
        return http_request(r, out);
    if (!strcmp(r->kind, "icmp"))
        return icmp_echo(strchr(r->address, ':') != NULL, out);
    n = (size_t)snprintf((char *)out, 512, "cella-reach %s %s\r\n", first ? "first" : probe_nonce,
                         r->id);
    size = option(r, "size", &v) ? strtoul(v, NULL, 10) : 0;
    if (size > n && size < PAYLOAD_MAX) {
        memset(out + n, '.', size - n);
        n = size;
    }
    return n;
}
