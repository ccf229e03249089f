/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * timerfd - a timer that can be waited for.
 * As in Linux, an interval is not set again when it is over but when somebody reads or sets: one that nobody reads costs nothing.
 * Invariants: `next` is when it is over next, CLOCK_MONOTONIC ns, 0: disarmed; `over` says that the timer fired since the last
 * read and `next` was that time.
 * Threads: the kernel lock.
 */
#include <linux/capability.h>
#include <sys/timerfd.h>

#include "base/base.h"
#include "state.h"

#define SECOND 1000000000ull

struct timerfd {
    struct timer timer;
    int clock;
    bool over;
    uint64_t next, interval;
    struct waitq waitq;
};

void timerfd_fire(void *owner)
{
    struct timerfd *t = owner;

    t->over = true;
    waitq_wake(&t->waitq, READY_IN);
}

static uint64_t clock_now(int clock)
{
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_ALARM)
        return clock_realtime();
    return clock == CLOCK_MONOTONIC ? clock_monotonic() : clock_boottime();
}

/* How often it was over; sets an interval anew. */
static uint64_t expirations(struct timerfd *t)
{
    uint64_t now = clock_monotonic(), n = 1;

    if (!t->over)
        return 0;
    t->over = false;
    if (!t->interval) {
        t->next = 0;
        return 1;
    }
    if (now > t->next)
        n += (now - t->next) / t->interval;
    t->next += n * t->interval;
    if (timer_set(&t->timer, t->next) < 0)
        t->next = 0;
    return n;
}

static int64_t timerfd_read(struct file *file, struct uio *to, int64_t *position)
{
    struct timerfd *t = file->data;
    uint64_t value;
    int r = 0;

    (void)position;
    if (to->left < sizeof(value))
        return -EINVAL;
    if (!t->over && (file->flags & O_NONBLOCK))
        return -EAGAIN;
    if (!t->over)
        r = WAIT_UNTIL(&t->waitq, POLLIN, WAIT_FOREVER, t->over);
    if (r < 0)
        return r;
    value = expirations(t);
    return uio_to(to, &value, sizeof(value)) == (int64_t)sizeof(value) ? (int64_t)sizeof(value)
                                                                       : -EFAULT;
}

static uint32_t timerfd_poll(struct file *file, struct waiter *waiter)
{
    struct timerfd *t = file->data;

    if (waiter)
        waiter_add(waiter, &t->waitq, waiter->events);
    return t->over ? POLLIN : 0;
}

static void timerfd_release(struct file *file)
{
    struct timerfd *t = file->data;

    timer_cancel(&t->timer);
    arena_free(t);
    anon_file_gone();
}

SYSCALL(timerfd_create)
{
    struct timerfd *t;
    struct file *file;
    int clock = (int)a[0];
    uint32_t flags = (uint32_t)a[1];

    if ((flags & ~(uint32_t)(TFD_CLOEXEC | TFD_NONBLOCK)) ||
        (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME && clock != CLOCK_BOOTTIME &&
         clock != CLOCK_REALTIME_ALARM && clock != CLOCK_BOOTTIME_ALARM))
        return -EINVAL;
    if ((clock == CLOCK_REALTIME_ALARM || clock == CLOCK_BOOTTIME_ALARM) &&
        !capable(CAP_WAKE_ALARM))
        return -EPERM;
    t = arena_alloc(ARENA_TIMER, sizeof(*t));
    if (!t)
        return -ENOMEM;
    file = anon_file(FILE_TIMERFD, O_RDWR | (flags & O_NONBLOCK), 0600);
    if (!file) {
        arena_free(t);
        return -ENFILE;
    }
    t->clock = clock;
    t->timer.kind = TIMER_TIMERFD;
    t->timer.owner = t;
    waitq_init(&t->waitq);
    file->data = t;
    return install(file, flags & O_CLOEXEC);
}

static struct timespec spec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
}

static uint64_t nanoseconds(const struct timespec *t)
{
    return (uint64_t)t->tv_sec > UINT64_MAX / SECOND / 4
               ? UINT64_MAX / 4
               : (uint64_t)t->tv_sec * SECOND + (uint64_t)t->tv_nsec;
}

/* What is left, as the guest sees it. */
static struct itimerspec remaining(struct timerfd *t)
{
    uint64_t now = clock_monotonic(), next = t->next;

    if (t->over && t->interval && now > next)
        next += (1 + (now - next) / t->interval) * t->interval;
    else if (t->over && !t->interval)
        next = 0;
    return (struct itimerspec){
        .it_interval = spec(t->interval),
        .it_value = spec(!next        ? 0
                         : next > now ? next - now
                                      : 1),
    };
}

static bool valid(const struct timespec *t)
{
    return t->tv_sec >= 0 && t->tv_nsec >= 0 && (uint64_t)t->tv_nsec < SECOND;
}

static int arm(struct timerfd *t, uint32_t flags, const struct itimerspec *new)
{
    uint64_t now = clock_monotonic(), value = nanoseconds(&new->it_value),
             clock = clock_now(t->clock);

    timer_cancel(&t->timer);
    t->over = false;
    t->next = 0;
    t->interval = nanoseconds(&new->it_interval);
    if (!value)
        return 0;
    if (!(flags & TFD_TIMER_ABSTIME))
        t->next = now + value;
    else if (value > clock)
        t->next = now + (value - clock);
    else /* over already; intervals count from then on */
        t->next = now > clock - value ? now - (clock - value) : 1;
    return timer_set(&t->timer, t->next);
}

static struct file *timerfd_get(uint64_t fd, int *ret_error)
{
    struct file *file = fd_get_io((int)fd);

    *ret_error = -EBADF;
    if (file && file->kind != FILE_TIMERFD) {
        *ret_error = -EINVAL;
        file_put(file);
        file = NULL;
    }
    return file;
}

SYSCALL(timerfd_settime)
{
    struct itimerspec new, old;
    struct file *file;
    uint32_t flags = (uint32_t)a[1];
    int r = copy_in(current->mm, &new, a[2], sizeof(new));

    if (r < 0)
        return r;
    if ((flags & ~(uint32_t)(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET)) ||
        !valid(&new.it_value) || !valid(&new.it_interval))
        return -EINVAL;
    file = timerfd_get(a[0], &r);
    if (!file)
        return r;
    old = remaining(file->data);
    r = arm(file->data, flags, &new);
    file_put(file);
    if (r == 0 && a[3])
        r = copy_out(current->mm, a[3], &old, sizeof(old));
    return r;
}

SYSCALL(timerfd_gettime)
{
    struct itimerspec now;
    int r;
    struct file *file = timerfd_get(a[0], &r);

    if (!file)
        return r;
    now = remaining(file->data);
    file_put(file);
    return copy_out(current->mm, a[1], &now, sizeof(now));
}

const struct file_ops timerfd_ops = {
    .read = timerfd_read,
    .poll = timerfd_poll,
    .release = timerfd_release,
};
