/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The guest's init in a real machine, from boot to power off, through the host's own client. One
 * machine for all tests, in order: a boot costs seconds.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>

#include "machine.h"

#undef fail /* cmocka has its own */
#include <cmocka.h>

#define SECONDS 1000000000ull

static struct machine m;

static const struct who parent = {"parent", "10.0.2.15/24", "10.0.2.2", 0x11, 0xaa, 1},
                        child = {"child", "10.0.2.77/24", "10.0.2.2", 0x22, 0xbb, 2};

/* Output of a shell command, stdout and stderr; `status` of it. */
static const char *sh(const char *script, uint32_t *status)
{
    static char text[65536];
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    struct op o;

    op_exec(&m.cell, &o, argv, NULL);
    if (op_wait(&o, 60000) < 0)
        machine_console(&m);
    assert_true(o.ended);
    snprintf(text, sizeof(text), "%.*s%.*s%s", (int)o.out.len, o.out.ptr, (int)o.err.len, o.err.ptr,
             o.type == CELLA_FRAME_ERROR ? o.msg : "");
    if (status)
        *status = o.type == CELLA_FRAME_ERROR ? 255 : o.status;
    op_fini(&o);
    return text;
}

#define assert_sh(script, expected) assert_string_equal(sh(script, NULL), expected)
static void has(const char *script, const char *part, int line)
{
    const char *got = sh(script, NULL);

    if (!strstr(got, part)) {
        fprintf(stderr, "line %d: no \"%s\" in: %s\n", line, part, got);
        fail();
    }
}
#define assert_has(script, part) has(script, part, __LINE__)

static void call(uint32_t op, const struct buf *fields)
{
    struct errbuf eb;
    int r = guest_call(m.guest, op, fields ? fields->ptr : "", fields ? fields->len : 0,
                       60 * SECONDS, NULL, errbuf_init(&eb));

    if (r < 0) {
        fprintf(stderr, "%s\n", eb.text);
        machine_console(&m);
    }
    assert_int_equal(r, 0);
}

static void show(const char *name, uint64_t offset, const char *text)
{
    auto_buf struct buf b = BUF_INIT;

    field_add_str(&b, CELLA_TAG_NAME, name);
    field_add_u64(&b, CELLA_TAG_OFFSET, offset);
    field_add(&b, CELLA_TAG_CONTENT, text, strlen(text));
    call(CELLA_GUEST_SHOW, &b);
}

static uint64_t steps[CELLA_GUEST_STEPS + 1]; /* the last: they were told */

static void on_booted(void *ctx, int code, const char *why, const uint8_t *payload, size_t len)
{
    (void)ctx;
    (void)why;
    steps[CELLA_GUEST_STEPS] = code == 0 && guest_steps(payload, len, steps);
}

static void boot(const struct buf *b)
{
    assert_int_equal(
        guest_send(m.guest, CELLA_GUEST_BOOT, b->ptr, b->len, 60 * SECONDS, on_booted, NULL), 0);
    guest_turn(m.guest, 60 * SECONDS);
}

static int setup(void **state)
{
    auto_buf struct buf b = BUF_INIT;
    int r = machine_start(&m);

    (void)state;
    if (r < 0) {
        machine_console(&m);
        return r;
    }
    show("bundle.pem", 0, "shown bundle\n");
    identity_fields(&b, &parent, NULL);
    field_add_u64(&b, CELLA_TAG_PIDS, 20);
    field_add_str(&b, CELLA_TAG_COVER, "bundle.pem:/etc/bundle");
    boot(&b);
    r = machine_agent(&m, NULL);
    if (r < 0)
        machine_console(&m);
    return r;
}

static int teardown(void **state)
{
    (void)state;
    machine_stop(&m);
    return 0;
}

/* In their order, which the link has checked; and of this boot: none is nothing. */
static void test_steps(void **state)
{
    size_t i;

    (void)state;
    assert_int_equal(steps[CELLA_GUEST_STEPS], 1);
    for (i = 0; i < CELLA_GUEST_STEPS; i++)
        assert_true(steps[i] > 0 && steps[i] < 600 * SECONDS);
    assert_true(steps[CELLA_GUEST_STEP_CELL] > steps[CELLA_GUEST_STEP_HELLO]);
    assert_true(steps[CELLA_GUEST_STEP_DRIVERS] > steps[CELLA_GUEST_STEP_KERNEL]);
}

