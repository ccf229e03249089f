/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* mm: areas, their pages, limits, copies to and from a guest. */
#include "mm_world.h"

/* Pages by index, far apart and near, against an array of what is there. */
static void test_pagemap(void **state)
{
    static const uint64_t bases[] = {0, 60, 4090, 262140, 1ul << 34};
    struct pagemap map = {0};
    struct page *there[5 * 16] = {0}, *page;
    uint32_t x = 1;

    (void)state;
    for (unsigned i = 0; i < 20000; i++) {
        unsigned at;
        uint64_t index, next;

        x = x * 1664525 + 1013904223;
        at = (x >> 8) % 80;
        index = bases[at / 16] + at % 16;
        if (x >> 31 && !there[at]) {
            there[at] = page_alloc();
            assert_int_equal(pagemap_set(&map, index, there[at]), 0);
        } else if (!(x >> 31)) {
            assert_ptr_equal(pagemap_take(&map, index), there[at]);
            page_put(there[at]);
            there[at] = NULL;
        }
        assert_ptr_equal(pagemap_get(&map, index), there[at]);
        next = index;
        page = pagemap_next(&map, &next, 1ul << 35);
        while (at < 80 && !there[at])
            at++;
        assert_ptr_equal(page, at < 80 ? there[at] : NULL);
        if (page)
            assert_int_equal(next, bases[at / 16] + at % 16);
    }
    pagemap_clear(&map);
    assert_int_equal(memfile_used(), 0);
}

static void test_map_touch_unmap(void **state)
{
    struct mm *mm = current->mm;

    (void)state;
    assert_int_equal(map(A, 10 * PAGE_SIZE, RW, MM_FIXED), A);
    put(mm, A + 5, 'x');
    assert_int_equal(get(mm, A + 5), 'x');
    assert_int_equal(get(mm, A + 9 * PAGE_SIZE), 0);
    assert_int_equal(mm_unmap(mm, A + PAGE_SIZE, PAGE_SIZE), 0);
    assert_int_equal(areas(mm), 2);
    assert_null(touch(mm, A + PAGE_SIZE, PROT_READ));
    assert_int_equal(signo, SIGSEGV);
    assert_int_equal(code, SEGV_MAPERR);
    assert_int_equal(get(mm, A + 5), 'x');
    assert_int_equal(mm_unmap(mm, A, 10 * PAGE_SIZE), 0);
    assert_int_equal(fake_mappings(mm), 0);
    assert_int_equal(memfile_used(), 0);
}

static void test_zero_again(void **state)
{
    struct mm *mm = current->mm;

    (void)state;
    map(A, PAGE_SIZE, RW, MM_FIXED);
    put(mm, A, 's');
    mm_unmap(mm, A, PAGE_SIZE);
    map(A, 64 * PAGE_SIZE, RW, MM_FIXED);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(get(mm, A + i * PAGE_SIZE), 0);
}

static void test_chunks_grow(void **state)
{
    struct mm *mm = current->mm;

    (void)state;
    map(A, 1024 * PAGE_SIZE, RW, MM_FIXED);
    for (unsigned i = 0; i < 1024; i++)
        put(mm, A + i * PAGE_SIZE, 1);
    assert_true(fake_faults <= 20); /* 1024 / 64 and the first ones */
    assert_int_equal(memfile_used(), 1024 * PAGE_SIZE);
}

