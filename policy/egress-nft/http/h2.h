/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* h2 - what h2.c (sessions, data, ends) and h2msg.c (requests, responses, trailers) share. */
#ifndef CELLA_HTTP_H2_H
#define CELLA_HTTP_H2_H

#include <nghttp2/nghttp2.h>

#include "http.h"

enum { TO_UP = 0, TO_CELL = 1 };

/* A field block as it comes in. */
struct block {
    struct fields fields;
    struct arena arena;
    size_t bytes;
    const char *method, *path, *authority, *scheme, *status; /* NUL-terminated; NULL: not there */
};

/* A stream of the cell and its twin to the upstream. Index: the direction data flows. */
struct stream {
    struct stream *next;
    struct flow *f;
    int32_t id[2];          /* [TO_CELL]: the cell's, [TO_UP]: the upstream's; 0: none, or closed */
    struct block *block[2]; /* being received, from the cell and from the upstream */
    struct block *trailer[2]; /* to follow the data */
    struct bytes body[2];
    int ended[2]; /* the source has no more data */
    int local;    /* answered here */
    int answered; /* a final response went to the cell */
    struct judged judged;
};

struct h2 {
    nghttp2_session *s[2]; /* [TO_CELL]: server session, [TO_UP]: client session or NULL */
    struct stream *streams;
    int going; /* the upstream takes no more streams */
};

/* ---- h2.c ---- */
void h2_reset(struct stream *s, int dir, uint32_t code);
void h2_resume(struct stream *s, int dir);
nghttp2_data_provider h2_provider(struct stream *s);

/* ---- h2msg.c ---- */
struct block *block_new(void);
void block_free(struct block *b);
/* 0, or -E2BIG. */
int block_add(struct block *b, const uint8_t *name, size_t name_len, const uint8_t *value,
              size_t value_len);
/* Complete blocks. `end`: no data follows. */
void h2_request(struct stream *s, int end);
void h2_response(struct stream *s, int end);
void h2_trailer(struct stream *s, int dir);
void h2_submit_trailer(struct stream *s, int dir);
void h2_deny(struct stream *s, uint32_t reason);

#endif
