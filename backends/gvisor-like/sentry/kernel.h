/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * kernel.h - what every room of the sentry stands on: the kernel lock, the arena, sleeping.
 *
 * The lock. There is one, and every object of the kernel is touched only by a thread that holds it. A system
 * call of a guest costs a stop by ptrace, tens of times what its work in here does, so threads seldom meet.
 * What waits (a sleep, a guest that runs) lets it go; what only takes a moment (the gofer, a copy) keeps it.
 * Within it there are no races: a check holds until the thread sleeps, and after each sleep all is checked again.
 *
 * The arena. Every object of the kernel lives in one mapping at a fixed address, so that a copy of these bytes
 * at the same address is a copy of the kernel. What that needs of every struct in it:
 *  - pointers only to the arena (never to stack, text, heap). Behaviour is an enum, its functions a table
 *    beside the code (file_ops[kind]): text moves between builds.
 *  - a descriptor or a thread of the host is a number in a member whose name begins with host_: these, and
 *    nothing else, are made again when a copy begins to live.
 *  - a thread that waits is not in the arena: at a serialisation point every guest thread has left its system
 *    call (to be restarted) and is at the boundary, task_run() in task/run.c. Waiters may live on the stack.
 * struct members are made by arena_alloc() and zeroed; counts of references are plain numbers under the lock.
 *
 * Errors. Functions give 0 or more, or -errno; the four ERESTART values below are resolved at the boundary.
 */
#ifndef SENTRY_KERNEL_H
#define SENTRY_KERNEL_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define PAGE_SHIFT 12
#define PAGE_SIZE 4096ul
#define PAGE_MASK (~(PAGE_SIZE - 1))

/* As in Linux: never seen by a guest. */
#define ERESTARTSYS 512 /* restart when the handler has SA_RESTART, or there is none; else EINTR */
#define ERESTARTNOINTR 513        /* always restart */
#define ERESTARTNOHAND 514        /* restart when there is no handler; else EINTR */
#define ERESTART_RESTARTBLOCK 516 /* restart by restart_syscall; with a handler EINTR */

/* ---- the lock (base/lock.c) ---- */

void kernel_lock(void);
void kernel_unlock(void);
void kernel_assert_locked(void); /* aborts the sentry: a bug of ours */

/* ---- the arena (base/arena.c) ---- */

enum arena_kind { /* what an object is, for counts and tests; the size is the caller's */
                  ARENA_BYTES,
                  ARENA_TASK,
                  ARENA_PROCESS,
                  ARENA_SIGNAL,
                  ARENA_CRED,
                  ARENA_MM,
                  ARENA_VMA,
                  ARENA_PAGE,
                  ARENA_OBJECT,
                  ARENA_INODE,
                  ARENA_DENTRY,
                  ARENA_MOUNT,
                  ARENA_FILE,
                  ARENA_FDTABLE,
                  ARENA_FSCTX,
                  ARENA_PIPE,
                  ARENA_SOCKET,
                  ARENA_EPOLL,
                  ARENA_TTY,
                  ARENA_TIMER,
                  ARENA_FUTEX,
                  ARENA_INOTIFY,
                  ARENA_SYSV,
                  ARENA_LOCKF,
                  ARENA_KINDS
};

/* Reserves the address range; the memory comes as it is used. bytes: the most it may ever hold. */
int arena_init(size_t bytes);
/* Zeroed, aligned to 16; NULL when the arena is full (-ENOMEM to the guest) or size is over 16 MiB. */
void *arena_alloc(enum arena_kind kind, size_t size);
/* NULL-safe. Judges that it is an object of the arena: aborts the sentry on anything else. */
void arena_free(void *object);
char *arena_strdup(const char *text, size_t length); /* with a NUL after it */
uint64_t arena_count(enum arena_kind kind);          /* objects alive: tests look for leaks */
uint64_t arena_used(void);                           /* bytes */
uint64_t arena_size(void);                           /* the most it may hold */

/* ---- sleeping (base/wait.c) ---- */

struct task;
struct waiter;

