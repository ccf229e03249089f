/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The life of a real machine: QEMU, the lab's kernel, an init that answers. Root only; without a guest kernel
 * skipped (77). A boot takes seconds under emulation, so what can share a machine does.
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

#include "machine.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

static struct machine shared; /* booted once */

#define RUNS(call)                                                                                 \
    do {                                                                                           \
        int runs_ = (call);                                                                        \
        if (runs_ < 0)                                                                             \
            print_error("%s\n", shared.eb.text);                                                   \
        assert_int_equal(runs_, 0);                                                                \
    } while (0)

static void proc_file(const struct machine *m, const char *name, char *out, size_t cap)
{
    char path[64];
    auto_free char *text = NULL;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)m->started.host_pid, name);
    assert_int_equal(read_file_at(AT_FDCWD, path, 1u << 20, &text, NULL), 0);
    snprintf(out, cap, "%s", text);
}

/* ------------------------------------------------------------------ shared machine */

static void test_ports(void **state)
{
    (void)state;
    assert_int_equal(machine_ask(&shared, 0, "pid"), 1);
    assert_int_equal(machine_ask(&shared, 1, "ping"), 1);
    /* closed and connected again, while the other goes on */
    RUNS(machine_connect(&shared, 0));
    assert_int_equal(machine_ask(&shared, 0, "ping"), 1);
    RUNS(machine_connect(&shared, 1));
    assert_int_equal(machine_ask(&shared, 1, "ping"), 1);
    assert_int_equal(machine_ask(&shared, 0, "ping"), 1);
    assert_int_equal(machine_ops()->connect(shared.self, 2, &(int){-1}, &shared.eb.err), -ENOTSUP);
}

static void test_sizes(void **state)
{
    long disk;

    (void)state;
    assert_in_range(machine_ask(&shared, 0, "ram"), 128, 228); /* the limit, and the kernel's */
    assert_int_equal(machine_ask(&shared, 0, "cpus"), 1);
    disk = machine_ask(&shared, 0, "rw");
    assert_in_range(disk, 12 << 20, 16 << 20);
    assert_int_equal(machine_ask(&shared, 0, "put /rw/a 4194304"), 4194304);
    assert_true(machine_stats(&shared).disk_bytes >= 4194304);
    assert_int_equal(machine_ask(&shared, 0, "put /rw/b 33554432"), -ENOSPC);
    assert_int_equal(machine_ask(&shared, 0, "rm /rw/b"), 0);
    assert_int_equal(machine_ask(&shared, 0, "rootwrite"), -EPERM); /* read-only to the guest */
}

static void test_jail(void **state)
{
    char text[20000], path[64], link[64], own[64], options[64], *line;
    struct dirent *e;
    DIR *d;

    (void)state;
    proc_file(&shared, "status", text, sizeof(text));
    assert_non_null(strstr(text, "Uid:\t1879179264\t1879179264\t1879179264\t1879179264"));
    assert_non_null(strstr(text, "CapEff:\t0000000000000000"));
    assert_non_null(strstr(text, "CapBnd:\t0000000000000000"));
    assert_non_null(strstr(text, "NoNewPrivs:\t1"));
    assert_non_null(strstr(text, "Seccomp:\t2"));
    assert_non_null(strstr(text, "\nNSpid:"));
    proc_file(&shared, "net/dev", text, sizeof(text));
    assert_non_null(strstr(text, "lo:"));
    assert_null(strstr(text, "eth"));
    proc_file(&shared, "environ", text, sizeof(text));
    assert_int_equal(strncmp(text, "LD_PRELOAD=/cella/shim.so", 25), 0);
    proc_file(&shared, "mountinfo", text, sizeof(text));
    for (line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (sscanf(line, "%*d %*d %*s %*s %63s %63s", link, options) == 2) /* all but the share */
            assert_int_equal(strncmp(options, strcmp(link, "/cella/m0") ? "ro,nosuid,nodev" : "rw",
                                     strcmp(link, "/") && strcmp(link, "/cella/m0") ? 15 : 2),
                             0);
    snprintf(path, sizeof(path), "/proc/%d/root", (int)shared.started.host_pid);
    d = opendir(path);
    assert_non_null(d);
    while ((e = readdir(d)))
        assert_non_null(
            strstr(" . .. usr lib lib64 lib32 libx32 bin sbin etc dev cella tmp proc ", e->d_name));
    closedir(d);
    snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)shared.started.host_pid);
    assert_true(readlink(path, link, sizeof(link)) > 0 &&
                readlink("/proc/self/ns/net", own, sizeof(own)) > 0);
    assert_memory_not_equal(link, own, 12);
}

