/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * futex - waiting for a word of guest memory; robust lists.
 *
 * The word is looked at and the waiter queued under the kernel lock, and a wake needs that lock, so none is lost between.
 * Guest threads may change the word at any time: what changes it here is compare and swap.
 * Invariants: a waiter is on the stack of the task that waits, in one bucket until it is woken or gives up.
 * Threads: the kernel lock.
 */
#include <linux/futex.h>
#include <string.h>

#include "room.h"

#define BUCKETS 256u
#define ROBUST_MOST 2048 /* entries of a list, as Linux */
#define CAS_TRIES 1024

struct futex_waiter {
    TAILQ_ENTRY(futex_waiter) link;
    struct futex_key key;
    uint32_t bits;
    bool woken;
    struct task *task;
};
TAILQ_HEAD(futex_bucket, futex_waiter);

static struct futex_bucket
    buckets[BUCKETS]; /* of waiters on stacks: not in the arena, empty when tasks are held */

static struct futex_bucket *bucket_of(const struct futex_key *key)
{
    uint64_t hash = ((uint64_t)(uintptr_t)key->base >> 4) + key->offset * 0x9e3779b97f4a7c15ull;
    struct futex_bucket *bucket = &buckets[hash >> 56 & (BUCKETS - 1)];

    if (!bucket->tqh_last)
        TAILQ_INIT(bucket);
    return bucket;
}

static bool same(const struct futex_key *one, const struct futex_key *other)
{
    return one->base == other->base && one->offset == other->offset;
}

static void unqueue(struct futex_waiter *waiter)
{
    TAILQ_REMOVE(bucket_of(&waiter->key), waiter, link);
}

static int wake(const struct futex_key *key, unsigned most, uint32_t bits)
{
    struct futex_bucket *bucket = bucket_of(key);
    struct futex_waiter *waiter, *next;
    unsigned woken = 0;

    for (waiter = TAILQ_FIRST(bucket); waiter && woken < most; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        if (!same(&waiter->key, key) || !(waiter->bits & bits))
            continue;
        unqueue(waiter);
        waiter->woken = true;
        task_wake(waiter->task);
        woken++;
    }
    return (int)woken;
}

void futex_wake_at(struct mm *mm, uint64_t address, unsigned most)
{
    struct futex_key key;

    if (futex_key(mm, address, true, &key) == 0)
        wake(&key, most, FUTEX_BITSET_MATCH_ANY);
}

static int64_t wait(uint64_t address, bool shared, uint32_t value, uint64_t deadline, uint32_t bits)
{
    struct futex_waiter waiter = {.bits = bits, .task = current};
    uint32_t seen;
    int result;

    if (!bits)
        return -EINVAL;
    result = futex_key(current->mm, address, shared, &waiter.key);
    if (result == 0)
        result = guest_word_load(current->mm, address, &seen);
    if (result < 0)
        return result;
    if (seen != value)
        return -EAGAIN;
    TAILQ_INSERT_TAIL(bucket_of(&waiter.key), &waiter, link);
    while (!waiter.woken && result == 0)
        result = task_sleep(deadline);
    if (waiter.woken)
        return 0;
    unqueue(&waiter);
    return result;
}

/* With a deadline, the restart is told it. */
static int64_t wait_restartable(const uint64_t restart[6])
{
    int64_t result =
        wait(restart[0], restart[1], (uint32_t)restart[2], restart[3], (uint32_t)restart[4]);

    if (result != -ERESTARTSYS || restart[3] == WAIT_FOREVER)
        return result;
    memmove(current->restart, restart, 5 * sizeof(*restart));
    current->restart_kind = RESTART_FUTEX;
    return -ERESTART_RESTARTBLOCK;
}

int64_t futex_restart(const uint64_t restart[6])
{
    return wait_restartable(restart);
}

/* The deadline on the host's monotonic clock. relative: FUTEX_WAIT alone. */
static int deadline_in(uint64_t timeout, bool relative, bool realtime, uint64_t *ret_deadline)
{
    uint64_t ns, now = clock_monotonic(), real;
    int result;

    *ret_deadline = WAIT_FOREVER;
    if (!timeout)
        return 0;
    result = timespec_in(timeout, &ns);
    if (result < 0)
        return result;
    if (relative) {
        ns = add_saturating(ns, now);
    } else if (realtime) {
        real = clock_realtime();
        ns = ns > real ? add_saturating(ns - real, now) : 0;
    }
    *ret_deadline = ns == WAIT_FOREVER ? ns - 1 : ns;
    return 0;
}

