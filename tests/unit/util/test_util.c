/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* util - sizes, durations, names, quoting of hostile strings, files put in place, trees removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include "util.h"

static char dir[64];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/test-util.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return remove_tree_at(AT_FDCWD, dir);
}

static void sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {{"0", 0}, {"512", 512}, {"64K", 65536}, {"64M", 64ull << 20}, {"1T", 1ull << 40}};
    static const char *const bad[] = {"",   "M",   "-1",   "+1",   " 1",
                                      "1 ", "1MM", "0x10", "1.5G", "1m2"};
    uint64_t v;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(parse_size(good[i].text, &v), 0);
        assert_int_equal(v, good[i].value);
    }
    for (i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(parse_size(bad[i], &v), -EINVAL);
    assert_int_equal(parse_size("99999999999999999999", &v), -ERANGE);
    assert_int_equal(parse_size("99999999T", &v), -ERANGE);
}

static void durations(void **state)
{
    uint64_t v;

    (void)state;
    assert_int_equal(parse_duration("250ms", &v), 0);
    assert_int_equal(v, 250000000u);
    assert_int_equal(parse_duration("10", &v), 0);
    assert_int_equal(v, 10000000000ull);
    assert_int_equal(parse_duration("2h", &v), 0);
    assert_int_equal(v, 7200000000000ull);
    assert_true(parse_duration("", &v) < 0);
    assert_true(parse_duration("-1s", &v) < 0);
    assert_true(parse_duration("1y", &v) < 0);
    assert_true(parse_duration("99999999999999999999d", &v) < 0);
}

static void names(void **state)
{
    char longest[65];

    (void)state;
    memset(longest, 'a', sizeof(longest));
    longest[64] = 0;
    assert_true(name_valid("a") && name_valid("A.b-c_9"));
    assert_false(name_valid("") || name_valid(".") || name_valid("-a") || name_valid("a/b"));
    assert_false(name_valid("a b") || name_valid("a\n") || name_valid(longest));
    longest[63] = 0;
    assert_true(name_valid(longest));
}

static void hostile_strings_stay_one_string(void **state)
{
    static const char in[] =
        "a\"b\\\n\x1b[31m\x7f\xff\xe2\x80\xae"; /* the last: a right-to-left mark */
    auto_buf struct buf b = BUF_INIT;
    size_t i;

    (void)state;
    assert_true(buf_json_string(&b, in, sizeof(in) - 1) >= 0);
    assert_int_equal(b.ptr[0], '"');
    assert_int_equal(b.ptr[b.len - 1], '"');
    for (i = 0; i < b.len; i++)
        assert_true((unsigned char)b.ptr[i] >= 0x20 && (unsigned char)b.ptr[i] < 0x7f);
    assert_non_null(memmem(b.ptr, b.len, "a\\\"b\\\\", 6));
    assert_non_null(memmem(b.ptr, b.len, "\\u001b[31m", 10));
}

static void replaced_file_has_the_mode_that_was_asked_for(void **state)
{
    auto_free char *path = path_join(dir, "file");
    struct stat st;
    mode_t old = umask(077);
    int r = replace_file_at(AT_FDCWD, path, "one", 3, 0644);

    (void)state;
    umask(old);
    assert_int_equal(r, 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
    assert_int_equal(replace_file_at(AT_FDCWD, path, "three", 5, 0600), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(st.st_size, 5);
}

static void removal_follows_no_link(void **state)
{
    auto_free char *victim = path_join(dir, "victim"), *kept = path_join(victim, "kept");
    auto_free char *tree = path_join(dir, "tree"), *link = path_join(tree, "link");

    (void)state;
    assert_int_equal(mkdir_p(victim, 0700), 0);
    assert_int_equal(replace_file_at(AT_FDCWD, kept, "x", 1, 0600), 0);
    assert_int_equal(mkdir_p(tree, 0700), 0);
    assert_int_equal(symlink(victim, link), 0);
    assert_int_equal(remove_tree_at(AT_FDCWD, tree), 0);
    assert_int_equal(access(tree, F_OK), -1);
    assert_int_equal(access(kept, F_OK), 0);
    assert_int_equal(remove_tree_at(AT_FDCWD, tree), 0); /* nothing there: success */
}

static void hex(void **state)
{
    static const uint8_t in[] = {0x00, 0x7f, 0xff};
    uint8_t out[3];
    char text[7];

    (void)state;
    hex_encode(in, sizeof(in), text);
    assert_string_equal(text, "007fff");
    assert_int_equal(hex_decode(text, out, sizeof(out)), 0);
    assert_memory_equal(in, out, sizeof(in));
    assert_true(hex_decode("00zz00", out, sizeof(out)) < 0);
    assert_true(hex_decode("0000", out, sizeof(out)) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(durations),
        cmocka_unit_test(names),
        cmocka_unit_test(hostile_strings_stay_one_string),
        cmocka_unit_test_setup_teardown(replaced_file_has_the_mode_that_was_asked_for, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(removal_follows_no_link, setup, teardown),
        cmocka_unit_test(hex),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
