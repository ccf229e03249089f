/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What surrounds each call: results, messages, probe answers, stray descriptors and output. */
#include <fcntl.h>
#include <limits.h>
#include <sys/wait.h>

#include "harness.h"

static struct plugin_runtime rt = {.host = &test_host};
static struct plugin plug = {.kind = CELLA_KIND_BACKEND, .name = "plug", .rt = &rt};

/* ---- results and messages ---- */
static int64_t finish(int64_t r, const char *said, struct errbuf *eb)
{
    struct call c;
    struct cella_error *own = call_begin(&c, &plug, "poke", SECOND_NS);

    if (said)
        cella_error_set(own, (int)r, 9, "%s", said);
    return call_end(&c, r, errbuf_init(eb));
}

static void results(void **state)
{
    struct errbuf eb;
    struct call c;

    (void)state;
    assert_int_equal(finish(0, "ignored on success", &eb), 0);
    assert_string_equal(eb.text, "");
    assert_int_equal(finish(-EBUSY, "mount is busy", &eb), -EBUSY);
    assert_string_equal(eb.text, "plug: poke: mount is busy");
    assert_int_equal(eb.err.step, 9);
    assert_int_equal(finish(-EBUSY, NULL, &eb), -EBUSY);
    assert_says(eb.text, "plug: poke failed: Device or resource busy (it gave no message)");
    assert_int_equal(finish(EBUSY, "x", &eb), -EPROTO);
    assert_says(eb.text, "plugin plug broke the contract in poke: it returned 16 (positive");
    assert_int_equal(finish(100000, NULL, &eb), -EPROTO);
    assert_int_equal(finish(-4096, NULL, &eb), -EPROTO);
    assert_int_equal(finish(INT64_MIN, NULL, &eb), -EPROTO);
    assert_int_equal(finish(-4095, NULL, &eb), -4095);
    call_begin(&c, &plug, "reap", SECOND_NS);
    assert_int_equal(call_end_count(&c, 12, NULL), 12);
}

/* A message without an end does not run out of the host's buffer. */
static void endless_message(void **state)
{
    struct errbuf eb;
    struct call c;

    (void)state;
    call_begin(&c, &plug, "poke", SECOND_NS);
    memset(c.eb.text, 'y', sizeof(c.eb.text));
    assert_int_equal(call_end(&c, -EIO, errbuf_init(&eb)), -EIO);
    assert_true(strlen(eb.text) < sizeof(eb.text));
    assert_says(eb.text, "plug: poke: yyyy");
}

static void small_checks(void **state)
{
    char array[8] = "abc";
    int fd = open("/dev/null", O_RDONLY);

    (void)state;
    assert_true(text_array_ok(array, 8));
    array[1] = '\n';
    assert_false(text_array_ok(array, 8));
    memset(array, 'a', 8);
    assert_false(text_array_ok(array, 8));
    assert_int_equal(fd_take_check(fd), 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    assert_int_equal(fd_take_check(fd), -EBADF);
    assert_int_equal(fd_take_check(-1), -EBADF);
    assert_int_equal(fd_take_check(2), -EBADF);
}

/* ---- probe answers ---- */
static void answers(void **state)
{
    static const struct {
        const char *name;
        uint32_t answer;
        const char *reason, *says;
    } bad[] = {
        {NULL, CELLA_NATIVE, NULL, "without a valid name"},
        {"Pause", CELLA_NATIVE, NULL, "without a valid name"},
        {"0123456789012345678901234567890123456789012345678", CELLA_NATIVE, NULL, "valid name"},
        {"pause", 0, "x", "unknown answer (0)"},
        {"pause", CELLA_NONE, NULL, "is none without a reason"},
        {"pause", CELLA_EMULATED, "", "is emulated without a reason"},
        {"twice", CELLA_NATIVE, NULL, "twice twice"},
    };
    struct cella_probe_report rep;
    struct probe_result out;
    struct probe_sink sink;
    char name[16];
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        probe_sink_init(&sink, &out, &rep);
        rep.capability(rep.ctx, "twice", CELLA_EMULATED, "line\nbreak");
        assert_string_equal(probe_find(&out, "twice")->reason, "line break");
        rep.capability(rep.ctx, bad[i].name, bad[i].answer, bad[i].reason);
        assert_int_equal(sink.bad.err.code, -EPROTO);
        assert_says(sink.bad.text, bad[i].says);
        assert_int_equal(out.n_caps, 1);
    }
    probe_sink_init(&sink, &out, &rep);
    for (i = 0; i < ARRAY_LEN(out.caps) + 1; i++) {
        snprintf(name, sizeof(name), "cap%zu", i);
        rep.capability(rep.ctx, name, CELLA_NATIVE, NULL);
    }
    assert_int_equal(out.n_caps, ARRAY_LEN(out.caps));
    assert_says(sink.bad.text, "more than 48 capabilities");
    assert_null(probe_find(NULL, "x"));
}

