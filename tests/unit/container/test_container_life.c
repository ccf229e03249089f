/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The life of a real cell: limits that bite, pausing, ends of every kind, death with the host
 * process, and nothing left behind. Root only (77 = skipped otherwise).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cell.h"
#include "nspair.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

/* ------------------------------------------------------------------------ limits */

static void test_memory_bites(void **state)
{
    struct cell c;
    struct cella_stats s;

    (void)state;
    cell_init(&c);
    c.limits.memory_bytes = 32u << 20;
    assert_int_equal(cell_boot(&c), 0);
    assert_int_equal(cell_ask(&c, "eat %d", 8 << 20), 0); /* the twin: within the limit */
    assert_int_equal(cell_stats(&c).limit_hit & CELLA_LIMIT_HIT_MEMORY, 0);
    assert_int_equal(cell_ask(&c, "eat %d", 64 << 20), SIGKILL);
    s = cell_stats(&c);
    assert_true(s.oom_kills >= 1);
    assert_true(s.limit_hit & CELLA_LIMIT_HIT_MEMORY);
    assert_true((s.unknown & 1u << 3) ||
                (s.memory_peak_bytes > 16u << 20 && s.memory_peak_bytes <= 32u << 20));
    cell_fini(&c);
}

static void test_pids_bite(void **state)
{
    struct cell c;
    struct cella_stats s;

    (void)state;
    cell_init(&c);
    c.limits.pids = 32;
    assert_int_equal(cell_boot(&c), 0);
    assert_int_equal(cell_ask(&c, "forks 30"), 30);
    assert_int_equal(cell_stats(&c).limit_hit & CELLA_LIMIT_HIT_PIDS, 0);
    assert_in_range(cell_ask(&c, "forks 1000"), 32, 36);
    s = cell_stats(&c);
    assert_true(s.pids_refused >= 1);
    assert_true(s.limit_hit & CELLA_LIMIT_HIT_PIDS);
    cell_fini(&c);
}

/* Every writable place shares one budget. */
static void test_disk_bites(void **state)
{
    static const char *const places[] = {"/f", "/tmp/f", "/dev/shm/f", "/run/f", "/root/f"};
    struct cell c;
    size_t i;

    (void)state;
    cell_init(&c);
    c.limits.disk_bytes = 8u << 20;
    assert_int_equal(cell_boot(&c), 0);
    for (i = 0; i < ARRAY_LEN(places); i++) {
        assert_int_equal(cell_ask(&c, "put %s %d", places[i], 4 << 20), 4 << 20);
        assert_true(cell_stats(&c).disk_bytes >= 4u << 20);
        assert_int_equal(cell_stats(&c).limit_hit & CELLA_LIMIT_HIT_DISK, 0);
        assert_int_equal(cell_ask(&c, "put %s2 %d", places[i], 16 << 20), -ENOSPC);
        assert_true(cell_stats(&c).limit_hit & CELLA_LIMIT_HIT_DISK);
        assert_int_equal(cell_ask(&c, "rm %s", places[i]), 0);
        assert_int_equal(cell_ask(&c, "rm %s2", places[i]), 0);
        cell_fini(&c);
        cell_init(&c);
        c.limits.disk_bytes = 8u << 20;
        assert_int_equal(cell_boot(&c), 0);
    }
    /* full at the moment of the stop: noted there */
    assert_int_equal(cell_ask(&c, "put /f %d", 16 << 20), -ENOSPC);
    assert_int_equal(cell_ops()->stop(c.self, CELLA_STOP_KILL, 0, NULL), 0);
    assert_true(cell_stats(&c).limit_hit & CELLA_LIMIT_HIT_DISK);
    cell_fini(&c);
}

static void test_cpu_bites(void **state)
{
    struct cell c;
    long used;

    (void)state;
    cell_init(&c);
    c.limits.cpu_millis = 200;
    assert_int_equal(cell_boot(&c), 0);
    used = cell_ask(&c, "burn 1000");
    assert_in_range(used, 20, 400); /* 200 in the ideal */
    assert_true(cell_stats(&c).cpu_user_ns + cell_stats(&c).cpu_system_ns >= 20000000u);
    cell_fini(&c);
}

