/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* args - command lines to values, and the words of refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail /* util.h has its own */

#include "args.h"

static const char *const names[] = {"memory", "cpus",        "pids", "timeout", "env",
                                    "name",   "interactive", "tty",  "backend", NULL};
static const struct verb run = {.name = "run",
                                .operands = "CMD",
                                .summary = "s",
                                .opts = names,
                                .min = 1,
                                .max = -1,
                                .command = 1};
static const struct verb exec = {.name = "exec",
                                 .operands = "CELL CMD",
                                 .summary = "s",
                                 .opts = names,
                                 .min = 2,
                                 .max = -1,
                                 .command = 2};
static const struct verb ps = {
    .name = "ps", .operands = "[X]", .summary = "s", .opts = names, .max = 1};

static struct options o;
static struct errbuf eb;
static char **operands;
static int n;

static int parse(const struct verb *v, const char *const *words)
{
    static char *argv[32];
    int argc = 0;

    options_fini(&o);
    memset(&o, 0, sizeof(o));
    argv[argc++] = (char *)(uintptr_t)v->name;
    while (words[argc - 1]) {
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
        argc++;
    }
    return args_parse(v, argc, argv, &o, &n, &operands, errbuf_init(&eb));
}
#define PARSE(v, ...) parse(&(v), (const char *const[]){__VA_ARGS__, NULL})

static void test_values(void **ctx)
{
    (void)ctx;
    assert_int_equal(PARSE(run, "--memory=64M", "--cpus", "0.5", "--pids", "32", "--timeout",
                           "1500ms", "--name", "x", "ls"),
                     0);
    assert_int_equal(o.memory, 64 << 20);
    assert_int_equal(o.cpu_millis, 500);
    assert_int_equal(o.pids, 32);
    assert_int_equal(o.timeout, 1500000000);
    assert_string_equal(o.name, "x");
    assert_int_equal(n, 1);
    assert_string_equal(operands[0], "ls");
}

static void test_letters(void **ctx)
{
    (void)ctx;
    assert_int_equal(PARSE(run, "-it", "-eA=1", "-e", "B=2", "--env=C=3", "sh"), 0);
    assert_true(o.interactive && o.tty);
    assert_int_equal(o.env.n, 3);
    assert_string_equal(o.env.v[0], "A=1");
    assert_string_equal(o.env.v[2], "C=3");
}

/* What follows the first word of a command is the command's own. */
static void test_command(void **ctx)
{
    (void)ctx;
    assert_int_equal(PARSE(run, "-i", "ls", "-t", "--memory", "x"), 0);
    assert_int_equal(n, 4);
    assert_int_equal(o.tty, 0);
    assert_int_equal(PARSE(run, "--", "--name"), 0);
    assert_string_equal(operands[0], "--name");
    assert_int_equal(PARSE(exec, "cell", "-i", "ls", "-t"), 0);
    assert_int_equal(n, 3);
    assert_true(o.interactive && !o.tty);
    assert_string_equal(operands[2], "-t");
    assert_int_equal(PARSE(exec, "cell", "--", "-x"), 0);
    assert_string_equal(operands[1], "-x");
    assert_int_equal(PARSE(ps, "a", "-i"), 0); /* elsewhere options may follow */
    assert_int_equal(n, 1);
    assert_int_equal(PARSE(run, "-", "x"), 0); /* a lone dash is a word */
    assert_string_equal(operands[0], "-");
}

static void refused(int r, const char *words)
{
    assert_int_equal(r, -EINVAL);
    if (!strstr(eb.text, words)) {
        print_error("\"%s\" lacks \"%s\"\n", eb.text, words);
        _fail(__FILE__, __LINE__);
    }
}

static void test_refusals(void **ctx)
{
    (void)ctx;
    refused(PARSE(run, "--bakend", "x", "ls"), "unknown flag --bakend (did you mean --backend?)");
    refused(PARSE(run, "--zzzzzzzz", "ls"), "run --help");
    refused(PARSE(run, "-q", "ls"), "unknown flag -q");
    refused(PARSE(run, "--memory"), "needs a value");
    refused(PARSE(run, "-e"), "needs a value");
    refused(PARSE(run, "--tty=yes", "ls"), "takes no value");
    refused(PARSE(run, "--memory", "12X", "ls"), "a size such as");
    refused(PARSE(run, "--memory", "0", "ls"), "a size such as");
    refused(PARSE(run, "--timeout", "soon", "ls"), "a time such as");
    refused(PARSE(run, "--pids", "0", "ls"), "above 0");
    refused(PARSE(run, "--pids", "-1", "ls"), "above 0");
    refused(PARSE(run, "--cpus", "0", "ls"), "CPUs");
    refused(PARSE(run, "--cpus", "1.x", "ls"), "CPUs");
    refused(PARSE(run, "--mem=1G", "ls"), "unknown flag --mem"); /* no abbreviations */
    refused(PARSE(run, "-i"), "expected: cella run CMD");
    refused(PARSE(ps, "a", "b"), "one argument too many");
    assert_int_equal(PARSE(run, "--help"), 0);
    assert_true(o.help);
}

static void test_table(void **ctx)
{
    const struct opt *a, *b;
    size_t i, j;

    (void)ctx;
    for (i = 0; (a = opt_at(&run, i)); i++) {
        assert_true(a->kind == OPT_FLAG ? !a->arg : a->arg != NULL);
        for (j = 0; j < i && (b = opt_at(&run, j)); j++)
            assert_false(a->letter && a->letter == b->letter);
    }
    assert_int_equal(i, 10); /* the names above, and --help */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),  cmocka_unit_test(test_letters),
        cmocka_unit_test(test_command), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_table),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);

    options_fini(&o);
    return r;
}
