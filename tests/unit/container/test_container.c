/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * A real cell, seen from inside by the probe agent: isolation, denied system calls with their
 * positive twins, root and mounts, refusals. Root only (77 = skipped otherwise).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "cell.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

struct probed {
    char names[1024];
    int idmap;
};
static void probe_cap(void *ctx, const char *name, uint32_t answer, const char *reason)
{
    struct probed *p = ctx;

    assert_true(answer == CELLA_NONE || answer == CELLA_EMULATED || answer == CELLA_NATIVE);
    assert_true(answer == CELLA_NATIVE || (reason && *reason));
    if (!strcmp(name, "rootfs.idmap"))
        p->idmap = answer == CELLA_NATIVE;
    snprintf(p->names + strlen(p->names), sizeof(p->names) - strlen(p->names), "%s ", name);
}

static int probe(struct probed *p, struct cella_probe *ret)
{
    struct cella_probe_report report = {
        .hdr = CELLA_HDR_INIT(struct cella_probe_report, CELLA_KIND_PROBE_REPORT),
        .ctx = p,
        .capability = probe_cap};

    *p = (struct probed){{0}, 0};
    *ret = (struct cella_probe){.hdr = CELLA_HDR_INIT(struct cella_probe, CELLA_KIND_PROBE)};
    return cell_ops()->probe(NULL, &report, ret, NULL);
}

/* Can the file system of /usr map owner ids here? */
static int can_map(void)
{
    struct probed p;
    struct cella_probe ret;

    return probe(&p, &ret) == 0 && p.idmap;
}

static struct cell shared; /* one plain cell for the tests that only look */

static int shared_up(void **state)
{
    struct rlimit core;

    (void)state;
    getrlimit(RLIMIT_CORE, &core);
    core.rlim_cur = core.rlim_max; /* so that the cell's 0 is not ours */
    setrlimit(RLIMIT_CORE, &core);
    cell_init(&shared);
    shared.limits.memory_bytes = 128u << 20;
    shared.limits.disk_bytes = 16u << 20;
    shared.limits.pids = 32;
    return cell_boot(&shared);
}

static int shared_down(void **state)
{
    (void)state;
    cell_fini(&shared);
    return 0;
}

#define ask(...) cell_ask(&shared, __VA_ARGS__)
#define text() (strchr(shared.reply, ' ') + 1)

/* --------------------------------------------------------------------- isolation */

static void test_nothing_inherited(void **state)
{
    (void)state;
    assert_int_equal(ask("pid"), 1);
    assert_int_equal(ask("uid"), 0);
    assert_int_equal(ask("env"), 0);
    assert_int_equal(ask("list /proc/self/fd"), 4);
    assert_string_equal(text(), "0 1 2 3 ");
    assert_int_equal(ask("host"), 0);
    assert_string_equal(text(), "probe");
    assert_int_equal(ask("call %d 0", SYS_getsid), 1); /* a session of its own */
    assert_true(ask("get /sys/class/net/lo/flags") > 0);
    assert_string_equal(text(), "0x9|"); /* loopback is up */
    assert_int_equal(ask("nnp"), 1);
    assert_int_equal(ask("caps CapBnd"), 0x1eb);
    assert_int_equal(ask("caps CapEff"), 0x1eb);
    assert_int_equal(ask("caps CapInh"), 0);
    assert_int_equal(ask("caps CapAmb"), 0);
    assert_int_equal(ask("rlimit 4"), 0);    /* core */
    assert_int_equal(ask("rlimit 7"), 1024); /* open files */
    assert_true(ask("get /proc/self/cgroup") > 0);
    assert_null(strstr(text(), "cella")); /* the cgroup namespace hides where we are */
    if (access("/proc/self/ns/time", F_OK) == 0)
        assert_true(ask("uptime") < 30);
    assert_int_equal(ask("list /proc/sys/kernel/does-not-exist"), -ENOENT);
}

