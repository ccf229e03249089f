/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* text - sizes, durations, names, hex, JSON strings. Input may be hostile; nothing here allocates
 * but buf. */
#include <ctype.h>

#include "util.h"

/* Reads decimal digits; at least one. Returns the first byte after them or NULL. */
static const char *digits(const char *s, uint64_t *ret)
{
    uint64_t v = 0;

    if (!isdigit((unsigned char)*s))
        return NULL;
    for (; isdigit((unsigned char)*s); s++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
            return NULL;
    *ret = v;
    return s;
}

struct unit {
    const char *suffix;
    uint64_t factor;
};

static int parse_units(const char *s, const struct unit *units, size_t n, uint64_t *ret)
{
    const char *rest;
    uint64_t v;
    size_t i;

    rest = digits(s, &v);
    if (!rest)
        return isdigit((unsigned char)*s) ? -ERANGE : -EINVAL;
    for (i = 0; i < n; i++)
        if (!strcmp(rest, units[i].suffix))
            return __builtin_mul_overflow(v, units[i].factor, ret) || *ret > INT64_MAX ? -ERANGE
                                                                                       : 0;
    return -EINVAL;
}

int parse_size(const char *s, uint64_t *ret)
{
    static const struct unit units[] = {
        {"", 1},           {"B", 1},          {"K", 1u << 10},   {"M", 1u << 20},
        {"G", 1u << 30},   {"T", 1ull << 40}, {"KiB", 1u << 10}, {"MiB", 1u << 20},
        {"GiB", 1u << 30}, {"k", 1u << 10},   {"m", 1u << 20},   {"g", 1u << 30},
    };
    uint64_t v;
    int r = parse_units(s, units, ARRAY_LEN(units), &v);

    if (r == 0)
        *ret = v;
    return r;
}

int parse_duration(const char *s, uint64_t *ret_ns)
{
    static const struct unit units[] = {
        {"", 1000000000u},  {"ns", 1},           {"us", 1000},          {"ms", 1000000},
        {"s", 1000000000u}, {"m", 60000000000u}, {"h", 3600000000000u}, {"d", 86400000000000u},
    };
    uint64_t v;
    int r = parse_units(s, units, ARRAY_LEN(units), &v);

    if (r == 0)
        *ret_ns = v;
    return r;
}

int parse_i64(const char *s, int64_t *ret)
{
    int negative = *s == '-';
    const char *rest;
    uint64_t v;

    rest = digits(s + negative, &v);
    if (!rest)
        return isdigit((unsigned char)s[negative]) ? -ERANGE : -EINVAL;
    if (*rest)
        return -EINVAL;
    if (v > (uint64_t)INT64_MAX + (uint64_t)negative)
        return -ERANGE;
    *ret = negative ? (int64_t)(0 - v) : (int64_t)v;
    return 0;
}

int name_valid(const char *s)
{
    size_t i;

    if (!isalnum((unsigned char)s[0]))
        return 0;
    for (i = 1; s[i]; i++)
        if (i > 62 || (!isalnum((unsigned char)s[i]) && !strchr("_.-", s[i])))
            return 0;
    return 1;
}

void hex_encode(const void *in, size_t len, char *out)
{
    static const char hex[] = "0123456789abcdef";
    const uint8_t *p = in;
    size_t i;

    for (i = 0; i < len; i++) {
        out[2 * i] = hex[p[i] >> 4];
        out[2 * i + 1] = hex[p[i] & 15];
    }
    out[2 * len] = 0;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int hex_decode(const char *s, void *out, size_t len)
{
    uint8_t *p = out;
    size_t i;

    for (i = 0; i < len; i++) {
        int hi = hex_digit(s[2 * i]), lo = hi < 0 ? -1 : hex_digit(s[2 * i + 1]);
        if (lo < 0)
            return -EINVAL;
        p[i] = (uint8_t)(hi << 4 | lo);
    }
    return s[2 * len] ? -EINVAL : 0;
}

/* Length of the valid UTF-8 sequence at s (1…4) and its code point, or 0. */
static size_t utf8_next(const uint8_t *s, size_t len, uint32_t *cp)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80             ? 1
               : (s[0] & 0xe0) == 0xc0 ? 2
               : (s[0] & 0xf0) == 0xe0 ? 3
               : (s[0] & 0xf8) == 0xf0 ? 4
                                       : 0;
    size_t i;

    if (!n || n > len)
        return 0;
    *cp = n == 1 ? s[0] : s[0] & (0xffu >> (n + 1));
    for (i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        *cp = *cp << 6 | (s[i] & 0x3f);
    }
    return *cp < least[n] || *cp > 0x10ffff || (*cp >= 0xd800 && *cp < 0xe000) ? 0 : n;
}

/* Characters that may change how a terminal or an editor shows what surrounds them. */
static int is_unsafe(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x2028 || cp == 0x2029 ||
           (cp >= 0x200e && cp <= 0x200f) || (cp >= 0x202a && cp <= 0x202e) ||
           (cp >= 0x2066 && cp <= 0x2069) || cp == 0xfeff;
}

int buf_json_string(struct buf *b, const char *s, size_t len)
{
    const uint8_t *p = (const uint8_t *)s;
    size_t i = 0;

    buf_add(b, "\"", 1);
    while (i < len) {
        uint32_t cp = 0;
        size_t n = utf8_next(p + i, len - i, &cp);
        if (n ==
            0) { /* a byte that is no UTF-8 keeps its value, as the code point of the same number */
            buf_addf(b, "\\u00%02x", p[i]);
            n = 1;
        } else if (is_unsafe(cp)) {
            buf_addf(b, "\\u%04x", cp);
        } else if (cp == '"' || cp == '\\') {
            buf_addf(b, "\\%c", (int)cp);
        } else {
            buf_add(b, p + i, n);
        }
        i += n;
    }
    return buf_add(b, "\"", 1);
}
