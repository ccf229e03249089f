/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The layout of control groups on hosts of every shape, from texts; and, as root, a real group of
 * this host. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cgroup.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

#define LINE(root, point, type, super)                                                             \
    "31 23 0:28 " root " " point " rw,relatime shared:9 - " type " x rw," super "\n"

static const char v2_only[] =
    "22 1 254:1 / / rw - ext4 /dev/vda rw\n" LINE("/", "/sys/fs/cgroup", "cgroup2", "nsdelegate");
static const char hybrid[] = LINE("/", "/sys/fs/cgroup/cpu,cpuacct", "cgroup", "cpu,cpuacct")
    LINE("/", "/sys/fs/cgroup/memory", "cgroup", "memory")
        LINE("/", "/sys/fs/cgroup/pids", "cgroup", "pids")
            LINE("/", "/sys/fs/cgroup/systemd", "cgroup", "xattr,name=systemd")
                LINE("/", "/sys/fs/cgroup/unified", "cgroup2", "nsdelegate");

static void test_v2(void **state)
{
    struct cgroup_layout l;

    (void)state;
    assert_int_equal(cgroup_layout_parse(v2_only, "0::/user.slice/a\n",
                                         "cpuset cpu io memory hugetlb pids\n", &l),
                     0);
    assert_string_equal(l.v2.path, "/sys/fs/cgroup");
    assert_string_equal(l.v2.own, "/user.slice/a");
    assert_int_equal(l.n_v1, 0);
    assert_int_equal(cgroup_layout_version(&l, CGROUP_MEMORY), 2);
    assert_int_equal(cgroup_layout_version(&l, CGROUP_PIDS), 2);
    assert_int_equal(cgroup_layout_version(&l, CGROUP_IO), 2);
    assert_int_equal(cgroup_layout_version(&l, CGROUP_FREEZER), 2);
}

static void test_v2_without_controllers(void **state)
{
    struct cgroup_layout l;

    (void)state;
    /* "memoryx" and "pid" are not names of ours */
    assert_int_equal(cgroup_layout_parse(v2_only, "0::/\n", "cpu memoryx pid\n", &l), 0);
    assert_string_equal(l.v2.own, "");
    assert_int_equal(cgroup_layout_version(&l, CGROUP_MEMORY), 0);
    assert_int_equal(cgroup_layout_version(&l, CGROUP_PIDS), 0);
    assert_int_equal(cgroup_layout_version(&l, CGROUP_CPU), 2);
}

static void test_hybrid(void **state)
{
    struct cgroup_layout l;

    (void)state;
    assert_int_equal(
        cgroup_layout_parse(
            hybrid, "9:name=systemd:/s\n4:memory:/outer/inner\n3:pids:/\n2:cpu,cpuacct:/c\n0::/u\n",
            "", &l),
        0);
    assert_int_equal(l.n_v1, 3);
    assert_string_equal(l.v1[0].path, "/sys/fs/cgroup/cpu,cpuacct");
    assert_string_equal(l.v1[0].own, "/c");
    assert_int_equal(l.v1[0].controllers, 1u << CGROUP_CPU | 1u << CGROUP_CPUACCT);
    assert_string_equal(l.v1[1].own, "/outer/inner");
    assert_string_equal(l.v1[2].own, "");
    assert_string_equal(l.v2.path, "/sys/fs/cgroup/unified");
    assert_string_equal(l.v2.own, "/u");
    assert_int_equal(cgroup_layout_version(&l, CGROUP_MEMORY), 1);
    assert_int_equal(cgroup_layout_version(&l, CGROUP_FREEZER), 2);
    assert_int_equal(cgroup_layout_version(&l, CGROUP_IO), 0);
}