/* Only what was given: no descriptor of this process, none that is a directory. */
static void test_descriptors(void **state)
{
    char path[64], link[200], target[300];
    struct dirent *e;
    struct stat st;
    DIR *d;

    (void)state;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)shared.started.host_pid);
    d = opendir(path);
    assert_non_null(d);
    while ((e = readdir(d))) {
        ssize_t n;
        snprintf(link, sizeof(link), "%s/%s", path, e->d_name);
        n = readlink(link, target, sizeof(target) - 1);
        if (n <= 0 || e->d_name[0] == '.')
            continue;
        target[n] = 0;
        if (strncmp(target, "/cella/m", 8) && stat(link, &st) == 0 && S_ISDIR(st.st_mode))
            fail_msg("a directory: %s", target);
        assert_null(strstr(target, "test-fullvm"));
    }
    closedir(d);
}

static void test_pause(void **state)
{
    long before, after;

    (void)state;
    before = machine_ask(&shared, 0, "uptime");
    RUNS(machine_ops()->pause(shared.self, &shared.eb.err));
    assert_int_equal(machine_ask_ms(&shared, 0, 400, "ping"), -ETIMEDOUT);
    RUNS(machine_ops()->resume(shared.self, &shared.eb.err));
    assert_int_equal(machine_catch_up(&shared, 0), 0);
    after = machine_ask(&shared, 0, "uptime");
    assert_true(after >= before);
}

static void test_resize(void **state)
{
    struct cella_limits l = {.hdr = CELLA_HDR_INIT(struct cella_limits, CELLA_KIND_LIMITS)};
    long before = machine_ask(&shared, 0, "free"), i;

    (void)state;
    l.memory_bytes = 100u << 20;
    RUNS(machine_ops()->resize(shared.self, &l, &shared.eb.err));
    for (i = 0; i < 300 && machine_ask(&shared, 0, "free") >= before - 10; i++)
        usleep(100000);
    assert_true(machine_ask(&shared, 0, "free") < before - 10);
    l.memory_bytes = 128u << 20;
    RUNS(machine_ops()->resize(shared.self, &l, &shared.eb.err));
    for (i = 0; i < 300 && machine_ask(&shared, 0, "free") < before - 10; i++)
        usleep(100000);
    assert_true(machine_ask(&shared, 0, "free") >= before - 10);
    l.memory_bytes = 256u << 20; /* more than there is */
    assert_int_equal(machine_ops()->resize(shared.self, &l, errbuf_init(&shared.eb)), -EINVAL);
    assert_non_null(strstr(shared.eb.text, "make a new cell"));
    l.memory_bytes = 0;
    l.cpu_millis = 2000;
    assert_int_equal(machine_ops()->resize(shared.self, &l, &shared.eb.err), -EINVAL);
    l.cpu_millis = 500;
    RUNS(machine_ops()->resize(shared.self, &l, &shared.eb.err));
    l.cpu_millis = 1000;
    RUNS(machine_ops()->resize(shared.self, &l, &shared.eb.err));
    l.cpu_millis = 0;
    l.io_read_bps = l.io_write_bps = 1 << 20;
    RUNS(machine_ops()->resize(shared.self, &l, &shared.eb.err));
}

/* After a MiB a second was asked for. */
static void test_io_bites(void **state)
{
    uint64_t from = now_ns();

    (void)state;
    assert_int_equal(machine_ask(&shared, 0, "put /rw/c 4194304"), 4194304);
    assert_true(now_ns() - from > 2 * 1000000000ull);
}

static void test_stats(void **state)
{
    struct cella_stats s = machine_stats(&shared);

    (void)state;
    assert_true(s.cpu_user_ns + s.cpu_system_ns > 100000000u);
    assert_true(s.unknown & 1u << 4 && s.unknown & 1u << 5 && s.unknown & 1u << 10);
    assert_true(s.unknown & 1u << 2 || s.memory_bytes > 32u << 20);
    assert_int_equal(s.limit_hit, 0);
}