static void test_root(void **state)
{
    (void)state;
    assert_sh("id -u; echo written >/etc/new; cat /etc/new", "0\nwritten\n");
    assert_sh("cat /etc/bundle /run/cella/bundle.pem", "shown bundle\nshown bundle\n");
    assert_sh("cat /run/cella/generation", "1\n");
    assert_sh("echo x >/run/cella/bundle.pem", "/bin/sh: can't create /run/cella/bundle.pem: "
                                               "Read-only file system\n");
    assert_sh("echo x >/etc/hostname", "/bin/sh: can't create /etc/hostname: "
                                       "Read-only file system\n");
    assert_has("mount", "overlay on / type overlay (rw,nosuid,nodev");
    assert_sh("ls /modules /agent /lower /rw /state 2>&1 | grep -vc 'No such file'", "0\n");
    assert_sh("cat /proc/1/comm; ls /dev",
              "cella-agent\nfd\nfull\nmqueue\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\n"
              "tty\nurandom\nzero\n");
}

static void test_confined(void **state)
{
    (void)state;
    assert_has("grep -E 'Cap(Eff|Prm|Bnd)|NoNewPrivs|Seccomp:' /proc/self/status",
               "CapEff:\t0000000000000000");
    assert_has("grep Seccomp: /proc/self/status", "2");
    assert_has("echo b >/proc/sysrq-trigger", "Read-only file system");
    assert_has("echo 1 >/proc/sys/net/ipv4/ip_forward", "Read-only file system");
    assert_sh("wc -c </proc/cmdline; ls /sys/module | wc -l", "0\n0\n");
    assert_has("mount -t tmpfs none /root", "ermi");
    assert_sh("cat /proc/self/cgroup", "0::/\n");
}

static void test_names(void **state)
{
    (void)state;
    assert_sh("hostname; cat /etc/hostname /etc/machine-id /proc/sys/kernel/random/boot_id",
              "parent\nparent\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
              "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa\n");
    assert_has("cat /etc/hosts", "127.0.1.1 parent\n");
    assert_sh("cat /etc/resolv.conf", "nameserver 10.0.2.2\noptions timeout:2 attempts:1\n");
    assert_has("ip addr show eth0", "inet 10.0.2.15/24");
    assert_has("ip link show eth0", "52:54:00:00:00:11");
    assert_has("ip route", "default via 10.0.2.2 dev eth0");
    assert_sh("cat /proc/sys/net/ipv6/conf/all/disable_ipv6", "1\n");
}

static void test_usage(void **state)
{
    struct cella_stats s = {.unknown = ~0u};
    struct errbuf eb;

    (void)state;
    assert_has("i=0; while [ $i -lt 40 ]; do sleep 90 & i=$((i+1)); done", "can't fork");
    assert_int_equal(
        guest_call(m.guest, CELLA_GUEST_USAGE, "", 0, 10 * SECONDS, &s, errbuf_init(&eb)), 0);
    assert_int_equal(s.unknown, 1u << 7 | 1u << 8 | ~0x7ffu);
    assert_true(s.pids_refused > 0 && s.limit_hit & CELLA_LIMIT_HIT_PIDS);
    assert_true(s.memory_bytes > 0 && s.memory_peak_bytes >= s.memory_bytes);
    assert_false(s.limit_hit & (CELLA_LIMIT_HIT_DISK | CELLA_LIMIT_HIT_MEMORY));
    assert_has("dd if=/dev/zero of=/root/big bs=64k count=2000 2>&1", "No space left");
    assert_int_equal(
        guest_call(m.guest, CELLA_GUEST_USAGE, "", 0, 10 * SECONDS, &s, errbuf_init(&eb)), 0);
    assert_true(s.limit_hit & CELLA_LIMIT_HIT_DISK);
    assert_true(s.disk_bytes > 10u << 20);
    sh("rm /root/big", NULL);
}

