/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * poll - poll, ppoll, select, pselect6.
 * Both are one wait for a list of entries; select makes its list from three bitmaps.
 * Invariants: an entry with a file holds a reference to it, and its waiter is removed before that is given up. Of the guest's
 * struct pollfd only revents is written. A list lives outside the arena: nobody in here is at a serialisation point.
 * Threads: the kernel lock.
 */
#include <stdlib.h>
#include <string.h>

#include "state.h"

#define ALWAYS (POLLERR | POLLHUP)
#define FEW 16u /* entries on the stack */
#define SELECT_MAX (1u << 20)
#define LISTS_MAX (32ul << 20) /* bytes */

struct entry {
    struct waiter waiter;
    struct file *file; /* reference; NULL: none */
    int fd;
    uint32_t events, ready; /* what ends the wait; what is there of it */
};

uint64_t deadline_in_ms(int64_t ms)
{
    return ms < 0 ? WAIT_FOREVER : clock_monotonic() + (uint64_t)ms * 1000000;
}

int deadline_in(const struct timespec *left, uint64_t *ret_deadline)
{
    uint64_t now = clock_monotonic();

    if (left->tv_sec < 0 || left->tv_nsec < 0 || left->tv_nsec > 999999999)
        return -EINVAL;
    if (left->tv_sec > (1l << 33)) /* centuries */
        *ret_deadline = WAIT_FOREVER;
    else
        *ret_deadline = now + (uint64_t)left->tv_sec * 1000000000 + (uint64_t)left->tv_nsec;
    return 0;
}

void mask_call_done(int64_t result)
{
    if (result == -ERESTARTNOHAND || result == -EINTR || !current->restore_blocked)
        return;
    current->restore_blocked = false;
    current->blocked = current->saved_blocked;
    current->signal_work = true;
}

/* ---- memory: the host's, which no limit of the guest's counts, for as long as somebody waits ---- */

static size_t listed; /* bytes */

static void *list_new(size_t bytes)
{
    void *list = bytes <= LISTS_MAX - listed ? calloc(1, bytes) : NULL;

    if (list)
        listed += bytes;
    return list;
}

static void list_free(void *list, size_t bytes)
{
    if (list)
        listed -= bytes;
    free(list);
}

/* ---- the wait ---- */

static uint32_t look_at(struct entry *entry, bool add)
{
    if (entry->fd < 0)
        return 0;
    if (!entry->file)
        return POLLNVAL;
    if (add) {
        entry->waiter.kind = WAITER_TASK;
        entry->waiter.events = entry->events;
    }
    return file_poll(entry->file, add ? &entry->waiter : NULL) & entry->events;
}

/* How many are ready; the first time each is told to wake us, until one is ready. */
static int look(struct entry *entries, unsigned n, bool add)
{
    unsigned i;
    int ready = 0;

    for (i = 0; i < n; i++) {
        entries[i].ready = look_at(&entries[i], add && !ready);
        ready += entries[i].ready != 0;
    }
    return ready;
}

static void entries_begin(struct entry *entries, unsigned n)
{
    unsigned i;

    for (i = 0; i < n; i++)
        entries[i].file = entries[i].fd < 0 ? NULL : fd_get_io(entries[i].fd);
}

static void entries_end(struct entry *entries, unsigned n)
{
    unsigned i;

    for (i = 0; i < n; i++) {
        waiter_remove(&entries[i].waiter);
        if (entries[i].file)
            file_put(entries[i].file);
    }
}

/* Entries with .fd and .events set: how many have .ready; 0 at the deadline; -ERESTARTNOHAND. deadline 0: no wait. */
static int wait_for(struct entry *entries, unsigned n, uint64_t deadline)
{
    int r = deadline ? 0 : -ETIMEDOUT, ready;
    bool add = deadline != 0;

    entries_begin(entries, n);
    for (;;) {
        ready = look(entries, n, add);
        if (ready)
            break;
        if (r == -ETIMEDOUT && signal_pending(current))
            r = -ERESTARTSYS;
        if (r < 0)
            break;
        r = task_sleep(deadline);
        add = false;
    }
    entries_end(entries, n);
    if (ready)
        return ready;
    return r == -ERESTARTSYS ? -ERESTARTNOHAND : 0;
}

/* ---- poll ---- */

