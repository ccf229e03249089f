/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * control - between the warden (the backend gvisor-like) and cella-sentry. One SOCK_SEQPACKET pair; requests and answers
 * are one datagram each, of fixed size, one at a time. The first is struct sentry_config, answered when the kernel is ready
 * and the agent loaded; then requests, each with a serial that its answer repeats, so that an answer for which nobody waits
 * any more is not taken for another's. Serial 0: the answer to the configuration, and the one to STATS that a sentry leaves
 * which ends by itself. Both sides are of one build. End of file ends the sentry.
 *
 * The warden judges an answer as it would a guest's: the guest may have taken the sentry over.
 */
#ifndef SENTRY_CONTROL_H
#define SENTRY_CONTROL_H

#include <stdint.h>

/* Descriptors that cella-sentry starts with; 0 and 1 are /dev/null. */
enum sentry_fd {
    SENTRY_FD_LOG = 2, /* a pipe, non-blocking: lines for the operator */
    SENTRY_FD_CONTROL,
    SENTRY_FD_GOFER, /* ../gofer/protocol.h */
    SENTRY_FD_AGENT, /* the agent's end of its stream: descriptor SENTRY_AGENT_FD of the first process */
    SENTRY_FD_PROGRAM, /* the agent: a sealed memfd, to be read */
    SENTRY_FD_N
};
#define SENTRY_AGENT_FD 3

enum sentry_exit {
    SENTRY_EXIT_DONE = 0,  /* the guest's first process has ended */
    SENTRY_EXIT_GUEST = 1, /* the guest broke what cannot go on */
    SENTRY_EXIT_HOST =
        2, /* the host's side failed, or we did: the last line of the log says what */
};

#define SENTRY_HOSTNAME_MAX 65u
#define SENTRY_MOUNTS_MAX 16u
#define SENTRY_TARGET_MAX 256u

struct sentry_mount { /* an empty tmpfs */
    char target[SENTRY_TARGET_MAX];
    uint64_t size; /* bytes, 0: the cell's */
    uint32_t readonly, reserved;
};

#define SENTRY_READONLY_ROOT 1u

struct sentry_config {
    uint32_t size; /* of this struct */
    uint32_t flags;
    uint64_t memory_bytes; /* of the guest; never 0 */
    uint64_t disk_bytes;   /* what the guest may write to its files; 0: as far as memory goes */
    uint64_t pids;         /* tasks; 0: as far as the sentry goes */
    uint32_t n_mounts, processors;
    char hostname[SENTRY_HOSTNAME_MAX + 7];
    struct sentry_mount mounts[SENTRY_MOUNTS_MAX];
};

enum sentry_op {
    SENTRY_OP_START = 1,
    SENTRY_OP_PAUSE, /* no guest code runs when it is answered */
    SENTRY_OP_RESUME,
    SENTRY_OP_STATS,  /* -> stats */
    SENTRY_OP_RESIZE, /* arg: memory bytes, arg2: tasks; 0: as it is */
    SENTRY_OP_KILL,   /* every process of the guest, the first one last */
    SENTRY_OP_MISSING, /* arg: the last number that was told, -1 at first -> missing: more, in order */
    SENTRY_OP_PROCESSES, /* arg: the last pid that was told, 0 at first -> processes: more, in order */
};

struct sentry_request {
    uint32_t op;
    uint32_t serial; /* never 0 */
    uint64_t arg, arg2;
};

struct sentry_stats {
    uint64_t memory_bytes, memory_peak, disk_bytes;
    uint64_t tasks, tasks_peak, tasks_refused, oom_kills;
    uint64_t disk_refused; /* writes that found the disk full */
    uint64_t system_calls;
};

#define SENTRY_ROWS_MAX 64u
struct sentry_missing { /* a system call that was asked for and is not there */
    uint64_t number, count;
    char name[24]; /* "": not even a name */
};
struct sentry_process {
    uint32_t pid, tasks;
    char comm[16];
};

struct sentry_reply {
    int32_t code; /* 0, or negative errno */
    uint32_t n;   /* rows */
    uint32_t serial, reserved;
    union {
        struct sentry_stats stats;
        struct sentry_missing missing[SENTRY_ROWS_MAX];
        struct sentry_process processes[SENTRY_ROWS_MAX];
        char text[200]; /* why, when code is negative */
    };
};

#ifdef SENTRY_KERNEL_H /* for the sentry alone */

/* Waits for the configuration and judges it; it is always whole. Ends the sentry when there is none. */
void control_config(struct sentry_config *ret_config);
/* Answers it: the kernel is ready, the agent loaded. */
void control_ready(void);
/* Waits for START, which is answered; other requests are served meanwhile. Without the kernel lock. */
void control_wait_start(void);
/* A thread that serves requests from now on, until the end. */
int control_serve(void);
/* At the end, when nothing runs any more: the figures as they are now, which the warden finds when it looks. */
void control_last_words(void);
/* One request, without the kernel lock; for tests, too. false: it is none. */
bool control_answer(const struct sentry_request *request, struct sentry_reply *ret_reply);

/* Counted for STATS: a task was killed because the guest's memory is used up. */
void control_oom_kill(void);

#endif
#endif
