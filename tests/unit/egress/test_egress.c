/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The enforcer through its entry point, in real namespaces: denials, their positive twins, and who
 * saw a byte. Verdicts come from the servers' counters and the events, not only from what the
 * client was told.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "net.h"

#define ALLOW_WIDE                                                                                 \
    "{\"version\":1,\"allow\":["                                                                   \
    "{\"id\":\"doc\",\"cidr\":\"203.0.113.0/24\",\"ports\":[80,7000,8081],\"layer\":\"raw\"},"     \
    "{\"id\":\"own\",\"cidr\":\"8.8.4.0/24\",\"ports\":[\"26-65535\"],\"layer\":\"raw\"}]}"

static double ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void test_deny_and_twin(void **state)
{
    struct target t = {"203.0.113.10", 80, "hello", 0};
    struct cella_attached at = {0};
    int conns = world.sinks->conns;
    void *cell = attach_cell(0, "{}", &at);

    (void)state;
    assert_string_equal(at.address, "10.200.0.2/30");
    assert_string_equal(at.gateway, "10.200.0.1");
    assert_int_equal(in_ns(world.cell_ns[0], probe_tcp, &t), ECONNREFUSED);
    world.ops->detach(cell); /* must not lose what is pending */
    assert_non_null(find_event("net.deny", "no_rule", "203.0.113.10", 80));
    assert_int_equal(world.sinks->conns, conns);

    cell = attach_cell(0, ALLOW_WIDE, &at);
    assert_int_equal(in_ns(world.cell_ns[0], probe_echo, &t), 0);
    world.ops->detach(cell);
    assert_int_equal(world.sinks->conns, conns + 1);
    assert_string_equal(find_event("net.allow", "", "203.0.113.10", 80)->rule, "doc");
    assert_int_equal(find_event("net.flow", "", "203.0.113.10", 80)->tx, 5);
    assert_int_equal(find_event("net.flow", "", "203.0.113.10", 80)->rx, 5);
    forget_events();
}

static int up(void **state)
{
    (void)state;
    world_up();
    return 0;
}

static int down(void **state)
{
    (void)state;
    world_down();
    return 0;
}

static void test_speed(void **state)
{
    double attach[9], detach[9];
    int i, j;

    (void)state;
    for (i = 0; i < 9; i++) {
        struct cella_attached at = {0};
        double a = ms(), b;
        void *cell = attach_cell(0, ALLOW_WIDE, &at);
        b = ms();
        if (i == 0) {
            char cmd[128];
            snprintf(cmd, sizeof(cmd), "grep -E '^(Pss|Private_Dirty):' /proc/%d/smaps_rollup",
                     (int)at.gate_pid);
            if (system(cmd))
                printf("no smaps\n");
        }
        attach[i] = b - a;
        a = ms();
        world.ops->detach(cell);
        detach[i] = ms() - a;
        for (j = 0; j <= i; j++)
            ;
    }
    for (i = 0; i < 9; i++)
        printf("attach %.2f ms detach %.2f ms\n", attach[i], detach[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deny_and_twin),
        cmocka_unit_test(test_speed),
    };

    if (getuid()) {
        puts("needs root to make network namespaces");
        return 77;
    }
    return cmocka_run_group_tests(tests, up, down);
}
