/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * head - reads HTTP/1.1 heads. The engine never forwards the bytes it read: it forwards what it
 * understood, written again. So the reader here and the reader behind the next hop cannot differ.
 *
 * Should: refuse any doubt about where a message ends (length and coding together, twice a length, a
 * coding that is not "chunked", folding, a space before the colon, bare CR or LF, NUL).
 * Mustn't: repair. No state, no allocation, no threads.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "head.h"

long head_scan(const char *p, size_t n, size_t *scanned)
{
    size_t i = *scanned;

    for (; i < n && i < HEAD_BYTES_MAX; i++) {
        if (!p[i])
            return -EBADMSG;
        if (p[i] == '\n' && (i == 0 || p[i - 1] != '\r'))
            return -EBADMSG;
        if (i && p[i - 1] == '\r' && p[i] != '\n')
            return -EBADMSG;
        if (p[i] == '\n' && (i == 1 || (i >= 3 && p[i - 2] == '\n'))) {
            *scanned = 0;
            return (long)i + 1;
        }
    }
    *scanned = i;
    return i >= HEAD_BYTES_MAX ? -EBADMSG : 0;
}

static int token_char(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

int token_valid(const char *p, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (!token_char((unsigned char)p[i]))
            return 0;
    return n > 0;
}

int value_valid(const char *p, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return 0;
    }
    return 1;
}

int slice_is(const char *p, size_t n, const char *text)
{
    return n == strlen(text) && !strncasecmp(p, text, n);
}

int field_is(const struct field *f, const char *name)
{
    return slice_is(f->name, f->name_len, name);
}

const struct field *fields_find(const struct fields *f, const char *name, unsigned *ret_count)
{
    const struct field *first = NULL;
    unsigned i, count = 0;

    for (i = 0; i < f->n; i++)
        if (field_is(&f->f[i], name) && count++ == 0)
            first = &f->f[i];
    if (ret_count)
        *ret_count = count;
    return first;
}

void fields_drop(struct fields *f, const char *name)
{
    unsigned i, to = 0;

    for (i = 0; i < f->n; i++)
        if (!field_is(&f->f[i], name))
            f->f[to++] = f->f[i];
    f->n = to;
}

int trailer_allowed(const struct field *f)
{
    static const char *const never[] = {
        "transfer-encoding",
        "content-length",
        "host",
        "connection",
        "upgrade",
        "te",
        "expect",
        "trailer",
        "authorization",
        "cookie",
        "set-cookie",
        "content-encoding",
        "content-type",
        "content-range",
        "cache-control",
        "proxy-authorization",
        "keep-alive",
        "x-cella-denied",
    };
    size_t i;

    for (i = 0; i < sizeof(never) / sizeof(never[0]); i++)
        if (field_is(f, never[i]))
            return 0;
    return 1;
}

/* One "name: value" without its line end. */
static int field_parse(const char *p, size_t n, struct field *ret)
{
    const char *colon = memchr(p, ':', n);
    size_t name = colon ? (size_t)(colon - p) : 0, from = name + 1, to = n;

    if (!colon || !token_valid(p, name))
        return -EBADMSG;
    while (from < to && (p[from] == ' ' || p[from] == '\t'))
        from++;
    while (to > from && (p[to - 1] == ' ' || p[to - 1] == '\t'))
        to--;
    if (!value_valid(p + from, to - from))
        return -EBADMSG;
    *ret = (struct field){p, p + from, (uint32_t)name, (uint32_t)(to - from)};
    return 0;
}

/* Length of the line at p with its CRLF, or 0. */
static size_t line_len(const char *p, size_t n)
{
    const char *lf = memchr(p, '\n', n);

    if (!lf || lf == p || lf[-1] != '\r')
        return 0;
    return (size_t)(lf - p) + 1;
}

int fields_parse(const char *p, size_t n, struct fields *ret)
{
    size_t at = 0;

    ret->n = 0;
    while (at < n) {
        size_t len = line_len(p + at, n - at);
        if (!len)
            return -EBADMSG;
        if (len == 2)
            return at + 2 == n ? 0 : -EBADMSG;
        if (ret->n == HEAD_FIELDS_MAX || field_parse(p + at, len - 2, &ret->f[ret->n]) < 0)
            return -EBADMSG;
        ret->n++;
        at += len;
    }
    return -EBADMSG;
}

/* ------------------------------------------------------------ framing */

static int length_parse(const struct field *f, uint64_t *ret)
{
    uint64_t v = 0;
    uint32_t i;

    if (!f->value_len || f->value_len > 18)
        return -EBADMSG;
    for (i = 0; i < f->value_len; i++) {
        if (f->value[i] < '0' || f->value[i] > '9')
            return -EBADMSG;
        v = v * 10 + (uint64_t)(f->value[i] - '0');
    }
    *ret = v;
    return 0;
}

/* Walks a comma list; 1: `want` is in it. */
static int list_has(const struct field *f, const char *want)
{
    const char *p = f->value, *end = p + f->value_len;

    while (p < end) {
        const char *comma = memchr(p, ',', (size_t)(end - p)), *stop = comma ? comma : end;
        const char *from = p, *to = stop;
        while (from < to && (*from == ' ' || *from == '\t'))
            from++;
        while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
            to--;
        if (slice_is(from, (size_t)(to - from), want))
            return 1;
        p = stop + 1;
    }
    return 0;
}

