/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Pipes, poll, select, on the host's kernel and on ours. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "fakes.h"
#include "fs.h"
#include "world.h"

static int fds[2];
static char bytes[1 << 20];

static void open_pipe(int flags)
{
    note("pipe2 %ld", (long)call(SYS_pipe2, fds, flags));
}

static void say_poll(int fd, int events)
{
    struct pollfd p = {.fd = fd, .events = (short)events, .revents = 0x7777};
    int64_t r = call(SYS_poll, &p, 1, 0);

    note("poll %ld %x events %x", (long)r, (unsigned)p.revents, (unsigned)p.events);
}

static void say_all(void)
{
    int n = -1;
    int64_t r = call(SYS_ioctl, fds[0], FIONREAD, &n);

    note("FIONREAD %ld %d", (long)r, n);
    say_poll(fds[0], POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM | POLLPRI);
    say_poll(fds[1], POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM | POLLPRI);
}

static void write_(size_t n)
{
    note("write %zu %ld", n, (long)call(SYS_write, fds[1], bytes, n));
}

static void read_(size_t n)
{
    memset(bytes, 0, 16);
    note("read %zu %ld", n, (long)call(SYS_read, fds[0], bytes, n));
}

static void flags_and_ends(void)
{
    open_pipe(O_NONBLOCK | O_CLOEXEC);
    note("fl %lx %lx fd %ld %ld", (long)call(SYS_fcntl, fds[0], F_GETFL),
         (long)call(SYS_fcntl, fds[1], F_GETFL), (long)call(SYS_fcntl, fds[0], F_GETFD),
         (long)call(SYS_fcntl, fds[1], F_GETFD));
    note("bad %ld %ld", (long)call(SYS_pipe2, fds, 1), (long)call(SYS_pipe2, 8, 0));
    note("wrong end %ld %ld", (long)call(SYS_write, fds[0], bytes, 1),
         (long)call(SYS_read, fds[1], bytes, 1));
    say_all();
    read_(1);
    read_(0);
    write_(0);
    write_(5);
    say_all();
    read_(3);
    call(SYS_close, fds[1]);
    say_poll(fds[0], POLLIN);
    read_(9);
    read_(9);
    say_poll(fds[0], POLLIN);
    say_poll(fds[0], 0);
    call(SYS_close, fds[0]);
    open_pipe(O_NONBLOCK);
    write_(3);
    call(SYS_close, fds[0]);
    say_poll(fds[1], POLLOUT);
    write_(1);
    note("SIGPIPE %u", sigpipes());
    call(SYS_close, fds[1]);
    say_poll(fds[1], POLLOUT);
}

static void how_much_fits(void)
{
    unsigned i;

    open_pipe(O_NONBLOCK);
    write_(100000);
    write_(1);
    say_all();
    read_(4095);
    say_all();
    write_(1);
    read_(1);
    say_all();
    write_(5000);
    write_(4096);
    read_(60000);
    for (i = 0; i < 40; i++)
        write_(i * 300 + 1);
    say_all();
    for (i = 0; i < 40; i++)
        read_(i * 211 + 1);
    say_all();
}

static void packets(void)
{
    open_pipe(O_NONBLOCK | O_DIRECT);
    write_(10);
    write_(20);
    write_(5000);
    say_all();
    read_(4);
    read_(100);
    read_(100000);
    read_(100000);
    read_(1);
}

static void sizes(void)
{
    open_pipe(O_NONBLOCK);
    note("size %ld", (long)call(SYS_fcntl, fds[0], F_GETPIPE_SZ));
    note("set %ld", (long)call(SYS_fcntl, fds[0], F_SETPIPE_SZ, 5000));
    write_(100000);
    note("set %ld", (long)call(SYS_fcntl, fds[0], F_SETPIPE_SZ, 100));
    note("set %ld", (long)call(SYS_fcntl, fds[0], F_SETPIPE_SZ, 1 << 20));
    write_(1 << 20);
    read_(4096);
    note("size %ld", (long)call(SYS_fcntl, fds[1], F_GETPIPE_SZ));
    note("zero %ld", (long)call(SYS_fcntl, fds[1], F_SETPIPE_SZ, 0));
    note("much %ld", (long)call(SYS_fcntl, fds[1], F_SETPIPE_SZ, 0xffffffff));
}

