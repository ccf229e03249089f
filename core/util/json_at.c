/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * json_at - JSON text with places.
 *
 * jansson parses and decides what is valid; it keeps no places. When something about a value is
 * wrong, the text is walked once more to the JSON pointer of the value. The walk trusts that the
 * text is valid (jansson accepted it), yet never reads beyond its end, and it has no recursion, so
 * its stack does not depend on the text. Text in messages may come from a stranger: only printable
 * ASCII of it is shown. Threads: no state.
 */
#include <stdarg.h>

#include "json_at.h"

struct cursor {
    const char *p, *end;
};

/* ------------------------------------------------------------------ messages */

/* Copies what a terminal can be shown; everything else becomes '?'. */
static void show(char *out, size_t cap, const char *s)
{
    size_t i;

    for (i = 0; s[i] && i + 1 < cap; i++)
        out[i] = s[i] >= 0x20 && s[i] < 0x7f ? s[i] : '?';
    out[i] = 0;
}

static void place(const char *text, size_t offset, unsigned *ret_line, unsigned *ret_col)
{
    unsigned line = 1, col = 1;
    size_t i;

    for (i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            line++;
            col = 1;
        } else {
            col++;
        }
    }
    *ret_line = line;
    *ret_col = col;
}

static int is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* jansson reports the end of the offending token; its message quotes the token after "near '". */
static size_t token_start(const char *text, size_t len, const json_error_t *e)
{
    size_t pos = e->position < 0 ? 0 : (size_t)e->position < len ? (size_t)e->position : len;
    const char *near_ = strstr(e->text, "near '"), *close_;
    size_t n;

    if (!near_)
        return pos;
    near_ += strlen("near '");
    close_ = strrchr(near_, '\'');
    n = close_ ? (size_t)(close_ - near_) : 0;
    if (n && n <= pos && !memcmp(text + pos - n, near_, n))
        return pos - n;
    return pos;
}

