/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * lock - advisory locks: of a process (fcntl), of an open file (OFD), and flock.
 *
 * The locks of an inode are one list of ranges, sorted by owner and start; a new range of an owner replaces what of
 * its own it covers. An owner is a table of descriptors (fcntl) or an open file (OFD and flock, which do not see each
 * other's: flock's are another type). Who waits is in a list, so that a circle of waiting processes is found: EDEADLK.
 * Threads: the kernel lock; a waiting task lets it go, and looks at everything again.
 */
#include "vfs.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#define TO_END INT64_MAX
#define LOCKS_MAX 131072u /* in all */

struct lock {
    TAILQ_ENTRY(lock) link;
    const void *owner;
    int64_t start, end; /* inclusive */
    int16_t type;       /* F_RDLCK, F_WRLCK */
    bool flock;
    int32_t pid; /* of a process's; OFD: -1 */
};
TAILQ_HEAD(lock_list, lock);

struct inode_locks {
    struct lock_list list;
    struct waitq waitq;
    uint32_t n, n_waiting;
};

/* Who waits for whom. On the stack of its task; at a serialisation point there are none. */
struct waiting {
    TAILQ_ENTRY(waiting) link;
    const struct lock *wanted;
    struct inode *inode;
};
static TAILQ_HEAD(, waiting) all_waiting = TAILQ_HEAD_INITIALIZER(all_waiting);

static struct inode_locks *locks_of(struct inode *inode)
{
    struct inode_locks *locks = inode->locks;

    if (locks)
        return locks;
    locks = arena_alloc(ARENA_LOCKF, sizeof(*locks));
    if (!locks)
        return NULL;
    TAILQ_INIT(&locks->list);
    waitq_init(&locks->waitq);
    inode->locks = locks;
    return locks;
}

void locks_free(struct inode *inode)
{
    struct inode_locks *locks = inode->locks;
    struct lock *lock;

    if (!locks)
        return;
    while ((lock = TAILQ_FIRST(&locks->list))) {
        TAILQ_REMOVE(&locks->list, lock, link);
        arena_free(lock);
    }
    arena_free(locks);
    inode->locks = NULL;
}

static bool meets(const struct lock *a, const struct lock *b)
{
    return a->start <= b->end && b->start <= a->end;
}

/* The first lock of another that stands in the way. */
static struct lock *conflict(const struct inode_locks *locks, const struct lock *wanted)
{
    struct lock *lock;

    TAILQ_FOREACH(lock, &locks->list, link)
    if (lock->owner != wanted->owner && lock->flock == wanted->flock && meets(lock, wanted) &&
        (lock->type == F_WRLCK || wanted->type == F_WRLCK))
        return lock;
    return NULL;
}

/* Would waiting for `blocker` close a circle? Only processes' locks are judged, as in Linux. */
static bool deadlocks(const struct lock *wanted, const struct lock *blocker)
{
    const void *owner = blocker->owner;
    const struct waiting *waiting;
    struct lock *next;
    unsigned turns = 0;

    while (turns++ < 64) {
        next = NULL;
        TAILQ_FOREACH(waiting, &all_waiting, link)
        if (waiting->wanted->owner == owner && waiting->wanted->pid > 0) {
            next = conflict(waiting->inode->locks, waiting->wanted);
            break;
        }
        if (!next)
            return false;
        if (next->owner == wanted->owner)
            return true;
        owner = next->owner;
    }
    return false;
}

/* ---- setting ---- */

static struct lock *copy_of(const struct lock *lock, int64_t start, int64_t end)
{
    struct lock *copy = arena_alloc(ARENA_LOCKF, sizeof(*copy));

    if (!copy)
        return NULL;
    *copy = *lock;
    copy->start = start;
    copy->end = end;
    return copy;
}

/* Takes [start, end] out of the owner's locks. `spare` is for the one that may be cut in two. */
static void carve(struct inode_locks *locks, const struct lock *range, struct lock **spare)
{
    struct lock *lock, *next;

    for (lock = TAILQ_FIRST(&locks->list); lock; lock = next) {
        next = TAILQ_NEXT(lock, link);
        if (lock->owner != range->owner || lock->flock != range->flock || !meets(lock, range))
            continue;
        if (lock->start < range->start && lock->end > range->end && *spare) {
            **spare = *lock;
            (*spare)->start = range->end + 1;
            TAILQ_INSERT_AFTER(&locks->list, lock, *spare, link);
            locks->n++;
            *spare = NULL;
            lock->end = range->start - 1;
        } else if (lock->start < range->start) {
            lock->end = range->start - 1;
        } else if (lock->end > range->end) {
            lock->start = range->end + 1;
        } else {
            TAILQ_REMOVE(&locks->list, lock, link);
            locks->n--;
            arena_free(lock);
        }
    }
}

