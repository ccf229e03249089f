/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * sem - semaphores by keys: sets whose values change together or not at all.
 * Invariants: a value is 0 … VALUE_MAX. What a process has to undo is a list at process->sysv_undo, by set; it goes with the set.
 * Who sleeps in a set holds it, and is woken by every change.
 * Threads: the kernel lock.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/sem.h>

#include "sysv.h"

#define VALUE_MAX 32767
#define SET_MAX 32000u
#define ALL_MAX 262144u /* semaphores of a cell */
#define OPS_MAX 500u

struct semaphore {
    int32_t value, pid;
    uint32_t waiting_more, waiting_zero;
};

struct set {
    struct sysv_head head;
    uint32_t n;
    int64_t operated;
    struct waitq waitq;
    struct semaphore at[];
};

struct undo {
    struct undo *next;
    int32_t id;
    uint32_t n;
    int16_t adjust[];
};

static void set_put(struct set *set)
{
    if (--set->head.refs == 0)
        arena_free(set);
}

static struct set *find(uint64_t id)
{
    return (struct set *)sysv_find(&sysv()->sem, (int32_t)id);
}

static int64_t make(int32_t key, uint32_t n, uint32_t flags)
{
    struct set *set;

    if (!n || n > SET_MAX)
        return -EINVAL;
    if (sysv()->n_semaphores + n > ALL_MAX)
        return -ENOSPC;
    set = arena_alloc(ARENA_SYSV, sizeof(*set) + n * sizeof(set->at[0]));
    if (!set)
        return -ENOMEM;
    set->n = n;
    waitq_init(&set->waitq);
    sysv()->n_semaphores += n;
    sysv_add(&sysv()->sem, &set->head, key, flags);
    return set->head.id;
}

SYSCALL(semget)
{
    struct sysv_head *head;
    int n = (int)a[1], r;

    if (n < 0 || n > (int)SET_MAX)
        return -EINVAL;
    r = sysv_get(&sysv()->sem, (int32_t)a[0], (uint32_t)a[2], &head);
    if (r < 0)
        return r;
    if (!head)
        return make((int32_t)a[0], (uint32_t)n, (uint32_t)a[2]);
    return (uint32_t)n > ((struct set *)head)->n ? -EINVAL : head->id;
}

/* ---- undo ---- */

static struct undo *undo_of(struct process *process, const struct set *set, bool new)
{
    struct undo *undo = process->sysv_undo;

    while (undo && undo->id != set->head.id)
        undo = undo->next;
    if (undo || !new)
        return undo;
    undo = arena_alloc(ARENA_SYSV, sizeof(*undo) + set->n * sizeof(undo->adjust[0]));
    if (!undo)
        return NULL;
    undo->id = set->head.id;
    undo->n = set->n;
    undo->next = process->sysv_undo;
    process->sysv_undo = undo;
    return undo;
}

static void undo_apply(const struct process *process, const struct undo *undo)
{
    struct set *set = find((uint64_t)(uint32_t)undo->id);
    uint32_t i;
    int32_t value;

    if (!set || set->n != undo->n)
        return;
    for (i = 0; i < set->n; i++) {
        if (!undo->adjust[i])
            continue;
        value = set->at[i].value + undo->adjust[i];
        set->at[i].value = value < 0 ? 0 : value > VALUE_MAX ? VALUE_MAX : value;
        set->at[i].pid = process->pid;
    }
    set->operated = now_seconds();
    waitq_wake(&set->waitq, 0);
}

void sysv_process_exit(struct process *process)
{
    struct undo *undo;

    while ((undo = process->sysv_undo)) {
        process->sysv_undo = undo->next;
        undo_apply(process, undo);
        arena_free(undo);
    }
}

/* Nobody has to undo what was done to these semaphores. */
static void undo_clear(const struct set *set, uint32_t first, uint32_t n)
{
    struct process *process;
    struct undo *undo;

    TAILQ_FOREACH(process, all_processes, link)
    {
        undo = undo_of(process, set, false);
        if (undo)
            memset(&undo->adjust[first], 0, n * sizeof(undo->adjust[0]));
    }
}

/* The set goes, and its number is another's one day: with as many semaphores as that has. */
static void undo_forget(const struct set *set)
{
    struct process *process;
    struct undo *undo, *before;

    TAILQ_FOREACH(process, all_processes, link)
    {
        undo = undo_of(process, set, false);
        if (!undo)
            continue;
        for (before = process->sysv_undo; before->next && before->next != undo;)
            before = before->next;
        if (process->sysv_undo == undo)
            process->sysv_undo = undo->next;
        else
            before->next = undo->next;
        arena_free(undo);
    }
}

