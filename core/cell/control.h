/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* control - one connected client; shared by control.c and streams.c. */
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

#endif
