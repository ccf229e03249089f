/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * http - the HTTP engine's own parts. One process per cell, one thread, level-triggered epoll.
 *
 * main.c     start, privilege, loop, control     flow.c    life of a flow, raw pump, publication
 * side.c     one socket, with or without TLS     tls.c     contexts, handshakes, ALPN
 * ca.c       the cell's CA and its leaves        secrets.c values in locked memory
 * judge.c    verdict, injection, redaction       deny.c    what cell and warden are told
 * head.c chunk.c  HTTP/1.1 syntax                h1.c h1body.c  HTTP/1.1 exchanges
 * h2.c h2msg.c    HTTP/2 sessions; their messages
 */
#ifndef CELLA_HTTP_H
#define CELLA_HTTP_H

#include <openssl/ssl.h>
#include <stddef.h>
#include <stdint.h>

#define WATCH_OWNER engine
#include "../ctl.h"
#include "../engine.h"
#include "../watch.h"
#include "head.h"
#include "table.h"

#define OUT_MAX 65536u /* above it nothing more is produced for a side */
#define IN_MAX 16384u  /* read ahead, unless a head needs more */
#define HANDSHAKE_NS 30000000000u
#define LINGER_NS 2000000000u
#define ROUNDS_MAX 16

struct engine;
struct flow;

