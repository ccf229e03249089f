/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * h2msg - messages of HTTP/2: each request's authority compared, the request judged, then given to its twin.
 *
 * libnghttp2 has checked the syntax (pseudo-fields, case, no connection fields, lengths). Should: compare
 * the authority of every field block, because one connection may be used for many names; keep what is injected
 * out of the compression tables. Mustn't: let CONNECT pass; forward a push.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "h2.h"

static nghttp2_nv nva[HEAD_FIELDS_ROOM + 4];

struct block *block_new(void)
{
    return calloc(1, sizeof(struct block));
}

void block_free(struct block *b)
{
    if (!b)
        return;
    arena_fini(&b->arena);
    free(b);
}

static const char **pseudo(struct block *b, const uint8_t *name, size_t n)
{
    struct {
        const char *name;
        const char **to;
    } const known[] = {
        {":method", &b->method}, {":path", &b->path},     {":authority", &b->authority},
        {":scheme", &b->scheme}, {":status", &b->status},
    };
    size_t i;

    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (slice_is((const char *)name, n, known[i].name))
            return known[i].to;
    return NULL;
}

int block_add(struct block *b, const uint8_t *name, size_t name_len, const uint8_t *value,
              size_t value_len)
{
    const char **to = name_len && *name == ':' ? pseudo(b, name, name_len) : NULL;
    char *p;

    b->bytes += name_len + value_len + 32;
    if (b->bytes > HEAD_BYTES_MAX || (!to && (*name == ':' || b->fields.n == HEAD_FIELDS_MAX)) ||
        memchr(value, 0, value_len))
        return -E2BIG;
    p = arena_take(&b->arena, name_len + value_len + 1);
    if (!p)
        return -ENOMEM;
    memcpy(p, name, name_len);
    p[name_len] = 0;
    memcpy(p + name_len + 1, value, value_len);
    if (to)
        *to = p + name_len + 1;
    else
        b->fields.f[b->fields.n++] =
            (struct field){p, p + name_len + 1, (uint32_t)name_len, (uint32_t)value_len};
    return 0;
}

/* ------------------------------------------------------------ name values */

static nghttp2_nv nv(const char *name, size_t name_len, const char *value, size_t value_len)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, name_len,
                        value_len, NGHTTP2_NV_FLAG_NONE};
}

static size_t put_pseudo(size_t n, const char *name, const char *value)
{
    nva[n] = nv(name, strlen(name), value, strlen(value));
    return n + 1;
}

static size_t put_fields(size_t n, const struct fields *f, const struct policy_rule *rule)
{
    unsigned i, k;

    for (i = 0; i < f->n; i++, n++) {
        nva[n] = nv(f->f[i].name, f->f[i].name_len, f->f[i].value, f->f[i].value_len);
        for (k = 0; rule && k < rule->n_inject; k++)
            if (field_is(&f->f[i], rule->inject[k].surface == POLICY_SURFACE_BASIC
                                       ? "authorization"
                                       : rule->inject[k].name))
                nva[n].flags = NGHTTP2_NV_FLAG_NO_INDEX;
    }
    return n;
}

/* ---------------------------------------------------------------- denials */

void h2_deny(struct stream *s, uint32_t reason)
{
    nghttp2_session *cell = s->f->h2->s[TO_CELL];
    nghttp2_data_provider p = h2_provider(s);
    struct denial d;
    char status[8], length[16];
    size_t n = 0;
    int head = s->judged.method[0] && !strcmp(s->judged.method, "HEAD");

    deny_text(s->f, reason, &d);
    snprintf(status, sizeof(status), "%d", d.status);
    snprintf(length, sizeof(length), "%zu", strlen(d.text));
    s->local = s->answered = s->ended[TO_CELL] = 1;
    n = put_pseudo(n, ":status", status);
    n = put_pseudo(n, "x-cella-denied", d.header);
    n = put_pseudo(n, "content-type", "text/plain");
    n = put_pseudo(n, "cache-control", "no-store");
    n = put_pseudo(n, "content-length", length);
    if (!head && bytes_add(&s->body[TO_CELL], d.text, strlen(d.text)) < 0)
        h2_reset(s, TO_CELL, NGHTTP2_INTERNAL_ERROR);
    else if (nghttp2_submit_response(cell, s->id[TO_CELL], nva, n, head ? NULL : &p) != 0)
        h2_reset(s, TO_CELL, NGHTTP2_INTERNAL_ERROR);
}

/* --------------------------------------------------------------- requests */

static uint32_t check(struct flow *f, struct block *b)
{
    unsigned hosts;
    const struct field *host = fields_find(&b->fields, "host", &hosts);

    if (!b->method || !token_valid(b->method, strlen(b->method)) || strlen(b->method) >= METHOD_MAX)
        return REASON_BAD_REQUEST;
    if (!strcmp(b->method, "CONNECT"))
        return REASON_METHOD_PATH;
    if (!b->scheme || strcmp(b->scheme, "https") != 0 || !b->path ||
        !target_valid(b->path, strlen(b->path), !strcmp(b->method, "OPTIONS")) || hosts > 1 ||
        (!b->authority && !host))
        return REASON_BAD_REQUEST;
    if ((b->authority && !authority_is(b->authority, strlen(b->authority), f->name, f->port)) ||
        (host && !authority_is(host->value, host->value_len, f->name, f->port)))
        return REASON_HOST_MISMATCH;
    return REASON_NONE;
}

