/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The arena, sleeping and waking, timers and the host's descriptors. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "fs.h"
#include "task.h"

/* Of other rooms, as far as base/ asks them. */
static bool a_signal;
static unsigned fired;
static void *epoll_item;
static unsigned heard, sleeping_item; /* epolls told; the one in which somebody sleeps */

bool signal_pending(const struct task *task)
{
    (void)task;
    return a_signal;
}

bool epoll_ready(void *item)
{
    epoll_item = item;
    heard++;
    return item == &sleeping_item;
}

void itimer_fire(void *owner)
{
    fired = fired * 10 + *(unsigned *)owner;
}

void posix_timer_fire(void *owner)
{
    (void)owner;
}

void cputime_fire(void *owner)
{
    (void)owner;
}

void timerfd_fire(void *owner)
{
    task_wake(owner);
}

static void objects_of_all_sizes(void **state)
{
    static const size_t sizes[] = {0, 1, 16, 17, 100, 8000, 8192, 9000, 70000, 1 << 20, 16 << 20};
    unsigned char *object[sizeof(sizes) / sizeof(sizes[0])];
    uint64_t used;
    unsigned i, round;
    size_t at;

    (void)state;
    kernel_lock();
    used = arena_used();
    for (round = 0; round < 2; round++) {
        for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            object[i] = arena_alloc(ARENA_BYTES, sizes[i]);
            assert_non_null(object[i]);
            assert_int_equal((uintptr_t)object[i] % 16, 0);
            for (at = 0; at < sizes[i]; at++)
                assert_int_equal(object[i][at], 0);
            memset(object[i], 0xff, sizes[i]);
        }
        assert_int_equal(arena_count(ARENA_BYTES), i);
        while (i--)
            arena_free(object[i]);
        assert_int_equal(arena_used(), used);
    }
    assert_null(arena_alloc(ARENA_BYTES, (16 << 20) + 1));
    kernel_unlock();
}

static void the_arena_ends(void **state)
{
    void *object[64];
    unsigned n = 0;

    (void)state;
    kernel_lock();
    while (n < 64 && (object[n] = arena_alloc(ARENA_BYTES, 8 << 20)))
        n++;
    assert_in_range(n, 1, 63);
    while (n--)
        arena_free(object[n]);
    object[0] = arena_alloc(ARENA_BYTES, 8 << 20);
    assert_non_null(object[0]);
    arena_free(object[0]);
    kernel_unlock();
}

/* Who used up all in objects of one size, and gave them back, leaves room for all other sizes. */
static void no_size_keeps_the_arena(void **state)
{
    static const size_t sizes[] = {1, 4096, 20000, 300000, 4096, 1};
    static void *object[2000000];
    unsigned n, i, left = 0;

    (void)state;
    kernel_lock();
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (n = 0; n < 2000000 && (object[n] = arena_alloc(ARENA_BYTES, sizes[i])); n++)
            memset(object[n], 0xff, sizes[i]);
        assert_in_range(n * (sizes[i] + 32), 60 << 20, 256 << 20);
        while (n > left) /* from both ends: lists and runs are joined again whatever the order */
            arena_free((n + left) % 3 ? object[left++] : object[--n]);
        left = 0;
    }
    kernel_unlock();
}

