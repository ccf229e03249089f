/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* state.h - what all of ipc/ shares: its counts, its bounds, small helpers. */
#ifndef SENTRY_IPC_STATE_H
#define SENTRY_IPC_STATE_H

#include "ipc.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

/* Bounds of a cell; what is over them is refused with the errno that Linux has for its own bound. */
#define PIPE_SLOTS_SOFT                                                                            \
    16384u /* pages of all pipes; above it a new pipe has two; twice as many: no more */
#define SOCKET_BYTES_MAX (64ull << 20) /* messages on their way in all sockets */
#define SOCKETS_MAX 65536u
#define FLIGHT_MAX 16384u /* descriptors on their way */
#define EPOLL_ITEMS_MAX 262144u
#define INOTIFY_WATCHES_MAX 65536u
#define INOTIFY_INSTANCES_MAX 1024u
#define ANON_FILES_MAX 65536u /* eventfd, timerfd, signalfd, epoll, pidfd */
#define PTYS_MAX 1024u

struct ipc_state { /* one, in the arena */
    uint64_t pipe_slots, socket_bytes;
    uint32_t sockets, in_flight, epoll_items, inotify_watches, inotify_instances;
    uint32_t inotify_events, anon_files;
    struct socket_state *socket_state; /* ipc/socket.c */
    struct tty_state *tty_state;       /* ipc/tty.c */
    struct sysv_state *sysv_state;     /* ipc/sysv.c */
};
struct ipc_state *ipc(void);
/* A bound of a kind, at most a quarter of the arena: what a small cell keeps here must leave room for all else. */
uint64_t ipc_share(uint64_t bytes);

/* A file without a name: counted, with an inode of its own. */
struct file *anon_file(enum file_kind kind, uint32_t flags, uint32_t inode_mode);
void anon_file_gone(void); /* its release says so */
/* Installs and gives up its reference: the descriptor or -EMFILE. */
int64_t install(struct file *file, uint32_t cloexec);
/* An int that the guest is shown. */
int64_t put_int(uint64_t address, int value);
int get_int(uint64_t address, int *ret_value);
/* A struct timespec of the guest's. -EFAULT, -EINVAL. */
int get_timespec(uint64_t address, struct timespec *ret);

#endif
