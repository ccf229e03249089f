/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The warden's side of the control socket: whose answer it is, and what is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gvisor_like.h"
#undef fail /* ours; cmocka has one, too */

#include <cmocka.h>

static struct cell cell;
static int sentry;

static int set_up(void **state)
{
    int ends[2];

    (void)state;
    cell = (struct cell){.log_fd = -1, .sentry_pidfd = -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    cell.control_fd = ends[0];
    sentry = ends[1];
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close(cell.control_fd);
    close(sentry);
    return 0;
}

static void say(uint32_t serial, int code, uint64_t memory)
{
    struct sentry_reply reply = {.code = code, .serial = serial, .stats.memory_bytes = memory};

    assert_int_equal(send(sentry, &reply, sizeof(reply), 0), sizeof(reply));
}

static void an_answer_that_came_too_late_is_nobodys(void **state)
{
    struct sentry_reply reply;
    struct errbuf eb;

    (void)state;
    say(1, -EBUSY, 0); /* to what was asked before, and given up */
    cell.serial = 1;
    say(2, 0, 4711);
    assert_int_equal(order(&cell, "figures", SENTRY_OP_STATS, 0, 0, &reply, errbuf_init(&eb)), 0);
    assert_int_equal(reply.stats.memory_bytes, 4711);
}

static void last_figures_are_kept_and_are_no_answer(void **state)
{
    struct sentry_reply reply;
    struct errbuf eb;

    (void)state;
    say(0, 0, 815);
    shutdown(sentry, SHUT_WR);
    assert_int_equal(order(&cell, "pause", SENTRY_OP_PAUSE, 0, 0, &reply, errbuf_init(&eb)),
                     -EPIPE);
    assert_int_equal(cell.asked.memory_bytes, 815);
}

static void what_is_no_answer_is_refused(void **state)
{
    struct sentry_reply reply = {.serial = 1, .n = SENTRY_ROWS_MAX + 1};
    struct errbuf eb;

    (void)state;
    assert_int_equal(send(sentry, &reply, sizeof(reply), 0), sizeof(reply));
    assert_int_equal(order(&cell, "x", SENTRY_OP_STATS, 0, 0, &reply, errbuf_init(&eb)), -EBADMSG);
    assert_int_equal(send(sentry, &reply, 12, 0), 12);
    assert_int_equal(order(&cell, "x", SENTRY_OP_STATS, 0, 0, &reply, errbuf_init(&eb)), -EBADMSG);
    say(3, 1, 0);
    assert_int_equal(order(&cell, "x", SENTRY_OP_STATS, 0, 0, &reply, errbuf_init(&eb)), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_answer_that_came_too_late_is_nobodys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(last_figures_are_kept_and_are_no_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_answer_is_refused, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
