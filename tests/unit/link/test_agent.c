/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Commands: the built agent driven through core/link, as an ordinary process and then (root only)
 * as PID 1 of its own pid, user and mount namespaces. CELLA_AGENT may name another program than the
 * one of this build.
 */
#include "agent_commands.h"

static void test_output_and_status(void **state)
{
    struct op o;

    run(*state, &o, SH("echo out; echo err >&2; exit 3"), NULL);
    assert_int_equal(o.type, CELLA_FRAME_EXIT);
    assert_int_equal(o.status, 3);
    assert_int_equal(o.sig, 0);
    assert_string_equal(o.out.ptr, "out\n");
    assert_string_equal(o.err.ptr, "err\n");
    assert_true(o.eof_out && o.eof_err && o.opened);
    assert_true(o.maxrss > 100000);
    op_fini(&o);
}

static void test_death_by_signal(void **state)
{
    struct op o;

    run(*state, &o, SH("kill -TERM $$"), NULL);
    assert_int_equal(o.type, CELLA_FRAME_EXIT);
    assert_int_equal(o.sig, SIGTERM);
    assert_int_equal(o.timed_out, 0);
    op_fini(&o);
}

static void test_environment(void **state)
{
    FIELDS b = BUF_INIT;
    struct op o;

    field_add_str(&b, CELLA_TAG_ENV, "A=x y");
    field_add_str(&b, CELLA_TAG_CWD, "/usr");
    run(*state, &o, SH("pwd; echo $A; env | wc -l"), &b);
    assert_string_equal(o.out.ptr, "/usr\nx y\n3\n"); /* PATH, A, and PWD of the shell */
    op_fini(&o);
}

static void test_stdin(void **state)
{
    FIELDS b = BUF_INIT;
    char big[400000];
    struct op o;

    run(*state, &o, ARGV("cat"), NULL); /* not connected: empty */
    assert_int_equal(o.status, 0);
    assert_int_equal(o.out.len, 0);
    op_fini(&o);
    memset(big, 'x', sizeof(big));
    field_add_u32(&b, CELLA_TAG_STDIN, 1);
    op_exec(*state, &o, ARGV("cat"), &b);
    assert_int_equal(op_write(&o, big, sizeof(big), 10000), sizeof(big));
    op_eof(&o);
    assert_int_equal(op_wait(&o, 10000), 0);
    assert_int_equal(o.status, 0);
    assert_int_equal(o.out.len, sizeof(big));
    assert_memory_equal(o.out.ptr, big, sizeof(big));
    op_fini(&o);
}

/* More than a window goes to a command that does not read: it is held back. To one that closed it:
 * dropped. */
static void test_stdin_unread_and_closed(void **state)
{
    static char big[600000];
    FIELDS b = BUF_INIT;
    struct op o;

    field_add_u32(&b, CELLA_TAG_STDIN, 1);
    op_exec(*state, &o, ARGV("sleep", "100"), &b);
    assert_true(op_write(&o, big, sizeof(big), 300) <= CELLA_WINDOW + 65536);
    op_signal(&o, SIGKILL, CELLA_SCOPE_TREE);
    assert_int_equal(op_wait(&o, 10000), 0);
    assert_int_equal(o.sig, SIGKILL);
    op_fini(&o);
    op_exec(*state, &o,
            SH("trap 'echo end; exit' USR1; exec <&-; read x <&0; while :; do sleep 0.05; done"),
            &b);
    assert_int_equal(op_write(&o, big, sizeof(big), 10000), sizeof(big));
    op_signal(&o, SIGUSR1, CELLA_SCOPE_PROCESS);
    assert_int_equal(op_wait(&o, 10000), 0);
    assert_string_equal(o.out.ptr, "end\n");
    op_fini(&o);
}

static void expect_error(void **state, const char *const *argv, uint16_t tag, const char *value,
                         uint32_t err, const char *text)
{
    FIELDS b = BUF_INIT;
    struct op o;

    if (tag)
        field_add_str(&b, tag, value);
    run(*state, &o, argv, &b);
    assert_int_equal(o.type, CELLA_FRAME_ERROR);
    assert_false(o.opened);
    if (o.err_no != err || !strstr(o.msg, text))
        fail_msg("error %u '%s', expected %u '%s'", o.err_no, o.msg, err, text);
    op_fini(&o);
}

static void test_exec_errors(void **state)
{
    expect_error(state, ARGV("no-such-program"), 0, NULL, ENOENT, "no-such-program");
    expect_error(state, ARGV("/no/such/program"), 0, NULL, ENOENT, "/no/such/program");
    expect_error(state, ARGV("/etc/passwd"), 0, NULL, EACCES, "/etc/passwd");
    expect_error(state, ARGV("/usr"), 0, NULL, EACCES, "/usr");
    expect_error(state, ARGV("true"), CELLA_TAG_CWD, "/no/where", ENOENT, "/no/where");
    expect_error(state, ARGV("true"), CELLA_TAG_CWD, "usr", EINVAL, "absolute");
    expect_error(state, ARGV("true"), CELLA_TAG_USER, "nosuchuser", ENOENT, "nosuchuser");
    expect_error(state, ARGV("true"), CELLA_TAG_USER, "0:nosuchgroup", ENOENT, "nosuchgroup");
    expect_error(state, ARGV("true"), CELLA_TAG_USER, "4294967295", ENOENT, "4294967295");
    assert_alone(*state);
}

