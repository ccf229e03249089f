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

/* Needs CAP_SETUID and CAP_SETGID over the range. `count` is at least 65536. */
int nspair_new(uint32_t uid_base, uint32_t count, struct nspair *ret, struct cella_error *err);
/* Only the user namespace; netns_fd becomes -1. */
int nspair_user_new(uint32_t uid_base, uint32_t count, struct nspair *ret, struct cella_error *err);
void nspair_close(struct nspair *p);

#endif
