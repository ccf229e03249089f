/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The built agent, driven through core/link: first as an ordinary process, then (root only) as PID
 * 1 of its own pid, user and mount namespaces. CELLA_AGENT names the program.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agent_harness.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct cell *cell_of(void **state)
{
    return *state;
}

static void test_exec_output_and_status(void **state)
{
    struct op o;

    op_exec(cell_of(state), &o, ARGV("sh", "-c", "echo out; echo err >&2; exit 3"), NULL);
    assert_int_equal(op_wait(&o, 5000), 0);
    assert_int_equal(o.type, CELLA_FRAME_EXIT);
    assert_int_equal(o.status, 3);
    assert_int_equal(o.sig, 0);
    assert_string_equal(o.out.ptr, "out\n");
    assert_string_equal(o.err.ptr, "err\n");
    assert_true(o.eof_out && o.eof_err && o.opened);
    assert_true(o.maxrss > 100000);
    op_fini(&o);
}

static int setup(void **state)
{
    static struct cell c;

    *state = &c;
    return cell_start(&c, 0);
}

static int setup_init(void **state)
{
    static struct cell c;

    *state = &c;
    return cell_start(&c, 1);
}

static int teardown(void **state)
{
    cell_stop(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exec_output_and_status),
    };
    int r = cmocka_run_group_tests_name("as a process", tests, setup, teardown);

    if (geteuid() == 0)
        r += cmocka_run_group_tests_name("as PID 1", tests, setup_init, teardown);
    else
        printf("not root: the agent was not run as PID 1\n");
    return r;
}
