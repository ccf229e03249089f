/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The names of a cell: addresses in order, for good and bounded; pins and cached answers that expire.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "../ledger.h"
#include "gate.h"

static uint64_t now = 1;

uint64_t watch_now(void)
{
    return now;
}

#define SECS 1000000000ull

/* First: the others live in what is left of the pool. */
static void test_pins(void **state)
{
    struct name *a = name_get("a.example"), *b = name_get("b.example");
    unsigned at = 0, i;

    (void)state;
    assert_int_equal(pin_add(0xcb007101u, a, 60), 0);
    assert_int_equal(pin_add(0xcb007101u, b, 120), 0);
    assert_ptr_equal(pin_next(0xcb007101u, &at), a);
    assert_ptr_equal(pin_next(0xcb007101u, &at), b);
    assert_null(pin_next(0xcb007101u, &at));
    at = 0;
    assert_null(pin_next(0xcb007102u, &at));
    now += 61 * SECS;
    at = 0;
    assert_ptr_equal(pin_next(0xcb007101u, &at), b);
    assert_int_equal(pin_add(0xcb007101u, b, 60), 0); /* again: from now on */
    now += 59 * SECS;
    at = 0;
    assert_ptr_equal(pin_next(0xcb007101u, &at), b);
    now += 2 * SECS;
    at = 0;
    assert_null(pin_next(0xcb007101u, &at));
    for (i = 0; i < 4096; i++)
        assert_int_equal(pin_add(0xcb000000u + i, a, 60), 0);
    assert_int_equal(pin_add(0xcc000000u, a, 60), -1);
    now += 61 * SECS; /* room again */
    assert_int_equal(pin_add(0xcc000000u, a, 60), 0);
}

static void test_cache(void **state)
{
    struct name *n = name_get("c.example");
    uint32_t addrs[ADDRS_MAX] = {1, 2, 3}, got[ADDRS_MAX], ttl;

    (void)state;
    assert_int_equal(name_cached(n, got, &ttl), 0);
    name_cache(n, addrs, 3, 10);
    assert_int_equal(name_cached(n, got, &ttl), 3);
    assert_int_equal(got[2], 3);
    now += 10 * SECS;
    assert_int_equal(name_cached(n, got, &ttl), 0);
    name_cache(n, addrs, 3, 86400); /* never longer than half a minute */
    now += 29 * SECS;
    assert_int_equal(name_cached(n, got, &ttl), 3);
    now += 2 * SECS;
    assert_int_equal(name_cached(n, got, &ttl), 0);
    name_cache(n, addrs, 3, 0);
    assert_int_equal(name_cached(n, got, &ttl), 0);
}

static void test_suspect(void **state)
{
    size_t longest;

    (void)state;
    assert_false(name_suspect("www.example.com", &longest));
    assert_int_equal(longest, 7);
    assert_false(name_suspect("5d41402abc4b2a76b9719d911017c592aabbccdd.example", &longest));
    assert_false(name_suspect("123e4567-e89b-12d3-a456-426614174000.example", &longest));
    assert_false(name_suspect("my-very-long-bucket-name-for-the-team.s3.example", &longest));
    assert_true(name_suspect("mzxw6ytboi2gk3thk5qxg43xn5zgi4tf.example", &longest));
    assert_true(name_suspect("x.ge2tgnrqgu4dmnzxhezdamjsgm2tmnzyhe4wc.example", &longest) ||
                longest == 39);
}

static void test_pool(void **state)
{
    static const char *const first[] = {"a.example", "b.example", "c.example"};
    char text[32];
    uint32_t i;

    (void)state;
    for (i = 0; i < 3; i++)
        assert_int_equal(name_addr(name_get(first[i])), POLICY_SYNTHETIC_LO + 1 + i);
    assert_null(name_known("n3.example"));
    for (i = 3; i < NAMES_MAX; i++) {
        snprintf(text, sizeof(text), "n%u.example", i);
        assert_int_equal(name_addr(name_get(text)), POLICY_SYNTHETIC_LO + 1 + i);
    }
    assert_null(name_get("one-more.example"));
    assert_int_equal(name_addr(name_get("n77.example")), POLICY_SYNTHETIC_LO + 78);
    assert_string_equal(name_text(name_at(POLICY_SYNTHETIC_LO + 78)), "n77.example");
    assert_null(name_at(POLICY_SYNTHETIC_LO));
    assert_null(name_at(POLICY_SYNTHETIC_LO + 1 + NAMES_MAX));
    assert_null(name_at(POLICY_SYNTHETIC_LO - 1));
    assert_null(name_at(0));
}

/* What a gate finds that takes the place of another: the same names at the same addresses, or nothing at all. Last: the
   pool is full of the test before. */
static void test_ledger(void **state)
{
    struct ledger *l =
        mmap(NULL, sizeof(*l), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static const char *const bad[] = {"",  "Upper.example", "a..example", "a.example.",
                                      "a", "a.example"}; /* the last: there already */
    size_t i;

    (void)state;
    assert_ptr_not_equal(l, MAP_FAILED);
    l->n_names = LEDGER_NAMES_MAX + 1;
    assert_int_equal(names_restore(l), -1);
    l->n_names = 1;
    memset(l->names[0], 'a', sizeof(l->names[0])); /* without an end */
    assert_int_equal(names_restore(l), -1);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        strcpy(l->names[0], bad[i]);
        assert_int_equal(names_restore(l), -1);
    }
    l->n_names = 0;
    assert_int_equal(names_restore(l), 0);
    munmap(l, sizeof(*l));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pins), cmocka_unit_test(test_cache),  cmocka_unit_test(test_suspect),
        cmocka_unit_test(test_pool), cmocka_unit_test(test_ledger),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
