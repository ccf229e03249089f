/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The enforcer through its entry point, in real namespaces: denials, their positive twins, and who
 * saw a byte. Verdicts come from the servers' counters and the events, not only from what the
 * client was told.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "net.h"

#define ALLOW_WIDE                                                                                 \
    "{\"version\":1,\"allow\":["                                                                   \
    "{\"id\":\"doc\",\"cidr\":\"203.0.113.0/24\",\"ports\":[80,7000,8081],\"layer\":\"raw\"},"     \
    "{\"id\":\"own\",\"cidr\":\"8.8.4.0/24\",\"ports\":[\"26-65535\"],\"layer\":\"raw\"}]}"

static double ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void test_deny_and_twin(void **state)
{
    struct target t = {"203.0.113.10", 80, "hello", 0};
    struct cella_attached at = {0};
    int conns = world.sinks->conns;
    void *cell = attach_cell(0, "{}", &at);

    (void)state;
    assert_string_equal(at.address, "10.200.0.2/30");
    assert_string_equal(at.gateway, "10.200.0.1");
    assert_int_equal(in_ns(world.cell_ns[0], probe_tcp, &t), ECONNREFUSED);
    world.ops->detach(cell); /* must not lose what is pending */
    assert_non_null(find_event("net.deny", "no_rule", "203.0.113.10", 80));
    assert_int_equal(world.sinks->conns, conns);

    cell = attach_cell(0, ALLOW_WIDE, &at);
    assert_int_equal(in_ns(world.cell_ns[0], probe_echo, &t), 0);
    world.ops->detach(cell);
    assert_int_equal(world.sinks->conns, conns + 1);
    assert_string_equal(find_event("net.allow", "", "203.0.113.10", 80)->rule, "doc");
    assert_int_equal(find_event("net.flow", "", "203.0.113.10", 80)->tx, 5);
    assert_int_equal(find_event("net.flow", "", "203.0.113.10", 80)->rx, 5);
    forget_events();
}

/* ---- what must not pass, under a policy that opens a lot ---- */

static void test_tcp_negatives(void **state)
{
    static const struct {
        const char *addr;
        int port;
        const char *reason;
    } rows[] = {
        {"169.254.169.254", 80, "hard_deny"}, /* the uplink has it, and a server on it */
        {"10.1.2.3", 80, "hard_deny"},        /* so here */
        {"10.200.0.1", 80, "hard_deny"},      /* gateway */
        {"10.200.0.1", 1, "hard_deny"},       /* the relay's own port */
        {"10.200.0.6", 80, "hard_deny"},      /* next cell's address */
        {"192.168.1.1", 80, "hard_deny"},     {"172.16.0.1", 80, "hard_deny"},
        {"100.64.0.1", 80, "hard_deny"},      {"100.100.100.200", 80, "hard_deny"},
        {"192.0.0.192", 80, "hard_deny"},     {"240.0.0.1", 80, "hard_deny"},
        {"255.255.255.254", 80, "hard_deny"}, {"198.18.0.1", 80, "hard_deny"},
        {"8.8.4.4", 80, "hard_deny"}, /* an address of the uplink, and a rule that covers it */
        {"203.0.113.10", 25, "hard_deny"},    {"203.0.113.10", 853, "no_rule"},
        {"203.0.113.10", 443, "no_rule"},     {"203.0.113.10", 65535, "no_rule"},
        {"203.0.113.10", 1, "no_rule"},       {"198.51.100.7", 80, "no_rule"},
    };
    struct cella_attached at = {0};
    void *cell = attach_cell(0, ALLOW_WIDE, &at);
    int conns = world.sinks->conns;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct target t = {rows[i].addr, rows[i].port, NULL, 0};
        int r = in_ns(world.cell_ns[0], probe_tcp, &t);
        if (r != ECONNREFUSED)
            fail_msg("%s:%d: %s", t.addr, t.port, strerror(r));
        host_turn(20);
        if (!find_event("net.deny", rows[i].reason, t.addr, t.port))
            fail_msg("%s:%d: no event with reason %s", t.addr, t.port, rows[i].reason);
    }
    assert_int_equal(world.sinks->conns, conns);
    assert_int_equal(world.n_seen, i); /* one event per attempt */
    world.ops->detach(cell);
    forget_events();
}

