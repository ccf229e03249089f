/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * signal - signals from when they are sent to when they are taken off their queue.
 *
 * Invariants: a bit of struct sigpending is set when the signal pends; its siginfo is in the queue, or is lost (a standard
 * signal beyond the limit), and then says SI_USER with zeros. A standard signal is queued once, and once for each timer that
 * sends it: each waits for its own to be taken. SIGKILL is never queued:
 * it marks the tasks at once. A stop signal and SIGCONT drop each other when sent.
 * Threads: the kernel lock.
 */
#include <string.h>

#include "room.h"

#define SYNCHRONOUS                                                                                \
    (SIGBIT(SIGSEGV) | SIGBIT(SIGBUS) | SIGBIT(SIGILL) | SIGBIT(SIGTRAP) | SIGBIT(SIGFPE) |        \
     SIGBIT(SIGSYS))
#define STOPS (SIGBIT(SIGSTOP) | SIGBIT(SIGTSTP) | SIGBIT(SIGTTIN) | SIGBIT(SIGTTOU))
#define DEFAULT_IGNORED (SIGBIT(SIGCONT) | SIGBIT(SIGCHLD) | SIGBIT(SIGWINCH) | SIGBIT(SIGURG))
#define FIRST_REALTIME 32
#define HANDLER_DEFAULT 0u
#define HANDLER_IGNORE 1u

void sigpending_init(struct sigpending *pending)
{
    pending->bits = 0;
    TAILQ_INIT(&pending->queue);
}

static void queued_free(struct sigqueued *queued)
{
    queued->user->signals--;
    user_tidy(queued->user);
    arena_free(queued);
}

void sigpending_flush(struct sigpending *pending, sigbits mask)
{
    struct sigqueued *queued, *next;

    if (!(pending->bits & mask))
        return;
    pending->bits &= ~mask;
    for (queued = TAILQ_FIRST(&pending->queue); queued; queued = next) {
        next = TAILQ_NEXT(queued, link);
        if (mask & SIGBIT(queued->info.si_signo)) {
            TAILQ_REMOVE(&pending->queue, queued, link);
            if (queued->timer)
                posix_timer_taken(queued->timer, &queued->info);
            queued_free(queued);
        }
    }
}

static void flush_process(struct process *process, sigbits mask)
{
    struct task *task;

    sigpending_flush(&process->pending, mask);
    TAILQ_FOREACH(task, &process->tasks, process_link)
    sigpending_flush(&task->pending, mask);
}

bool signal_default_ignored(int signo)
{
    return DEFAULT_IGNORED & SIGBIT(signo);
}

bool signal_default_stop(int signo)
{
    return STOPS & SIGBIT(signo);
}

/* By its disposition, whether or not it is blocked. */
bool signal_ignored(const struct process *process, int signo)
{
    uint64_t handler = process->sighand->actions[signo - 1].handler;

    if (handler == HANDLER_IGNORE)
        return true;
    if (handler != HANDLER_DEFAULT)
        return false;
    return signal_default_ignored(signo) || (process->pid == INIT_PID && !process->forced);
}

bool signal_pending(const struct task *task)
{
    const struct process *process = task->process;

    if (task->killed || task->dying || (tasks_held() && !task->parked) ||
        (process->group_stop && !task->stopped))
        return true;
    return (task->pending.bits | process->pending.bits) & ~task->blocked;
}

/* SIGCONT goes on even when it is ignored or blocked; what it and a stop drop of each other. */
static void settle_stops(struct process *process, int signo)
{
    struct task *task;
    bool was_stopped;

    if (signal_default_stop(signo)) {
        flush_process(process, SIGBIT(SIGCONT));
        return;
    }
    if (signo != SIGCONT)
        return;
    flush_process(process, STOPS);
    was_stopped = process->state == PROCESS_STOPPED;
    if (!process->group_stop)
        return;
    process->group_stop = 0;
    process->n_stopped = 0;
    process->state = PROCESS_LIVE;
    TAILQ_FOREACH(task, &process->tasks, process_link)
    {
        task->stopped = false;
        task_kick(task);
    }
    if (was_stopped) {
        process->continued = true;
        child_changed(process, CLD_CONTINUED, SIGCONT);
    }
}

