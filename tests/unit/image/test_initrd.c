/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The initramfs as another reader of the format sees it. Threads: one. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <archive.h>
#include <archive_entry.h>

#include "initrd.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

static char dir[64];

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/cella-initrd.XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return remove_tree_at(AT_FDCWD, dir);
}

static char *file(const char *name, const char *text)
{
    char *path = path_join(dir, name);

    assert_int_equal(replace_file_at(AT_FDCWD, path, text, strlen(text), 0600), 0);
    return path;
}

static int write_one(const char *const *modules, size_t n, char **ret, size_t *ret_len,
                     struct errbuf *eb)
{
    auto_free char *init = file("i", "INIT"), *agent = file("a", "AGENT!");
    auto_close int fd = memfd_create("initrd", MFD_CLOEXEC);
    char self[32];
    int r = initrd_write(fd, init, agent, modules, n, errbuf_init(eb));

    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    return r < 0 ? r : read_file_at(AT_FDCWD, self, 1 << 20, ret, ret_len);
}

static const struct {
    const char *name;
    unsigned mode;
    const char *text;
} expected[] = {
    {"dev", S_IFDIR | 0755, NULL},         {"modules", S_IFDIR | 0755, NULL},
    {"proc", S_IFDIR | 0755, NULL},        {"sys", S_IFDIR | 0755, NULL},
    {"cell", S_IFDIR | 0755, NULL},        {"dev/console", S_IFCHR | 0600, NULL},
    {"dev/null", S_IFCHR | 0666, NULL},    {"init", S_IFREG | 0755, "INIT"},
    {"agent", S_IFREG | 0755, "AGENT!"},   {"modules/b.ko", S_IFREG | 0644, "bbbbb"},
    {"modules/a.ko", S_IFREG | 0644, "a"}, {"modules/list", S_IFREG | 0644, "b.ko\na.ko\n"}};

static void test_content(void **state)
{
    auto_free char *b = file("b.ko", "bbbbb"), *a = file("a.ko", "a"), *text = NULL, *again = NULL;
    const char *const modules[] = {b, a};
    struct archive *r = archive_read_new();
    struct archive_entry *e;
    struct errbuf eb;
    size_t len, len2, i;
    char got[64];

    (void)state;
    assert_int_equal(write_one(modules, 2, &text, &len, &eb), 0);
    assert_int_equal(write_one(modules, 2, &again, &len2, &eb), 0);
    assert_int_equal(len, len2);
    assert_memory_equal(text, again, len);
    archive_read_support_format_cpio(r);
    assert_int_equal(archive_read_open_memory(r, text, len), ARCHIVE_OK);
    for (i = 0; i < ARRAY_LEN(expected); i++) {
        assert_int_equal(archive_read_next_header(r, &e), ARCHIVE_OK);
        assert_string_equal(archive_entry_pathname(e), expected[i].name);
        assert_int_equal(archive_entry_mode(e), expected[i].mode);
        assert_int_equal(archive_entry_mtime(e), 0);
        if (!expected[i].text)
            continue;
        assert_int_equal(archive_read_data(r, got, sizeof(got)), strlen(expected[i].text));
        assert_memory_equal(got, expected[i].text, strlen(expected[i].text));
    }
    assert_int_equal(archive_read_next_header(r, &e), ARCHIVE_EOF);
    archive_read_free(r);
}

static void test_refused(void **state)
{
    auto_free char *b = file("b.ko", "bbbbb"), *none = path_join(dir, "none.ko"), *text = NULL;
    const char *const twice[] = {b, b}, *const missing[] = {none};
    struct errbuf eb;
    size_t len;

    (void)state;
    assert_int_equal(write_one(twice, 2, &text, &len, &eb), -EEXIST);
    assert_non_null(strstr(eb.text, "b.ko"));
    assert_int_equal(write_one(missing, 1, &text, &len, &eb), -ENOENT);
    assert_non_null(strstr(eb.text, "none.ko"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_content, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
