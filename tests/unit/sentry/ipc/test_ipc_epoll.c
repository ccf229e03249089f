/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* epoll, eventfd, timerfd, signalfd, pidfd, on the host's kernel and on ours. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "world.h"

static int fds[2], ep;
static char bytes[70000];

static void ctl(int epfd, int op, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event e = {.events = events, .data.u64 = data};

    note("ctl %d %x %ld", op, events, (long)call(SYS_epoll_ctl, epfd, op, fd, &e));
}

static void look_in(int epfd, int most)
{
    struct epoll_event e[8];
    int64_t n = call(SYS_epoll_wait, epfd, e, most, 0), i;

    note("wait %ld", (long)n);
    for (i = 0; i < n; i++)
        note(" %x %ld", e[i].events, (long)e[i].data.u64);
}

static void say_poll(int fd)
{
    struct pollfd p = {.fd = fd, .events = 0x1fff};
    int64_t r = call(SYS_poll, &p, 1, 0);

    note("poll %ld %x", (long)r, (unsigned)p.revents);
}

static void begin_epoll(void)
{
    call(SYS_pipe2, fds, O_NONBLOCK);
    ep = (int)call(SYS_epoll_create1, EPOLL_CLOEXEC);
    note("create %d", ep > 0);
}

static void level(void)
{
    begin_epoll();
    ctl(ep, EPOLL_CTL_ADD, fds[0], EPOLLIN, 1);
    ctl(ep, EPOLL_CTL_ADD, fds[1], EPOLLOUT, 2);
    look_in(ep, 8);
    call(SYS_write, fds[1], "x", 1);
    look_in(ep, 8);
    look_in(ep, 1);
    look_in(ep, 1);
    look_in(ep, 1);
    say_poll(ep);
    call(SYS_read, fds[0], bytes, 1);
    look_in(ep, 8);
    ctl(ep, EPOLL_CTL_MOD, fds[1], 0, 3);
    look_in(ep, 8);
    say_poll(ep);
    call(SYS_close, fds[0]);
    look_in(ep, 8);
    ctl(ep, EPOLL_CTL_DEL, fds[1], 0, 0);
    look_in(ep, 8);
}

static void edge(void)
{
    begin_epoll();
    ctl(ep, EPOLL_CTL_ADD, fds[0], EPOLLIN | EPOLLET, 1);
    ctl(ep, EPOLL_CTL_ADD, fds[1], EPOLLOUT | EPOLLET, 2);
    look_in(ep, 8);
    look_in(ep, 8);
    call(SYS_write, fds[1], bytes, 10);
    look_in(ep, 8);
    look_in(ep, 8);
    call(SYS_write, fds[1], bytes, 10);
    look_in(ep, 8);
    call(SYS_read, fds[0], bytes, 5);
    look_in(ep, 8);
    ctl(ep, EPOLL_CTL_MOD, fds[0], EPOLLIN | EPOLLET, 4);
    look_in(ep, 8);
    look_in(ep, 8);
    call(SYS_write, fds[1], bytes, 70000);
    look_in(ep, 8);
    call(SYS_read, fds[0], bytes, 70000);
    look_in(ep, 8);
    call(SYS_close, fds[1]);
    look_in(ep, 8);
    look_in(ep, 8);
}

static void one_shot(void)
{
    begin_epoll();
    ctl(ep, EPOLL_CTL_ADD, fds[0], EPOLLIN | EPOLLONESHOT, 1);
    call(SYS_write, fds[1], "x", 1);
    look_in(ep, 8);
    look_in(ep, 8);
    call(SYS_write, fds[1], "x", 1);
    look_in(ep, 8);
    ctl(ep, EPOLL_CTL_MOD, fds[0], EPOLLIN | EPOLLONESHOT, 2);
    look_in(ep, 8);
    ctl(ep, EPOLL_CTL_MOD, fds[0], EPOLLIN | EPOLLONESHOT | EPOLLET, 3);
    call(SYS_read, fds[0], bytes, 2);
    look_in(ep, 8);
    call(SYS_close, fds[1]);
    look_in(ep, 8);
}