/* Joins it with what the owner has beside it. */
static void merge(struct inode_locks *locks, struct lock *lock)
{
    struct lock *other, *next;

    for (other = TAILQ_FIRST(&locks->list); other; other = next) {
        next = TAILQ_NEXT(other, link);
        if (other == lock || other->owner != lock->owner || other->flock != lock->flock ||
            other->type != lock->type)
            continue;
        if (other->end != TO_END && other->end + 1 == lock->start)
            lock->start = other->start;
        else if (lock->end != TO_END && lock->end + 1 == other->start)
            lock->end = other->end;
        else
            continue;
        TAILQ_REMOVE(&locks->list, other, link);
        locks->n--;
        arena_free(other);
    }
}

/* Nothing stands in the way any more: F_UNLCK takes away, the others set. */
static int set_lock(struct inode_locks *locks, const struct lock *wanted)
{
    struct lock *spare = copy_of(wanted, 0, 0), *new = NULL;

    if (spare && wanted->type != F_UNLCK)
        new = copy_of(wanted, wanted->start, wanted->end);
    if (!spare || (wanted->type != F_UNLCK && (!new || arena_count(ARENA_LOCKF) > LOCKS_MAX))) {
        arena_free(spare);
        arena_free(new);
        return -ENOLCK;
    }
    carve(locks, wanted, &spare);
    arena_free(spare);
    if (new) {
        TAILQ_INSERT_TAIL(&locks->list, new, link);
        locks->n++;
        merge(locks, new);
    }
    waitq_wake(&locks->waitq, 0);
    return 0;
}

static int apply(struct file *file, const struct lock *wanted, bool wait)
{
    struct inode_locks *locks = locks_of(file->inode);
    struct waiting waiting = {.wanted = wanted, .inode = file->inode};
    struct lock *blocker;
    int error = 0;

    if (!locks)
        return -ENOLCK;
    while (wanted->type != F_UNLCK && (blocker = conflict(locks, wanted))) {
        if (!wait)
            return -EAGAIN;
        if (wanted->pid > 0 && deadlocks(wanted, blocker))
            return -EDEADLK;
        TAILQ_INSERT_TAIL(&all_waiting, &waiting, link);
        error = WAIT_UNTIL(&locks->waitq, 0, WAIT_FOREVER, !conflict(locks, wanted));
        TAILQ_REMOVE(&all_waiting, &waiting, link);
        if (error)
            return error;
    }
    return set_lock(locks, wanted);
}

static void remove_all(struct inode *inode, const void *owner, bool flock)
{
    struct inode_locks *locks = inode->locks;
    struct lock range = {.owner = owner, .end = TO_END, .flock = flock};
    struct lock *none = NULL;

    if (!locks || !locks->n)
        return;
    carve(locks, &range, &none);
    waitq_wake(&locks->waitq, 0);
}

void locks_remove_posix(struct inode *inode, const struct fdtable *table)
{
    remove_all(inode, table, false);
}

void locks_remove_file(struct file *file)
{
    if (!file->inode)
        return;
    remove_all(file->inode, file, false);
    remove_all(file->inode, file, true);
}

/* ---- fcntl ---- */

static int range_of(const struct file *file, const struct flock *flock, struct lock *ret)
{
    int64_t start = flock->l_start, end;

    if (flock->l_whence == SEEK_CUR)
        start += file->position;
    else if (flock->l_whence == SEEK_END) {
        if (__builtin_add_overflow(
                start,
                (int64_t)(file->inode->object ? file->inode->object->size : file->inode->size),
                &start))
            return -EOVERFLOW;
    } else if (flock->l_whence != SEEK_SET)
        return -EINVAL;
    if (start < 0)
        return -EINVAL;
    if (flock->l_len > 0) {
        if (__builtin_add_overflow(start, flock->l_len - 1, &end))
            return -EOVERFLOW;
    } else if (flock->l_len < 0) {
        end = start - 1;
        start += flock->l_len;
        if (start < 0)
            return -EINVAL;
    } else {
        end = TO_END;
    }
    ret->start = start;
    ret->end = end;
    return 0;
}

