/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * side - one end of a flow: a socket, perhaps TLS on it, and the bytes that came or wait to go.
 *
 * Never blocks. Buffers grow only as far as the caller gives room and are freed when empty, so an
 * idle flow holds none. What leaves a buffer is wiped: requests carry credentials.
 */
#include <errno.h>
#include <openssl/err.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http.h"

/* ------------------------------------------------------------------ bytes */

static int bytes_room(struct bytes *b, size_t n)
{
    size_t cap;
    char *p;

    if (b->off && b->off + b->len + n > b->cap) {
        memmove(b->p, b->p + b->off, b->len);
        b->off = 0;
    }
    if (b->off + b->len + n <= b->cap)
        return 0;
    for (cap = b->cap ? b->cap : 4096; cap < b->len + n; cap *= 2)
        ;
    p = malloc(cap);
    if (!p)
        return -ENOMEM;
    if (b->len)
        memcpy(p, b->p + b->off, b->len);
    if (b->p)
        explicit_bzero(b->p, b->cap);
    free(b->p);
    b->p = p;
    b->off = 0;
    b->cap = cap;
    return 0;
}

int bytes_add(struct bytes *b, const void *p, size_t n)
{
    if (!n)
        return 0;
    if (bytes_room(b, n) < 0)
        return -ENOMEM;
    memcpy(b->p + b->off + b->len, p, n);
    b->len += n;
    return 0;
}

int bytes_addf(struct bytes *b, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return n < 0 || (size_t)n >= sizeof(text) ? -EMSGSIZE : bytes_add(b, text, (size_t)n);
}

void bytes_fini(struct bytes *b)
{
    if (b->p)
        explicit_bzero(b->p, b->cap);
    free(b->p);
    *b = (struct bytes){0};
}

void bytes_drop(struct bytes *b, size_t n)
{
    if (n >= b->len) {
        bytes_fini(b);
        return;
    }
    explicit_bzero(b->p + b->off, n);
    b->off += n;
    b->len -= n;
}

/* ------------------------------------------------------------------ arena */

struct arena_piece {
    struct arena_piece *next;
    size_t len;
    char bytes[];
};

char *arena_take(struct arena *a, size_t n)
{
    struct arena_piece *p = malloc(sizeof(*p) + n + 1);

    if (!p)
        return NULL;
    p->next = a->first;
    p->len = n;
    p->bytes[n] = 0;
    a->first = p;
    return p->bytes;
}

void arena_fini(struct arena *a)
{
    while (a->first) {
        struct arena_piece *p = a->first;
        a->first = p->next;
        explicit_bzero(p->bytes, p->len);
        free(p);
    }
}

/* ---------------------------------------------------------------- reading */

static long plain_read(struct side *s, char *p, size_t n)
{
    ssize_t got = recv(s->w.fd, p, n, 0);

    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (got == 0)
        s->eof = 1;
    s->plain_read += (uint64_t)got;
    return got;
}

static long tls_failed(struct side *s, int r)
{
    switch (SSL_get_error(s->ssl, r)) {
    case SSL_ERROR_WANT_READ:
        return 0;
    case SSL_ERROR_WANT_WRITE:
        s->wants_write = 1;
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        s->eof = 1;
        return 0;
    default:
        ERR_clear_error();
        return -ECONNRESET; /* an end without close_notify is a cut */
    }
}

/* Several records, if they are there: what they become leaves in one write. *ret_more: an end or an error came with them
   and is still to be taken; nothing on the socket will tell of it. */
static long tls_read(struct side *s, char *p, size_t n, int *ret_more)
{
    size_t got = 0, total = 0;
    int r;

    do {
        ERR_clear_error();
        r = SSL_read_ex(s->ssl, p + total, n - total, &got);
        if (r != 1 && !total)
            return tls_failed(s, r);
        if (r != 1) { /* what went wrong does so again */
            *ret_more = SSL_get_error(s->ssl, r) != SSL_ERROR_WANT_READ;
            return (long)total;
        }
        total += got;
    } while (total < n && SSL_has_pending(s->ssl));
    *ret_more = SSL_has_pending(s->ssl);
    return (long)total;
}

