/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * clienthello - the server name out of the first flight of a TLS connection.
 *
 * The caller peeks at the socket and hands over all bytes so far; nothing is kept between calls, so
 * segment boundaries cannot matter. The handshake message is put together over records, and only a
 * complete one is read. Should: answer as soon as the bytes decide; say how many are needed else.
 * Mustn't: guess. Whatever two TLS stacks could read differently (two names, a list with a second
 * entry, bytes behind the message in its record, lengths that do not add up) is refused. Unknown
 * extensions are skipped: GREASE and Encrypted Client Hello mean nothing here, the outer name
 * counts. One thread (a static buffer).
 */
#include <string.h>

#include "hello.h"

#define RECORD_HEAD 5u
#define RECORD_MAX 16384u
#define MESSAGE_HEAD 4u
#define TYPE_HANDSHAKE 22
#define CLIENT_HELLO 1
#define EXT_SERVER_NAME 0
#define EXT_ALPN 16

struct span {
    const uint8_t *p;
    size_t n;
};

/* Reads a big-endian number of `width` bytes off the front. 0 or -1. */
static int take_number(struct span *s, unsigned width, size_t *ret)
{
    size_t v = 0;
    unsigned i;

    if (s->n < width)
        return -1;
    for (i = 0; i < width; i++)
        v = v << 8 | s->p[i];
    s->p += width;
    s->n -= width;
    *ret = v;
    return 0;
}

/* Takes a vector with a length in front of it. */
static int take_vector(struct span *s, unsigned width, struct span *ret)
{
    size_t n;

    if (take_number(s, width, &n) < 0 || n > s->n)
        return -1;
    ret->p = s->p;
    ret->n = n;
    s->p += n;
    s->n -= n;
    return 0;
}

static enum hello_result read_server_name(struct span ext, struct hello *ret)
{
    struct span list, name;
    size_t type;

    if (take_vector(&ext, 2, &list) < 0 || ext.n || take_number(&list, 1, &type) < 0 || type ||
        take_vector(&list, 2, &name) < 0 || list.n)
        return HELLO_BAD;
    return name_canon(name.p, name.n, ret->sni) < 0 ? HELLO_BAD_NAME : HELLO_OK;
}

static enum hello_result read_alpn(struct span ext, struct hello *ret)
{
    struct span list, proto;

    if (take_vector(&ext, 2, &list) < 0 || ext.n || !list.n)
        return HELLO_BAD;
    while (list.n) {
        if (take_vector(&list, 1, &proto) < 0 || !proto.n)
            return HELLO_BAD;
        if (proto.n == 2 && !memcmp(proto.p, "h2", 2))
            ret->alpn |= HELLO_ALPN_H2;
        else if (proto.n == 8 && !memcmp(proto.p, "http/1.1", 8))
            ret->alpn |= HELLO_ALPN_H1;
        else
            ret->alpn |= HELLO_ALPN_OTHER;
    }
    return HELLO_OK;
}

static enum hello_result read_extensions(struct span all, struct hello *ret)
{
    enum hello_result r;
    int names = 0, protocols = 0;

    while (all.n) {
        struct span ext;
        size_t type;

        if (take_number(&all, 2, &type) < 0 || take_vector(&all, 2, &ext) < 0)
            return HELLO_BAD;
        r = HELLO_OK;
        if (type == EXT_SERVER_NAME)
            r = names++ ? HELLO_BAD : read_server_name(ext, ret);
        else if (type == EXT_ALPN)
            r = protocols++ ? HELLO_BAD : read_alpn(ext, ret);
        if (r != HELLO_OK)
            return r;
    }
    return names ? HELLO_OK : HELLO_NO_SNI;
}

/* The body of a ClientHello. */
static enum hello_result read_body(struct span b, struct hello *ret)
{
    struct span session, suites, compression, extensions;
    size_t version;

    if (take_number(&b, 2, &version) < 0 || version < 0x0301 || version > 0x0304 || b.n < 32)
        return HELLO_BAD;
    b.p += 32;
    b.n -= 32;
    if (take_vector(&b, 1, &session) < 0 || session.n > 32 || take_vector(&b, 2, &suites) < 0 ||
        !suites.n || suites.n & 1 || take_vector(&b, 1, &compression) < 0 || !compression.n)
        return HELLO_BAD;
    if (!b.n)
        return HELLO_NO_SNI;
    if (take_vector(&b, 2, &extensions) < 0 || b.n)
        return HELLO_BAD;
    return read_extensions(extensions, ret);
}

/* The record at p + at, as far as it is there. HELLO_OK: *ret_len is its payload's length. */
static enum hello_result read_record(const uint8_t *p, size_t n, size_t at, struct hello *ret,
                                     size_t *ret_len)
{
    enum hello_result other = at ? HELLO_BAD : HELLO_NOT_TLS;
    size_t have = n - at, len;

    if ((have > 0 && p[at] != TYPE_HANDSHAKE) || (have > 1 && p[at + 1] != 3) ||
        (have > 2 && (p[at + 2] < 1 || p[at + 2] > 4)))
        return other;
    if (have < RECORD_HEAD) {
        ret->need = at + RECORD_HEAD;
        return HELLO_MORE;
    }
    len = (size_t)p[at + 3] << 8 | p[at + 4];
    if (!len || len > RECORD_MAX)
        return other;
    ret->need = at + RECORD_HEAD + len;
    if (have < RECORD_HEAD + len)
        return HELLO_MORE;
    *ret_len = len;
    return HELLO_OK;
}

/* The handshake message in `m`, the payload of all records so far. */
static enum hello_result read_message(struct span m, struct hello *ret)
{
    size_t type, len;

    if (m.p[0] != CLIENT_HELLO)
        return HELLO_BAD;
    if (m.n < MESSAGE_HEAD)
        return HELLO_MORE;
    take_number(&m, 1, &type);
    take_number(&m, 3, &len);
    if (len > HELLO_WIRE_MAX || m.n > len)
        return HELLO_BAD;
    return m.n < len ? HELLO_MORE : read_body(m, ret);
}

enum hello_result hello_read(const uint8_t *p, size_t n, struct hello *ret)
{
    static uint8_t joined[HELLO_WIRE_MAX];
    struct span message = {0};
    size_t at = 0, len = 0, held = 0;
    enum hello_result r;

    memset(ret, 0, sizeof(*ret));
    for (;;) {
        r = read_record(p, n, at, ret, &len);
        if (r == HELLO_MORE && ret->need > HELLO_WIRE_MAX)
            return HELLO_BAD;
        if (r == HELLO_MORE && !at && n > RECORD_HEAD && p[RECORD_HEAD] != CLIENT_HELLO)
            return HELLO_BAD;
        if (r != HELLO_OK)
            return r;
        if (held + len > sizeof(joined))
            return HELLO_BAD;
        memcpy(joined + held, p + at + RECORD_HEAD, len);
        held += len;
        message.p = joined;
        message.n = held;
        r = read_message(message, ret);
        if (r != HELLO_MORE)
            return r;
        at += RECORD_HEAD + len;
    }
}
