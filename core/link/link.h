/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * link - host side of <cella/link.h>.
 *
 * fields.c  numbers and fields, bounded, no allocation per field
 * frame.c   frames over a stream socket
 * link.c    one agent connection: checks every frame against the protocol (check.c) before anybody sees it
 * guest.c   the same with the init of a guest machine; guest_reset.c: with one that was restored
 *
 * Every byte from the agent is hostile. A violation ends the link with one message; it never crashes,
 * allocates without bound or blocks.
 */
#ifndef CELLA_CORE_LINK_H
#define CELLA_CORE_LINK_H

#include <cella/link.h>

#include "loop.h"
#include "util.h"

/* ---- fields ---- */
int field_add(struct buf *b, uint16_t tag, const void *p, size_t len);
int field_add_u32(struct buf *b, uint16_t tag, uint32_t v);
int field_add_u64(struct buf *b, uint16_t tag, uint64_t v);
int field_add_str(struct buf *b, uint16_t tag, const char *s);
struct field {
    uint16_t tag;
    uint32_t len;
    const uint8_t *p;
};
/* Iterates; *pos starts 0. 1 = field, 0 = end, -EBADMSG. */
int field_next(const uint8_t *payload, size_t len, size_t *pos, struct field *ret);
/* First field of that tag: 0, -ENOENT, -EBADMSG (malformed or wrong length). */
int field_get_u32(const uint8_t *payload, size_t len, uint16_t tag, uint32_t *ret);
int field_get_u64(const uint8_t *payload, size_t len, uint16_t tag, uint64_t *ret);
int field_get_str(const uint8_t *payload, size_t len, uint16_t tag, const char **ret,
                  size_t *ret_len);

/* ---- frames over a non-blocking stream socket, either side ---- */
struct framer; /* input buffer bounded to one frame, output buffer bounded by `out_max` */
int framer_new(struct loop *loop, int own_fd, size_t out_max,
               int (*on_frame)(void *ctx, const struct cella_frame *f,
                               const uint8_t *payload), /* <0 closes */
               void (*on_closed)(void *ctx, int code), void *ctx, struct framer **ret);
/* Copies and sends as the socket allows; -EPIPE after close, -EOVERFLOW past out_max (peer does not read). */
int framer_send(struct framer *f, uint16_t type, uint16_t channel, uint32_t stream, uint32_t id,
                const void *payload, size_t len);
size_t framer_pending(const struct framer *f);
/* Stops or resumes reading (back-pressure). */
void framer_read_enable(struct framer *f, int on);
void framer_free(struct framer *f);

/* ---- the agent connection ---- */
struct link;
struct link_stream;

struct link_stream_events {
    /* A checked frame of this stream: OPENED, DATA, CREDIT, EOF, or the terminal EXIT, RESULT, ERROR; after
       a terminal frame the stream is freed when the callback returns. When the link dies first, a
       made-up ERROR frame with ERRNO=EPIPE ends every stream. */
    void (*frame)(void *ctx, struct link_stream *s, const struct cella_frame *f,
                  const uint8_t *payload);
};

struct link_events {
    void (*hello)(void *ctx, uint32_t version);
    /* Called once. -ECONNRESET: the agent is gone. -EPROTO: it broke the protocol; `why` says how. */
    void (*closed)(void *ctx, int code, const char *why);
};

int link_new(struct loop *loop, int own_fd, const struct link_events *events, void *ctx,
             struct link **ret);
void link_free(struct link *l);
/* `fields` = OP and what the operation takes. */
int link_open(struct link *l, const void *fields, size_t len,
              const struct link_stream_events *events, void *ctx, struct link_stream **ret);
/* Sends DATA, CREDIT, EOF, SIGNAL, RESIZE or CLOSE. DATA beyond the agent's credit is -EAGAIN: wait for CREDIT. */
int link_send(struct link_stream *s, uint16_t type, uint16_t channel, const void *payload,
              size_t len);
/* Bytes of DATA that may be sent on IN now. */
size_t link_credit(const struct link_stream *s);
/* Detach the callbacks' ctx without ending the stream: later frames are consumed and dropped, credit is returned. */
void link_stream_orphan(struct link_stream *s);
int link_shutdown(struct link *l, uint32_t timeout_ms);
/* 1: it has died, and the frame that a stream gets is made up; `closed` comes after those and says why. */
int link_lost(const struct link *l);

#endif