static void bad_addresses(void)
{
    struct iovec v[2] = {{bytes, 10}, {(void *)8, 10}};

    open_pipe(O_NONBLOCK);
    note("write %ld", (long)call(SYS_write, fds[1], 8, 10));
    say_all();
    note("writev %ld", (long)call(SYS_writev, fds[1], v, 2));
    read_(100);
    write_(10);
    note("read %ld", (long)call(SYS_read, fds[0], 8, 10));
    say_all();
    read_(100);
}

static void waiting(void)
{
    struct other *o;

    open_pipe(0);
    o = begin(SYS_read, fds[0], bytes, 10);
    note("waits %d", waits(o));
    call(SYS_write, fds[1], "abc", 3);
    note("read %ld", (long)end(o));
    note("%.3s", bytes);
    o = begin(SYS_write, fds[1], bytes, 70000);
    note("waits %d", waits(o));
    note("read %ld", (long)call(SYS_read, fds[0], bytes, 4095));
    note("waits %d", waits(o));
    note("read %ld", (long)call(SYS_read, fds[0], bytes, 65536));
    note("wrote %ld", (long)end(o));
    say_all();
    read_(70000);
    o = begin(SYS_read, fds[0], bytes, 10);
    note("waits %d", waits(o));
    call(SYS_close, fds[1]);
    note("read %ld", (long)end(o));
    open_pipe(0);
    o = begin(SYS_write, fds[1], bytes, 70000);
    note("waits %d", waits(o));
    call(SYS_close, fds[0]);
    note("wrote %ld", (long)end(o));
    note("SIGPIPE %u", sigpipes());
}

static void poll_waits(void)
{
    struct pollfd p[3];
    struct other *o;
    int64_t r;

    open_pipe(0);
    p[0] = (struct pollfd){.fd = -1, .events = POLLIN, .revents = 5};
    p[1] = (struct pollfd){.fd = fds[0], .events = POLLIN};
    p[2] = (struct pollfd){.fd = 777, .events = POLLIN};
    r = call(SYS_poll, p, 3, -1);
    note("poll %ld %x %x %x", (long)r, (unsigned)p[0].revents, (unsigned)p[1].revents,
         (unsigned)p[2].revents);
    o = begin(SYS_poll, p, 2, -1);
    note("waits %d", waits(o));
    call(SYS_write, fds[1], "x", 1);
    r = end(o);
    note("poll %ld %x %x", (long)r, (unsigned)p[0].revents, (unsigned)p[1].revents);
    note("read %ld", (long)call(SYS_read, fds[0], bytes, 1));
    o = begin(SYS_poll, p, 2, 15000);
    note("waits %d", waits(o));
    call(SYS_close, fds[1]);
    r = end(o);
    note("poll %ld %x", (long)r, (unsigned)p[1].revents);
    note("time %ld", (long)call(SYS_poll, p, 1, 10));
    note("none %ld", (long)call(SYS_poll, NULL, 0, 1));
    note("fault %ld", (long)call(SYS_poll, 8, 1, 0));
    note("many %ld", (long)call(SYS_poll, p, 100000000, 0));
}

