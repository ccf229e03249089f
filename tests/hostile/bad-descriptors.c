/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Hands back descriptors that are none: a closed one, standard output, a file. */
#include "honest.h"

static int start(void *self, struct cella_started *ret_started, struct cella_error *err)
{
    ret_started->borrow_exit_fd = 900;
    return 0;
}

static int connect_(void *self, uint32_t port, int *ret_fd, struct cella_error *err)
{
    *ret_fd = port == 0 ? 1 : open("/proc/self/exe", O_RDONLY | O_CLOEXEC); /* no stream */
    return 0;
}

static const struct cella_backend_ops ops = {
    HONEST_BACKEND("bad-descriptors"),
    .start = start,
    .connect = connect_,
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
