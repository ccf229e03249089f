/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* mm: pages that several have: copy on write, shared memory, what a file backs, and what the host shows of them. */
#include "mm_world.h"

static void test_fork(void **state)
{
    struct mm *mm = current->mm, *child;

    (void)state;
    map(A, 4 * PAGE_SIZE, RW, MM_FIXED);
    put(mm, A, 'p');
    assert_int_equal(mm_fork(mm, &child), 0);
    assert_int_equal(get(mm, A), 'p');
    assert_int_equal(fake_shown(mm, A), PROT_READ); /* shared: not to be written */
    put(mm, A, 'q');
    fake_enter(child);
    assert_int_equal(get(child, A), 'p');
    put(child, A, 'c');
    fake_enter(mm);
    assert_int_equal(get(mm, A), 'q');
    fake_enter(NULL);
    mm_put(child);
    fake_enter(mm);
    assert_int_equal(mm_unmap(mm, A, 4 * PAGE_SIZE), 0);
    map(A, PAGE_SIZE, RW, MM_FIXED);
    put(mm, A, 'r');
    mm_fork(mm, &child);
    mm_put(child);
    put(mm, A, 's'); /* alone again: not copied */
    assert_true(memfile_used() <= 4 * PAGE_SIZE);
}

/* The same write after each of many forks is no riddle. */
/* What a fork leaves shown: small data of the parent, not to be written; the text of the parent in the child. */
static void test_fork_shows(void **state)
{
    struct object *text = object_new(PAGE_SIZE);
    struct mm *mm = current->mm, *child;

    (void)state;
    mm_map(mm, A, PAGE_SIZE, PROT_READ, RWX, MM_FIXED, NULL, text, 0);
    map(2 * A, PAGE_SIZE, RW, MM_FIXED);
    map(3 * A, 300 * PAGE_SIZE, RW, MM_FIXED);
    get(mm, A);
    put(mm, 2 * A, 'd');
    put(mm, 3 * A, 'e');
    mm_fork(mm, &child);
    assert_int_equal(fake_shown(mm, A), PROT_READ);
    assert_int_equal(fake_shown(mm, 2 * A), PROT_READ);
    assert_int_equal(fake_shown(mm, 3 * A), 0);
    fake_enter(child);
    mm_boundary(child);
    assert_int_equal(fake_shown(child, A), PROT_READ);
    assert_int_equal(fake_shown(child, 2 * A), 0);
    fake_enter(mm);
    mm_put(child);
    object_put(text);
}

static void test_fork_again_and_again(void **state)
{
    struct mm *mm = current->mm, *child;
    unsigned i;

    (void)state;
    map(A, PAGE_SIZE, RW, MM_FIXED);
    for (i = 0; i < 100; i++) {
        put(mm, A, (char)i);
        mm_fork(mm, &child);
        assert_int_equal(get(mm, A), (char)i);
        put(mm, A, 'x');
        mm_put(child);
    }
}

/* Pages that are copied ahead are shown, or not at all, never as they were. */
static void test_fork_writes_on(void **state)
{
    struct mm *mm = current->mm, *child;
    unsigned i;

    (void)state;
    map(A, 256 * PAGE_SIZE, RW, MM_FIXED);
    for (i = 0; i < 256; i++)
        put(mm, A + i * PAGE_SIZE, 'p');
    mm_fork(mm, &child);
    for (i = 0; i < 256; i++)
        assert_int_equal(get(mm, A + i * PAGE_SIZE), 'p'); /* shown as they are shared */
    fake_faults = 0;
    for (i = 0; i < 250; i++) {
        char byte = 'k';

        put(mm, A + i * PAGE_SIZE, 'q');
        assert_int_equal(copy_out(mm, A + (i + 6) * PAGE_SIZE, &byte, 1), 0);
        assert_int_equal(get(mm, A + (i + 6) * PAGE_SIZE), 'k');
        assert_int_equal(copy_in(child, &byte, A + i * PAGE_SIZE, 1), 0);
        assert_int_equal(byte, 'p');
    }
    mm_put(child);
    mm_fork(mm, &child);
    fake_faults = 0;
    for (i = 0; i < 256; i++)
        put(mm, A + i * PAGE_SIZE, 'r');
    assert_true(fake_faults < 64);
    mm_put(child);
}

