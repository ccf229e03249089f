/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * client - how a program (a CLI verb, later the broker) talks to wardens. Blocking; one connection
 * carries calls and streams. core/cell/README.md describes what goes over the wire.
 */
#ifndef CELLA_CLIENT_H
#define CELLA_CLIENT_H

#include "config.h"
#include "link.h"
#include "store.h"

struct client;

/* A stage that the warden has entered, and when: now_ns(), which is the same in all processes of a host. */
typedef void client_progress(void *ctx, const char *stage, uint64_t at);

/* Starts a warden (its own process, own session) for a new cell; the cell does not exist before
 * "create". */
int client_spawn(struct config *c, struct client **ret, struct cella_error *err);
/* Connects to the warden of a cell by name or id (or unique prefix of the id). */
int client_connect(const struct config *c, const char *cell, struct client **ret,
                   struct cella_error *err);
void client_free(struct client *cl);
/* One call. *ret_result: new reference, the "ok" object. An error reply becomes err; *ret_exit (may
   be NULL) gets the exit status the reply asks for (125 when it asks for none). `args` is borrowed;
   may be NULL. `progress` (may be NULL) gets each stage the warden passes: "backend", "image",
   "attach", "create", … */
int client_call(struct client *cl, const char *call, json_t *args, json_t **ret_result,
                int *ret_exit, client_progress *progress, void *ctx, struct cella_error *err);

/* client_call() in two halves, between which more may be sent: calls that are begun, and one stream that the
   warden opens when the first call has succeeded. Send nothing else for that stream before client_call_wait(). */
int client_call_send(struct client *cl, const char *call, json_t *args, int progress,
                     struct cella_error *err);
int client_call_wait(struct client *cl, json_t **ret_result, int *ret_exit,
                     client_progress *progress, void *ctx, struct cella_error *err);
/* Sends OPEN; the number goes into struct session. */
int client_open(struct client *cl, const void *fields, size_t len, uint32_t *ret_stream,
                struct cella_error *err);

/* A call whose answer is fetched later: it may arrive while a session runs. One at a time per
 * client. */
int client_call_begin(struct client *cl, const char *call, json_t *args, struct cella_error *err);
int client_call_end(struct client *cl, json_t **ret_result, struct cella_error *err);

/* A stream with the standard streams of this process, or with given descriptors (-1 = none). */
struct session {
    const void *fields;
    size_t fields_len;   /* of the OPEN frame */
    int in, out, err;    /* borrowed; `in` is read until EOF and then EOF is sent */
    int tty;             /* put `in` into raw mode, forward SIGWINCH */
    int forward_signals; /* INT, TERM, HUP, QUIT, USR1, USR2 go to the command's whole tree */
    uint32_t stream;     /* of client_open(), whose fields these are; 0 = not opened yet */
    size_t out_max; /* more bytes than this on `out` end the session with -EFBIG; 0 = no bound */
};
struct session_end {
    uint16_t type; /* CELLA_FRAME_EXIT, RESULT or ERROR */
    uint8_t payload[4096];
    size_t len; /* its fields */
};
/* 0: *ret holds the terminal frame. -EPIPE with ret->type set: our `out` was closed by its reader,
   the command was killed. -EPIPE without: the warden is gone. Set ret->type to 0 before. */
int client_session(struct client *cl, const struct session *s, struct session_end *ret,
                   struct cella_error *err);

/* A digest of what cells are made by: a machine that was prepared under another is not used (spare.c). */
void spare_config(const struct config *c, char hex[65]);

#endif
