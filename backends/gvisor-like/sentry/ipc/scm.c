/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * scm - what goes beside the bytes of AF_UNIX: descriptors and credentials.
 * A descriptor on its way holds its file, and sockets may be in each other's queues while no process can reach them: what only
 * such queues hold is found (mark: from every socket that somebody else holds; sweep: the rest) and emptied.
 * Invariants: ipc()->in_flight counts descriptors in all struct scm_files, socket->in_flight those of its file,
 * sockets()->in_flight_sockets their sum.
 * Threads: the kernel lock.
 */
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>

#include "socket.h"

#define CONTROL_MAX 131072u
#define HEADER sizeof(struct cmsghdr) /* 16: length 8, level 4, type 4 */

/* ---- descriptors on their way ---- */

static void count(const struct scm_files *files, bool more)
{
    struct socket *socket;
    uint32_t i;

    for (i = 0; i < files->n; i++) {
        ipc()->in_flight += more ? 1u : -1u;
        socket = file_socket(files->files[i]);
        if (!socket)
            continue;
        socket->in_flight += more ? 1u : -1u;
        sockets()->in_flight_sockets += more ? 1u : -1u;
    }
}

static struct scm_files *files_new(uint32_t n)
{
    if (ipc()->in_flight + n > FLIGHT_MAX)
        scm_collect(); /* a circle none of whose sockets was ever released has not been looked for */
    if (ipc()->in_flight + n > FLIGHT_MAX)
        return NULL;
    return arena_alloc(ARENA_BYTES, sizeof(struct scm_files) + n * sizeof(struct file *));
}

/* One after the other and not one within the other: a socket that is let go lets go what it carries, and a guest makes a
   chain of them as long as it likes. */
void scm_free(struct scm_files *files)
{
    uint32_t i;

    if (!files)
        return;
    count(files, false);
    files->next = sockets()->to_free;
    sockets()->to_free = files;
    if (sockets()->freeing)
        return;
    sockets()->freeing = true;
    while ((files = sockets()->to_free)) {
        sockets()->to_free = files->next;
        for (i = 0; i < files->n; i++)
            file_put(files->files[i]);
        arena_free(files);
    }
    sockets()->freeing = false;
}

struct scm_files *scm_copy(const struct scm_files *files)
{
    struct scm_files *copy = files_new(files->n);
    uint32_t i;

    if (!copy)
        return NULL;
    copy->n = files->n;
    for (i = 0; i < files->n; i++) {
        copy->files[i] = files->files[i];
        file_get(copy->files[i]);
    }
    count(copy, true);
    return copy;
}

static int add_files(struct outgoing *out, const uint8_t *data, size_t size)
{
    struct scm_files *old = out->files, *files;
    uint32_t n = (uint32_t)(size / sizeof(int)), i, have = old ? old->n : 0;
    int fd;

    if (n + have > SCM_FILES_MAX)
        return -EINVAL;
    if (!n)
        return 0;
    files = files_new(n + have);
    if (!files)
        return -ETOOMANYREFS;
    for (i = 0; i < n; i++) {
        memcpy(&fd, data + i * sizeof(fd), sizeof(fd));
        files->files[files->n] = fd_get(fd);
        if (!files->files[files->n])
            break;
        files->n++;
    }
    count(files, true);
    if (files->n < n) {
        scm_free(files);
        return -EBADF;
    }
    if (old) { /* several headers: one list, in their order */
        memmove(files->files + have, files->files, n * sizeof(struct file *));
        memcpy(files->files, old->files, have * sizeof(struct file *));
        files->n += have;
        arena_free(old);
    }
    out->files = files;
    return 0;
}

static int check_cred(struct outgoing *out, const uint8_t *data, size_t size)
{
    const struct cred *c = current->cred;
    struct ucred cred;

    if (size != sizeof(cred))
        return -EINVAL;
    memcpy(&cred, data, sizeof(cred));
    if (cred.pid != current->process->pid && !capable(CAP_SYS_ADMIN))
        return -EPERM;
    if (cred.uid != c->uid && cred.uid != c->euid && cred.uid != c->suid && !capable(CAP_SETUID))
        return -EPERM;
    if (cred.gid != c->gid && cred.gid != c->egid && cred.gid != c->sgid && !capable(CAP_SETGID))
        return -EPERM;
    if (!process_by_pid(cred.pid))
        return -ESRCH;
    out->cred = cred;
    return 0;
}

static int parse_one(const struct cmsghdr *header, const uint8_t *data, struct outgoing *out)
{
    size_t size = header->cmsg_len - HEADER;

    if (header->cmsg_level != SOL_SOCKET)
        return 0;
    if (header->cmsg_type == SCM_RIGHTS)
        return add_files(out, data, size);
    return header->cmsg_type == SCM_CREDENTIALS ? check_cred(out, data, size) : -EINVAL;
}

static int parse(const uint8_t *bytes, size_t size, struct outgoing *out)
{
    struct cmsghdr header;
    size_t at = 0;
    int r = 0;

    while (r == 0 && size - at >= HEADER) {
        memcpy(&header, bytes + at, HEADER);
        if (header.cmsg_len < HEADER || header.cmsg_len > size - at)
            return -EINVAL;
        r = parse_one(&header, bytes + at + HEADER, out);
        if (size - at < CMSG_ALIGN(header.cmsg_len))
            break;
        at += CMSG_ALIGN(header.cmsg_len);
    }
    return r;
}