static int64_t poll_entries(struct entry *entries, uint64_t guest, unsigned n, uint64_t deadline)
{
    struct pollfd fds[FEW];
    unsigned i, part;
    short shown;
    int64_t r;

    for (i = 0; i < n; i += FEW) {
        part = n - i < FEW ? n - i : FEW;
        r = copy_in(current->mm, fds, guest + i * sizeof(*fds), part * sizeof(*fds));
        if (r < 0)
            return r;
        while (part-- > 0) {
            entries[i + part].fd = fds[part].fd;
            entries[i + part].events = (uint16_t)fds[part].events | ALWAYS;
        }
    }
    r = wait_for(entries, n, deadline);
    for (i = 0; i < n; i++) {
        shown = (short)entries[i].ready;
        if (copy_out(current->mm, guest + i * sizeof(*fds) + offsetof(struct pollfd, revents),
                     &shown, sizeof(shown)) < 0)
            return -EFAULT;
    }
    return r;
}

static int64_t poll_for(uint64_t guest, uint64_t count, uint64_t deadline)
{
    struct entry few[FEW] = {0}, *entries = few;
    unsigned n = (unsigned)count;
    int64_t r;

    if (n > current->process->limits[RLIMIT_NOFILE].rlim_cur)
        return -EINVAL;
    if (n > FEW)
        entries = list_new(n * sizeof(*entries));
    if (!entries)
        return -ENOMEM;
    r = poll_entries(entries, guest, n, deadline);
    if (entries != few)
        list_free(entries, n * sizeof(*entries));
    return r;
}

static int64_t poll_until(uint64_t guest, uint64_t n, uint64_t deadline)
{
    int64_t r = poll_for(guest, n, deadline);

    if (r != -ERESTARTNOHAND)
        return r;
    current->restart_kind = RESTART_POLL;
    current->restart[0] = guest;
    current->restart[1] = n;
    current->restart[2] = deadline;
    return -ERESTART_RESTARTBLOCK;
}

int64_t poll_restart(const uint64_t restart[6])
{
    return poll_until(restart[0], restart[1], restart[2]);
}

SYSCALL(poll)
{
    int timeout = (int)a[2];

    return poll_until(a[0], a[1], timeout ? deadline_in_ms(timeout) : 0);
}

/* ---- what is left of a time that the guest gave is written back ---- */

enum left_kind { LEFT_TIMESPEC, LEFT_TIMEVAL };

static int64_t give_left(int64_t result, uint64_t guest, uint64_t deadline, enum left_kind kind)
{
    uint64_t now = clock_monotonic(), left = deadline > now ? deadline - now : 0;
    struct timespec t = {.tv_sec = (time_t)(left / 1000000000),
                         .tv_nsec = (long)(left % 1000000000)};

    if (!guest || !deadline || deadline == WAIT_FOREVER)
        return result;
    if (kind == LEFT_TIMEVAL)
        t.tv_nsec /= 1000;
    if (copy_out(current->mm, guest, &t, sizeof(t)) < 0 && result == -ERESTARTNOHAND)
        return -EINTR; /* the time that is left is lost: it cannot be begun again */
    return result;
}

static int guest_deadline(uint64_t guest, enum left_kind kind, uint64_t *ret_deadline)
{
    struct timespec t;
    int r;

    *ret_deadline = WAIT_FOREVER;
    if (!guest)
        return 0;
    r = copy_in(current->mm, &t, guest, sizeof(t));
    if (r < 0)
        return r;
    if (kind == LEFT_TIMEVAL) {
        t.tv_sec += t.tv_nsec / 1000000;
        t.tv_nsec = t.tv_nsec % 1000000 * 1000;
    }
    if (!t.tv_sec && !t.tv_nsec) {
        *ret_deadline = 0;
        return 0;
    }
    return deadline_in(&t, ret_deadline);
}

SYSCALL(ppoll)
{
    uint64_t deadline;
    int64_t r = guest_deadline(a[2], LEFT_TIMESPEC, &deadline);

    if (r == 0)
        r = signal_mask_for_call(a[3], a[4]);
    if (r < 0)
        return r;
    r = poll_for(a[0], a[1], deadline);
    mask_call_done(r);
    return give_left(r, a[2], deadline, LEFT_TIMESPEC);
}

/* ---- select ---- */

static const uint32_t sets[3] = {
    POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR,
    POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR,
    POLLPRI,
};

struct selection {
    unsigned n, words, n_entries, room;
    uint64_t *bits[3]; /* asked, then shown; NULL: that set is not given */
    struct entry *entries;
};

static void selection_free(struct selection *s)
{
    unsigned i;

    for (i = 0; i < 3; i++)
        list_free(s->bits[i], s->words * sizeof(uint64_t));
    list_free(s->entries, s->room * sizeof(*s->entries));
}

