/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * line - one event to one canonical line of JSON.
 *
 * The keys v, chain, seq, ts, prev, kind come first and are the core's; then the event's own fields
 * in the order given. Strings come from workloads and may be anything: they are cut at
 * CELLA_EVENT_STR_MAX bytes and escaped, so no byte of them can end the string, the line or the
 * terminal's mode. A field with a reserved, malformed or repeated name, an unknown type, or one
 * more than fits is left out and counted in "dropped_fields"; a cut string's name is listed in
 * "truncated". Both keys are reserved, so no event can claim or hide them. Invariant: a line is at
 * most LINE_MAX_BYTES long and has no newline. Threads: no state.
 */
#include <sodium.h>
#include <time.h>

#include "chain.h"

#define FIELD_NAME_MAX 63
#define FIELDS_BYTES                                                                               \
    (LINE_MAX_BYTES - 8192u) /* leaves room for the head and for the lists at the end */

static const char *const reserved[] = {"v",    "chain", "seq",       "ts",
                                       "prev", "kind",  "truncated", "dropped_fields"};

int chain_name_valid(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789");

    return n > 0 && n <= CHAIN_NAME_MAX && !s[n];
}

int kind_valid(const char *s)
{
    size_t n = s ? strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") : 0;

    return n > 0 && n < 64 && !s[n] && s[0] != '.' && s[n - 1] != '.';
}

static int field_name_valid(const char *s)
{
    size_t n = s ? strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0, i;

    if (n == 0 || n > FIELD_NAME_MAX || s[n])
        return 0;
    for (i = 0; i < ARRAY_LEN(reserved); i++)
        if (!strcmp(s, reserved[i]))
            return 0;
    return 1;
}

static const struct cella_field *field_at(const struct cella_field *fields, uint32_t stride,
                                          uint32_t i)
{
    return (const struct cella_field *)(const void *)((const char *)fields + (size_t)i * stride);
}

/* Bytes of s to keep: at most the bound, not through a UTF-8 sequence. */
static size_t keep_bytes(const char *s, uint64_t len)
{
    size_t n, i;

    if (len <= CELLA_EVENT_STR_MAX)
        return (size_t)len;
    n = CELLA_EVENT_STR_MAX;
    for (i = 0; i < 3 && ((unsigned char)s[n] & 0xc0) == 0x80; i++)
        n--;
    return n;
}

static int value_add(struct buf *b, const struct cella_field *f, int *ret_cut)
{
    size_t n;

    *ret_cut = 0;
    switch (f->type) {
    case CELLA_FIELD_INT:
        return buf_addf(b, "%lld", (long long)f->i64);
    case CELLA_FIELD_BOOL:
        return buf_addf(b, "%s", f->i64 ? "true" : "false");
    case CELLA_FIELD_STR:
        if (!f->str.ptr && f->str.len)
            return -EINVAL;
        n = keep_bytes(f->str.ptr, f->str.len);
        *ret_cut = n < f->str.len;
        return buf_json_string(b, f->str.ptr ? f->str.ptr : "", n);
    default:
        return -EINVAL;
    }
}

/* ,"name":value — or nothing and -errno. */
static int field_add(struct buf *out, const struct cella_field *f, int *ret_cut)
{
    size_t before = out->len;
    int r;

    buf_addf(out, ",\"%s\":", f->name);
    r = value_add(out, f, ret_cut);
    if (r == 0 && out->len > FIELDS_BYTES)
        r = -E2BIG;
    if (r < 0 && !out->oom) {
        out->len = before;
        out->ptr[before] = 0;
    }
    return r;
}

static int name_seen(const char *const *names, uint32_t n, const char *name)
{
    uint32_t i;

    for (i = 0; i < n; i++)
        if (!strcmp(names[i], name))
            return 1;
    return 0;
}

static void fields_add(struct buf *out, const struct cella_field *fields, uint32_t n,
                       uint32_t stride)
{
    const char *names[CELLA_EVENT_FIELDS_MAX], *cut[CELLA_EVENT_FIELDS_MAX];
    uint32_t i, kept = 0, n_cut = 0, dropped = 0;

    for (i = 0; i < n; i++) {
        const struct cella_field *f;
        int is_cut;

        if (i >= CELLA_EVENT_FIELDS_MAX) {
            dropped += n - i;
            break;
        }
        f = field_at(fields, stride, i);
        if (!field_name_valid(f->name) || name_seen(names, kept, f->name) ||
            field_add(out, f, &is_cut) < 0) {
            dropped++;
            continue;
        }
        names[kept++] = f->name;
        if (is_cut)
            cut[n_cut++] = f->name;
    }
    for (i = 0; i < n_cut; i++)
        buf_addf(out, "%s\"%s\"", i ? "," : ",\"truncated\":[", cut[i]);
    if (n_cut)
        buf_add(out, "]", 1);
    if (dropped)
        buf_addf(out, ",\"dropped_fields\":%u", dropped);
}

static void time_text(uint64_t ns, char out[40])
{
    time_t s = (time_t)(ns / 1000000000u);
    struct tm tm;
    size_t n;

    gmtime_r(&s, &tm);
    n = strftime(out, 40, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, 40 - n, ".%06uZ", (unsigned)(ns % 1000000000u / 1000));
}

int line_render(struct buf *out, const struct line_head *head, const struct cella_field *fields,
                uint32_t n, uint32_t stride)
{
    char ts[40];

    time_text(head->ts_ns, ts);
    buf_addf(out,
             "{\"v\":1,\"chain\":\"%s\",\"seq\":%llu,\"ts\":\"%s\",\"prev\":\"%s\",\"kind\":\"%s\"",
             head->chain, (unsigned long long)head->seq, ts, head->prev, head->kind);
    fields_add(out, fields, n, stride);
    return buf_add(out, "}", 1);
}

void line_hash(const char *line, size_t len, char ret_hex[HASH_HEX])
{
    unsigned char h[crypto_hash_sha256_BYTES];

    _Static_assert(crypto_hash_sha256_BYTES == HASH_LEN, "SHA-256");
    crypto_hash_sha256(h, (const unsigned char *)line, len);
    hex_encode(h, sizeof(h), ret_hex);
}

struct cella_field field_str(const char *name, const char *value)
{
    return (struct cella_field){
        .name = name, .type = CELLA_FIELD_STR, .str = {value, strlen(value)}};
}

struct cella_field field_int(const char *name, int64_t value)
{
    return (struct cella_field){.name = name, .type = CELLA_FIELD_INT, .i64 = value};
}

uint32_t fields_collect(va_list ap, struct cella_field *fields, uint32_t max)
{
    const char *spec, *text;
    uint32_t n = 0;

    while ((spec = va_arg(ap, const char *))) {
        struct cella_field f = {.name = spec + 2};

        if (spec[0] == 's') {
            text = va_arg(ap, const char *);
            if (!text)
                continue;
            f.type = CELLA_FIELD_STR;
            f.str = (struct cella_span){text, strlen(text)};
        } else if (spec[0] == 'i') {
            f.type = CELLA_FIELD_INT;
            f.i64 = va_arg(ap, int64_t);
        } else {
            f.type = CELLA_FIELD_BOOL;
            f.i64 = va_arg(ap, int);
        }
        if (n < max)
            fields[n++] = f;
    }
    return n;
}