static void test_udp_negatives(void **state)
{
    static const struct {
        const char *addr;
        int port, expect;
        const char *reason;
    } rows[] = {
        {"203.0.113.10", 443, EHOSTUNREACH, "proto_blocked"},
        {"203.0.113.10", 853, EHOSTUNREACH, "proto_blocked"},
        {"203.0.113.10", 123, EHOSTUNREACH, "proto_blocked"},
        {"169.254.169.254", 9, EHOSTUNREACH, "hard_deny"},
        {"224.0.0.251", 5353, 253, "hard_deny"},
    };
    struct cella_attached at = {0};
    void *cell = attach_cell(0, ALLOW_WIDE, &at);
    int datagrams = world.sinks->datagrams;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct target t = {rows[i].addr, rows[i].port, NULL, 0};
        assert_int_equal(in_ns(world.cell_ns[0], probe_udp, &t), rows[i].expect);
        host_turn(20);
        if (!find_event("net.deny", rows[i].reason, t.addr, t.port))
            fail_msg("%s:%d: no event with reason %s", t.addr, t.port, rows[i].reason);
    }
    assert_int_equal(world.sinks->datagrams, datagrams);
    world.ops->detach(cell);
    forget_events();
}

/* Frames as only a cell with its own kernel could send them. */
static void test_frames(void **state)
{
    static const uint8_t syn[20] = {0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff};
    static const uint8_t echo[8] = {8, 0, 0xf7, 0xff, 0, 0, 0, 0};
    static const uint8_t datagram[12] = {0x30, 0x39, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4};
    static const struct {
        const char *src, *dst;
        uint8_t proto;
        const void *l4;
        size_t len;
        const char *reason;
    } rows[] = {
        {"10.200.0.2", "203.0.113.10", 1, echo, 8, "proto_blocked"},
        {"10.200.0.2", "203.0.113.10", 132, datagram, 12, "proto_blocked"},
        {"10.200.0.2", "203.0.113.10", 47, datagram, 12, "proto_blocked"},
        {"10.200.0.2", "203.0.113.10", 4, datagram, 12, "proto_blocked"},
        {"10.200.0.2", "127.0.0.1", 6, syn, 20, "hard_deny"},
        {"10.200.0.2", "0.0.0.0", 6, syn, 20, "hard_deny"},
        {"10.200.0.2", "255.255.255.255", 17, datagram, 12, "hard_deny"},
        {"10.200.0.6", "203.0.113.10", 6, syn, 20, "source_spoofed"},
        {"203.0.113.99", "203.0.113.10", 17, datagram, 12, "source_spoofed"},
        {"127.0.0.1", "203.0.113.10", 6, syn, 20, "source_spoofed"},
    };
    struct cella_attached at = {0};
    void *cell = attach_cell(0, ALLOW_WIDE, &at);
    int conns = world.sinks->conns, datagrams = world.sinks->datagrams;
    uint8_t ip[128];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct frame f = {
            ip, make_ip(ip, rows[i].src, rows[i].dst, rows[i].proto, rows[i].l4, rows[i].len)};
        assert_int_equal(in_ns(world.cell_ns[0], probe_frame, &f), 0);
        wait_events(i + 1);
        host_turn(20);
        assert_int_equal(world.n_seen, i + 1);
        if (strcmp(world.seen[i].reason, rows[i].reason) || strcmp(world.seen[i].dst, rows[i].dst))
            if (strcmp(rows[i].dst, "0.0.0.0") || strcmp(world.seen[i].reason, rows[i].reason))
                fail_msg("%s proto %u: reason %s, dst %s", rows[i].dst, rows[i].proto,
                         world.seen[i].reason, world.seen[i].dst);
    }
    assert_int_equal(world.sinks->conns, conns);
    assert_int_equal(world.sinks->datagrams, datagrams);
    world.ops->detach(cell);
    forget_events();
}

