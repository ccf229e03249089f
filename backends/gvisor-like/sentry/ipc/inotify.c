/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * inotify - what happens to files, told to who watches them. fs/ says what happens by inotify_event().
 * Invariants: a watch is in its instance's list and in its inode's, and holds the inode. An instance's queue is bounded; what does
 * not fit is told as one overflow.
 * Threads: the kernel lock.
 */
#include <string.h>
#include <sys/inotify.h>

#include "state.h"

#define QUEUE_MAX 16384u
#define EVENTS_MAX 262144u /* of all instances */
#define KEPT (IN_ALL_EVENTS | IN_ONESHOT | IN_EXCL_UNLINK)
#define VALID                                                                                      \
    (IN_ALL_EVENTS | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK | IN_MASK_CREATE | IN_MASK_ADD | \
     IN_ISDIR | IN_ONESHOT | IN_UNMOUNT | IN_Q_OVERFLOW | IN_IGNORED)

struct head { /* struct inotify_event without the name */
    int wd;
    uint32_t mask, cookie, length;
};

struct event {
    TAILQ_ENTRY(event) link;
    struct head head; /* .length: of the name with its padding */
    uint32_t length;  /* of the name */
    char name[];
};

struct watch {
    LIST_ENTRY(watch) inode_link;
    TAILQ_ENTRY(watch) link;
    struct inotify *inotify;
    struct inode *inode; /* reference */
    int wd;
    uint32_t mask;
};
LIST_HEAD(inode_watches, watch); /* inode->watches */

struct inotify {
    TAILQ_HEAD(, watch) watches;
    TAILQ_HEAD(event_list, event) events;
    uint32_t n_events;
    uint64_t bytes; /* of all events, as read */
    int next_wd;
    struct waitq waitq;
};

/* ---- events ---- */

static uint32_t padded(uint32_t length)
{
    uint32_t unit = sizeof(struct head);

    return length ? (length + 1 + unit - 1) / unit * unit : 0;
}

static bool same_as_last(const struct inotify *n, int wd, uint32_t mask, const char *name,
                         uint32_t length)
{
    const struct event *last = TAILQ_LAST(&n->events, event_list);

    return last && last->head.wd == wd && last->head.mask == mask && last->length == length &&
           !(mask & IN_IGNORED) && (!length || memcmp(last->name, name, length) == 0);
}

static void add(struct inotify *n, int wd, uint32_t mask, uint32_t cookie, const char *name)
{
    uint32_t length = name ? (uint32_t)strlen(name) : 0;
    struct event *event;

    if (same_as_last(n, wd, mask, name, length))
        return;
    if (n->n_events >= QUEUE_MAX || ipc()->inotify_events >= EVENTS_MAX) {
        if (n->n_events > QUEUE_MAX || same_as_last(n, -1, IN_Q_OVERFLOW, NULL, 0))
            return;
        wd = -1;
        mask = IN_Q_OVERFLOW;
        cookie = length = 0;
    }
    event = arena_alloc(ARENA_INOTIFY, sizeof(*event) + length + 1);
    if (!event)
        return;
    event->head = (struct head){wd, mask, cookie, padded(length)};
    event->length = length;
    if (length)
        memcpy(event->name, name, length);
    TAILQ_INSERT_TAIL(&n->events, event, link);
    n->n_events++;
    n->bytes += sizeof(event->head) + event->head.length;
    ipc()->inotify_events++;
    waitq_wake(&n->waitq, READY_IN);
}

static void drop(struct inotify *n, struct event *event)
{
    TAILQ_REMOVE(&n->events, event, link);
    n->n_events--;
    n->bytes -= sizeof(event->head) + event->head.length;
    ipc()->inotify_events--;
    arena_free(event);
}

/* ---- watches ---- */

static void watch_remove(struct watch *watch)
{
    LIST_REMOVE(watch, inode_link);
    TAILQ_REMOVE(&watch->inotify->watches, watch, link);
    ipc()->inotify_watches--;
    inode_put(watch->inode);
    arena_free(watch);
}

