/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * nspair - a user namespace mapped 0 -> uid_base (and gids alike), and a network namespace that it
 * owns, as descriptors. Nothing runs in them. They vanish when the last descriptor and the last
 * process of them are gone.
 */
#ifndef CELLA_NSPAIR_H
#define CELLA_NSPAIR_H

#include "util.h"

struct nspair {
    int userns_fd, netns_fd;
};
#define NSPAIR_INIT                                                                                \
    {                                                                                              \
        -1, -1                                                                                     \
    }

/* A pair that a child is making; `stack` NULL = none. It must stay where it is until finish or drop. */
struct nspair_making {
    pid_t pid;
    int near, far, want_net;
    char *stack;
};
#define NSPAIR_MAKING_INIT                                                                         \
    (struct nspair_making)                                                                         \
    {                                                                                              \
        .stack = NULL                                                                              \
    }

/* The half that takes time and does not need the range: it goes on by itself after the return. */
int nspair_begin(int want_net, struct nspair_making *ret, struct cella_error *err);
/* Takes what begin made, whatever it returns. Range as below. */
int nspair_finish(struct nspair_making *m, uint32_t uid_base, uint32_t count, struct nspair *ret,
                  struct cella_error *err);
/* Harmless on an empty one. */
void nspair_drop(struct nspair_making *m);

/* Both at once. Needs CAP_SETUID and CAP_SETGID over the range. `count` is at least 65536. */
int nspair_new(uint32_t uid_base, uint32_t count, struct nspair *ret, struct cella_error *err);
/* Only the user namespace; netns_fd becomes -1. */
int nspair_user_new(uint32_t uid_base, uint32_t count, struct nspair *ret, struct cella_error *err);
void nspair_close(struct nspair *p);

#endif
