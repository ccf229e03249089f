/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * h1 - HTTP/1.1: one exchange after the other on one pair of connections, every request judged.
 *
 * A head is understood, judged, and written anew; nothing of it reaches the upstream before. The next
 * request of a pipeline is looked at when the exchange before it is over. Should: answer what is
 * refused with a typed denial; end the connection whenever it is not certain where the next message begins. Mustn't:
 * forward hop-by-hop fields, a second Host, bytes the upstream sent unasked. The scratch head below is
 * used within one call only; one thread.
 */
#include <errno.h>
#include <string.h>

#include "http.h"

static struct head scratch;

static const char *const hop_by_hop[] = {
    "connection",          "keep-alive", "proxy-connection", "proxy-authenticate",
    "proxy-authorization", "upgrade",    "http2-settings",   "te",
};

int h1_put_fields(struct bytes *out, const struct fields *fields)
{
    unsigned i;
    int r = 0;

    for (i = 0; r == 0 && i < fields->n; i++) {
        const struct field *f = &fields->f[i];
        r = bytes_add(out, f->name, f->name_len);
        if (r == 0)
            r = bytes_add(out, ": ", 2);
        if (r == 0)
            r = bytes_add(out, f->value, f->value_len);
        if (r == 0)
            r = bytes_add(out, "\r\n", 2);
    }
    return r;
}

size_t h1_room(const struct flow *f, const struct side *s)
{
    const struct h1 *h = &f->h1;

    if (s == &f->cell)
        return h->q == Q_BODY || h->q == Q_DONE ? IN_MAX : HEAD_BYTES_MAX;
    return h->r == R_HEAD || h->r == R_TRAILER ? HEAD_BYTES_MAX : IN_MAX;
}

static void next_exchange(struct h1 *h)
{
    *h = (struct h1){.q = Q_HEAD, .r = R_IDLE};
}

void h1_refuse(struct flow *f, uint32_t reason, int keep, int head_method)
{
    struct bytes *out = &f->cell.out;
    struct denial d;

    deny_text(f, reason, &d);
    keep = keep && !f->cell.eof;
    if (bytes_addf(out,
                   "HTTP/1.1 %d %s\r\nx-cella-denied: %s\r\ncontent-type: text/plain\r\n"
                   "cache-control: no-store\r\ncontent-length: %zu\r\n%s\r\n",
                   d.status, d.phrase, d.header, strlen(d.text),
                   keep ? "" : "connection: close\r\n") < 0 ||
        (!head_method && bytes_add(out, d.text, strlen(d.text)) < 0))
        keep = 0;
    if (keep)
        next_exchange(&f->h1);
    else
        flow_closing(f);
}

/* The upstream broke its promise: a typed 502 if nothing of an answer went out, a reset otherwise. */
static long upstream_failed(struct flow *f)
{
    if (f->h1.answered)
        return -ECONNRESET;
    deny_event(f, REASON_UPSTREAM, NULL, &f->judged);
    h1_refuse(f, REASON_UPSTREAM, 0, f->h1.head_method);
    return 1;
}

/* --------------------------------------------------------------- requests */

/* Origin form of the target in `path`; the reason to refuse it otherwise. */
static uint32_t target(struct flow *f, struct head *h, struct arena *arena, const char **ret,
                       size_t *ret_len)
{
    const char *p = h->line.value, *authority;
    size_t n = h->line.value_len, len;
    char *whole;

    if (slice_is(h->line.name, h->line.name_len, "CONNECT"))
        return REASON_METHOD_PATH;
    if (target_absolute(&p, &n, &authority, &len)) {
        if (!authority_is(authority, len, f->name, f->port))
            return REASON_HOST_MISMATCH;
        if (!n || *p != '/') { /* "http://name" and "http://name?query" */
            whole = arena_take(arena, n + 1);
            if (!whole)
                return REASON_LIMIT;
            whole[0] = '/';
            memcpy(whole + 1, p, n);
            p = whole;
            n++;
        }
    }
    if (!target_valid(p, n, slice_is(h->line.name, h->line.name_len, "OPTIONS")))
        return REASON_BAD_REQUEST;
    *ret = p;
    *ret_len = n;
    return REASON_NONE;
}

/* Host, upgrade and hop-by-hop fields; afterwards the fields are those of the message alone. */
static uint32_t tidy(struct flow *f, struct head *h)
{
    unsigned hosts;
    const struct field *host = fields_find(&h->fields, "host", &hosts);
    size_t i;

    if (hosts != 1)
        return REASON_BAD_REQUEST;
    if (!authority_is(host->value, host->value_len, f->name, f->port))
        return REASON_HOST_MISMATCH;
    if (h->websocket &&
        (!slice_is(h->line.name, h->line.name_len, "GET") || !h->minor || h->body != BODY_NONE))
        return REASON_BAD_REQUEST;
    for (i = 0; i < sizeof(hop_by_hop) / sizeof(hop_by_hop[0]); i++)
        fields_drop(&h->fields, hop_by_hop[i]);
    fields_drop(&h->fields, "content-length");
    fields_drop(&h->fields, "transfer-encoding");
    return REASON_NONE;
}