static void test_ipv6(void **state)
{
    static const char *const dst[] = {"2001:db8:9::10",
                                      "fe80::1",
                                      "ff02::1",
                                      "fd00:ec2::254",
                                      "64:ff9b::a9fe:a9fe",
                                      "::ffff:169.254.169.254",
                                      "2002:a9fe:a9fe::1"};
    struct cella_attached at = {0};
    void *cell = attach_cell(0, ALLOW_WIDE, &at);
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(dst) / sizeof(dst[0]); i++) {
        uint8_t ip[60] = {0x60, 0, 0, 0, 0, 20, 6, 64, 0xfe, 0x80, [23] = 2};
        struct frame f = {ip, sizeof(ip)};
        inet_pton(AF_INET6, dst[i], ip + 24);
        assert_int_equal(in_ns(world.cell_ns[0], probe_frame, &f), 0);
        host_turn(20);
        assert_non_null(find_event("net.deny", "ipv6_closed", dst[i], -1));
    }
    world.ops->detach(cell);
    forget_events();
}

static int no_ipv6_here(void *arg)
{
    char line[256];
    FILE *f = fopen("/proc/self/net/if_inet6", "re");
    int lines = 0;

    (void)arg;
    while (f && fgets(line, sizeof(line), f))
        lines++;
    return lines;
}

/* ---- DNS ---- */

static const uint8_t query[] = {0x12,        0x34, 1,   0,   0,   1,   0,   0,   0,   0,   0,
                                1,           3,    'w', 'w', 'w', 7,   'e', 'x', 'a', 'm', 'p',
                                'l',         'e',  3,   'c', 'o', 'm', 0,   0,   16,  0,   1,
                                /* OPT */ 0, 0,    41,  4,   208, 0,   0,   0,   0,   0,   0};

static int check_refused(const uint8_t *p, ssize_t n)
{
    static const uint8_t ede[] = {0, 15, 0, 2, 0, 15};

    if (n < 12 || p[0] != 0x12 || p[1] != 0x34 || !(p[2] & 0x80) || (p[3] & 15) != 5)
        return 250;
    return n >= 18 && !memcmp(p + n - 6, ede, 6) ? 0 : 251;
}

static int ask_udp(void *target)
{
    const struct target *t = target;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(53)};
    struct timeval limit = patience();
    uint8_t buf[1500];
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    inet_pton(AF_INET, t->addr, &a.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    /* connected: an answer from any other address would not be seen */
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || send(fd, query, sizeof(query), 0) < 0)
        return errno;
    return check_refused(buf, recv(fd, buf, sizeof(buf), 0));
}

static int ask_tcp(void *target)
{
    const struct target *t = target;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(53)};
    struct timeval limit = patience();
    uint8_t buf[1500] = {0, sizeof(query)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ssize_t n;

    inet_pton(AF_INET, t->addr, &a.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    memcpy(buf + 2, query, sizeof(query));
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || write(fd, buf, 2 + sizeof(query)) < 0)
        return errno;
    n = read(fd, buf, sizeof(buf));
    return n < 2 ? 252 : check_refused(buf + 2, n - 2);
}

static void test_dns(void **state)
{
    static const char *const servers[] = {"10.200.0.1", "203.0.113.10", "8.8.4.4",
                                          "169.254.169.254"};
    struct cella_attached at = {0};
    void *cell = attach_cell(0, ALLOW_WIDE, &at);
    int conns = world.sinks->conns, datagrams = world.sinks->datagrams;
    const struct seen *s;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(servers) / sizeof(servers[0]); i++) {
        struct target t = {servers[i], 53, NULL, 0};
        assert_int_equal(in_ns(world.cell_ns[0], ask_udp, &t), 0);
        assert_int_equal(in_ns(world.cell_ns[0], ask_tcp, &t), 0);
        host_turn(20);
        s = find_event("net.deny", "dns_refused", servers[i], 53);
        assert_non_null(s);
        assert_string_equal(s->name, "www.example.com");
        assert_int_equal(s->qtype, 16);
    }
    wait_events(8);
    host_turn(20);
    assert_int_equal(world.n_seen, 8);
    assert_int_equal(world.sinks->conns, conns);
    assert_int_equal(world.sinks->datagrams, datagrams);
    world.ops->detach(cell);
    forget_events();
}

