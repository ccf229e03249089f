/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* guest_int - what guest.c, guest_clock.c and guest_shown.c share. */
#ifndef CELLA_CELL_GUEST_INT_H
#define CELLA_CELL_GUEST_INT_H

#include "guest.h"
#include "warden.h"

#define BOOT_NS 120000000000ull /* an emulated machine on a busy host */
#define CALL_NS 40000000000ull

struct update {
    int under_way;
    struct pending from;
    struct config_limits is;
};

struct machine {
    struct guest *guest;
    struct buf boot; /* MOUNT COVER PIDS MEMORY READONLY */
    char hostname[65];
    int copy;
    uint64_t generation;
    uint8_t nonce[CELLA_GUEST_NONCE];      /* of the agent's link to a copy */
    int timer;                             /* until HELLO on port 1 */
    uint64_t clock_began, clock_sent;      /* the first time, and the last */
    int clocks, clock_timer;               /* not answered yet; until it is told again */
    uint64_t began;                        /* its processors run */
    void (*after_clock)(struct warden *w); /* NULL: nothing waits for it */
    struct cella_stats usage;              /* as last told */
    int asking;
    struct update update;
    struct {
        size_t sent;
        unsigned halved;
        int sending;
    } denials;
};

/* guest.c: the end of a start, or of the cell; ENTROPY and EPOCH_NS. */
void machine_failed(struct warden *w, const char *why);
void machine_world(struct buf *b);

/* guest_clock.c: sets the guest's clock, then goes on with `after`, if any; and leaves it for now. */
void machine_clock(struct warden *w, void (*after)(struct warden *w));
void machine_clock_leave(struct warden *w);

/* guest_shown.c: every file as it is now. */
int machine_show_all(struct warden *w);

/* What differs between the two, for the guest's init; `done` gets the warden. */
int machine_resize(struct warden *w, const struct config_limits *was,
                   const struct config_limits *is, guest_done done);

#endif