/* Inside a container a mount shows one branch, and paths are told from the real root. */
static void test_rooted_mount(void **state)
{
    struct cgroup_layout l;

    (void)state;
    assert_int_equal(
        cgroup_layout_parse(LINE("/docker/abc", "/sys/fs/cgroup/memory", "cgroup", "memory"),
                            "4:memory:/docker/abc/me\n", "", &l),
        0);
    assert_string_equal(l.v1[0].own, "/me");
    assert_int_equal(
        cgroup_layout_parse(LINE("/docker/abc", "/sys/fs/cgroup/memory", "cgroup", "memory"),
                            "4:memory:/docker/abcdef\n", "", &l),
        0);
    assert_string_equal(l.v1[0].own, ""); /* a sibling whose name begins alike */
    assert_int_equal(cgroup_layout_parse(v2_only, "0::/../../x\n", "", &l), 0);
    assert_string_equal(l.v2.own, "");
}

static void test_odd_texts(void **state)
{
    struct cgroup_layout l;
    char long_line[2048];

    (void)state;
    assert_int_equal(cgroup_layout_parse("", "", "", &l), -EINVAL);
    assert_int_equal(cgroup_layout_parse(LINE("/", "", "cgroup", "memory"), "", "", &l), -EINVAL);
    assert_int_equal(cgroup_layout_parse("1 2 3\n- - - -\n\n", "::::\n:\n", "", &l), -EINVAL);
    assert_int_equal(
        cgroup_layout_parse(LINE("/", "/a\\040b", "cgroup", "memory"), "4:memory:/\n", "", &l), 0);
    assert_string_equal(l.v1[0].path, "/a b");
    snprintf(long_line, sizeof(long_line), "31 23 0:28 / /%0900d rw - cgroup x rw,memory\n", 7);
    assert_int_equal(cgroup_layout_parse(long_line, "", "", &l), -ENAMETOOLONG);
    /* a second mount of the same hierarchy is not a second hierarchy */
    assert_int_equal(cgroup_layout_parse(LINE("/", "/m1", "cgroup", "memory")
                                             LINE("/", "/m2", "cgroup", "memory"),
                                         "", "", &l),
                     0);
    assert_int_equal(l.n_v1, 1);
    assert_string_equal(l.v1[0].path, "/m1");
}

static int count_found;
static char found_text[2048];
static void found(void *ctx, const char *what)
{
    (void)ctx;
    count_found++;
    snprintf(found_text + strlen(found_text), sizeof(found_text) - strlen(found_text), "%s ", what);
}

/* A real group: limits land in files, a process inside is found and killed by reap from the id
 * alone. */
static void test_real(void **state)
{
    const uint32_t want = 1u << CGROUP_MEMORY | 1u << CGROUP_PIDS | 1u << CGROUP_CPU;
    char id[CELLA_ID_LEN + 1];
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    struct cgroup_layout l;
    struct cgroup g;
    struct stat st;
    int fds[CGROUP_N], in[2], v2, n, i, status;
    uint32_t d;
    char c;
    pid_t pid;

    (void)state;
    if (geteuid())
        skip();
    random_id(id);
    assert_int_equal(cgroup_layout_read(&l, err), 0);
    assert_int_equal(cgroup_create(&l, "../x", id, want, &g, err), -EINVAL);
    assert_int_equal(cgroup_create(&l, NULL, id, want, &g, err), 0);
    assert_int_equal(cgroup_create(&l, NULL, id, want, &g, err), -EEXIST);
    assert_non_null(strstr(eb.text, id));
    n = cgroup_entry(&g, &v2, fds, err);
    assert_true(n >= 0);
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        char path[CGROUP_PATH_MAX + 16];
        for (i = 0; i < n; i++)
            if (write(fds[i], "0", 1) != 1)
                _exit(1);
        if (g.v2 >= 0) {
            snprintf(path, sizeof(path), "%s/cgroup.procs", g.dirs[g.v2].path);
            if (write_file_at(-100, path, "0") < 0)
                _exit(1);
        }
        (void)!write(in[1], "i", 1);
        for (;;)
            pause();
    }
    for (i = 0; i < n; i++)
        close(fds[i]);
    close(in[1]);
    assert_int_equal(read(in[0], &c, 1), 1); /* the child is in */
    close(in[0]);
    assert_int_equal(cgroup_wait_empty(&g, 0), 0);
    cgroup_close(&g);
    count_found = 0;
    assert_int_equal(cgroup_reap(&l, id, 1, NULL, found, err), (int)g.n_dirs);
    assert_int_equal(count_found, (int)g.n_dirs);
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0); /* a dry run kills nothing */
    assert_int_equal(cgroup_reap(&l, id, 0, NULL, found, err), (int)g.n_dirs);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (d = 0; d < g.n_dirs; d++) {
        assert_int_equal(stat(g.dirs[d].path, &st), -1);
        assert_non_null(strstr(found_text, g.dirs[d].path));
    }
    assert_int_equal(cgroup_reap(&l, id, 0, NULL, found, err), 0);
}

