/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * task.h - guest threads, processes, signals, credentials.
 *
 * A task is one guest thread and one thread of the sentry (task/run.c): it runs guest code by the platform, then takes
 * the kernel lock for the system call or fault, and settles at the boundary what is owed (signals, stops, death, what
 * other tasks asked of its address space) before guest code runs again.
 * One pid namespace, one user namespace: ids of the guest are its own, and mean nothing to the host.
 */
#ifndef SENTRY_TASK_H
#define SENTRY_TASK_H

#include "mm.h"

#include <sys/resource.h>
#include <sys/types.h>

struct fdtable;
struct fsctx;
struct tty;

/* ---- credentials (task/cred.c): immutable, shared; a change makes a new one ---- */

#define CRED_GROUPS_MAX 65536
struct cred {
    uint32_t refs;
    uint32_t uid, euid, suid, fsuid, gid, egid, sgid, fsgid;
    uint64_t cap_permitted, cap_effective, cap_inheritable, cap_bounding, cap_ambient;
    uint32_t securebits, no_new_privs;
    uint32_t n_groups;
    uint32_t *groups; /* sorted; owned */
};
void cred_get(struct cred *cred);
void cred_put(struct cred *cred);
bool capable(int capability);                              /* current, effective */
bool cred_in_group(const struct cred *cred, uint32_t gid); /* fsgid and groups */
/* What execve of a file gives to current: set-id bits (unless nosuid, or no_new_privs), capabilities of root, ambient ones.
   One reference, for cred_set(); secure: AT_SECURE. */
int cred_for_exec(uint32_t mode, uint32_t uid, uint32_t gid, bool nosuid, struct cred **ret_cred,
                  bool *ret_secure);
void cred_set(struct cred *cred); /* current's; takes the reference */
/* May current act on the task as ptrace would (/proc/PID/mem, fd, …)? */
bool cred_may_look(const struct task *task);

/* ---- signals (task/signal.c, task/sigframe.c) ---- */

#define SIGNALS 64
typedef uint64_t sigbits; /* bit n - 1 is signal n */
#define SIGBIT(n) (1ull << ((n)-1))
#define SIGBITS_UNBLOCKABLE (SIGBIT(SIGKILL) | SIGBIT(SIGSTOP))

struct guest_sigaction { /* as rt_sigaction has it */
    uint64_t handler, flags, restorer, mask;
};

struct sigpending {
    sigbits bits;
    TAILQ_HEAD(, sigqueued) queue; /* of task/signal.c, bounded by RLIMIT_SIGPENDING */
};

struct sighand { /* shared by CLONE_SIGHAND */
    uint32_t refs;
    struct guest_sigaction actions[SIGNALS];
};

/* ---- processes (thread groups) ---- */

enum process_state { PROCESS_LIVE, PROCESS_STOPPED, PROCESS_ZOMBIE, PROCESS_DEAD };

struct process {
    TAILQ_ENTRY(process) link;     /* of all */
    TAILQ_ENTRY(process) siblings; /* children of parent */
    TAILQ_HEAD(, process) children;
    TAILQ_HEAD(, task) tasks;
    struct process *parent; /* NULL: init, or its parent is the kernel */
    struct task *leader;
    int32_t pid, pgid, sid;
    enum process_state state;
    uint32_t n_tasks;
    struct sighand *sighand;
    struct sigpending pending;
    struct waitq child_waitq;     /* wait4 of its tasks */
    struct waitq signal_waitq;    /* signalfd; POLLIN */
    struct waitq exit_waitq;      /* pidfds; POLLIN */
    int exit_signal, exit_status; /* status as wait4 gives it */
    int stop_signal, group_stop, stop_reported;
    bool continued;                  /* and its parent has not been told by wait */
    bool group_exit, execed, reaper; /* reaper: PR_SET_CHILD_SUBREAPER */
    struct tty *tty;                 /* controlling terminal; ipc/tty.c */
    struct rlimit limits[RLIM_NLIMITS];
    struct rusage usage, children_usage;
    uint64_t start_time; /* CLOCK_MONOTONIC */
    struct timer itimer_real;
    uint64_t itimer_real_interval;
    void *posix_timers, *sysv_undo;
    /* A dead process stays an object while somebody names it: process_get(), process_put(). */
    uint32_t pidfd_refs;
    uint32_t n_stopped;     /* of its tasks, by group_stop */
    bool forced;            /* init dies of a fault of its own */
    struct task *exec_task; /* it is in execve and waits until it is alone */
    struct timer cpu_timer; /* ITIMER_VIRTUAL, ITIMER_PROF, RLIMIT_CPU: task/cputime.c */
    uint64_t itimer_virtual, itimer_virtual_interval, itimer_prof, itimer_prof_interval;
    uint64_t dead_user_ns, dead_system_ns; /* of tasks that have exited */
    uint64_t children_user_ns, children_system_ns, cpu_warned;
    int32_t next_timer_id;
    uint32_t personality;
    uint64_t itimer_real_due; /* the tick that is awaited, or was the last */
};
void process_get(struct process *process);
void process_put(struct process *process);
/* Processor time in ns, of all its tasks that were and are; of one. */
void process_cpu(const struct process *process, uint64_t *ret_user, uint64_t *ret_system);
void task_cpu(struct task *task, uint64_t *ret_user, uint64_t *ret_system);
void reaped_cpu(uint64_t *ret_user, uint64_t *ret_system); /* of all processes that are gone */