static void test_users(void **state)
{
    static const struct {
        const char *spec, *out;
    } cases[] = {{"0:0", "0 0 0\n"},
                 {"1234", "1234 1234 1234\n"},
                 {"1234:77", "1234 77 77\n"},
                 {"nobody", "65534 65534 65534\n"},
                 {"daemon:games", "1 60 60\n"}};
    size_t i;

    if (geteuid() != 0)
        skip();
    expect_error(state, ARGV("true"), CELLA_TAG_USER, "65533", EPERM, "agent's own");
    for (i = 0; i < ARRAY_LEN(cases); i++) {
        FIELDS b = BUF_INIT;
        struct op o;
        field_add_str(&b, CELLA_TAG_USER, cases[i].spec);
        run(*state, &o, SH("echo $(id -u) $(id -g) $(id -G)"), &b);
        assert_string_equal(o.out.ptr, cases[i].out);
        op_fini(&o);
    }
}

static void test_nothing_inherited(void **state)
{
    struct op o;

    run(*state, &o,
        SH("grep -E '^(Cap|NoNewPrivs|Sig[BI])' /proc/self/status | cut -f2 | sort -u | tr '\\n' ' "
           "';"
           "ls /proc/self/fd | tr '\\n' ' '; cat /proc/self/oom_score_adj;"
           "[ $(ps -o sid= -p $$) = $$ ] && echo leader; umask"),
        NULL);
    assert_string_equal(o.out.ptr, "0000000000000000 1 0 1 2 3 500\nleader\n0022\n");
    op_fini(&o);
}

static void test_rlimit(void **state)
{
    struct {
        uint32_t resource, zero;
        uint64_t soft, hard;
    } raw = {RLIMIT_NOFILE, 0, 50, 60};
    FIELDS b = BUF_INIT;
    struct op o;

    field_add(&b, CELLA_TAG_RLIMIT, &raw, sizeof(raw));
    run(*state, &o, SH("ulimit -Sn; ulimit -Hn"), &b);
    assert_string_equal(o.out.ptr, "50\n60\n");
    op_fini(&o);
}

/* A reader that gives no credit stops the command, not the agent; 50 MiB pass through a small
 * process. */
static void test_slow_reader(void **state)
{
    struct cell *c = *state;
    struct op o, other;
    size_t total = 50u << 20, want;
    long rss = 0, now;
    int i;

    op_exec(c, &o, ARGV("head", "-c", "52428800", "/dev/zero"), NULL);
    o.no_credit = 1;
    o.keep = 0;
    for (i = 0; i < 1000 && o.got < CELLA_WINDOW; i++)
        cell_turn(c, 10);
    cell_turn(c, 300);
    assert_int_equal(o.got, CELLA_WINDOW);
    assert_false(o.ended);
    run(c, &other, SH("echo alive"), NULL);
    assert_string_equal(other.out.ptr, "alive\n");
    op_fini(&other);
    while (o.got < total && !o.ended) {
        op_credit(&o, CELLA_CHANNEL_OUT, CELLA_WINDOW);
        for (want = o.got + CELLA_WINDOW; o.got < want && o.got < total && !o.ended;)
            loop_turn(c->loop, 2000000000);
        now = vm_rss_kib(c->agent);
        rss = now > rss ? now : rss;
    }
    assert_int_equal(op_wait(&o, 10000), 0);
    assert_int_equal(o.got, total);
    assert_int_equal(o.status, 0);
    assert_in_range(rss, 1, 1536);
    op_fini(&o);
}

static void test_terminal(void **state)
{
    FIELDS b = BUF_INIT, size = BUF_INIT;
    struct op o;

    field_add_u32(&b, CELLA_TAG_TTY, 1);
    field_add_u32(&b, CELLA_TAG_STDIN, 1);
    field_add_u32(&b, CELLA_TAG_ROWS, 10);
    field_add_u32(&b, CELLA_TAG_COLS, 70);
    op_exec(*state, &o,
            SH("trap 'stty size; echo winch' WINCH; tty >/dev/null && stty size; "
               "while ! read x; do :; done; cat; echo bye >&2"),
            &b);
    wait_output(&o, "10 70");
    field_add_u32(&size, CELLA_TAG_ROWS, 33);
    field_add_u32(&size, CELLA_TAG_COLS, 44);
    assert_int_equal(link_send(o.s, CELLA_FRAME_RESIZE, 0, size.ptr, size.len), 0);
    wait_output(&o, "33 44\r\nwinch");
    assert_int_equal(op_write(&o, "go\nmore\n", 8, 10000), 8);
    wait_output(&o, "more\r\nmore\r\n"); /* the terminal's echo, then cat */
    op_eof(&o);
    assert_int_equal(op_wait(&o, 10000), 0);
    assert_int_equal(o.status, 0);
    assert_non_null(strstr(o.out.ptr, "bye"));
    op_fini(&o);
}

