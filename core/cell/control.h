/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* control - one connected client; shared by control.c, calls.c and streams.c. */
#ifndef CELLA_CONTROL_H
#define CELLA_CONTROL_H

#include "warden.h"

struct peer {
    struct warden *warden;
    struct framer *framer;
    int fd;                       /* the framer's */
    char spare[CELLA_ID_LEN + 1]; /* a machine that waits for a fork of this cell; "" = a client */
    uint64_t serial;
    int dead;        /* waits to be freed */
    int lease;       /* the cell goes when this connection goes */
    int one_command; /* the cell goes when a command of this connection has ended */
    struct relay *relays;
    struct peer *next;
};

/* calls.c: {"call": NAME, "args": …, "progress": true} of a client. */
void peer_call(struct peer *p, uint32_t id, json_t *message);

#endif