static struct task *who_takes(struct process *process, int signo)
{
    struct task *task;

    TAILQ_FOREACH(task, &process->tasks, process_link)
    if (!task->exited && !task->killed && !task->stopped && !(task->blocked & SIGBIT(signo)))
        return task;
    return NULL;
}

static void wake_takers(struct task *task, struct process *process, int signo)
{
    if (!task)
        task = who_takes(process, signo);
    else if (task->stopped || (task->blocked & SIGBIT(signo)))
        task = NULL;
    if (task)
        task_kick(task);
    waitq_wake(&process->signal_waitq, POLLIN);
}

/* The memory for it; `must`: beyond the limit, too. */
static struct sigqueued *queued_new(struct process *process, const struct cred *cred, bool must)
{
    struct user_counts *user = user_of(cred->uid);
    struct sigqueued *queued;

    if (!user)
        return NULL;
    queued = NULL;
    if (must || user->signals < process->limits[RLIMIT_SIGPENDING].rlim_cur)
        queued = arena_alloc(ARENA_SIGNAL, sizeof(*queued));
    if (queued) {
        queued->user = user;
        user->signals++;
    } else {
        user_tidy(user);
    }
    return queued;
}

/* A task that waits in sigtimedwait wants it, ignored or not: its mask says blocked, then. */
static bool drop(struct task *task, struct process *process, int signo)
{
    const struct task *who = task ? task : process->leader;

    return !((who->blocked | who->sigwait) & SIGBIT(signo)) && signal_ignored(process, signo);
}

int signal_send(struct task *task, struct process *process, const siginfo_t *info,
                struct posix_timer *timer)
{
    int signo = info->si_signo;
    struct sigpending *pending = task ? &task->pending : &process->pending;
    struct sigqueued *queued;
    const struct cred *cred;

    if (signo < 1 || signo > SIGNALS)
        return -EINVAL;
    if (process->state == PROCESS_ZOMBIE || process->state == PROCESS_DEAD)
        return 0;
    settle_stops(process, signo);
    if (signo == SIGKILL && (process->pid != INIT_PID || process->forced)) {
        process_kill(process, SIGKILL);
        return 0;
    }
    if (drop(task, process, signo))
        return 0;
    if (!timer && signo < FIRST_REALTIME && (pending->bits & SIGBIT(signo)))
        return 0;
    cred = task ? task->cred : process->leader->cred;
    queued = queued_new(process, cred, timer || (signo < FIRST_REALTIME && info->si_code >= 0));
    if (queued) {
        queued->info = *info;
        queued->timer = timer;
        if (timer)
            posix_timer_queued(timer);
        TAILQ_INSERT_TAIL(&pending->queue, queued, link);
    } else if (signo >= FIRST_REALTIME && info->si_code != SI_USER) {
        return -EAGAIN;
    }
    pending->bits |= SIGBIT(signo);
    wake_takers(task, process, signo);
    return 0;
}

int signal_process(struct process *process, const siginfo_t *info)
{
    return signal_send(NULL, process, info, NULL);
}

int signal_task(struct task *task, const siginfo_t *info)
{
    return signal_send(task, task->process, info, NULL);
}

int signal_group(int32_t pgid, const siginfo_t *info)
{
    struct process *process;
    int result = -ESRCH;

    TAILQ_FOREACH(process, all_processes, link)
    if (process->pgid == pgid) {
        signal_process(process, info);
        result = 0;
    }
    return result;
}

/* What a fault sends is neither blocked nor ignored, and even init dies of it. */
void signal_force_info(struct task *task, const siginfo_t *info)
{
    struct process *process = task->process;
    int signo = info->si_signo >= 1 && info->si_signo <= SIGNALS ? info->si_signo : SIGSEGV;
    struct guest_sigaction *action = &process->sighand->actions[signo - 1];
    siginfo_t sent = *info;

    sent.si_signo = signo;
    if (action->handler == HANDLER_IGNORE || (task->blocked & SIGBIT(signo))) {
        action->handler = HANDLER_DEFAULT;
        set_blocked(task, task->blocked & ~SIGBIT(signo));
    }
    if (action->handler == HANDLER_DEFAULT)
        process->forced = true;
    signal_send(task, process, &sent, NULL);
}