/* F_OFD_GETLK with F_UNLCK asks for its own. */
static const struct lock *own_lock(const struct inode_locks *locks, const struct lock *wanted)
{
    const struct lock *lock;

    TAILQ_FOREACH(lock, &locks->list, link)
    if (lock->owner == wanted->owner && !lock->flock && meets(lock, wanted))
        return lock;
    return NULL;
}

static int64_t get_lock(struct file *file, const struct lock *wanted, struct flock *flock,
                        uint64_t argument)
{
    const struct inode_locks *locks = file->inode->locks;
    const struct lock *lock = NULL;

    if (wanted->type == F_UNLCK && wanted->pid > 0)
        return -EINVAL;
    if (locks)
        lock = wanted->type == F_UNLCK ? own_lock(locks, wanted) : conflict(locks, wanted);
    flock->l_type = F_UNLCK;
    if (lock) {
        flock->l_type = lock->type;
        flock->l_whence = SEEK_SET;
        flock->l_start = lock->start;
        flock->l_len = lock->end == TO_END ? 0 : lock->end - lock->start + 1;
        flock->l_pid = lock->pid;
    }
    return copy_out(current->mm, argument, flock, sizeof(*flock));
}

/* Another thread may have closed the descriptor while this one waited: then no close would ever take the lock away. */
static int keep_of_open(struct file *file, int fd, struct lock *taken)
{
    struct file *now = fd_get(fd);
    bool open = now == file;

    file_put(now);
    if (open)
        return 0;
    taken->type = F_UNLCK;
    set_lock(file->inode->locks, taken);
    return -EBADF;
}

int64_t lock_fcntl(struct file *file, int fd, int command, uint64_t argument)
{
    bool ofd = command >= F_OFD_GETLK && command <= F_OFD_SETLKW;
    struct lock wanted = {.owner = ofd ? (void *)file : (void *)current->files,
                          .pid = ofd ? -1 : current->process->pid};
    struct flock flock;
    int error;

    if (copy_in(current->mm, &flock, argument, sizeof(flock)))
        return -EFAULT;
    if (ofd && flock.l_pid)
        return -EINVAL;
    if (!file->inode)
        return -EBADF;
    if (flock.l_type != F_RDLCK && flock.l_type != F_WRLCK && flock.l_type != F_UNLCK)
        return -EINVAL;
    error = range_of(file, &flock, &wanted);
    if (error)
        return error;
    wanted.type = flock.l_type;
    if (command == F_GETLK || command == F_OFD_GETLK)
        return get_lock(file, &wanted, &flock, argument);
    if ((wanted.type == F_RDLCK && !(file->mode & FMODE_READ)) ||
        (wanted.type == F_WRLCK && !(file->mode & FMODE_WRITE)))
        return -EBADF;
    error = apply(file, &wanted, command == F_SETLKW || command == F_OFD_SETLKW);
    return error || ofd || wanted.type == F_UNLCK ? error : keep_of_open(file, fd, &wanted);
}

/* ---- flock ---- */

SYSCALL(flock)
{
    struct lock wanted = {.end = TO_END, .flock = true, .pid = -1};
    int operation = (int)a[1] & ~LOCK_NB;
    struct file *file;
    int error;

    switch (operation) {
    case LOCK_SH:
        wanted.type = F_RDLCK;
        break;
    case LOCK_EX:
        wanted.type = F_WRLCK;
        break;
    case LOCK_UN:
        wanted.type = F_UNLCK;
        break;
    default:
        return -EINVAL;
    }
    file = fd_get_io((int)a[0]);
    if (!file)
        return -EBADF;
    wanted.owner = file;
    error = file->inode && (wanted.type == F_UNLCK || file->mode & (FMODE_READ | FMODE_WRITE))
                ? 0
                : -EBADF;
    if (!error && wanted.type != F_UNLCK && file->inode->locks) {
        /* A change of kind lets the old one go first: others may come between, as in Linux. */
        struct lock range = wanted, *none = NULL;

        carve(file->inode->locks, &range, &none);
        waitq_wake(&((struct inode_locks *)file->inode->locks)->waitq, 0);
    }
    if (!error)
        error = apply(file, &wanted, !(a[1] & LOCK_NB));
    file_put(file);
    return error;
}
