/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * judge - may this request pass, and what is put into it; and what must not come back.
 *
 * The verdict is the table's (policy_http_find). Injection follows a verdict, never makes one. Should: inject
 * only over verified TLS, only the secrets the matched rule names; remove the cell's own copy of a
 * header that is set. Mustn't: touch a placeholder in a request no rule brokers; put a value anywhere but in the
 * named header; follow a redirect.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http.h"

#define BASIC_MAX 6144u

static const char redacted[] = "[redacted]";

/* `value` with every `what` replaced. *ret_hit: something was. 0 or -ENOMEM. */
static int replace(struct arena *arena, const char **value, uint32_t *len, const char *what,
                   size_t what_len, const char *by, size_t by_len, int *ret_hit)
{
    const char *p = *value, *end = p + *len, *hit;
    size_t count = 0, at = 0;
    char *out;

    for (hit = p; (hit = memmem(hit, (size_t)(end - hit), what, what_len)); hit += what_len)
        count++;
    *ret_hit = count > 0;
    if (!count)
        return 0;
    if (*len + count * by_len > HEAD_BYTES_MAX)
        return -E2BIG;
    out = arena_take(arena, *len - count * what_len + count * by_len);
    if (!out)
        return -ENOMEM;
    while ((hit = memmem(p, (size_t)(end - p), what, what_len))) {
        memcpy(out + at, p, (size_t)(hit - p));
        at += (size_t)(hit - p);
        memcpy(out + at, by, by_len);
        at += by_len;
        p = hit + what_len;
    }
    memcpy(out + at, p, (size_t)(end - p));
    at += (size_t)(end - p);
    *value = out;
    *len = (uint32_t)at;
    return 0;
}

static int inject_header(struct field *f, const struct policy_inject *in, const struct secret *s,
                         struct arena *arena, int *ret_hit)
{
    return replace(arena, &f->value, &f->value_len, in->placeholder, strlen(in->placeholder),
                   s->value, s->len, ret_hit);
}

/* "Basic base64": the placeholder is inside. */
static int inject_basic(struct flow *fl, struct field *f, const struct policy_inject *in,
                        const struct secret *s, struct arena *arena, int *ret_hit)
{
    unsigned char plain[BASIC_MAX];
    char coded[BASIC_MAX + 4], *out;
    const char *value = (const char *)plain;
    uint32_t len = f->value_len - (f->value_len > 6 ? 6 : 0), n;
    int got, r;

    *ret_hit = 0;
    if (f->value_len < 7 || strncasecmp(f->value, "basic ", 6) != 0 || len > BASIC_MAX || len % 4)
        return 0;
    memcpy(coded, f->value + 6, len);
    got = EVP_DecodeBlock(plain, (const unsigned char *)coded, (int)len);
    if (got < 0)
        return 0;
    n = (uint32_t)got - (coded[len - 1] == '=') - (len > 1 && coded[len - 2] == '=');
    r = replace(arena, &value, &n, in->placeholder, strlen(in->placeholder), s->value, s->len,
                ret_hit);
    if (r < 0 || !*ret_hit)
        return r;
    out = arena_take(arena, 6 + (size_t)(n + 2) / 3 * 4 + 1);
    if (!out)
        return -ENOMEM;
    memcpy(out, "Basic ", 6);
    got = EVP_EncodeBlock((unsigned char *)out + 6, (const unsigned char *)value, (int)n);
    if (fl->basic)
        explicit_bzero(fl->basic, strlen(fl->basic));
    free(fl->basic);
    fl->basic = strdup(out + 6);
    f->value = out;
    f->value_len = 6 + (uint32_t)got;
    return 0;
}

/* The header is what the rule says, whatever the cell sent. */
static int inject_set(struct fields *fields, const struct policy_inject *in, const struct secret *s,
                      struct arena *arena)
{
    size_t prefix = strlen(in->prefix);
    char *out = arena_take(arena, prefix + s->len);

    fields_drop(fields, in->name);
    if (!out || fields->n == HEAD_FIELDS_ROOM)
        return -ENOMEM;
    memcpy(out, in->prefix, prefix);
    memcpy(out + prefix, s->value, s->len);
    fields->f[fields->n++] =
        (struct field){in->name, out, (uint32_t)strlen(in->name), (uint32_t)(prefix + s->len)};
    return 0;
}

