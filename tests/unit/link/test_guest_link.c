/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The host's client of port 1, against a guest that is this test. Threads: one. */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>

#include "guest.h"
#include "link_internal.h"

#undef fail /* cmocka has its own */
#include <cmocka.h>

#define SECOND 1000000000ull

struct rig {
    struct loop *loop;
    struct guest *g;
    int peer, ready, closed, code;
    char why[640];
};

struct answer {
    int n, code;
    char why[640];
    struct cella_stats usage;
};

static struct rig rig;

static void on_ready(void *ctx)
{
    ((struct rig *)ctx)->ready++;
}

static void on_closed(void *ctx, int code, const char *why)
{
    struct rig *r = ctx;

    r->closed++;
    r->code = code;
    snprintf(r->why, sizeof(r->why), "%s", why);
}

static const struct guest_events events = {on_ready, on_closed};

static void on_done(void *ctx, int code, const char *why, const uint8_t *payload, size_t len)
{
    struct answer *a = ctx;

    a->n++;
    a->code = code;
    snprintf(a->why, sizeof(a->why), "%s", why);
    if (code == 0)
        guest_usage(payload, len, &a->usage);
}

static int setup(void **state)
{
    int sv[2];

    (void)state;
    rig = (struct rig){0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
    rig.peer = sv[1];
    assert_int_equal(loop_new(&rig.loop), 0);
    return guest_new(rig.loop, sv[0], &events, &rig, &rig.g);
}

static int teardown(void **state)
{
    (void)state;
    guest_free(rig.g);
    loop_free(rig.loop);
    close(rig.peer);
    return 0;
}

static void say(uint16_t type, uint32_t stream, const struct buf *fields)
{
    auto_buf struct buf b = BUF_INIT;

    frame_encode(&b, type, stream, fields ? fields->ptr : "", fields ? fields->len : 0);
    assert_int_equal(write(rig.peer, b.ptr, b.len), b.len);
}

static void hello(void)
{
    auto_buf struct buf b = BUF_INIT;

    field_add_u32(&b, CELLA_TAG_VERSION, 1);
    field_add_u32(&b, CELLA_TAG_PID, 1);
    say(CELLA_FRAME_HELLO, 0, &b);
}

/* A machine that is late may let the time pass over what there is to do: that is done all the same. */
static void turn(unsigned ms)
{
    uint64_t until = now_ns() + ms * 1000000ull, now;
    int i;

    while ((now = now_ns()) < until)
        loop_turn(rig.loop, (int64_t)(until - now));
    for (i = 0; i < 20; i++)
        loop_turn(rig.loop, 0);
}

/* The op of the next request that has arrived, and its stream; 0 = none. */
static uint32_t heard(uint32_t *stream)
{
    uint8_t head[CELLA_FRAME_HEADER], body[4096];
    uint32_t op = 0;

    if (recv(rig.peer, head, sizeof(head), MSG_DONTWAIT) != (ssize_t)sizeof(head))
        return 0;
    assert_true(le32(head) <= sizeof(body));
    assert_int_equal(recv(rig.peer, body, le32(head), MSG_WAITALL), le32(head));
    *stream = le32(head + 8);
    assert_int_equal(field_get_u32(body, le32(head), CELLA_TAG_OP, &op), 0);
    return op;
}

static void ask(uint32_t op, struct answer *a)
{
    *a = (struct answer){.usage = {.unknown = ~0u}};
    assert_int_equal(guest_send(rig.g, op, "", 0, 10 * SECOND, on_done, a), 0);
}

static void test_one_after_another(void **state)
{
    struct answer a, b;
    uint32_t stream, first;

    (void)state;
    ask(CELLA_GUEST_FREEZE, &a);
    ask(CELLA_GUEST_THAW, &b);
    turn(20);
    assert_int_equal(heard(&stream), 0); /* before HELLO nothing is sent */
    hello();
    turn(20);
    assert_int_equal(rig.ready, 1);
    assert_int_equal(heard(&first), CELLA_GUEST_FREEZE);
    assert_int_equal(heard(&stream), 0);
    say(CELLA_FRAME_RESULT, first, NULL);
    turn(20);
    assert_true(a.n == 1 && a.code == 0 && b.n == 0);
    assert_int_equal(heard(&stream), CELLA_GUEST_THAW);
    assert_int_not_equal(stream, first);
    say(CELLA_FRAME_RESULT, stream, NULL);
    turn(20);
    assert_true(b.n == 1 && b.code == 0 && !rig.closed);
}

static void test_usage(void **state)
{
    auto_buf struct buf b = BUF_INIT;
    struct answer a;
    uint32_t stream;

    (void)state;
    hello();
    ask(CELLA_GUEST_USAGE, &a);
    turn(20);
    heard(&stream);
    field_add_u64(&b, CELLA_TAG_MEMORY, 12345);
    field_add_u64(&b, CELLA_TAG_TASKS, UINT64_MAX);
    field_add_u64(&b, CELLA_TAG_LIMIT_HIT, UINT64_MAX);
    say(CELLA_FRAME_RESULT, stream, &b);
    turn(20);
    assert_int_equal(a.usage.memory_bytes, 12345);
    assert_int_equal(a.usage.pids, INT64_MAX);
    assert_int_equal(a.usage.limit_hit, 7);
    assert_int_equal(a.usage.unknown, ~(1u << 2 | 1u << 4));
}

static void test_refusal(void **state)
{
    auto_buf struct buf b = BUF_INIT;
    struct answer a;
    uint32_t stream;

    (void)state;
    hello();
    ask(CELLA_GUEST_BOOT, &a);
    turn(20);
    heard(&stream);
    field_add_u32(&b, CELLA_TAG_ERRNO, ENODEV);
    field_add(&b, CELLA_TAG_MESSAGE, "no \x1b[31mdisk\n", 13);
    say(CELLA_FRAME_ERROR, stream, &b);
    turn(20);
    assert_int_equal(a.code, -ENODEV);
    assert_string_equal(a.why, "BOOT: no ?[31mdisk?");
    assert_int_equal(rig.closed, 0);
}

static void on_steps(void *ctx, int code, const char *why, const uint8_t *payload, size_t len)
{
    uint64_t *v = ctx;

    (void)why;
    assert_int_equal(code, 0);
    v[CELLA_GUEST_STEPS] = 10 + (uint64_t)guest_steps(payload, len, v);
}

static void test_steps(void **state)
{
    static const uint64_t told[CELLA_GUEST_STEPS] = {1, 2, 2, 4, 5, 6, INT64_MAX};
    uint64_t v[CELLA_GUEST_STEPS + 1];
    uint32_t stream;
    int silent;

    (void)state;
    hello();
    for (silent = 0; silent < 2; silent++) {
        auto_buf struct buf b = BUF_INIT;
        assert_int_equal(guest_send(rig.g, CELLA_GUEST_BOOT, "", 0, 10 * SECOND, on_steps, v), 0);
        turn(20);
        heard(&stream);
        if (!silent)
            field_add(&b, CELLA_TAG_STEPS, told, sizeof(told));
        say(CELLA_FRAME_RESULT, stream, &b);
        turn(20);
        assert_int_equal(v[CELLA_GUEST_STEPS], silent ? 10 : 11);
    }
    assert_memory_equal(v, told, sizeof(told));
    assert_int_equal(rig.closed, 0);
}

/* Each ends the connection once, with the request under way. */
static void breach(uint16_t type, uint32_t plus, const struct buf *fields, uint32_t op)
{
    struct answer a;
    uint32_t stream = 0;

    assert_int_equal(setup(NULL), 0);
    hello();
    ask(op, &a);
    turn(20);
    heard(&stream);
    say(type, stream + plus, fields);
    turn(20);
    assert_int_equal(rig.closed, 1);
    assert_int_equal(rig.code, -EPROTO);
    assert_true(strlen(rig.why) > 0);
    assert_true(a.n == 1 && a.code == -EPROTO);
    assert_int_equal(guest_send(rig.g, op, "", 0, SECOND, NULL, NULL), -EPIPE);
    teardown(NULL);
}

static void test_breaches(void **state)
{
    auto_buf struct buf b = BUF_INIT, twice = BUF_INIT;

    (void)state;
    field_add_u64(&b, CELLA_TAG_MEMORY, 1);
    buf_add(&twice, b.ptr, b.len);
    buf_add(&twice, b.ptr, b.len);
    breach(CELLA_FRAME_RESULT, 1, NULL, CELLA_GUEST_THAW);
    breach(CELLA_FRAME_DATA, 0, &b, CELLA_GUEST_THAW);
    breach(CELLA_FRAME_RESULT, 0, &b, CELLA_GUEST_THAW);
    breach(CELLA_FRAME_RESULT, 0, &twice, CELLA_GUEST_USAGE);
    breach(CELLA_FRAME_ERROR, 0, NULL, CELLA_GUEST_THAW);
    breach(CELLA_FRAME_HELLO, 0, &b, CELLA_GUEST_THAW);
}

/* BOOT's answer: times that run backwards, too few, beyond what a JSON number holds, of two minds, of another request. */
static void test_steps_breaches(void **state)
{
    static const uint64_t back[CELLA_GUEST_STEPS] = {5, 6, 5, 7, 8, 9, 10},
                          beyond[CELLA_GUEST_STEPS] = {0, 0, 0, 0, 0, 0, UINT64_MAX},
                          good[CELLA_GUEST_STEPS] = {0};
    static const struct {
        const uint64_t *v;
        size_t n, times;
        uint32_t op;
    } bad[] = {{back, sizeof(back), 1, CELLA_GUEST_BOOT},
               {good, sizeof(good) - 8, 1, CELLA_GUEST_BOOT},
               {beyond, sizeof(beyond), 1, CELLA_GUEST_BOOT},
               {good, sizeof(good), 2, CELLA_GUEST_BOOT},
               {good, sizeof(good), 1, CELLA_GUEST_SETTLE}};
    size_t i, n;

    (void)state;
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        auto_buf struct buf b = BUF_INIT;
        for (n = 0; n < bad[i].times; n++)
            field_add(&b, CELLA_TAG_STEPS, bad[i].v, bad[i].n);
        breach(CELLA_FRAME_RESULT, 0, &b, bad[i].op);
    }
}