static bool bit(const uint64_t *bits, unsigned i)
{
    return bits && (bits[i / 64] >> (i % 64) & 1);
}

static int selection_read(struct selection *s, const uint64_t guest[3])
{
    unsigned i;
    int r = 0;

    for (i = 0; i < 3 && r == 0; i++) {
        if (!guest[i] || !s->words)
            continue;
        s->bits[i] = list_new(s->words * sizeof(uint64_t));
        r = s->bits[i] ? copy_in(current->mm, s->bits[i], guest[i], s->words * 8ul) : -ENOMEM;
    }
    return r;
}

static int selection_entries(struct selection *s)
{
    unsigned fd, i, count = 0;
    uint32_t events;

    for (fd = 0; fd < s->n; fd++)
        count += bit(s->bits[0], fd) || bit(s->bits[1], fd) || bit(s->bits[2], fd);
    s->room = count ? count : 1;
    s->entries = list_new(s->room * sizeof(*s->entries));
    if (!s->entries)
        return -ENOMEM;
    for (fd = 0; fd < s->n; fd++) {
        events = 0;
        for (i = 0; i < 3; i++)
            if (bit(s->bits[i], fd))
                events |= sets[i];
        if (events)
            s->entries[s->n_entries++] = (struct entry){.fd = (int)fd, .events = events};
    }
    return 0;
}

/* The sets that the guest gets: how many bits, -EBADF. */
static int64_t selection_result(struct selection *s)
{
    const struct entry *e;
    int64_t count = 0;
    unsigned i, j;
    bool shown;

    for (j = 0; j < s->n_entries; j++) {
        e = &s->entries[j];
        if (e->ready & POLLNVAL)
            return -EBADF;
        for (i = 0; i < 3; i++) {
            if (!bit(s->bits[i], (unsigned)e->fd))
                continue;
            shown = e->ready & sets[i];
            count += shown;
            if (!shown)
                s->bits[i][e->fd / 64] &= ~(1ull << (e->fd % 64));
        }
    }
    return count;
}

static int64_t selection_write(const struct selection *s, const uint64_t guest[3])
{
    unsigned i;

    for (i = 0; i < 3; i++)
        if (s->bits[i] && copy_out(current->mm, guest[i], s->bits[i], s->words * 8ul) < 0)
            return -EFAULT;
    return 0;
}

static int64_t select_wait(struct selection *s, uint64_t deadline)
{
    int64_t r = wait_for(s->entries, s->n_entries, deadline);

    return r < 0 ? r : selection_result(s);
}

static int64_t select_for(uint64_t count, const uint64_t guest[3], uint64_t deadline)
{
    struct selection s = {0};
    int n = (int)count;
    int64_t r;

    if (n < 0)
        return -EINVAL;
    s.n = (unsigned)n < SELECT_MAX ? (unsigned)n : SELECT_MAX;
    if (s.n > current->process->limits[RLIMIT_NOFILE].rlim_max)
        s.n = (unsigned)current->process->limits[RLIMIT_NOFILE].rlim_max;
    s.words = (s.n + 63) / 64;
    r = selection_read(&s, guest);
    if (r == 0)
        r = selection_entries(&s);
    if (r == 0)
        r = select_wait(&s, deadline);
    if (r >= 0 && selection_write(&s, guest) < 0)
        r = -EFAULT;
    selection_free(&s);
    return r;
}

SYSCALL(select)
{
    const uint64_t guest[3] = {a[1], a[2], a[3]};
    uint64_t deadline;
    int64_t r = guest_deadline(a[4], LEFT_TIMEVAL, &deadline);

    if (r < 0)
        return r;
    return give_left(select_for(a[0], guest, deadline), a[4], deadline, LEFT_TIMEVAL);
}

SYSCALL(pselect6)
{
    const uint64_t guest[3] = {a[1], a[2], a[3]};
    uint64_t mask[2] = {0}, deadline;
    int64_t r = 0;

    if (a[5])
        r = copy_in(current->mm, mask, a[5], sizeof(mask));
    if (r == 0)
        r = guest_deadline(a[4], LEFT_TIMESPEC, &deadline);
    if (r == 0)
        r = signal_mask_for_call(mask[0], mask[1]);
    if (r < 0)
        return r;
    r = select_for(a[0], guest, deadline);
    mask_call_done(r);
    return give_left(r, a[4], deadline, LEFT_TIMESPEC);
}
