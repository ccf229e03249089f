/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * spawn - starting a warden for a new cell.
 *
 * A warden is a process in its own session: it inherits one socket, /dev/null and a pipe for its
 * complaints, nothing else. The pipe does not block the warden when nobody reads it.
 * It is a fork of the client and not another program: exec, dynamic linking and a second set of
 * libraries would be a tenth of a cell's start. What the client has in memory is its own request, which
 * the warden is about to be given. A program with threads, or one that starts many wardens, mustn't use
 * this: the first cannot fork safely, in the second all wardens would share one address layout.
 * Threads: none.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "client_int.h"

/* In the child: descriptors 0 (null), 1 and 2 (pipe), 3 (socket), a fresh session, default signals. */
static void __attribute__((noreturn)) warden_child(struct config *config, int sock, int complaints)
{
    int null = open("/dev/null", O_RDWR), sig;
    sigset_t none;

    /* Out of the way of 0…3 first. */
    sock = fcntl(sock, F_DUPFD, 10);
    complaints = fcntl(complaints, F_DUPFD, 10);
    if (null < 0 || sock < 0 || complaints < 0 || dup2(null, 0) < 0 || dup2(complaints, 1) < 0 ||
        dup2(complaints, 2) < 0 || dup2(sock, 3) < 0)
        _exit(125);
    if (syscall(SYS_close_range, 4u, ~0u, 0u) < 0)
        _exit(125);
    setsid();
    for (sig = 1; sig < 32; sig++)
        signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    exit(warden_main(config));
}

int client_spawn(struct config *c, struct client **ret, struct cella_error *err)
{
    int sock[2] = {-1, -1}, complaints[2] = {-1, -1};
    struct client *cl = client_alloc();
    int r = 0;

    if (!cl)
        return fail(err, -ENOMEM, "out of memory");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) < 0 ||
        pipe2(complaints, O_CLOEXEC | O_NONBLOCK) < 0) {
        r = fail(err, -errno, "starting a warden: %s", strerror(errno));
    } else {
        cl->fd = steal_fd(&sock[0]);
        cl->errfd = steal_fd(&complaints[0]);
        fflush(NULL); /* nothing of ours is written twice */
        cl->pid = fork();
        if (cl->pid == 0)
            warden_child(c, sock[1], complaints[1]);
        if (cl->pid < 0)
            r = fail(err, -errno, "starting a warden: %s", strerror(errno));
    }
    if (sock[1] >= 0)
        close(sock[1]);
    if (complaints[1] >= 0)
        close(complaints[1]);
    if (r < 0) {
        client_free(cl);
        return r;
    }
    *ret = cl;
    return 0;
}
