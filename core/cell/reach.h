/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * reach - the matrix: rows the enforcer expects, what the probe in the cell reported, what the enforcer
 * saw. matrix.c knows no process and no cell; reach.c runs it in one.
 */
#ifndef CELLA_REACH_H
#define CELLA_REACH_H

#include <jansson.h>

#include <cella/enforcer.h>

#include "util.h"

#define REACH_ROWS_MAX 512u
#define REACH_OUTPUT_MAX (512u << 10)

enum reach_result { REACH_NOT_MEASURED, REACH_PASS, REACH_FAIL };

/* What one try came to. */
struct reach_try {
    int told; /* the probe printed its line */
    int errnum, connected;
    int64_t got; /* -1: could not be tried as asked */
    uint64_t us, bytes, carried, refused;
};

struct reach_row {
    char *id, *group, *kind, *address, *twin_address, *name, *options, *rule, *why; /* owned */
    uint16_t port;
    int allow, by_cell;
    struct reach_try try, twin;
    enum reach_result result;
    const char *saw; /* static sentence */
};

struct reach_matrix {
    struct reach_row *rows;
    size_t n, dropped;   /* rows beyond REACH_ROWS_MAX: not measured */
    uint32_t port, twin; /* first source port of the tries and of the twins */
    int own_kernel; /* the cell has a kernel of its own: rows about sockets say nothing there */
    char nonce[CELLA_ID_LEN + 1];
    size_t pass, fail, not_measured;
};

void matrix_fini(struct reach_matrix *m);
/* ctx: the matrix. Callbacks of the enforcer. */
void matrix_row(void *ctx, const struct cella_reach_row *row);
void matrix_seen(void *ctx, const struct cella_reach_seen *seen);
/* Nonce and ports. */
int matrix_plan(struct reach_matrix *m);
/* The probe's input. */
int matrix_lines(const struct reach_matrix *m, unsigned timeout_ms, struct buf *ret);
/* The probe's output: hostile, it passed through the cell. -EPROTO on the first line that cannot be its. */
int matrix_output(struct reach_matrix *m, const char *text, size_t len);
void matrix_judge(struct reach_matrix *m);
const char *matrix_verdict(const struct reach_matrix *m); /* pass fail not_measured */
json_t *matrix_json(const struct reach_matrix *m);        /* array of rows; NULL on OOM */

#endif
