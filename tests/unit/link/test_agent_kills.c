/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Ends of commands: whatever a workload does, all of it goes, and the agent stays. As an ordinary process and (root only) as
 * PID 1, where the workload also attacks it.
 */
#include "agent_commands.h"

static void test_timeout_kills_tree(void **state)
{
    FIELDS b = BUF_INIT;
    struct op o;

    field_add_u64(&b, CELLA_TAG_TIMEOUT_MS, 2000);
    op_exec(*state, &o, SH(DAEMONS "sleep 300"), &b);
    while (!o.ended && descendants(((struct cell *)*state)->agent) < 6)
        cell_turn(*state, 10);
    assert_false(o.ended);
    assert_int_equal(op_wait(&o, 10000), 0);
    assert_int_equal(o.type, CELLA_FRAME_EXIT);
    assert_int_equal(o.sig, SIGKILL);
    assert_int_equal(o.timed_out, 1);
    assert_alone(*state);
    op_fini(&o);
}

static void test_leader_death_kills_tree(void **state)
{
    struct op o;

    run(*state, &o, SH(DAEMONS "sleep 0.2; exit 7"), NULL);
    assert_int_equal(o.status, 7);
    assert_alone(*state);
    op_fini(&o);
}

static void test_signals(void **state)
{
    struct op o;

    op_exec(*state, &o, SH("trap 'echo got' USR1; echo up; sleep 100 & wait; wait; echo end"),
            NULL);
    wait_output(&o, "up");
    op_signal(&o, SIGUSR1, CELLA_SCOPE_PROCESS);
    wait_output(&o, "got");
    op_signal(&o, SIGTERM, CELLA_SCOPE_TREE);
    assert_int_equal(op_wait(&o, 10000), 0);
    assert_int_equal(o.sig, SIGTERM);
    assert_alone(*state);
    op_fini(&o);
}

static void test_close_kills_tree(void **state)
{
    struct op o;

    op_exec(*state, &o, SH(DAEMONS "yes"), NULL);
    o.keep = 0;
    cell_turn(*state, 200);
    assert_int_equal(link_send(o.s, CELLA_FRAME_CLOSE, 0, NULL, 0), 0);
    assert_int_equal(op_wait(&o, 10000), 0);
    assert_int_equal(o.sig, SIGKILL);
    assert_alone(*state);
    op_fini(&o);
}

static void test_fork_bomb(void **state)
{
    struct {
        uint32_t resource, zero;
        uint64_t soft, hard;
    } raw = {RLIMIT_NPROC, 0, 80, 80};
    FIELDS b = BUF_INIT;
    struct op o;

    if (geteuid() != 0)
        skip();
    field_add(&b, CELLA_TAG_RLIMIT, &raw, sizeof(raw));
    field_add_str(&b, CELLA_TAG_USER, "40123");
    field_add_u64(&b, CELLA_TAG_TIMEOUT_MS, 500);
    op_exec(*state, &o, SH("b() { b | b & b | b & sleep 0.01; b; }; b 2>/dev/null"), &b);
    o.keep = 0;
    assert_int_equal(op_wait(&o, 15000), 0);
    assert_alone(*state);
    op_fini(&o);
}

static pid_t child_of(pid_t pid)
{
    char path[64], *text = NULL;
    pid_t r = 0;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    if (read_file_at(AT_FDCWD, path, 4096, &text, NULL) == 0)
        r = atoi(text);
    free(text);
    return r;
}

static void test_supervisor_killed(void **state)
{
    struct cell *c = *state;
    struct op o, keep;

    op_exec(c, &o, SH(DAEMONS "echo up; sleep 300"), NULL);
    wait_output(&o, "up");
    assert_true(child_of(c->agent) > 1);
    kill(child_of(c->agent), SIGKILL);
    op_exec(c, &keep, SH("sleep 0.5; echo kept"), NULL); /* another command is not touched */
    assert_int_equal(op_wait(&o, 10000), 0);
    assert_int_equal(o.type, CELLA_FRAME_EXIT);
    assert_int_equal(o.sig, SIGKILL);
    assert_int_equal(op_wait(&keep, 10000), 0);
    assert_string_equal(keep.out.ptr, "kept\n");
    assert_alone(c);
    op_fini(&o);
    op_fini(&keep);
}

/* The workload is uid 0 of the cell and still reaches neither its supervisor nor the agent. */
static void test_agent_out_of_reach(void **state)
{
    FIELDS b = BUF_INIT;
    struct op o;

    if (geteuid() != 0)
        skip();
    run(*state, &o,
        SH("A=$(ps -o ppid= -p $PPID); for p in $PPID $A; do kill -0 $p 2>/dev/null && echo "
           "signalled $p;"
           "cat /proc/$p/mem /proc/$p/environ /proc/$p/maps 2>/dev/null && echo read $p;"
           "readlink /proc/$p/fd/3 && echo fd $p; head -c 1 /proc/$p/fd/3 2>/dev/null && echo "
           "opened;"
           "done; id -u; "
           "grep -h ^Uid /proc/$PPID/status | cut -f2-4"),
        NULL);
    assert_string_equal(o.out.ptr, "0\n65533\t65533\t65533\n");
    op_fini(&o);
    run(*state, &o, SH("kill -9 $PPID; kill -STOP $PPID; kill -9 -1; echo alive"), NULL);
    assert_int_equal(o.type, CELLA_FRAME_EXIT);
    op_fini(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeout_kills_tree),
        cmocka_unit_test(test_leader_death_kills_tree),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_close_kills_tree),
        cmocka_unit_test(test_fork_bomb),
        cmocka_unit_test(test_supervisor_killed),
    };
    const struct CMUnitTest only_init[] = {cmocka_unit_test(test_agent_out_of_reach)};
    int r = cmocka_run_group_tests_name("as a process", tests, cell_setup, cell_teardown);

    if (geteuid() != 0) {
        printf("not root: the agent was not run as PID 1\n");
        return r;
    }
    r += cmocka_run_group_tests_name("as PID 1", tests, cell_setup_init, cell_teardown);
    r += cmocka_run_group_tests_name("as PID 1, attacked", only_init, cell_setup_init,
                                     cell_teardown);
    return r;
}
