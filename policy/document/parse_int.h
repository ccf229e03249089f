/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * parse_int - what the files of the document parser share.
 *
 * parse.c  the document and its phases   rule.c  one rule   http.c  "http" and "inject" of a rule
 * settings.c  dns, limits, observe   host.c, cidr.c  one spelling each   psl.c  public suffixes, IDNA
 */
#ifndef CELLA_DOCUMENT_PARSE_INT_H
#define CELLA_DOCUMENT_PARSE_INT_H

#include <libpsl.h>

#include "document.h"
#include "json_at.h"

struct seen; /* ids of the phase */

/* The public suffix list, once it was needed; zeroed before. */
struct suffixes {
    void *lib;
    psl_ctx_t *list;
    __typeof__(&psl_is_public_suffix) is;
    __typeof__(&psl_free) release;
    int tried;
};

struct reader {
    const struct json_at *json;
    struct cella_error *err;
    struct document *d;
    struct document_phase *phase;
    struct seen *seen;
    struct suffixes suffixes;
    size_t rules_max;
    int deny;
    char at[512]; /* JSON pointer of the value being read */
};

/* ---- parse.c ---- */
/* Complaint about member `key` of the value at r->at; "" means the value itself. */
int reject(const struct reader *r, const char *key, const char *fmt, ...) CELLA_PRINTF(3, 4);
/* The same, placed at the member's name instead of its value. */
int reject_key(const struct reader *r, const char *key, const char *fmt, ...) CELLA_PRINTF(3, 4);
/* Refuses members that `known` (ends with NULL) does not name. */
int keys_known(struct reader *r, json_t *object, const char *const *known, const char *what);
/* Zeroed memory that lives as long as the document; NULL when there is none, err is set. */
void *keep(struct reader *r, size_t n);
const char *keep_text(struct reader *r, const char *s);
/* Goes down to "/key" or "/key/i"; returns what leave() needs. */
size_t enter(struct reader *r, const char *key);
size_t enter_at(struct reader *r, const char *key, size_t i);
void leave(struct reader *r, size_t mark);
/* Whole number in [min, max]; absent: *ret is left alone. `what` completes "expected …". */
int read_number(struct reader *r, json_t *object, const char *key, uint64_t min, uint64_t max,
                uint64_t *ret);
int read_flag(struct reader *r, json_t *object, const char *key, int *ret);

/* ---- rule.c ---- */
int read_rule(struct reader *r, json_t *rule);
void seen_clear(struct reader *r);

/* ---- http.c ---- */
int read_http(struct reader *r, json_t *rule, struct policy_rule *out);
int read_inject(struct reader *r, json_t *rule, struct policy_rule *out);

/* ---- settings.c ---- */
/* The numbers of a "limits" object, of a rule or of the document. */
int read_limits(struct reader *r, json_t *limits, struct policy_limits *out);
int read_settings(struct reader *r, json_t *root);

/* ---- host.c ---- */
/* As document_host; suffixes NULL: a denial, which may name a public suffix. */
int host_read(const char *text, struct suffixes *suffixes, int *ret_kind, const char **ret_host,
              char why[DOCUMENT_WHY_MAX]);

/* ---- psl.c ---- */
/* 1: a public suffix; 0: not; -ENOENT: no list. Maps the list when first asked. */
int suffixes_has(struct suffixes *s, const char *name);
void suffixes_fini(struct suffixes *s);
/* U-labels to A-labels; -ENOENT: not possible. */
int idn_to_ascii(const char *name, char out[POLICY_NAME_MAX + 1]);

#endif