static void test_late(void **state)
{
    struct answer a = {0};

    (void)state;
    hello();
    assert_int_equal(guest_send(rig.g, CELLA_GUEST_FREEZE, "", 0, SECOND / 20, on_done, &a), 0);
    turn(200);
    assert_true(a.n == 1 && a.code == -ETIMEDOUT);
    assert_true(rig.closed == 1 && rig.code == -ETIMEDOUT);
    assert_non_null(strstr(rig.why, "FREEZE"));
}

static void test_held(void **state)
{
    struct answer a = {0}, b;
    uint32_t stream;

    (void)state;
    hello();
    assert_int_equal(guest_send(rig.g, CELLA_GUEST_FREEZE, "", 0, SECOND, on_done, &a), 0);
    turn(10);
    guest_hold(rig.g, 1);
    ask(CELLA_GUEST_THAW, &b);
    turn(1100);
    assert_true(!a.n && !rig.closed); /* no deadline runs */
    heard(&stream);
    say(CELLA_FRAME_RESULT, stream, NULL);
    turn(20);
    assert_int_equal(heard(&stream), 0);
    guest_hold(rig.g, 0);
    turn(20);
    assert_int_equal(heard(&stream), CELLA_GUEST_THAW);
}

/* The answers are on their way before the requests are. */
static void test_call(void **state)
{
    struct errbuf eb;
    struct answer a;

    (void)state;
    hello();
    say(CELLA_FRAME_RESULT, 1, NULL);
    assert_int_equal(guest_call(rig.g, CELLA_GUEST_THAW, "", 0, SECOND, NULL, errbuf_init(&eb)), 0);
    ask(CELLA_GUEST_THAW, &a);
    assert_int_equal(guest_turn(rig.g, SECOND / 20), -ETIMEDOUT);
    assert_true(!a.n && !rig.closed);
    say(CELLA_FRAME_RESULT, 2, NULL);
    assert_int_equal(guest_turn(rig.g, SECOND), 0);
    assert_true(a.n == 1 && a.code == 0 && !rig.closed);
}