static void ppoll_times(void)
{
    struct timespec t = {0, 3000000}, bad = {0, 1000000000}, zero = {0, 0}, hour = {3600, 0};
    struct pollfd p;
    uint64_t mask = 0;

    open_pipe(0);
    p = (struct pollfd){.fd = fds[0], .events = POLLIN};
    note("ppoll %ld", (long)call(SYS_ppoll, &p, 1, &t, NULL, 0));
    note("left %ld %ld", (long)t.tv_sec, t.tv_nsec);
    note("bad %ld", (long)call(SYS_ppoll, &p, 1, &bad, NULL, 0));
    note("zero %ld", (long)call(SYS_ppoll, &p, 1, &zero, NULL, 0));
    note("mask %ld", (long)call(SYS_ppoll, &p, 1, &zero, &mask, 4));
    note("mask %ld", (long)call(SYS_ppoll, &p, 1, &zero, &mask, 8));
    call(SYS_write, fds[1], "x", 1);
    note("ppoll %ld", (long)call(SYS_ppoll, &p, 1, &hour, &mask, 8));
    note("less %d", hour.tv_sec == 3599);
    note("fault %ld %ld", (long)call(SYS_ppoll, &p, 1, 8, NULL, 0),
         (long)call(SYS_ppoll, &p, 1, &zero, 8, 8));
}

static void say_select(int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *t)
{
    int64_t result = call(SYS_select, n, r, w, x, t);

    note("select %ld: %d%d %d%d %d%d", (long)result, r && FD_ISSET(fds[0], r),
         r && FD_ISSET(fds[1], r), w && FD_ISSET(fds[0], w), w && FD_ISSET(fds[1], w),
         x && FD_ISSET(fds[0], x), x && FD_ISSET(fds[1], x));
}

static void set_both(fd_set *set)
{
    FD_ZERO(set);
    FD_SET(fds[0], set);
    FD_SET(fds[1], set);
}

static void set_all(fd_set *r, fd_set *w, fd_set *x)
{
    set_both(r);
    set_both(w);
    set_both(x);
}

static void selects(void)
{
    struct timeval zero = {0, 0}, some = {0, 3000}, odd = {0, 1500000}, bad = {0, -1};
    fd_set r, w, x;
    int n;

    open_pipe(0);
    n = (fds[0] > fds[1] ? fds[0] : fds[1]) + 1;
    set_all(&r, &w, &x);
    say_select(n, &r, &w, &x, &zero);
    call(SYS_write, fds[1], "x", 1);
    set_all(&r, &w, &x);
    say_select(n, &r, &w, &x, &zero);
    set_both(&r);
    say_select(n, &r, NULL, NULL, NULL);
    call(SYS_read, fds[0], bytes, 1);
    set_both(&r);
    say_select(n, &r, NULL, NULL, &some);
    note("left %ld %ld", (long)some.tv_sec, (long)some.tv_usec);
    set_both(&w);
    say_select(n, NULL, &w, NULL, &odd);
    note("odd %ld", (long)odd.tv_sec);
    say_select(n, &r, NULL, NULL, &bad);
    note("negative %ld", (long)call(SYS_select, -1, NULL, NULL, NULL, &zero));
    note("fault %ld", (long)call(SYS_select, n, 8, NULL, NULL, &zero));
    call(SYS_close, fds[1]);
    FD_ZERO(&r);
    FD_ZERO(&x);
    FD_SET(fds[0], &r);
    FD_SET(fds[0], &x);
    say_select(n, &r, NULL, &x, &zero);
    FD_ZERO(&x);
    FD_SET(fds[0], &x);
    some = (struct timeval){0, 3000};
    say_select(n, NULL, NULL, &x, &some);
    set_both(&r);
    say_select(n, &r, NULL, NULL, &zero);
}

static void signals_end_waits(void)
{
    struct pollfd p;
    struct other *o;
    uint64_t all = ~0ull, before = 0;

    if (!ours)
        call(SYS_rt_sigprocmask, SIG_BLOCK, (uint64_t[]){1ull << (SIGUSR1 - 1)}, &before, 8);
    open_pipe(0);
    p = (struct pollfd){.fd = fds[0], .events = POLLIN};
    if (ours) { /* the host's main thread would take it */
        o = begin(SYS_ppoll, &p, 1, NULL, &all, 8);
        note("waits %d", waits(o));
        raise_signal(SIGUSR1);
        note("waits %d", waits(o));
        call(SYS_write, fds[1], "x", 1);
        note("ppoll %ld", (long)end(o));
        call(SYS_read, fds[0], bytes, 1);
        note("poll %ld", (long)call(SYS_poll, &p, 1, -1));
        note("read %ld", (long)call(SYS_read, fds[0], bytes, 1));
    }
}