/* The flood costs no memory and stops nothing; what came last is kept. */
static void test_console(void **state)
{
    static char json[300000];
    int64_t n;

    (void)state;
    n = machine_json(&shared, "console", json, sizeof(json) - 1);
    assert_true(n > 0);
    json[n] = 0;
    assert_non_null(strstr(json, "probe: ports"));
    machine_ask_ms(&shared, 0, 120000, "flood 400000");
    assert_int_equal(machine_ask(&shared, 0, "ping"), 1);
    n = machine_json(&shared, "console", json, sizeof(json) - 1);
    assert_in_range(n, 1, 40000);
    json[n] = 0;
    assert_non_null(strstr(json, "FFFFFFFF"));
    assert_int_equal(machine_json(&shared, "console", json, 16), -ENOBUFS);
    n = machine_json(&shared, "machine", json, sizeof(json) - 1);
    json[n] = 0;
    assert_non_null(strstr(json, "\"memory\":239075328,\"cpus\":1,\"disk\":16777216"));
}

/* The share is what is mounted read-only or not, and no more than QEMU's own id may do. */
static void test_shares(void **state)
{
    char path[200], data[16] = "";
    int fd;

    (void)state;
    assert_int_equal(machine_ask(&shared, 0, "share cella.m1"), 0);
    assert_int_equal(machine_ask(&shared, 0, "get /share/hello"), 3);
    assert_non_null(strstr(shared.reply, "hey"));
    assert_int_equal(machine_ask(&shared, 0, "get /share/secret"), -EACCES);
    assert_int_equal(machine_ask(&shared, 0, "put /share/new 10"), -EROFS);
    assert_int_equal(machine_ask(&shared, 0, "share cella.m0"), 0);
    assert_int_equal(machine_ask(&shared, 0, "put /share/new 10"), 10);
    snprintf(path, sizeof(path), "%s/rw/new", shared.dir);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, data, sizeof(data)), 10);
    close(fd);
    assert_int_equal(machine_ask(&shared, 0, "get /share/../ro/hello"), -ENOENT);
}

/* Stays last of the shared machine. */
static void test_off(void **state)
{
    struct pollfd p = {.fd = shared.started.borrow_exit_fd, .events = POLLIN};

    (void)state;
    assert_int_equal(poll(&p, 1, 0), 0);
    send(shared.ports[1], "off\n", 4, MSG_NOSIGNAL);
    RUNS(machine_ops()->stop(shared.self, CELLA_STOP_GRACEFUL, 60 * 1000000000ull, NULL));
    assert_int_equal(poll(&p, 1, 0), 1);
    RUNS(machine_ops()->stop(shared.self, CELLA_STOP_KILL, 0, NULL));
    assert_true(machine_stats(&shared).cpu_user_ns > 0); /* final figures */
    assert_int_equal(machine_ops()->connect(shared.self, 0, &(int){-1}, &shared.eb.err),
                     -ECONNREFUSED);
}

/* ------------------------------------------------------------------- own machines */

static void refused(struct machine *m, int code, const char *words)
{
    int fds = machine_entries("/proc/self/fd");

    assert_int_equal(machine_create(m), code);
    if (!strstr(m->eb.text, words))
        print_error("%s\n", m->eb.text);
    assert_non_null(strstr(m->eb.text, words));
    assert_null(m->self);
    assert_int_equal(machine_entries("/proc/self/fd"), fds);
    assert_int_equal(machine_entries(m->scratch), 0);
}

