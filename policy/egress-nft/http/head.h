/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * head - HTTP/1.1 message heads and chunked bodies, read strictly. Pure functions on memory; fuzzed.
 *
 * One spelling only: what two readers could take for two things is an error, never repaired. Slices
 * point into the caller's bytes.
 */
#ifndef CELLA_HTTP_HEAD_H
#define CELLA_HTTP_HEAD_H

#include <stddef.h>
#include <stdint.h>

#define HEAD_BYTES_MAX 65536u
#define HEAD_FIELDS_MAX 128u
#define HEAD_FIELDS_ROOM (HEAD_FIELDS_MAX + 36u) /* what injection may add */
#define METHOD_MAX 24u

struct field {
    const char *name; /* not NUL-terminated */
    const char *value;
    uint32_t name_len, value_len;
};

struct fields {
    struct field f[HEAD_FIELDS_ROOM];
    unsigned n;
};

enum body_kind { BODY_NONE = 0, BODY_LENGTH, BODY_CHUNKED, BODY_TO_EOF };

struct head {
    struct field line; /* request: name = method, value = target; response: value = reason phrase */
    int minor;         /* HTTP/1.x */
    int status;        /* responses */
    struct fields fields;
    enum body_kind body; /* responses: before HEAD, 204 and 304 are taken into account */
    uint64_t length;
    int close;     /* the message ends the connection */
    int upgrade;   /* Connection says upgrade, and there is an Upgrade field */
    int websocket; /* that field is exactly "websocket" */
    int expect;    /* 100-continue */
};

/* Length of the head with its empty line, 0: not all there, -EBADMSG: a bare CR or LF, a NUL, or more
   than HEAD_BYTES_MAX. *scanned is where to go on; 0 at first. */
long head_scan(const char *p, size_t n, size_t *scanned);
/* All of p[0..n) is one head as head_scan() measured it. 0 or -EBADMSG. */
int head_request(const char *p, size_t n, struct head *ret);
int head_response(const char *p, size_t n, struct head *ret);
/* Field lines up to and including an empty line (trailers). */
int fields_parse(const char *p, size_t n, struct fields *ret);

int field_is(const struct field *f, const char *name); /* case-insensitive */
int slice_is(const char *p, size_t n, const char *text);
/* The only field of that name; NULL: none. *ret_count may be NULL. */
const struct field *fields_find(const struct fields *f, const char *name, unsigned *ret_count);
void fields_drop(struct fields *f, const char *name);
/* 1: may come in a trailer section (RFC 9110, 6.5.1: framing, routing, authentication may not). */
int trailer_allowed(const struct field *f);
int token_valid(const char *p, size_t n);
int value_valid(const char *p, size_t n);
/* Printable ASCII without '#'; starts with '/', or is "*" when `star`. */
int target_valid(const char *p, size_t n, int star);
/* 1: the authority is `name`, alone or with `port`. Any case; no user, no trailing dot. */
int authority_is(const char *p, size_t n, const char *name, uint16_t port);
/* Absolute form: moves *p, *n to the path (which may be empty) and gives the authority; 0 if it is none. */
int target_absolute(const char **p, size_t *n, const char **ret_authority, size_t *ret_len);

/* ---- chunked ---- */
struct chunk {
    int state;
    uint64_t left;
    unsigned line;
};
enum chunk_got { CHUNK_MORE = 0, CHUNK_DATA, CHUNK_LAST };
/* Consumes *ret_used of p[0..n). CHUNK_DATA: *ret_data, *ret_len are body bytes; CHUNK_LAST: the last
   chunk's line has been read, the trailer section follows. -EBADMSG. */
int chunk_next(struct chunk *c, const char *p, size_t n, size_t *ret_used, const char **ret_data,
               size_t *ret_len);

#endif