static void test_devices(void **state)
{
    static const char *const nodes[] = {"null 1:3",   "zero 1:5",    "full 1:7",
                                        "random 1:8", "urandom 1:9", "tty 5:0"};
    size_t i;

    (void)state;
    assert_int_equal(ask("list /dev"), 14);
    assert_int_equal(ask("stat /dev"), 0);
    assert_non_null(strstr(text(), "uid=0 gid=0"));
    assert_int_equal(ask("stat /dev/fd"), 0);
    assert_non_null(strstr(text(), "uid=0 gid=0"));
    for (i = 0; i < ARRAY_LEN(nodes); i++) {
        char name[16], number[16];
        sscanf(nodes[i], "%15s %15s", name, number);
        assert_int_equal(ask("stat /dev/%s", name), 0);
        assert_non_null(strstr(text(), "mode=20666 uid=0 gid=0"));
        assert_non_null(strstr(text(), number));
    }
    assert_int_equal(ask("put /dev/null 100"), 100);
    assert_int_equal(ask("put /dev/full 100"), -ENOSPC);
    assert_int_equal(ask("put /dev/new 1"), -EROFS);
    assert_int_equal(ask("put /dev/shm/new 1"), 1);
    assert_int_equal(ask("stat /dev/ptmx"), 0);
    assert_int_equal(ask("list /dev/pts"), 1); /* ptmx alone */
    /* making a device is refused by the kernel; making a FIFO is not */
    assert_int_equal(ask("call %d -100 p 0x2190 0x103", SYS_mknodat) < 0, 1);
}

static void test_proc_and_sys(void **state)
{
    (void)state;
    assert_int_equal(ask("get /proc/keys"), 0);
    assert_int_equal(ask("get /proc/timer_list"),
                     -EACCES); /* of the host's root: it needs no mask */
    assert_int_equal(ask("get /proc/interrupts"), 0);
    assert_int_equal(ask("list /sys/firmware"), 0);
    assert_int_equal(ask("list /sys/module"), 0);
    assert_int_equal(ask("get /proc/cmdline"), 0);
    assert_true(ask("put /proc/sys/kernel/hostname 1") < 0);
    assert_true(ask("put /proc/sysrq-trigger 1") < 0);
    assert_true(ask("get /proc/self/mountinfo") > 0);
    assert_true(ask("put /sys/kernel/x 1") < 0);
    assert_true(ask("get /proc/meminfo") > 0);
    assert_true(ask("get /proc/self/status") > 0);
    assert_int_equal(ask("get /proc/1/comm") > 0, 1);
    assert_int_equal(ask("get /proc/2/comm"), -ENOENT); /* nobody else there */
}

static void test_root(void **state)
{
    (void)state;
    assert_int_equal(ask("list /"), 13);
    assert_true(ask("put /usr/x 1") == -EROFS);
    assert_int_equal(ask("put /etc/new 5"), 5);
    assert_int_equal(ask("get /etc/new"), 5);
    assert_int_equal(ask("put /tmp/f 3"), 3);
    assert_int_equal(ask("chown /tmp/f"), 0);
    assert_int_equal(ask("stat /tmp/f"), 0);
    assert_non_null(strstr(text(), "uid=1000 gid=1000"));
    assert_int_equal(ask("stat /usr/bin/env"), 0);
    assert_non_null(strstr(text(), can_map() ? "uid=0 gid=0" : "uid=65534 gid=65534"));
    assert_int_equal(ask("stat /proc/1/root/../../../../work"), -ENOENT);
    assert_int_equal(access("/run/f", F_OK), -1);
}

enum { WORKS = 0 };

/* Each line: what must be refused with which errno, and after it a twin of the same family that
 * must work. */