/* Bytes on their way; holds no memory while empty. */
struct bytes {
    char *p;
    size_t off, len, cap;
};
int bytes_add(struct bytes *b, const void *p, size_t n); /* 0 or -ENOMEM */
int bytes_addf(struct bytes *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void bytes_drop(struct bytes *b, size_t n); /* wiped: there may be secrets among them */
void bytes_fini(struct bytes *b);
#define bytes_at(b) ((b)->p + (b)->off)

/* Pieces of memory that go together; wiped when they go. */
struct arena {
    struct arena_piece *first;
};
char *arena_take(struct arena *a, size_t n); /* NULL: out of memory */
void arena_fini(struct arena *a);

struct side {
    struct watch w;
    uint64_t plain_read, plain_written;
    SSL *ssl;
    struct bytes in, out;
    int eof;                      /* the peer said that nothing more comes */
    int fin;                      /* to be closed for writing once `out` is empty */
    int fin_sent;                 /* and it is */
    int wants_write;              /* TLS needs the socket writable to go on */
    int wants_more;               /* the last read ended for want of bytes, not of room */
    int ready;                    /* 0: nothing more to read before epoll says so */
    int starved;                  /* ENGINE_TX, ENGINE_RX: bytes wait that may not be moved */
    uint64_t may_read, may_write; /* totals on the wire */
};

enum phase {
    PHASE_HELLO, /* the cell's ClientHello */
    PHASE_UP,    /* TLS with the upstream */
    PHASE_CELL,  /* the rest of the handshake with the cell */
    PHASE_H1,
    PHASE_H2,
    PHASE_RAW,    /* WebSocket */
    PHASE_CLOSING /* last words to the cell, then nothing */
};

/* One request's way through the judge, kept for the next publication. */
struct judged {
    char method[METHOD_MAX];
    char *path; /* owned */
    int websocket;
};

struct h1 {
    enum { Q_HEAD = 0, Q_BODY, Q_TRAILER, Q_DONE } q;
    enum { R_IDLE = 0, R_HEAD, R_BODY, R_TRAILER, R_DONE } r;
    enum body_kind q_kind, r_kind;
    uint64_t q_left, r_left;
    struct chunk q_chunk, r_chunk;
    size_t q_scanned, r_scanned;
    int close;                       /* after this exchange */
    int head_method, upgrading, old; /* old: HTTP/1.0 */
    int answered;                    /* bytes of a response have gone to the cell */
};

struct h2;
struct flow {
    struct side cell, up;
    struct flow *next, *again;
    struct engine *e;
    uint64_t deadline, gen, told_tx, told_rx;
    uint32_t id, dst;
    uint16_t port;
    int tls, dead, queued, measured;
    int asked; /* ENGINE_TX, ENGINE_RX: the gate was asked for more */
    enum phase phase;
    uint32_t refused; /* enum ctl_reason: every request gets this answer */
    int hello_seen, hello_bad;
    unsigned char offer[64]; /* the client's ALPN list, filtered */
    unsigned offer_len;
    const char *alpn; /* what the upstream chose; NULL: nothing */
    struct judged judged;
    char *basic; /* base64 of the injected credentials, to be found in responses */
    struct h1 h1;
    struct h2 *h2;
    char rule[POLICY_ID_MAX + 1];
    char name[ENGINE_NAME_MAX + 1];
};

struct secret {
    char name[64];
    char *value; /* locked */
    size_t len;
};
#define SECRETS_MAX 64u

struct engine {
    int ep;
    struct watch ctl, flows;
    struct policy_table table;
    struct flow *list, *dead, *again;
    unsigned n_flows;
    struct secret secrets[SECRETS_MAX];
    unsigned n_secrets;
    SSL_CTX *server, *client;
    struct bytes queue; /* control messages that did not go yet */
    double tokens;      /* budget of events */
    uint64_t tokens_at, suppressed;
    int quit;
};

/* ---- main.c ---- */
int engine_tell(struct engine *e, const struct ctl_msg *m);
void engine_tell_gate(struct engine *e, const struct engine_msg *m);

/* ---- side.c ---- */
/* >0 bytes moved, 0 nothing to do now, -errno broken. `room`: how much may lie in `in`. */
long side_fill(struct side *s, size_t room);
long side_flush(struct side *s);
void side_arm(struct engine *e, struct side *s, int reading);
/* Closes; `hard`: with a reset. */
void side_close(struct engine *e, struct side *s, int hard);
uint64_t side_read_total(const struct side *s);
uint64_t side_written_total(const struct side *s);

/* ---- tls.c ---- */
int tls_init(struct engine *e, int ca_fd);
/* 1: phase changed, 0: waiting, <0: end the flow. */
int tls_step(struct flow *f);
int tls_cell(struct flow *f); /* makes the cell's side a TLS server */

/* ---- ca.c ---- */
#define AUTHORITIES_MAX 16u
/* Names the CA may speak for; none: any. The key file is empty, or an earlier engine's, whose key and names count
   then; -1: none is kept. */
int ca_init(char *const *names, size_t n_names, int own_key_file);
/* A further certificate for these. 0, or -ENOSPC: there are AUTHORITIES_MAX. */
int ca_more(char *const *names, size_t n_names);
int ca_pem(struct bytes *out); /* all of them */
/* Does once what OpenSSL does lazily, before the filter. */
int ca_warm(struct engine *e);
/* Certificate and key for `name` into ssl. 0 or -errno. */
int ca_use(SSL *ssl, const char *name);

/* ---- secrets.c ---- */
int secret_put(struct engine *e, const char *name, const char *value, size_t len);
/* Forgets what no rule of the table in force names. */
void secret_trim(struct engine *e);
const struct secret *secret_find(const struct engine *e, const char *name);

/* ---- flow.c ---- */
void flow_new(struct engine *e, const struct engine_msg *m, int own_cell, int own_up);
void flow_end(struct flow *f, int hard, uint32_t reason);
void flow_pump(struct flow *f);
/* The gate allows more, or less. */
void flow_may(struct engine *e, const struct engine_msg *m);
void flow_closing(struct flow *f); /* PHASE_CLOSING; the upstream is let go */
void flow_tick(struct engine *e);
void flow_reap(struct engine *e);
void flow_again(struct engine *e);
/* Resets what the table no longer allows. Returns how many flows and streams the gate cannot know of. */
uint64_t flow_judge_all(struct engine *e);
void flow_end_all(struct engine *e);
void flow_progress(struct engine *e);
void judged_set(struct judged *j, const char *method, const char *path, size_t path_len, int ws);

/* ---- judge.c ---- */
/* The reason to refuse, or REASON_NONE with the fields as the upstream shall get them. Strings made on the
   way live in `arena` until it is dropped. */
uint32_t judge_request(struct flow *f, const struct judged *j, struct fields *fields,
                       struct arena *arena, const struct policy_rule **ret_rule);
/* Drops trailers named like a header that is injected. 0. */
int judge_trailers(struct flow *f, const struct judged *j, struct fields *fields);
/* 1: still allowed. */
int judge_again(struct flow *f, const struct judged *j);
/* Values in response fields that hold a secret. */
int judge_redact(struct flow *f, struct fields *fields, struct arena *arena);

/* ---- deny.c ---- */
struct denial {
    int status;
    const char *phrase;
    char header[64]; /* value of x-cella-denied */
    char text[320];
};
void deny_text(struct flow *f, uint32_t reason, struct denial *ret);
/* The event. `rule`, `j` may be NULL. */
void deny_event(struct flow *f, uint32_t reason, const struct policy_rule *rule,
                const struct judged *j);

/* ---- h1.c, h1body.c ---- */
long h1_step(struct flow *f);
size_t h1_room(const struct flow *f, const struct side *s);
void h1_refuse(struct flow *f, uint32_t reason, int keep, int head_method);
long h1_request_body(struct flow *f);
long h1_response_body(struct flow *f);
int h1_put_fields(struct bytes *out, const struct fields *fields);

/* ---- h2.c ---- */
int h2_start(struct flow *f);
long h2_step(struct flow *f);
int h2_done(const struct flow *f);
uint64_t h2_judge(struct flow *f);
void h2_free(struct flow *f);

/* ---- ../filter.c ---- */
int filter_install(void);

#endif
