/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The control channel against a QEMU that lies, and the command line. No QEMU is started. */
#include <setjmp.h>
#include <stdarg.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "engine_qemu.h"
#include "qmp.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

#define GREET "{\"QMP\": {\"version\": {\"qemu\": {\"major\": 7, \"minor\": 2, \"micro\": 22}}}}\n"
#define OK(n) "{\"return\": {}, \"id\": " #n "}\n"

/* A QEMU that has said `script`, and reads until the end. */
static int liar(const char *script, pid_t *ret_pid)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(write_all(ends[1], script, strlen(script)), 0);
    *ret_pid = fork();
    if (*ret_pid == 0) {
        char room[4096];
        close(ends[0]);
        while (read(ends[1], room, sizeof(room)) > 0)
            ;
        _exit(0);
    }
    close(ends[1]);
    return ends[0];
}

static int opened(struct qmp *q, const char *script, struct errbuf *eb, pid_t *pid)
{
    *q = (struct qmp){.fd = -1};
    return qmp_open(q, liar(script, pid), QMP_SECOND / 2, errbuf_init(eb));
}

static void done(struct qmp *q, pid_t pid)
{
    qmp_close(q);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void test_greeting(void **state)
{
    static const struct {
        const char *script;
        int result;
    } rows[] = {
        {GREET OK(1), 0},
        {"{\"return\": {}, \"id\": 1}\n", -EBADMSG}, /* no greeting */
        {"{\"QMP\": {\"version\": {\"qemu\": {\"major\": \"7\"}}}}\n" OK(1), -EBADMSG},
        {"[1]\n", -EBADMSG},
        {"{\"QMP\": {}, \"QMP\": {}}\n", -EBADMSG}, /* twice the same name */
        {"nonsense\n", -EBADMSG},
        {GREET "{\"return\": {}, \"id\": 2}\n", -EBADMSG}, /* somebody else's answer */
        {GREET "{\"return\": {}}\n", -EBADMSG},
        {GREET "{\"id\": 1}\n", -EBADMSG},
        {GREET "{\"error\": {\"desc\": \"no\"}, \"id\": 1}\n", -EIO},
        {GREET, -ETIMEDOUT},
        {"", -ETIMEDOUT},
    };
    struct errbuf eb;
    struct qmp q;
    size_t i;
    pid_t pid;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        int r = opened(&q, rows[i].script, &eb, &pid);
        if (r != rows[i].result)
            print_error("row %zu: %d %s\n", i, r, eb.text);
        assert_int_equal(r, rows[i].result);
        if (r < 0)
            assert_int_equal(q.fd, -1);
        else
            assert_string_equal(q.version, "7.2.22");
        done(&q, pid);
    }
}

static int events;
static void on_event(void *ctx, const char *name, json_t *data)
{
    (void)ctx;
    if (!strcmp(name, "MIGRATION") && json_object_get(data, "status"))
        events++;
}

static void test_events_between(void **state)
{
    struct qmp q = {.fd = -1, .event = on_event};
    struct errbuf eb;
    json_t *v = NULL;
    pid_t pid;

    (void)state;
    events = 0;
    assert_int_equal(
        qmp_open(&q,
                 liar(GREET "{\"event\": \"MIGRATION\", \"data\": {\"status\": \"setup\"}}\n" OK(
                          1) "{\"event\": \"STOP\"}\n"
                             "{\"event\": \"MIGRATION\", \"data\": {\"status\": \"x\"}}\n"
                             "{\"return\": {\"running\": true}, \"id\": 2}\n"
                             "{\"event\": \"MIGRATION\", \"data\": {\"status\": \"y\"}}\n",
                      &pid),
                 QMP_SECOND, errbuf_init(&eb)),
        0);
    assert_int_equal(qmp_call(&q, "query-status", NULL, -1, QMP_SECOND, &v, &eb.err), 0);
    assert_true(json_is_true(json_object_get(v, "running")));
    json_decref(v);
    while (events < 3 && qmp_drain(&q) == 0)
        ;
    assert_int_equal(events, 3);
    done(&q, pid);
}

/* A message without an end is not kept. */
static void test_bounded(void **state)
{
    struct buf in = BUF_INIT;
    json_t *o = NULL;
    char *big = malloc(QMP_MESSAGE_MAX + 2);

    (void)state;
    memset(big, ' ', QMP_MESSAGE_MAX + 2);
    buf_add(&in, big, QMP_MESSAGE_MAX);
    assert_int_equal(qmp_take(&in, &o), 0);
    buf_add(&in, big, 1);
    assert_int_equal(qmp_take(&in, &o), -EFBIG);
    buf_fini(&in);
    in = (struct buf)BUF_INIT;
    big[QMP_MESSAGE_MAX - 2] = '{';
    big[QMP_MESSAGE_MAX - 1] = '}';
    big[QMP_MESSAGE_MAX] = '\n';
    buf_add(&in, big, QMP_MESSAGE_MAX + 1);
    assert_int_equal(qmp_take(&in, &o), 1);
    json_decref(o);
    assert_int_equal(in.len, 0);
    buf_fini(&in);
    free(big);
}

