/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* cp_list - names a hostile cell gives for its files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail /* util.h has its own */

#include "cp_list.h"

static void test_names(void **ctx)
{
    static const struct {
        const char *name;
        size_t len;
        int safe;
    } cases[] = {
        {"a", 1, 1}, {"...", 3, 1},  {".hidden", 7, 1}, {"..a", 3, 1},
        {"", 0, 0},  {".", 1, 0},    {"..", 2, 0},      {"a/b", 3, 0},
        {"/", 1, 0}, {"../x", 4, 0}, {"a\0b", 3, 0},    {"a/", 2, 0},
    };
    char longest[256];
    size_t i;

    (void)ctx;
    for (i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(cp_name_safe(cases[i].name, cases[i].len), cases[i].safe);
    memset(longest, 'a', sizeof(longest));
    assert_int_equal(cp_name_safe(longest, 255), 1);
    assert_int_equal(cp_name_safe(longest, 256), 0);
}

static void entry(struct buf *b, const char *name, uint32_t type)
{
    auto_buf struct buf fields = BUF_INIT;
    uint8_t n[4];

    field_add_str(&fields, CELLA_TAG_NAME, name);
    field_add_u32(&fields, CELLA_TAG_TYPE, type);
    field_add_u64(&fields, CELLA_TAG_SIZE, 7);
    n[0] = (uint8_t)fields.len;
    n[1] = n[2] = n[3] = 0;
    buf_add(b, n, 4);
    buf_add(b, fields.ptr, fields.len);
}

static int count(void *ctx, const struct cp_entry *e)
{
    int *seen = ctx;

    if (!strcmp(e->name, "stop"))
        return -ECANCELED;
    assert_int_equal(e->size, 7);
    assert_int_equal(e->mode, 0644); /* when the cell gives none */
    ++*seen;
    return 0;
}

static int parse(const struct buf *b, size_t len, int *seen, struct errbuf *eb)
{
    *seen = 0;
    return cp_list_parse((const uint8_t *)b->ptr, len, count, seen, errbuf_init(eb));
}

static void test_lists(void **ctx)
{
    auto_buf struct buf b = BUF_INIT;
    struct errbuf eb;
    size_t i, whole, first;
    int seen, r;

    (void)ctx;
    entry(&b, "one", 0100000);
    first = b.len;
    entry(&b, "two", 0040000);
    whole = b.len;
    assert_int_equal(parse(&b, whole, &seen, &eb), 0);
    assert_int_equal(seen, 2);
    for (i = 1; i < whole; i++) { /* cut anywhere */
        r = parse(&b, i, &seen, &eb);
        assert_int_equal(r, i == first ? 0 : -EBADMSG);
    }
    entry(&b, "../../etc/cron.d/x", 0100000);
    assert_int_equal(parse(&b, b.len, &seen, &eb), -EBADMSG);
    assert_int_equal(seen, 2);
    b.len = whole;
    entry(&b, "stop", 0100000);
    assert_int_equal(parse(&b, b.len, &seen, &eb), -ECANCELED);
    memcpy(b.ptr, "\xff\xff\xff\xff", 4);
    assert_int_equal(parse(&b, b.len, &seen, &eb), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_lists)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