static void test_call_late(void **state)
{
    struct errbuf eb;

    (void)state;
    hello();
    assert_int_equal(
        guest_call(rig.g, CELLA_GUEST_FREEZE, "", 0, SECOND / 20, NULL, errbuf_init(&eb)),
        -ETIMEDOUT);
    assert_non_null(strstr(eb.text, "FREEZE"));
    turn(20);
    assert_int_equal(rig.closed, 1);
}

static void test_skip(void **state)
{
    static const uint8_t nonce[16] = "abcabcabcabcabcd";
    struct errbuf eb;
    char next[8];
    int sv[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
    assert_int_equal(write(sv[1], "old frames abcabcabcabcabcabcdNEXT", 34), 34);
    assert_int_equal(guest_skip(sv[0], nonce, SECOND, errbuf_init(&eb)), 0);
    assert_int_equal(read(sv[0], next, sizeof(next)), 4);
    assert_memory_equal(next, "NEXT", 4);
    assert_int_equal(write(sv[1], "abcabcabcabcabcab", 17), 17);
    assert_int_equal(guest_skip(sv[0], nonce, SECOND / 20, errbuf_init(&eb)), -ETIMEDOUT);
    close(sv[1]);
    assert_int_equal(guest_skip(sv[0], nonce, SECOND, errbuf_init(&eb)), -ECONNRESET);
    close(sv[0]);
}

static void test_reset(void **state)
{
    static const uint8_t nonce[16] = "0123456789abcdef";
    struct errbuf eb;
    uint32_t stream;
    int sv[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
    assert_int_equal(guest_reset(sv[0], nonce, SECOND / 20, errbuf_init(&eb)), -ETIMEDOUT);
    assert_int_equal(write(sv[1], "old0123456789abcdef", 19), 19);
    assert_int_equal(guest_reset(sv[0], nonce, SECOND, errbuf_init(&eb)), 0);
    close(rig.peer);
    rig.peer = sv[1];
    assert_int_equal(heard(&stream), CELLA_GUEST_RESET);
    close(sv[0]);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {T(test_one_after_another),
                                       T(test_usage),
                                       T(test_refusal),
                                       cmocka_unit_test(test_breaches),
                                       cmocka_unit_test(test_steps_breaches),
                                       T(test_steps),
                                       T(test_late),
                                       T(test_held),
                                       T(test_call),
                                       T(test_call_late),
                                       T(test_skip),
                                       T(test_reset)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