static void watch_over(struct watch *watch)
{
    add(watch->inotify, watch->wd, IN_IGNORED, 0, NULL);
    watch_remove(watch);
}

void inotify_event(struct inode *inode, struct dentry *dentry, uint32_t mask, const char *name,
                   uint32_t cookie)
{
    struct watch *watch, *next;

    inode_get(inode); /* its watches may be what holds it */
    for (watch = inode->watches; watch; watch = next) {
        next = LIST_NEXT(watch, inode_link);
        if (name && dentry && dentry->deleted && (watch->mask & IN_EXCL_UNLINK))
            continue;
        if (mask & watch->mask & IN_ALL_EVENTS) {
            add(watch->inotify, watch->wd, mask, cookie, name);
            if (watch->mask & IN_ONESHOT) {
                watch_over(watch);
                continue;
            }
        }
        if (mask & IN_DELETE_SELF)
            watch_over(watch);
    }
    inode_put(inode);
}

static struct watch *watch_find(struct inotify *n, const struct inode *inode)
{
    struct watch *watch = inode->watches;

    while (watch && watch->inotify != n)
        watch = LIST_NEXT(watch, inode_link);
    return watch;
}

static int watch_new(struct inotify *n, struct inode *inode, uint32_t mask)
{
    struct inode_watches *watches = (struct inode_watches *)&inode->watches;
    struct watch *watch;

    if (ipc()->inotify_watches >= INOTIFY_WATCHES_MAX || n->next_wd == INT32_MAX)
        return -ENOSPC;
    watch = arena_alloc(ARENA_INOTIFY, sizeof(*watch));
    if (!watch)
        return -ENOMEM;
    watch->inotify = n;
    watch->inode = inode;
    watch->wd = ++n->next_wd;
    watch->mask = mask & KEPT;
    inode_get(inode);
    LIST_INSERT_HEAD(watches, watch, inode_link);
    TAILQ_INSERT_TAIL(&n->watches, watch, link);
    ipc()->inotify_watches++;
    return watch->wd;
}

static int watch_set(struct inotify *n, struct inode *inode, uint32_t mask)
{
    struct watch *watch = watch_find(n, inode);

    if (!watch)
        return watch_new(n, inode, mask);
    if (mask & IN_MASK_CREATE)
        return -EEXIST;
    watch->mask = (mask & IN_MASK_ADD ? watch->mask : 0) | (mask & KEPT);
    return watch->wd;
}

/* ---- as a file ---- */

static int wait_event(struct file *file, struct inotify *n)
{
    if (!TAILQ_EMPTY(&n->events))
        return 0;
    if (file->flags & O_NONBLOCK)
        return -EAGAIN;
    return WAIT_UNTIL(&n->waitq, POLLIN, WAIT_FOREVER, !TAILQ_EMPTY(&n->events));
}

static int64_t give(struct event *event, struct uio *to)
{
    static const char zeros[2 * sizeof(struct head)];
    size_t rest = event->head.length - event->length;

    if (uio_to(to, &event->head, sizeof(event->head)) != (int64_t)sizeof(event->head))
        return -EFAULT;
    if (event->length && uio_to(to, event->name, event->length) != (int64_t)event->length)
        return -EFAULT;
    if (rest && uio_to(to, zeros, rest) != (int64_t)rest)
        return -EFAULT;
    return (int64_t)(sizeof(event->head) + event->head.length);
}

static int64_t inotify_read(struct file *file, struct uio *to, int64_t *position)
{
    struct inotify *n = file->data;
    struct event *event;
    int64_t done = 0, r = wait_event(file, n);

    (void)position;
    if (r < 0)
        return r;
    while ((event = TAILQ_FIRST(&n->events))) {
        if (to->left < sizeof(event->head) + event->head.length)
            return done ? done : -EINVAL;
        r = give(event, to);
        if (r < 0)
            return done ? done : r;
        done += r;
        drop(n, event);
    }
    return done;
}

