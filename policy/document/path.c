/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * path - request paths in one spelling, and the patterns of rules.
 *
 * A server may read "/a/%2e%2e/b", "/a//b", "/a/..;/b" or "/a%2fb" differently from us, and every
 * such difference is a way around a path rule. So escapes of unreserved characters are undone, the
 * rest is compared as written, and what two readers could take for two paths has no canonical form.
 *
 * Invariant: a canonical path begins with "/", holds no empty segment but a last one, no segment "."
 * or "..", no encoded separator. Threads: none needed.
 */
#include <errno.h>
#include <string.h>

#include "table_int.h"

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int unreserved(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

/* One character or escape at *s to *out. 0 or -EINVAL. */
static int step(const char **s, char **out)
{
    static const char digits[] = "0123456789ABCDEF";
    int hi, lo, c;

    c = (unsigned char)**s;
    if (c <= ' ' || c >= 0x7f || c == '\\' || c == '#')
        return -EINVAL;
    if (c != '%') {
        *(*out)++ = *(*s)++;
        return 0;
    }
    hi = hex((*s)[1]);
    lo = hi < 0 ? -1 : hex((*s)[2]);
    if (lo < 0)
        return -EINVAL;
    c = hi << 4 | lo;
    if (c < ' ' || c == 0x7f || c == '/' || c == '\\' || c == '%')
        return -EINVAL;
    *s += 3;
    if (unreserved(c)) {
        *(*out)++ = (char)c;
        return 0;
    }
    *(*out)++ = '%';
    *(*out)++ = digits[hi];
    *(*out)++ = digits[lo];
    return 0;
}

/* Segments of a canonical candidate: none empty but the last, none that some server walks up by. */
static int segments_plain(const char *path)
{
    const char *s = path;

    while (*s == '/') {
        size_t n = strcspn(++s, "/"), dots = strspn(s, ".");
        if (!n && s[n])
            return 0;
        if (dots && dots <= 2 && (dots == n || s[dots] == ';'))
            return 0;
        s += n;
    }
    return 1;
}

int policy_path_canon(const char *path, char out[POLICY_PATH_MAX])
{
    char *o = out;

    if (*path != '/')
        return -EINVAL;
    while (*path && *path != '?') {
        if (o - out > (long)POLICY_PATH_MAX - 4 || step(&path, &o) < 0)
            return -EINVAL;
    }
    *o = 0;
    return segments_plain(out) ? 0 : -EINVAL;
}

int policy_path_match(const char *pattern, const char *path)
{
    for (;;) {
        size_t n = strcspn(pattern, "/"), m = strcspn(path, "/");
        if (!strcmp(pattern, "**"))
            return 1;
        if (n == 1 && *pattern == '*' ? !m : n != m || memcmp(pattern, path, n) != 0)
            return 0;
        pattern += n;
        path += m;
        if (!*pattern || !*path)
            return !*pattern && !*path;
        pattern++;
        path++;
    }
}

const char *policy_path_pattern(const char *pattern)
{
    char out[POLICY_PATH_MAX];
    const char *s;

    if (strlen(pattern) > POLICY_TEXT_MAX)
        return "is longer than 1024 bytes";
    if (*pattern != '/')
        return "must begin with \"/\"";
    if (strchr(pattern, '?'))
        return "names a query, which rules do not look at; end it before the \"?\"";
    if (policy_path_canon(pattern, out) < 0 || strcmp(pattern, out) != 0)
        return "is not in canonical form: no empty or dot segments, no encoded separators, no "
               "needless or lower-case escapes, nothing outside printable ASCII";
    for (s = pattern; (s = strchr(s, '*')); s++) {
        if (s[1] == '*' && !s[2] && s[-1] == '/')
            return NULL;
        if (s[-1] != '/' || (s[1] && s[1] != '/'))
            return "has a \"*\" inside a segment; \"*\" stands for one whole segment, and "
                   "\"/**\" at the end for everything below";
    }
    return NULL;
}
