/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * client - calls and sessions against a warden made of a script: a child that reads and writes
 * frames on the other end of a socket pair.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail /* util.h has its own */

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "client_int.h"

static struct client *cl;
static struct errbuf eb;
static pid_t child;
static int peer;

/* ---- the warden's side ---- */

static void put(uint16_t type, uint16_t channel, uint32_t stream, uint32_t id, const void *p,
                size_t len)
{
    struct client w = {.fd = peer};

    wire_queue(&w, type, channel, stream, id, p, len);
    if (write_all(peer, w.out.ptr, w.out.len) < 0)
        _exit(1);
    buf_fini(&w.out);
}

static void exactly(void *p, size_t n)
{
    uint8_t *at = p;

    while (n) {
        ssize_t r = read(peer, at, n);
        if (r <= 0)
            _exit(1);
        at += r;
        n -= (size_t)r;
    }
}

/* Next frame; its payload in `payload`. */
static struct cella_frame take(uint8_t payload[CELLA_FRAME_MAX])
{
    struct client *w = calloc(1, sizeof(*w));
    struct cella_frame f;
    const uint8_t *p;

    exactly(w->in, CELLA_FRAME_HEADER);
    w->in_len = CELLA_FRAME_HEADER;
    memcpy(&f.length, w->in, 4); /* the tests run on little-endian machines only */
    exactly(w->in + CELLA_FRAME_HEADER, f.length);
    w->in_len += f.length;
    if (wire_next(w, &f, &p) != 1)
        _exit(1);
    memcpy(payload, p, f.length);
    free(w);
    return f;
}

static void say(uint32_t id, const char *json)
{
    put(CELLA_FRAME_REPLY, 0, 0, id, json, strlen(json));
}

static void exit_with(uint32_t stream, uint32_t status)
{
    auto_buf struct buf b = BUF_INIT;

    field_add_u32(&b, CELLA_TAG_STATUS, status);
    put(CELLA_FRAME_EXIT, 0, stream, 0, b.ptr, b.len);
}

/* Starts `script` as the other end of `cl`. */
static void start(void (*script)(void))
{
    int s[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
    child = fork();
    if (child == 0) {
        close(s[0]);
        peer = s[1];
        alarm(60);
        script();
        _exit(0);
    }
    close(s[1]);
    cl = calloc(1, sizeof(*cl));
    cl->fd = s[0];
    cl->errfd = -1;
    cl->next_id = cl->next_stream = 1;
    alarm(80);
}

static void stop(int expected)
{
    int status;

    client_free(cl);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, expected);
}

/* ---- calls ---- */

static uint8_t got[CELLA_FRAME_MAX];

static void script_call(void)
{
    struct cella_frame f = take(got);

    got[f.length] = 0;
    if (f.type != CELLA_FRAME_CALL || !strstr((char *)got, "\"create\"") ||
        !strstr((char *)got, "\"progress\":true"))
        _exit(2);
    say(0, "{\"stage\":\"attach\",\"at\":77}");
    say(f.id, "{\"ok\":{\"name\":\"x\"}}");
    f = take(got);
    say(f.id, "{\"error\":{\"code\":-16,\"message\":\"busy\",\"exit\":124}}");
    f = take(got);
    say(f.id, "[1]");
}

static void on_stage(void *ctx, const char *stage, uint64_t at)
{
    snprintf(ctx, 32, "%s %llu", stage, (unsigned long long)at);
}

static void test_call(void **ctx)
{
    char seen[32] = "";
    json_t *r = NULL;
    int status;

    (void)ctx;
    start(script_call);
    assert_int_equal(client_call(cl, "create", NULL, &r, &status, on_stage, seen, errbuf_init(&eb)),
                     0);
    assert_string_equal(json_string_value(json_object_get(r, "name")), "x");
    assert_string_equal(seen, "attach 77");
    json_decref(r);
    assert_int_equal(client_call(cl, "start", NULL, &r, &status, NULL, NULL, errbuf_init(&eb)),
                     -EBUSY);
    assert_int_equal(status, 124);
    assert_string_equal(eb.text, "busy");
    assert_int_equal(client_call(cl, "start", NULL, &r, &status, NULL, NULL, errbuf_init(&eb)),
                     -EPROTO);
    stop(0);
}

static void script_die(void)
{
    take(got);
}

static void test_dead(void **ctx)
{
    (void)ctx;
    start(script_die);
    snprintf(cl->cell, sizeof(cl->cell), "web");
    assert_int_equal(client_call(cl, "stats", NULL, NULL, NULL, NULL, NULL, errbuf_init(&eb)),
                     -EPIPE);
    assert_non_null(strstr(eb.text, "the warden of cell web died"));
    assert_int_equal(client_call(cl, "stats", NULL, NULL, NULL, NULL, NULL, errbuf_init(&eb)),
                     -EPIPE);
    stop(0);
}

