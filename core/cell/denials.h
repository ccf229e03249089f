/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * denials - the file that a cell sees as /run/cella/denials: what was refused to it and why, one JSON object a
 * line, the newest last, bounded. It is written from outside; the cell can only read it.
 */
#ifndef CELLA_CELL_DENIALS_H
#define CELLA_CELL_DENIALS_H

#include "util.h"

#define DENIALS_MAX (256u << 10) /* bytes; then the older half goes */

struct denials {
    int dir, fd; /* -1, -1 = off */
    size_t bytes;
    unsigned halved; /* how often another file has taken the name */
};

/* Begins with an empty file in `borrow_dir`. 0 or -errno. */
int denials_open(struct denials *d, int borrow_dir);
/* The reason's sentence of help is added. A failure turns the file off: it is a courtesy to the
   cell, the audit is what counts. */
void denials_add(struct denials *d, const struct cella_event *event, uint64_t wall_ns);
void denials_close(struct denials *d);
/* One sentence for a reason word; "" for one that is not known. */
const char *denial_help(const char *reason, size_t len);

#endif