static int put_request(struct bytes *out, const struct head *h, const char *path, size_t n)
{
    int r = bytes_add(out, h->line.name, h->line.name_len);

    if (r == 0)
        r = bytes_add(out, " ", 1);
    if (r == 0)
        r = bytes_add(out, path, n);
    if (r == 0)
        r = bytes_addf(out, " HTTP/1.%d\r\n", h->minor);
    if (r == 0)
        r = h1_put_fields(out, &h->fields);
    if (r == 0 && h->body == BODY_LENGTH)
        r = bytes_addf(out, "content-length: %llu\r\n", (unsigned long long)h->length);
    if (r == 0 && h->body == BODY_CHUNKED)
        r = bytes_addf(out, "transfer-encoding: chunked\r\n");
    if (r == 0 && h->websocket)
        r = bytes_addf(out, "connection: upgrade\r\nupgrade: websocket\r\n");
    else if (r == 0 && (h->close || !h->minor))
        r = bytes_addf(out, "connection: %s\r\n", h->close ? "close" : "keep-alive");
    return r == 0 ? bytes_add(out, "\r\n", 2) : r;
}

/* Judges the request and puts it before the upstream. */
static uint32_t admit(struct flow *f, struct head *h)
{
    const struct policy_rule *rule = NULL;
    struct arena arena = {0};
    char method[METHOD_MAX] = "";
    const char *path;
    size_t n;
    uint32_t reason = target(f, h, &arena, &path, &n);

    memcpy(method, h->line.name, h->line.name_len);
    if (reason == REASON_NONE)
        judged_set(&f->judged, method, path, n, h->websocket);
    if (reason == REASON_NONE)
        reason = tidy(f, h);
    if (reason == REASON_NONE && f->refused)
        reason = f->refused;
    else if (reason == REASON_NONE && f->up.in.len)
        reason = REASON_UPSTREAM; /* it speaks unasked: no telling what it answers to */
    else if (reason == REASON_NONE)
        reason = judge_request(f, &f->judged, &h->fields, &arena, &rule);
    if (reason == REASON_NONE && put_request(&f->up.out, h, path, n) < 0)
        reason = REASON_LIMIT;
    if (reason == REASON_NONE)
        snprintf(f->rule, sizeof(f->rule), "%s", rule->id);
    else if (!f->refused)
        deny_event(f, reason, rule, &f->judged);
    arena_fini(&arena);
    return reason;
}

static long request_head(struct flow *f)
{
    struct h1 *h = &f->h1;
    long len =
        head_scan(f->cell.in.len ? bytes_at(&f->cell.in) : "", f->cell.in.len, &h->q_scanned);
    uint32_t reason = REASON_BAD_REQUEST;
    int keep, head_method;

    if (len == 0) {
        if (!f->cell.eof)
            return 0;
        if (f->cell.in.len)
            return -ECONNRESET;
        flow_closing(f);
        return 1;
    }
    if (len < 0 || head_request(bytes_at(&f->cell.in), (size_t)len, &scratch) < 0) {
        deny_event(f, reason, NULL, NULL);
        h1_refuse(f, reason, 0, 0);
        return 1;
    }
    reason = admit(f, &scratch);
    head_method = slice_is(scratch.line.name, scratch.line.name_len, "HEAD");
    keep = scratch.body == BODY_NONE && !scratch.close && reason != REASON_BAD_REQUEST &&
           reason != REASON_UPSTREAM;
    bytes_drop(&f->cell.in, (size_t)len);
    if (reason != REASON_NONE) {
        h1_refuse(f, reason, keep, head_method);
        return 1;
    }
    *h = (struct h1){.q = scratch.body == BODY_NONE ? Q_DONE : Q_BODY,
                     .r = R_HEAD,
                     .q_kind = scratch.body,
                     .q_left = scratch.length,
                     .close = scratch.close,
                     .head_method = head_method,
                     .upgrading = scratch.websocket,
                     .old = !scratch.minor};
    if (scratch.body == BODY_LENGTH && !scratch.length)
        h->q = Q_DONE;
    return 1;
}

/* -------------------------------------------------------------- responses */