static const struct {
    const char *what;
    long nr;
    const char *args;
    int want; /* exact errno, or WORKS */
} system_calls[] = {
    {"io_uring_setup", SYS_io_uring_setup, "8 p", EPERM},
    {"bpf", SYS_bpf, "0 p 72", EPERM},
    {"add_key", SYS_add_key, "p p p 1 -3", EPERM},
    {"request_key", SYS_request_key, "p p p -3", EPERM},
    {"keyctl", SYS_keyctl, "0 -3 0", EPERM},
    {"userfaultfd", SYS_userfaultfd, "1", EPERM},
    {"perf_event_open", SYS_perf_event_open, "p 0 -1 -1 0", EPERM},
    {"mount", SYS_mount, "p p p 0 0", EPERM},
    {"umount2", SYS_umount2, "p 0", EPERM},
    {"pivot_root", SYS_pivot_root, "p p", EPERM},
    {"chroot", SYS_chroot, "p", EPERM},
    {"fsopen", SYS_fsopen, "p 0", EPERM},
    {"fsmount", SYS_fsmount, "0 0 0", EPERM},
    {"open_tree", SYS_open_tree, "-100 p 1", EPERM},
    {"move_mount", SYS_move_mount, "0 p 0 p 4", EPERM},
    {"mount_setattr", SYS_mount_setattr, "-100 p 0 p 32", EPERM},
    {"setns", SYS_setns, "0 0", EPERM},
    {"unshare user", SYS_unshare, "0x10000000", EPERM},
    {"unshare net", SYS_unshare, "0x40000000", EPERM},
    {"unshare mount", SYS_unshare, "0x20000", EPERM},
    {"unshare time", SYS_unshare, "0x80", EPERM},
    {"unshare files, twin", SYS_unshare, "0x400", WORKS},
    {"clone user", SYS_clone, "0x10000011 0 0 0 0", EPERM},
    {"clone pid", SYS_clone, "0x20000011 0 0 0 0", EPERM},
    {"clone3", SYS_clone3, "p 64", ENOSYS},
    {"AF_VSOCK", SYS_socket, "40 1 0", EPERM},
    {"AF_ALG", SYS_socket, "38 5 0", EPERM},
    {"AF_PACKET", SYS_socket, "17 3 0", EPERM},
    {"AF_BLUETOOTH", SYS_socket, "31 3 1", EPERM},
    {"raw IPv4", SYS_socket, "2 3 1", EPERM},
    {"raw IPv4, flags beside the type", SYS_socket, "2 0x80003 1", EPERM},
    {"raw IPv6", SYS_socket, "10 3 58", EPERM},
    {"SCTP", SYS_socket, "2 1 132", EPERM},
    {"netlink netfilter", SYS_socket, "16 3 12", EPERM},
    {"netlink audit", SYS_socket, "16 3 9", EPERM},
    {"netlink route, twin", SYS_socket, "16 3 0", WORKS},
    {"TCP, twin", SYS_socket, "2 0x80001 0", WORKS},
    {"UDP, twin", SYS_socket, "2 2 17", WORKS},
    {"TCP over IPv6, twin", SYS_socket, "10 1 6", WORKS},
    {"unix, twin", SYS_socket, "1 1 0", WORKS},
    {"socketpair, twin", SYS_socketpair, "1 1 0 p", WORKS},
    {"kexec_load", SYS_kexec_load, "0 0 p 0", EPERM},
    {"init_module", SYS_init_module, "p 0 p", EPERM},
    {"finit_module", SYS_finit_module, "0 p 0", EPERM},
    {"delete_module", SYS_delete_module, "p 0", EPERM},
    {"personality", SYS_personality, "0x0008", EPERM},
    {"personality with high bits", SYS_personality, "0x100000008", EPERM},
    {"personality query, twin", SYS_personality, "0xffffffff", WORKS},
    {"TIOCSTI", SYS_ioctl, "0 0x5412 p", EPERM},
    {"TIOCSTI with high bits", SYS_ioctl, "0 0x100005412 p", EPERM},
    {"TIOCLINUX", SYS_ioctl, "0 0x541C p", EPERM},
    {"TIOCSETD", SYS_ioctl, "0 0x5423 p", EPERM},
    {"ioctl, twin (not a terminal)", SYS_ioctl, "0 0x5401 p", ENOTTY},
    {"quotactl", SYS_quotactl, "0 p 0 p", EPERM},
    {"acct", SYS_acct, "0", EPERM},
    {"swapon", SYS_swapon, "p 0", EPERM},
    {"reboot", SYS_reboot, "0xfee1dead 672274793 0 0", EPERM},
    {"syslog", SYS_syslog, "3 p 1", EPERM},
    {"open_by_handle_at", SYS_open_by_handle_at, "0 p 0", EPERM},
    {"name_to_handle_at", SYS_name_to_handle_at, "-100 p p p 0", EPERM},
    {"fanotify_init", SYS_fanotify_init, "0 0", EPERM},
    {"pidfd_getfd", SYS_pidfd_getfd, "0 0 0", EPERM},
    {"kcmp", SYS_kcmp, "1 1 0 0 0", EPERM},
    {"iopl", SYS_iopl, "3", EPERM},
    {"modify_ldt", SYS_modify_ldt, "0 p 16", EPERM},
    {"settimeofday", SYS_settimeofday, "p 0", EPERM},
    {"sethostname", SYS_sethostname, "p 1", EPERM},
    {"fchmodat2, twin (empty path)", 452, "-100 p 0 0", ENOENT},
    {"memfd_create, twin", SYS_memfd_create, "p 0", WORKS},
    {"pidfd_open, twin", SYS_pidfd_open, "1 0", WORKS},
    {"inotify_init1, twin", SYS_inotify_init1, "0", WORKS},
    {"membarrier, twin", SYS_membarrier, "0 0 0", WORKS},
    {"ptrace, twin (no such process)", SYS_ptrace, "16 999999 0 0", ESRCH},
    {"a number of the future", 480, "", ENOSYS},
    {"statmount", 457, "p p 0 0", ENOSYS},
    {"getpid, twin", SYS_getpid, "", WORKS},
};

