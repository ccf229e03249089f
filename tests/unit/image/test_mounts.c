/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* mounts - what a user may show to a cell. Homes come from a passwd file of the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail /* util.h has its own */

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "config.h"
#include "mounts.h"

#define FAIL_MSG(...)                                                                              \
    do {                                                                                           \
        print_error(__VA_ARGS__);                                                                  \
        _fail(__FILE__, __LINE__);                                                                 \
    } while (0)

static char top[64], passwd[96], home[96];

static void make(const char *name, int directory)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", top, name);
    if (directory)
        assert_int_equal(mkdir_p(path, 0755), 0);
    else
        assert_int_equal(replace_file_at(AT_FDCWD, path, "x", 1, 0644), 0);
}

static int setup(void **ctx)
{
    char line[256];

    (void)ctx;
    snprintf(top, sizeof(top), "/tmp/cella-test-mounts-XXXXXX");
    assert_non_null(mkdtemp(top));
    snprintf(home, sizeof(home), "%s/homes/ann", top);
    snprintf(passwd, sizeof(passwd), "%s/passwd", top);
    make("homes/ann/.ssh", 1);
    make("homes/ann/project/.ssh", 1);
    make("homes/ann/.npmrc", 0);
    make("srv/data/.aws", 1); /* home of a service, with a credential */
    make("srv/plain", 1);
    make("state/cells", 1);
    make("free", 1);
    make("file", 0);
    snprintf(line, sizeof(line),
             "ann:x:1000:1000::%s:/bin/sh\nsvc:x:200:200::%s/srv/data:/bin/false\n", home, top);
    return replace_file_at(AT_FDCWD, passwd, line, strlen(line), 0644);
}

static int teardown(void **ctx)
{
    (void)ctx;
    return remove_tree_at(AT_FDCWD, top);
}

static const char *why(const char *name)
{
    char path[256], state[128];

    if (name[0] == '/')
        snprintf(path, sizeof(path), "%s", name);
    else
        snprintf(path, sizeof(path), "%s/%s", top, name);
    snprintf(state, sizeof(state), "%s/state", top);
    return path_refused(state, passwd, path, 0, NULL);
}

static void test_system(void **ctx)
{
    static const char *const refused[] = {"/",    "/proc",     "/proc/self", "/sys/kernel",
                                          "/dev", "/dev/null", "/run",       "/etc",
                                          "/var", "/root",     "/home",      "/etc/shadow"};
    size_t i;

    (void)ctx;
    for (i = 0; i < ARRAY_LEN(refused); i++)
        if (!why(refused[i]))
            FAIL_MSG("%s is allowed", refused[i]);
    assert_null(why("/usr/share"));
    assert_null(why("free"));
    assert_null(why("file"));
    assert_non_null(path_refused(NULL, passwd, "/usr/share", 1, NULL)); /* shown, not written */
}

static void test_homes(void **ctx)
{
    (void)ctx;
    assert_non_null(why("homes/ann"));
    assert_non_null(why("homes"));
    assert_non_null(why("homes/ann/.ssh"));
    assert_non_null(why("homes/ann/.npmrc"));
    assert_null(why("homes/ann/project")); /* its .ssh is no credential of a home */
    assert_non_null(why("srv/data"));
    assert_non_null(why("srv"));
    assert_null(why("srv/plain"));
    assert_non_null(path_refused(NULL, "/nonexistent/passwd", "/usr/share", 0, NULL));
}

static void test_state(void **ctx)
{
    (void)ctx;
    assert_non_null(why("state"));
    assert_non_null(why("state/cells"));
    assert_non_null(why(top));
}