/* How a child ends that does this. */
static int ends(void (*what)(void))
{
    int status;
    pid_t pid = fork();

    if (!pid) {
        close(STDERR_FILENO);
        what();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void free_twice(void)
{
    char *object;

    kernel_lock();
    object = arena_alloc(ARENA_BYTES, 100);
    arena_free(object);
    arena_free(object);
}

static void free_inside(void)
{
    char *object;

    kernel_lock();
    object = arena_alloc(ARENA_BYTES, 100);
    memset(object, 0, 100);
    arena_free(object + 32);
}

static void free_stack(void)
{
    char object[100] = "";

    kernel_lock();
    arena_free(object + 48);
}

static void without_lock(void)
{
    arena_alloc(ARENA_BYTES, 1);
}

static void misuse_ends_the_sentry(void **state)
{
    (void)state;
    assert_int_equal(ends(free_twice), SIGABRT);
    assert_int_equal(ends(free_inside), SIGABRT);
    assert_int_equal(ends(free_stack), SIGABRT);
    assert_int_equal(ends(without_lock), SIGABRT);
}

static struct waitq queue;
static unsigned asleep, awake;

static void *sleeper(void *unused)
{
    struct waiter waiter = {0};

    (void)unused;
    kernel_lock();
    current = arena_alloc(ARENA_TASK, sizeof(*current));
    waiter.exclusive = 1;
    waiter_add(&waiter, &queue, POLLIN);
    asleep++;
    while (task_sleep(WAIT_FOREVER) != 0)
        ;
    awake++;
    waiter_remove(&waiter);
    arena_free(current);
    kernel_unlock();
    return NULL;
}

static void wait_for(const unsigned *number, unsigned value)
{
    bool there = false;

    while (!there) {
        usleep(1000);
        kernel_lock();
        there = *number == value;
        kernel_unlock();
    }
}

static void exclusive_waiters_wake_one_by_one(void **state)
{
    pthread_t threads[3];
    unsigned i;

    (void)state;
    waitq_init(&queue);
    asleep = awake = 0;
    for (i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, sleeper, NULL);
    wait_for(&asleep, 3);
    for (i = 1; i <= 3; i++) {
        kernel_lock();
        waitq_wake(&queue, POLLOUT); /* not what they want */
        waitq_wake_some(&queue, POLLIN, 1);
        kernel_unlock();
        wait_for(&awake, i);
    }
    for (i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_true(TAILQ_EMPTY(&queue.waiters));
}

/* Of four exclusive epolls the third has somebody who waits: what one can take goes no further. */
static void exclusive_epolls_hear_until_one_wakes(void **state)
{
    unsigned other = 0, i;
    struct waiter waiters[4] = {
        {.item = &other}, {.item = &other}, {.item = &sleeping_item}, {.item = &other}};
    struct waiter all = {.kind = WAITER_EPOLL, .item = &other};

    (void)state;
    kernel_lock();
    waitq_init(&queue);
    for (i = 0; i < 4; i++) {
        waiters[i].kind = WAITER_EPOLL;
        waiters[i].exclusive = 1;
        waiter_add(&waiters[i], &queue, POLLIN | POLLOUT | POLLHUP);
    }
    waiter_add(&all, &queue, POLLIN | POLLHUP);
    heard = 0;
    waitq_wake(&queue, POLLIN | POLLRDNORM);
    assert_int_equal(heard, 4);
    heard = 0;
    waitq_wake(&queue, POLLOUT);
    assert_int_equal(heard, 3);
    heard = 0;
    waitq_wake(&queue, POLLIN | POLLHUP); /* an end is for all */
    assert_int_equal(heard, 5);
    for (i = 0; i < 4; i++)
        waiter_remove(&waiters[i]);
    waiter_remove(&all);
    kernel_unlock();
}

static void a_sleep_ends(void **state)
{
    struct task task = {0};
    struct waiter waiter = {.kind = WAITER_EPOLL, .item = &task};

    (void)state;
    current = &task;
    kernel_lock();
    assert_int_equal(task_sleep(clock_monotonic() + 1000000), -ETIMEDOUT);
    task_wake(&task); /* before the sleep: not lost */
    assert_int_equal(task_sleep(WAIT_FOREVER), 0);
    a_signal = true;
    assert_int_equal(task_sleep(WAIT_FOREVER), -ERESTARTSYS);
    assert_int_equal(task_sleep_killable(clock_monotonic()), -ETIMEDOUT);
    a_signal = false;
    task.killed = true;
    assert_int_equal(task_sleep_killable(WAIT_FOREVER), -ERESTARTSYS);
    task.killed = false;
    waitq_init(&queue);
    waiter_add(&waiter, &queue, POLLIN);
    waitq_wake(&queue, POLLIN);
    assert_ptr_equal(epoll_item, &task);
    waiter_remove(&waiter);
    waiter_remove(&waiter);
    kernel_unlock();
}

static void timers_fire_in_order(void **state)
{
    struct timer timers[200] = {0}, last = {.kind = TIMER_TIMERFD};
    unsigned owner[3] = {1, 2, 3}, i;
    struct task task = {0};
    uint64_t now;

    (void)state;
    current = &task;
    last.owner = &task;
    kernel_lock();
    now = clock_monotonic();
    for (i = 0; i < 200; i++)
        assert_int_equal(timer_set(&timers[i], now + 3600000000000ull + i * 7919 % 200), 0);
    for (i = 0; i < 200; i += 2)
        timer_cancel(&timers[i]);
    for (i = 0; i < 3; i++) {
        timers[i].owner = &owner[i];
        timer_set(&timers[i], now + 3000000 - i * 1000000); /* the last one first */
    }
    timer_set(&last, now + 5000000);
    while (last.when)
        task_sleep(WAIT_FOREVER);
    assert_int_equal(fired, 321);
    for (i = 0; i < 200; i++)
        timer_cancel(&timers[i]);
    kernel_unlock();
}

static void a_descriptor_of_the_host_wakes(void **state)
{
    struct task task = {0};
    char byte;
    int ends_of[2];

    (void)state;
    current = &task;
    assert_int_equal(pipe2(ends_of, O_NONBLOCK), 0);
    waitq_init(&queue);
    kernel_lock();
    assert_int_equal(host_watch(ends_of[0], POLLIN, &queue), 0);
    assert_int_equal(WAIT_UNTIL(&queue, POLLIN, clock_monotonic() + 1000000, false), -ETIMEDOUT);
    assert_int_equal(write(ends_of[1], "x", 1), 1);
    assert_int_equal(WAIT_UNTIL(&queue, POLLIN, WAIT_FOREVER, read(ends_of[0], &byte, 1) == 1), 0);
    host_unwatch(ends_of[0]);
    host_unwatch(ends_of[0]);
    kernel_unlock();
    close(ends_of[0]);
    close(ends_of[1]);
}

static int set_up(void **state)
{
    (void)state;
    return arena_init(128ul << 20) < 0 || events_begin() < 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_of_all_sizes),
        cmocka_unit_test(the_arena_ends),
        cmocka_unit_test(no_size_keeps_the_arena),
        cmocka_unit_test(misuse_ends_the_sentry),
        cmocka_unit_test(exclusive_waiters_wake_one_by_one),
        cmocka_unit_test(exclusive_epolls_hear_until_one_wakes),
        cmocka_unit_test(a_sleep_ends),
        cmocka_unit_test(timers_fire_in_order),
        cmocka_unit_test(a_descriptor_of_the_host_wakes),
    };

    alarm(100); /* after one that failed with the kernel lock held, the next waits for it */
    return cmocka_run_group_tests(tests, set_up, NULL);
}