static void refusals(void)
{
    int other = (int)call(SYS_epoll_create, 1);
    struct epoll_event e;

    begin_epoll();
    note("create %ld %ld", (long)call(SYS_epoll_create1, 1), (long)call(SYS_epoll_create, 0));
    ctl(ep, EPOLL_CTL_ADD, 777, EPOLLIN, 0);
    ctl(777, EPOLL_CTL_ADD, fds[0], EPOLLIN, 0);
    ctl(fds[0], EPOLL_CTL_ADD, fds[1], EPOLLIN, 0);
    ctl(ep, EPOLL_CTL_ADD, ep, EPOLLIN, 0);
    ctl(ep, EPOLL_CTL_MOD, fds[0], EPOLLIN, 0);
    ctl(ep, EPOLL_CTL_DEL, fds[0], EPOLLIN, 0);
    ctl(ep, EPOLL_CTL_ADD, fds[0], EPOLLIN, 0);
    ctl(ep, EPOLL_CTL_ADD, fds[0], EPOLLIN, 0);
    ctl(ep, 9, fds[0], EPOLLIN, 0);
    note("fault %ld", (long)call(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, fds[1], 8));
    note("del %ld", (long)call(SYS_epoll_ctl, ep, EPOLL_CTL_DEL, fds[0], 8));
    ctl(ep, EPOLL_CTL_ADD, fds[0], EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 0);
    ctl(ep, EPOLL_CTL_ADD, other, EPOLLIN | EPOLLEXCLUSIVE, 0);
    ctl(ep, EPOLL_CTL_ADD, fds[0], EPOLLIN | EPOLLEXCLUSIVE, 0);
    ctl(ep, EPOLL_CTL_MOD, fds[0], EPOLLIN | EPOLLEXCLUSIVE, 0);
    ctl(ep, EPOLL_CTL_MOD, fds[0], EPOLLIN, 0);
    note("wait %ld %ld %ld %ld", (long)call(SYS_epoll_wait, ep, &e, 0, 0),
         (long)call(SYS_epoll_wait, ep, &e, -1, 0), (long)call(SYS_epoll_wait, fds[0], &e, 1, 0),
         (long)call(SYS_epoll_wait, 777, &e, 1, 0));
    call(SYS_write, fds[1], "x", 1);
    note("fault %ld", (long)call(SYS_epoll_wait, ep, 8, 1, 0));
    look_in(ep, 1);
    note("read %ld", (long)call(SYS_read, ep, &e, 8));
}

static void nested(void)
{
    int chain[8], i;

    begin_epoll();
    ctl(ep, EPOLL_CTL_ADD, fds[0], EPOLLIN, 1);
    for (i = 0; i < 8; i++)
        chain[i] = (int)call(SYS_epoll_create1, 0);
    ctl(chain[0], EPOLL_CTL_ADD, ep, EPOLLIN, 10);
    say_poll(chain[0]);
    look_in(chain[0], 8);
    call(SYS_write, fds[1], "x", 1);
    say_poll(chain[0]);
    look_in(chain[0], 8);
    look_in(chain[0], 8);
    call(SYS_read, fds[0], bytes, 1);
    say_poll(chain[0]);
    look_in(chain[0], 8);
    ctl(ep, EPOLL_CTL_ADD, chain[0], EPOLLIN, 0);
    for (i = 0; i < 7; i++)
        ctl(chain[i + 1], EPOLL_CTL_ADD, chain[i], EPOLLIN | EPOLLET, (uint64_t)i);
    call(SYS_write, fds[1], "x", 1);
    for (i = 0; i < 7; i++)
        look_in(chain[i], 8);
    for (i = 0; i < 7; i++)
        say_poll(chain[i]);
    call(SYS_write, fds[1], "x", 1);
    look_in(chain[2], 8);
    look_in(chain[2], 8);
    ctl(chain[1], EPOLL_CTL_ADD, chain[3], EPOLLIN, 0);
    ctl(chain[0], EPOLL_CTL_ADD, chain[3], EPOLLIN, 0);
}

static void closing(void)
{
    int again;

    begin_epoll();
    ctl(ep, EPOLL_CTL_ADD, fds[0], EPOLLIN, 1);
    again = (int)call(SYS_dup, fds[0]);
    ctl(ep, EPOLL_CTL_ADD, again, EPOLLIN, 2);
    call(SYS_write, fds[1], "x", 1);
    look_in(ep, 8);
    call(SYS_close, fds[0]);
    look_in(ep, 8);
    call(SYS_close, again);
    look_in(ep, 8);
    call(SYS_close, fds[1]);
    look_in(ep, 8);
}