/* Ctrl-C is the terminal's business, so the session must own it. */
static void test_terminal_interrupt(void **state)
{
    FIELDS b = BUF_INIT;
    struct op o;

    field_add_u32(&b, CELLA_TAG_TTY, 1);
    field_add_u32(&b, CELLA_TAG_STDIN, 1);
    op_exec(*state, &o, SH("echo ready; exec sleep 100"), &b);
    wait_output(&o, "ready");
    op_write(&o, "\003", 1, 10000);
    assert_int_equal(op_wait(&o, 10000), 0);
    assert_int_equal(o.sig, SIGINT);
    op_fini(&o);
}

static void test_many_at_once(void **state)
{
    enum { N = 40 };
    static struct op o[N];
    int i;

    for (i = 0; i < N; i++)
        op_exec(*state, &o[i], SH("echo hello; sleep 0.3; exit 9"), NULL);
    for (i = 0; i < N; i++) {
        assert_int_equal(op_wait(&o[i], 20000), 0);
        assert_int_equal(o[i].status, 9);
        assert_string_equal(o[i].out.ptr, "hello\n");
        op_fini(&o[i]);
    }
    assert_alone(*state);
}

static long pss_kib(pid_t pid)
{
    auto_free char *text = NULL;
    char path[64], *p;

    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    if (read_file_at(AT_FDCWD, path, 65536, &text, NULL) < 0 || !(p = strstr(text, "Pss:")))
        return -1;
    return atol(p + 4);
}

static void test_idle_size_and_speed(void **state)
{
    struct cell *c = *state;
    struct op o;
    uint64_t t;
    long pss;
    int i;

    cell_turn(c, 50);
    pss = pss_kib(c->agent);
    t = now_ns();
    for (i = 0; i < 20; i++) {
        run(c, &o, ARGV("/bin/true"), NULL);
        op_fini(&o);
    }
    printf("idle agent: %ld KiB PSS; /bin/true: %lu us each\n", pss,
           (unsigned long)((now_ns() - t) / 20000));
    assert_in_range(pss, 1, 200);
}

static void test_shutdown(void **state)
{
    struct cell *c = *state;
    struct op nice, stubborn, late;

    op_exec(c, &nice, SH("trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done"),
            NULL);
    op_exec(c, &stubborn, SH("trap '' TERM; echo up; while :; do sleep 0.05; done"), NULL);
    wait_output(&nice, "up");
    wait_output(&stubborn, "up");
    assert_int_equal(link_shutdown(c->link, 2000), 0);
    op_exec(c, &late, ARGV("true"), NULL);
    assert_int_equal(op_wait(&nice, 10000), 0);
    assert_int_equal(nice.status, 5);
    assert_false(stubborn.ended);
    assert_int_equal(cell_wait(c, &c->closed, 10000), 0);
    assert_int_equal(c->closed_code, -ECONNRESET);
    assert_int_equal(stubborn.sig, SIGKILL);
    assert_int_equal(late.err_no, ESHUTDOWN);
    op_fini(&nice);
    op_fini(&stubborn);
    op_fini(&late);
}

/* The host goes away without a word: nothing of the cell stays. */
static void test_host_gone(void **state)
{
    struct cell c;
    struct op o;
    int i;

    (void)state;
    assert_int_equal(cell_start(&c, 0), 0);
    op_exec(&c, &o, SH(DAEMONS "echo up; sleep 300"), NULL);
    wait_output(&o, "up");
    cell_stop(&c);
    for (i = 0; i < 2000 && kill((pid_t)o.pid, 0) == 0; i++)
        usleep(10000);
    assert_int_equal(kill((pid_t)o.pid, 0), -1);
    op_fini(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle_size_and_speed),
        cmocka_unit_test(test_output_and_status),
        cmocka_unit_test(test_death_by_signal),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_stdin),
        cmocka_unit_test(test_stdin_unread_and_closed),
        cmocka_unit_test(test_exec_errors),
        cmocka_unit_test(test_users),
        cmocka_unit_test(test_nothing_inherited),
        cmocka_unit_test(test_rlimit),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_terminal),
        cmocka_unit_test(test_terminal_interrupt),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_host_gone),
        cmocka_unit_test(test_shutdown), /* last: the agent is gone after it */
    };
    int r = cmocka_run_group_tests_name("as a process", tests, cell_setup, cell_teardown);

    if (geteuid() != 0) {
        printf("not root: the agent was not run as PID 1\n");
        return r;
    }
    return r + cmocka_run_group_tests_name("as PID 1", tests, cell_setup_init, cell_teardown);
}