static void test_resize(void **state)
{
    struct cell c;
    struct cella_limits l = {.hdr = CELLA_HDR_INIT(struct cella_limits, CELLA_KIND_LIMITS)};

    (void)state;
    cell_init(&c);
    c.limits.memory_bytes = 24u << 20;
    c.limits.pids = 8;
    assert_int_equal(cell_boot(&c), 0);
    assert_int_equal(cell_ask(&c, "eat %d", 40 << 20), SIGKILL);
    l.memory_bytes = 96u << 20; /* up */
    l.pids = 40;
    assert_int_equal(cell_ops()->resize(c.self, &l, &c.eb.err), 0);
    assert_int_equal(cell_ask(&c, "eat %d", 40 << 20), 0);
    assert_int_equal(cell_ask(&c, "forks 39"), 39);
    l.memory_bytes = 24u << 20; /* and down again */
    l.pids = 0;
    assert_int_equal(cell_ops()->resize(c.self, &l, &c.eb.err), 0);
    assert_int_equal(cell_ask(&c, "eat %d", 40 << 20), SIGKILL);
    assert_int_equal(cell_ask(&c, "forks 39"), 39); /* 0 leaves it */
    l.disk_bytes = 1u << 20;
    assert_int_equal(cell_ops()->resize(c.self, &l, &c.eb.err), -EOPNOTSUPP);
    assert_non_null(strstr(c.eb.text, "disk limit"));
    cell_fini(&c);
}

/* Only where the image lies on a block device and the kernel can throttle. */
static void test_io_bites(void **state)
{
    static const char file[] = "/usr/bin/python3.11";
    struct cell c;
    int r;

    (void)state;
    if (access(file, R_OK) < 0)
        skip();
    cell_init(&c);
    assert_int_equal(cell_boot(&c), 0);
    r = (int)cell_ask(&c, "direct %s %d", file, 2 << 20);
    cell_fini(&c);
    if (r < 0 || r > 500)
        skip(); /* no direct reads there, or too slow to tell */
    cell_init(&c);
    c.limits.io_read_bps = 2u << 20;
    if (cell_create(&c) == -ENOTSUP) {
        cell_fini(&c);
        skip();
    }
    cell_fini(&c);
    cell_init(&c);
    c.limits.io_read_bps = 2u << 20;
    assert_int_equal(cell_boot(&c), 0);
    assert_in_range(cell_ask(&c, "direct %s %d", file, 2 << 20), 600, 10000);
    assert_true(cell_stats(&c).io_read_bytes >= 1u << 20);
    cell_fini(&c);
}

/* A limit that cannot be had: io on a root without a block device (/run is a tmpfs or an overlay in
 * the lab). */
static void test_unenforceable(void **state)
{
    struct cell c;
    struct stat st;

    (void)state;
    cell_init(&c);
    if (stat(c.skeleton, &st) < 0 || st.st_dev >> 8) {
        cell_fini(&c);
        cell_init(&c); /* /run is on a disk here: bind something without one */
        c.mounts[1] = (struct cella_mount){"/proc/sys", "/mnt/x", CELLA_MOUNT_BIND, 0, 0};
        c.spec.n_mounts = 2;
    }
    c.limits.io_read_bps = 1u << 20;
    assert_int_equal(cell_create(&c), -ENOTSUP);
    assert_non_null(strstr(c.eb.text, "io limit"));
    c.spec.hdr.flags |= CELLA_SPEC_BEST_EFFORT;
    assert_int_equal(cell_boot(&c), 0);
    assert_string_equal(c.events, "limit.unenforced:io ");
    cell_fini(&c);
}

/* --------------------------------------------------------------------- lifecycle */

static void test_pause(void **state)
{
    struct cell c;

    (void)state;
    cell_init(&c);
    assert_int_equal(cell_boot(&c), 0);
    assert_int_equal(cell_ask(&c, "ping"), 1);
    assert_int_equal(cell_ops()->pause(c.self, &c.eb.err), 0);
    assert_int_equal(cell_ask_timeout(&c, 300, "ping"), -ETIMEDOUT);
    assert_int_equal(cell_ops()->resume(c.self, &c.eb.err), 0);
    assert_int_equal(cell_ask_timeout(&c, 30000, "pid"),
                     1); /* the late answer to the ping, at least */
    assert_int_equal(cell_ops()->pause(c.self, &c.eb.err), 0);
    assert_int_equal(cell_ops()->stop(c.self, CELLA_STOP_KILL, 0, NULL),
                     0); /* paused cells can be stopped */
    cell_fini(&c);
}

/* Killed, and not waited for: that is for the stop that follows. */
static void test_stop_begins(void **state)
{
    struct cell c;
    struct pollfd p;

    (void)state;
    cell_init(&c);
    assert_int_equal(cell_boot(&c), 0);
    p = (struct pollfd){.fd = c.started.borrow_exit_fd, .events = POLLIN};
    assert_int_equal(cell_ops()->stop(c.self, CELLA_STOP_BEGIN, 0, NULL), 0);
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(cell_ops()->stop(c.self, CELLA_STOP_KILL, 0, NULL), 0);
    cell_fini(&c);
}