/* ---- tasks ---- */

struct task {
    TAILQ_ENTRY(task) link; /* of all */
    TAILQ_ENTRY(task) process_link;
    struct process *process;
    int32_t tid;
    char comm[16];
    struct mm *mm;
    struct fdtable *files;
    struct fsctx *fs;
    struct cred *cred;
    struct user_regs_struct regs;          /* while it does not run */
    struct platform_context *host_context; /* made again, never copied */
    int32_t host_clock; /* processor time of its thread of the sentry; 0: it has none */
    uint32_t wake_word; /* futex of task_sleep */
    sigbits blocked, saved_blocked, sigwait; /* sigwait: of rt_sigtimedwait, while it waits */
    bool restore_blocked; /* rt_sigsuspend, ppoll …: saved_blocked comes back after the handler */
    struct sigpending pending;
    uint64_t altstack, altstack_size;
    uint32_t altstack_flags;
    bool signal_work; /* something may be owed at the boundary: look */
    bool dying, exited, killed;
    bool sleeping, in_guest;
    uint64_t clear_child_tid, robust_list, robust_list_size;
    int64_t
        restart_kind; /* ERESTART_RESTARTBLOCK: which call, what is left of it (task/restart.c) */
    uint64_t restart[6];
    uint64_t cpu_user_ns, cpu_system_ns; /* system: of threads that it had and has no more */
    int32_t nice, policy, priority;
    uint64_t affinity[16];
    int exit_code, parent_death_signal;
    uint64_t syscalls, last_syscall;
    struct task *id_next;      /* task_by_tid() */
    struct task *vfork_parent; /* that waits at the boundary until this one has left its mm */
    bool vfork_waiting;        /* this one waits so */
    bool stopped;              /* by group_stop, at the boundary */
    bool parked;               /* held by tasks_stop() */
    bool in_call;              /* regs are those of a system call that is to be restarted, or not */
    uint64_t start_time;       /* CLOCK_MONOTONIC */
    uint64_t in_guest_since;   /* CLOCK_MONOTONIC_COARSE */
    uint64_t fault_trap, fault_error, fault_address; /* for the next signal frame */
    uint64_t minor_faults, switches, timer_slack;
};

TAILQ_HEAD(task_list, task);
TAILQ_HEAD(process_list, process);
extern struct task_list *all_tasks;        /* in the arena */
extern struct process_list *all_processes; /* in the arena */

/* The first process: `mm` and registers by exec_load(); its thread begins with task_start(). */
int task_first(const char *hostname, struct task **ret_task);
int task_start(struct task *task); /* makes its thread of the sentry */
struct task *task_by_tid(int32_t tid);
struct process *process_by_pid(int32_t pid);
/* Limits: pids of the cell (spec.limits.pids), set at start and by the warden. */
void task_set_limit(uint64_t tasks);
uint64_t task_count(void), task_peak(void), task_refused(void);
/* All tasks but the caller to the boundary and held there, and on again: pause, snapshot. From the control thread. */
void tasks_stop(void), tasks_go_on(void);
void tasks_kill_all(void); /* the cell ends */
/* Waits, without the kernel lock, until the first process is dead and no task is left: its status as wait4 gives it. */
int tasks_wait_end(void);
bool tasks_ended(int *ret_status); /* the same, asked; with the lock */
/* Sends the task to the boundary, from wherever it is: something is owed there. */
void task_kick(struct task *task);

