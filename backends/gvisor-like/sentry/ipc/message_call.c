/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * message_call - the system calls that send and receive.
 * Each makes a struct outgoing or incoming of what the guest gave; what goes beside the bytes is freed here in every case.
 * Threads: the kernel lock.
 */
#include <string.h>

#include "socket.h"

#define MESSAGES_MAX 1024u

int64_t socket_send(struct socket *socket, struct outgoing *out)
{
    if (socket_family(socket)->send)
        return socket_family(socket)->send(socket, out);
    return socket_stream(socket) ? stream_send(socket, out) : dgram_send(socket, out);
}

int64_t socket_receive(struct socket *socket, struct incoming *in)
{
    return socket_stream(socket) ? stream_receive(socket, in) : dgram_receive(socket, in);
}

static uint32_t call_flags(const struct file *file, uint64_t flags)
{
    return (uint32_t)flags | (file->flags & O_NONBLOCK ? MSG_DONTWAIT : 0);
}

SYSCALL(sendto)
{
    struct outgoing out = {.cred = own_cred()};
    struct iovec part;
    int r;
    int64_t n;
    struct file *file = socket_get_fd(a[0], &r);

    if (!file)
        return r;
    n = a[4] ? sockname_in(a[4], a[5], &out.to) : 0;
    if (n == 0) {
        uio_one(&out.uio, &part, current->mm, a[1], a[2]);
        out.flags = call_flags(file, a[3]);
        n = socket_send(file->data, &out);
    }
    file_put(file);
    return n;
}

SYSCALL(recvfrom)
{
    struct incoming in = {0};
    struct iovec part;
    int r;
    int64_t n;
    struct file *file = socket_get_fd(a[0], &r);

    if (!file)
        return r;
    uio_one(&in.uio, &part, current->mm, a[1], a[2]);
    in.flags = call_flags(file, a[3]);
    n = socket_receive(file->data, &in);
    if (n >= 0 && a[4]) {
        r = sockname_out(&in.from, a[4], a[5]);
        n = r < 0 ? r : n;
    }
    scm_free(in.files);
    file_put(file);
    return n;
}

/* ---- struct msghdr ---- */

static int header_in(uint64_t guest, struct msghdr *header)
{
    if (copy_in(current->mm, header, guest, sizeof(*header)) < 0)
        return -EFAULT;
    if (!header->msg_name)
        header->msg_namelen = 0;
    if ((int)header->msg_namelen < 0)
        return -EINVAL;
    if (header->msg_namelen > sizeof(struct sockaddr_storage))
        header->msg_namelen = sizeof(struct sockaddr_storage);
    return header->msg_iovlen > UIO_MAX ? -EMSGSIZE : 0;
}

static int64_t send_message(struct file *file, uint64_t guest, uint64_t flags)
{
    struct outgoing out = {.cred = own_cred(), .flags = call_flags(file, flags)};
    struct msghdr header;
    int64_t n = header_in(guest, &header);

    if (n == 0 && header.msg_namelen)
        n = sockname_in((uint64_t)(uintptr_t)header.msg_name, header.msg_namelen, &out.to);
    if (n == 0)
        n = uio_guest(&out.uio, current->mm, (uint64_t)(uintptr_t)header.msg_iov,
                      header.msg_iovlen);
    if (n < 0)
        return n;
    if (socket_unix(file->data))
        n = scm_parse((uint64_t)(uintptr_t)header.msg_control, header.msg_controllen, &out);
    if (n == 0)
        n = socket_send(file->data, &out);
    uio_free(&out.uio);
    scm_free(out.files);
    return n;
}

