/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* room.h - what the files of task/ tell each other. All under the kernel lock. */
#ifndef SENTRY_TASK_ROOM_H
#define SENTRY_TASK_ROOM_H

#include "task.h"

#include <assert.h>
#include <poll.h>
#include <signal.h>

#define NS_PER_SECOND 1000000000ull
#define INIT_PID 1
#define USAGE_BOTH (-2) /* itself and its children */
#define PIDS_MAX 32768

/* ---- ids.c: who is there ---- */

/* What RLIMIT_NPROC and RLIMIT_SIGPENDING count; one for each real uid that has something. */
struct user_counts {
    struct user_counts *next;
    uint32_t uid;
    uint32_t tasks, signals;
};
struct user_counts *user_of(uint32_t uid); /* NULL: no memory */
void user_tidy(struct user_counts *user);  /* nothing left: forgotten */
int32_t id_new(void);                      /* a free tid; -EAGAIN */
void id_add(struct task *task);
void id_remove(struct task *task);
void reaped_count(const struct process *process); /* it goes: what it used stays in reaped_cpu() */
bool tasks_room(void); /* under the cell's limit; else counted as refused */
struct task *task_new(void);
void task_free(struct task *task); /* off every list */
struct process *process_new(void);
struct process *init_process(void);

/* ---- clone.c ---- */

void link_process(struct process *process, struct process *parent); /* parent NULL: none */
void link_task(struct task *task);

/* ---- run.c ---- */

/* Makes the thread of `task`: it waits, with its context, for start_go(). xstate: to begin with, or NULL. */
struct start;
int start_thread(struct task *task, const void *xstate, size_t size, struct start **ret_start);
void start_go(struct start *start, bool go); /* false: it ends, and touches `task` no more */
bool tasks_held(void);
void task_park(void); /* until tasks_go_on() */
void tasks_wait_change(
    void); /* until some task is parked or has ended: for the end of init, whom nothing wakes */
int task_new_context(struct task *task); /* for its present mm, after task_end_context() */
void task_end_context(struct task *task);

/* ---- exit.c ---- */

void process_kill(struct process *process,
                  int status);   /* the group exits, as by a signal or exit_group */
void task_finish(void);          /* current has died */
void mm_left(struct task *task); /* robust list, clear_child_tid, vfork: its mm is about to go */
void process_reap(struct process *process); /* a zombie goes */
void process_waited(
    struct process *process); /* and its parent, which asked, is told what it used */
void child_changed(struct process *child, int code,
                   int status); /* SIGCHLD and wake for stops and continues */

/* ---- signal.c ---- */

struct posix_timer;
struct sigqueued {
    TAILQ_ENTRY(sigqueued) link;
    siginfo_t info;
    struct user_counts *user;
    struct posix_timer *timer; /* whose this is */
};
void sigpending_init(struct sigpending *pending);
void sigpending_flush(struct sigpending *pending, sigbits mask);
int signal_send(struct task *task, struct process *process, const siginfo_t *info,
                struct posix_timer *timer); /* task NULL: to the process */
int signal_next(struct task *task, sigbits mask, siginfo_t *ret_info); /* dequeues; 0: none */
bool signal_ignored(const struct process *process, int signo);
bool signal_default_ignored(int signo);
bool signal_default_stop(int signo);
void signal_force_info(struct task *task, const siginfo_t *info);
void signal_fill(siginfo_t *info, int signo, int code); /* from current */
void signal_timer_gone(struct process *process, struct posix_timer *timer);
void set_blocked(struct task *task, sigbits mask);
/* It ends: what it was to take of its process's signals is another's. */
void signals_leave(struct task *task);
struct sighand *sighand_new(const struct sighand *from);
void sighand_put(struct sighand *sighand);

/* ---- deliver.c, sigframe.c ---- */

void signals_deliver(void);                /* current, at the boundary */
void stop_settle(struct process *process); /* is every task stopped now? */
int sigframe_push(struct task *task, const struct guest_sigaction *action, const siginfo_t *info,
                  sigbits mask); /* -EFAULT */

/* ---- jobs.c ---- */

bool group_orphaned(int32_t pgid, const struct process *without);
/* SIGHUP and SIGCONT to the group of `process`, when with `parent` gone nobody is left to continue its stopped ones. */
void group_check_orphan(struct process *process, const struct process *parent,
                        const struct process *without);
bool group_exists(int32_t pgid, int32_t sid);

/* ---- cred.c ---- */

struct cred *cred_copy(const struct cred *from); /* one reference, or NULL */
bool cred_has(const struct cred *cred, int capability);

/* ---- futex.c ---- */

void futex_wake_at(struct mm *mm, uint64_t address, unsigned most);
void futex_robust_exit(struct task *task);
int64_t futex_restart(const uint64_t restart[6]);

/* ---- times ---- */

struct guest_timespec {
    int64_t seconds, nanoseconds;
};
struct guest_timeval {
    int64_t seconds, microseconds;
};
/* A guest's struct timespec in ns (as much as fits); -EFAULT, -EINVAL. */
int timespec_in(uint64_t address, uint64_t *ret_ns);
int timespec_out(uint64_t address, uint64_t ns);
uint64_t add_saturating(uint64_t a, uint64_t b);
int64_t clock_read(int32_t id, uint64_t *ret_ns); /* -EINVAL */
bool not_slept_by(int32_t id);                    /* a clock that can only be read */
int64_t nanosleep_restart(const uint64_t restart[6]);
uint64_t clock_coarse(void);
void cputime_stop(struct task *task);      /* guest code has stopped */
void cputime_left(struct task *task);      /* it leaves its address space */
void cputime_begin(struct task *task);     /* the calling thread is its thread from here */
void cputime_end(struct task *task);       /* and no more */
void cputime_arm(struct process *process); /* somebody wants to know when it has run so long */
void itimers_end(struct process *process);
void posix_timers_end(struct process *process);
void posix_timer_queued(struct posix_timer *timer);
void posix_timer_taken(struct posix_timer *timer, siginfo_t *info); /* its signal goes */
/* The most pages of its own that an address space has had, as far as that is more: ru_maxrss. */
void usage_peak(struct rusage *usage, const struct mm *mm);
void rusage_out_of(struct process *process, struct rusage *ret, int who);

/* ---- small things ---- */

struct cred *cred_first(void);
void sched_first(struct task *task);

/* ---- of other rooms; weak: a build without that room does without ---- */

int pidfd_file(struct process *process, uint32_t flags, struct file **ret_file);
struct process *pidfd_process(const struct file *file); /* NULL: it is none */
void tty_process_exit(struct process *process);
void tty_forget(struct process *process);
void tty_inherit(struct process *child, const struct process *parent);
void sysv_process_exit(struct process *process);
int64_t poll_restart(const uint64_t restart[6]);
#pragma weak pidfd_file
#pragma weak pidfd_process
#pragma weak tty_process_exit
#pragma weak tty_forget
#pragma weak tty_inherit
#pragma weak sysv_process_exit
#pragma weak poll_restart

#endif
