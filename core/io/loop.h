/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * loop - the event loop: descriptors, one-shot timers, signals. One thread, level-triggered epoll.
 */
#ifndef CELLA_LOOP_H
#define CELLA_LOOP_H

#include <stdint.h>

#include <cella/host.h>

struct loop;
int loop_new(struct loop **ret);
void loop_free(struct loop *l);
/* Same contract as host->fd_watch. Watching a watched fd changes events and callback. It is safe to
   unwatch any fd, and to free what `data` points to, from inside any callback. */
int loop_watch(struct loop *l, int borrow_fd, uint32_t events, cella_fd_cb cb, void *data);
void loop_unwatch(struct loop *l, int borrow_fd);
int loop_timer(struct loop *l, uint64_t ns, cella_timer_cb cb, void *data); /* id > 0 or -errno */
void loop_timer_cancel(struct loop *l, int id);
/* Runs until loop_stop(); one turn for loop_turn(timeout_ns). */
int loop_run(struct loop *l);
int loop_turn(struct loop *l, int64_t timeout_ns);
void loop_stop(struct loop *l);

#endif
