/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * scan - the lines of an audit file, bounded and parsed.
 *
 * The file may be anything: memory does not depend on it but for one line of LINE_MAX_BYTES, and a
 * line counts only when it is one JSON object without duplicate keys that has every key of a record
 * in its type. Threads: no state.
 */
#include <fcntl.h>

#include <jansson.h>

#include "chain.h"

struct scanner {
    int fd;
    int eof;
    size_t start, end;
    char buf[2 * LINE_MAX_BYTES];
};

int scanner_open(const char *file, struct scanner **ret, struct cella_error *err)
{
    struct scanner *s = malloc(sizeof(*s));

    if (!s)
        return fail(err, -ENOMEM, "out of memory");
    s->eof = 0;
    s->start = s->end = 0;
    s->fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (s->fd < 0) {
        int e = -errno;
        free(s);
        return fail(err, e, "cannot read audit file %s: %s", file, strerror(-e));
    }
    *ret = s;
    return 0;
}

void scanner_free(struct scanner *s)
{
    if (s)
        close(s->fd);
    free(s);
}

/* Reads until there is a newline, more than a line's bytes, or the end. 1 a newline at *ret_len, 0
 * none. */
static int fill(struct scanner *s, size_t *ret_len)
{
    size_t seen = s->start;

    for (;;) {
        const char *nl = memchr(s->buf + seen, '\n', s->end - seen);
        ssize_t n;

        *ret_len = (nl ? (size_t)(nl - s->buf) : s->end) - s->start;
        if (nl || s->eof || *ret_len > LINE_MAX_BYTES)
            return nl != NULL;
        memmove(s->buf, s->buf + s->start, s->end - s->start);
        s->end -= s->start;
        s->start = 0;
        seen = s->end;
        n = read(s->fd, s->buf + s->end, sizeof(s->buf) - s->end);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        s->end += (size_t)n;
        s->eof = n == 0;
    }
}

static int get_text(const json_t *o, const char *key, char *out, size_t cap)
{
    const char *s = json_string_value(json_object_get(o, key));

    if (!s || strlen(s) >= cap)
        return -EBADMSG;
    memcpy(out, s, strlen(s) + 1);
    return 0;
}

static int get_count(const json_t *o, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(o, key);

    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return -EBADMSG;
    *out = (uint64_t)json_integer_value(v);
    return 0;
}

static int hash_text(const char *s)
{
    return strlen(s) == HASH_HEX - 1 && strspn(s, "0123456789abcdef") == HASH_HEX - 1;
}

/* Optional members; one of the wrong type stays empty and fails the check of its kind. */
static void read_extras(const json_t *o, struct scanned *ret)
{
    uint64_t closed = 0;

    get_count(o, "last_seq", &ret->last_seq);
    get_count(o, "head_seq", &ret->head_seq);
    get_count(o, "lost", &ret->lost);
    get_count(o, "cell_seq", &ret->cell_seq);
    get_count(o, "closed", &closed);
    ret->closed = closed != 0;
    get_text(o, "last", ret->last, sizeof(ret->last));
    get_text(o, "head", ret->head, sizeof(ret->head));
    get_text(o, "key", ret->key, sizeof(ret->key));
    get_text(o, "sig", ret->sig, sizeof(ret->sig));
    get_text(o, "cell", ret->cell, sizeof(ret->cell));
    get_text(o, "cell_head", ret->cell_head, sizeof(ret->cell_head));
}

static int parse(const char *text, size_t len, struct scanned *ret, char why[128])
{
    json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    const char *what = NULL;
    uint64_t v;
    char ts[40];

    if (!json_is_object(o))
        what = "is not a JSON object";
    else if (get_count(o, "v", &v) < 0 || v != 1)
        what = "has no \"v\":1";
    else if (get_text(o, "chain", ret->chain, sizeof(ret->chain)) < 0 ||
             !chain_name_valid(ret->chain))
        what = "has no valid \"chain\"";
    else if (get_count(o, "seq", &ret->seq) < 0 || ret->seq == 0)
        what = "has no valid \"seq\"";
    else if (get_text(o, "ts", ts, sizeof(ts)) < 0)
        what = "has no valid \"ts\"";
    else if (get_text(o, "prev", ret->prev, sizeof(ret->prev)) < 0 || !hash_text(ret->prev))
        what = "has no valid \"prev\"";
    else if (get_text(o, "kind", ret->kind, sizeof(ret->kind)) < 0 || !kind_valid(ret->kind))
        what = "has no valid \"kind\"";
    else
        read_extras(o, ret);
    json_decref(o);
    if (!what)
        return 0;
    snprintf(why, 128, "%s", what);
    return -EBADMSG;
}

int scanner_next(struct scanner *s, struct scanned *ret, char why[128])
{
    size_t len = 0;
    int whole = fill(s, &len), r;

    if (whole < 0)
        return whole;
    memset(ret, 0, sizeof(*ret));
    if (!whole && len == 0)
        return 0;
    line_hash(s->buf + s->start, len, ret->hash);
    if (len > LINE_MAX_BYTES) {
        snprintf(why, 128, "is longer than %u bytes", LINE_MAX_BYTES);
        return -EBADMSG;
    }
    if (!whole) {
        snprintf(why, 128, "has no newline at its end: the file was cut inside it");
        s->start = s->end;
        return -EBADMSG;
    }
    r = parse(s->buf + s->start, len, ret, why);
    s->start += len + 1;
    return r < 0 ? r : 1;
}