static void order(void)
{
    int pipes[6][2], i;

    begin_epoll();
    for (i = 0; i < 6; i++) {
        call(SYS_pipe2, pipes[i], O_NONBLOCK);
        ctl(ep, EPOLL_CTL_ADD, pipes[i][0], i & 1 ? EPOLLIN : EPOLLIN | EPOLLET, (uint64_t)i);
    }
    for (i = 5; i >= 0; i--)
        call(SYS_write, pipes[i][1], "x", 1);
    for (i = 0; i < 6; i++)
        look_in(ep, 2);
    call(SYS_write, pipes[4][1], "x", 1);
    call(SYS_write, pipes[1][1], "x", 1);
    look_in(ep, 3);
    look_in(ep, 3);
}

static void waiting(void)
{
    struct timespec t = {0, 1000000}, bad = {0, -1};
    struct epoll_event e[2], f[2];
    struct other *o, *p;
    uint64_t mask = 0;

    begin_epoll();
    ctl(ep, EPOLL_CTL_ADD, fds[0], EPOLLIN | EPOLLET, 7);
    o = begin(SYS_epoll_wait, ep, e, 2, -1);
    p = begin(SYS_epoll_pwait, ep, f, 2, 15000, NULL, 8);
    note("wait %d %d", waits(o), waits(p));
    call(SYS_write, fds[1], "x", 1);
    one_ends(o, p); /* two edges that nobody has taken yet are one */
    call(SYS_write, fds[1], "x", 1);
    note("one each %ld", (long)end(o));
    note("one each %ld", (long)end(p));
    note("time %ld", (long)call(SYS_epoll_wait, ep, e, 2, 5));
    note("pwait2 %ld", (long)call(SYS_epoll_pwait2, ep, e, 2, &t, &mask, 8));
    note("pwait2 %ld %ld", (long)call(SYS_epoll_pwait2, ep, e, 2, &bad, NULL, 8),
         (long)call(SYS_epoll_pwait2, ep, e, 2, 8, NULL, 8));
    note("mask %ld", (long)call(SYS_epoll_pwait, ep, e, 2, 0, &mask, 7));
    o = begin(SYS_epoll_wait, ep, e, 2, -1);
    note("waits %d", waits(o));
    ctl(ep, EPOLL_CTL_ADD, fds[1], EPOLLOUT, 8);
    note("added %ld", (long)end(o));
}

static void counters(void)
{
    uint64_t value = 5;
    struct other *o;
    int fd = (int)call(SYS_eventfd2, 3, EFD_NONBLOCK),
        s = (int)call(SYS_eventfd2, 2, EFD_SEMAPHORE);

    note("bad %ld", (long)call(SYS_eventfd2, 0, 2));
    note("fl %lx", (long)call(SYS_fcntl, fd, F_GETFL));
    say_poll(fd);
    note("short %ld %ld", (long)call(SYS_read, fd, &value, 7),
         (long)call(SYS_write, fd, &value, 4));
    note("write %ld", (long)call(SYS_write, fd, &value, 8));
    note("read %ld", (long)call(SYS_read, fd, bytes, 20));
    note("value %d", bytes[0]);
    note("read %ld", (long)call(SYS_read, fd, &value, 8));
    say_poll(fd);
    value = UINT64_MAX;
    note("max %ld", (long)call(SYS_write, fd, &value, 8));
    value--;
    note("max %ld", (long)call(SYS_write, fd, &value, 8));
    say_poll(fd);
    value = 1;
    note("over %ld", (long)call(SYS_write, fd, &value, 8));
    note("fault %ld %ld", (long)call(SYS_write, fd, 8, 8), (long)call(SYS_read, s, 8, 8));
    note("sem %ld", (long)call(SYS_read, s, &value, 8));
    note("value %ld", (long)value);
    say_poll(s);
    o = begin(SYS_read, s, &value, 8);
    note("waits %d", waits(o));
    value = 2;
    call(SYS_write, s, &value, 8);
    note("read %ld", (long)end(o));
    note("value %ld", (long)value);
}

static void edge_of_counter(void)
{
    uint64_t one = 1, value;
    int fd = (int)call(SYS_eventfd2, 0, EFD_NONBLOCK);

    begin_epoll();
    ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT | EPOLLET, 1);
    look_in(ep, 8);
    look_in(ep, 8);
    call(SYS_write, fd, &one, 8);
    look_in(ep, 8);
    call(SYS_write, fd, &one, 8);
    look_in(ep, 8);
    call(SYS_read, fd, &value, 8);
    look_in(ep, 8);
    call(SYS_read, fd, &value, 8);
    look_in(ep, 8);
}