/* ---- two cells ---- */

static int listening_80(int ns)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(80)};
    int fd;

    assert_int_equal(setns(ns, CLONE_NEWNET), 0);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setns(world.host_ns, CLONE_NEWNET), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 5), 0);
    return fd;
}

static void test_neighbour(void **state)
{
    struct target t = {"10.200.0.6", 80, "x", 0};
    struct cella_attached at = {0};
    void *a = attach_cell(0, ALLOW_WIDE, &at), *b = attach_cell(1, ALLOW_WIDE, &at);
    struct pollfd p = {.events = POLLIN};

    (void)state;
    assert_string_equal(at.address, "10.200.0.6/30");
    p.fd = listening_80(world.cell_ns[1]);
    assert_int_equal(in_ns(world.cell_ns[0], probe_tcp, &t), ECONNREFUSED);
    assert_int_equal(poll(&p, 1, 300), 0); /* nobody came */
    close(p.fd);
    t.addr = "203.0.113.10"; /* both cells reach what both may */
    assert_int_equal(in_ns(world.cell_ns[0], probe_echo, &t), 0);
    assert_int_equal(in_ns(world.cell_ns[1], probe_echo, &t), 0);
    assert_int_equal(in_ns(world.cell_ns[1], no_ipv6_here, NULL), 0);
    world.ops->detach(a);
    world.ops->detach(b);
    assert_non_null(find_event("net.deny", "hard_deny", "10.200.0.6", 80));
    forget_events();
}

/* ---- change while running ---- */

static void test_apply(void **state)
{
    static const char other[] =
        "{\"version\":1,\"allow\":[{\"id\":\"o\",\"cidr\":\"198.51.100.7/32\","
        "\"ports\":[443],\"layer\":\"raw\"}]}";
    struct target old = {"203.0.113.10", 80, "x", 0}, new = {"198.51.100.7", 443, "x", 0};
    struct cella_attached at = {0};
    struct cella_applied done = {0};
    void *cell = attach_cell(0, ALLOW_WIDE, &at);
    pid_t flow = flow_start("x");
    double t;

    (void)state;
    assert_int_equal(in_ns(world.cell_ns[0], probe_tcp, &new), ECONNREFUSED);
    t = ms();
    assert_int_equal(apply_to(cell, other, 2, &done), 0);
    printf("apply %.2f ms\n", ms() - t);
    assert_int_equal(done.generation, 2);
    assert_int_equal(done.killed, 1);
    assert_int_equal(wait_child(flow), ECONNRESET);
    assert_int_equal(in_ns(world.cell_ns[0], probe_tcp, &old), ECONNREFUSED);
    assert_int_equal(in_ns(world.cell_ns[0], probe_echo, &new), 0);
    assert_true(apply_to(cell, "{\"version\":1,\"allow\":[{}]}", 3, &done) <
                0); /* changes nothing */
    assert_int_equal(in_ns(world.cell_ns[0], probe_echo, &new), 0);
    assert_int_equal(apply_to(cell, ALLOW_WIDE, 4, &done), 0);
    assert_int_equal(in_ns(world.cell_ns[0], probe_echo, &old), 0);
    assert_int_equal(in_ns(world.cell_ns[0], probe_tcp, &new), ECONNREFUSED);
    flow = flow_start("x");
    assert_int_equal(apply_to(cell, ALLOW_WIDE, 5, &done), 0); /* a flow that stays allowed stays */
    assert_int_equal(done.killed, 0);
    assert_int_equal(apply_to(cell, "", 6, &done), 0);
    assert_int_equal(wait_child(flow), ECONNRESET);
    assert_int_equal(in_ns(world.cell_ns[0], probe_tcp, &old), ECONNREFUSED);
    world.ops->detach(cell);
    assert_string_equal(find_event("net.flow", "policy_changed", "203.0.113.10", 80)->verdict,
                        "kill");
    forget_events();
}

