/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * What the files of core/link share, and what their tests and fuzz targets need: nobody else
 * includes this.
 */
#ifndef CELLA_CORE_LINK_INTERNAL_H
#define CELLA_CORE_LINK_INTERNAL_H

#include "link.h"

uint16_t le16(const uint8_t *p);
uint32_t le32(const uint8_t *p);
void put_le16(uint8_t *p, uint16_t v);
void put_le32(uint8_t *p, uint32_t v);
uint64_t le64(const uint8_t *p);

/* As if the bytes had arrived on the socket. -EPIPE: closed or not reading; the framer may be gone.
 */
int framer_feed(struct framer *f, const uint8_t *p, size_t n);

/* One turn of this connection alone: waits for its socket and acts. */
void framer_turn(struct framer *f, int timeout_ms);
/* Appends a whole frame. */
int frame_encode(struct buf *b, uint16_t type, uint32_t stream, const void *payload, size_t len);

/* What the protocol knows about one stream; check.c moves it, link.c owns it. */
struct stream_state {
    uint32_t op;
    uint8_t tty, has_in;
    uint8_t opened;     /* exec: OPENED was seen */
    uint8_t eof[3];     /* by channel: IN sent by us, OUT and ERR by the agent */
    uint8_t closed;     /* CLOSE was sent */
    uint8_t ended;      /* terminal frame seen */
    uint32_t credit[3]; /* IN: what we may send; OUT, ERR: what the agent may send */
};

/* From the fields of OPEN: -EINVAL, -EBADMSG. */
int check_open(const void *fields, size_t len, struct stream_state *ret);
/* HELLO: 0, or -EPROTO with why. */
int check_hello(const struct cella_frame *f, const uint8_t *payload, uint32_t *ret_version,
                char *why, size_t why_cap);
/* Any later frame of the agent on a stream: 0 and the state moved, or -EPROTO with why. */
int check_frame(struct stream_state *s, const struct cella_frame *f, const uint8_t *payload,
                char *why, size_t why_cap);
/* A frame of ours: 0 = send it and the state moved, 1 = nothing to send, -EAGAIN, -EINVAL, -EPIPE.
 */
int check_send(struct stream_state *s, uint16_t type, uint16_t channel, const void *payload,
               size_t len);

struct framer *link_framer(struct link *l);
struct guest;
struct framer *guest_framer(struct guest *g);

#endif
