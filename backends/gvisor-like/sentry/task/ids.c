/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * ids - which tasks and processes there are, by which number, how many there may be.
 * Invariants: an id is free when no task, process, group or session has it; `count` is tasks that exist, zombies included, as
 * the pids controller of Linux counts them.
 * Threads: the kernel lock.
 */
#include <string.h>

#include "room.h"

#define BUCKETS 1024u
#define RESERVED_IDS 300 /* where numbers go on after PIDS_MAX, as Linux */

static struct ids {
    struct task_list tasks;
    struct process_list processes;
    struct task *bucket[BUCKETS];
    struct user_counts *users;
    uint64_t count, peak, limit, refused;
    uint64_t reaped_user_ns, reaped_system_ns; /* of processes that are gone */
    int32_t last;
} * ids; /* in the arena */

struct task_list *all_tasks;
struct process_list *all_processes;

static int ids_init(void)
{
    if (ids)
        return 0;
    ids = arena_alloc(ARENA_TASK, sizeof(*ids));
    if (!ids)
        return -ENOMEM;
    TAILQ_INIT(&ids->tasks);
    TAILQ_INIT(&ids->processes);
    all_tasks = &ids->tasks;
    all_processes = &ids->processes;
    ids->limit = UINT64_MAX;
    return 0;
}

void task_set_limit(uint64_t tasks)
{
    if (ids_init() == 0)
        ids->limit = tasks ? tasks : UINT64_MAX;
}

void reaped_count(const struct process *process)
{
    uint64_t user, system;

    process_cpu(process, &user, &system);
    ids->reaped_user_ns += user;
    ids->reaped_system_ns += system;
}

void reaped_cpu(uint64_t *ret_user, uint64_t *ret_system)
{
    *ret_user = ids->reaped_user_ns;
    *ret_system = ids->reaped_system_ns;
}

uint64_t task_count(void)
{
    return ids ? ids->count : 0;
}

uint64_t task_peak(void)
{
    return ids ? ids->peak : 0;
}

uint64_t task_refused(void)
{
    return ids ? ids->refused : 0;
}

bool tasks_room(void)
{
    if (ids->count < ids->limit)
        return true;
    ids->refused++;
    return false;
}

struct task *task_by_tid(int32_t tid)
{
    struct task *task;

    if (!ids || tid <= 0)
        return NULL;
    for (task = ids->bucket[(uint32_t)tid % BUCKETS]; task && task->tid != tid;
         task = task->id_next)
        ;
    return task;
}

struct process *process_by_pid(int32_t pid)
{
    struct task *task = task_by_tid(pid);

    return task && task->process->pid == pid ? task->process : NULL;
}

struct process *init_process(void)
{
    return process_by_pid(INIT_PID);
}

static bool id_taken(int32_t id)
{
    const struct process *process;

    if (task_by_tid(id))
        return true;
    TAILQ_FOREACH(process, all_processes, link)
    if (process->pid == id || process->pgid == id || process->sid == id)
        return true;
    return false;
}

int32_t id_new(void)
{
    int32_t id = ids->last, n;

    for (n = 0; n < PIDS_MAX; n++) {
        id = id + 1 < PIDS_MAX ? id + 1 : RESERVED_IDS;
        if (!id_taken(id)) {
            ids->last = id;
            return id;
        }
    }
    return -EAGAIN;
}

void id_add(struct task *task)
{
    struct task **bucket = &ids->bucket[(uint32_t)task->tid % BUCKETS];

    task->id_next = *bucket;
    *bucket = task;
}

void id_remove(struct task *task)
{
    struct task **at = &ids->bucket[(uint32_t)task->tid % BUCKETS];

    while (*at && *at != task)
        at = &(*at)->id_next;
    if (*at)
        *at = task->id_next;
}

struct task *task_new(void)
{
    struct task *task;

    if (ids_init() < 0)
        return NULL;
    task = arena_alloc(ARENA_TASK, sizeof(*task));
    if (!task)
        return NULL;
    sigpending_init(&task->pending);
    task->start_time = clock_monotonic();
    task->timer_slack = 50000;
    ids->count++;
    if (ids->count > ids->peak)
        ids->peak = ids->count;
    return task;
}

void task_free(struct task *task)
{
    sigpending_flush(&task->pending, ~0ull);
    if (task->cred)
        cred_put(task->cred);
    ids->count--;
    arena_free(task);
}

struct process *process_new(void)
{
    struct process *process;

    if (ids_init() < 0)
        return NULL;
    process = arena_alloc(ARENA_PROCESS, sizeof(*process));
    if (!process)
        return NULL;
    TAILQ_INIT(&process->children);
    TAILQ_INIT(&process->tasks);
    sigpending_init(&process->pending);
    waitq_init(&process->child_waitq);
    waitq_init(&process->signal_waitq);
    waitq_init(&process->exit_waitq);
    process->itimer_real = (struct timer){.kind = TIMER_ITIMER, .owner = process};
    process->cpu_timer = (struct timer){.kind = TIMER_CPU, .owner = process};
    process->start_time = clock_monotonic();
    process->pidfd_refs = 1;
    return process;
}

void process_get(struct process *process)
{
    process->pidfd_refs++;
}

void process_put(struct process *process)
{
    if (--process->pidfd_refs)
        return;
    sigpending_flush(&process->pending, ~0ull);
    arena_free(process);
}

struct user_counts *user_of(uint32_t uid)
{
    struct user_counts *user;

    for (user = ids->users; user && user->uid != uid; user = user->next)
        ;
    if (user)
        return user;
    user = arena_alloc(ARENA_CRED, sizeof(*user));
    if (!user)
        return NULL;
    user->uid = uid;
    user->next = ids->users;
    ids->users = user;
    return user;
}

void user_tidy(struct user_counts *user)
{
    struct user_counts **at = &ids->users;

    if (user->tasks || user->signals)
        return;
    while (*at != user)
        at = &(*at)->next;
    *at = user->next;
    arena_free(user);
}
