/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* netlink.h - what is between netlink.c, which takes requests of a socket, and netlink_rows.c, which answers them. */
#ifndef SENTRY_IPC_NETLINK_H
#define SENTRY_IPC_NETLINK_H

#include "socket.h"

struct request {
    struct socket *socket;
    const struct nlmsghdr *head;
    const uint8_t *body; /* after the header; `size` bytes */
    size_t size;
    bool strict; /* NETLINK_GET_STRICT_CHK: what the header of a dump says chooses rows */
};

/* 0 or -errno, which the sender is told; -EINTR: a dump, which has been answered; -ENOBUFS: an answer is lost. */
int netlink_answer(const struct request *request);
/* A datagram of the kernel's: false when it is lost. */
bool netlink_queue(struct socket *socket, const void *bytes, uint32_t length);

#endif
