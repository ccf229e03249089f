/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* secret-file, the real plugin through the real loader: what counts as a secret, what is refused and why, changes. */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include "config.h"
#include "plugin.h"

static char dir[64];
static struct plugin *plugin;
static struct option_set *options;
static struct secret_provider provider;
static struct errbuf eb;

static const struct cella_host host = {.hdr = CELLA_HDR_INIT(struct cella_host, CELLA_KIND_HOST)};

static char *in_dir(const char *name)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const char *text, mode_t mode)
{
    int fd = open(in_dir(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write_all(fd, text, strlen(text)), 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static int create(void)
{
    json_t *o = json_pack("{s:s}", "path", dir);
    int r = option_set_parse(plugin->options, plugin->n_options, plugin->option_stride, NULL,
                             "/secrets/0", o, &options, errbuf_init(&eb));

    json_decref(o);
    assert_int_equal(r, 0);
    r = secret_create(plugin, &host, option_set_get(options), &provider, errbuf_init(&eb));
    option_set_free(options);
    return r;
}

static int64_t get_for(const char *name, const char *tenant, char *buf, uint64_t cap)
{
    const struct cella_secret_query q = {
        .hdr = CELLA_HDR_INIT(struct cella_secret_query, CELLA_KIND_SECRET_QUERY),
        .name = name,
        .tenant = tenant,
        .purpose = "inject:a"};

    memset(buf, '?', cap);
    return secret_get(&provider, &q, buf, cap, errbuf_init(&eb));
}

static void value_is(const char *name, const char *value)
{
    char buf[64];

    assert_int_equal(get_for(name, "", buf, sizeof(buf)), strlen(value));
    assert_memory_equal(buf, value, strlen(value));
}

/* With these words, and nothing of a value left in the buffer. */
static void refused(const char *name, int code, const char *words)
{
    char buf[8], zero[8] = {0};

    assert_int_equal(get_for(name, "", buf, sizeof(buf)), code);
    if (!strstr(eb.text, words)) {
        print_error("\"%s\" does not say \"%s\"\n", eb.text, words);
        assert_true(0);
    }
    assert_memory_equal(buf, zero, sizeof(buf));
}

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/cella-test-secret-XXXXXX");
    return mkdtemp(dir) ? create() : -1;
}

static int teardown(void **state)
{
    (void)state;
    secret_destroy(&provider);
    chmod(dir, 0700);
    return remove_tree_at(AT_FDCWD, dir);
}

static void test_values(void **state)
{
    (void)state;
    put("token", "abc", 0600);
    put("line", "abc\n", 0400);
    put("two", "abc\n\n", 0400);
    put("a.b-c_D9", "x", 0600);
    value_is("token", "abc");
    value_is("line", "abc");
    value_is("two", "abc\n");
    value_is("a.b-c_D9", "x");
}

static void test_room(void **state)
{
    char buf[8];

    (void)state;
    put("exact", "12345678", 0600);
    put("line", "12345678\n", 0600);
    put("more", "123456789", 0600);
    put("lines", "12345678\n\n", 0600);
    put("empty", "", 0600);
    put("blank", "\n", 0600);
    assert_int_equal(get_for("exact", "", buf, 8), 8);
    assert_int_equal(get_for("line", "", buf, 8), 8);
    assert_memory_equal(buf, "12345678", 8);
    refused("more", -ENOBUFS, "longer");
    refused("lines", -ENOBUFS, "longer");
    refused("empty", -ENODATA, "empty");
    refused("blank", -ENODATA, "empty");
}

static void test_names(void **state)
{
    static const char *const bad[] = {"",   ".",   "..",  ".hidden",  "a/b", "../x",
                                      "-x", "a b", "a\n", "\xc3\xa9", "a*",  "a:b"};
    char longest[66], buf[8];
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(bad); i++)
        refused(bad[i], -EINVAL, "letters");
    memset(longest, 'x', sizeof(longest));
    longest[64] = 0;
    refused(longest, -EINVAL, "63");
    longest[63] = 0;
    put(longest, "x", 0600);
    value_is(longest, "x");
    refused("nobody", -ENOENT, "no secret \"nobody\"");
    put("token", "abc", 0600);
    assert_int_equal(get_for("token", "acme", buf, sizeof(buf)), -EACCES);
}

static void test_files(void **state)
{
    (void)state;
    put("token", "abc", 0600);
    put("group", "abc", 0640);
    put("world", "abc", 0604);
    put("exec", "abc", 0700);
    refused("group", -EPERM, "0640");
    refused("world", -EPERM, "chmod 0600");
    refused("exec", -EPERM, "0700");
    assert_int_equal(symlink("token", in_dir("link")), 0);
    refused("link", -ELOOP, "symbolic link");
    assert_int_equal(mkdir(in_dir("sub"), 0700), 0);
    refused("sub", -EPERM, "regular");
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    refused("pipe", -EPERM, "regular"); /* and does not wait for a writer */
    value_is("token", "abc");
    {
        char other[512];
        snprintf(other, sizeof(other), "%s", in_dir("token"));
        assert_int_equal(link(other, in_dir("hard")), 0);
    }
    refused("token", -EPERM, "no other name");
    if (geteuid() == 0) {
        put("theirs", "abc", 0600);
        assert_int_equal(chown(in_dir("theirs"), 12345, 0), 0);
        refused("theirs", -EPERM, "12345");
    }
}

static void test_directory(void **state)
{
    (void)state;
    secret_destroy(&provider);
    chmod(dir, 0750);
    assert_int_equal(create(), -EPERM);
    assert_non_null(strstr(eb.text, "chmod 0700"));
    chmod(dir, 0700);
    if (geteuid() == 0) {
        assert_int_equal(chown(dir, 12345, 0), 0);
        assert_int_equal(create(), -EPERM);
        assert_non_null(strstr(eb.text, "12345"));
        assert_int_equal(chown(dir, 0, 0), 0);
    }
    assert_int_equal(create(), 0);
    assert_int_equal(rmdir(dir), 0);
    secret_destroy(&provider);
    assert_int_equal(create(), -ENOENT);
    assert_non_null(strstr(eb.text, dir));
}

static int readable(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};

    return poll(&p, 1, 0) == 1;
}

static void test_rotation(void **state)
{
    int fd = secret_rotate_fd(&provider);
    char from[512];

    (void)state;
    assert_true(fd >= 0);
    assert_false(readable(fd));
    put("token", "old", 0600);
    assert_true(readable(fd));
    value_is("token", "old"); /* reading is seeing */
    assert_false(readable(fd));
    put(".new", "new", 0600);
    snprintf(from, sizeof(from), "%s", in_dir(".new"));
    value_is("token", "old");
    assert_int_equal(rename(from, in_dir("token")), 0);
    assert_true(readable(fd));
    value_is("token", "new");
    assert_false(readable(fd));
    assert_int_equal(unlink(in_dir("token")), 0);
    assert_true(readable(fd));
    refused("token", -ENOENT, "no secret");
    assert_false(readable(fd));
}

static int group_setup(void **state)
{
    (void)state;
    if (plugin_load(PLUGINS_DIR "/cella-secret-secret-file.so", &plugin, errbuf_init(&eb)) == 0)
        return 0;
    print_error("%s\n", eb.text);
    return -1;
}

static int group_teardown(void **state)
{
    (void)state;
    plugin_unload(plugin);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_values, setup, teardown),
        cmocka_unit_test_setup_teardown(test_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_directory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rotation, setup, teardown),
    };

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
