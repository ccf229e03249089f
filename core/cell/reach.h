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

#define REACH_ROWS_MAX 16384u
#define REACH_BATCH 2048u  /* rows that one run of the probe takes */
#define REACH_HELD_MAX 32u /* of them in the first run; the enforcer's limit */
#define REACH_VIA_MAX 32u  /* rows that follow a redirect: two more twin ports each */
#define REACH_TWIN_PORTS (REACH_BATCH + 2 * REACH_VIA_MAX)
#define REACH_PORT_LO 20000u
#define REACH_PORT_HI 31999u
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
    char *text; /* owned: all of the following */
    const char *id, *group, *kind, *address, *twin_address, *name, *options, *rule, *why;
    uint16_t port, slot; /* slot: of those that are held, or that follow a redirect */
    uint8_t allow, by_cell, held, via;
    struct reach_try try, twin;
    enum reach_result result;
    const char *saw; /* static sentence */
};

struct reach_matrix {
    struct reach_row *rows;
    size_t n, cap;
    size_t dropped; /* beyond REACH_ROWS_MAX: not measured */
    int oom;
    size_t first, count;       /* the batch: rows of one run of the probe */
    uint32_t port, twin, held; /* first source port of the tries, of the twins, of what is held */
    unsigned n_held, n_via;
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
/* The next batch; 0: there is none. */
size_t matrix_next(struct reach_matrix *m);
/* The probe's input for the batch. */
int matrix_lines(const struct reach_matrix *m, unsigned patience_ms, unsigned total_ms,
                 struct buf *ret);
/* The probe's output: hostile, it passed through the cell. -EPROTO on the first line that cannot be its. */
int matrix_output(struct reach_matrix *m, const char *text, size_t len);
void matrix_judge(struct reach_matrix *m);
const char *matrix_verdict(const struct reach_matrix *m); /* pass fail not_measured */
json_t *matrix_json(const struct reach_matrix *m);        /* array of rows; NULL on OOM */

/* ---- reach_host.c: sinks of our own on the host, which no cell may get to ---- */
struct reach_host {
    int tcp, abstract; /* listening; -1: it could not be made */
    size_t tcp_row, abstract_row;
};
/* Listens, and adds the rows. */
void reach_host_begin(struct reach_host *h, struct reach_matrix *m);
/* Counts who came, and stops. */
void reach_host_end(struct reach_host *h, struct reach_matrix *m);

/* ---- reach_report.c: what a result is bound to, and where it goes ---- */
struct warden;
struct reach_taken {
    uint64_t started, generation; /* ns; the policy's */
    char sha256[65];              /* of the policy */
};
/* Judges, records, appends to the audit; *ret is what the client is told. */
int reach_report(struct warden *w, struct reach_matrix *m, const struct reach_taken *t,
                 json_t **ret, struct cella_error *err);

#endif
