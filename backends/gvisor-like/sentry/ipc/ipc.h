/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* ipc.h - what ipc/ gives to the other rooms: kinds of files, what opens them, what is told when a process ends. */
#ifndef SENTRY_IPC_H
#define SENTRY_IPC_H

#include "fs.h"

/* Rows of file_ops[]. */
extern const struct file_ops pipe_ops, eventfd_ops, timerfd_ops, signalfd_ops, epoll_ops;
extern const struct file_ops pidfd_ops, socket_ops, inotify_ops, tty_ops, ptmx_ops, shm_ops;

/* What a poll() shows for "can be read" and "can be written". */
#define READY_IN (POLLIN | POLLRDNORM)
#define READY_OUT (POLLOUT | POLLWRNORM)

/* ---- pipes ---- */

/* inode_ops.open of a FIFO: waits for the other end unless O_NONBLOCK; -ENXIO, -ERESTARTSYS. Sets kind and data. */
int fifo_open(struct inode *inode, struct file *file);
void fifo_release(struct inode *inode); /* it dies */
int64_t pipe_fcntl(struct file *file, int command,
                   uint64_t argument); /* F_GETPIPE_SZ, F_SETPIPE_SZ */
/* 0, -EPIPE (SIGPIPE is sent), -EAGAIN, -ERESTARTSYS */
int pipe_wait_room(struct file *file, bool nonblock);
/* As many bytes of the file as there is room for in the pipe, once there is some. position: NULL the file's own. */
int64_t splice_to_pipe(struct file *in, int64_t *position, struct file *out, uint64_t length,
                       uint32_t flags);

/* ---- waiting ---- */

/* restart_syscall with restart_kind RESTART_POLL. */
int64_t poll_restart(const uint64_t restart[6]);
/* Milliseconds or a time of the guest's -> deadline for task_sleep. -EINVAL. */
uint64_t deadline_in_ms(int64_t ms);
int deadline_in(const struct timespec *left, uint64_t *ret_deadline);
/* Ends a call that changed the mask by signal_mask_for_call(): puts it back unless a handler is to run first. */
void mask_call_done(int64_t result);

/* ---- processes ---- */

int pidfd_file(struct process *process, uint32_t flags, struct file **ret_file); /* O_NONBLOCK */
struct process *pidfd_process(const struct file *file); /* borrowed; NULL: not a pidfd */
/* Of an open /proc/PID (proc/tree.c): borrowed. -EBADF: it is something else, -ESRCH: it has ended. */
int proc_process(const struct file *file, struct process **ret_process);

/* ---- terminals ---- */

/* inode_ops.open of 5:0 /dev/tty, 5:1 /dev/console, 5:2 /dev/ptmx, 136:N /dev/pts/N. Sets kind and data. */
int tty_open(struct inode *inode, struct file *file);
int devpts_setup(const char *target); /* fs/setup.c */
/* A session's leader ends: its terminal is nobody's. */
void tty_process_exit(struct process *process);
/* setsid(): the process has no terminal any more; fork: the child's process->tty. */
void tty_forget(struct process *process);
void tty_inherit(struct process *child, const struct process *parent);
/* For /proc/PID/stat: number of the device, 0: none; its foreground group, -1: none. */
uint32_t tty_number(const struct process *process);
int32_t tty_foreground(const struct process *process);

/* ---- SysV ---- */

void sysv_process_exit(struct process *process); /* semaphores' undo */

/* For /proc/PID/fd/N of what has no name: "pipe:[7]", "anon_inode:[eventpoll]": length; -ENOENT: it has one. */
int64_t ipc_link_name(const struct file *file, char *buffer, size_t size);

#endif