static void say_timer(int fd)
{
    struct itimerspec now;
    int64_t r = call(SYS_timerfd_gettime, fd, &now);

    note("gettime %ld %d %ld.%09ld", (long)r, now.it_value.tv_sec || now.it_value.tv_nsec,
         (long)now.it_interval.tv_sec, now.it_interval.tv_nsec);
}

static void timers(void)
{
    struct itimerspec late = {.it_value = {3600, 0}}, once = {.it_value = {0, 30000000}},
                      every = {{0, 3000000}, {0, 4000000}}, off = {0}, old;
    struct itimerspec past = {.it_value = {1, 0}}, bad = {.it_value = {0, 1000000000}};
    int fd = (int)call(SYS_timerfd_create, CLOCK_MONOTONIC, 0);
    uint64_t n = 0;

    note("bad %ld %ld", (long)call(SYS_timerfd_create, 77, 0),
         (long)call(SYS_timerfd_create, CLOCK_MONOTONIC, 1));
    say_timer(fd);
    say_poll(fd);
    note("set %ld", (long)call(SYS_timerfd_settime, fd, 0, &late, &old));
    say_timer(fd);
    note("set %ld", (long)call(SYS_timerfd_settime, fd, 0, &once, &old));
    note("read %ld", (long)call(SYS_read, fd, &n, 8));
    note("n %ld", (long)n);
    say_timer(fd);
    note("set %ld", (long)call(SYS_timerfd_settime, fd, 0, &every, NULL));
    note("read %ld", (long)call(SYS_read, fd, &n, 8));
    note("n %d", n >= 1);
    pause_ms(20);
    say_poll(fd);
    note("read %ld", (long)call(SYS_read, fd, &n, 8));
    note("n %d", n >= 4 && n < 10000);
    say_timer(fd);
    note("off %ld", (long)call(SYS_timerfd_settime, fd, 0, &off, &old));
    note("old %ld", old.it_interval.tv_nsec);
    say_timer(fd);
    note("past %ld", (long)call(SYS_timerfd_settime, fd, TFD_TIMER_ABSTIME, &past, NULL));
    note("read %ld", (long)call(SYS_read, fd, &n, 8));
    note("n %ld", (long)n);
    note("bad %ld %ld %ld", (long)call(SYS_timerfd_settime, fd, 0, &bad, NULL),
         (long)call(SYS_timerfd_settime, fd, 8, &once, NULL),
         (long)call(SYS_timerfd_settime, fd, 0, 8, NULL));
    begin_epoll();
    note("not %ld %ld", (long)call(SYS_timerfd_settime, ep, 0, &once, NULL),
         (long)call(SYS_timerfd_gettime, 777, &old));
    fd = (int)call(SYS_timerfd_create, CLOCK_REALTIME, TFD_NONBLOCK);
    call(SYS_clock_gettime, CLOCK_REALTIME, &once.it_value);
    clock_gettime(CLOCK_REALTIME, &once.it_value);
    once.it_value.tv_sec += 1000;
    note("abs %ld", (long)call(SYS_timerfd_settime, fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET,
                               &once, NULL));
    note("again %ld", (long)call(SYS_read, fd, &n, 8));
    call(SYS_timerfd_gettime, fd, &old);
    note("left %d", old.it_value.tv_sec >= 998 && old.it_value.tv_sec < 1001);
}

static void signal_files(void)
{
    uint64_t mask = 1ull << (SIGUSR1 - 1) | 1ull << (SIGKILL - 1);
    struct signalfd_siginfo info[2] = {0};
    int fd;

    call(SYS_rt_sigprocmask, SIG_BLOCK, &mask, NULL, 8);
    note("bad %ld %ld %ld", (long)call(SYS_signalfd4, -1, &mask, 7, 0),
         (long)call(SYS_signalfd4, -1, &mask, 8, 1), (long)call(SYS_signalfd4, -1, 8, 8, 0));
    fd = (int)call(SYS_signalfd4, -1, &mask, 8, SFD_NONBLOCK | SFD_CLOEXEC);
    say_poll(fd);
    note("read %ld", (long)call(SYS_read, fd, info, sizeof(info)));
    raise_signal(SIGUSR1);
    say_poll(fd);
    note("short %ld", (long)call(SYS_read, fd, info, 100));
    note("read %ld", (long)call(SYS_read, fd, info, sizeof(info)));
    note("is %d %d %d", info[0].ssi_signo == SIGUSR1, info[0].ssi_pid == (uint32_t)getpid(),
         info[0].ssi_code);
    say_poll(fd);
    mask = 0;
    note("change %d", call(SYS_signalfd4, fd, &mask, 8, 0) == fd);
    raise_signal(SIGUSR1);
    say_poll(fd);
    mask = 1ull << (SIGUSR1 - 1);
    note("change %ld", (long)call(SYS_signalfd4, 777, &mask, 8, 0));
    note("change %d", call(SYS_signalfd4, fd, &mask, 8, 0) == fd);
    say_poll(fd);
    begin_epoll();
    ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1);
    look_in(ep, 8);
    note("not %ld", (long)call(SYS_signalfd4, ep, &mask, 8, 0));
}