/* The warden dies under a session while a call is under way: both are told, nobody waits. */
static void script_die_later(void)
{
    take(got);
    take(got);
}

static void test_dead_later(void **ctx)
{
    struct session s = {.fields = "", .in = -1, .out = -1, .err = -1};
    struct session_end end = {.type = 0};
    json_t *r = NULL;

    (void)ctx;
    start(script_die_later);
    assert_int_equal(client_call_begin(cl, "wait", NULL, errbuf_init(&eb)), 0);
    assert_int_equal(client_session(cl, &s, &end, errbuf_init(&eb)), -EPIPE);
    assert_int_equal(end.type, 0);
    assert_int_equal(client_call_end(cl, &r, errbuf_init(&eb)), -EPIPE);
    stop(0);
}

/* The answer to a call that was sent before arrives in the middle of a session. */
static void script_later(void)
{
    uint32_t id = take(got).id, stream = take(got).stream;

    say(id, "{\"ok\":{\"ended\":\"wall\"}}");
    exit_with(stream, 0);
}

static void test_later(void **ctx)
{
    struct session s = {.fields = "", .in = -1, .out = -1, .err = -1};
    struct session_end end = {.type = 0};
    json_t *r = NULL;

    (void)ctx;
    start(script_later);
    assert_int_equal(client_call_begin(cl, "wait", NULL, errbuf_init(&eb)), 0);
    assert_int_equal(client_session(cl, &s, &end, errbuf_init(&eb)), 0);
    assert_int_equal(client_call_end(cl, &r, errbuf_init(&eb)), 0);
    assert_string_equal(json_string_value(json_object_get(r, "ended")), "wall");
    json_decref(r);
    stop(0);
}

/* ---- sessions ---- */

#define BULK (4u << 20)

/* Sends back everything from IN on OUT, by the rules of credit, and counts both ways. */
static void script_echo(void)
{
    struct cella_frame f = take(got);
    uint32_t stream = f.stream, count;
    uint64_t credit = CELLA_WINDOW, unreturned = 0;
    auto_buf struct buf b = BUF_INIT;

    if (f.type != CELLA_FRAME_OPEN)
        _exit(2);
    for (;;) {
        f = take(got);
        if (f.type == CELLA_FRAME_EOF)
            break;
        if (f.type == CELLA_FRAME_CREDIT &&
            field_get_u32(got, f.length, CELLA_TAG_COUNT, &count) == 0)
            credit += count;
        if (f.type != CELLA_FRAME_DATA)
            continue;
        unreturned += f.length;
        if (unreturned > CELLA_WINDOW)
            _exit(3);               /* more than it was given */
        while (credit < f.length) { /* wait for room */
            uint8_t more[CELLA_FRAME_MAX];
            struct cella_frame c = take(more);
            if (c.type != CELLA_FRAME_CREDIT ||
                field_get_u32(more, c.length, CELLA_TAG_COUNT, &count) < 0)
                _exit(4);
            credit += count;
        }
        put(CELLA_FRAME_DATA, CELLA_CHANNEL_OUT, stream, 0, got, f.length);
        credit -= f.length;
        b.len = 0;
        field_add_u32(&b, CELLA_TAG_COUNT, f.length);
        put(CELLA_FRAME_CREDIT, CELLA_CHANNEL_IN, stream, 0, b.ptr, b.len);
        unreturned -= f.length;
    }
    exit_with(stream, 7);
}

static void test_echo(void **ctx)
{
    int in = memfd_create("in", MFD_CLOEXEC), out = memfd_create("out", MFD_CLOEXEC);
    struct session s = {.fields = "", .in = in, .out = out, .err = -1};
    struct session_end end = {.type = 0};
    uint8_t *data = malloc(BULK), *back = malloc(BULK);
    uint32_t status, i;

    (void)ctx;
    for (i = 0; i < BULK; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 24);
    assert_int_equal(write_all(in, data, BULK), 0);
    lseek(in, 0, SEEK_SET);
    start(script_echo);
    assert_int_equal(client_session(cl, &s, &end, errbuf_init(&eb)), 0);
    assert_int_equal(end.type, CELLA_FRAME_EXIT);
    assert_int_equal(field_get_u32(end.payload, end.len, CELLA_TAG_STATUS, &status), 0);
    assert_int_equal(status, 7);
    assert_int_equal(pread(out, back, BULK, 0), BULK);
    assert_memory_equal(data, back, BULK);
    free(data);
    free(back);
    close(in);
    close(out);
    stop(0);
}