static void test_fork_kernel_writes(void **state)
{
    struct mm *mm = current->mm, *child;
    char byte = 0;

    (void)state;
    map(A, PAGE_SIZE, RW, MM_FIXED);
    put(mm, A, 'p');
    mm_fork(mm, &child);
    assert_int_equal(get(mm, A), 'p');
    assert_int_equal(copy_out(mm, A, "k", 1), 0);
    assert_int_equal(get(mm, A), 'k'); /* the host does not show the old page */
    assert_int_equal(copy_in(child, &byte, A, 1), 0);
    assert_int_equal(byte, 'p');
    mm_put(child);
}

static void test_shared(void **state)
{
    struct object *object = object_new(4 * PAGE_SIZE);
    struct mm *mm = current->mm, *child;

    (void)state;
    assert_int_equal(mm_map(mm, A, 8 * PAGE_SIZE, RW, RWX, MM_FIXED | MM_SHARED, NULL, object, 0),
                     A);
    put(mm, A, 'a');
    assert_null(touch(mm, A + 4 * PAGE_SIZE, PROT_READ)); /* past its end */
    assert_int_equal(signo, SIGBUS);
    assert_int_equal(code, BUS_ADRERR);
    mm_fork(mm, &child);
    fake_enter(child);
    put(child, A, 'b');
    fake_enter(mm);
    assert_int_equal(get(mm, A), 'b');
    mm_put(child);
    object_put(object);
}

static void test_truncate_hides(void **state)
{
    struct object *object = object_new(4 * PAGE_SIZE);
    struct mm *mm = current->mm, *child;

    (void)state;
    mm_map(mm, A, 4 * PAGE_SIZE, RW, RWX, MM_FIXED | MM_SHARED, NULL, object, 0);
    put(mm, A + 3 * PAGE_SIZE, 'z');
    put(mm, A + 10, 'y');
    mm_fork(mm, &child);
    fake_enter(child);
    put(child, A + 3 * PAGE_SIZE, 'w');
    fake_enter(mm);
    assert_int_equal(object_truncate(object, 8), 0);
    assert_int_equal(fake_shown(mm, A + 3 * PAGE_SIZE), 0); /* its own: at once */
    assert_null(touch(mm, A + 3 * PAGE_SIZE, PROT_READ));
    assert_int_equal(signo, SIGBUS);
    assert_int_equal(get(mm, A + 10), 0);
    fake_enter(child);
    assert_true(fake_shown(child, A + 3 * PAGE_SIZE));
    mm_boundary(child); /* owed */
    assert_int_equal(fake_shown(child, A + 3 * PAGE_SIZE), 0);
    fake_enter(mm);
    assert_int_equal(object_truncate(object, 4 * PAGE_SIZE), 0);
    assert_int_equal(get(mm, A + 3 * PAGE_SIZE), 0);
    mm_put(child);
    object_put(object);
}

/* Pages behind a stretch that has none are found by their own number: what is cut is cut, and the rest stays. */
static void test_pages_after_a_gap(void **state)
{
    struct object *object = object_new(200 * PAGE_SIZE);
    unsigned i;
    char byte;

    (void)state;
    for (i = 0; i < 3; i++)
        assert_int_equal(object_write(object, i * 64 * PAGE_SIZE, "abc" + i, 1), 1);
    assert_int_equal(object_seek_data(object, 10 * PAGE_SIZE, false), 64 * PAGE_SIZE);
    assert_int_equal(object_seek_data(object, 70 * PAGE_SIZE, false), 128 * PAGE_SIZE);
    assert_int_equal(object_punch(object, 10 * PAGE_SIZE, 60 * PAGE_SIZE), 0);
    assert_int_equal(object->resident, 2);
    assert_int_equal(object_read(object, 64 * PAGE_SIZE, &byte, 1), 1);
    assert_int_equal(byte, 0);
    assert_int_equal(object_read(object, 128 * PAGE_SIZE, &byte, 1), 1);
    assert_int_equal(byte, 'c');
    object_put(object);
}