static uint32_t inotify_poll(struct file *file, struct waiter *waiter)
{
    struct inotify *n = file->data;

    if (waiter)
        waiter_add(waiter, &n->waitq, waiter->events);
    return TAILQ_EMPTY(&n->events) ? 0 : READY_IN;
}

static int64_t inotify_ioctl(struct file *file, uint32_t request, uint64_t argument)
{
    struct inotify *n = file->data;

    return request == FIONREAD ? put_int(argument, (int)n->bytes) : -ENOTTY;
}

static void inotify_release(struct file *file)
{
    struct inotify *n = file->data;

    while (!TAILQ_EMPTY(&n->watches))
        watch_remove(TAILQ_FIRST(&n->watches));
    while (!TAILQ_EMPTY(&n->events))
        drop(n, TAILQ_FIRST(&n->events));
    ipc()->inotify_instances--;
    arena_free(n);
    anon_file_gone();
}

/* ---- calls ---- */

static int64_t create(uint32_t flags)
{
    struct inotify *n;
    struct file *file;

    if (flags & ~(uint32_t)(IN_CLOEXEC | IN_NONBLOCK))
        return -EINVAL;
    if (ipc()->inotify_instances >= INOTIFY_INSTANCES_MAX)
        return -EMFILE;
    n = arena_alloc(ARENA_INOTIFY, sizeof(*n));
    if (!n)
        return -ENOMEM;
    file = anon_file(FILE_INOTIFY, O_RDONLY | (flags & O_NONBLOCK), 0600);
    if (!file) {
        arena_free(n);
        return -ENFILE;
    }
    TAILQ_INIT(&n->watches);
    TAILQ_INIT(&n->events);
    waitq_init(&n->waitq);
    file->data = n;
    ipc()->inotify_instances++;
    return install(file, flags & O_CLOEXEC);
}

SYSCALL(inotify_init)
{
    (void)a;
    return create(0);
}

SYSCALL(inotify_init1)
{
    return create((uint32_t)a[0]);
}

static struct file *inotify_file(uint64_t fd, int *ret_error)
{
    struct file *file = fd_get_io((int)fd);

    *ret_error = -EBADF;
    if (file && file->kind != FILE_INOTIFY) {
        *ret_error = -EINVAL;
        file_put(file);
        file = NULL;
    }
    return file;
}

static int watch_path(struct inotify *n, uint64_t name, uint32_t mask)
{
    unsigned flags =
        (mask & IN_DONT_FOLLOW ? 0 : LOOKUP_FOLLOW) | (mask & IN_ONLYDIR ? LOOKUP_DIRECTORY : 0);
    struct inode *inode;
    struct path path;
    int r = path_lookup_guest(AT_FDCWD, name, flags, &path);

    if (r < 0)
        return r;
    inode = path.dentry->inode;
    r = inode ? inode_permission(inode, 4) : -ENOENT;
    if (r == 0)
        r = watch_set(n, inode, mask);
    path_put(&path);
    return r;
}

SYSCALL(inotify_add_watch)
{
    struct file *file;
    uint32_t mask = (uint32_t)a[2];
    int r;

    if (!(mask & VALID))
        return -EINVAL;
    file = inotify_file(a[0], &r);
    if (!file)
        return r;
    if ((mask & IN_MASK_ADD) && (mask & IN_MASK_CREATE))
        r = -EINVAL;
    else
        r = watch_path(file->data, a[1], mask);
    file_put(file);
    return r;
}

SYSCALL(inotify_rm_watch)
{
    struct inotify *n;
    struct watch *watch;
    int r;
    struct file *file = inotify_file(a[0], &r);

    if (!file)
        return r;
    n = file->data;
    TAILQ_FOREACH(watch, &n->watches, link)
    if (watch->wd == (int)a[1])
        break;
    if (watch)
        watch_over(watch);
    file_put(file);
    return watch ? 0 : -EINVAL;
}

const struct file_ops inotify_ops = {
    .read = inotify_read,
    .poll = inotify_poll,
    .ioctl = inotify_ioctl,
    .release = inotify_release,
};