static void test_protect(void **state)
{
    struct mm *mm = current->mm;

    (void)state;
    map(A, 4 * PAGE_SIZE, RW, MM_FIXED);
    put(mm, A, 'a');
    put(mm, A + 2 * PAGE_SIZE, 'b');
    assert_int_equal(mm_protect(mm, A, PAGE_SIZE, PROT_READ), 0);
    assert_int_equal(areas(mm), 2);
    assert_int_equal(get(mm, A), 'a');
    assert_null(touch(mm, A, RW));
    assert_int_equal(code, SEGV_ACCERR);
    put(mm, A + 2 * PAGE_SIZE, 'c');
    assert_int_equal(mm_protect(mm, A, 4 * PAGE_SIZE, PROT_NONE), 0);
    assert_int_equal(areas(mm), 1);
    assert_null(touch(mm, A + 2 * PAGE_SIZE, PROT_READ));
    assert_int_equal(mm_protect(mm, A, 4 * PAGE_SIZE, RW), 0);
    assert_int_equal(get(mm, A), 'a');
    assert_int_equal(get(mm, A + 2 * PAGE_SIZE), 'c');
    assert_int_equal(mm_protect(mm, A + 2 * PAGE_SIZE, 4 * PAGE_SIZE, PROT_READ), -ENOMEM);
    assert_null(touch(mm, A + 2 * PAGE_SIZE, RW)); /* what was before the hole has changed */
    assert_int_equal(mm_protect(mm, A + 1, PAGE_SIZE, RW), -EINVAL);
}

static void test_no_execute(void **state)
{
    struct mm *mm = current->mm;

    (void)state;
    map(A, PAGE_SIZE, RW, MM_FIXED);
    put(mm, A, 'a');
    assert_null(touch(mm, A, PROT_EXEC));
    assert_int_equal(signo, SIGSEGV);
    assert_int_equal(code, SEGV_ACCERR);
}

static void test_max_prot(void **state)
{
    (void)state;
    mm_map(current->mm, A, PAGE_SIZE, PROT_READ, PROT_READ, MM_FIXED, NULL, NULL, 0);
    assert_int_equal(mm_protect(current->mm, A, PAGE_SIZE, RW), -EACCES);
    assert_null(touch(current->mm, A, RW));
    assert_non_null(touch(current->mm, A, PROT_READ));
}

static void test_places(void **state)
{
    struct mm *mm = current->mm;
    int64_t first, second;

    (void)state;
    first = map(0, PAGE_SIZE, RW, 0);
    assert_int_equal(first, PLATFORM_GUEST_MAX - PAGE_SIZE);
    second = map(0, PAGE_SIZE, PROT_READ, 0);
    assert_int_equal(second, first - (int64_t)PAGE_SIZE);
    assert_int_equal(map(A + 17, PAGE_SIZE, RW, 0), A); /* a hint */
    assert_int_equal(map(A, PAGE_SIZE, RW, 0), second - (int64_t)PAGE_SIZE);
    assert_int_equal(map(A, PAGE_SIZE, RW, MM_FIXED | MM_NOREPLACE), -EEXIST);
    assert_int_equal(map(A + 1, PAGE_SIZE, RW, MM_FIXED), -EINVAL);
    assert_int_equal(map(0, 0, RW, 0), -EINVAL);
    assert_int_equal(map(0, PLATFORM_GUEST_MAX, RW, 0), -ENOMEM);
    assert_int_equal(map(PLATFORM_GUEST_MAX - PAGE_SIZE, 2 * PAGE_SIZE, RW, MM_FIXED), -ENOMEM);
    assert_int_equal(map(0, PAGE_SIZE, RW, MM_FIXED), -EPERM);
    mm->top = A;
    assert_int_equal(map(0, A - PLATFORM_GUEST_MIN, RW, 0), PLATFORM_GUEST_MIN);
    assert_int_equal(map(0, PAGE_SIZE, RW, 0), -ENOMEM);
}

static void test_stack(void **state)
{
    struct mm *mm = current->mm;
    uint64_t top = A + (16ul << 20);

    (void)state;
    current->process->limits[RLIMIT_STACK].rlim_cur = 1ul << 20;
    map(top - PAGE_SIZE, PAGE_SIZE, RW, MM_FIXED | MM_GROWSDOWN | MM_STACK);
    put(mm, top - (512ul << 10), 's');
    assert_null(touch(mm, top - (1ul << 20) - 1, RW));
    assert_int_equal(signo, SIGSEGV);
    assert_int_equal(copy_out(mm, top - (1ul << 20), "k", 1), 0);
    current->process->limits[RLIMIT_STACK].rlim_cur = RLIM_INFINITY;
    map(A + (8ul << 20), PAGE_SIZE, PROT_READ, MM_FIXED);
    assert_null(touch(mm, A + (8ul << 20) + 2 * PAGE_SIZE, RW)); /* the guard gap */
    assert_non_null(touch(mm, A + (8ul << 20) + PAGE_SIZE + (1ul << 20), RW));
}

