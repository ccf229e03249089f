/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Runs the built agent and talks to it through core/link, for test_agent.c.
 */
#ifndef AGENT_HARNESS_H
#define AGENT_HARNESS_H

#include <sys/types.h>

#include "link.h"

struct cell {
    struct loop *loop;
    struct link *link;
    pid_t pid;   /* as this process sees the agent (or the process that holds its namespaces) */
    pid_t agent; /* the agent itself, as this process sees it */
    int as_init; /* PID 1 of its own namespaces */
    int hello, closed, closed_code;
    char why[256];
};

/* What came of one operation. */
struct op {
    struct cell *cell;
    struct link_stream *s; /* NULL once it ended */
    struct buf out, err;
    int eof_out, eof_err, opened, ended;
    uint32_t pid;
    uint16_t type; /* of the terminal frame */
    uint32_t status, sig, timed_out, err_no, count, mode, ftype, uid, gid;
    uint64_t size, utime, maxrss;
    char msg[600], link[256];
    size_t got;    /* bytes of OUT, kept or not */
    int no_credit; /* do not return credit */
    int keep;      /* keep what comes */
};

/* For cmocka: *state is a struct cell. */
int cell_setup(void **state);
int cell_setup_init(void **state);
int cell_teardown(void **state);
int cell_start(struct cell *c, int as_init);
void cell_stop(struct cell *c);
/* Turns the loop until *flag, at most ms: 0, or -ETIMEDOUT. */
int cell_wait(struct cell *c, const int *flag, unsigned ms);
void cell_turn(struct cell *c, unsigned ms);

/* argv and env end with NULL; extra: more fields. */
void op_exec(struct cell *c, struct op *o, const char *const *argv, const struct buf *extra);
void op_fields(struct cell *c, struct op *o, const struct buf *fields);
void op_path(struct cell *c, struct op *o, uint32_t op, const char *path, const struct buf *extra);
int op_wait(struct op *o, unsigned ms);
/* Sends n bytes on IN as credit allows, turning the loop; fewer if the stream ends or nothing moves
 * for ms. */
size_t op_write(struct op *o, const void *p, size_t n, unsigned ms);
void op_eof(struct op *o);
void op_credit(struct op *o, uint16_t channel, uint32_t n);
void op_signal(struct op *o, uint32_t sig, uint32_t scope);
void op_fini(struct op *o);

/* Processes below pid, itself not counted; -1 = cannot tell. */
int descendants(pid_t pid);
long vm_rss_kib(pid_t pid);

#endif