/* The members of the header that a receive changes. */
static int header_out(uint64_t guest, const struct msghdr *header, const struct incoming *in,
                      uint64_t control)
{
    uint32_t flags = in->shown | (in->flags & MSG_CMSG_CLOEXEC);
    uint64_t at = guest + offsetof(struct msghdr, msg_namelen);
    size_t size = in->from.length < header->msg_namelen ? in->from.length : header->msg_namelen;
    struct mm *mm = current->mm;

    if (header->msg_name &&
        copy_out(mm, (uint64_t)(uintptr_t)header->msg_name, in->from.bytes, size) < 0)
        return -EFAULT;
    if (header->msg_name && copy_out(mm, at, &in->from.length, sizeof(in->from.length)) < 0)
        return -EFAULT;
    if (copy_out(mm, guest + offsetof(struct msghdr, msg_flags), &flags, sizeof(flags)) < 0)
        return -EFAULT;
    return copy_out(mm, guest + offsetof(struct msghdr, msg_controllen), &control, sizeof(control));
}

static int64_t receive_message(struct file *file, uint64_t guest, uint64_t flags)
{
    struct incoming in = {.flags = call_flags(file, flags)};
    struct msghdr header;
    uint64_t control;
    int64_t n = header_in(guest, &header);
    int r;

    if (n == 0)
        n = uio_guest(&in.uio, current->mm, (uint64_t)(uintptr_t)header.msg_iov, header.msg_iovlen);
    if (n < 0)
        return n;
    n = socket_receive(file->data, &in);
    uio_free(&in.uio);
    if (n >= 0) {
        control = header.msg_controllen;
        r = in.has_cred
                ? scm_give(file->data, &in, (uint64_t)(uintptr_t)header.msg_control, &control)
                : (control = 0, 0);
        if (r == 0)
            r = header_out(guest, &header, &in, control);
        n = r < 0 ? r : n;
    }
    scm_free(in.files);
    return n;
}

SYSCALL(sendmsg)
{
    int r;
    int64_t n;
    struct file *file = socket_get_fd(a[0], &r);

    if (!file)
        return r;
    n = send_message(file, a[1], a[2]);
    file_put(file);
    return n;
}

SYSCALL(recvmsg)
{
    int r;
    int64_t n;
    struct file *file = socket_get_fd(a[0], &r);

    if (!file)
        return r;
    n = receive_message(file, a[1], a[2]);
    file_put(file);
    return n;
}

/* ---- several at once ---- */

typedef int64_t (*one_message)(struct file *file, uint64_t guest, uint64_t flags);

/* How many, or the first one's error. deadline: nothing is begun after it. */
static int64_t several(const uint64_t a[6], one_message one, uint64_t deadline)
{
    uint64_t flags = a[3] & ~(uint64_t)MSG_WAITFORONE, i, most = (uint32_t)a[2];
    int r;
    uint32_t length;
    int64_t n = 0;
    struct file *file = socket_get_fd(a[0], &r);

    if (!file)
        return r;
    if (most > MESSAGES_MAX)
        most = MESSAGES_MAX;
    for (i = 0; i < most; i++) {
        n = one(file, a[1] + i * sizeof(struct mmsghdr), flags);
        if (n < 0)
            break;
        length = (uint32_t)n;
        n = copy_out(current->mm,
                     a[1] + i * sizeof(struct mmsghdr) + offsetof(struct mmsghdr, msg_len), &length,
                     sizeof(length));
        if (n < 0)
            break;
        if (a[3] & MSG_WAITFORONE)
            flags |= MSG_DONTWAIT;
        if (clock_monotonic() >= deadline) {
            i++;
            break;
        }
    }
    file_put(file);
    return i ? (int64_t)i : n;
}

SYSCALL(sendmmsg)
{
    return several(a, send_message, WAIT_FOREVER);
}

SYSCALL(recvmmsg)
{
    struct timespec left;
    uint64_t deadline = WAIT_FOREVER;
    int r = a[4] ? get_timespec(a[4], &left) : 0;

    if (r == 0 && a[4])
        r = deadline_in(&left, &deadline);
    return r < 0 ? r : several(a, receive_message, deadline);
}
