/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * h1body - bodies of HTTP/1.1 in both directions: streamed, never collected. What a chunked body
 * says about itself (chunk lines, extensions) is read and written anew; trailers are fields, and held to
 * the same grammar. A side reads only while the other has room, so an upload of any size needs the same memory.
 */
#include <errno.h>

#include "http.h"

static struct fields trailer;

struct way {
    struct side *from, *to;
    struct chunk *chunk;
    size_t *scanned;
    uint64_t *left;
    int request;
};

static long by_length(struct way *w, int *ret_done)
{
    size_t n = w->to->out.len < OUT_MAX ? OUT_MAX - w->to->out.len : 0;

    if (n > w->from->in.len)
        n = w->from->in.len;
    if (n > *w->left)
        n = (size_t)*w->left;
    if (!n)
        return w->from->eof && !w->from->in.len ? -ECONNRESET : 0; /* cut short */
    if (bytes_add(&w->to->out, bytes_at(&w->from->in), n) < 0)
        return -ENOMEM;
    bytes_drop(&w->from->in, n);
    *w->left -= n;
    *ret_done = !*w->left;
    return (long)n;
}

static long to_eof(struct way *w, int *ret_done)
{
    size_t n = w->to->out.len < OUT_MAX ? OUT_MAX - w->to->out.len : 0;

    if (n > w->from->in.len)
        n = w->from->in.len;
    if (n && bytes_add(&w->to->out, bytes_at(&w->from->in), n) < 0)
        return -ENOMEM;
    if (n)
        bytes_drop(&w->from->in, n);
    *ret_done = w->from->eof && !w->from->in.len;
    return (long)n + *ret_done;
}

static int put_chunk(struct bytes *out, const char *p, size_t n)
{
    int r = bytes_addf(out, "%zx\r\n", n);

    if (r == 0)
        r = bytes_add(out, p, n);
    return r == 0 ? bytes_add(out, "\r\n", 2) : r;
}

/* *ret_last: the last chunk's line was read. */
static long by_chunks(struct way *w, int *ret_last)
{
    const char *data;
    size_t used, len;
    long total = 0;

    while (w->from->in.len && w->to->out.len < OUT_MAX) {
        int got = chunk_next(w->chunk, bytes_at(&w->from->in), w->from->in.len, &used, &data, &len);
        if (got < 0)
            return got;
        if (got == CHUNK_DATA && put_chunk(&w->to->out, data, len) < 0)
            return -ENOMEM;
        bytes_drop(&w->from->in, used);
        total += (long)used;
        if (got == CHUNK_LAST) {
            *ret_last = 1;
            return total;
        }
    }
    return total || w->from->in.len || !w->from->eof ? total : -ECONNRESET;
}

/* Fields that may not come as trailers: from the cell an error, from the server forgotten. */
static int trailer_filter(struct fields *t, int request)
{
    unsigned i, to = 0;

    for (i = 0; i < t->n; i++) {
        if (trailer_allowed(&t->f[i]))
            t->f[to++] = t->f[i];
        else if (request)
            return -EBADMSG;
    }
    t->n = to;
    return 0;
}

static long trailers(struct flow *f, struct way *w, int *ret_done)
{
    long len =
        head_scan(w->from->in.len ? bytes_at(&w->from->in) : "", w->from->in.len, w->scanned);
    struct arena arena = {0};
    int r;

    if (len == 0)
        return w->from->eof ? -ECONNRESET : 0;
    if (len < 0 || fields_parse(bytes_at(&w->from->in), (size_t)len, &trailer) < 0 ||
        trailer_filter(&trailer, w->request) < 0)
        return -EBADMSG;
    r = w->request ? judge_trailers(f, &f->judged, &trailer) : judge_redact(f, &trailer, &arena);
    if (r == 0)
        r = bytes_add(&w->to->out, "0\r\n", 3);
    if (r == 0)
        r = h1_put_fields(&w->to->out, &trailer);
    if (r == 0)
        r = bytes_add(&w->to->out, "\r\n", 2);
    arena_fini(&arena);
    bytes_drop(&w->from->in, (size_t)len);
    *ret_done = 1;
    return r < 0 ? r : len;
}

/* A body that breaks the rules in the middle: the upstream must not take what it has for whole. */
static long request_bad(struct flow *f, long r)
{
    if (r != -EBADMSG)
        return r;
    deny_event(f, REASON_BAD_REQUEST, NULL, &f->judged);
    if (f->h1.answered)
        return -ECONNRESET;
    side_close(f->e, &f->up, 1);
    h1_refuse(f, REASON_BAD_REQUEST, 0, f->h1.head_method);
    return 1;
}

long h1_request_body(struct flow *f)
{
    struct h1 *h = &f->h1;
    struct way w = {&f->cell, &f->up, &h->q_chunk, &h->q_scanned, &h->q_left, 1};
    int done = 0, last = 0;
    long r;

    if (h->q == Q_TRAILER)
        r = trailers(f, &w, &done);
    else if (h->q_kind == BODY_LENGTH)
        r = by_length(&w, &done);
    else
        r = by_chunks(&w, &last);
    if (last)
        h->q = Q_TRAILER;
    if (done)
        h->q = Q_DONE;
    return r < 0 ? request_bad(f, r) : r;
}

long h1_response_body(struct flow *f)
{
    struct h1 *h = &f->h1;
    struct way w = {&f->up, &f->cell, &h->r_chunk, &h->r_scanned, &h->r_left, 0};
    int done = 0, last = 0;
    long r;

    if (h->r == R_TRAILER)
        r = trailers(f, &w, &done);
    else if (h->r_kind == BODY_LENGTH)
        r = by_length(&w, &done);
    else if (h->r_kind == BODY_CHUNKED)
        r = by_chunks(&w, &last);
    else
        r = to_eof(&w, &done);
    if (last)
        h->r = R_TRAILER;
    if (done)
        h->r = R_DONE;
    return r;
}
