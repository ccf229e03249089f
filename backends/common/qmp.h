/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * qmp - QEMU's control channel, from the side that gives the orders. One command at a time; events that
 * come in between are handed to a callback. What QEMU sends is hostile: the guest may have taken it
 * over. A message is bounded, read once, and nothing of it is used but what a caller asks for by name.
 */
#ifndef CELLA_QMP_H
#define CELLA_QMP_H

#include <jansson.h>

#include "util.h"

#define QMP_MESSAGE_MAX (256u << 10)
#define QMP_SECOND 1000000000ull

struct qmp {
    int fd; /* owned, non-blocking; -1 = none */
    struct buf in;
    uint64_t next_id;
    char version[32];                                         /* "7.2.22", from the greeting */
    void (*event)(void *ctx, const char *name, json_t *data); /* NULL = ignored; data may be NULL */
    void *ctx;
};

/* Takes the first line of `in` out of it. 1 and *ret (owned) when there was one, 0 when the line is not
   whole yet, -EBADMSG, -EFBIG, -ENOMEM. */
int qmp_take(struct buf *in, json_t **ret);

/* Waits for the greeting and negotiates. The descriptor is taken in any case. */
int qmp_open(struct qmp *q, int own_fd, uint64_t timeout_ns, struct cella_error *err);
void qmp_close(struct qmp *q);
/* One command. `own_args` may be NULL; it is released in any case. `borrow_fd` goes along when >= 0. *ret_return
   (may be NULL) is the answer, owned. -EIO: QEMU refused, in its own words, cleaned; -EPIPE: it is gone; -ETIMEDOUT. */
int qmp_call(struct qmp *q, const char *command, json_t *own_args, int borrow_fd,
             uint64_t timeout_ns, json_t **ret_return, struct cella_error *err);
/* Reads what has come, for the sake of its events. Never waits. -EPIPE when QEMU is gone. */
int qmp_drain(struct qmp *q);
/* Waits until `done` (looked at after each event) is not 0. */
int qmp_until(struct qmp *q, const int *done, uint64_t timeout_ns, const char *what,
              struct cella_error *err);

#endif
