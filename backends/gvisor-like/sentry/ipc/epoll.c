/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * epoll - sets of files that are watched, and the list of those that may be ready.
 * An item is put on the list when its file wakes it; whether the file really is ready is asked when the list is read. What is
 * shown goes to the end of the list again (level) or leaves it (edge, one-shot), so that nobody starves.
 * Invariants: an item is in its epoll's table and in its file's list; it holds no reference to the file, whose end removes it
 * (epoll_file_gone). Epolls that watch each other are at most NESTS deep, and never in a circle.
 * Threads: the kernel lock.
 */
#include <string.h>
#include <sys/epoll.h>

#include "state.h"

#define NESTS 4
#define PRIVATE (EPOLLWAKEUP | EPOLLONESHOT | EPOLLET | EPOLLEXCLUSIVE)
#define EXCLUSIVE_MAY                                                                              \
    (EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE)
#define BUCKETS_FIRST 16u

struct epoll_item {
    struct waiter waiter;
    struct epoll_item *next;          /* of its bucket */
    TAILQ_ENTRY(epoll_item) ready;    /* when on_list */
    LIST_ENTRY(epoll_item) file_link; /* of file->epoll_items */
    struct epoll *epoll;
    struct file *file; /* borrowed */
    int fd;
    bool on_list;
    struct epoll_event event;
};

LIST_HEAD(file_items, epoll_item); /* file->epoll_items */

struct epoll {
    struct file *file; /* its own, borrowed */
    uint32_t n_items, n_buckets;
    struct epoll_item **buckets;
    TAILQ_HEAD(ready_items, epoll_item) ready;
    struct waitq waitq;
};

static uint32_t bucket_of(const struct epoll *epoll, const struct file *file, int fd)
{
    uint64_t mix = ((uintptr_t)file >> 4) + (uint32_t)fd * 0x9e3779b97f4a7c15ull;

    return (uint32_t)(mix >> 32 ^ mix) & (epoll->n_buckets - 1);
}

static struct epoll_item *find(const struct epoll *epoll, const struct file *file, int fd)
{
    struct epoll_item *item = epoll->buckets[bucket_of(epoll, file, fd)];

    while (item && (item->file != file || item->fd != fd))
        item = item->next;
    return item;
}

static int grow(struct epoll *epoll)
{
    uint32_t old = epoll->n_buckets, n = old ? old * 2 : BUCKETS_FIRST, i, to;
    struct epoll_item **was = epoll->buckets, *item, *next;
    struct epoll_item **buckets = arena_alloc(ARENA_EPOLL, n * sizeof(struct epoll_item *));

    if (!buckets)
        return -ENOMEM;
    epoll->buckets = buckets;
    epoll->n_buckets = n;
    for (i = 0; i < old; i++)
        for (item = was[i]; item; item = next) {
            next = item->next;
            to = bucket_of(epoll, item->file, item->fd);
            item->next = buckets[to];
            buckets[to] = item;
        }
    arena_free(was);
    return 0;
}

/* ---- the list of what may be ready ---- */

static void list_add(struct epoll_item *item)
{
    if (item->on_list)
        return;
    item->on_list = true;
    TAILQ_INSERT_TAIL(&item->epoll->ready, item, ready);
}

static void list_remove(struct epoll_item *item)
{
    if (!item->on_list)
        return;
    item->on_list = false;
    TAILQ_REMOVE(&item->epoll->ready, item, ready);
}

bool epoll_ready(void *queued)
{
    struct epoll_item *item = queued;

    if (!(item->event.events & ~(uint32_t)PRIVATE))
        return false; /* its one shot is over */
    list_add(item);
    return waitq_wake_some(&item->epoll->waitq, READY_IN, 1);
}