/* What QEMU says can end up on a terminal. */
static void test_words(void **state)
{
    struct errbuf eb;
    struct qmp q;
    char out[8];
    pid_t pid;

    (void)state;
    assert_int_equal(
        opened(&q, GREET "{\"error\": {\"desc\": \"a\\u001b[31mb\\nc\"}, \"id\": 1}\n", &eb, &pid),
        -EIO);
    assert_string_equal(eb.text, "QEMU: qmp_capabilities: a [31mb c");
    done(&q, pid);
    text_clean("0123456789", 10, out, sizeof(out));
    assert_string_equal(out, "0123456");
    text_clean("a\xff\n", 3, out, sizeof(out));
    assert_string_equal(out, "a");
}

/* An answer that is late must not be taken for the next one. */
static void test_late(void **state)
{
    struct errbuf eb;
    struct qmp q;
    pid_t pid;

    (void)state;
    assert_int_equal(opened(&q, GREET OK(1), &eb, &pid), 0);
    assert_int_equal(qmp_call(&q, "stop", NULL, -1, 1000000, NULL, &eb.err), -ETIMEDOUT);
    assert_int_equal(qmp_call(&q, "cont", NULL, -1, 1000000, NULL, &eb.err), -EPIPE);
    done(&q, pid);
}

static int has(char **v, const char *name, const char *value)
{
    size_t i;

    for (i = 0; v[i]; i++)
        if (!strcmp(v[i], name) && (!value || (v[i + 1] && strstr(v[i + 1], value))))
            return 1;
    return 0;
}

static void test_args(void **state)
{
    static const uint8_t mac[6] = {2, 0, 0, 0xab, 0, 1};
    struct guest m = {.program = "/usr/bin/q",
                      .name = "cella-x",
                      .initrd = "/i",
                      .append = "cella=1",
                      .cpu = "max",
                      .ram_bytes = 64 << 20,
                      .vcpus = 1,
                      .n_layers = 2,
                      .n_shares = 1,
                      .shares = {{"/srv/data, with=comma", 3, 0}}};
    char **v;

    (void)state;
    assert_int_equal(qemu_args(&m, &v), 0);
    assert_true(has(v, "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny"));
    assert_true(has(v, "-nodefaults", NULL) && has(v, "-no-user-config", NULL));
    assert_true(has(v, "-no-reboot", NULL) && has(v, "-S", NULL));
    assert_true(has(v, "-accel", "tcg"));
    assert_true(has(v, "-fsdev", "path=/cella/m3,security_model=none,readonly=on"));
    assert_true(has(v, "-blockdev", "node-name=root,file=rootfile,read-only=on"));
    assert_true(has(v, "-blockdev", "driver=raw,node-name=layer0,file=file0,read-only=on"));
    assert_true(has(v, "-blockdev",
                    "driver=qcow2,node-name=layer1,file=file1,backing=layer0,"
                    "read-only=off"));
    assert_false(has(v, "-netdev", NULL)); /* no network: no device */
    assert_false(has(v, "-incoming", NULL));
    qemu_args_free(v);
    m.mac = mac;
    m.kvm = 1;
    m.incoming = 1;
    m.initrd = NULL;
    m.shares[0].writable = 1;
    assert_int_equal(qemu_args(&m, &v), 0);
    assert_true(has(v, "-device", "mac=02:00:00:ab:00:01"));
    assert_true(has(v, "-accel", "kvm") && has(v, "-incoming", "defer"));
    assert_false(has(v, "-initrd", NULL));
    assert_false(has(v, "-fsdev", "readonly"));
    qemu_args_free(v);
}

/* The small board: the same devices on another bus, and the order that tells them apart. */
static void test_board(void **state)
{
    static const uint8_t mac[6] = {2, 0, 0, 0xab, 0, 1};
    struct guest m = {.program = "/usr/bin/q",
                      .name = "cella-x",
                      .board = BOARD_MICROVM,
                      .initrd = "/i",
                      .append = "cella=1",
                      .cpu = "max",
                      .ram_bytes = 64 << 20,
                      .vcpus = 1,
                      .n_layers = 1,
                      .mac = mac};
    char **v;
    size_t i;

    (void)state;
    assert_int_equal(qemu_args(&m, &v), 0);
    assert_true(has(v, "-machine", "microvm,memory-backend=ram,acpi=on"));
    assert_true(has(v, "-device", "virtio-blk-device,drive=root,serial=cella-root"));
    assert_true(has(v, "-device", "virtio-net-device,netdev=net,"));
    for (i = 0; v[i]; i++)
        if (strstr(v[i], "-pci") || strstr(v[i], "vmgenid") || strstr(v[i], "romfile"))
            fail_msg("%s: the board has no such thing", v[i]);
    qemu_args_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greeting), cmocka_unit_test(test_events_between),
        cmocka_unit_test(test_bounded),  cmocka_unit_test(test_words),
        cmocka_unit_test(test_late),     cmocka_unit_test(test_args),
        cmocka_unit_test(test_board),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