static int64_t requeue(const uint64_t a[6], bool shared, const uint32_t *expected)
{
    struct futex_key from, to;
    struct futex_waiter *waiter, *next;
    int32_t n_wake = (int32_t)a[2], n_move = (int32_t)a[3], moved = 0, woken;
    uint32_t seen;
    int result;

    if (n_wake < 0 || n_move < 0)
        return -EINVAL;
    result = futex_key(current->mm, a[0], shared, &from);
    if (result == 0)
        result = futex_key(current->mm, a[4], shared, &to);
    if (result == 0 && expected)
        result = guest_word_load(current->mm, a[0], &seen);
    if (result < 0)
        return result;
    if (expected && seen != *expected)
        return -EAGAIN;
    woken = wake(&from, (unsigned)n_wake, FUTEX_BITSET_MATCH_ANY);
    for (waiter = TAILQ_FIRST(bucket_of(&from)); waiter && moved < n_move; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        if (!same(&waiter->key, &from))
            continue;
        if (!same(&from, &to)) {
            unqueue(waiter);
            waiter->key = to;
            TAILQ_INSERT_TAIL(bucket_of(&to), waiter, link);
        }
        moved++;
    }
    return woken + moved;
}

static int64_t operated(uint32_t operation, int32_t argument, uint32_t old)
{
    switch (operation) {
    case FUTEX_OP_SET:
        return (uint32_t)argument;
    case FUTEX_OP_ADD:
        return old + (uint32_t)argument;
    case FUTEX_OP_OR:
        return old | (uint32_t)argument;
    case FUTEX_OP_ANDN:
        return old & ~(uint32_t)argument;
    case FUTEX_OP_XOR:
        return old ^ (uint32_t)argument;
    default:
        return -ENOSYS;
    }
}

static int compared(uint32_t comparison, int32_t old, int32_t argument)
{
    switch (comparison) {
    case FUTEX_OP_CMP_EQ:
        return old == argument;
    case FUTEX_OP_CMP_NE:
        return old != argument;
    case FUTEX_OP_CMP_LT:
        return old < argument;
    case FUTEX_OP_CMP_GE:
        return old >= argument;
    case FUTEX_OP_CMP_LE:
        return old <= argument;
    case FUTEX_OP_CMP_GT:
        return old > argument;
    default:
        return -ENOSYS;
    }
}

/* Changes the second word; whether its old value compares. */
static int change_word(uint64_t address, uint32_t code)
{
    uint32_t operation = code >> 28 & 7, comparison = code >> 24 & 15, old, seen;
    int32_t argument = (int32_t)(code << 8) >> 20, against = (int32_t)(code << 20) >> 20;
    int64_t value;
    int result = guest_word_load(current->mm, address, &old), tries;

    if (code >> 31) {
        if (argument < 0 || argument > 31)
            argument &= 31; /* as Linux, which says so in its log */
        argument = (int32_t)(1u << argument);
    }
    for (tries = 0; result == 0 && tries < CAS_TRIES; tries++, old = seen) {
        value = operated(operation, argument, old);
        if (value < 0)
            return (int)value;
        result = guest_word_cas(current->mm, address, old, (uint32_t)value, &seen);
        if (result == 0 && seen == old)
            return compared(comparison, (int32_t)old, against);
    }
    return result < 0 ? result : -EAGAIN;
}

static int64_t wake_op(const uint64_t a[6], bool shared)
{
    struct futex_key first, second;
    int result = futex_key(current->mm, a[0], shared, &first), woken;

    if (result == 0)
        result = futex_key(current->mm, a[4], shared, &second);
    if (result == 0)
        result = change_word(a[4], (uint32_t)a[5]);
    if (result < 0)
        return result;
    woken = wake(&first, (unsigned)a[2], FUTEX_BITSET_MATCH_ANY);
    if (result)
        woken += wake(&second, (unsigned)a[3], FUTEX_BITSET_MATCH_ANY);
    return woken;
}

