/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The watchdog by itself: what it says, when it fires, what it leaves alone. Each case is a child.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "harness.h"

static const struct plugin outer = {.name = "outer", .path = (char *)"/p/outer.so"};
static const struct plugin inner = {.name = "inner", .path = (char *)"/p/inner.so"};

static void nap(unsigned ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};

    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

static int run(void (*fn)(void), char out[1024])
{
    int p[2], status;
    size_t n = 0;
    ssize_t got;
    pid_t pid;

    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(p[0]);
        if (watchdog_init(p[1]) < 0)
            _exit(1);
        fn();
        _exit(0);
    }
    close(p[1]);
    while (n < 1023 && (got = read(p[0], out + n, 1023 - n)) > 0)
        n += (size_t)got;
    out[n] = 0;
    close(p[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void in_time(void)
{
    watchdog_enter(&outer, "create", SECOND_NS);
    nap(20);
    watchdog_leave();
    nap(1100); /* past the deadline, but nobody is in a plugin */
}

static void hang_with_seconds(void)
{
    watchdog_enter(&outer, "create", SECOND_NS);
    nap(5000);
}

/* The inner call takes longer than the outer deadline: its time is its own. */
static void inner_is_slow(void)
{
    watchdog_enter(&outer, "create", SECOND_NS);
    watchdog_enter(&inner, "event", 20 * SECOND_NS);
    nap(1500);
    watchdog_leave();
    nap(20);
    watchdog_leave();
}

static void inner_hangs(void)
{
    watchdog_enter(&outer, "create", 10 * SECOND_NS);
    watchdog_enter(&inner, "event", 50000000);
    nap(5000);
}

static void outer_hangs_after_inner(void)
{
    watchdog_enter(&outer, "create", 80000000);
    watchdog_enter(&inner, "event", SECOND_NS);
    watchdog_leave();
    nap(5000);
}

/* The timer is still set for the call before: that signal is too early, and another must come. */
static void hang_after_a_quick_call(void)
{
    watchdog_enter(&inner, "event", 500000000);
    watchdog_leave();
    watchdog_enter(&outer, "create", 700000000);
    nap(5000);
}

static void fault_in_plugin(void)
{
    watchdog_enter(&outer, "start", SECOND_NS);
    raise(SIGFPE);
}

static void fault_outside(void)
{
    watchdog_enter(&outer, "start", SECOND_NS);
    watchdog_leave();
    raise(SIGBUS);
}

/* A child that a plugin forks is not the hosting process. */
static void fault_in_forked_child(void)
{
    int status;
    pid_t pid;

    watchdog_enter(&outer, "start", SECOND_NS);
    pid = fork();
    if (pid == 0) {
        raise(SIGSEGV);
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV)
        _exit(2);
    watchdog_leave();
}

static void cases(void **state)
{
    static const struct {
        void (*fn)(void);
        int status, sig;
        const char *says;
    } c[] = {
        {in_time, 0, 0, ""},
        {hang_with_seconds, 125, 0,
         "plugin outer (/p/outer.so) did not return from create within "
         "1 s\n"},
        {inner_is_slow, 0, 0, ""},
        {inner_hangs, 125, 0,
         "plugin inner (/p/inner.so) did not return from event within 50 ms\n"},
        {outer_hangs_after_inner, 125, 0,
         "plugin outer (/p/outer.so) did not return from create within 80 ms\n"},
        {hang_after_a_quick_call, 125, 0,
         "plugin outer (/p/outer.so) did not return from create within 700 ms\n"},
        {fault_in_plugin, 125, 0, "plugin outer (/p/outer.so) crashed in start (signal SIGFPE)\n"},
        {fault_outside, 0, SIGBUS, "crashed outside of any plugin call (signal SIGBUS)\n"},
        {fault_in_forked_child, 0, 0, ""},
    };
    char out[1024];
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(c); i++) {
        int status = run(c[i].fn, out);
        assert_string_equal(out, c[i].says);
        if (c[i].sig) {
            assert_true(WIFSIGNALED(status));
            assert_int_equal(WTERMSIG(status), c[i].sig);
        } else {
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), c[i].status);
        }
    }
}

/* Without init the brackets do nothing. */
static void not_started(void **state)
{
    (void)state;
    watchdog_enter(&outer, "create", 1);
    nap(5);
    watchdog_leave();
    watchdog_leave();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(not_started), cmocka_unit_test(cases)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