/* info->si_signo is sent; -EAGAIN when the queue is full (real-time signals by sigqueue). From kernel code of any task. */
int signal_process(struct process *process, const siginfo_t *info);
int signal_task(struct task *task, const siginfo_t *info);
int signal_group(int32_t pgid, const siginfo_t *info); /* no permission check: terminals */
void signal_force(struct task *task, int signo, int code,
                  uint64_t address);          /* a fault: not blocked, not ignored */
bool signal_pending(const struct task *task); /* unblocked, to be delivered or to kill */
void task_kill_with(int signo);               /* current: SIGPIPE, SIGXFSZ to itself */
/* Sets current's mask for the length of a call (ppoll, epoll_pwait): size must be 8; NULL pointer: nothing. */
int signal_mask_for_call(uint64_t guest_mask, uint64_t size);
/* The next pending signal in `mask` is taken off current's queues: its number, or 0. For signalfd. */
int signal_take(sigbits mask, siginfo_t *ret_info);
/* May current send this signal to the process? 0, -EPERM. */
int signal_permitted(const struct process *process, int signo);

/* ---- restart_syscall: a call gives -ERESTART_RESTARTBLOCK after it has set these; its arguments are its own ---- */

enum restart_kind {
    RESTART_NONE,
    RESTART_NANOSLEEP, /* task/sleep.c */
    RESTART_FUTEX,     /* task/futex.c */
    RESTART_POLL,      /* ipc/poll.c: int64_t poll_restart(const uint64_t restart[6]) */
};

/* ---- exec (task/exec.c, task/elf.c) ---- */

struct path;
/* A reference that also keeps writers away (ETXTBSY), as of struct mm's exe; and its end. */
void exec_hold(struct file *file);
void exec_close(struct file *file);
/* Loads a program (ELF, #!) into a new mm for `task`. argv, envp: the kernel's strings. On success mm and registers are set.
   Used for the first process and by execve. */
int exec_load(struct task *task, struct file *program, const char *name, char *const argv[],
              char *const envp[]);

/* task/alone.c. execve calls task_exec_begin() when nothing but it can fail: the other tasks of the process are dead after
   it, and current is the leader. -EAGAIN: another one was first, or the process dies. Then, with current->mm the new one,
   task_exec_end(): `old_mm` is left and its reference put, with all that execve resets: signal handlers, timers,
   descriptors to be closed, the name; the platform's context is the new mm's. mm->tasks is counted here. */
int task_exec_begin(void);
void task_exec_end(struct mm *old_mm, const char *name);

/* ---- the system's names (task/system.c, task/sched.c) ---- */

const char *hostname(void);
void hostname_set(const char *name, size_t length);
const char *kernel_release(void);
const char *kernel_version(void);
unsigned sched_cpus(void); /* processors that the guest sees */

/* ---- system calls: each room's rows are in <room>/calls.def, the table in syscall.c ---- */

typedef int64_t (*syscall_function)(const uint64_t a[6]); /* of the task `current` */
#define SYSCALL(name)                                                                              \
    int64_t sys_##name(const uint64_t a[6]);                                                       \
    int64_t sys_##name(const uint64_t a[6])

enum syscall_status { SYSCALL_FULL, SYSCALL_PARTIAL, SYSCALL_REFUSED, SYSCALL_UNKNOWN };
struct syscall_row {
    uint16_t number;
    uint8_t status; /* enum syscall_status */
    uint16_t error; /* REFUSED: the errno, always */
    const char *name;
    const char *note; /* PARTIAL: what is missing; REFUSED: why */
    syscall_function function;
};
const struct syscall_row *syscall_find(uint64_t number); /* NULL: unknown */
int64_t syscall_dispatch(struct task *task);             /* counts what was refused or unknown */
/* What the workload asked for and did not get: number, count; in order of number. For inspect. */
bool syscall_next_missing(int64_t after, uint64_t *ret_number, uint64_t *ret_count);

#endif