int scm_parse(uint64_t guest, uint64_t size, struct outgoing *out)
{
    uint8_t *bytes;
    int r;

    if (!guest || !size)
        return 0;
    if (size > CONTROL_MAX)
        return -ENOBUFS;
    bytes = malloc(size);
    if (!bytes)
        return -ENOBUFS;
    r = copy_in(current->mm, bytes, guest, size);
    if (r == 0)
        r = parse(bytes, size, out);
    free(bytes);
    return r;
}

/* ---- what the receiver is given ---- */

struct control {
    uint64_t at, left; /* of the guest's buffer */
};

static int put(struct control *c, struct incoming *in, int type, const void *data, size_t size)
{
    struct cmsghdr header = {
        .cmsg_len = CMSG_LEN(size), .cmsg_level = SOL_SOCKET, .cmsg_type = type};
    uint64_t space = CMSG_SPACE(size);

    if (c->left < HEADER) {
        in->shown |= MSG_CTRUNC;
        return 0;
    }
    if (c->left < header.cmsg_len) {
        in->shown |= MSG_CTRUNC;
        header.cmsg_len = c->left;
    }
    if (copy_out(current->mm, c->at, &header, HEADER) < 0 ||
        copy_out(current->mm, c->at + HEADER, data, header.cmsg_len - HEADER) < 0)
        return -EFAULT;
    if (space > c->left)
        space = c->left;
    c->at += space;
    c->left -= space;
    return 0;
}

static int put_files(struct control *c, struct incoming *in)
{
    uint64_t room = c->left > HEADER ? (c->left - HEADER) / sizeof(int) : 0;
    uint32_t n = 0, most = in->files->n < room ? in->files->n : (uint32_t)room;
    int fds[SCM_FILES_MAX], fd;

    while (n < most) {
        fd = fd_install(in->files->files[n], in->flags & MSG_CMSG_CLOEXEC ? O_CLOEXEC : 0, 0);
        if (fd < 0)
            break;
        file_get(in->files->files[n]);
        fds[n++] = fd;
    }
    if (n < in->files->n)
        in->shown |= MSG_CTRUNC;
    return n ? put(c, in, SCM_RIGHTS, fds, n * sizeof(int)) : 0;
}

int scm_give(const struct socket *socket, struct incoming *in, uint64_t guest, uint64_t *size)
{
    struct control c = {.at = guest, .left = *size};
    int r = 0;

    if (socket_inet(socket))
        *size = 0;
    if (socket_inet(socket))
        return 0;
    if (!guest || !*size) {
        if (socket->pass_cred || in->files)
            in->shown |= MSG_CTRUNC;
        *size = 0;
        return 0;
    }
    if (socket->pass_cred)
        r = put(&c, in, SCM_CREDENTIALS, &in->cred, sizeof(in->cred));
    if (r == 0 && in->files)
        r = put_files(&c, in);
    *size = c.at - guest;
    return r;
}

/* ---- circles ---- */

static void mark_queue(struct socket *socket, struct socket_list *todo);

static void mark(struct socket *socket, struct socket_list *todo)
{
    if (socket->marked)
        return;
    socket->marked = true;
    if (socket->file) /* pending_link is free: it waits for nobody to accept it */
        TAILQ_INSERT_TAIL(todo, socket, pending_link);
    else
        mark_queue(socket, todo);
}

static void mark_queue(struct socket *socket, struct socket_list *todo)
{
    struct message *message;
    uint32_t i;

    TAILQ_FOREACH(message, &socket->queue, link)
    for (i = 0; message->files && i < message->files->n; i++)
        if (file_socket(message->files->files[i]))
            mark(file_socket(message->files->files[i]), todo);
}

static void mark_all(void)
{
    struct socket_list todo = TAILQ_HEAD_INITIALIZER(todo);
    struct socket *socket, *waiting;

    TAILQ_FOREACH(socket, &sockets()->all, all_link)
    socket->marked = false;
    TAILQ_FOREACH(socket, &sockets()->all, all_link)
    if (socket->file && socket->file->refs > socket->in_flight)
        mark(socket, &todo);
    while ((socket = TAILQ_FIRST(&todo))) {
        TAILQ_REMOVE(&todo, socket, pending_link);
        mark_queue(socket, &todo);
        TAILQ_FOREACH(waiting, &socket->pending, pending_link)
        mark(waiting, &todo);
    }
}

static bool garbage(const struct socket *socket)
{
    return !socket->marked && socket->file && socket->in_flight;
}

/* Takes out what holds descriptors; to be freed when nothing is walked over any more. */
static void sweep_queue(struct socket *socket, struct message_list *found)
{
    struct message *message, *next;

    for (message = TAILQ_FIRST(&socket->queue); message; message = next) {
        next = TAILQ_NEXT(message, link);
        if (!message->files)
            continue;
        message_unqueue(socket, message);
        TAILQ_INSERT_TAIL(found, message, link);
    }
}

void scm_collect(void)
{
    struct message_list found = TAILQ_HEAD_INITIALIZER(found);
    struct socket *socket, *waiting;
    struct message *message;

    if (sockets()->collecting)
        return;
    sockets()->collecting = true;
    mark_all();
    TAILQ_FOREACH(socket, &sockets()->all, all_link)
    {
        if (!garbage(socket))
            continue;
        sweep_queue(socket, &found);
        TAILQ_FOREACH(waiting, &socket->pending, pending_link)
        sweep_queue(waiting, &found);
    }
    while ((message = TAILQ_FIRST(&found))) {
        TAILQ_REMOVE(&found, message, link);
        message_free(message);
    }
    sockets()->collecting = false;
}
