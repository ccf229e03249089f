/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * msg - queues of messages by keys.
 * Invariants: a queue's bytes are at most its room; those of all queues are counted in sysv()->message_bytes.
 * Threads: the kernel lock.
 */
#include <string.h>
#include <sys/msg.h>

#include "sysv.h"

#define MESSAGE_MAX 8192u
#define QUEUE_MAX 16384u

struct letter {
    TAILQ_ENTRY(letter) link;
    int64_t type;
    uint32_t size;
    uint8_t bytes[];
};

struct queue {
    struct sysv_head head;
    TAILQ_HEAD(, letter) letters;
    uint32_t n, bytes, room;
    int64_t sent, received;
    int32_t sender, receiver;
    struct waitq waitq;
};

static struct queue *find(uint64_t id)
{
    return (struct queue *)sysv_find(&sysv()->msg, (int32_t)id);
}

static void letter_free(struct letter *letter)
{
    sysv()->message_bytes -= letter->size;
    arena_free(letter);
}

static void queue_put(struct queue *q)
{
    struct letter *letter;

    if (--q->head.refs)
        return;
    while ((letter = TAILQ_FIRST(&q->letters))) {
        TAILQ_REMOVE(&q->letters, letter, link);
        letter_free(letter);
    }
    arena_free(q);
}

SYSCALL(msgget)
{
    struct sysv_head *head;
    struct queue *q;
    int r = sysv_get(&sysv()->msg, (int32_t)a[0], (uint32_t)a[1], &head);

    if (r < 0 || head)
        return r < 0 ? r : head->id;
    q = arena_alloc(ARENA_SYSV, sizeof(*q));
    if (!q)
        return -ENOMEM;
    TAILQ_INIT(&q->letters);
    waitq_init(&q->waitq);
    q->room = QUEUE_MAX;
    sysv_add(&sysv()->msg, &q->head, (int32_t)a[0], (uint32_t)a[1]);
    return q->head.id;
}

/* ---- sending ---- */

static bool fits(const struct queue *q, uint32_t size)
{
    return q->bytes + size <= q->room && q->n + 1 <= q->room;
}

static int wait_change(struct queue *q)
{
    struct waiter waiter = {0};
    int r;

    waiter_add(&waiter, &q->waitq, 0);
    r = task_sleep(WAIT_FOREVER);
    waiter_remove(&waiter);
    if (q->head.removed)
        return -EIDRM;
    return r == -ERESTARTSYS ? -ERESTARTNOHAND : 0;
}

static int64_t send(struct queue *q, struct letter *letter, uint32_t flags)
{
    int r = sysv_may(&q->head, 2);

    while (r == 0 && !fits(q, letter->size))
        r = flags & IPC_NOWAIT ? -EAGAIN : wait_change(q);
    if (r < 0)
        return r;
    TAILQ_INSERT_TAIL(&q->letters, letter, link);
    q->n++;
    q->bytes += letter->size;
    q->sent = now_seconds();
    q->sender = current->process->pid;
    waitq_wake(&q->waitq, 0);
    return 0;
}

SYSCALL(msgsnd)
{
    struct letter *letter;
    struct queue *q;
    int64_t type, r = copy_in(current->mm, &type, a[1], sizeof(type));
    uint32_t size = (uint32_t)a[2];

    if (r < 0)
        return r;
    if (a[2] > MESSAGE_MAX || (int32_t)a[0] < 0 || type < 1)
        return -EINVAL;
    letter = arena_alloc(ARENA_SYSV, sizeof(*letter) + size);
    if (!letter)
        return -ENOMEM;
    letter->type = type;
    letter->size = size;
    sysv()->message_bytes += size;
    r = copy_in(current->mm, letter->bytes, a[1] + sizeof(type), size);
    q = r == 0 ? find(a[0]) : NULL;
    if (q) {
        q->head.refs++;
        r = send(q, letter, (uint32_t)a[3]);
        queue_put(q);
    } else if (r == 0) {
        r = -EINVAL;
    }
    if (r < 0)
        letter_free(letter);
    return r;
}

