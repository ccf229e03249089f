/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * gofer - the image's files, asked of cella-gofer: one datagram there, one back (../../gofer/protocol.h). The kernel
 * lock is held throughout, so there is one question at a time, and one buffer for its answer.
 *
 * The gofer is believed about the image and about nothing else: an answer is judged whole, and one that breaks the
 * protocol ends the cell, as does the gofer's end. When descriptors run out, there or here, some are given
 * back (fs_free_descriptors) and the question is put once more.
 *
 * @seccomp sentry: sendto(3=MSG_NOSIGNAL) recvmsg(2=MSG_CMSG_CLOEXEC) close
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gofer_int.h"

static int host_gofer = -1;
static struct gofer_reply answer;
static char listing[GOFER_DATA_MAX]; /* of READDIR: whoever is shown a name may ask for more */

static bool attr_sane(const struct gofer_file *f)
{
    return f->accessed.nanoseconds < 1000000000 && f->modified.nanoseconds < 1000000000 &&
           f->changed.nanoseconds < 1000000000 && f->size <= INT64_MAX && f->mode <= 0177777;
}

int gofer_reply_judge(uint32_t op, const struct gofer_reply *reply, size_t size, int n_fds)
{
    bool data = op >= GOFER_READLINK && op <= GOFER_LISTXATTR;

    if (size < GOFER_REPLY_HEAD || reply->length > GOFER_DATA_MAX ||
        size != GOFER_REPLY_HEAD + reply->length || reply->result > 0 || reply->result < -4095 ||
        reply->reserved)
        return -EPROTO;
    if (reply->result < 0)
        return reply->length || n_fds ? -EPROTO : 0;
    if (n_fds > (op == GOFER_OPEN) || (reply->length && !data) ||
        (op == GOFER_WALK) != (reply->handle != 0))
        return -EPROTO;
    return attr_sane(&reply->attr) ? 0 : -EPROTO;
}

static bool name_sane(const char *name, size_t length)
{
    return length && !memchr(name, 0, length) && !memchr(name, '/', length) &&
           !(name[0] == '.' && (length == 1 || (length == 2 && name[1] == '.')));
}

static int entries_judge(const char *data, size_t size)
{
    size_t at = 0;
    int n = 0;

    while (at < size) {
        struct gofer_entry head;
        if (size - at < sizeof(head))
            return -EPROTO;
        memcpy(&head, data + at, sizeof(head));
        at += sizeof(head);
        if (head.length > size - at || !name_sane(data + at, head.length))
            return -EPROTO;
        at += head.length;
        n++;
    }
    return n;
}

int gofer_entries(const char *data, size_t size,
                  void (*each)(void *ctx, const char *name, size_t length, uint64_t number,
                               uint8_t type),
                  void *ctx)
{
    int n = entries_judge(data, size), i;

    for (i = 0; i < n; i++) {
        struct gofer_entry head;
        memcpy(&head, data, sizeof(head));
        each(ctx, data + sizeof(head), head.length, head.number, head.type);
        data += sizeof(head) + head.length;
    }
    return n;
}

static void send_request(const struct gofer_request *q)
{
    ssize_t n;

    do
        n = send(host_gofer, q, sizeof(*q), MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(*q))
        kpanic("gofer: it is gone: %s", strerror(n < 0 ? errno : EIO));
}

static int first_fd(struct msghdr *m, int *ret_fd)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(m);

    *ret_fd = -1;
    if (!c)
        return 0;
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
        c->cmsg_len != CMSG_LEN(sizeof(int)))
        return -1;
    memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
    return 1;
}

/* The answer's result. ret_fd: NULL where none may come. */
static int once(const struct gofer_request *q, int *ret_fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } c;
    struct iovec iov = {&answer, sizeof(answer)};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.room, .msg_controllen = sizeof(c.room)};
    ssize_t n;
    int fd, n_fds;

    send_request(q);
    do
        n = recvmsg(host_gofer, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        kpanic("gofer: it is gone: %s", n < 0 ? strerror(errno) : "end of file");
    n_fds = first_fd(&m, &fd);
    if (n_fds < 0 || gofer_reply_judge(q->op, &answer, (size_t)n, n_fds) < 0)
        kpanic("gofer: an answer that is none (operation %u)", q->op);
    if (q->op == GOFER_OPEN && answer.result == 0 && n_fds == 0)
        return -EMFILE; /* it came, but there was no room for it here */
    if (ret_fd)
        *ret_fd = fd;
    return answer.result;
}

