/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What a program in the jail is, looked at from outside. It is sleep(1): no machine is booted. Root only (77 = skipped). */
#include <setjmp.h>
#include <stdarg.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "jail.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

#define ID 1879200000u

static char dir[64], share[80], writable[80];
static pid_t pid;
static int pidfd = -1;

static int spawn(pid_t *ret_pid, int *ret_pidfd)
{
    static char name[] = "sleep", time[] = "60", only[] = "ONLY=this";
    char *argv[] = {name, time, NULL}, *envp[] = {only, NULL};
    struct jail *j = calloc(1, sizeof(*j));
    struct errbuf eb;
    char link[8];
    int r, i;

    static const char *const libs[] = {"/lib", "/lib64"};
    jail_bind(j, "/usr", 0, 0, "/usr");
    for (i = 0; i < 2; i++)
        if (readlink(libs[i], link, sizeof(link)) < 0 && access(libs[i], F_OK) == 0)
            jail_bind(j, libs[i], 0, 0, "%s", libs[i]);
    jail_bind(j, share, 0, 0, "/cella/m0");
    jail_bind(j, writable, 0, 1, "/cella/m1");
    j->program = "/usr/bin/sleep";
    j->argv = argv;
    j->envp = envp;
    j->at = dir;
    j->id = ID;
    j->proc = 1;
    j->borrow_fds[0] = j->borrow_fds[1] = j->borrow_fds[2] = -1;
    j->n_fds = 3;
    r = jail_spawn(j, ret_pid, ret_pidfd, errbuf_init(&eb));
    if (r < 0)
        print_error("%s\n", eb.text);
    free(j);
    return r;
}

static void proc_file(const char *name, char *out, size_t cap)
{
    auto_free char *text = NULL;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    assert_int_equal(read_file_at(AT_FDCWD, path, 1u << 20, &text, NULL), 0);
    snprintf(out, cap, "%s", text);
}

/* What sleep(1) does when its loader, which has one library open after the other, is done. */
static int sleeps(void)
{
    char path[64], line[256] = "", *state;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    assert_non_null(f);
    state = fgets(line, sizeof(line), f) ? strstr(line, "(sleep) S ") : NULL;
    fclose(f);
    return state != NULL;
}

static void test_identity(void **state)
{
    char text[8000], want[120];

    (void)state;
    proc_file("status", text, sizeof(text));
    snprintf(want, sizeof(want), "Uid:\t%u\t%u\t%u\t%u", ID, ID, ID, ID);
    assert_non_null(strstr(text, want));
    snprintf(want, sizeof(want), "Gid:\t%u\t%u\t%u\t%u", ID, ID, ID, ID);
    assert_non_null(strstr(text, want));
    assert_non_null(strstr(text, "Groups:\t \n"));
    assert_non_null(strstr(text, "CapPrm:\t0000000000000000"));
    assert_non_null(strstr(text, "CapEff:\t0000000000000000"));
    assert_non_null(strstr(text, "CapBnd:\t0000000000000000"));
    assert_non_null(strstr(text, "CapAmb:\t0000000000000000"));
    assert_non_null(strstr(text, "NoNewPrivs:\t1"));
    proc_file("environ", text, sizeof(text));
    assert_string_equal(text, "ONLY=this");
    proc_file("limits", text, sizeof(text));
    assert_non_null(strstr(text, "Max core file size        0                    0"));
}

static void test_namespaces(void **state)
{
    static const char *const names[] = {"mnt", "pid", "net", "ipc", "uts", "cgroup"};
    char path[64], theirs[64], ours[64];
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(names); i++) {
        ssize_t a, b;
        snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, names[i]);
        a = readlink(path, theirs, sizeof(theirs) - 1);
        snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        b = readlink(path, ours, sizeof(ours) - 1);
        assert_true(a > 0 && b > 0);
        theirs[a] = ours[b] = 0;
        assert_string_not_equal(theirs, ours);
    }
}