/* ---- receiving ---- */

static struct letter *choose(const struct queue *q, int64_t type, uint32_t flags)
{
    struct letter *letter, *best = NULL;

    TAILQ_FOREACH(letter, &q->letters, link)
    {
        if (type == 0 || (type > 0 && (letter->type == type) == !(flags & MSG_EXCEPT)))
            return letter;
        if (type < 0 && letter->type <= -type && (!best || letter->type < best->type))
            best = letter;
    }
    return best;
}

static int64_t take(struct queue *q, struct letter *letter, uint64_t guest, uint64_t size)
{
    int64_t n = letter->size < size ? letter->size : (int64_t)size;
    int r;

    TAILQ_REMOVE(&q->letters, letter, link);
    q->n--;
    q->bytes -= letter->size;
    q->received = now_seconds();
    q->receiver = current->process->pid;
    waitq_wake(&q->waitq, 0);
    r = copy_out(current->mm, guest, &letter->type, sizeof(letter->type));
    if (r == 0)
        r = copy_out(current->mm, guest + sizeof(letter->type), letter->bytes, (size_t)n);
    letter_free(letter);
    return r < 0 ? r : n;
}

static int64_t receive(struct queue *q, const uint64_t a[6])
{
    uint32_t flags = (uint32_t)a[4];
    struct letter *letter;
    int64_t type = (int64_t)a[3];
    int r = sysv_may(&q->head, 4);

    while (r == 0) {
        letter = choose(q, type, flags);
        if (letter && letter->size > a[2] && !(flags & MSG_NOERROR))
            return -E2BIG;
        if (letter)
            return take(q, letter, a[1], a[2]);
        r = flags & IPC_NOWAIT ? -ENOMSG : wait_change(q);
    }
    return r;
}

SYSCALL(msgrcv)
{
    struct queue *q;
    int64_t r;

    if ((int32_t)a[0] < 0 || (int64_t)a[2] < 0)
        return -EINVAL;
    if ((uint32_t)a[4] & MSG_COPY)
        return -ENOSYS;
    q = find(a[0]);
    if (!q)
        return -EINVAL;
    q->head.refs++;
    r = receive(q, a);
    queue_put(q);
    return r;
}

/* ---- msgctl ---- */

static int64_t status(const struct queue *q, uint64_t guest)
{
    struct msqid_ds ds = {.msg_stime = q->sent,
                          .msg_rtime = q->received,
                          .msg_ctime = q->head.changed,
                          .__msg_cbytes = q->bytes,
                          .msg_qnum = q->n,
                          .msg_qbytes = q->room,
                          .msg_lspid = q->sender,
                          .msg_lrpid = q->receiver};
    int r = sysv_may(&q->head, 4);

    if (r < 0)
        return r;
    sysv_show(&q->head, &ds.msg_perm);
    return copy_out(current->mm, guest, &ds, sizeof(ds));
}

static int64_t change(struct queue *q, uint64_t guest)
{
    struct msqid_ds ds;
    int r;

    if (copy_in(current->mm, &ds, guest, sizeof(ds)) < 0)
        return -EFAULT;
    r = sysv_owner(&q->head);
    if (r < 0)
        return r;
    if (ds.msg_qbytes > QUEUE_MAX)
        return -EPERM;
    q->room = (uint32_t)ds.msg_qbytes;
    sysv_change(&q->head, &ds.msg_perm);
    waitq_wake(&q->waitq, 0);
    return 0;
}

SYSCALL(msgctl)
{
    struct queue *q = find(a[0]);
    int r;

    if (!q)
        return -EINVAL;
    switch ((int)a[1]) {
    case IPC_STAT:
        return status(q, a[2]);
    case IPC_SET:
        return change(q, a[2]);
    case IPC_RMID:
        r = sysv_owner(&q->head);
        if (r < 0)
            return r;
        sysv_remove(&sysv()->msg, &q->head);
        waitq_wake(&q->waitq, 0);
        queue_put(q);
        return 0;
    default:
        return -EINVAL;
    }
}
