/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * loop - the VMM thread: epoll over control, tap, sockets, kicks and timers. Callbacks run with the machine's lock
 * held and never wait.
 */
#ifndef CELLA_VMM_LOOP_H
#define CELLA_VMM_LOOP_H

#include <stdint.h>

struct loop;

typedef void (*loop_ready)(void *self, int fd, uint32_t events); /* EPOLL* */
typedef void (*loop_due)(void *self);

struct loop *loop_new(void);
void loop_free(struct loop *l);
/* events 0 = keep it, but wake for nothing (errors too). Level-triggered. */
int loop_watch(struct loop *l, int fd, uint32_t events, loop_ready ready, void *self);
int loop_change(struct loop *l, int fd, uint32_t events);
void loop_unwatch(struct loop *l, int fd); /* safe inside a callback, for any fd */
/* One timer per (due, self); set again = moved; ns 0 = taken back. Monotonic. */
int loop_timer(struct loop *l, uint64_t in_ns, loop_due due, void *self);
/* Until loop_end(). before/after are called around what a wake-up runs: the machine's lock. */
int loop_run(struct loop *l, void (*before)(void *), void (*after)(void *), void *ctx);
void loop_end(struct loop *l);

#endif
