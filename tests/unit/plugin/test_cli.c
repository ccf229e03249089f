/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* `cella plugin`: what it prints and with which status, on good plugins and on hostile ones. */
#include <fcntl.h>
#include <sys/wait.h>

#include "harness.h"

int cmd_plugin(int argc, char **argv);

static char out[65536], err_out[8192];

static void slurp(const char *path, char *to, size_t cap)
{
    auto_free char *text = NULL;

    assert_int_equal(read_file_at(AT_FDCWD, path, cap - 1, &text, NULL), 0);
    strcpy(to, text);
}

/* In a child, because plugins are looked at in this very program otherwise never. */
static int cella_plugin(const char *dir, const char *a, const char *b, const char *c)
{
    char *argv[] = {(char *)"plugin", (char *)(uintptr_t)a, (char *)(uintptr_t)b,
                    (char *)(uintptr_t)c, NULL};
    char tmp[] = "/tmp/cella-cli-XXXXXX", o[64], e[64];
    int argc = 1, status;
    pid_t pid;

    assert_non_null(mkdtemp(tmp));
    snprintf(o, sizeof(o), "%s/out", tmp);
    snprintf(e, sizeof(e), "%s/err", tmp);
    while (argv[argc])
        argc++;
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!freopen(o, "we", stdout) || !freopen(e, "we", stderr))
            _exit(99);
        setenv("CELLA_PLUGIN_DIR", dir, 1);
        status = cmd_plugin(argc, argv);
        fflush(NULL);
        _exit(status);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    slurp(o, out, sizeof(out));
    slurp(e, err_out, sizeof(err_out));
    assert_int_equal(remove_tree_at(AT_FDCWD, tmp), 0);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static unsigned lines(const char *s)
{
    unsigned n = 0;

    for (; *s; s++)
        n += *s == '\n';
    return n;
}

static void ls(void **state)
{
    json_t *j;

    (void)state;
    assert_int_equal(cella_plugin(PLUGINS_DIR, "ls", NULL, NULL), 0);
    assert_says(out, "NAME ");
    assert_says(out, "null             backend   1.0");
    assert_says(out, "floor            decider   1.0");
    assert_string_equal(err_out, "");
    assert_int_equal(cella_plugin(PLUGINS_DIR, "ls", "--json", NULL), 0);
    j = json_loads(out, 0, NULL);
    assert_true(json_array_size(j) >= 3);
    json_decref(j);
    assert_int_equal(cella_plugin("/nonexistent", "ls", NULL, NULL), 125);
    assert_says(err_out, "cannot read the plugin directory /nonexistent");
}

static void ls_hostile(void **state)
{
    (void)state;
    assert_int_equal(cella_plugin(HOSTILE_DIR, "ls", NULL, NULL), 0);
    assert_says(out, "hostile-future-major.so refused: ");
    assert_says(out, "hostile-crash-load.so refused: plugin hostile-crash-load.so");
    assert_says(out, "honest           backend");
    assert_int_equal(lines(out), HOSTILE_COUNT + 1); /* nothing twice, nothing lost */
}

static void inspect(void **state)
{
    (void)state;
    assert_int_equal(cella_plugin(PLUGINS_DIR, "inspect", "null", NULL), 0);
    assert_says(out, "name        null\n");
    assert_says(out, "usable      yes\n");
    assert_says(out, "  limit.memory     none      an example enforces no limits\n");
    assert_says(out, "  pause          optional  default: refused with EOPNOTSUPP\n");
    assert_int_equal(
        cella_plugin("/nonexistent", "inspect", PLUGINS_DIR "/cella-decider-floor.so", NULL), 0);
    assert_says(out, "  strength       enum      user-kernel (process|user-kernel|vm-emulated|vm)");
    assert_int_equal(cella_plugin(PLUGINS_DIR, "--json", "inspect", "null-enforcer"), 0);
    assert_says(out, "\"kind\": \"enforcer\"");
}

static void inspect_hostile(void **state)
{
    (void)state;
    assert_int_equal(
        cella_plugin(PLUGINS_DIR, "inspect", HOSTILE_DIR "/hostile-crash-load.so", NULL), 125);
    assert_string_equal(out, "");
    assert_says(err_out, "crashed in load (signal SIGSEGV)");
    assert_int_equal(
        cella_plugin(PLUGINS_DIR, "inspect", HOSTILE_DIR "/hostile-future-major.so", NULL), 125);
    assert_says(err_out, "built for major version 2");
    assert_int_equal(
        cella_plugin(PLUGINS_DIR, "inspect", HOSTILE_DIR "/hostile-unknown-strength.so", NULL), 0);
    assert_says(out, "usable      no: plugin unknown-strength broke the contract in probe");
}

static void bad_usage(void **state)
{
    (void)state;
    assert_int_equal(cella_plugin(PLUGINS_DIR, NULL, NULL, NULL), 125);
    assert_says(err_out, "Usage: cella plugin ls");
    assert_int_equal(cella_plugin(PLUGINS_DIR, "test", NULL, NULL), 125);
    assert_says(err_out, "unknown command \"test\"");
    assert_int_equal(cella_plugin(PLUGINS_DIR, "ls", "--wat", NULL), 125);
    assert_says(err_out, "unknown option --wat");
    assert_int_equal(cella_plugin(PLUGINS_DIR, "inspect", "no-such", NULL), 125);
    assert_says(err_out, "no plugin \"no-such\" in " PLUGINS_DIR);
    assert_int_equal(cella_plugin(PLUGINS_DIR, "inspect", "/no/such.so", NULL), 125);
    assert_says(err_out, "/no/such.so: No such file");
    assert_int_equal(cella_plugin(PLUGINS_DIR, "--help", NULL, NULL), 0);
    assert_says(out, "Usage: cella plugin ls");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ls),        cmocka_unit_test(ls_hostile),
        cmocka_unit_test(inspect),   cmocka_unit_test(inspect_hostile),
        cmocka_unit_test(bad_usage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
