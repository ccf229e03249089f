/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * name - names of sockets, as the guest gives and gets them.
 * Threads: the kernel lock.
 */
#include <string.h>

#include "socket.h"

int sockname_in(uint64_t guest, uint64_t guest_length, struct socket_name *ret_name)
{
    int length = (int)guest_length;

    memset(ret_name, 0, sizeof(*ret_name));
    if (length < 0 || length > (int)sizeof(ret_name->bytes))
        return -EINVAL;
    if (length && copy_in(current->mm, ret_name->bytes, guest, (size_t)length) < 0)
        return -EFAULT;
    ret_name->length = (uint32_t)length;
    return 0;
}

int sockname_out(const struct socket_name *name, uint64_t guest, uint64_t guest_length)
{
    int room;

    if (get_int(guest_length, &room) < 0)
        return -EFAULT;
    if (room < 0)
        return -EINVAL;
    if (room > (int)name->length)
        room = (int)name->length;
    if (room && copy_out(current->mm, guest, name->bytes, (size_t)room) < 0)
        return -EFAULT;
    return (int)put_int(guest_length, (int)name->length);
}

struct socket_name sockname_shown(const struct socket *socket, const struct socket_name *name)
{
    struct socket_name none = {.any.sa_family = AF_UNIX, .length = sizeof(sa_family_t)};

    if (name->length)
        return *name;
    if (socket_inet(socket))
        inet_unspecified(socket, &none);
    else if (socket->family == AF_NETLINK)
        none = (struct socket_name){.nl.nl_family = AF_NETLINK, .length = sizeof(none.nl)};
    return none;
}

SYSCALL(getsockname)
{
    struct socket_name name;
    struct socket *s;
    int r;
    struct file *file = socket_get_fd(a[0], &r);

    if (!file)
        return r;
    s = file->data;
    name = sockname_shown(s, &s->name);
    file_put(file);
    return sockname_out(&name, a[1], a[2]);
}

SYSCALL(getpeername)
{
    struct socket_name name = {0};
    struct socket *s;
    int r;
    struct file *file = socket_get_fd(a[0], &r);

    if (!file)
        return r;
    s = file->data;
    if (socket_unix(s) ? s->peer != NULL : s->peer_name.length > 0 || s->family == AF_NETLINK)
        name = sockname_shown(s, socket_unix(s) ? &s->peer->name : &s->peer_name);
    file_put(file);
    return name.length ? sockname_out(&name, a[1], a[2]) : -ENOTCONN;
}
