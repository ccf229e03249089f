/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * watch - descriptors of a level-triggered epoll set: the same for the gate and for the HTTP
 * engine. gate.h and http.h include it after they have said whose loop it is:
 *
 *   #define WATCH_OWNER gate     a struct with the members `int ep` and `int quit`
 *
 * watch.c is compiled into each program with its header as WATCH_HEADER.
 */
#ifndef CELLA_EGRESS_WATCH_H
#define CELLA_EGRESS_WATCH_H

#include <stdint.h>

struct WATCH_OWNER;
struct flow;

struct watch {
    void (*fn)(struct WATCH_OWNER *owner, struct watch *w, uint32_t ready);
    struct flow *flow; /* of the engine: what it is a side of */
    int fd;
    uint32_t want; /* EPOLL* bits registered; 0 = none but errors */
    int armed;
};

/* A descriptor that cannot be watched is one that cannot be policed: the owner quits. */
void watch_set(struct WATCH_OWNER *owner, struct watch *w, uint32_t want);
void watch_del(struct WATCH_OWNER *owner, struct watch *w);
uint64_t watch_now(void); /* CLOCK_MONOTONIC, ns */

#endif