static void test_end_is_seen(void **state)
{
    struct cell c;
    struct pollfd p;

    (void)state;
    cell_init(&c);
    assert_int_equal(cell_boot(&c), 0);
    p = (struct pollfd){.fd = c.started.borrow_exit_fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_int_equal(cell_ask(&c, "exit 3"), -EPIPE);
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(cell_ops()->stop(c.self, CELLA_STOP_GRACEFUL, 5000000000u, NULL), 0);
    assert_int_equal(cell_ops()->stop(c.self, CELLA_STOP_KILL, 0, NULL), 0);
    cell_fini(&c);
}

/* Namespaces that the core made are used; the pair gives a mapped user namespace. */
static void test_given_namespaces(void **state)
{
    struct nspair pair = NSPAIR_INIT;
    struct stat given;
    struct cell c;
    char want[64];

    (void)state;
    cell_init(&c);
    assert_int_equal(nspair_new(TEST_UID_BASE, 65536, &pair, &c.eb.err), 0);
    assert_int_equal(nspair_new(0, 65536, &pair, &c.eb.err), -EINVAL);
    c.spec.borrow_userns_fd = pair.userns_fd;
    c.spec.borrow_netns_fd = pair.netns_fd;
    assert_int_equal(cell_boot(&c), 0);
    assert_int_equal(cell_ask(&c, "get /proc/self/uid_map") > 0, 1);
    snprintf(want, sizeof(want), "%u", TEST_UID_BASE);
    assert_int_equal(cell_ask(&c, "list /proc/self/fd"), 4);
    assert_int_equal(fstat(pair.netns_fd, &given), 0);
    snprintf(want, sizeof(want), "/proc/%d/ns/net", (int)c.started.host_pid);
    {
        struct stat used;
        assert_int_equal(stat(want, &used), 0);
        assert_int_equal(used.st_ino, given.st_ino);
        snprintf(want, sizeof(want), "/proc/%d/ns/user", (int)c.started.host_pid);
        assert_int_equal(stat(want, &used), 0);
        assert_int_equal(fstat(pair.userns_fd, &given), 0);
        assert_int_equal(used.st_ino, given.st_ino);
    }
    cell_fini(&c);
    nspair_close(&pair);
}

/* A graceful stop waits for the agent, and not longer than it was told. */
static void test_graceful_stop(void **state)
{
    struct cell c;
    uint64_t begin;

    (void)state;
    cell_init(&c);
    assert_int_equal(cell_boot(&c), 0);
    assert_int_equal(send(c.stream, "deaf\n", 5, 0), 5);
    begin = now_ns();
    assert_int_equal(cell_ops()->stop(c.self, CELLA_STOP_GRACEFUL, 300000000u, NULL), 0);
    assert_in_range(now_ns() - begin, 300000000u, 20000000000u);
    cell_fini(&c);
    cell_init(&c);
    assert_int_equal(cell_boot(&c), 0);
    assert_int_equal(send(c.stream, "exit 0\n", 7, 0), 7);
    begin = now_ns();
    assert_int_equal(cell_ops()->stop(c.self, CELLA_STOP_GRACEFUL, 60000000000u, NULL), 0);
    assert_true(now_ns() - begin < 30000000000u);
    cell_fini(&c);
}

/* ----------------------------------------------------------- death and what is left */

static int groups_found;
static void found(void *ctx, const char *what)
{
    (void)ctx;
    (void)what;
    groups_found++;
}

static int reap(const struct cell *c, int dry)
{
    struct cella_reap r = {.hdr = CELLA_HDR_INIT(struct cella_reap, CELLA_KIND_REAP),
                           .cell_id = c->id,
                           .scratch = c->scratch,
                           .dry_run = (uint32_t)dry,
                           .found = found};
    groups_found = 0;
    return cell_ops()->reap(NULL, &r, NULL);
}

/* Runs a cell in a process of its own, kills that process at `when`, and looks what remains. */
static void host_dies(int when)
{
    struct pollfd p;
    struct cell c;
    int pipefd[2], pidfd, n;
    int32_t init = 0;
    pid_t host;

    cell_init(&c);
    assert_int_equal(pipe2(pipefd, O_CLOEXEC), 0);
    host = fork();
    if (host == 0) {
        int r = when == 0 ? cell_create(&c) : cell_boot(&c);
        if (when == 0) { /* the init's pid, from its group */
            static char json[256];
            int64_t len = cell_json(&c, "processes", json, sizeof(json) - 1);
            json[len > 0 ? len : 0] = 0;
            sscanf(json, "[{\"pid\":%d", &init);
        } else {
            init = (int32_t)c.started.host_pid;
            if (send(c.stream, "deaf\n", 5, 0) < 0) /* only the death signal can end it now */
                r = -1;
            usleep(20000);
        }
        if (r == 0 && when == 2)
            r = cell_ops()->pause(c.self, NULL);
        if (r < 0 || write(pipefd[1], &init, sizeof(init)) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    close(pipefd[1]);
    assert_int_equal(read(pipefd[0], &init, sizeof(init)), sizeof(init));
    assert_true(init > 0);
    pidfd = pidfd_open_(init);
    assert_true(pidfd >= 0);
    kill(host, SIGKILL);
    waitpid(host, NULL, 0);
    p = (struct pollfd){.fd = pidfd, .events = POLLIN};
    if (when < 2)
        assert_int_equal(poll(&p, 1, 20000), 1); /* nobody had to help */
    assert_true(reap(&c, 1) > 0);
    n = groups_found;
    assert_int_equal(reap(&c, 0), n);
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(reap(&c, 0), 0);
    assert_int_equal(reap(&c, 1), 0);
    close(pidfd);
    close(pipefd[0]);
    cell_fini(&c);
}

static void test_host_dies_created(void **state)
{
    (void)state;
    host_dies(0);
}

static void test_host_dies_running(void **state)
{
    (void)state;
    host_dies(1);
}

static void test_host_dies_paused(void **state)
{
    (void)state;
    host_dies(2);
}

/* Killed at any moment of creation: whatever there is by then ends by itself, and reap finds the rest. */
static void test_host_dies_anywhere(void **state)
{
    int i, tries;

    (void)state;
    for (i = 0; i < 24; i++) {
        struct cell c;
        pid_t host;
        cell_init(&c);
        host = fork();
        if (host == 0) {
            cell_boot(&c);
            for (;;)
                pause();
        }
        usleep((useconds_t)i * 250);
        kill(host, SIGKILL);
        waitpid(host, NULL, 0);
        for (tries = 0; reap(&c, 0) > 0 && tries < 2000; tries++)
            usleep(5000); /* a process of it may have been on its way into a group */
        assert_true(tries < 2000);
        usleep(5000);
        assert_int_equal(reap(&c, 1), 0);
        cell_fini(&c);
    }
}

static int count_dir(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static int count_lines(const char *path)
{
    auto_free char *all = NULL;
    char *p;
    int n = 0;

    if (read_file_at(AT_FDCWD, path, 4u << 20, &all, NULL) < 0)
        return -1;
    for (p = all; (p = strchr(p, '\n')); p++)
        n++;
    return n;
}

static void test_nothing_leaks(void **state)
{
    int fds, mounts, i;
    struct cell c;

    (void)state;
    for (i = 0; i < 2; i++) { /* the first loads the plugin */
        cell_init(&c);
        assert_int_equal(cell_boot(&c), 0);
        cell_fini(&c);
    }
    fds = count_dir("/proc/self/fd");
    mounts = count_lines("/proc/self/mountinfo");
    for (i = 0; i < 50; i++) {
        cell_init(&c);
        if (i % 5 == 0)
            c.spec.root = "/nowhere"; /* failures leave nothing either */
        if (i % 5 == 1)
            assert_int_equal(cell_create(&c), 0); /* created, never started */
        else if (i % 5 == 0)
            assert_int_equal(cell_create(&c), -ENOENT);
        else
            assert_int_equal(cell_boot(&c), 0);
        if (c.stream >= 0)
            assert_int_equal(cell_ask(&c, "ping"), 1);
        cell_fini(&c);
        assert_int_equal(reap(&c, 1), 0);
    }
    assert_int_equal(count_dir("/proc/self/fd"), fds);
    assert_int_equal(count_lines("/proc/self/mountinfo"), mounts);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child, not even a dead one */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_bites),      cmocka_unit_test(test_pids_bite),
        cmocka_unit_test(test_disk_bites),        cmocka_unit_test(test_cpu_bites),
        cmocka_unit_test(test_io_bites),          cmocka_unit_test(test_resize),
        cmocka_unit_test(test_unenforceable),     cmocka_unit_test(test_pause),
        cmocka_unit_test(test_stop_begins),       cmocka_unit_test(test_end_is_seen),
        cmocka_unit_test(test_graceful_stop),     cmocka_unit_test(test_given_namespaces),
        cmocka_unit_test(test_host_dies_created), cmocka_unit_test(test_host_dies_running),
        cmocka_unit_test(test_host_dies_paused),  cmocka_unit_test(test_host_dies_anywhere),
        cmocka_unit_test(test_nothing_leaks),
    };

    if (geteuid()) {
        fprintf(stderr, "skipped: needs root\n");
        return 77;
    }
    cells_apart();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
