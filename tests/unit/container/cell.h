/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* cell - a test cell: loads the plugin by its entry symbol, boots the probe agent on a skeleton of
 * this host. */
#ifndef CELLA_TEST_CELL_H
#define CELLA_TEST_CELL_H

#include <cella/backend.h>

#include "util.h"

#define TEST_UID_BASE 1879113728u

struct cell {
    char id[CELLA_ID_LEN + 1];
    char dir[64]; /* skeleton, scratch; on a tmpfs or disk */
    char skeleton[96], scratch[96];
    struct cella_limits limits;
    struct cella_spec spec;
    struct cella_mount mounts[8];
    struct cella_options options;
    int agent_fd, stream;
    void *self;
    struct cella_started started;
    struct errbuf eb;
    char reply[16384];
    char events[1024]; /* kinds emitted, and the first field of each */
};

const struct cella_backend_ops *cell_ops(void);
void cells_apart(
    void); /* a mount namespace of this process: what others mount meanwhile is not in it */
void cell_init(struct cell *c);
int cell_create(struct cell *c); /* create only */
int cell_boot(struct cell *c);   /* create, connect, start */
/* Sends a line, returns the number of the answer; the text is in c->reply. -EPIPE when the agent is
 * gone, -ETIMEDOUT. */
long cell_ask(struct cell *c, const char *fmt, ...) CELLA_PRINTF(2, 3);
long cell_ask_timeout(struct cell *c, int ms, const char *line);
/* Calls a typed method that takes nothing and answers with JSON. */
int64_t cell_json(const struct cell *c, const char *name, char *buf, uint64_t cap);
void cell_fini(struct cell *c); /* stop, destroy, remove the directory */
struct cella_stats cell_stats(struct cell *c);

#endif