/* ---- semop ---- */

/* One operation of a list on the values as they are now: 0 done, 1 it has to wait, -errno. */
static int do_one(struct set *set, const struct sembuf *op, struct undo *undo)
{
    struct semaphore *s = &set->at[op->sem_num];
    int32_t value = s->value + op->sem_op, adjust;

    if (!op->sem_op)
        return s->value ? 1 : 0;
    if (value < 0)
        return 1;
    if (value > VALUE_MAX)
        return -ERANGE;
    if (op->sem_flg & SEM_UNDO) {
        adjust = undo->adjust[op->sem_num] - op->sem_op;
        if (adjust < -VALUE_MAX - 1 || adjust > VALUE_MAX)
            return -ERANGE;
        undo->adjust[op->sem_num] = (int16_t)adjust;
    }
    s->value = value;
    return 0;
}

/* All or nothing; *ret_at: the one that has to wait. */
static int do_all(struct set *set, const struct sembuf *ops, unsigned n, struct undo *undo,
                  unsigned *ret_at)
{
    unsigned i, done;
    int r = 0;

    for (i = 0; i < n && r == 0; i++)
        r = do_one(set, &ops[i], undo);
    if (r == 0) {
        for (i = 0; i < n; i++)
            set->at[ops[i].sem_num].pid = current->process->pid;
        return 0;
    }
    *ret_at = i - 1;
    for (done = i - 1; done-- > 0;) {
        set->at[ops[done].sem_num].value -= ops[done].sem_op;
        if (ops[done].sem_op && (ops[done].sem_flg & SEM_UNDO))
            undo->adjust[ops[done].sem_num] =
                (int16_t)(undo->adjust[ops[done].sem_num] + ops[done].sem_op);
    }
    return r;
}

static int wait_for(struct set *set, const struct sembuf *op, uint64_t deadline)
{
    struct semaphore *s = &set->at[op->sem_num];
    uint32_t *count = op->sem_op ? &s->waiting_more : &s->waiting_zero;
    struct waiter waiter = {0};
    int r;

    if (op->sem_flg & IPC_NOWAIT)
        return -EAGAIN;
    ++*count;
    waiter_add(&waiter, &set->waitq, 0);
    r = task_sleep(deadline);
    waiter_remove(&waiter);
    --*count;
    if (set->head.removed)
        return -EIDRM;
    return r == -ERESTARTSYS ? -EINTR : r == -ETIMEDOUT ? -EAGAIN : 0;
}

static int operate(struct set *set, const struct sembuf *ops, unsigned n, uint64_t deadline)
{
    struct undo *undo = NULL;
    unsigned i, at = 0;
    bool changes = false, undoes = false;
    int r;

    for (i = 0; i < n; i++) {
        if (ops[i].sem_num >= set->n)
            return -EFBIG;
        changes |= ops[i].sem_op != 0;
        undoes |= (ops[i].sem_flg & SEM_UNDO) && ops[i].sem_op;
    }
    r = sysv_may(&set->head, changes ? 2 : 4);
    if (r < 0)
        return r;
    do {
        undo = undoes ? undo_of(current->process, set, true) : NULL;
        if (undoes && !undo)
            return -ENOMEM;
        r = do_all(set, ops, n, undo, &at);
        if (r == 1)
            r = wait_for(set, &ops[at], deadline);
        else if (r == 0)
            break;
    } while (r == 0);
    if (r == 0) {
        set->operated = now_seconds();
        waitq_wake(&set->waitq, 0);
    }
    return r;
}

static int64_t semop_call(uint64_t id, uint64_t guest, uint64_t n, uint64_t deadline)
{
    struct sembuf few[8], *ops = few;
    struct set *set;
    int r;

    if (!n || (int)id < 0)
        return -EINVAL;
    if (n > OPS_MAX)
        return -E2BIG;
    if (n > 8)
        ops = calloc(n, sizeof(*ops));
    if (!ops)
        return -ENOMEM;
    r = copy_in(current->mm, ops, guest, n * sizeof(*ops));
    set = r == 0 ? find(id) : NULL;
    if (set) {
        set->head.refs++;
        r = operate(set, ops, (unsigned)n, deadline);
        set_put(set);
    } else if (r == 0) {
        r = -EINVAL;
    }
    if (ops != few)
        free(ops);
    return r;
}