static void test_refusals(void **state)
{
    auto_buf struct buf b = BUF_INIT;
    struct errbuf eb;

    (void)state;
    identity_fields(&b, &parent, NULL);
    assert_int_equal(
        guest_call(m.guest, CELLA_GUEST_BOOT, b.ptr, b.len, 10 * SECONDS, NULL, errbuf_init(&eb)),
        -EALREADY);
    assert_int_equal(
        guest_call(m.guest, CELLA_GUEST_SETTLE, b.ptr, b.len, 10 * SECONDS, NULL, errbuf_init(&eb)),
        -EINVAL);
    assert_non_null(strstr(eb.text, "SETTLE needs NONCE"));
    assert_int_equal(
        guest_call(m.guest, CELLA_GUEST_SHOW, "", 0, 10 * SECONDS, NULL, errbuf_init(&eb)),
        -EINVAL);
    assert_int_equal(guest_call(m.guest, 150, "", 0, 10 * SECONDS, NULL, errbuf_init(&eb)),
                     -EOPNOTSUPP);
    show("denials", 0, "one\n");
    show("denials", 4, "two\n");
    assert_sh("cat /run/cella/denials", "one\ntwo\n");
}

static int resize(uint64_t pids, uint64_t memory, uint32_t cpus, struct errbuf *eb)
{
    auto_buf struct buf b = BUF_INIT;

    if (pids)
        field_add_u64(&b, CELLA_TAG_PIDS, pids);
    if (memory)
        field_add_u64(&b, CELLA_TAG_MEMORY, memory);
    if (cpus)
        field_add_u32(&b, CELLA_TAG_CPUS, cpus);
    return guest_call(m.guest, CELLA_GUEST_RESIZE, b.ptr, b.len, 20 * SECONDS, NULL,
                      errbuf_init(eb));
}

static void test_resize(void **state)
{
    static const char forks[] =
        "i=0; while [ $i -lt 30 ]; do sleep 90 & i=$((i+1)); done; echo all",
                      eats[] = "dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null; echo $?";
    struct errbuf eb;
    uint32_t status = 0;

    (void)state;
    assert_int_equal(resize(64, 0, 0, &eb), 0);
    assert_sh(forks, "all\n");
    assert_int_equal(resize(20, 0, 0, &eb), 0);
    assert_has(forks, "can't fork");
    assert_int_equal(resize(0, 32 << 20, 0, &eb), 0);
    assert_has(eats, "137");
    assert_int_equal(resize(0, 1 << 30, 1, &eb), 0); /* what the machine has */
    assert_sh(eats, "0\n");
    sh("dd if=/dev/zero of=/dev/shm/kept bs=1M count=12", &status);
    assert_int_equal(status, 0);
    assert_int_equal(resize(0, 10 << 20, 0, &eb), -EBUSY);
    assert_non_null(strstr(eb.text, "the cell uses more memory"));
    sh("rm /dev/shm/kept", NULL);
    assert_int_equal(resize(0, 0, 2, &eb), -ENODEV);
    assert_non_null(strstr(eb.text, "only so many processors: 1"));
}

/* A packet is on its way to nobody: the kernel asks who that is, again and again. */
static void test_silence(void **state)
{
    uint32_t own = htonl(0x0a00020f);
    size_t before, frozen;

    (void)state;
    before = machine_packets(&m, own);
    sh("(nc 10.0.2.99 80; true) >/dev/null 2>&1 & sleep 1; exit 0", NULL);
    assert_true(machine_packets(&m, own) > before);
    call(CELLA_GUEST_FREEZE, NULL);
    usleep(300000);
    frozen = machine_packets(&m, own);
    usleep(2300000);
    assert_int_equal(machine_packets(&m, own), frozen);
    call(CELLA_GUEST_THAW, NULL);
    sh("nc -w 1 10.0.2.98 80 2>/dev/null; true", NULL);
    assert_true(machine_packets(&m, own) > frozen);
}