/* While another runs that still shows a page, the page is no one else's. */
static void test_quarantine(void **state)
{
    struct object *object = object_new(PAGE_SIZE);
    struct task other = {0};
    struct mm *mm = current->mm, *child;

    (void)state;
    mm_map(mm, A, PAGE_SIZE, RW, RWX, MM_FIXED | MM_SHARED, NULL, object, 0);
    put(mm, A, 'z');
    mm_fork(mm, &child);
    fake_enter(child);
    put(child, A, 'w');
    other = (struct task){.mm = child, .in_guest = true, .host_context = current->host_context};
    current->host_context = NULL;
    fake_enter(mm);
    TAILQ_INSERT_TAIL(all_tasks, &other, link);
    object_truncate(object, 0);
    assert_int_equal(fake_interrupts, 1);
    assert_int_equal(memfile_used(), PAGE_SIZE); /* still */
    TAILQ_REMOVE(all_tasks, &other, link);
    platform->release_context(current->host_context);
    current->host_context = other.host_context;
    current->mm = child;
    mm_boundary(child);
    assert_int_equal(fake_shown(child, A), 0);
    assert_int_equal(memfile_used(), 0);
    fake_enter(mm);
    mm_put(child);
    object_put(object);
}

static int file_of(const char *text, size_t size)
{
    int fd = memfd_create("image", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    return fd;
}

static void test_backed_private(void **state)
{
    struct object *object = object_new_backed(file_of("image", 3 * PAGE_SIZE), 3 * PAGE_SIZE);
    struct mm *mm = current->mm;
    char bytes[8];

    (void)state;
    mm_map(mm, A, 3 * PAGE_SIZE, RW, RWX, MM_FIXED, NULL, object, 0);
    mm_map(mm, A + 3 * PAGE_SIZE, 3 * PAGE_SIZE, PROT_READ, RWX, MM_FIXED, NULL, object, 0);
    assert_int_equal(get(mm, A + 3 * PAGE_SIZE), 'i');
    assert_int_equal(get(mm, A + 5 * PAGE_SIZE), 0);
    assert_int_equal(fake_faults, 1); /* shown whole, from the file itself */
    assert_int_equal(fake_shown(mm, A), PROT_READ | PROT_WRITE); /* its data along with it */
    assert_int_equal(memfile_used(), 3 * PAGE_SIZE);
    assert_int_equal(get(mm, A), 'i');
    put(mm, A, 'I');
    assert_int_equal(get(mm, A), 'I');
    assert_int_equal(get(mm, A + 1), 'm');
    assert_int_equal(object_read(object, 0, bytes, 5), 5);
    assert_memory_equal(bytes, "image", 5);
    assert_int_equal(copy_in(mm, bytes, A, 5), 0);
    assert_memory_equal(bytes, "Image", 5);
    object_put(object);
}

static void test_backed_shared(void **state)
{
    struct object *object = object_new_backed(file_of("image", 3 * PAGE_SIZE), 3 * PAGE_SIZE);
    struct mm *mm = current->mm, *child;
    char bytes[8];

    (void)state;
    mm_map(mm, A, 3 * PAGE_SIZE, RW, RWX, MM_FIXED | MM_SHARED, NULL, object, 0);
    mm_map(mm, 2 * A, 3 * PAGE_SIZE, PROT_READ, RWX, MM_FIXED, NULL, object, 0);
    assert_int_equal(get(mm, A), 'i');
    assert_int_equal(get(mm, 2 * A), 'i');
    mm_fork(mm, &child);
    fake_enter(child);
    assert_int_equal(get(child, 2 * A), 'i');
    fake_enter(mm);
    put(mm, A, 'I');
    assert_int_equal(get(mm, 2 * A), 'I'); /* not what the backing has */
    fake_enter(child);
    assert_int_equal(get(child, 2 * A), 'I');
    fake_enter(mm);
    assert_int_equal(object_write(object, 1, "MAGE", 4), 4);
    assert_int_equal(get(mm, 2 * A + 1), 'M');
    assert_int_equal(object_read(object, 0, bytes, 5), 5);
    assert_memory_equal(bytes, "IMAGE", 5);
    mm_put(child);
    object_put(object);
}

/* Written, and small: it can do without its descriptor, whoever maps it. */
static void test_backing_let_go(void **state)
{
    struct object_account account = {.limit = 4 * PAGE_SIZE};
    struct object *object = object_new_backed(file_of("image", 3 * PAGE_SIZE), 3 * PAGE_SIZE);
    struct object *large = object_new_backed(file_of("large", 300 * PAGE_SIZE), 300 * PAGE_SIZE);
    struct object *clean = object_new_backed(file_of("clean", PAGE_SIZE), PAGE_SIZE);
    struct mm *mm = current->mm, *child;

    (void)state;
    object->account = &account;
    mm_map(mm, A, 3 * PAGE_SIZE, PROT_READ, RWX, MM_FIXED | MM_SHARED, NULL, object, 0);
    assert_int_equal(get(mm, A), 'i');
    mm_fork(mm, &child);
    fake_enter(child);
    assert_int_equal(get(child, A), 'i');
    fake_enter(mm);
    assert_int_equal(objects_let_go(), 0); /* nothing was written */
    assert_int_equal(object_write(object, PAGE_SIZE, "w", 1), 1);
    assert_int_equal(object_write(large, 0, "w", 1), 1);
    assert_int_equal(objects_let_go(), 1);
    assert_int_equal(object->host_fd, -1);
    assert_true(large->host_fd >= 0 && clean->host_fd >= 0);
    assert_int_equal(account.used, 3 * PAGE_SIZE); /* what is copied is used */
    assert_int_equal(object_write(object, 0, "I", 1), 1);
    assert_int_equal(get(mm, A), 'I');
    assert_int_equal(get(mm, A + PAGE_SIZE), 'w');
    fake_enter(child);
    assert_int_equal(get(child, A), 'I');
    assert_int_equal(get(child, A + 1), 'm');
    fake_enter(mm);
    mm_put(child);
    object_truncate(large, 0); /* nothing of it can show again */
    assert_int_equal(large->host_fd, -1);
    object_put(clean);
    object_put(large);
    mm_unmap(mm, A, 3 * PAGE_SIZE);
    object_put(object);
}

static void test_backed_indirect(void **state)
{
    struct object *object = object_new_backed(file_of("image", 3 * PAGE_SIZE), 3 * PAGE_SIZE);
    struct mm *mm = current->mm;

    (void)state;
    fake_refuse_file = EPERM; /* a host file system without execution */
    mm_map(mm, A, 3 * PAGE_SIZE, PROT_READ | PROT_EXEC, RWX, MM_FIXED, NULL, object, 0);
    assert_int_equal(get(mm, A + 1), 'm');
    assert_int_equal(get(mm, A + 2 * PAGE_SIZE), 0);
    fake_refuse_file = 0;
    object_put(object);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(fork),           TEST(fork_kernel_writes),   TEST(fork_writes_on),
        TEST(fork_shows),     TEST(fork_again_and_again), TEST(shared),
        TEST(truncate_hides), TEST(pages_after_a_gap),    TEST(quarantine),
        TEST(backed_private), TEST(backed_shared),        TEST(backed_indirect),
        TEST(backing_let_go),
    };

    fake_sentry(MEMORY);
    cmocka_set_test_filter(getenv("CMOCKA_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