static int inject_placeholder(struct flow *fl, struct fields *fields,
                              const struct policy_inject *in, const struct secret *s,
                              struct arena *arena)
{
    int basic = in->surface == POLICY_SURFACE_BASIC, any = 0, hit, r;
    const char *name = basic ? "authorization" : in->name;
    unsigned i, to = 0;
    unsigned char keep[HEAD_FIELDS_ROOM];

    for (i = 0; i < fields->n; i++) {
        struct field *f = &fields->f[i];
        keep[i] = 1;
        if (!field_is(f, name))
            continue;
        r = basic ? inject_basic(fl, f, in, s, arena, &hit) : inject_header(f, in, s, arena, &hit);
        if (r < 0)
            return r;
        keep[i] = (unsigned char)hit;
        any |= hit;
    }
    for (i = 0; any && i < fields->n; i++) /* a second copy beside the brokered one goes */
        if (keep[i])
            fields->f[to++] = fields->f[i];
    if (any)
        fields->n = to;
    return any;
}

static uint32_t inject(struct flow *f, const struct policy_rule *rule, struct fields *fields,
                       struct arena *arena)
{
    unsigned i;
    int r;

    for (i = 0; i < rule->n_inject; i++) {
        const struct policy_inject *in = &rule->inject[i];
        const struct secret *s = secret_find(f->e, in->secret);
        if (!f->tls || !s) /* in the clear, never */
            return REASON_CREDENTIAL_MISMATCH;
        if (!*in->placeholder) {
            if (inject_set(fields, in, s, arena) < 0)
                return REASON_LIMIT;
            continue;
        }
        r = inject_placeholder(f, fields, in, s, arena);
        if (r < 0)
            return REASON_LIMIT;
        if (!r && in->require)
            return REASON_PLACEHOLDER_MISSING;
    }
    return REASON_NONE;
}

static uint32_t verdict(struct flow *f, const struct judged *j, const struct policy_rule **ret)
{
    const struct policy_table *t = &f->e->table;

    *ret = NULL;
    if (policy_name_find(t, f->name, f->port, POLICY_TCP, ret) != POLICY_ALLOW)
        return *ret ? REASON_DENY_RULE : REASON_NO_RULE;
    if (!*ret || (*ret)->layer != POLICY_HTTP)
        return REASON_NO_RULE;
    *ret = NULL;
    if (policy_http_find(t, f->name, f->port, j->method, j->path, j->websocket, ret) !=
        POLICY_ALLOW)
        return REASON_METHOD_PATH;
    return *ret ? REASON_NONE : REASON_METHOD_PATH;
}

uint32_t judge_request(struct flow *f, const struct judged *j, struct fields *fields,
                       struct arena *arena, const struct policy_rule **ret_rule)
{
    uint32_t reason = j->path ? verdict(f, j, ret_rule) : (uint32_t)REASON_LIMIT;

    return reason == REASON_NONE ? inject(f, *ret_rule, fields, arena) : reason;
}

int judge_again(struct flow *f, const struct judged *j)
{
    const struct policy_rule *rule = NULL;

    if (j->path)
        return verdict(f, j, &rule) == REASON_NONE;
    return policy_name_find(&f->e->table, f->name, f->port, POLICY_TCP, &rule) == POLICY_ALLOW &&
           rule && rule->layer == POLICY_HTTP;
}

int judge_trailers(struct flow *f, const struct judged *j, struct fields *fields)
{
    const struct policy_rule *rule = NULL;
    unsigned i;

    if (!j->path || verdict(f, j, &rule) != REASON_NONE)
        return 0;
    for (i = 0; i < rule->n_inject; i++)
        fields_drop(fields, rule->inject[i].surface == POLICY_SURFACE_BASIC ? "authorization"
                                                                            : rule->inject[i].name);
    return 0;
}

int judge_redact(struct flow *f, struct fields *fields, struct arena *arena)
{
    const struct engine *e = f->e;
    unsigned i, s;
    int hit, r = 0;

    for (i = 0; i < fields->n; i++) {
        struct field *x = &fields->f[i];
        for (s = 0; r == 0 && s < e->n_secrets; s++)
            if (e->secrets[s].len)
                r = replace(arena, &x->value, &x->value_len, e->secrets[s].value, e->secrets[s].len,
                            redacted, sizeof(redacted) - 1, &hit);
        if (r == 0 && f->basic)
            r = replace(arena, &x->value, &x->value_len, f->basic, strlen(f->basic), redacted,
                        sizeof(redacted) - 1, &hit);
    }
    return r;
}