/* What runs when the cell is copied: a counter, and a connection over the parent's address. */
static void test_fork(void **state)
{
    auto_buf struct buf b = BUF_INIT;
    uint8_t nonce[16] = "0123456789abcdef", second[16] = "fedcba9876543210";
    const char *const argv[] = {
        "/bin/sh", "-c",
        /* until there is a socket that listens, and one that is connected, to port 7000 */
        "t() { until cat /proc/net/tcp /proc/net/tcp6 2>&1 | grep -q \"$1\"; do sleep 1; done; };"
        "mkfifo /tmp/hold; exec 5<>/tmp/hold;"
        "(nc -l -p 7000 <&5 2>>/tmp/nc; echo server >>/tmp/ended) & t ':1B58 [0-9A-F]*:0000 0A ';"
        "(nc 10.0.2.15 7000 <&5; echo client >>/tmp/ended) & t ':1B58 01 ';"
        "i=0; while :; do i=$((i+1)); echo $i >/tmp/count; echo line; done",
        NULL};
    struct errbuf eb;
    struct op o;
    size_t got;
    int fd, r, i;

    (void)state;
    op_exec(&m.cell, &o, argv, NULL);
    o.keep = 0;
    assert_int_equal(cell_wait(&m.cell, &o.opened, 60000), 0);
    for (i = 0; i < 600 && !o.got; i++)
        cell_turn(&m.cell, 100);
    assert_true(o.got > 0);
    cell_turn(&m.cell, 500);
    assert_has("cat /tmp/nc /tmp/ended 2>&1", "can't open '/tmp/ended'");
    call(CELLA_GUEST_FREEZE, NULL);
    i = 0;
    do { /* what it had said before, however long that takes */
        got = o.got;
        cell_turn(&m.cell, 200);
    } while (o.got != got && i++ < 50);
    got = o.got;
    cell_turn(&m.cell, 400);
    assert_int_equal(o.got, got); /* it stands still */

    link_free(m.cell.link);
    m.cell.link = NULL;
    guest_free(m.guest);
    m.guest = NULL;
    op_fini(&o);
    fd = machine_connect(&m, "cella.guest");
    r = guest_reset(fd, nonce, 20 * SECONDS, errbuf_init(&eb));
    assert_int_equal(r, 0);
    assert_int_equal(machine_guest(&m, fd), 0);
    identity_fields(&b, &child, second);
    call(CELLA_GUEST_SETTLE, &b);
    call(CELLA_GUEST_THAW, NULL);
    assert_int_equal(machine_agent(&m, second), 0);

    assert_sh("hostname; cat /etc/hostname /etc/machine-id /run/cella/generation",
              "child\nchild\nbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n2\n");
    assert_has("cat /proc/sys/kernel/random/boot_id", "bbbbbbbb-bbbb");
    assert_has("ip addr show eth0", "inet 10.0.2.77/24");
    assert_sh("ip addr show eth0 | grep -c 10.0.2.15", "0\n");
    assert_has("ip link show eth0", "52:54:00:00:00:22");
    assert_has("ip route", "default via 10.0.2.2 dev eth0");
    assert_sh("i=0; until [ \"$(grep -c . /tmp/ended 2>&1)\" = 2 ] || [ $i = 30 ]; do i=$((i+1)); "
              "sleep 1; done;"
              "sort /tmp/ended",
              "client\nserver\n");
    assert_has("n() { until v=$(cat /tmp/count) && [ \"$v\" ]; do :; done; echo $v; };"
               "a=$(n); sleep 2; b=$(n); [ $b -gt $a ] && echo moves",
               "moves");
}

static void test_poweroff(void **state)
{
    int status;

    (void)state;
    assert_int_equal(guest_send(m.guest, CELLA_GUEST_POWEROFF, "", 0, 120 * SECONDS, NULL, NULL),
                     0);
    assert_int_equal(cell_wait(&m.cell, &m.closed, 120000), 0);
    assert_int_equal(m.closed_code, -ECONNRESET);
    assert_int_equal(waitpid(m.pid, &status, 0), m.pid);
    m.pid = 0;
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),    cmocka_unit_test(test_root),
        cmocka_unit_test(test_confined), cmocka_unit_test(test_names),
        cmocka_unit_test(test_usage),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_resize),   cmocka_unit_test(test_silence),
        cmocka_unit_test(test_fork),     cmocka_unit_test(test_poweroff)};
    const char *missing = machine_missing();

    if (missing) {
        fprintf(stderr, "test-guest: skipped: no machine without %s\n", missing);
        return 77;
    }
    return cmocka_run_group_tests(tests, setup, teardown);
}