/* Who waits for something. An all-zero struct is NOT empty: waitq_init(). */
struct waitq {
    TAILQ_HEAD(waiter_list, waiter) waiters;
};

enum waiter_kind {
    WAITER_TASK,  /* wakes .task */
    WAITER_EPOLL, /* epoll_ready(.item), ipc/epoll.c */
};

struct waiter {
    TAILQ_ENTRY(waiter) link;
    struct waitq *queue; /* NULL: not queued */
    enum waiter_kind kind;
    uint32_t events;    /* POLL* it wants; 0: any */
    uint32_t exclusive; /* a wake-up of a number counts it; EPOLL: EPOLLEXCLUSIVE */
    struct task *task;
    void *item;
};

void waitq_init(struct waitq *queue);
/* A waiter for the current task. */
void waiter_add(struct waiter *waiter, struct waitq *queue, uint32_t events);
void waiter_remove(struct waiter *waiter); /* not queued: nothing */
/* Wakes all whose events meet these; of the exclusive ones at most `most` (0: all) that sleep and were not woken yet. Whether
   there was such a one. Of exclusive epolls, what one can take for all (POLLIN or POLLOUT alone) is told to one after the
   other until one of them wakes somebody. */
void waitq_wake(struct waitq *queue, uint32_t events);
bool waitq_wake_some(struct waitq *queue, uint32_t events, unsigned most);

#define WAIT_FOREVER UINT64_MAX

/*
 * Lets the kernel lock go until the current task is woken (task_wake, waitq_wake), and takes it again.
 * deadline: CLOCK_MONOTONIC ns. 0: look again; -ETIMEDOUT; -ERESTARTSYS: a signal is to be delivered, the task is
 * to die, or the kernel wants all tasks at the boundary. A wake-up before the call is not lost. Waits may end
 * without a cause. While it sleeps, nothing that the caller has read holds: hold references.
 */
int task_sleep(uint64_t deadline);
/* The same for what signals do not end (only death does). */
int task_sleep_killable(uint64_t deadline);
void task_wake(struct task *task);

/* The usual loop: until `condition`, 0 or the error that ended the wait. */
#define WAIT_UNTIL(queue_, events_, deadline_, condition)                                          \
    __extension__({                                                                                \
        struct waiter waiter_ = {0};                                                               \
        int result_ = 0;                                                                           \
        waiter_add(&waiter_, (queue_), (events_));                                                 \
        while (!(condition) && result_ == 0)                                                       \
            result_ = task_sleep(deadline_);                                                       \
        waiter_remove(&waiter_);                                                                   \
        (condition) ? 0 : result_;                                                                 \
    })

/* ---- the task of this thread, clocks ---- */

extern _Thread_local struct task *current;
uint64_t clock_monotonic(void); /* ns, the host's */
uint64_t clock_realtime(void);
uint64_t clock_boottime(void); /* since this kernel began */

/* ---- what happens at a time, and what the host has to say (base/events.c): one thread of the sentry ---- */

enum timer_kind { /* what runs, with the lock held, when it is time: timer_fire() in base/events.c */
                  TIMER_ITIMER,  /* task/itimer.c: itimer_fire(owner) */
                  TIMER_POSIX,   /* task/posix_timer.c: posix_timer_fire(owner) */
                  TIMER_TIMERFD, /* ipc/timerfd.c: timerfd_fire(owner) */
                  TIMER_CPU,     /* task/cputime.c: cputime_fire(owner) */
};

struct timer {
    uint64_t when; /* CLOCK_MONOTONIC ns; 0: not set */
    enum timer_kind kind;
    uint32_t slot; /* of the heap */
    void *owner;
};

int timer_set(struct timer *timer, uint64_t when); /* sets, moves; -ENOMEM */
void timer_cancel(struct timer *timer);
/* Wakes `queue` with the POLL* that a descriptor of the host shows; level: until host_unwatch. */
int host_watch(int host_fd, uint32_t events, struct waitq *queue);
void host_unwatch(int host_fd);

/* ---- words to the operator (base/log.c): to the warden's pipe, bounded in rate ---- */

void klog(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A fault of ours: says it and ends the cell. */
_Noreturn void kpanic(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
