/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* fake_gofer - see fake_gofer.h: a handle is a descriptor (O_PATH) of the test's process. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fake_gofer.h"
#include "fs_world.h"

unsigned fake_gofer_open_handles;
int fake_gofer_error;
uint64_t gofer_questions;

static int once(void)
{
    int error = fake_gofer_error;

    gofer_questions++;
    fake_gofer_error = 0;
    return error;
}

static void path_of(uint32_t handle, char path[64])
{
    snprintf(path, 64, "/proc/self/fd/%u", handle);
}

static int take(int fd, uint32_t *ret_handle, struct gofer_attr *ret)
{
    struct stat s;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &s)) /* cannot be */
        abort();
    *ret = (struct gofer_attr){.mode = s.st_mode,
                               .uid = s.st_uid,
                               .gid = s.st_gid,
                               .links = (uint32_t)s.st_nlink,
                               .number = s.st_ino,
                               .device = s.st_dev,
                               .size = (uint64_t)s.st_size,
                               .rdev = s.st_rdev,
                               .accessed = s.st_atim,
                               .modified = s.st_mtim,
                               .changed = s.st_ctim};
    *ret_handle = (uint32_t)fd;
    fake_gofer_open_handles++;
    return 0;
}

void fake_gofer_root(const char *directory, uint32_t *ret_root, struct gofer_attr *ret_attr)
{
    if (take(open(directory, O_PATH | O_CLOEXEC), ret_root, ret_attr))
        abort();
}

int gofer_connect(int host_fd, uint32_t *ret_root, struct gofer_attr *ret_attr)
{
    (void)host_fd;
    (void)ret_root;
    (void)ret_attr;
    return -ENOSYS;
}

int gofer_walk(uint32_t directory, const char *name, size_t length, uint32_t *ret_handle,
               struct gofer_attr *ret_attr)
{
    char text[256] = "";
    int error = once();

    if (error)
        return error;
    memcpy(text, name, length);
    return take(openat((int)directory, text, O_PATH | O_NOFOLLOW | O_CLOEXEC), ret_handle,
                ret_attr);
}

int gofer_open(uint32_t handle, int *ret_host_fd)
{
    char path[64];
    int error = once();

    path_of(handle, path);
    *ret_host_fd = error ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    return error ? error : *ret_host_fd < 0 ? -errno : 0;
}

int64_t gofer_readlink(uint32_t handle, char *buffer, size_t size)
{
    ssize_t n = readlinkat((int)handle, "", buffer, size);

    once();
    return n < 0 ? -errno : n;
}

/* A few at a time, so that the caller has to come again. */
int gofer_readdir(uint32_t directory, uint64_t *cookie,
                  void (*each)(void *ctx, const char *name, size_t length, uint64_t number,
                               uint8_t type),
                  void *ctx)
{
    char path[64];
    struct dirent *entry;
    int n = 0;
    DIR *dir;

    once();
    path_of(directory, path);
    dir = opendir(path);
    if (!dir)
        return -errno;
    if (*cookie)
        seekdir(dir, (long)*cookie);
    while (n < 100 && (entry = readdir(dir))) {
        *cookie = (uint64_t)telldir(dir);
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        each(ctx, entry->d_name, strlen(entry->d_name), entry->d_ino, entry->d_type);
        n++;
    }
    closedir(dir);
    return n;
}

int64_t gofer_getxattr(uint32_t handle, const char *name, void *buffer, size_t size)
{
    char path[64];
    ssize_t n;

    once();
    path_of(handle, path);
    n = getxattr(path, name, buffer, size);
    return n < 0 ? -errno : n;
}

int64_t gofer_listxattr(uint32_t handle, char *buffer, size_t size)
{
    char path[64];
    ssize_t n;

    once();
    path_of(handle, path);
    n = listxattr(path, buffer, size);
    return n < 0 ? -errno : n;
}

void gofer_close(uint32_t handle)
{
    fake_gofer_open_handles--;
    close((int)handle);
}
