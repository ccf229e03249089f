/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella-gofer - reads a cell's image for its sentry, which has no file system of its own. Its stages: its place
 * (place.c), the filter (filter.c), then one answer after the other (serve.c) until the sentry's end of the socket is
 * closed. It holds nothing that can be written, and hands out descriptors for reading only.
 *
 * @seccomp gofer: recvfrom sendmsg write
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gofer.h"

#define SLOTS_RESERVED 64 /* descriptors that are no slots */
#define SLOTS_WANTED 262144u

static struct gofer gofer;
static struct gofer_reply reply;

void gofer_die(int code, const char *format, ...)
{
    char text[400];
    va_list ap;
    int n;

    va_start(ap, format);
    n = vsnprintf(text, sizeof(text) - 1, format, ap);
    va_end(ap);
    n = n < 0 ? 0 : n > (int)sizeof(text) - 2 ? (int)sizeof(text) - 2 : n;
    text[n++] = '\n';
    (void)!write(GOFER_FD_STDERR, text, (size_t)n);
    _exit(code == 0 ? 0 : 1);
}

static uint32_t slots_possible(void)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) < 0)
        gofer_die(-errno, "descriptors: %s", strerror(errno));
    l.rlim_cur = l.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur <= SLOTS_RESERVED)
        gofer_die(-EMFILE, "descriptors: at most %llu", (unsigned long long)l.rlim_cur);
    return l.rlim_cur - SLOTS_RESERVED < SLOTS_WANTED ? (uint32_t)l.rlim_cur - SLOTS_RESERVED
                                                      : SLOTS_WANTED;
}

/* fd: goes along, and is closed here. */
static void answer(int own_fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } c = {0};
    struct iovec iov = {&reply, GOFER_REPLY_HEAD + reply.length};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;

    if (own_fd >= 0) {
        m.msg_control = c.room;
        m.msg_controllen = sizeof(c.room);
        c.head.cmsg_level = SOL_SOCKET;
        c.head.cmsg_type = SCM_RIGHTS;
        c.head.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&c.head), &own_fd, sizeof(int));
    }
    do
        n = sendmsg(GOFER_FD_SENTRY, &m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        _exit(errno == EPIPE ? 0 : 1);
    if (own_fd >= 0)
        close(own_fd);
}

int main(int argc, char **argv)
{
    struct gofer_place place;
    struct gofer_request request;
    ssize_t n;
    int r, fd;

    if (fcntl(GOFER_FD_SENTRY, F_GETFD) < 0)
        gofer_die(-EBADF, "the gvisor-like backend starts this program, nobody else");
    signal(SIGPIPE, SIG_IGN);
    gofer_place(argc, argv, &place);
    r = gofer_init(&gofer, slots_possible(), place.root_fd, place.self_fd);
    if (r < 0)
        gofer_die(r, "table of files: %s", strerror(-r));
    r = gofer_filter();
    if (r < 0 && r != -ENOSYS)
        gofer_die(r, "seccomp: the filter is refused: %s", strerror(-r));
    for (;;) {
        n = recv(GOFER_FD_SENTRY, &request, sizeof(request), MSG_TRUNC);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(n < 0);
        r = gofer_handle(&gofer, &request, (size_t)n, &reply, &fd);
        if (r < 0)
            gofer_die(r, "the sentry broke the rules of the protocol");
        if (r == 1)
            answer(fd);
    }
}
