/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* serial - a 16550A whose far end is a pipe. Nothing ever comes in. */
#ifndef CELLA_VMM_SERIAL_H
#define CELLA_VMM_SERIAL_H

#include "bus.h"
#include "loop.h"
#include "state.h"

struct serial;

struct serial *serial_new(struct bus *ports, struct loop *loop, int borrow_console_fd,
                          int borrow_irq_fd);
void serial_flush(struct serial *s);
void serial_save(const struct serial *s, struct state_out *o);
int serial_load(struct serial *s, struct state_in *i);
void serial_free(struct serial *s);

#endif
