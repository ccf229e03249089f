/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * unix - names of AF_UNIX: in the file system, abstract (the first byte is 0), or none.
 * Invariants: who has a name in the file system is inode->data of that inode and holds its path; who has an abstract one is in the
 * table of names. Sockets of different types may have the same abstract name.
 * Threads: the kernel lock.
 */
#include <stdio.h>
#include <string.h>

#include "fs/vfs.h"
#include "socket.h"

#define PATH_AT offsetof(struct sockaddr_un, sun_path)

static int unix_valid(const struct socket *socket, const struct socket_name *name)
{
    (void)socket;
    return name->length <= PATH_AT || name->length > sizeof(struct sockaddr_un) ||
                   name->any.sa_family != AF_UNIX
               ? -EINVAL
               : 0;
}

static struct socket *abstract_find(const struct socket_name *name, int type)
{
    struct socket *at = sockets()->bound[socket_hash(name)];

    while (at && (at->type != type || at->name.length != name->length ||
                  memcmp(at->name.bytes, name->bytes, name->length) != 0))
        at = at->bound_next;
    return at;
}

static int abstract_bind(struct socket *socket, const struct socket_name *name)
{
    if (abstract_find(name, socket->type))
        return -EADDRINUSE;
    socket->name = *name;
    socket_bind_hash(socket, socket_hash(name));
    return 0;
}

static int unix_autobind(struct socket *socket)
{
    struct socket_name name = {.un.sun_family = AF_UNIX, .length = PATH_AT + 6};
    uint32_t i;

    if (socket->name.length)
        return 0;
    for (i = 0; i < 1u << 20; i++) {
        char digits[8];

        snprintf(digits, sizeof(digits), "%05x", sockets()->next_autobind++ & 0xfffff);
        memcpy(name.un.sun_path + 1, digits, 5);
        if (abstract_bind(socket, &name) == 0)
            return 0;
    }
    return -ENOSPC;
}

/* The path of a name with a NUL after it. */
static void path_of(const struct socket_name *name, char path[sizeof(name->un.sun_path) + 1])
{
    size_t length = strnlen(name->un.sun_path, name->length - PATH_AT);

    memcpy(path, name->un.sun_path, length);
    path[length] = 0;
}

static int path_bind(struct socket *socket, const struct socket_name *name)
{
    char path[sizeof(name->un.sun_path) + 1];
    int r;

    path_of(name, path);
    r = vfs_mknod(AT_FDCWD, path, S_IFSOCK | 0777, 0, &socket->path);
    if (r < 0)
        return r == -EEXIST ? -EADDRINUSE : r;
    socket->bound_inode = socket->path.dentry->inode;
    socket->bound_inode->data = socket;
    socket->name = *name;
    socket->name.length = (uint32_t)(PATH_AT + strlen(path) + 1);
    socket->name.bytes[socket->name.length - 1] = 0;
    return 0;
}

static int unix_bind(struct socket *socket, const struct socket_name *name)
{
    int r;

    if (name->length == PATH_AT && name->any.sa_family == AF_UNIX)
        return unix_autobind(socket);
    r = unix_valid(socket, name);
    if (r < 0)
        return r;
    if (socket->name.length)
        return -EINVAL;
    return name->un.sun_path[0] ? path_bind(socket, name) : abstract_bind(socket, name);
}

static int path_find(struct socket *socket, const struct socket_name *name,
                     struct socket **ret_socket)
{
    char text[sizeof(name->un.sun_path) + 1];
    struct inode *inode;
    struct path path;
    int r;

    path_of(name, text);
    r = path_lookup(AT_FDCWD, text, LOOKUP_FOLLOW, &path);
    if (r < 0)
        return r;
    inode = path.dentry->inode;
    r = inode ? inode_permission(inode, 2) : -ENOENT;
    if (r == 0 && (!S_ISSOCK(inode->mode) || !inode->data))
        r = -ECONNREFUSED;
    if (r == 0) {
        *ret_socket = inode->data;
        socket_get(*ret_socket);
        if ((*ret_socket)->type != socket->type) {
            socket_put(*ret_socket);
            r = -EPROTOTYPE;
        }
    }
    path_put(&path);
    return r;
}

static int unix_find(struct socket *socket, const struct socket_name *name,
                     struct socket **ret_socket)
{
    if (name->un.sun_path[0])
        return path_find(socket, name, ret_socket);
    *ret_socket = abstract_find(name, socket->type);
    if (!*ret_socket)
        return -ECONNREFUSED;
    socket_get(*ret_socket);
    return 0;
}

/* Who is bound to it holds its path: it has nobody any more. */
void socket_inode_release(struct inode *inode)
{
    inode->data = NULL;
}

const struct family unix_family = {
    .bind = unix_bind,
    .autobind = unix_autobind,
    .find = unix_find,
    .valid = unix_valid,
};
