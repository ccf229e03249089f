/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* process - pidfds and descriptor passing. */
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "util.h"

#define FDS_MAX 16

int pidfd_open_(int pid)
{
    long r = syscall(SYS_pidfd_open, pid, 0);

    return r < 0 ? -errno : (int)r;
}

int pidfd_signal(int pidfd, int sig)
{
    return syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) < 0 ? -errno : 0;
}

int pidfd_wait(int pidfd, uint64_t timeout_ns)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    uint64_t end = now_ns() + timeout_ns, now;

    do {
        uint64_t ms;
        now = now_ns();
        ms = now < end ? (end - now + 999999) / 1000000 : 0;
        if (poll(&p, 1, ms > 60000 ? 60000 : (int)ms) > 0)
            return 1;
    } while (now < end);
    return 0;
}

int fd_readable(int fd, uint64_t end)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t now;
    int r;

    do {
        now = now_ns();
        r = poll(&p, 1, now < end ? (int)((end - now) / 1000000) + 1 : 0);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r;
}

union control {
    char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    struct cmsghdr align;
};

int send_fds(int sock, const void *data, size_t len, const int *fds, int nfds)
{
    struct iovec iov = {(void *)(uintptr_t)data, len};
    union control control;
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;

    if (nfds < 0 || nfds > FDS_MAX)
        return -EINVAL;
    if (nfds) {
        struct cmsghdr *c = &control.align;
        memset(&control, 0, sizeof(control));
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
    }
    do
        n = sendmsg(sock, &m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : (size_t)n == len ? 0 : -EIO;
}

long recv_fds(int sock, void *data, size_t len, int *fds, int *nfds)
{
    struct iovec iov = {data, len};
    union control control;
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof(control)};
    struct cmsghdr *c;
    int room = *nfds, got = 0;
    ssize_t n;

    do
        n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    for (c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        size_t count, i;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (got < room)
                fds[got++] = fd;
            else
                close(fd);
        }
    }
    *nfds = got;
    return n;
}
