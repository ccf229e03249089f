/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* pipe.h - a pipe's inside, for splice. */
#ifndef SENTRY_IPC_PIPE_H
#define SENTRY_IPC_PIPE_H

#include "state.h"

struct pipe_slot {
    uint8_t *bytes; /* PAGE_SIZE of them; owned */
    uint16_t offset, length;
    bool packet; /* O_DIRECT: one write is one read */
    bool alone;  /* of splice: nothing is put behind its bytes */
};

struct pipe {
    uint32_t refs; /* files, opens that wait */
    uint32_t readers, writers;
    uint32_t opened_read, opened_write; /* how often: who waits in open() sees a change */
    uint32_t n_slots, first, used;
    struct pipe_slot *slots;
    struct inode *inode; /* borrowed; NULL: no FIFO */
    struct waitq waitq;  /* POLLIN readers, POLLOUT writers, 0 opens */
};

struct pipe *pipe_make(void); /* one reference; NULL: no memory, too many */
void pipe_put(struct pipe *pipe);
void pipe_opened(struct pipe *pipe, struct file *file);
void pipe_release(struct file *file);      /* the opposite, with its reference */
struct pipe *file_pipe(struct file *file); /* NULL: not a pipe */
struct pipe_slot *pipe_slot(struct pipe *pipe, uint32_t index);
bool pipe_full(const struct pipe *pipe);
void pipe_drop_first(struct pipe *pipe);            /* the slot is empty */
struct pipe_slot *pipe_add(struct pipe *pipe);      /* a new last slot, empty; NULL: no memory */
void pipe_undo_add(struct pipe *pipe);              /* takes it away again */
void pipe_wake(struct pipe *pipe, uint32_t events); /* readers POLLIN, writers POLLOUT */
int pipe_wait_data(struct file *file,
                   bool nonblock); /* 1 data, 0 no writers, -EAGAIN, -ERESTARTSYS */

#endif