static void random_pipes(void)
{
    uint32_t seed = seed_or(7), i, n;

    open_pipe(O_NONBLOCK);
    for (i = 0; i < 4000; i++) {
        seed = seed * 1664525 + 1013904223;
        n = seed >> 8 & 0xffff;
        n = seed >> 30 == 0 ? n % 100 : seed >> 30 == 1 ? n % 6000 : n;
        if (seed & 0x40)
            note("%u w %ld", i, (long)call(SYS_write, fds[1], bytes, n));
        else
            note("%u r %ld", i, (long)call(SYS_read, fds[0], bytes, n));
        if (seed % 97 == 0)
            say_all();
    }
}

/* The pages of all pipes are bounded: who comes late has little, and cannot get more. */
static void bounds(void)
{
    int64_t r = 0;
    unsigned n = 0;

    while (n < 200 && r >= 0) {
        call(SYS_pipe2, fds, 0);
        r = call(SYS_fcntl, fds[0], F_SETPIPE_SZ, 1 << 20);
        n += r > 0;
    }
    note("%u large ones, then %ld", n, (long)r);
    while (call(SYS_fcntl, fds[0], F_GETPIPE_SZ) != 8192 && n++ < 300)
        call(SYS_pipe2, fds, 0);
    note("size %ld", (long)call(SYS_fcntl, fds[0], F_GETPIPE_SZ));
    note("no more %ld", (long)call(SYS_fcntl, fds[0], F_SETPIPE_SZ, 65536));
}

#define BOTH(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        both(name);                                                                                \
    }
BOTH(flags_and_ends)
BOTH(how_much_fits)
BOTH(packets)
BOTH(sizes)
BOTH(bad_addresses)
BOTH(waiting)
BOTH(poll_waits)
BOTH(ppoll_times)
BOTH(selects)
BOTH(random_pipes)

static void test_signals(void **state)
{
    (void)state;
    ours_alone(signals_end_waits, "pipe2 0\nwaits 1\nwaits 1\nppoll 1\npoll -4\nread -4\n");
}

static void test_bounds(void **state)
{
    (void)state;
    ours_alone(bounds, "64 large ones, then -1\nsize 8192\nno more -1\n");
}

/* Whoever made a pipe may open it again by /proc/self/fd, as shells do for <(...). */
static void owner(void)
{
    struct cred mine = *current->cred;
    const struct cred *before = current->cred;
    struct file *file;
    int ends[2];

    mine.fsuid = 1000;
    mine.fsgid = 100;
    current->cred = &mine;
    note("pipe %ld", (long)call(SYS_pipe2, ends, 0));
    current->cred = (void *)before;
    file = fd_get(ends[0]);
    note("owner %u %u", file->inode->uid, file->inode->gid);
    file_put(file);
}

static void test_owner(void **state)
{
    (void)state;
    ours_alone(owner, "pipe 0\nowner 1000 100\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owner),         cmocka_unit_test(test_flags_and_ends),
        cmocka_unit_test(test_how_much_fits), cmocka_unit_test(test_packets),
        cmocka_unit_test(test_sizes),         cmocka_unit_test(test_bad_addresses),
        cmocka_unit_test(test_waiting),       cmocka_unit_test(test_poll_waits),
        cmocka_unit_test(test_ppoll_times),   cmocka_unit_test(test_selects),
        cmocka_unit_test(test_signals),       cmocka_unit_test(test_random_pipes),
        cmocka_unit_test(test_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