/* ---- stray things; each in a child, because they change the process ---- */
static void in_child(int (*fn)(void))
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(fn());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        fail_msg_("step %d failed: %s", WEXITSTATUS(status), host_log);
}

#define STEP(n, cond)                                                                              \
    do {                                                                                           \
        if (!(cond))                                                                               \
            return n;                                                                              \
    } while (0)

static void call_once(void (*inside)(void), int hot)
{
    struct call c;

    call_begin(&c, &plug, "poke", SECOND_NS);
    c.hot = hot;
    inside();
    call_end(&c, 0, NULL);
}

static void nothing(void)
{
}

static void leak(void)
{
    (void)!open("/dev/null", O_RDONLY);
}

static int descriptors(void)
{
    int inherited = open("/dev/zero", O_RDONLY), before[64], i;

    host_log[0] = 0;
    for (i = 0; i < 64; i++)
        before[i] = fcntl(i, F_GETFD);
    stray_baseline();
    call_once(nothing, 0);
    STEP(1, !host_log[0] && !(fcntl(inherited, F_GETFD) & FD_CLOEXEC)); /* was there before */
    call_once(leak, 0);
    STEP(2, strstr(host_log, "left 1 descriptor without close-on-exec in poke"));
    host_log[0] = 0;
    call_once(nothing, 0);
    STEP(3, !host_log[0]);
    for (i = 0; i < 40; i++)
        call_once(leak, 0);
    for (i = 0; i < 64; i++) /* all of them, said or not */
        STEP(4, before[i] == 0 || fcntl(i, F_GETFD) != 0);
    rt.stray_said = rt.hot_calls = 0;
    host_log[0] = 0;
    for (i = 0; i < 8; i++)
        call_once(nothing, 1);
    call_once(leak, 1); /* a frequent operation is looked at now and then */
    STEP(5, !host_log[0]);
    for (i = 0; i < 64; i++)
        call_once(nothing, 1);
    STEP(6, strstr(host_log, "left 1 descriptor"));
    return 0;
}

static void shout(void)
{
    printf("hello \"quoted\" \033[2J");
}

static void flood(void)
{
    static char block[4096];
    int i;

    memset(block, 'z', sizeof(block));
    for (i = 0; i < 64; i++)
        (void)!write(1, block, sizeof(block));
}

static int output(void)
{
    host_log[0] = 0;
    STEP(1, plugin_stdio_guard() == 0);
    call_once(nothing, 0);
    STEP(2, !host_log[0]);
    call_once(shout, 0);
    STEP(3, strstr(host_log, "plugin plug wrote 19 bytes to the standard streams in poke: "
                             "\"hello \\\"quoted\\\" \\u001b[2J\""));
    host_log[0] = 0;
    call_once(nothing, 0);
    STEP(4, !host_log[0]);
    call_once(flood, 0); /* bounded, and nobody waits for a reader */
    STEP(5, strstr(host_log, "wrote 65536 bytes"));
    STEP(6, read(0, host_log, 1) == 0);
    return 0;
}

/* Said as soon as there is somebody to say it to. */
static int pending(void)
{
    host_log[0] = 0;
    rt.host = NULL;
    stray_baseline();
    call_once(leak, 0);
    STEP(1, !host_log[0] && rt.pending[0]);
    plugin_host_seen(&plug, &test_host);
    STEP(2, strstr(host_log, "left 1 descriptor") && !rt.pending[0]);
    return 0;
}

static void strays(void **state)
{
    (void)state;
    in_child(descriptors);
    in_child(output);
    in_child(pending);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results),      cmocka_unit_test(endless_message),
        cmocka_unit_test(small_checks), cmocka_unit_test(answers),
        cmocka_unit_test(strays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