SYSCALL(semop)
{
    return semop_call(a[0], a[1], (uint32_t)a[2], WAIT_FOREVER);
}

SYSCALL(semtimedop)
{
    struct timespec t;
    uint64_t deadline = WAIT_FOREVER;
    int r = a[3] ? get_timespec(a[3], &t) : 0;

    if (r == 0 && a[3])
        r = deadline_in(&t, &deadline);
    return r < 0 ? r : semop_call(a[0], a[1], (uint32_t)a[2], deadline);
}

/* ---- semctl ---- */

static int64_t set_value(struct set *set, uint32_t number, int value)
{
    int r = sysv_may(&set->head, 2);

    if (value < 0 || value > VALUE_MAX)
        return -ERANGE;
    if (r < 0)
        return r;
    set->at[number].value = value;
    set->at[number].pid = current->process->pid;
    undo_clear(set, number, 1);
    set->head.changed = now_seconds();
    waitq_wake(&set->waitq, 0);
    return 0;
}

static int64_t of_one(struct set *set, uint32_t number, int command, uint64_t argument)
{
    const struct semaphore *s = &set->at[number];
    int r;

    if (number >= set->n)
        return -EINVAL;
    if (command == SETVAL)
        return set_value(set, number, (int)argument);
    r = sysv_may(&set->head, 4);
    if (r < 0)
        return r;
    return command == GETVAL    ? s->value
           : command == GETPID  ? s->pid
           : command == GETNCNT ? (int64_t)s->waiting_more
                                : (int64_t)s->waiting_zero;
}

static int64_t all_values(struct set *set, uint64_t guest, bool write)
{
    uint16_t *values;
    uint32_t i;
    int r = sysv_may(&set->head, write ? 2 : 4);

    if (r < 0)
        return r;
    values = calloc(set->n, sizeof(*values));
    if (!values)
        return -ENOMEM;
    for (i = 0; i < set->n; i++)
        values[i] = (uint16_t)set->at[i].value;
    if (write)
        r = copy_in(current->mm, values, guest, set->n * sizeof(*values));
    else
        r = copy_out(current->mm, guest, values, set->n * sizeof(*values));
    for (i = 0; write && r == 0 && i < set->n; i++)
        r = values[i] > VALUE_MAX ? -ERANGE : 0;
    for (i = 0; write && r == 0 && i < set->n; i++) {
        set->at[i].value = values[i];
        set->at[i].pid = current->process->pid;
    }
    free(values);
    if (write && r == 0) {
        undo_clear(set, 0, set->n);
        set->head.changed = now_seconds();
        waitq_wake(&set->waitq, 0);
    }
    return r;
}

static int64_t of_set(struct set *set, int command, uint64_t guest)
{
    struct semid_ds ds = {
        .sem_otime = set->operated, .sem_ctime = set->head.changed, .sem_nsems = set->n};
    int r = command == IPC_STAT ? sysv_may(&set->head, 4) : sysv_owner(&set->head);

    if (command == IPC_SET && copy_in(current->mm, &ds, guest, sizeof(ds)) < 0)
        return -EFAULT;
    if (r < 0)
        return r;
    if (command == IPC_STAT) {
        sysv_show(&set->head, &ds.sem_perm);
        return copy_out(current->mm, guest, &ds, sizeof(ds));
    }
    if (command == IPC_SET) {
        sysv_change(&set->head, &ds.sem_perm);
        return 0;
    }
    undo_forget(set);
    sysv_remove(&sysv()->sem, &set->head);
    sysv()->n_semaphores -= set->n;
    waitq_wake(&set->waitq, 0);
    set_put(set);
    return 0;
}

SYSCALL(semctl)
{
    struct set *set = find(a[0]);
    int command = (int)a[2];

    if (!set)
        return -EINVAL;
    switch (command) {
    case GETVAL:
    case GETPID:
    case GETNCNT:
    case GETZCNT:
    case SETVAL:
        return of_one(set, (uint32_t)a[1], command, a[3]);
    case GETALL:
    case SETALL:
        return all_values(set, a[3], command == SETALL);
    case IPC_STAT:
    case IPC_SET:
    case IPC_RMID:
        return of_set(set, command, a[3]);
    default:
        return -EINVAL;
    }
}