static void test_kinds(void **ctx)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    char path[128];
    int s = socket(AF_UNIX, SOCK_STREAM, 0);

    (void)ctx;
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/sock", top);
    assert_int_equal(bind(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
    snprintf(path, sizeof(path), "%s/fifo", top);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_non_null(strstr(why("sock"), "socket"));
    assert_non_null(why("fifo"));
    assert_non_null(strstr(why("/dev/null"), "device"));
    close(s);
}

static void test_check(void **ctx)
{
    struct config c = {0};
    struct config_mount_rule rule = {NULL, 0};
    char file[128], link[128], sock[128], real[PATH_MAX];
    struct errbuf eb;

    (void)ctx;
    snprintf(file, sizeof(file), "%s/free", top);
    snprintf(link, sizeof(link), "%s/link", top);
    snprintf(sock, sizeof(sock), "%s/fifo", top);
    assert_int_equal(symlink("/etc/shadow", link), 0);
    assert_int_equal(mkfifo(sock, 0600), 0);
    assert_int_equal(mount_check(&c, file, 1, errbuf_init(&eb)), 0);
    assert_int_equal(mount_check(&c, "relative", 0, errbuf_init(&eb)), -EINVAL);
    assert_int_equal(mount_check(&c, "/nonexistent/x", 0, errbuf_init(&eb)), -ENOENT);
    assert_int_equal(mount_check(&c, link, 0, errbuf_init(&eb)),
                     -EACCES); /* judged by where it leads */
    assert_int_equal(mount_check(&c, "/etc/shadow", 0, errbuf_init(&eb)), -EACCES);
    assert_non_null(strstr(eb.text, "the operator can allow"));
    rule.path = (char *)(uintptr_t) "/etc/shadow";
    c.mounts = &rule;
    c.n_mounts = 1;
    assert_int_equal(mount_resolve(&c, "/etc/shadow", 0, real, errbuf_init(&eb)), 0);
    assert_string_equal(real, "/etc/shadow");
    assert_int_equal(mount_check(&c, "/etc/shadow", 1, errbuf_init(&eb)), -EACCES);
    assert_non_null(strstr(eb.text, "read-only"));
    rule.writable = 1;
    assert_int_equal(mount_check(&c, "/etc/shadow", 1, errbuf_init(&eb)), 0);
    rule.path =
        sock; /* no backend shows what is neither file nor directory, so nobody is told to allow it */
    assert_int_equal(mount_check(&c, sock, 0, errbuf_init(&eb)), -EACCES);
    assert_null(strstr(eb.text, "the operator can allow"));
    rule.path = (char *)(uintptr_t) "/";
    assert_int_equal(mount_check(&c, "/", 0, errbuf_init(&eb)), -EACCES); /* never */
}

static void test_parse(void **ctx)
{
    static const char *const bad[] = {
        "",         "/a",       "/a:",       "a:/b",     "/a:b",      "/a:/",      "/a:/..",
        "/../a:/b", "/a:/b:rx", "/a:/b:rw:", "/a:/proc", "/a:/dev/x", "/a:/x/../y"};
    struct mount_arg m;
    struct errbuf eb;
    size_t i;

    (void)ctx;
    assert_int_equal(mount_parse("/a//b/./c:/x/:rw", &m, errbuf_init(&eb)), 0);
    assert_string_equal(m.source, "/a/b/c");
    assert_string_equal(m.target, "/x");
    assert_int_equal(m.writable, 1);
    assert_int_equal(mount_parse("/a:/x", &m, errbuf_init(&eb)), 0);
    assert_int_equal(m.writable, 0);
    assert_int_equal(mount_parse("/a:/x:ro", &m, errbuf_init(&eb)), 0);
    assert_int_equal(m.writable, 0);
    for (i = 0; i < ARRAY_LEN(bad); i++)
        if (mount_parse(bad[i], &m, errbuf_init(&eb)) != -EINVAL)
            FAIL_MSG("\"%s\" is accepted", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_system, setup, teardown),
        cmocka_unit_test_setup_teardown(test_homes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_state, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_check, setup, teardown),
        cmocka_unit_test(test_parse),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