/* The kernel step of a change fails: what both policies allow is in force, and nothing else. */
static void test_apply_fails(void **state)
{
    static const char narrow[] =
        "{\"version\":1,\"allow\":["
        "{\"id\":\"n\",\"cidr\":\"203.0.113.11/32\",\"ports\":[80],\"layer\":\"raw\"},"
        "{\"id\":\"o\",\"cidr\":\"198.51.100.7/32\",\"ports\":[443],\"layer\":\"raw\"}]}";
    struct target old = {"203.0.113.10", 80, "x", 0}, new = {"198.51.100.7", 443, "x", 0},
                  both = {"203.0.113.11", 80, "x", 0};
    char path[] = "/tmp/cella-test-XXXXXX";
    struct cella_attached at = {0};
    struct cella_applied done = {0};
    void *cell;
    int fd = mkstemp(path), conns;
    pid_t flow;

    (void)state;
    close(fd);
    unlink(path);
    assert_int_equal(symlink(BUILD_ROOT "/cella-gate-setup", path), 0);
    world.setup = path;
    cell = attach_cell(0, ALLOW_WIDE, &at);
    unlink(path); /* the helper is gone when it is needed again */
    flow = flow_start("x");
    assert_true(apply_to(cell, narrow, 2, &done) < 0);
    world.setup = NULL;
    assert_int_equal(wait_child(flow), ECONNRESET);
    conns = world.sinks->conns;
    assert_int_not_equal(in_ns(world.cell_ns[0], probe_echo, &old), 0);
    assert_int_not_equal(in_ns(world.cell_ns[0], probe_echo, &new), 0);
    assert_int_equal(world.sinks->conns, conns);
    assert_int_equal(in_ns(world.cell_ns[0], probe_echo, &both), 0);
    world.ops->detach(cell);
    forget_events();
}

static void test_phases(void **state)
{
    static const char doc[] = "{\"version\":1,\"active\":\"install\",\"phases\":{\"install\":{"
                              "\"allow\":[{\"id\":\"a\",\"cidr\":"
                              "\"203.0.113.0/24\",\"ports\":[80],\"layer\":\"raw\"}]},\"run\":{}}}";
    struct target t = {"203.0.113.10", 80, "x", 0};
    struct cella_attached at = {0};
    struct cella_applied done = {0};
    void *cell = attach_cell(0, doc, &at);
    pid_t flow = flow_start("x");

    (void)state;
    assert_int_equal(world.ops->phase(cell, "nowhere", 2, &done, NULL), -ENOENT);
    assert_int_equal(world.ops->phase(cell, "run", 2, &done, NULL), 0);
    assert_int_equal(done.killed, 1);
    assert_int_equal(wait_child(flow), ECONNRESET);
    assert_int_equal(in_ns(world.cell_ns[0], probe_tcp, &t), ECONNREFUSED);
    assert_int_equal(world.ops->phase(cell, "install", 3, &done, NULL), -EPERM);
    assert_int_equal(in_ns(world.cell_ns[0], probe_tcp, &t), ECONNREFUSED);
    world.ops->detach(cell);
    forget_events();
}

/* ---- death, floods, residue ---- */

static void test_gate_killed(void **state)
{
    struct target t = {"203.0.113.10", 80, "x", 0};
    struct cella_attached at = {0};
    struct cella_applied done = {0};
    void *cell = attach_cell(0, ALLOW_WIDE, &at);
    struct pollfd p = {.fd = at.borrow_exit_fd, .events = POLLIN};
    pid_t flow = flow_start("x");
    int conns;

    (void)state;
    assert_int_equal(poll(&p, 1, 0), 0);
    kill((pid_t)at.gate_pid, SIGKILL);
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_int_equal(wait_child(flow), ECONNRESET);
    host_turn(50);
    assert_non_null(find_event("net.deny", "broker_down", NULL, -1));
    conns = world.sinks->conns;
    assert_int_not_equal(in_ns(world.cell_ns[0], probe_echo, &t), 0);
    assert_int_equal(world.sinks->conns, conns);
    assert_int_equal(apply_to(cell, ALLOW_WIDE, 2, &done), -EPIPE);
    world.ops->detach(cell);
    forget_events();
}