static void pidfds(void)
{
    int fd = (int)call(SYS_pidfd_open, getpid(), 0);
    siginfo_t info = {.si_signo = SIGUSR2};
    uint64_t mask = 1ull << (SIGUSR1 - 1);

    call(SYS_rt_sigprocmask, SIG_BLOCK, &mask, NULL, 8);
    note("open %d cloexec %ld", fd > 0, (long)call(SYS_fcntl, fd, F_GETFD));
    note("bad %ld %ld %ld", (long)call(SYS_pidfd_open, 0, 0),
         (long)call(SYS_pidfd_open, getpid(), 1), (long)call(SYS_pidfd_open, 99999999, 0));
    say_poll(fd);
    note("read %ld", (long)call(SYS_read, fd, bytes, 8));
    note("send %ld", (long)call(SYS_pidfd_send_signal, fd, SIGUSR1, NULL, 0));
    note("none %ld", (long)call(SYS_pidfd_send_signal, fd, 0, NULL, 0));
    note("bad %ld %ld %ld", (long)call(SYS_pidfd_send_signal, fd, 65, NULL, 0),
         (long)call(SYS_pidfd_send_signal, 777, 1, NULL, 0),
         (long)call(SYS_pidfd_send_signal, fd, SIGUSR1, &info, 0));
    begin_epoll();
    note("not %ld", (long)call(SYS_pidfd_send_signal, ep, SIGUSR1, NULL, 0));
}

static void random_epoll(void)
{
    int pipes[5][2], i, k, ops[3] = {EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL};
    uint32_t seed = seed_or(3), flags[4] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};

    begin_epoll();
    for (i = 0; i < 5; i++)
        call(SYS_pipe2, pipes[i], O_NONBLOCK);
    for (i = 0; i < 3000; i++) {
        seed = seed * 1664525 + 1013904223;
        k = (int)(seed >> 8 & 0xff) % 5;
        switch (seed >> 16 & 7) {
        case 0:
        case 1:
            note("%d.%d", k, (int)(seed >> 24 & 1));
            ctl(ep, ops[(seed >> 20) % 3], pipes[k][seed >> 24 & 1],
                (seed >> 25 & 1 ? EPOLLIN : EPOLLOUT) | flags[seed >> 26 & 3], (uint64_t)k);
            break;
        case 2:
        case 3:
            note("w%d %ld", k,
                 (long)call(SYS_write, pipes[k][1], bytes, seed >> 20 & 1 ? 1 : 30000));
            break;
        case 4:
            note("r%d %ld", k,
                 (long)call(SYS_read, pipes[k][0], bytes, seed >> 20 & 1 ? 1 : 70000));
            break;
        default:
            look_in(ep, 1 + (int)(seed >> 20 & 7));
        }
        if (i % 500 == 499) {
            call(SYS_close, pipes[k][0]);
            call(SYS_close, pipes[k][1]);
            call(SYS_pipe2, pipes[k], O_NONBLOCK);
        }
    }
}

#define BOTH(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        both(name);                                                                                \
    }
BOTH(level)
BOTH(edge)
BOTH(one_shot)
BOTH(refusals)
BOTH(nested)
BOTH(closing)
BOTH(order)
BOTH(waiting)
BOTH(counters)
BOTH(edge_of_counter)
BOTH(timers)
BOTH(signal_files)
BOTH(pidfds)
BOTH(random_epoll)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_level),    cmocka_unit_test(test_edge),
        cmocka_unit_test(test_one_shot), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_nested),   cmocka_unit_test(test_closing),
        cmocka_unit_test(test_order),    cmocka_unit_test(test_waiting),
        cmocka_unit_test(test_counters), cmocka_unit_test(test_edge_of_counter),
        cmocka_unit_test(test_timers),   cmocka_unit_test(test_signal_files),
        cmocka_unit_test(test_pidfds),   cmocka_unit_test(test_random_epoll),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