static void test_system_calls(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(system_calls); i++) {
        long r = ask("call %ld %s", system_calls[i].nr, system_calls[i].args);
        if (system_calls[i].want == WORKS ? r < 0 : r != -system_calls[i].want)
            fail_msg("%s: got %ld, wanted errno %d", system_calls[i].what, r, system_calls[i].want);
    }
    assert_int_equal(ask("fork"), 7);
}

/* ----------------------------------------------------------------- root and mounts */

static void test_readonly_root(void **state)
{
    struct cell c;

    (void)state;
    cell_init(&c);
    c.limits.disk_bytes = 4u << 20;
    c.spec.hdr.flags |= CELLA_SPEC_READONLY_ROOT;
    assert_int_equal(cell_boot(&c), 0);
    assert_int_equal(cell_ask(&c, "put /f 1"), -EROFS);
    assert_int_equal(cell_ask(&c, "put /etc/f 1"), -EROFS);
    assert_int_equal(cell_ask(&c, "put /tmp/f 1"), 1);
    assert_int_equal(cell_ask(&c, "put /run/f 1"), 1);
    assert_int_equal(cell_ask(&c, "put /root/f 1"), 1);
    assert_int_equal(cell_ask(&c, "put /var/tmp/f 1"), 1);
    assert_int_equal(cell_ask(&c, "put /tmp/big %d", 8 << 20), -ENOSPC);
    cell_fini(&c);
}