void signal_force(struct task *task, int signo, int code, uint64_t address)
{
    siginfo_t info = {.si_signo = signo, .si_code = code};

    info.si_addr = (void *)(uintptr_t)address; /* NOLINT: a guest's address, never followed */
    signal_force_info(task, &info);
}

void task_kill_with(int signo)
{
    siginfo_t info = {0};

    signal_fill(&info, signo, SI_USER);
    signal_task(current, &info);
}

void signal_fill(siginfo_t *info, int signo, int code)
{
    memset(info, 0, sizeof(*info));
    info->si_signo = signo;
    info->si_code = code;
    info->si_pid = current->process->pid;
    info->si_uid = current->cred->uid;
}

/* ---- taking ---- */

static int lowest(sigbits bits)
{
    if (bits & SYNCHRONOUS)
        bits &= SYNCHRONOUS;
    return bits ? __builtin_ctzll(bits) + 1 : 0;
}

/* The first of the number, and whether another one remains. */
static void take(struct sigpending *pending, int signo, siginfo_t *ret_info)
{
    struct sigqueued *queued, *first = NULL;
    bool more = false;

    TAILQ_FOREACH(queued, &pending->queue, link)
    if (queued->info.si_signo == signo) {
        if (first)
            more = true;
        else
            first = queued;
    }
    if (!more)
        pending->bits &= ~SIGBIT(signo);
    memset(ret_info, 0, sizeof(*ret_info));
    ret_info->si_signo = signo;
    ret_info->si_code = SI_USER;
    if (!first)
        return;
    *ret_info = first->info;
    TAILQ_REMOVE(&pending->queue, first, link);
    if (first->timer)
        posix_timer_taken(first->timer, ret_info);
    queued_free(first);
}

int signal_next(struct task *task, sigbits mask, siginfo_t *ret_info)
{
    struct sigpending *pending = &task->pending;
    int signo = lowest(pending->bits & mask);

    if (!signo) {
        pending = &task->process->pending;
        signo = lowest(pending->bits & mask);
    }
    if (signo)
        take(pending, signo, ret_info);
    return signo;
}

int signal_take(sigbits mask, siginfo_t *ret_info)
{
    return signal_next(current, mask, ret_info);
}

/* A timer is deleted; its signal stays. */
static void forget_timer(struct sigpending *pending, const struct posix_timer *timer)
{
    struct sigqueued *queued;

    TAILQ_FOREACH(queued, &pending->queue, link)
    if (queued->timer == timer)
        queued->timer = NULL;
}

void signal_timer_gone(struct process *process, struct posix_timer *timer)
{
    struct task *task;

    forget_timer(&process->pending, timer);
    TAILQ_FOREACH(task, &process->tasks, process_link)
    forget_timer(&task->pending, timer);
}

/* ---- masks, handlers ---- */

/* What the process has pending, and this task no longer takes, is another's. */
static void retarget(struct task *task, sigbits newly)
{
    struct process *process = task->process;
    sigbits lost = process->pending.bits & newly;
    struct task *other;

    if (!lost)
        return;
    TAILQ_FOREACH(other, &process->tasks, process_link)
    if (other != task && !other->exited && (lost & ~other->blocked))
        task_kick(other);
}

void signals_leave(struct task *task)
{
    retarget(task, ~task->blocked);
}

void set_blocked(struct task *task, sigbits mask)
{
    sigbits newly;

    mask &= ~SIGBITS_UNBLOCKABLE;
    newly = mask & ~task->blocked;
    task->blocked = mask;
    task->signal_work = true;
    retarget(task, newly);
}

struct sighand *sighand_new(const struct sighand *from)
{
    struct sighand *sighand = arena_alloc(ARENA_SIGNAL, sizeof(*sighand));

    if (!sighand)
        return NULL;
    if (from)
        memcpy(sighand->actions, from->actions, sizeof(sighand->actions));
    sighand->refs = 1;
    return sighand;
}

void sighand_put(struct sighand *sighand)
{
    if (sighand && --sighand->refs == 0)
        arena_free(sighand);
}
