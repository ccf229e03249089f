/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* gofer - what the files of cella-gofer share. */
#ifndef CELLA_GOFER_H
#define CELLA_GOFER_H

#include <stddef.h>

#include "protocol.h"

#define GOFER_FD_STDERR 2
#define GOFER_FD_SENTRY 3 /* the socket */

struct gofer_slot {
    int fd; /* -1: free */
    uint32_t generation;
    uint32_t next; /* of the free ones */
    uint32_t mode; /* file type */
};

struct gofer {
    struct gofer_slot *slots;
    uint32_t n_slots, free; /* free: first, n_slots: none */
    int self_fd; /* /proc/self/fd, also the working directory: a descriptor's number is a file name there */
    char listing[GOFER_DATA_MAX] __attribute__((aligned(8)));
};

/* Takes root_fd (O_PATH) as slot 0. slots: how many descriptors may be held. */
int gofer_init(struct gofer *g, uint32_t slots, int own_root_fd, int borrow_self_fd);
void gofer_fini(struct gofer *g);
/*
 * Answers one datagram. 1: send `ret_reply` (GOFER_REPLY_HEAD + length bytes), with *ret_fd, which is the caller's,
 * unless it is -1. 0: no answer. -EPROTO: it broke a rule; end.
 */
int gofer_handle(struct gofer *g, const void *message, size_t size, struct gofer_reply *ret_reply,
                 int *ret_fd);

/* place.c: from the host's root to the gofer's place, see there. Ends the program on failure. */
struct gofer_place {
    int root_fd, self_fd;
};
void gofer_place(int argc, char **argv, struct gofer_place *ret);
void gofer_die(int code, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

/* filter.c: the last stage before the first request is read. -ENOSYS in a build with sanitizers. */
int gofer_filter(void);

#endif