static void test_user_mounts(void **state)
{
    struct cell c;
    char ro[128], rw[128], file[160], path[192];

    (void)state;
    cell_init(&c);
    snprintf(ro, sizeof(ro), "%s/ro", c.dir);
    snprintf(rw, sizeof(rw), "%s/rw", c.dir);
    snprintf(file, sizeof(file), "%s/file", ro);
    assert_int_equal(mkdir(ro, 0755) | mkdir(rw, 0777) | chmod(rw, 0777), 0);
    close(open(file, O_CREAT | O_WRONLY, 0644));
    assert_int_equal(write_file_at(AT_FDCWD, file, "hello"), 0);
    /* a link of the image that points out of the root must not lead there */
    snprintf(path, sizeof(path), "%s/evil", c.skeleton);
    assert_int_equal(symlink("../../../../etc", path), 0);
    c.mounts[1] = (struct cella_mount){ro, "/data/in", CELLA_MOUNT_BIND, 0, 0};
    c.mounts[2] = (struct cella_mount){rw, "/data/out", CELLA_MOUNT_BIND, CELLA_MOUNT_WRITABLE, 0};
    c.mounts[3] = (struct cella_mount){file, "/etc/one", CELLA_MOUNT_BIND, CELLA_MOUNT_FILE, 0};
    c.mounts[4] =
        (struct cella_mount){NULL, "/scratch", CELLA_MOUNT_TMPFS, CELLA_MOUNT_WRITABLE, 1u << 20};
    c.mounts[5] = (struct cella_mount){ro, "/evil/here", CELLA_MOUNT_BIND, 0, 0};
    c.spec.n_mounts = 6;
    assert_int_equal(cell_boot(&c), 0);
    assert_int_equal(cell_ask(&c, "get /data/in/file"), 5);
    assert_int_equal(cell_ask(&c, "put /data/in/new 1"), -EROFS);
    assert_int_equal(cell_ask(&c, "put /data/out/new 7"), 7);
    assert_int_equal(cell_ask(&c, "get /etc/one"), 5);
    assert_int_equal(cell_ask(&c, "put /scratch/a 1000"), 1000);
    assert_int_equal(cell_ask(&c, "put /scratch/b %d", 2 << 20), -ENOSPC);
    assert_int_equal(cell_ask(&c, "get /etc/here/file"), 5); /* inside the cell's own /etc */
    assert_int_equal(access("/etc/here", F_OK), -1);
    snprintf(path, sizeof(path), "%s/new", rw);
    assert_int_equal(access(path, F_OK), 0);
    cell_fini(&c);
}

/* A source that turned into a link or a pipe after the core judged it. */
static void test_swapped_sources(void **state)
{
    struct cell c;
    char real[128], link_[128], through[160], fifo[128];

    (void)state;
    cell_init(&c);
    snprintf(real, sizeof(real), "%s/real", c.dir);
    snprintf(link_, sizeof(link_), "%s/link", c.dir);
    snprintf(through, sizeof(through), "%s/link/sub", c.dir);
    snprintf(fifo, sizeof(fifo), "%s/fifo", c.dir);
    assert_int_equal(
        mkdir(real, 0755) | symlink(real, link_) | mkdir(through, 0755) | mkfifo(fifo, 0666), 0);
    c.spec.n_mounts = 2;
    c.mounts[1] = (struct cella_mount){link_, "/x", CELLA_MOUNT_BIND, 0, 0};
    assert_int_equal(cell_create(&c), -ELOOP);
    c.mounts[1].source = through;
    assert_int_equal(cell_create(&c), -ELOOP);
    assert_non_null(strstr(c.eb.text, "symbolic link"));
    c.mounts[1].source = fifo;
    assert_int_equal(cell_create(&c), -EINVAL);
    c.mounts[1].flags = CELLA_MOUNT_FILE;
    assert_int_equal(cell_create(&c), -EINVAL);
    c.mounts[1] = (struct cella_mount){real, "/x", CELLA_MOUNT_BIND, 0, 0};
    assert_int_equal(cell_boot(&c), 0);
    assert_int_equal(cell_ask(&c, "list /x"), 1);
    cell_fini(&c);
}

/* ----------------------------------------------------------------------- refusals */

static void test_refusals(void **state)
{
    struct cell c;
    int fd;

    (void)state;
    cell_init(&c);
    fd = memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    c.spec.borrow_agent_fd = fd;
    assert_int_equal(cell_create(&c), -EPERM);
    assert_non_null(strstr(c.eb.text, "not sealed"));
    close(fd);
    c.spec.borrow_agent_fd = c.agent_fd;
    c.spec.root = "/nowhere/at/all";
    assert_int_equal(cell_create(&c), -ENOENT);
    assert_non_null(strstr(c.eb.text, "/nowhere/at/all"));
    c.spec.root = c.skeleton;
    c.spec.uid_count = 10;
    assert_int_equal(cell_create(&c), -EINVAL);
    c.spec.uid_count = 65536;
    c.mounts[1] = (struct cella_mount){"/does/not/exist", "/x", CELLA_MOUNT_BIND, 0, 0};
    c.spec.n_mounts = 2;
    assert_int_equal(cell_create(&c), -ENOENT);
    assert_non_null(strstr(c.eb.text, "/does/not/exist"));
    c.spec.n_mounts = 1;
    c.limits.memory_bytes = 64 << 10; /* less than the first process needs */
    assert_true(cell_create(&c) < 0);
    assert_non_null(strstr(c.eb.text, "memory"));
    c.limits.memory_bytes = 0;
    assert_int_equal(cell_boot(&c), 0); /* the twin */
    assert_int_equal(cell_ops()->connect(c.self, 7, &fd, &c.eb.err), -ENOTSUP);
    assert_int_equal(cell_ops()->connect(c.self, 0, &fd, &c.eb.err), -EALREADY);
    cell_fini(&c);
}