/* The reader of our output goes away: CLOSE, and a terminal frame is waited for. */
static void script_flood(void)
{
    struct cella_frame f = take(got);
    uint32_t stream = f.stream;
    static const uint8_t bulk[8192];

    put(CELLA_FRAME_DATA, CELLA_CHANNEL_OUT, stream, 0, bulk, sizeof(bulk));
    while (f.type != CELLA_FRAME_CLOSE)
        f = take(got);
    exit_with(stream, 0);
}

static void test_broken_pipe(void **ctx)
{
    struct session s = {.fields = "", .in = -1, .err = -1};
    struct session_end end = {.type = 0};
    sigset_t pending;
    int p[2];

    (void)ctx;
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    close(p[0]);
    s.out = p[1];
    start(script_flood);
    assert_int_equal(client_session(cl, &s, &end, errbuf_init(&eb)), -EPIPE);
    assert_int_equal(end.type, CELLA_FRAME_EXIT);
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGPIPE), 0); /* and we live */
    close(p[1]);
    stop(0);
}

static void test_out_max(void **ctx)
{
    int out = memfd_create("out", MFD_CLOEXEC);
    struct session s = {.fields = "", .in = -1, .out = out, .err = -1, .out_max = 4096};
    struct session_end end = {.type = 0};

    (void)ctx;
    start(script_flood);
    assert_int_equal(client_session(cl, &s, &end, errbuf_init(&eb)), -EFBIG);
    close(out);
    stop(0);
}

static void script_signal(void)
{
    uint32_t stream = take(got).stream, sig = 0;
    struct cella_frame f;

    kill(getppid(), SIGTERM);
    f = take(got);
    if (f.type != CELLA_FRAME_SIGNAL || field_get_u32(got, f.length, CELLA_TAG_SIGNAL, &sig) < 0 ||
        sig != SIGTERM)
        _exit(2);
    kill(getppid(), SIGTERM); /* again: kill it */
    if (take(got).type != CELLA_FRAME_CLOSE)
        _exit(3);
    exit_with(stream, 0);
}

static void test_signals(void **ctx)
{
    struct session s = {.fields = "", .in = -1, .out = -1, .err = -1, .forward_signals = 1};
    struct session_end end = {.type = 0};
    sigset_t before, after;
    int i;

    (void)ctx;
    sigprocmask(SIG_SETMASK, NULL, &before);
    start(script_signal);
    assert_int_equal(client_session(cl, &s, &end, errbuf_init(&eb)), 0);
    sigprocmask(SIG_SETMASK, NULL, &after);
    for (i = 1; i < NSIG; i++)
        assert_int_equal(sigismember(&before, i), sigismember(&after, i));
    stop(0);
}

/* More than the window, an unknown channel, a wrong type, a foreign stream, a frame too long. */
static unsigned offence;

static void script_offend(void)
{
    uint32_t stream = take(got).stream;
    static const uint8_t bulk[CELLA_FRAME_MAX];
    uint8_t head[CELLA_FRAME_HEADER] = {0, 0, 2};
    int i;

    switch (offence) {
    case 0:
        for (i = 0; i < 64; i++) /* nobody reads the pipe at the other end */
            put(CELLA_FRAME_DATA, CELLA_CHANNEL_OUT, stream, 0, bulk, sizeof(bulk));
        return;
    case 1:
        put(CELLA_FRAME_DATA, CELLA_CHANNEL_IN, stream, 0, bulk, 1);
        return;
    case 2:
        put(CELLA_FRAME_HELLO, 0, stream, 0, NULL, 0);
        return;
    case 3:
        put(CELLA_FRAME_DATA, CELLA_CHANNEL_OUT, stream + 5, 0, bulk, 1);
        return;
    default:
        write_all(peer, head, sizeof(head));
    }
}

static void test_offences(void **ctx)
{
    struct session s = {.fields = "", .in = -1, .err = -1};
    struct session_end end = {.type = 0};
    int p[2], status;

    (void)ctx;
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    s.out = p[1];
    for (offence = 0; offence < 5; offence++) {
        start(script_offend);
        signal(SIGPIPE, SIG_IGN);
        assert_int_equal(client_session(cl, &s, &end, errbuf_init(&eb)), -EPROTO);
        client_free(cl);
        waitpid(child, &status, 0);
    }
    close(p[0]);
    close(p[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_call),       cmocka_unit_test(test_dead),
        cmocka_unit_test(test_dead_later), cmocka_unit_test(test_later),
        cmocka_unit_test(test_echo),       cmocka_unit_test(test_broken_pipe),
        cmocka_unit_test(test_out_max),    cmocka_unit_test(test_signals),
        cmocka_unit_test(test_offences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