/* The sink's rule is fail-closed and it cannot write: an allowed flow must not go on. */
static void test_unrecorded_flow(void **state)
{
    struct target t = {"203.0.113.10", 80, "x", 0};
    struct cella_attached at = {0};
    void *cell = attach_cell(0, ALLOW_WIDE, &at);
    struct pollfd p = {.fd = at.borrow_exit_fd, .events = POLLIN};

    (void)state;
    world.emit_result = -ENOSPC;
    in_ns(world.cell_ns[0], probe_echo, &t);
    host_turn(50);
    assert_int_equal(poll(&p, 1, 10000), 1);
    world.emit_result = 0;
    world.ops->detach(cell);
    forget_events();
}

#define FLOOD 3000
static int flood(void *arg)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(443)};
    int i, fd = socket(AF_INET, SOCK_DGRAM, 0);

    (void)arg;
    inet_pton(AF_INET, "203.0.113.10", &a.sin_addr);
    for (i = 0; i < FLOOD; i++)
        sendto(fd, "x", 1, 0, (struct sockaddr *)&a, sizeof(a));
    return 0;
}

static void test_flood_is_counted(void **state)
{
    struct cella_attached at = {0};
    void *cell = attach_cell(0, "{}", &at);
    int64_t total = 0;
    size_t i;

    (void)state;
    assert_int_equal(in_ns(world.cell_ns[0], flood, NULL), 0);
    host_turn(300);
    world.ops->detach(cell);
    for (i = 0; i < world.n_seen; i++)
        total += world.seen[i].count + world.seen[i].suppressed;
    assert_true(world.n_seen < 600);
    printf("flood: %zu events, %lld packets\n", world.n_seen, (long long)total);
    assert_int_equal(total, FLOOD);
    forget_events();
}

static void collect(void *ctx, const struct cella_flow *f)
{
    struct cella_flow *sum = ctx;

    if (strcmp(f->destination, "203.0.113.10:80"))
        return;
    assert_string_equal(f->rule, "doc");
    sum->allowed += f->allowed;
    sum->tx_bytes += f->tx_bytes;
    sum->rx_bytes += f->rx_bytes;
}

static void test_report(void **state)
{
    struct target t = {"203.0.113.10", 80, "hello", 0};
    struct cella_attached at = {0};
    struct cella_flow sum = {0};
    void *cell = attach_cell(0, ALLOW_WIDE, &at);
    pid_t flow;

    (void)state;
    assert_int_equal(in_ns(world.cell_ns[0], probe_echo, &t), 0);
    flow = flow_start("x"); /* one byte each way, still open */
    assert_int_equal(world.ops->report(cell, &sum, collect, NULL), 0);
    assert_int_equal(sum.allowed, 2);
    assert_int_equal(sum.tx_bytes, 6);
    assert_int_equal(sum.rx_bytes, 6);
    world.ops->detach(cell);
    assert_int_equal(wait_child(flow), ECONNRESET);
    forget_events();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deny_and_twin),
        cmocka_unit_test(test_tcp_negatives),
        cmocka_unit_test(test_udp_negatives),
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_dns),
        cmocka_unit_test(test_neighbour),
        cmocka_unit_test(test_apply),
        cmocka_unit_test(test_apply_fails),
        cmocka_unit_test(test_phases),
        cmocka_unit_test(test_gate_killed),
        cmocka_unit_test(test_unrecorded_flow),
        cmocka_unit_test(test_flood_is_counted),
        cmocka_unit_test(test_report),
    };

    if (getuid()) {
        puts("needs root to make network namespaces");
        return 77;
    }
    cmocka_set_test_filter(getenv("EGRESS_TEST_ONLY")); /* a pattern; all by default */
    return cmocka_run_group_tests(tests, group_up, group_down);
}