static uint64_t used(const struct cgroup *g)
{
    struct cgroup_stats s;

    cgroup_stats_read(g, &s);
    return s.unknown & 3u ? 0 : s.cpu_user_ns + s.cpu_system_ns;
}

/* As on a host without v2: the same hierarchies, v2 taken away from the layout. */
static void test_v1_only(void **state)
{
    char id[CELLA_ID_LEN + 1];
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    struct cgroup_layout l;
    struct cgroup_stats s;
    struct cgroup g;
    int fds[CGROUP_N], v2, n, i, status;
    pid_t pid;

    (void)state;
    if (geteuid() || cgroup_layout_read(&l, err) < 0)
        skip();
    memset(&l.v2, 0, sizeof(l.v2));
    if (cgroup_layout_version(&l, CGROUP_FREEZER) != 1 ||
        cgroup_layout_version(&l, CGROUP_CPUACCT) != 1)
        skip();
    random_id(id);
    assert_int_equal(cgroup_create(&l, NULL, id, ~0u, &g, err), 0);
    assert_int_equal(g.v2, -1);
    n = cgroup_entry(&g, &v2, fds, err);
    assert_true(n >= 2);
    assert_int_equal(v2, -1);
    pid = fork();
    if (pid == 0) {
        for (i = 0; i < n; i++)
            if (write(fds[i], "0", 1) != 1)
                _exit(1);
        for (;;)
            getppid(); /* uses both user and system time */
    }
    for (i = 0; i < n; i++)
        close(fds[i]);
    for (i = 0; i < 1000 && used(&g) <= 10000000u; i++)
        usleep(10000);
    assert_int_equal(cgroup_freeze(&g, 1, err), 0);
    cgroup_stats_read(&g, &s);
    assert_int_equal(s.unknown & 3u, 0);
    assert_true(s.cpu_user_ns + s.cpu_system_ns > 10000000u);
    {
        uint64_t before = s.cpu_user_ns + s.cpu_system_ns;
        usleep(100000);
        cgroup_stats_read(&g, &s);
        assert_int_equal(s.cpu_user_ns + s.cpu_system_ns, before); /* it does not run */
    }
    assert_int_equal(cgroup_wait_empty(&g, 0), 0);
    cgroup_remove(&g); /* kills it although it is frozen */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(cgroup_reap(&l, id, 1, NULL, NULL, err), 0);
    /* nothing of ours stays in a hierarchy that others own */
    for (i = 0; i < (int)l.n_v1; i++) {
        char path[2 * CGROUP_PATH_MAX + 64];
        snprintf(path, sizeof(path), "%s%s/" CGROUP_V1_PREFIX "%s", l.v1[i].path, l.v1[i].own, id);
        assert_int_equal(access(path, F_OK), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_v2),        cmocka_unit_test(test_v2_without_controllers),
        cmocka_unit_test(test_hybrid),    cmocka_unit_test(test_rooted_mount),
        cmocka_unit_test(test_odd_texts), cmocka_unit_test(test_real),
        cmocka_unit_test(test_v1_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