static void tidy(struct block *b)
{
    const struct field *te = fields_find(&b->fields, "te", NULL);

    if (te && !slice_is(te->value, te->value_len, "trailers"))
        fields_drop(&b->fields, "te");
    fields_drop(&b->fields, "host");
    fields_drop(&b->fields, "proxy-authorization");
}

static int forward(struct stream *s, struct block *b, const struct policy_rule *rule, int end)
{
    nghttp2_data_provider p = h2_provider(s);
    char authority[ENGINE_NAME_MAX + 8];
    size_t n = 0;
    int32_t id;

    snprintf(authority, sizeof(authority), s->f->port == 443 ? "%s" : "%s:%u", s->f->name,
             s->f->port);
    n = put_pseudo(n, ":method", b->method);
    n = put_pseudo(n, ":scheme", "https");
    n = put_pseudo(n, ":authority", b->authority ? b->authority : authority);
    n = put_pseudo(n, ":path", b->path);
    n = put_fields(n, &b->fields, rule);
    id = nghttp2_submit_request(s->f->h2->s[TO_UP], NULL, nva, n, end ? NULL : &p, s);
    if (id < 0)
        return -EIO;
    s->id[TO_UP] = id;
    return 0;
}

void h2_request(struct stream *s, int end)
{
    struct block *b = s->block[TO_UP];
    struct flow *f = s->f;
    const struct policy_rule *rule = NULL;
    uint32_t reason = check(f, b);

    s->block[TO_UP] = NULL;
    s->ended[TO_UP] = end;
    if (b->method && b->path && strlen(b->method) < METHOD_MAX)
        judged_set(&s->judged, b->method, b->path, strlen(b->path), 0);
    tidy(b);
    if (reason == REASON_NONE && f->refused)
        reason = f->refused;
    else if (reason == REASON_NONE)
        reason = judge_request(f, &s->judged, &b->fields, &b->arena, &rule);
    if (reason != REASON_NONE) {
        if (!f->refused)
            deny_event(f, reason, rule, &s->judged);
        h2_deny(s, reason);
    } else if (f->h2->going) {
        h2_reset(s, TO_CELL, NGHTTP2_REFUSED_STREAM); /* the cell may safely try again */
    } else {
        snprintf(f->rule, sizeof(f->rule), "%s", rule->id);
        if (forward(s, b, rule, end) < 0)
            h2_reset(s, TO_CELL, NGHTTP2_INTERNAL_ERROR);
    }
    block_free(b);
}

/* -------------------------------------------------------------- responses */

void h2_response(struct stream *s, int end)
{
    struct block *b = s->block[TO_CELL];
    nghttp2_session *cell = s->f->h2->s[TO_CELL];
    nghttp2_data_provider p = h2_provider(s);
    size_t n = 0;
    int r = -1, early = b->status && b->status[0] == '1';

    s->block[TO_CELL] = NULL;
    s->ended[TO_CELL] = end;
    fields_drop(&b->fields, "x-cella-denied");
    fields_drop(&b->fields, "alt-svc");
    if (s->id[TO_CELL] && b->status && judge_redact(s->f, &b->fields, &b->arena) == 0) {
        n = put_pseudo(n, ":status", b->status);
        n = put_fields(n, &b->fields, NULL);
        r = early ? nghttp2_submit_headers(cell, NGHTTP2_FLAG_NONE, s->id[TO_CELL], NULL, nva, n,
                                           NULL)
                  : nghttp2_submit_response(cell, s->id[TO_CELL], nva, n, end ? NULL : &p);
        s->answered |= !early;
    }
    if (r < 0)
        h2_reset(s, TO_CELL, NGHTTP2_INTERNAL_ERROR);
    block_free(b);
}

void h2_trailer(struct stream *s, int dir)
{
    struct block *b = s->block[dir];
    unsigned i, to = 0;
    int r = 0;

    s->block[dir] = NULL;
    for (i = 0; i < b->fields.n; i++)
        if (trailer_allowed(&b->fields.f[i]))
            b->fields.f[to++] = b->fields.f[i];
    b->fields.n = to;
    if (dir == TO_UP)
        r = judge_trailers(s->f, &s->judged, &b->fields);
    else
        r = judge_redact(s->f, &b->fields, &b->arena);
    block_free(s->trailer[dir]);
    s->trailer[dir] = b;
    s->ended[dir] = 1;
    if (r < 0)
        h2_reset(s, dir, NGHTTP2_INTERNAL_ERROR);
    else
        h2_resume(s, dir);
}

void h2_submit_trailer(struct stream *s, int dir)
{
    struct block *b = s->trailer[dir];
    size_t n = put_fields(0, &b->fields, NULL);

    s->trailer[dir] = NULL;
    if (nghttp2_submit_trailer(s->f->h2->s[dir], s->id[dir], nva, n) != 0)
        h2_reset(s, dir, NGHTTP2_INTERNAL_ERROR);
    block_free(b);
}