static int framing(struct head *h)
{
    unsigned lengths, codings, i;
    const struct field *length = fields_find(&h->fields, "content-length", &lengths);
    const struct field *coding = fields_find(&h->fields, "transfer-encoding", &codings);

    for (i = 0; i < h->fields.n; i++) /* what a CGI behind the server would take for the real one */
        if (field_is(&h->fields.f[i], "content_length") ||
            field_is(&h->fields.f[i], "transfer_encoding"))
            return -EBADMSG;
    if (lengths > 1 || codings > 1 || (lengths && codings))
        return -EBADMSG;
    if (coding) {
        if (!h->minor || !slice_is(coding->value, coding->value_len, "chunked"))
            return -EBADMSG;
        h->body = BODY_CHUNKED;
    } else if (length) {
        if (length_parse(length, &h->length) < 0)
            return -EBADMSG;
        h->body = BODY_LENGTH;
    }
    return 0;
}

static void connection(struct head *h)
{
    const struct field *up;
    int keep = 0, named = 0;
    unsigned i, n;

    for (i = 0; i < h->fields.n; i++) {
        const struct field *f = &h->fields.f[i];
        if (!field_is(f, "connection"))
            continue;
        h->close |= list_has(f, "close");
        keep |= list_has(f, "keep-alive");
        named |= list_has(f, "upgrade");
    }
    if (!h->minor && !keep)
        h->close = 1;
    up = fields_find(&h->fields, "upgrade", &n);
    h->upgrade = named && up;
    h->websocket = h->upgrade && n == 1 && slice_is(up->value, up->value_len, "websocket");
    up = fields_find(&h->fields, "expect", NULL);
    h->expect = up && h->minor;
}

static int version(const char *p, size_t n, int *ret_minor)
{
    if (n != 8 || memcmp(p, "HTTP/1.", 7) != 0 || (p[7] != '0' && p[7] != '1'))
        return -EBADMSG;
    *ret_minor = p[7] - '0';
    return 0;
}

int target_valid(const char *p, size_t n, int star)
{
    size_t i;

    if (n == 1 && *p == '*')
        return star;
    for (i = 0; i < n; i++)
        if (p[i] <= ' ' || p[i] > '~' || p[i] == '#')
            return 0;
    return n && *p == '/';
}

int target_absolute(const char **p, size_t *n, const char **ret_authority, size_t *ret_len)
{
    size_t skip = *n >= 7 && !strncasecmp(*p, "http://", 7)    ? 7
                  : *n >= 8 && !strncasecmp(*p, "https://", 8) ? 8
                                                               : 0;
    const char *a = *p + skip, *end = *p + *n;

    if (!skip)
        return 0;
    *ret_authority = a;
    while (a < end && *a != '/' && *a != '?')
        a++;
    *ret_len = (size_t)(a - *ret_authority);
    *p = a;
    *n = (size_t)(end - a);
    return 1;
}

int authority_is(const char *p, size_t n, const char *name, uint16_t port)
{
    size_t want = strlen(name), i;
    uint32_t got = 0;

    if (n < want || strncasecmp(p, name, want) != 0)
        return 0;
    if (n == want)
        return 1;
    if (p[want] != ':' || n - want > 6 || n - want < 2 || p[want + 1] == '0')
        return 0;
    for (i = want + 1; i < n; i++) {
        if (p[i] < '0' || p[i] > '9')
            return 0;
        got = got * 10 + (uint32_t)(p[i] - '0');
    }
    return got == port;
}

int head_request(const char *p, size_t n, struct head *ret)
{
    size_t line = line_len(p, n);
    const char *sp1, *sp2;

    ret->body = BODY_NONE;
    ret->length = 0;
    ret->close = ret->upgrade = ret->websocket = ret->expect = ret->status = 0;
    if (line < 2)
        return -EBADMSG;
    sp1 = memchr(p, ' ', line - 2);
    sp2 = sp1 ? memchr(sp1 + 1, ' ', line - 2 - (size_t)(sp1 + 1 - p)) : NULL;
    if (!sp2 || version(sp2 + 1, line - 2 - (size_t)(sp2 + 1 - p), &ret->minor) < 0)
        return -EBADMSG;
    ret->line = (struct field){p, sp1 + 1, (uint32_t)(sp1 - p), (uint32_t)(sp2 - sp1 - 1)};
    if (!token_valid(p, ret->line.name_len) || ret->line.name_len >= METHOD_MAX ||
        !ret->line.value_len || fields_parse(p + line, n - line, &ret->fields) < 0)
        return -EBADMSG;
    connection(ret);
    return framing(ret);
}

int head_response(const char *p, size_t n, struct head *ret)
{
    size_t line = line_len(p, n);
    int i;

    ret->body = BODY_TO_EOF;
    ret->length = 0;
    ret->close = ret->upgrade = ret->websocket = ret->expect = ret->status = 0;
    if (line < 14 || version(p, 8, &ret->minor) < 0 || p[8] != ' ')
        return -EBADMSG;
    for (i = 9; i < 12; i++) {
        if (p[i] < '0' || p[i] > '9')
            return -EBADMSG;
        ret->status = ret->status * 10 + (p[i] - '0');
    }
    if (ret->status < 100 || ret->status > 599 || (line > 14 && p[12] != ' '))
        return -EBADMSG;
    ret->line = (struct field){p, p + 12, 8, 0};
    if (line > 15) {
        ret->line.value = p + 13;
        ret->line.value_len = (uint32_t)(line - 15);
    }
    if (!value_valid(ret->line.value, ret->line.value_len) ||
        fields_parse(p + line, n - line, &ret->fields) < 0)
        return -EBADMSG;
    connection(ret);
    if (framing(ret) < 0)
        return -EBADMSG;
    if (ret->status < 200 || ret->status == 204 || ret->status == 304)
        ret->body = BODY_NONE;
    return 0;
}
