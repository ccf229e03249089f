/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * open - opens a plugin's file so that what was checked is what gets loaded.
 *
 * Whoever can write the file, or rename it in a directory above it, can run code as the user cella
 * runs as. So the canonical path is walked from "/" one descriptor at a time, each directory
 * and the file are examined through the descriptor that is used further on, and the loader maps the
 * descriptor, never the name again.
 *
 * Mustn't: follow a link after canonicalisation, open the name twice. Threads: no state.
 */
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "plugin_int.h"

/* Directories from `upto` bytes of path, for messages. */
static int owner_check(const struct stat *st, const char *what, const char *path, int upto,
                       int sticky_ok, struct cella_error *err)
{
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return fail(err, -EPERM,
                    "%s %.*s belongs to user %u: it must belong to root or to the user cella runs "
                    "as (chown it)",
                    what, upto, path, st->st_uid);
    if (!(st->st_mode & 022))
        return 0;
    if (sticky_ok && (st->st_mode & S_ISVTX) && st->st_uid == 0)
        return 0;
    return fail(err, -EPERM,
                "%s %.*s is writable by %s (mode %04o): others could replace the plugin; "
                "chmod go-w it",
                what, upto, path, st->st_mode & 002 ? "everybody" : "its group",
                st->st_mode & 07777);
}

static int file_open(int dir, const char *name, const char *path, int *ret_fd,
                     struct cella_error *err)
{
    auto_close int fd =
        openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    int r;

    if (fd < 0)
        return fail(err, -errno, "cannot open it: %s", strerror(errno));
    if (fstat(fd, &st) < 0)
        return fail(err, -errno, "cannot examine it: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(err, -EINVAL, "it is not a regular file");
    r = owner_check(&st, "the file", path, INT_MAX, 0, err);
    if (r < 0)
        return r;
    *ret_fd = steal_fd(&fd);
    return 0;
}

/* One step down. `upto`: length of the path of the directory that is opened. */
static int dir_step(int *dir, const char *name, const char *path, int upto, int last,
                    struct cella_error *err)
{
    struct stat st;
    int fd, r;

    fd = openat(*dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return fail(err, -errno, "cannot open directory %.*s: %s", upto, path, strerror(errno));
    if (*dir >= 0)
        close(*dir);
    *dir = fd;
    if (fstat(fd, &st) < 0)
        return fail(err, -errno, "cannot examine directory %.*s: %s", upto, path, strerror(errno));
    r = owner_check(&st, "directory", path, upto, !last, err);
    return r;
}

static int walk(const char *path, int *ret_fd, struct cella_error *err)
{
    auto_close int dir = -1;
    const char *at = path + 1, *slash = strchr(at, '/');
    char name[NAME_MAX + 1];
    int r;

    r = dir_step(&dir, "/", path, 1, slash == NULL, err);
    for (; r == 0 && slash; at = slash + 1, slash = strchr(at, '/')) {
        size_t n = (size_t)(slash - at);
        if (n == 0 || n > NAME_MAX)
            return fail(err, -EINVAL, "its path has an empty or overlong part");
        memcpy(name, at, n);
        name[n] = 0;
        r = dir_step(&dir, name, path, (int)(slash - path), !strchr(slash + 1, '/'), err);
    }
    return r < 0 ? r : file_open(dir, at, path, ret_fd, err);
}

int plugin_open(const char *path, int *ret_fd, struct cella_error *err)
{
    auto_free char *real = NULL;
    int r;

    if (path[0] != '/')
        return fail(err, -EINVAL, "plugin %s: the path must be absolute", path);
    if (strlen(path) >= PLUGIN_PATH_MAX)
        return fail(err, -ENAMETOOLONG, "plugin %.64s…: the path is too long", path);
    real = realpath(path, NULL);
    if (!real)
        return fail(err, -errno, "plugin %s: cannot open it: %s", path, strerror(errno));
    r = walk(real, ret_fd, err);
    return r < 0 ? fail_wrap(err, "plugin %s", path) : 0;
}