/* An agent that cannot be executed is told by start(), in words. */
static void test_bad_agent(void **state)
{
    struct cell c;
    int fd = memfd_create("junk", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    (void)state;
    assert_int_equal(write_all(fd,
                               "\x7f"
                               "ELFjunk",
                               8),
                     0);
    assert_int_equal(
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    cell_init(&c);
    c.spec.borrow_agent_fd = fd;
    assert_int_equal(cell_create(&c), 0);
    assert_int_equal(cell_ops()->start(c.self, &c.started, &c.eb.err), -ENOEXEC);
    assert_non_null(strstr(c.eb.text, "agent"));
    cell_fini(&c);
    close(fd);
}

static void test_methods(void **state)
{
    static char buf[65536];
    int64_t n;

    (void)state;
    n = cell_json(&shared, "mounts", buf, sizeof(buf) - 1);
    assert_true(n > 0);
    buf[n] = 0;
    assert_non_null(
        strstr(buf, "{\"target\":\"/\",\"type\":\"overlay\",\"options\":\"rw,nosuid,nodev"));
    assert_non_null(strstr(buf, "{\"target\":\"/proc/keys\""));
    assert_int_equal(cell_json(&shared, "mounts", buf, 10), -ENOBUFS);
    n = cell_json(&shared, "processes", buf, sizeof(buf) - 1);
    assert_true(n > 0);
    buf[n] = 0;
    assert_non_null(strstr(buf, "\"pid\":"));
    assert_true(cell_ops()->n_methods == 5);
    /* a name that tries to end its string */
    assert_int_equal(ask("name x\"},{\"pid\":7\x1b"), 0);
    n = cell_json(&shared, "processes", buf, sizeof(buf) - 1);
    assert_true(n > 0);
    buf[n] = 0;
    assert_non_null(strstr(buf, "\"name\":\"x\\\"},{\\\"pid\\\":7\\u001b\"}]"));
}

static void test_probe(void **state)
{
    struct probed p;
    struct cella_probe ret;
    uint64_t begin = now_ns();

    (void)state;
    assert_int_equal(probe(&p, &ret), 0);
    assert_true(now_ns() - begin < 5000000000u); /* a few ms, unless the host is busy */
    assert_int_equal(ret.strength, CELLA_STRENGTH_PROCESS);
    assert_int_equal(ret.net_need, CELLA_NET_NETNS);
    assert_non_null(
        strstr(p.names, "limit.memory limit.pids limit.cpu limit.io limit.disk pause "));
    assert_non_null(strstr(p.names, "rootfs.idmap"));
}

int main(void)
{
    const struct CMUnitTest look[] = {
        cmocka_unit_test(test_nothing_inherited), cmocka_unit_test(test_devices),
        cmocka_unit_test(test_proc_and_sys),      cmocka_unit_test(test_root),
        cmocka_unit_test(test_system_calls),      cmocka_unit_test(test_methods),
    };
    const struct CMUnitTest own[] = {
        cmocka_unit_test(test_readonly_root),   cmocka_unit_test(test_user_mounts),
        cmocka_unit_test(test_swapped_sources), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bad_agent),       cmocka_unit_test(test_probe),
    };
    int failed;

    if (geteuid()) {
        fprintf(stderr, "skipped: needs root\n");
        return 77;
    }
    failed = cmocka_run_group_tests(look, shared_up, shared_down);
    return failed + cmocka_run_group_tests(own, NULL, NULL);
}