/* What wakes it: readers and writers of a pipe sleep in one queue, but an end that cannot be read is not told of bytes. */
static uint32_t wakes(const struct file *file, uint32_t events)
{
    if (file->kind == FILE_PIPE && !(file->mode & FMODE_READ))
        events &= ~(uint32_t)READY_IN;
    if (file->kind == FILE_PIPE && !(file->mode & FMODE_WRITE))
        events &= ~(uint32_t)READY_OUT;
    return events & ~(uint32_t)PRIVATE;
}

static uint32_t item_poll(struct epoll_item *item, struct waiter *waiter)
{
    return file_poll(item->file, waiter) & item->event.events;
}

/* Of the epoll as a file that is watched: is anything on its list really ready? */
static uint32_t epoll_poll(struct file *file, struct waiter *waiter)
{
    struct epoll *epoll = file->data;
    struct epoll_item *item, *next;

    if (waiter)
        waiter_add(waiter, &epoll->waitq, waiter->events);
    for (item = TAILQ_FIRST(&epoll->ready); item; item = next) {
        next = TAILQ_NEXT(item, ready);
        if (item_poll(item, NULL))
            return READY_IN;
        list_remove(item);
    }
    return 0;
}

/* ---- items ---- */

static void item_remove(struct epoll_item *item)
{
    struct epoll *epoll = item->epoll;
    struct epoll_item **at = &epoll->buckets[bucket_of(epoll, item->file, item->fd)];

    while (*at != item)
        at = &(*at)->next;
    *at = item->next;
    list_remove(item);
    waiter_remove(&item->waiter);
    LIST_REMOVE(item, file_link);
    item->file->n_epoll--;
    epoll->n_items--;
    ipc()->epoll_items--;
    arena_free(item);
}

void epoll_file_gone(struct file *file)
{
    struct epoll_item *item, *next;

    for (item = file->epoll_items; item; item = next) {
        next = LIST_NEXT(item, file_link);
        if (!next)
            file->epoll_items = NULL;
        item_remove(item);
    }
}

static void file_link(struct file *file, struct epoll_item *item)
{
    struct file_items *items = (struct file_items *)&file->epoll_items;

    LIST_INSERT_HEAD(items, item, file_link);
    file->n_epoll++;
}

static int item_add(struct epoll *epoll, struct file *file, int fd, const struct epoll_event *event)
{
    struct epoll_item *item;
    uint32_t bucket;

    if (ipc()->epoll_items >= EPOLL_ITEMS_MAX)
        return -ENOSPC;
    if (epoll->n_items >= epoll->n_buckets && grow(epoll) < 0)
        return -ENOMEM;
    item = arena_alloc(ARENA_EPOLL, sizeof(*item));
    if (!item)
        return -ENOMEM;
    item->epoll = epoll;
    item->file = file;
    item->fd = fd;
    item->event = *event;
    item->waiter.kind = WAITER_EPOLL;
    item->waiter.item = item;
    item->waiter.exclusive = !!(event->events & EPOLLEXCLUSIVE);
    item->waiter.events = wakes(file, event->events);
    bucket = bucket_of(epoll, file, fd);
    item->next = epoll->buckets[bucket];
    epoll->buckets[bucket] = item;
    file_link(file, item);
    epoll->n_items++;
    ipc()->epoll_items++;
    if (item_poll(item, &item->waiter))
        epoll_ready(item);
    return 0;
}

static int item_change(struct epoll_item *item, const struct epoll_event *event)
{
    if (item->event.events & EPOLLEXCLUSIVE)
        return -EINVAL;
    item->event = *event;
    item->waiter.events = wakes(item->file, event->events);
    if (item_poll(item, NULL))
        epoll_ready(item);
    return 0;
}

/* ---- circles ---- */

static struct epoll *file_epoll(const struct file *file)
{
    return file->kind == FILE_EPOLL ? file->data : NULL;
}

