/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * sentry_netlink - any bytes as requests of NETLINK_ROUTE, to a socket with any of its options: the first byte chooses those, the
 * rest is sent at once. Each answer is whole messages; what is asked about stays as it is, and nothing is left.
 */
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/base.h"
#include "fakes.h"
#include "ipc/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

SYSCALL(socket);
SYSCALL(sendto);
SYSCALL(recvfrom);
SYSCALL(setsockopt);

static uint8_t sent[1 << 16], got[1 << 17];

static void options(uint64_t fd, uint8_t which)
{
    static const int names[] = {NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK,
                                NETLINK_NO_ENOBUFS, NETLINK_PKTINFO};
    int one = 1, small = 2304;
    unsigned i;

    for (i = 0; i < 5; i++)
        if (which & 1u << i)
            sys_setsockopt((uint64_t[6]){fd, SOL_NETLINK, (uint64_t)names[i], (uintptr_t)&one, 4});
    if (which & 0x20)
        sys_setsockopt((uint64_t[6]){fd, SOL_SOCKET, SO_RCVBUF, (uintptr_t)&small, 4});
}

static void whole(size_t size)
{
    struct nlmsghdr head;
    size_t at = 0;

    while (at < size) {
        if (size - at < sizeof(head))
            abort();
        memcpy(&head, got + at, sizeof(head));
        if (head.nlmsg_len < sizeof(head) || head.nlmsg_len > size - at)
            abort();
        at += NLMSG_ALIGN(head.nlmsg_len);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool begun;
    uint64_t fd;
    int64_t n;

    if (!begun)
        fake_begin();
    begun = true;
    if (!size || size > sizeof(sent))
        return 0;
    memcpy(sent, data + 1, size - 1);
    kernel_lock();
    fd = (uint64_t)sys_socket((uint64_t[6]){AF_NETLINK, SOCK_RAW, NETLINK_ROUTE});
    options(fd, data[0]);
    sys_sendto((uint64_t[6]){fd, (uintptr_t)sent, size - 1});
    do {
        n = sys_recvfrom((uint64_t[6]){fd, (uintptr_t)got, sizeof(got), MSG_DONTWAIT});
        if (n > 0)
            whole((size_t)n);
    } while (n > 0 || n == -ENOBUFS);
    if (fake_close_all())
        abort();
    kernel_unlock();
    return 0;
}