static void test_root(void **state)
{
    static const char allowed[] =
        " . .. usr lib lib64 lib32 libx32 bin sbin etc dev cella tmp proc ";
    char text[20000], path[80], target[64], options[64], *line;
    struct dirent *e;
    DIR *d;
    int n = 0;

    (void)state;
    proc_file("mountinfo", text, sizeof(text));
    for (line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (sscanf(line, "%*d %*d %*s %*s %63s %63s", target, options) != 2)
            continue;
        n++;
        assert_non_null(strstr(options, "nosuid"));
        if (!strcmp(target, "/cella/m1"))
            assert_int_equal(strncmp(options, "rw,", 3), 0);
        else
            assert_int_equal(strncmp(options, "ro,", 3), 0);
        if (strcmp(target, "/"))
            assert_non_null(strstr(options, "nodev"));
    }
    assert_true(n >= 4);
    snprintf(path, sizeof(path), "/proc/%d/root", (int)pid);
    d = opendir(path);
    assert_non_null(d);
    while ((e = readdir(d))) {
        snprintf(target, sizeof(target), " %.40s ", e->d_name);
        assert_non_null(strstr(allowed, target));
    }
    closedir(d);
    snprintf(path, sizeof(path), "/proc/%d/root/proc/sys", (int)pid);
    assert_int_equal(access(path, F_OK), -1); /* only processes are there */
}

/* Descriptors of the program that are not /dev/null. */
static int others(void)
{
    struct dirent *e;
    struct stat st;
    char path[64];
    int n = 0;
    DIR *d;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    d = opendir(path);
    assert_non_null(d);
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/fd/%.10s", (int)pid, e->d_name);
        n += stat(path, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3);
    }
    closedir(d);
    return n;
}

static void test_descriptors(void **state)
{
    int i;

    (void)state;
    for (i = 0; i < 2000 && others() != 0; i++)
        usleep(10000);
    assert_int_equal(others(), 0);
}

static void test_refusals(void **state)
{
    char real[sizeof(share)], link[100];
    pid_t p;
    int fd;

    (void)state;
    strcpy(real, share);
    snprintf(link, sizeof(link), "%s/link", dir);
    assert_int_equal(symlink("/", link), 0);
    strcpy(share, link); /* what was judged has become a link */
    assert_int_equal(spawn(&p, &fd), -ELOOP);
    strcpy(share, "/etc/passwd");
    assert_int_equal(spawn(&p, &fd), -ENOTDIR);
    strcpy(share, "/nonexistent");
    assert_int_equal(spawn(&p, &fd), -ENOENT);
    strcpy(share, real);
    unlink(link);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), 0); /* the one that runs is all there is */
}

static void test_dies_with_host(void **state)
{
    struct pollfd p = {.events = POLLIN};
    int ends[2], theirs = 0;
    pid_t host;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    host = fork();
    if (host == 0) {
        pid_t child = 0;
        int fd;
        if (spawn(&child, &fd) < 0)
            child = 0;
        (void)!write(ends[1], &child, sizeof(child));
        pause();
        _exit(0);
    }
    assert_int_equal(read(ends[0], &theirs, sizeof(theirs)), sizeof(theirs));
    assert_true(theirs > 0);
    p.fd = pidfd_open_(theirs);
    kill(host, SIGKILL);
    waitpid(host, NULL, 0);
    assert_int_equal(poll(&p, 1, 20000), 1);
    close(p.fd);
    close(ends[0]);
    close(ends[1]);
}

static int setup(void **state)
{
    int fd = open("/proc/self/exe", O_RDONLY), i;

    (void)state;
    strcpy(dir, "/var/tmp/cella-jail.XXXXXX");
    if (fcntl(fd, F_DUPFD, 300) < 0 || !mkdtemp(dir)) /* inheritable on purpose */
        return -1;
    close(fd);
    snprintf(share, sizeof(share), "%s/share", dir);
    snprintf(writable, sizeof(writable), "%s/writable", dir);
    if (mkdir(share, 0755) < 0 || mkdir(writable, 0777) < 0)
        return -1;
    if (spawn(&pid, &pidfd) < 0)
        return -1;
    for (i = 0; i < 2000 && !sleeps(); i++) /* an exec that has begun has no environment yet */
        usleep(10000);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return remove_tree_at(AT_FDCWD, dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity), cmocka_unit_test(test_namespaces),
        cmocka_unit_test(test_root),     cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_dies_with_host),
    };

    if (geteuid()) {
        fprintf(stderr, "needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, setup, teardown);
}