static void test_refusals(void **state)
{
    static char long_text[322];
    struct machine m;

    (void)state;
    machine_init(&m);
    m.spec.kernel = NULL;
    refused(&m, -ENOENT, "cella image kernel fetch");
    m.spec.kernel = "/nonexistent/vmlinuz";
    refused(&m, -ENOENT, "/nonexistent/vmlinuz: No such file");
    m.spec.kernel = m.kernel;
    m.spec.initrd = NULL;
    refused(&m, -ENOENT, "initramfs");
    m.spec.initrd = m.initrd;
    chmod(m.initrd, 0600);
    refused(&m, -EACCES, "chmod a+r");
    chmod(m.initrd, 0644);
    m.spec.kernel = m.root; /* no kernel at all */
    chmod(m.root, 0644);
    refused(&m, -EPIPE, "QEMU does not start");
    m.spec.kernel = m.kernel;
    m.limits.memory_bytes = 2ull << 40;
    refused(&m, -EINVAL, "memory limit of 2199023255552 bytes");
    m.limits.memory_bytes = 128u << 20;
    m.limits.disk_bytes = 4096;
    refused(&m, -EINVAL, "disk limit");
    m.limits.disk_bytes = 16u << 20;
    m.mounts[0] = (struct cella_mount){"/etc/passwd", "/x", CELLA_MOUNT_BIND, CELLA_MOUNT_FILE, 0};
    m.spec.n_mounts = 1;
    refused(&m, -ENOTSUP, "not single files");
    m.mounts[0] = (struct cella_mount){m.scratch, "/x", CELLA_MOUNT_BIND, 0, 0};
    refused(&m, -EACCES, "the id 1879179264 may not look into it");
    m.spec.n_mounts = 0;
    machine_option(&m, "cpu", "max,foo bar", 0);
    refused(&m, -EINVAL, "is no model");
    m.values[0].str = "no-such-model";
    refused(&m, -EPIPE, "no-such-model");
    m.values[0] = (struct cella_option_value){"qemu", "/bin/false", 0};
    refused(&m, -EPIPE, "QEMU");
    memset(long_text, 'x', sizeof(long_text) - 1); /* it would be cut */
    m.values[0] = (struct cella_option_value){"append", long_text, 0};
    refused(&m, -E2BIG, "321 bytes, at most 320");
    machine_fini(&m);
}

static void test_panic(void **state)
{
    struct machine m;
    struct pollfd p;

    (void)state;
    machine_init(&m);
    RUNS(machine_boot(&m));
    p = (struct pollfd){.fd = m.started.borrow_exit_fd, .events = POLLIN};
    send(m.ports[1], "panic\n", 6, MSG_NOSIGNAL);
    if (poll(&p, 1, 30000) != 1) {
        char json[40000];
        int64_t n = machine_json(&m, "console", json, sizeof(json));
        fail_msg("%.*s", (int)n, json);
    }
    assert_int_equal(machine_ops()->stop(m.self, CELLA_STOP_KILL, 0, NULL), 0);
    if (!strstr(m.log, "Kernel panic - not syncing: Attempted to kill init! exitcode="))
        print_error("%s\n", m.log);
    assert_non_null(strstr(m.log, "ended by itself"));
    assert_non_null(strstr(m.log, "Kernel panic - not syncing: Attempted to kill init! exitcode="));
    machine_fini(&m);
}

static void found(void *ctx, const char *what)
{
    (void)ctx;
    assert_non_null(strstr(what, "cgroup "));
}

/* The host process dies between create and start, and after start: QEMU with it; reap finds the rest. */
static void host_dies(int started)
{
    struct cella_reap reap = {.hdr = CELLA_HDR_INIT(struct cella_reap, CELLA_KIND_REAP),
                              .found = found};
    struct machine m;
    struct pollfd p;
    int ends[2], qemu = -1, ended;
    pid_t pid;

    machine_init(&m);
    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        int r = machine_create(&m);
        struct cella_started s = {.hdr = CELLA_HDR_INIT(struct cella_started, CELLA_KIND_STARTED)};
        char json[400];
        int64_t n;
        if (r == 0 && started)
            r = machine_ops()->start(m.self, &s, &m.eb.err);
        n = r == 0 ? machine_json(&m, "machine", json, sizeof(json) - 1) : 0;
        json[n > 0 ? n : 0] = 0;
        qemu = n > 0 && strstr(json, "\"pid\":") ? atoi(strstr(json, "\"pid\":") + 6) : -1;
        (void)!write(ends[1], &qemu, sizeof(qemu));
        pause();
        _exit(1);
    }
    assert_int_equal(read(ends[0], &qemu, sizeof(qemu)), sizeof(qemu));
    assert_true(qemu > 0);
    p = (struct pollfd){.fd = pidfd_open_(qemu), .events = POLLIN};
    assert_true(p.fd >= 0);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    ended = poll(&p, 1, 20000);
    pidfd_signal(p.fd, SIGKILL);
    close(p.fd);
    assert_int_equal(ended, 1);
    reap.cell_id = m.id;
    reap.scratch = m.scratch;
    machine_host.ctx = &m;
    assert_true(machine_ops()->reap(&machine_host, &reap, errbuf_init(&m.eb)) > 0);
    assert_int_equal(machine_ops()->reap(&machine_host, &reap, &m.eb.err), 0);
    close(ends[0]);
    close(ends[1]);
    machine_fini(&m);
}

static void test_host_dies(void **state)
{
    (void)state;
    host_dies(0);
    host_dies(1);
}