static int64_t wake_call(uint64_t address, bool shared, uint64_t most, uint32_t bits)
{
    struct futex_key key;
    int result;

    if (!bits)
        return -EINVAL;
    result = futex_key(current->mm, address, shared, &key);
    if (result < 0)
        return result;
    return wake(&key, (int32_t)most < 1 ? 1 : (unsigned)most, bits);
}

SYSCALL(futex)
{
    int operation = (int)a[1] & FUTEX_CMD_MASK;
    bool shared = !(a[1] & FUTEX_PRIVATE_FLAG), realtime = a[1] & FUTEX_CLOCK_REALTIME;
    uint64_t restart[6] = {a[0], shared, (uint32_t)a[2], WAIT_FOREVER, FUTEX_BITSET_MATCH_ANY};
    uint32_t expected = (uint32_t)a[5];
    int result;

    if (realtime && operation != FUTEX_WAIT_BITSET && operation != FUTEX_WAIT_REQUEUE_PI &&
        operation != FUTEX_LOCK_PI2)
        return -ENOSYS;
    switch (operation) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
        if (operation == FUTEX_WAIT_BITSET)
            restart[4] = (uint32_t)a[5];
        result = deadline_in(a[3], operation == FUTEX_WAIT, realtime, &restart[3]);
        return result < 0 ? result : wait_restartable(restart);
    case FUTEX_WAKE:
        return wake_call(a[0], shared, a[2], FUTEX_BITSET_MATCH_ANY);
    case FUTEX_WAKE_BITSET:
        return wake_call(a[0], shared, a[2], (uint32_t)a[5]);
    case FUTEX_REQUEUE:
        return requeue(a, shared, NULL);
    case FUTEX_CMP_REQUEUE:
        return requeue(a, shared, &expected);
    case FUTEX_WAKE_OP:
        return wake_op(a, shared);
    default:
        return -ENOSYS; /* those with priority inheritance, too: libraries do without */
    }
}

/* ---- robust lists: locks whose owner has died ---- */

struct robust_head {
    uint64_t next;
    int64_t offset;
    uint64_t pending;
};

static void owner_died(struct task *task, uint64_t address, bool pending)
{
    uint32_t value, seen;
    int tries;

    if (address % sizeof(value) || guest_word_load(task->mm, address, &value) < 0)
        return;
    for (tries = 0; tries < CAS_TRIES; tries++, value = seen) {
        if (pending && !value) { /* it was letting it go: a waiter may have missed that */
            futex_wake_at(task->mm, address, 1);
            return;
        }
        if ((value & FUTEX_TID_MASK) != (uint32_t)task->tid)
            return;
        if (guest_word_cas(task->mm, address, value, (value & FUTEX_WAITERS) | FUTEX_OWNER_DIED,
                           &seen) < 0)
            return;
        if (seen == value)
            break;
    }
    if (value & FUTEX_WAITERS)
        futex_wake_at(task->mm, address, 1);
}

void futex_robust_exit(struct task *task)
{
    uint64_t list = task->robust_list, entry, next;
    struct robust_head head;
    unsigned n = 0;

    task->robust_list = 0;
    if (!list || copy_in(task->mm, &head, list, sizeof(head)) < 0)
        return;
    for (entry = head.next & ~1ull; entry != list && n < ROBUST_MOST; entry = next & ~1ull, n++) {
        bool readable = copy_in(task->mm, &next, entry, sizeof(next)) == 0;

        if (entry != (head.pending & ~1ull))
            owner_died(task, entry + (uint64_t)head.offset, false);
        if (!readable)
            break;
    }
    if (head.pending & ~1ull)
        owner_died(task, (head.pending & ~1ull) + (uint64_t)head.offset, true);
}

SYSCALL(set_robust_list)
{
    if (a[1] != sizeof(struct robust_head))
        return -EINVAL;
    current->robust_list = a[0];
    return 0;
}

SYSCALL(get_robust_list)
{
    const struct task *task = a[0] ? task_by_tid((int32_t)a[0]) : current;
    uint64_t size = sizeof(struct robust_head);

    if (!task)
        return -ESRCH;
    if (!cred_may_look(task))
        return -EPERM;
    if (copy_out(current->mm, a[2], &size, sizeof(size)) < 0)
        return -EFAULT;
    return copy_out(current->mm, a[1], &task->robust_list, sizeof(task->robust_list));
}