static void test_no_memory(void **state)
{
    struct mm *mm = current->mm;
    uint64_t at;

    (void)state;
    map(A, 2 * MEMORY, RW, MM_FIXED);
    for (at = A; touch(mm, at, RW); at += PAGE_SIZE)
        continue;
    assert_int_equal(signo, SIGKILL);
    assert_int_equal(at, A + MEMORY);
    assert_int_equal(copy_out(mm, at, "k", 1), -EFAULT);
    mm_unmap(mm, A, MEMORY / 2);
    assert_non_null(touch(mm, at, RW));
}

static void test_no_host_mappings(void **state)
{
    struct mm *mm = current->mm;

    (void)state;
    map(A, 64 * PAGE_SIZE, RW, MM_FIXED);
    map(2 * A, 64 * PAGE_SIZE, RW, MM_FIXED);
    put(mm, A, 'x');
    fake_change_error = -ENOMEM;
    put(mm, 2 * A, 'y');
    assert_int_equal(fake_shown(mm, A), 0); /* all were thrown away to make room */
    assert_int_equal(get(mm, A), 'x');
    assert_int_equal(get(mm, 2 * A), 'y');
}

static void test_too_many_areas(void **state)
{
    struct mm *mm = current->mm;
    unsigned i;

    (void)state;
    for (i = 0; map(A + i * 2 * PAGE_SIZE, PAGE_SIZE, RW, MM_FIXED) > 0; i++)
        continue;
    assert_int_equal(i, 65530);
    assert_int_equal(map(0, PAGE_SIZE, RW, 0), -ENOMEM);
    assert_int_equal(mm_unmap(mm, A, PAGE_SIZE), 0);
    assert_int_equal(map(A, PAGE_SIZE, RW, MM_FIXED), A);
    mm_unmap(mm, A, 8 * PAGE_SIZE);
    map(A, 3 * PAGE_SIZE, RW, MM_FIXED);
    for (i = 0; i < 3; i++)
        map(A + (4 + 2 * i) * PAGE_SIZE, PAGE_SIZE, RW, MM_FIXED);
    assert_int_equal(mm_unmap(mm, A + PAGE_SIZE, PAGE_SIZE), -ENOMEM); /* it would be one more */
}

static void test_strings_words(void **state)
{
    struct mm *mm = current->mm;
    char text[32];
    uint32_t seen;

    (void)state;
    map(A, 2 * PAGE_SIZE, RW, MM_FIXED);
    assert_int_equal(copy_out(mm, A + PAGE_SIZE - 3, "across", 7), 0);
    assert_int_equal(copy_in_string(mm, text, A + PAGE_SIZE - 3, sizeof(text)), 6);
    assert_string_equal(text, "across");
    assert_int_equal(copy_in_string(mm, text, A + PAGE_SIZE - 3, 6), -ENAMETOOLONG);
    copy_out(mm, A + 2 * PAGE_SIZE - 3, "end", 3);
    assert_int_equal(copy_in_string(mm, text, A + 2 * PAGE_SIZE - 3, sizeof(text)), -EFAULT);
    assert_int_equal(copy_in_some(mm, text, A + 2 * PAGE_SIZE - 3, 10), 3);
    assert_int_equal(copy_in(mm, text, A + 2 * PAGE_SIZE - 3, 10), -EFAULT);
    assert_int_equal(copy_in(mm, text, UINT64_MAX - 3, 10), -EFAULT);
    assert_int_equal(copy_out(mm, PLATFORM_GUEST_MAX, text, 1), -EFAULT);
    assert_int_equal(guest_word_cas(mm, A, 0, 7, &seen), 0);
    assert_int_equal(seen, 0);
    assert_int_equal(guest_word_cas(mm, A, 0, 8, &seen), 0);
    assert_int_equal(seen, 7);
    assert_int_equal(guest_word_load(mm, A, &seen), 0);
    assert_int_equal(seen, 7);
    assert_int_equal(guest_word_load(mm, A + 2, &seen), -EINVAL);
    mm_protect(mm, A, PAGE_SIZE, PROT_READ);
    assert_int_equal(guest_word_cas(mm, A, 7, 8, &seen), -EFAULT);
    assert_int_equal(copy_out(mm, A, "x", 1), -EFAULT);
}