static int put_response(struct flow *f, struct head *h)
{
    struct bytes *out = &f->cell.out;
    struct arena arena = {0};
    size_t i;
    int r;

    for (i = 0; i < sizeof(hop_by_hop) / sizeof(hop_by_hop[0]); i++)
        if (h->status != 101 || strcmp(hop_by_hop[i], "upgrade") != 0)
            fields_drop(&h->fields, hop_by_hop[i]);
    fields_drop(&h->fields, "x-cella-denied"); /* only the broker denies */
    fields_drop(&h->fields, "alt-svc");        /* nothing it could offer passes */
    if (h->status < 200 || h->status == 204) {
        fields_drop(&h->fields, "content-length");
        fields_drop(&h->fields, "transfer-encoding");
    }
    h->fields.f[h->fields.n++] = h->line; /* the reason phrase is the server's text too */
    r = judge_redact(f, &h->fields, &arena);
    h->line = h->fields.f[--h->fields.n];
    if (r == 0)
        r = bytes_addf(out, "HTTP/1.%d %d ", h->minor, h->status);
    if (r == 0)
        r = bytes_add(out, h->line.value, h->line.value_len);
    if (r == 0)
        r = bytes_add(out, "\r\n", 2);
    if (r == 0)
        r = h1_put_fields(out, &h->fields);
    if (r == 0 && h->status == 101)
        r = bytes_addf(out, "connection: upgrade\r\n");
    else if (r == 0 && h->status >= 200 && f->h1.close)
        r = bytes_addf(out, "connection: close\r\n");
    else if (r == 0 && h->status >= 200 && (f->h1.old || !h->minor))
        r = bytes_addf(out, "connection: keep-alive\r\n");
    if (r == 0)
        r = bytes_add(out, "\r\n", 2);
    arena_fini(&arena);
    return r;
}

static long response_final(struct flow *f, struct head *h)
{
    struct h1 *x = &f->h1;

    x->r_kind = x->head_method ? BODY_NONE : h->body;
    x->r_left = h->length;
    x->close |= h->close || x->r_kind == BODY_TO_EOF;
    x->r = x->r_kind == BODY_NONE || (x->r_kind == BODY_LENGTH && !x->r_left) ? R_DONE : R_BODY;
    x->answered = 1;
    return put_response(f, h) < 0 ? -ENOMEM : 1;
}

static long response_head(struct flow *f)
{
    struct h1 *x = &f->h1;
    long len = head_scan(f->up.in.len ? bytes_at(&f->up.in) : "", f->up.in.len, &x->r_scanned), r;
    struct head *h = &scratch;

    if (len == 0)
        return f->up.eof ? upstream_failed(f) : 0;
    if (len < 0 || head_response(bytes_at(&f->up.in), (size_t)len, h) < 0 ||
        (h->status == 101 && (!x->upgrading || !h->websocket)))
        return upstream_failed(f);
    if (h->status == 101) {
        r = put_response(f, h) < 0 ? -ENOMEM : 1;
        f->phase = PHASE_RAW;
    } else if (h->status < 200) {
        r = x->old || put_response(f, h) == 0 ? 1 : -ENOMEM;
    } else {
        r = response_final(f, h);
    }
    bytes_drop(&f->up.in, (size_t)len);
    return r;
}

/* ------------------------------------------------------------------- step */

static long request_step(struct flow *f)
{
    struct h1 *h = &f->h1;

    switch (h->q) {
    case Q_HEAD:
        return h->r == R_IDLE ? request_head(f) : 0;
    case Q_BODY:
    case Q_TRAILER:
        return h1_request_body(f);
    case Q_DONE:
    default:
        if (f->cell.eof && !f->cell.in.len && !f->up.fin) { /* half-close goes through */
            f->up.fin = 1;
            h->close = 1;
            return 1;
        }
        return 0;
    }
}

static long response_step(struct flow *f)
{
    switch (f->h1.r) {
    case R_HEAD:
        return response_head(f);
    case R_BODY:
    case R_TRAILER:
        return h1_response_body(f);
    case R_IDLE:
    case R_DONE:
    default:
        if (f->up.w.fd >= 0 && f->up.eof) { /* the server's goodbye goes through as well */
            flow_closing(f);
            return 1;
        }
        return 0;
    }
}

long h1_step(struct flow *f)
{
    struct h1 *h = &f->h1;
    long q, r;

    if (h->r == R_IDLE && f->up.w.fd >= 0 && f->up.eof)
        return response_step(f); /* nothing more may be put before it */
    q = request_step(f);
    if (q < 0 || f->phase != PHASE_H1)
        return q;
    r = response_step(f);
    if (r < 0 || f->phase != PHASE_H1)
        return r;
    if (h->r == R_DONE && (h->q == Q_DONE || h->close)) {
        if (h->close)
            flow_closing(f);
        else
            next_exchange(h);
        return 1;
    }
    return q + r;
}
