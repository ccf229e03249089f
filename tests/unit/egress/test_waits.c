/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Egress by name where nobody answers: resolvers and clients that are silent. Apart from test_names.c, because each of
 * these sits out a time limit of the gate.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "zone.h"

static void test_dead_resolver(void **state)
{
    int conns = world.sinks->conns;

    (void)state;
    world.resolvers = DEAD_RESOLVER;
    zone_cell = attach_cell(0, WIDE, &attached);
    assert_int_equal(talk(address_of("good.test.example"), 80, "x", 1, 0), ECONNRESET);
    assert_non_null(event("net.deny", "upstream_failed", "good.test.example"));
    done();
    world.resolvers = NULL;
    zone_cell = attach_cell(0, WIDE, &attached);
    assert_int_equal(talk(address_of("good.test.example"), 80, "x", 1, 0), ECONNRESET);
    assert_non_null(
        strstr(event("net.deny", "broker_down", "good.test.example")->hint, "resolver"));
    done();
    up_with(WIDE); /* it does not answer */
    assert_int_equal(talk(address_of("silent.test.example"), 80, "x", 1, 0), ECONNRESET);
    assert_non_null(event("net.deny", "upstream_failed", "silent.test.example"));
    assert_int_equal(world.sinks->conns, conns);
    assert_true(echoed(address_of("good.test.example"), 80, "x", 1, 0));
    done();
}

/* A client that says nothing is let go. */
static void test_silent_client(void **state)
{
    struct talk t = {NULL, 443, (const uint8_t *)"\x16\3", 2, 0, 0, 100};
    struct timespec begin, end;

    (void)state;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    up_with(WIDE);
    t.addr = address_of("good.test.example");
    in_ns(world.cell_ns[0], talk_child, &t);
    assert_int_equal(shared->err, ECONNRESET);
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - begin.tv_sec >= 9); /* not at once */
    host_turn(30);
    assert_non_null(event("net.deny", "not_tls", "good.test.example"));
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dead_resolver),
        cmocka_unit_test(test_silent_client),
    };

    if (getuid()) {
        puts("needs root to make network namespaces");
        return 77;
    }
    return cmocka_run_group_tests(tests, zone_up, zone_down);
}
