/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* gofer_int - the gofer's client, as its tests see it. */
#ifndef SENTRY_FS_GOFER_INT_H
#define SENTRY_FS_GOFER_INT_H

#include "fs.h"

#include "../../gofer/protocol.h"

/* Is this datagram an answer to `op`? 0 or -EPROTO. n_fds: descriptors that came with it. */
int gofer_reply_judge(uint32_t op, const struct gofer_reply *reply, size_t size, int n_fds);
/* READDIR's data, judged whole before the first name is shown: entries, or -EPROTO. */
int gofer_entries(const char *data, size_t size,
                  void (*each)(void *ctx, const char *name, size_t length, uint64_t number,
                               uint8_t type),
                  void *ctx);

#endif