static void test_uio(void **state)
{
    struct mm *mm = current->mm;
    struct iovec parts[3] = {{(void *)A, 3}, {(void *)(A + 100), 0}, {(void *)(A + 200), 5}};
    struct uio uio;
    char text[16];

    (void)state;
    map(A, PAGE_SIZE, RW, MM_FIXED);
    copy_out(mm, A + 1024, parts, sizeof(parts));
    assert_int_equal(uio_guest(&uio, mm, A + 1024, 3), 0);
    assert_int_equal(uio.left, 8);
    assert_int_equal(uio_to(&uio, "abcdefghij", 10), 8);
    uio_free(&uio);
    assert_int_equal(copy_in(mm, text, A + 200, 5), 0);
    assert_memory_equal(text, "defgh", 5);
    uio_one(&uio, parts, mm, A + 200, 5);
    assert_int_equal(uio_from(&uio, text, 2), 2);
    assert_int_equal(uio_from(&uio, text + 2, 10), 3);
    assert_memory_equal(text, "defgh", 5);
    uio_one(&uio, parts, mm, A + PAGE_SIZE - 2, 5);
    assert_int_equal(uio_to(&uio, "xyz", 3), 2);
    uio_one(&uio, parts, mm, A + PAGE_SIZE, 5);
    assert_int_equal(uio_to(&uio, "xyz", 3), -EFAULT);
    assert_int_equal(uio_guest(&uio, mm, A, 1025), -EINVAL);
    parts[0].iov_len = SIZE_MAX;
    copy_out(mm, A, parts, sizeof(parts));
    assert_int_equal(uio_guest(&uio, mm, A, 1), -EINVAL);
    assert_int_equal(uio_guest(&uio, mm, A + PAGE_SIZE, 1), -EFAULT);
}

/* The guard below a stack that is nearly at the beginning does not go on before it. */
static void test_low_stack(void **state)
{
    (void)state;
    assert_int_equal(map(0x20000, PAGE_SIZE, RW, MM_FIXED | MM_GROWSDOWN), 0x20000);
    assert_int_equal(map(0, PLATFORM_GUEST_MAX - 0x20000, RW, 0), -ENOMEM);
}

/* A name of a futex is none of the object that comes after its own, wherever that lies. */
static void test_futex_names(void **state)
{
    struct futex_key keys[2];
    struct object *object;
    unsigned i;

    (void)state;
    for (i = 0; i < 2; i++) {
        object = object_new(PAGE_SIZE);
        assert_int_equal(
            mm_map(current->mm, A, PAGE_SIZE, RW, RW, MM_FIXED | MM_SHARED, NULL, object, 0), A);
        assert_int_equal(futex_key(current->mm, A + 8, true, &keys[i]), 0);
        assert_int_equal(keys[i].offset, 8);
        mm_unmap(current->mm, A, PAGE_SIZE);
        object_put(object);
    }
    assert_ptr_not_equal(keys[0].base, keys[1].base);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pagemap),
        TEST(map_touch_unmap),
        TEST(zero_again),
        TEST(chunks_grow),
        TEST(protect),
        TEST(no_execute),
        TEST(max_prot),
        TEST(places),
        TEST(stack),
        TEST(no_memory),
        TEST(no_host_mappings),
        TEST(too_many_areas),
        TEST(strings_words),
        TEST(uio),
        TEST(low_stack),
        TEST(futex_names),
    };

    fake_sentry(MEMORY);
    cmocka_set_test_filter(getenv("CMOCKA_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
