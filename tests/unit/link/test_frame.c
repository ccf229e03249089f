/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* core/link/frame.c alone: fields, back-pressure in both directions, and a peer that leaves while nobody reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>

#include "link_internal.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

static char zeros[CELLA_FRAME_MAX];

/* ---- the framer alone ---- */

struct frames {
    struct framer *f;
    int n, closed, code, stop_after;
};

static int count_frame(void *ctx, const struct cella_frame *f, const uint8_t *p)
{
    struct frames *v = ctx;

    (void)f;
    (void)p;
    if (++v->n == v->stop_after)
        framer_read_enable(v->f, 0);
    return 0;
}

static void count_closed(void *ctx, int code)
{
    struct frames *v = ctx;

    v->closed++;
    v->code = code;
}

static void turns(struct loop *l)
{
    int i;

    for (i = 0; i < 20; i++)
        loop_turn(l, 0);
}

static void test_framer_back_pressure(void **state)
{
    struct frames a = {.stop_after = 2}, z = {0};
    struct loop *l;
    int sv[2], i, r = 0;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
    assert_int_equal(loop_new(&l), 0);
    assert_int_equal(framer_new(l, sv[0], 1 << 20, count_frame, count_closed, &a, &a.f), 0);
    assert_int_equal(framer_new(l, sv[1], 1 << 20, count_frame, count_closed, &z, &z.f), 0);
    for (i = 0; i < 5; i++)
        assert_int_equal(framer_send(z.f, 1, 0, 0, 0, "abc", 3), 0);
    turns(l);
    assert_int_equal(a.n, 2);
    framer_read_enable(a.f, 1);
    turns(l);
    assert_int_equal(a.n, 5);
    framer_read_enable(a.f, 0);
    for (i = 0; i < 1000 && r == 0; i++)
        r = framer_send(z.f, 1, 0, 0, 0, zeros, CELLA_FRAME_MAX);
    assert_int_equal(r, -EOVERFLOW);
    assert_true(framer_pending(z.f) <= 1 << 20);
    framer_read_enable(a.f, 1);
    for (r = 0; r < 1000 && a.n < 5 + i - 1; r++)
        loop_turn(l, 0);
    assert_int_equal(a.n, 5 + i - 1);
    assert_int_equal(framer_pending(z.f), 0);
    framer_read_enable(a.f, 0);
    assert_int_equal(framer_send(z.f, 1, 0, 0, 0, "last", 4), 0);
    framer_free(z.f); /* gone while the other does not read: what it sent is not lost */
    turns(l);
    assert_int_equal(a.closed, 0);
    framer_read_enable(a.f, 1);
    turns(l);
    assert_int_equal(a.n, 5 + i);
    assert_int_equal(a.closed, 1);
    assert_int_equal(a.code, -ECONNRESET);
    assert_int_equal(framer_send(a.f, 1, 0, 0, 0, "x", 1), -EPIPE);
    framer_free(a.f);
    loop_free(l);
}

static void test_fields(void **state)
{
    auto_buf struct buf b = BUF_INIT;
    const uint8_t *p;
    const char *s;
    struct field f;
    uint32_t v32;
    uint64_t v64;
    size_t n, pos = 0;

    (void)state;
    field_add_u32(&b, 7, 0x01020304);
    field_add_u64(&b, 8, 0x0102030405060708);
    field_add_str(&b, 9, "text");
    field_add(&b, 10, "a\0b", 3);
    p = (const uint8_t *)b.ptr;
    assert_memory_equal(p, "\7\0\0\0\4\0\0\0\4\3\2\1", 12);
    assert_int_equal(field_get_u32(p, b.len, 7, &v32), 0);
    assert_int_equal(v32, 0x01020304);
    assert_int_equal(field_get_u64(p, b.len, 8, &v64), 0);
    assert_int_equal(v64, 0x0102030405060708);
    assert_int_equal(field_get_u32(p, b.len, 8, &v32), -EBADMSG);
    assert_int_equal(field_get_u64(p, b.len, 7, &v64), -EBADMSG);
    assert_int_equal(field_get_str(p, b.len, 9, &s, &n), 0);
    assert_int_equal(n, 4);
    assert_int_equal(field_get_str(p, b.len, 10, &s, &n), -EBADMSG);
    assert_int_equal(field_get_u32(p, b.len, 11, &v32), -ENOENT);
    assert_int_equal(field_get_u32(p, b.len - 1, 11, &v32), -EBADMSG);
    while (field_next(p, b.len, &pos, &f) > 0)
        ;
    assert_int_equal(pos, b.len);
    assert_int_equal(field_next(p, 0, &(size_t){0}, &f), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_framer_back_pressure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