/* Bytes that may be read now; an end may always. */
static size_t readable(struct side *s, size_t n)
{
    uint64_t read = side_read_total(s);
    char c;

    s->starved &= ~ENGINE_TX;
    if (s->may_read == UINT64_MAX)
        return n;
    if (read < s->may_read)
        return n < s->may_read - read ? n : (size_t)(s->may_read - read);
    if (!(s->ssl && SSL_has_pending(s->ssl)) && recv(s->w.fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
        return 1; /* nothing there, an end, or an error: reading moves no byte */
    s->starved |= ENGINE_TX;
    return 0;
}

long side_fill(struct side *s, size_t room)
{
    size_t n = room > s->in.len ? room - s->in.len : 0;
    int more = 0;
    long got;

    if (s->eof || !n || !s->ready)
        return 0;
    s->wants_more = 0;
    if (n > IN_MAX)
        n = IN_MAX;
    n = readable(s, n);
    if (!n)
        return 0;
    if (bytes_room(&s->in, n) < 0)
        return -ENOMEM;
    got = s->ssl ? tls_read(s, s->in.p + s->in.off + s->in.len, n, &more)
                 : plain_read(s, s->in.p + s->in.off + s->in.len, n);
    if (got > 0)
        s->in.len += (size_t)got;
    else
        s->wants_more = got == 0 && !s->eof;
    /* A short read has emptied the socket, and epoll tells if not: one call less for each message. */
    s->ready = got == (long)n || more;
    if (!s->in.len)
        bytes_fini(&s->in);
    return got == 0 && s->eof ? 1 : got;
}

/* ---------------------------------------------------------------- writing */

static size_t writable(struct side *s)
{
    uint64_t written = side_written_total(s);

    s->starved &= ~ENGINE_RX;
    if (s->may_write == UINT64_MAX || s->may_write > written + s->out.len)
        return s->out.len;
    if (s->may_write > written)
        return (size_t)(s->may_write - written);
    s->starved |= ENGINE_RX;
    return 0;
}

static long write_some(struct side *s)
{
    size_t sent = 0, most = writable(s);
    ssize_t n;
    int r;

    if (!most)
        return 0;
    if (!s->ssl) {
        n = send(s->w.fd, bytes_at(&s->out), most, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        s->plain_written += (uint64_t)n;
        return n;
    }
    ERR_clear_error();
    r = SSL_write_ex(s->ssl, bytes_at(&s->out), most, &sent);
    return r == 1 ? (long)sent : tls_failed(s, r);
}

static int finish(struct side *s)
{
    int r;

    if (s->ssl) {
        ERR_clear_error();
        r = SSL_shutdown(s->ssl);
        if (r < 0 && tls_failed(s, r) == 0 && s->wants_write)
            return 0; /* close_notify has not gone out yet */
        if (r < 0) {  /* nor will it: the peer, who may have said goodbye, is gone */
            s->fin_sent = 1;
            return -ECONNRESET;
        }
    }
    s->fin_sent = 1;
    return shutdown(s->w.fd, SHUT_WR) < 0 && errno != ENOTCONN ? -errno : 1;
}

long side_flush(struct side *s)
{
    long n, total = 0;

    s->wants_write = 0;
    while (s->out.len) {
        n = write_some(s);
        if (n < 0)
            return n;
        if (n == 0)
            return total;
        bytes_drop(&s->out, (size_t)n);
        total += n;
    }
    if (s->fin && !s->fin_sent) {
        n = finish(s);
        if (n < 0)
            return n;
        total += n;
    }
    return total;
}

void side_arm(struct engine *e, struct side *s, int reading)
{
    uint32_t want = 0;

    if (s->w.fd < 0)
        return;
    if (reading && !s->eof && !(s->starved & ENGINE_TX))
        want |= EPOLLIN;
    if ((s->out.len && !(s->starved & ENGINE_RX)) || s->wants_write || (s->fin && !s->fin_sent))
        want |= EPOLLOUT;
    if (want)
        watch_set(e, &s->w, want);
    else
        watch_del(e, &s->w); /* a hang-up would repeat for ever */
}

void side_close(struct engine *e, struct side *s, int hard)
{
    struct linger how = {hard, 0};

    if (s->w.fd < 0)
        return;
    watch_del(e, &s->w);
    setsockopt(s->w.fd, SOL_SOCKET, SO_LINGER, &how, sizeof(how));
    if (s->ssl) {
        if (!hard && !s->fin_sent && SSL_is_init_finished(s->ssl)) {
            ERR_clear_error();
            SSL_shutdown(s->ssl);
        }
        SSL_free(s->ssl);
        s->ssl = NULL;
    }
    if (!hard && !s->fin_sent)
        shutdown(s->w.fd, SHUT_WR); /* the gate keeps a descriptor of it too */
    close(s->w.fd);
    s->w.fd = -1;
    bytes_fini(&s->in);
    bytes_fini(&s->out);
}

uint64_t side_read_total(const struct side *s)
{
    return s->ssl ? BIO_number_read(SSL_get_rbio(s->ssl)) : s->plain_read;
}

uint64_t side_written_total(const struct side *s)
{
    return s->ssl ? BIO_number_written(SSL_get_wbio(s->ssl)) : s->plain_written;
}
