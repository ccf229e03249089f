/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * vsock - the two ports of a machine that has a socket device instead of serial ports: init listens, the host
 * connects, and each new connection takes the place of the one before. Only the host is let in: the workload's
 * own filter knows no such sockets, and what comes from another address is closed unread. Threads: one.
 */
#include <linux/vm_sockets.h>
#include <sys/socket.h>

#include "guest.h"

#define BACKLOG 4

int vsock_socket(void)
{
    int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    return fd < 0 ? blame(errno, "cannot make a socket to the host", NULL) : fd;
}

int vsock_listen(uint32_t port)
{
    struct sockaddr_vm a = {.svm_family = AF_VSOCK, .svm_port = port, .svm_cid = VMADDR_CID_ANY};
    int low = vsock_socket(), fd;

    if (low < 0)
        return low;
    fd = fcntl(low, F_DUPFD_CLOEXEC, 16); /* the low numbers are the link's and its like */
    close(low);
    if (fd < 0)
        return blame(errno, "descriptors", NULL);
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, BACKLOG) < 0) {
        int r = blame(errno, "cannot listen for the host", NULL);
        close(fd);
        return r;
    }
    return fd;
}

int vsock_accept(int listener)
{
    struct sockaddr_vm a = {0};
    socklen_t len = sizeof(a);
    int fd = accept4(listener, (struct sockaddr *)&a, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd >= 0 && a.svm_cid != VMADDR_CID_HOST) {
        close(fd);
        return -1;
    }
    return fd;
}

int vsock_pass(int control, int fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } c = {0};
    char one = 'L';
    struct iovec iov = {&one, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.room};

    m.msg_controllen = sizeof(c.room);
    c.head.cmsg_level = SOL_SOCKET;
    c.head.cmsg_type = SCM_RIGHTS;
    c.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&c.head), &fd, sizeof(fd));
    return sendmsg(control, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 0 : -errno;
}