static int ask(const struct gofer_request *q, int *ret_fd)
{
    int r = once(q, ret_fd);

    if (r == -EMFILE && fs_free_descriptors())
        r = once(q, ret_fd);
    return r == -EMFILE ? -ENFILE : r;
}

static struct timespec time_of(const struct gofer_time *t)
{
    return (struct timespec){.tv_sec = t->seconds, .tv_nsec = t->nanoseconds};
}

static void attr_take(struct gofer_attr *ret)
{
    const struct gofer_file *f = &answer.attr;

    *ret = (struct gofer_attr){.mode = f->mode,
                               .uid = f->uid,
                               .gid = f->gid,
                               .links = f->links,
                               .number = f->number,
                               .device = f->device,
                               .size = f->size,
                               .rdev = f->rdev,
                               .accessed = time_of(&f->accessed),
                               .modified = time_of(&f->modified),
                               .changed = time_of(&f->changed)};
}

int gofer_connect(int host_fd, uint32_t *ret_root, struct gofer_attr *ret_attr)
{
    struct gofer_request q = {.op = GOFER_ATTR, .handle = GOFER_ROOT_HANDLE};
    int r;

    host_gofer = host_fd;
    r = ask(&q, NULL);
    if (r < 0)
        return r;
    *ret_root = GOFER_ROOT_HANDLE;
    attr_take(ret_attr);
    return 0;
}

int gofer_walk(uint32_t directory, const char *name, size_t length, uint32_t *ret_handle,
               struct gofer_attr *ret_attr)
{
    struct gofer_request q = {.op = GOFER_WALK, .handle = directory, .length = (uint32_t)length};
    int r;

    if (length > GOFER_NAME_MAX)
        return -ENAMETOOLONG;
    if (!name_sane(name, length))
        return -EINVAL;
    memcpy(q.name, name, length);
    r = ask(&q, NULL);
    if (r < 0)
        return r;
    *ret_handle = answer.handle;
    attr_take(ret_attr);
    return 0;
}

int gofer_open(uint32_t handle, int *ret_host_fd)
{
    struct gofer_request q = {.op = GOFER_OPEN, .handle = handle};

    return ask(&q, ret_host_fd);
}

/* What came, as much as there is room for; size 0 asks how much there is. */
static int64_t bytes_take(int r, void *buffer, size_t size, bool cut)
{
    size_t n = answer.length;

    if (r < 0)
        return r;
    if (n > size && !cut && size)
        return -ERANGE;
    if (size)
        memcpy(buffer, answer.data, n < size ? n : size);
    return (int64_t)(n > size && cut ? size : n);
}

int64_t gofer_readlink(uint32_t handle, char *buffer, size_t size)
{
    struct gofer_request q = {.op = GOFER_READLINK, .handle = handle};

    return bytes_take(ask(&q, NULL), buffer, size, true);
}

int gofer_readdir(uint32_t directory, uint64_t *cookie,
                  void (*each)(void *ctx, const char *name, size_t length, uint64_t number,
                               uint8_t type),
                  void *ctx)
{
    struct gofer_request q = {.op = GOFER_READDIR, .handle = directory, .cookie = *cookie};
    int r = ask(&q, NULL);
    uint32_t length = answer.length;

    if (r < 0)
        return r;
    *cookie = answer.cookie;
    memcpy(listing, answer.data, length);
    r = gofer_entries(listing, length, each, ctx);
    if (r < 0)
        kpanic("gofer: a listing that is none");
    return r;
}

int64_t gofer_getxattr(uint32_t handle, const char *name, void *buffer, size_t size)
{
    struct gofer_request q = {.op = GOFER_GETXATTR, .handle = handle};
    size_t n = strlen(name);

    if (!n || n > GOFER_NAME_MAX)
        return -ERANGE;
    q.length = (uint32_t)n;
    memcpy(q.name, name, n);
    return bytes_take(ask(&q, NULL), buffer, size, false);
}

int64_t gofer_listxattr(uint32_t handle, char *buffer, size_t size)
{
    struct gofer_request q = {.op = GOFER_LISTXATTR, .handle = handle};

    return bytes_take(ask(&q, NULL), buffer, size, false);
}

void gofer_close(uint32_t handle)
{
    struct gofer_request q = {.op = GOFER_CLOSE, .handle = handle};

    if (handle && handle != GOFER_ROOT_HANDLE)
        send_request(&q);
}