/* How deep epolls are below; more than NESTS also when `not_this` is among them. */
static int depth_below(const struct epoll *epoll, const struct epoll *not_this, int depth)
{
    struct epoll_item *item;
    int below, most = 0;
    uint32_t i;

    if (epoll == not_this || depth > NESTS)
        return NESTS + 1;
    for (i = 0; i < epoll->n_buckets; i++)
        for (item = epoll->buckets[i]; item; item = item->next) {
            if (!file_epoll(item->file))
                continue;
            below = 1 + depth_below(file_epoll(item->file), not_this, depth + 1);
            most = below > most ? below : most;
            if (most > NESTS)
                return most;
        }
    return most;
}

static int depth_above(const struct epoll *epoll, int depth)
{
    struct epoll_item *item;
    int above, most = 0;

    if (depth > NESTS)
        return NESTS + 1;
    for (item = epoll->file->epoll_items; item && most <= NESTS;
         item = LIST_NEXT(item, file_link)) {
        above = 1 + depth_above(item->epoll, depth + 1);
        most = above > most ? above : most;
    }
    return most;
}

static bool would_loop(const struct epoll *epoll, const struct epoll *other)
{
    return depth_below(other, epoll, 0) + 1 + depth_above(epoll, 0) > NESTS;
}

/* ---- calls ---- */

static int64_t create(uint32_t cloexec)
{
    struct epoll *epoll = arena_alloc(ARENA_EPOLL, sizeof(*epoll));
    struct file *file;

    if (!epoll)
        return -ENOMEM;
    TAILQ_INIT(&epoll->ready);
    waitq_init(&epoll->waitq);
    file = grow(epoll) < 0 ? NULL : anon_file(FILE_EPOLL, O_RDWR, 0600);
    if (!file) {
        arena_free(epoll->buckets);
        arena_free(epoll);
        return -ENFILE;
    }
    epoll->file = file;
    file->data = epoll;
    return install(file, cloexec);
}

SYSCALL(epoll_create)
{
    return (int)a[0] <= 0 ? -EINVAL : create(0);
}

SYSCALL(epoll_create1)
{
    return a[0] & 0xffffffff & ~(uint64_t)EPOLL_CLOEXEC ? -EINVAL : create(a[0] & EPOLL_CLOEXEC);
}

static void epoll_release(struct file *file)
{
    struct epoll *epoll = file->data;
    uint32_t i;

    for (i = 0; i < epoll->n_buckets; i++)
        while (epoll->buckets[i])
            item_remove(epoll->buckets[i]);
    arena_free(epoll->buckets);
    arena_free(epoll);
    anon_file_gone();
}

static int change(struct epoll *epoll, int op, struct file *file, int fd, struct epoll_event *event)
{
    struct epoll_item *item = find(epoll, file, fd);

    event->events |= EPOLLERR | EPOLLHUP;
    switch (op) {
    case EPOLL_CTL_ADD:
        return item ? -EEXIST : item_add(epoll, file, fd, event);
    case EPOLL_CTL_MOD:
        return item ? item_change(item, event) : -ENOENT;
    case EPOLL_CTL_DEL:
        if (item)
            item_remove(item);
        return item ? 0 : -ENOENT;
    default:
        return -EINVAL;
    }
}

static int control(struct file *own, int op, struct file *file, int fd, struct epoll_event *event)
{
    bool exclusive = op != EPOLL_CTL_DEL && (event->events & EPOLLEXCLUSIVE);

    if (!file_ops[file->kind] || !file_ops[file->kind]->poll)
        return -EPERM;
    if (own == file || !file_epoll(own))
        return -EINVAL;
    if (exclusive &&
        (op == EPOLL_CTL_MOD || file_epoll(file) || (event->events & ~(uint32_t)EXCLUSIVE_MAY)))
        return -EINVAL;
    if (op == EPOLL_CTL_ADD && file_epoll(file) && would_loop(own->data, file->data))
        return -ELOOP;
    return change(own->data, op, file, fd, event);
}