/* What people write that JSON does not have. "" when nothing is recognised. */
static const char *hint(const char *text, size_t len, size_t at)
{
    size_t before = at;

    while (before > 0 && is_space(text[before - 1]))
        before--;
    if (at < len && (text[at] == '}' || text[at] == ']') && before > 0 && text[before - 1] == ',')
        return "; JSON has no trailing comma: remove the ',' before this bracket";
    if (at < len && (text[at] == '#' || text[at] == '/'))
        return "; JSON has no comments: remove this one";
    if (at < len && text[at] == '\'')
        return "; JSON strings are written with double quotes";
    if (at == 0 && len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        return "; remove the byte order mark at the start of the file";
    return "";
}

static int fail_syntax(const char *file, const char *text, size_t len, const json_error_t *e,
                       struct cella_error *err)
{
    size_t at = token_start(text, len, e);
    char what[JSON_ERROR_TEXT_LENGTH], name[256];
    unsigned line, col;

    place(text, at, &line, &col);
    show(what, sizeof(what),
         strstr(e->text, "JSON_ALLOW_NUL") ? "\\u0000 is not allowed" : e->text);
    show(name, sizeof(name), file);
    return fail(err, -EINVAL, "%s:%u:%u: not valid JSON: %s%s", name, line, col, what,
                hint(text, len, at));
}

int json_at_parse(const char *file, const char *text, size_t len, struct json_at *ret,
                  struct cella_error *err)
{
    json_error_t e;
    json_t *root;

    if (len > JSON_AT_MAX)
        return fail(err, -EFBIG, "%s: is %zu bytes long; at most %zu are accepted", file, len,
                    (size_t)JSON_AT_MAX);
    root = json_loadb(len ? text : "", len, JSON_REJECT_DUPLICATES, &e);
    if (!root)
        return fail_syntax(file, text, len, &e, err);
    *ret = (struct json_at){.file = file, .text = text, .len = len, .root = root};
    return 0;
}

void json_at_fini(struct json_at *j)
{
    if (!j)
        return;
    json_decref(j->root);
    *j = (struct json_at){0};
}

/* --------------------------------------------------------------- the walk */

static void skip_space(struct cursor *c)
{
    while (c->p < c->end && is_space(*c->p))
        c->p++;
}

/* At an opening quote; ends behind the closing one. */
static void skip_string(struct cursor *c)
{
    for (c->p++; c->p < c->end && *c->p != '"'; c->p++)
        if (*c->p == '\\' && c->p + 1 < c->end)
            c->p++;
    if (c->p < c->end)
        c->p++;
}

static void skip_value(struct cursor *c)
{
    unsigned depth = 0;

    while (c->p < c->end) {
        if (*c->p == '"') {
            skip_string(c);
            if (!depth)
                return;
            continue;
        }
        if (*c->p == '{' || *c->p == '[') {
            depth++;
        } else if (*c->p == '}' || *c->p == ']') {
            if (!depth)
                return; /* end of the container around a number or word */
            if (--depth == 0) {
                c->p++;
                return;
            }
        } else if (!depth && (*c->p == ',' || is_space(*c->p))) {
            return;
        }
        c->p++;
    }
}

static uint32_t hex4(const char *s, const char *end)
{
    uint32_t v = 0;
    int i;

    for (i = 0; i < 4 && s + i < end; i++) {
        char c = s[i];
        v = v << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return v;
}

static size_t utf8_encode(uint32_t cp, char out[4])
{
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4, i;

    for (i = n - 1; i > 0; i--, cp >>= 6)
        out[i] = (char)(0x80 | (cp & 0x3f));
    out[0] = (char)(lead[n] | cp);
    return n;
}

/* Next character of a string, decoded into `out`; returns its bytes. c->p is inside the quotes. */
static size_t next_char(struct cursor *c, char out[4])
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    const char *e;
    uint32_t cp;

    if (*c->p != '\\' || c->end - c->p < 2) {
        out[0] = *c->p++;
        return 1;
    }
    if (c->p[1] != 'u') {
        e = strchr(from, c->p[1]);
        out[0] = e && *e ? to[e - from] : c->p[1];
        c->p += 2;
        return 1;
    }
    cp = hex4(c->p + 2, c->end);
    c->p += c->end - c->p < 6 ? c->end - c->p : 6;
    if (cp >= 0xd800 && cp < 0xdc00 && c->end - c->p >= 6) {
        cp = 0x10000 + ((cp - 0xd800) << 10 | (hex4(c->p + 2, c->end) - 0xdc00));
        c->p += 6;
    }
    return utf8_encode(cp, out);
}

/* Next byte of a reference token, unescaped (~1 is '/', ~0 is '~'); -1 at its end. */
static int next_ref(const char **ref)
{
    const char *s = *ref;

    if (!*s || *s == '/')
        return -1;
    if (*s == '~' && (s[1] == '0' || s[1] == '1')) {
        *ref = s + 2;
        return s[1] == '1' ? '/' : '~';
    }
    *ref = s + 1;
    return (unsigned char)*s;
}

/* c at the opening quote of a name, ends behind the closing one. */
static int name_is(struct cursor *c, const char *ref)
{
    struct cursor at = {c->p + 1, c->end};
    int same = 1;

    skip_string(c);
    while (same && at.p < at.end && *at.p != '"') {
        char bytes[4];
        size_t n = next_char(&at, bytes), i;
        for (i = 0; same && i < n; i++)
            same = next_ref(&ref) == (unsigned char)bytes[i];
    }
    return same && next_ref(&ref) < 0;
}

/* c behind '{'. On success c is at the member's value and *ret_name at its name. */
static int enter_member(struct cursor *c, const char *ref, const char **ret_name)
{
    for (;;) {
        const char *name;
        int found;

        skip_space(c);
        if (c->p >= c->end || *c->p != '"')
            return -ENOENT;
        name = c->p;
        found = name_is(c, ref);
        skip_space(c);
        c->p += c->p < c->end; /* ':' */
        skip_space(c);
        if (found) {
            *ret_name = name;
            return 0;
        }
        skip_value(c);
        skip_space(c);
        if (c->p >= c->end || *c->p != ',')
            return -ENOENT;
        c->p++;
    }
}

/* c behind '['. */
static int enter_element(struct cursor *c, const char *ref)
{
    size_t index = 0, i;

    if (ref[0] == '0' && ref[1] && ref[1] != '/')
        return -ENOENT;
    if (!*ref || *ref == '/')
        return -ENOENT;
    for (; *ref && *ref != '/'; ref++)
        if (*ref < '0' || *ref > '9' || index > JSON_AT_MAX)
            return -ENOENT;
        else
            index = index * 10 + (size_t)(*ref - '0');
    skip_space(c);
    for (i = 0; i < index; i++) {
        if (c->p < c->end && *c->p == ']')
            return -ENOENT;
        skip_value(c);
        skip_space(c);
        if (c->p >= c->end || *c->p != ',')
            return -ENOENT;
        c->p++;
        skip_space(c);
    }
    return c->p < c->end && *c->p != ']' ? 0 : -ENOENT;
}

int json_at_locate(const struct json_at *j, const char *pointer, int key, unsigned *ret_line,
                   unsigned *ret_col)
{
    struct cursor c = {j->text, j->text + j->len};
    const char *name = NULL;

    skip_space(&c);
    while (*pointer) {
        int r = -ENOENT;

        if (*pointer++ != '/' || c.p >= c.end)
            return -ENOENT;
        name = NULL;
        if (*c.p == '{') {
            c.p++;
            r = enter_member(&c, pointer, &name);
        } else if (*c.p == '[') {
            c.p++;
            r = enter_element(&c, pointer);
        }
        if (r < 0)
            return r;
        pointer += strcspn(pointer, "/");
    }
    if (c.p >= c.end)
        return -ENOENT;
    place(j->text, (size_t)((key && name ? name : c.p) - j->text), ret_line, ret_col);
    return 0;
}

/* Place of the value, or of the nearest one around it that exists. */
static void locate_near(const struct json_at *j, const char *pointer, int key, unsigned *ret_line,
                        unsigned *ret_col)
{
    auto_free char *shorter = strdup(pointer);
    char *slash;

    *ret_line = *ret_col = 1;
    while (shorter && json_at_locate(j, shorter, key, ret_line, ret_col) < 0) {
        slash = strrchr(shorter, '/');
        if (!slash)
            return;
        *slash = 0;
        key = 0;
    }
}

int json_at_fail(const struct json_at *j, const char *pointer, int key, struct cella_error *err,
                 const char *fmt, ...)
{
    char what[768], where[256], name[256];
    unsigned line, col;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    show(where, sizeof(where), pointer);
    if (!j || !j->root)
        return fail(err, -EINVAL, "%s%s%s", where, *where ? ": " : "", what);
    locate_near(j, pointer, key, &line, &col);
    show(name, sizeof(name), j->file);
    return fail(err, -EINVAL, "%s:%u:%u: %s%s%s", name, line, col, where, *where ? ": " : "", what);
}
