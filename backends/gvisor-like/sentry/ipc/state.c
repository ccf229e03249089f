/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * state - what all of ipc/ shares.
 * Threads: the kernel lock.
 */
#include <stdio.h>

#include "state.h"

static struct ipc_state *state; /* in the arena */

uint64_t ipc_share(uint64_t bytes)
{
    uint64_t quarter = arena_size() / 4;

    return bytes < quarter ? bytes : quarter;
}

struct ipc_state *ipc(void)
{
    if (!state)
        state = arena_alloc(ARENA_BYTES, sizeof(*state));
    if (!state)
        kpanic("ipc: no memory for its counts");
    return state;
}

struct file *anon_file(enum file_kind kind, uint32_t flags, uint32_t inode_mode)
{
    struct file *file;
    struct inode *inode;

    if (ipc()->anon_files >= ANON_FILES_MAX)
        return NULL;
    inode = inode_new(INODE_ANON, inode_mode);
    if (!inode)
        return NULL;
    file = file_new(kind, flags);
    if (!file) {
        inode_put(inode);
        return NULL;
    }
    file->inode = inode;
    file->mode |= FMODE_STREAM;
    file->mode &= (uint16_t)~FMODE_SEEK;
    ipc()->anon_files++;
    return file;
}

void anon_file_gone(void)
{
    ipc()->anon_files--;
}

int64_t install(struct file *file, uint32_t cloexec)
{
    int fd = fd_install(file, cloexec ? O_CLOEXEC : 0, 0);

    if (fd < 0)
        file_put(file);
    return fd;
}

int64_t put_int(uint64_t address, int value)
{
    return copy_out(current->mm, address, &value, sizeof(value));
}

int get_int(uint64_t address, int *ret_value)
{
    return copy_in(current->mm, ret_value, address, sizeof(*ret_value));
}

int get_timespec(uint64_t address, struct timespec *ret)
{
    int r = copy_in(current->mm, ret, address, sizeof(*ret));

    if (r < 0)
        return r;
    return ret->tv_sec < 0 || ret->tv_nsec < 0 || ret->tv_nsec > 999999999 ? -EINVAL : 0;
}

static const char *const names[FILE_KINDS] = {
    [FILE_EVENTFD] = "[eventfd]", [FILE_TIMERFD] = "[timerfd]", [FILE_SIGNALFD] = "[signalfd]",
    [FILE_EPOLL] = "[eventpoll]", [FILE_INOTIFY] = "inotify",   [FILE_PIDFD] = "[pidfd]",
};

int64_t ipc_link_name(const struct file *file, char *buffer, size_t size)
{
    const char *kind = file->kind == FILE_PIPE     ? "pipe"
                       : file->kind == FILE_SOCKET ? "socket"
                                                   : NULL;
    int n;

    if (file->dentry || (!kind && !names[file->kind]))
        return -ENOENT;
    if (kind)
        n = snprintf(buffer, size, "%s:[%llu]", kind, (unsigned long long)file->inode->number);
    else
        n = snprintf(buffer, size, "anon_inode:%s", names[file->kind]);
    return (size_t)n < size ? n : -ENAMETOOLONG;
}
