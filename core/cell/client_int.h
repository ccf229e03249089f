/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* client_int - the connection that client.c and session.c share. */
#ifndef CELLA_CLIENT_INT_H
#define CELLA_CLIENT_INT_H

#include <sys/types.h>

#include "client.h"

struct client {
    int fd;        /* the warden; -1 = gone */
    int errfd;     /* what the warden we started says on its stderr, or -1 */
    pid_t pid;     /* of that warden, or 0 */
    char cell[64]; /* for messages */
    uint32_t next_id, next_stream;
    uint32_t sent_id;    /* of client_call_send() */
    char sent[16];       /* and its name */
    uint32_t later_id;   /* of client_call_begin(), 0 = none */
    json_t *later_reply; /* its answer, when it came */
    struct buf out;      /* frames not sent yet, from out_off */
    size_t out_off;
    size_t in_len, in_used; /* bytes in `in`, and of them the frame handed out last */
    uint8_t in[CELLA_FRAME_HEADER + CELLA_FRAME_MAX];
    char said[2048]; /* the last of errfd */
    size_t said_len;
};

struct client *client_alloc(void); /* NULL: out of memory */

int wire_queue(struct client *cl, uint16_t type, uint16_t channel, uint32_t stream, uint32_t id,
               const void *payload, size_t len);
size_t wire_pending(const struct client *cl);
/* Send and receive what is possible without waiting; -EPIPE when the warden is gone. */
int wire_flush(struct client *cl);
int wire_fill(struct client *cl);
/* 1 = a whole frame (valid until the next call), 0 = not yet, -EPROTO. */
int wire_next(struct client *cl, struct cella_frame *f, const uint8_t **ret_payload);
void wire_listen(struct client *cl); /* empties errfd */
/* A REPLY frame that client_call_begin() waits for is kept; 1 = it was one. */
int wire_later(struct client *cl, const struct cella_frame *f, const uint8_t *payload);
/* warden.c: the life of a warden in its own process, from its first call to its exit status. The client is
   descriptor 3. `config`: as the client read it; stays valid. */
int warden_main(struct config *config);
/* The error of a warden that is gone or talks nonsense: with what it said last and how it ended. */
int wire_dead(struct client *cl, int code, struct cella_error *err);

#endif
