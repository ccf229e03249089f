/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * host - FILE_HOST: a stream of the host's that the warden gave, the agent's link. The guest sees a socket that can be read,
 * written and waited for, and nothing else of it: no name, no option, no descriptor to send.
 *
 * The host's descriptor never blocks a thread here: what is not ready is waited for by the thread of events (host_watch),
 * which is asked for what was not ready when somebody looked, each time anew. Bytes go through one buffer, under
 * the kernel lock.
 *
 * @seccomp sentry: recvfrom(3=MSG_DONTWAIT) sendto(3=MSG_DONTWAIT|MSG_NOSIGNAL) poll(1=1,2=0) ioctl(FIONREAD) close
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs.h"

#define BUFFER_BYTES 65536u
#define WANTED (POLLIN | POLLOUT | POLLRDHUP)

struct host_stream {
    int host_fd;
    struct waitq waitq;
};

static char buffer[BUFFER_BYTES];

/* What is ready; what is not is watched for, so that somebody who looks and then sleeps is woken. */
static uint32_t look(struct host_stream *h)
{
    struct pollfd p = {.fd = h->host_fd, .events = WANTED};
    uint32_t ready = 0;

    if (poll(&p, 1, 0) > 0)
        ready = (uint32_t)p.revents;
    if (WANTED & ~ready)
        host_watch(h->host_fd, WANTED & ~ready, &h->waitq);
    return ready;
}

static int wait_for(struct file *file, uint32_t events)
{
    struct host_stream *h = file->data;

    if (look(h) & (events | POLLERR | POLLHUP)) /* since then */
        return 0;
    if (file->flags & O_NONBLOCK)
        return -EAGAIN;
    return WAIT_UNTIL(&h->waitq, events, WAIT_FOREVER, look(h) & (events | POLLERR | POLLHUP));
}

static int64_t host_read(struct file *file, struct uio *to, int64_t *position)
{
    struct host_stream *h = file->data;
    ssize_t n;
    int r = 0;

    (void)position;
    if (!to->left)
        return 0;
    while (r == 0) {
        n = recv(h->host_fd, buffer, to->left < sizeof(buffer) ? to->left : sizeof(buffer),
                 MSG_DONTWAIT);
        if (n > 0)
            return uio_to(to, buffer, (size_t)n);
        if (n == 0 || errno == ECONNRESET)
            return 0;
        if (errno != EAGAIN && errno != EINTR)
            return -EIO;
        if (errno == EAGAIN)
            r = wait_for(file, POLLIN | POLLRDHUP);
    }
    return r;
}

/* One buffer's worth: how much of it the host took. The rest of it stays in `from`. */
static int64_t write_some(struct host_stream *h, struct uio *from)
{
    struct uio before = *from;
    int64_t got = uio_from(from, buffer, from->left < sizeof(buffer) ? from->left : sizeof(buffer));
    ssize_t n;

    if (got <= 0)
        return got;
    do
        n = send(h->host_fd, buffer, (size_t)got, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n == got)
        return n;
    *from = before;
    if (n < 0)
        return errno == EAGAIN ? -EAGAIN : -EPIPE;
    uio_from(from, buffer, (size_t)n); /* what was taken, once more */
    return n;
}

static int64_t host_write(struct file *file, struct uio *from, int64_t *position)
{
    struct host_stream *h = file->data;
    int64_t done = 0, n = 0;

    (void)position;
    while (from->left && n >= 0) {
        n = write_some(h, from);
        if (n > 0)
            done += n;
        else if (n == 0)
            break;
        else if (n == -EAGAIN && !(done && file->flags & O_NONBLOCK))
            n = wait_for(file, POLLOUT);
    }
    if (n == -EPIPE && !done)
        task_kill_with(SIGPIPE);
    return done ? done : n;
}

static uint32_t host_poll(struct file *file, struct waiter *waiter)
{
    struct host_stream *h = file->data;

    if (waiter)
        waiter_add(waiter, &h->waitq, waiter->events);
    return look(h);
}

static int64_t host_ioctl(struct file *file, uint32_t request, uint64_t argument)
{
    struct host_stream *h = file->data;
    int n = 0;

    if (request != FIONREAD)
        return -ENOTTY;
    if (ioctl(h->host_fd, FIONREAD, &n) < 0)
        return -EIO;
    return copy_out(current->mm, argument, &n, sizeof(n));
}

static void host_release(struct file *file)
{
    struct host_stream *h = file->data;

    host_unwatch(h->host_fd);
    close(h->host_fd);
    arena_free(h);
}

struct file *file_host(int host_fd)
{
    struct host_stream *h = arena_alloc(ARENA_BYTES, sizeof(*h));
    struct file *file = h ? file_new(FILE_HOST, O_RDWR) : NULL;

    if (!file) {
        arena_free(h);
        close(host_fd);
        return NULL;
    }
    h->host_fd = host_fd;
    waitq_init(&h->waitq);
    file->mode |= FMODE_STREAM;
    file->data = h;
    file->inode = inode_new(INODE_ANON, S_IFSOCK | 0777);
    return file;
}

const struct file_ops host_ops = {
    .read = host_read,
    .write = host_write,
    .poll = host_poll,
    .ioctl = host_ioctl,
    .release = host_release,
};