static void test_killed(void **state)
{
    struct machine m;
    struct pollfd p;

    (void)state;
    machine_init(&m);
    assert_int_equal(machine_create(&m), 0);
    m.started =
        (struct cella_started){.hdr = CELLA_HDR_INIT(struct cella_started, CELLA_KIND_STARTED)};
    RUNS(machine_ops()->start(m.self, &m.started, &m.eb.err));
    p = (struct pollfd){.fd = m.started.borrow_exit_fd, .events = POLLIN};
    kill((pid_t)m.started.host_pid, SIGKILL);
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(machine_ops()->pause(m.self, errbuf_init(&m.eb)), -EPIPE);
    assert_non_null(strstr(m.eb.text, "it has ended"));
    assert_int_equal(machine_ops()->stop(m.self, CELLA_STOP_KILL, 0, NULL), 0);
    assert_non_null(strstr(m.log, "signal 9"));
    machine_fini(&m);
}

/* -------------------------------------------------------------------------- probe */

static char said[8192];
static void capability(void *ctx, const char *name, uint32_t answer, const char *reason)
{
    (void)ctx;
    snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s=%u:%s\n", name, answer,
             reason ? reason : "");
}

static void test_probe(void **state)
{
    struct cella_probe_report report = {
        .hdr = CELLA_HDR_INIT(struct cella_probe_report, CELLA_KIND_PROBE_REPORT),
        .capability = capability};
    struct cella_probe probe = {.hdr = CELLA_HDR_INIT(struct cella_probe, CELLA_KIND_PROBE)};
    struct errbuf eb;
    int virtualised = system("grep -qwE 'svm|vmx' /proc/cpuinfo") == 0;
    uint64_t from = now_ns();

    (void)state;
    assert_int_equal(machine_ops()->probe(&machine_host, &report, &probe, errbuf_init(&eb)), 0);
    assert_true(now_ns() - from < 5000000000u); /* a few ms, unless the host is busy */
    assert_int_equal(probe.net_need, CELLA_NET_TAP);
    assert_int_equal(probe.root_need, CELLA_ROOT_IMAGE);
    if (!virtualised) {
        assert_int_equal(probe.strength, CELLA_STRENGTH_VM_EMULATED);
        assert_non_null(strstr(said, "kvm=2000:emulated by QEMU: the processor has neither"));
    }
    assert_non_null(strstr(said, "qemu=3000:QEMU "));
}

static int setup(void **state)
{
    static char rw[100], ro[100];
    int fd;

    (void)state;
    signal(SIGPIPE, SIG_IGN);
    fd = open("/proc/self/exe", O_RDONLY);
    if (fcntl(fd, F_DUPFD, 300) < 0) /* inheritable on purpose, where nothing is put in its place */
        return -1;
    machine_init(&shared);
    snprintf(rw, sizeof(rw), "%s/rw", shared.dir);
    snprintf(ro, sizeof(ro), "%s/ro", shared.dir);
    if (chmod(shared.dir, 0755) < 0 || mkdir(rw, 0777) < 0 || chmod(rw, 0777) < 0 ||
        mkdir(ro, 0777) < 0 || (fd = open(ro, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return -1;
    create_file_at(fd, "hello", "hey", 3, 0644);
    create_file_at(fd, "secret", "no", 2, 0600);
    close(fd);
    shared.mounts[0] = (struct cella_mount){rw, "/rw", CELLA_MOUNT_BIND, CELLA_MOUNT_WRITABLE, 0};
    shared.mounts[1] = (struct cella_mount){ro, "/ro", CELLA_MOUNT_BIND, 0, 0};
    shared.spec.n_mounts = 2;
    shared.limits.cpu_millis = 1000;
    return machine_boot(&shared);
}

static int teardown(void **state)
{
    (void)state;
    machine_fini(&shared);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ports),   cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_jail),    cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_pause),   cmocka_unit_test(test_stats),
        cmocka_unit_test(test_resize),  cmocka_unit_test(test_io_bites),
        cmocka_unit_test(test_console), cmocka_unit_test(test_shares),
        cmocka_unit_test(test_off),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_panic),   cmocka_unit_test(test_host_dies),
        cmocka_unit_test(test_killed),  cmocka_unit_test(test_probe),
    };
    int r = machine_possible();

    cmocka_set_test_filter(getenv("CMOCKA_FILTER"));
    return r ? r : cmocka_run_group_tests(tests, setup, teardown);
}