SYSCALL(epoll_ctl)
{
    struct epoll_event event = {0};
    struct file *own, *file;
    int r = 0;

    if ((int)a[1] != EPOLL_CTL_DEL)
        r = copy_in(current->mm, &event, a[3], sizeof(event));
    if (r < 0)
        return r;
    own = fd_get_io((int)a[0]);
    file = fd_get_io((int)a[2]);
    r = own && file ? control(own, (int)a[1], file, (int)a[2], &event) : -EBADF;
    if (own)
        file_put(own);
    if (file)
        file_put(file);
    return r;
}

/* Shows at most `most` of what is ready. */
static int64_t show(struct epoll *epoll, uint64_t guest, int most)
{
    struct epoll_item *item, *last = TAILQ_LAST(&epoll->ready, ready_items);
    struct epoll_event event;
    int n = 0;
    bool end = !last;

    while (!end && n < most) {
        item = TAILQ_FIRST(&epoll->ready);
        end = item == last;
        list_remove(item);
        event = (struct epoll_event){.events = item_poll(item, NULL), .data = item->event.data};
        if (!event.events)
            continue;
        if (copy_out(current->mm, guest + (uint64_t)n * sizeof(event), &event, sizeof(event)) < 0) {
            item->on_list = true;
            TAILQ_INSERT_HEAD(&epoll->ready, item, ready);
            return n ? n : -EFAULT;
        }
        n++;
        if (item->event.events & EPOLLONESHOT)
            item->event.events &= PRIVATE;
        else if (!(item->event.events & EPOLLET))
            list_add(item);
    }
    return n;
}

static int64_t wait_in(struct epoll *epoll, uint64_t guest, int most, uint64_t deadline)
{
    struct waiter waiter = {.exclusive = 1};
    int64_t n;
    int r = deadline ? 0 : -ETIMEDOUT;

    waiter_add(&waiter, &epoll->waitq, POLLIN);
    for (;;) {
        n = show(epoll, guest, most);
        if (n || r < 0)
            break;
        r = task_sleep(deadline);
    }
    waiter_remove(&waiter);
    if (!TAILQ_EMPTY(&epoll->ready))
        waitq_wake_some(&epoll->waitq, READY_IN, 1);
    if (n)
        return n;
    return r == -ERESTARTSYS || signal_pending(current) ? -EINTR : 0;
}

static int64_t wait_call(int fd, uint64_t guest, int most, uint64_t deadline)
{
    struct file *file = fd_get_io(fd);
    int64_t r = -EINVAL;

    if (!file)
        return -EBADF;
    if (most > 0 && most <= (int)(INT32_MAX / sizeof(struct epoll_event)) && file_epoll(file))
        r = wait_in(file->data, guest, most, deadline);
    file_put(file);
    return r;
}

static uint64_t ms_deadline(uint64_t ms)
{
    return (int)ms == 0 ? 0 : deadline_in_ms((int)ms);
}

SYSCALL(epoll_wait)
{
    return wait_call((int)a[0], a[1], (int)a[2], ms_deadline(a[3]));
}

static int64_t pwait(const uint64_t a[6], uint64_t deadline)
{
    int64_t r = signal_mask_for_call(a[4], a[5]);

    if (r < 0)
        return r;
    r = wait_call((int)a[0], a[1], (int)a[2], deadline);
    mask_call_done(r);
    return r;
}

SYSCALL(epoll_pwait)
{
    return pwait(a, ms_deadline(a[3]));
}

SYSCALL(epoll_pwait2)
{
    struct timespec t;
    uint64_t deadline = WAIT_FOREVER;
    int r = 0;

    if (a[3])
        r = get_timespec(a[3], &t);
    if (a[3] && r == 0)
        r = deadline_in(&t, &deadline);
    if (a[3] && r == 0 && !t.tv_sec && !t.tv_nsec)
        deadline = 0;
    return r < 0 ? r : pwait(a, deadline);
}

const struct file_ops epoll_ops = {
    .poll = epoll_poll,
    .release = epoll_release,
};
