/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * A measurement through the enforcer's entry point: what of it ends in the sink, what is counted where, and that
 * not one connection of it reaches a server, while everything else goes on as before.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "net.h"

#define POLICY                                                                                     \
    "{\"version\":1,\"allow\":["                                                                   \
    "{\"id\":\"doc\",\"cidr\":\"203.0.113.0/28\",\"ports\":[80],\"layer\":\"raw\"}]}"
#define NONCE "abcdefghijkl"
#define JUDGED 21000
#define TWIN 22000
#define HELD (TWIN + 100)
#define LONG 60000 /* ms of a measurement: more than any test here takes */

struct attempt {
    const char *addr;
    int port, sport, type;
    const char *data;
};

/* errno; 0: the data came back; 253: silence; 254: something else came back. */
static int attempt(void *arg)
{
    const struct attempt *a = arg;
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_port = htons((uint16_t)a->sport)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)a->port)};
    struct timeval limit = patience();
    int fd = socket(AF_INET, a->type | SOCK_CLOEXEC, 0), on = 1;
    char buf[256];
    ssize_t n;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    inet_pton(AF_INET, a->addr, &to.sin_addr);
    if (bind(fd, (struct sockaddr *)&from, sizeof(from)) < 0)
        return 252;
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ||
        send(fd, a->data, strlen(a->data), MSG_NOSIGNAL) < 0)
        return errno;
    n = recv(fd, buf, sizeof(buf), 0);
    if (n < 0)
        return errno == EAGAIN ? 253 : errno;
    return (size_t)n == strlen(a->data) && !memcmp(buf, a->data, (size_t)n) ? 0 : 254;
}

static int try(const char *addr, int port, int sport, int type, const char *data)
{
    struct attempt a = {addr, port, sport, type, data};

    return in_ns(world.cell_ns[0], attempt, &a);
}

static int begin(void *cell, uint32_t timeout_ms)
{
    struct cella_reach r = {.hdr = CELLA_HDR_INIT(struct cella_reach, CELLA_KIND_REACH),
                            .nonce = NONCE,
                            .port_lo = JUDGED,
                            .port_hi = JUDGED + 99,
                            .twin_lo = TWIN,
                            .twin_hi = TWIN + 99,
                            .held_lo = HELD,
                            .held_hi = HELD + 9,
                            .timeout_ms = timeout_ms};

    return world.ops->reach_begin(cell, &r, NULL);
}

static struct cella_reach_seen judged[100], twin[100], held[10];

static void collect(void *ctx, const struct cella_reach_seen *s)
{
    (void)ctx;
    assert_true((s->port >= JUDGED && s->port < JUDGED + 100) ||
                (s->port >= TWIN && s->port < HELD + 10));
    *(s->port < TWIN   ? &judged[s->port - JUDGED]
      : s->port < HELD ? &twin[s->port - TWIN]
                       : &held[s->port - HELD]) = *s;
}

static int end(void *cell)
{
    memset(judged, 0, sizeof(judged));
    memset(twin, 0, sizeof(twin));
    memset(held, 0, sizeof(held));
    return world.ops->reach_end(cell, NULL, collect, NULL);
}

#define SAID "hello " NONCE " 1"

static void test_sink(void **state)
{
    struct cella_attached at = {0};
    void *cell = attach_cell(0, POLICY, &at);
    int conns = world.sinks->conns, datagrams = world.sinks->datagrams;

    (void)state;
    assert_int_equal(begin(cell, LONG), 0);
    assert_int_equal(begin(cell, LONG), -EBUSY);
    /* allowed: into the sink, not to the server */
    assert_int_equal(try("203.0.113.10", 80, JUDGED, SOCK_STREAM, SAID), 0);
    /* allowed, without the nonce: carried, not counted */
    assert_int_equal(try("203.0.113.10", 80, JUDGED + 1, SOCK_STREAM, "hello"), 0);
    /* what the policy denies stays denied */
    assert_int_equal(try("203.0.113.10", 81, JUDGED + 2, SOCK_STREAM, SAID), ECONNREFUSED);
    assert_int_equal(try("169.254.169.254", 80, JUDGED + 3, SOCK_STREAM, SAID), ECONNREFUSED);
    assert_int_equal(try("203.0.113.10", 9999, JUDGED + 4, SOCK_DGRAM, SAID), EHOSTUNREACH);
    /* twins: everything gets through, to the sink */
    assert_int_equal(try("203.0.113.10", 81, TWIN + 2, SOCK_STREAM, SAID), 0);
    assert_int_equal(try("169.254.169.254", 80, TWIN + 3, SOCK_STREAM, SAID), 0);
    assert_int_equal(try("203.0.113.10", 53, TWIN + 5, SOCK_STREAM, SAID), 0);
    assert_int_equal(try("203.0.113.10", 9999, TWIN + 4, SOCK_DGRAM, SAID), 0);
    /* others go on as always */
    assert_int_equal(try("203.0.113.10", 80, 30000, SOCK_STREAM, SAID), 0);
    assert_int_equal(try("203.0.113.10", 81, 30000, SOCK_STREAM, SAID), ECONNREFUSED);
    assert_int_equal(world.sinks->conns, conns + 1);
    assert_int_equal(end(cell), 0);
    assert_int_equal(judged[0].bytes, strlen(SAID));
    assert_int_equal(judged[0].carried, 1);
    assert_int_equal(judged[1].bytes, 0);
    assert_int_equal(judged[1].carried, 1);
    assert_int_equal(judged[2].bytes, 0);
    assert_true(judged[2].refused && judged[3].refused && judged[4].refused);
    assert_int_equal(twin[2].bytes, strlen(SAID));
    assert_int_equal(twin[3].bytes, strlen(SAID));
    assert_int_equal(twin[5].bytes, strlen(SAID));
    assert_int_equal(twin[4].bytes, strlen(SAID));
    assert_int_equal(world.sinks->datagrams, datagrams);
    /* over: the same ports are ports like any other */
    assert_int_equal(try("169.254.169.254", 80, TWIN + 6, SOCK_STREAM, SAID), ECONNREFUSED);
    assert_int_equal(try("203.0.113.10", 80, JUDGED + 6, SOCK_STREAM, SAID), 0);
    assert_int_equal(world.sinks->conns, conns + 2);
    assert_int_equal(end(cell), -EPROTO);
    world.ops->detach(cell);
    forget_events();
}

/* A connection of the cell from this source port, on which `data` was said and heard. */
static int held_open(const char *addr, int port, int sport)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_port = htons((uint16_t)sport)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval limit = patience();
    char buf[16];
    int fd;

    inet_pton(AF_INET, addr, &to.sin_addr);
    assert_int_equal(setns(world.cell_ns[0], CLONE_NEWNET), 0);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setns(world.host_ns, CLONE_NEWNET), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_int_equal(send(fd, "first", 5, MSG_NOSIGNAL), 5);
    assert_int_equal(recv(fd, buf, sizeof(buf), 0), 5);
    return fd;
}

/* errno of saying more, and hearing it; 0: it came back. */
static int held_say(int fd)
{
    char buf[64];
    ssize_t n = send(fd, SAID, strlen(SAID), MSG_NOSIGNAL);

    if (n > 0)
        n = recv(fd, buf, sizeof(buf), 0);
    return n == (ssize_t)strlen(SAID) ? 0 : n < 0 ? errno : 254;
}

/* What was open under a looser policy, which was one of the measurement alone, meets the policy in force. */
static void test_tighten(void **state)
{
    struct cella_attached at = {0};
    void *cell = attach_cell(0, POLICY, &at);
    int conns = world.sinks->conns, denied, allowed, own, other;

    (void)state;
    assert_int_equal(world.ops->reach_tighten(cell, NULL), -EPROTO);
    own = held_open("203.0.113.10", 80, 30001);
    assert_int_equal(begin(cell, LONG), 0);
    denied = held_open("203.0.113.10", 81, HELD);
    allowed = held_open("203.0.113.10", 80, HELD + 1);
    other = held_open("169.254.169.254", 80, TWIN);
    /* a policy of the cell is not looser for it: not for its other ports */
    assert_int_equal(try("203.0.113.10", 81, 30000, SOCK_STREAM, SAID), ECONNREFUSED);
    assert_int_equal(world.ops->reach_tighten(cell, NULL), 0);
    assert_int_equal(held_say(denied), ECONNRESET);
    assert_int_equal(held_say(allowed), 0);
    assert_int_equal(held_say(other), 0); /* a twin is not tightened */
    assert_int_equal(held_say(own), 0);
    /* and the ports are judged like any other */
    assert_int_equal(try("203.0.113.10", 81, HELD + 2, SOCK_STREAM, SAID), ECONNREFUSED);
    assert_int_equal(try("203.0.113.10", 9999, HELD + 3, SOCK_DGRAM, SAID), EHOSTUNREACH);
    assert_int_equal(world.sinks->conns, conns + 1); /* `own` */
    assert_int_equal(end(cell), 0);
    assert_int_equal(held[0].bytes, 0);
    assert_int_equal(held[0].carried, 1);
    assert_true(held[0].refused && held[2].refused && held[3].refused);
    assert_int_equal(held[1].bytes, strlen("first") + strlen(SAID));
    close(denied);
    close(allowed);
    close(other);
    close(own);
    world.ops->detach(cell);
    forget_events();
}

/* What is measured is neither bounded by the policy's limits nor counted: the cell has all of them afterwards. */
static void test_no_limits(void **state)
{
    struct cella_attached at = {0};
    void *cell =
        attach_cell(0,
                    "{\"version\":1,\"limits\":{\"tx_bytes\":40},\"allow\":[{\"id\":\"doc\","
                    "\"cidr\":\"203.0.113.0/28\",\"ports\":[80],\"layer\":\"raw\","
                    "\"limits\":{\"conns\":1,\"tx_bytes\":30}}]}",
                    &at);
    int a, b, own;

    (void)state;
    own = held_open("203.0.113.10", 80, 30001); /* 5 bytes, the one connection */
    assert_int_equal(begin(cell, LONG), 0);
    a = held_open("203.0.113.10", 80, JUDGED);
    b = held_open("203.0.113.10", 80, TWIN);
    assert_int_equal(held_say(a), 0);
    assert_int_equal(held_say(b), 0);
    assert_int_equal(held_say(a), 0); /* more than the rule has, and than the cell has */
    assert_int_equal(held_say(a), 0);
    assert_int_equal(end(cell), 0);
    close(a);
    close(b);
    assert_int_equal(held_say(own), 0); /* 20 more of 30 */
    assert_int_not_equal(held_say(own), 0);
    close(own);
    world.ops->detach(cell);
    forget_events();
}

/* Measured flows are no use of the network: no accounting, no net.allow; denials say what they are. */
static unsigned lines;
static void count_line(void *ctx, const struct cella_flow *f)
{
    (void)ctx;
    (void)f;
    lines++;
}

static void test_no_account(void **state)
{
    struct cella_attached at = {0};
    void *cell = attach_cell(0, POLICY, &at);
    size_t i;

    (void)state;
    assert_int_equal(begin(cell, LONG), 0);
    assert_int_equal(try("203.0.113.10", 80, JUDGED, SOCK_STREAM, SAID), 0);
    assert_int_equal(try("203.0.113.10", 81, JUDGED + 1, SOCK_STREAM, SAID), ECONNREFUSED);
    assert_int_equal(end(cell), 0);
    lines = 0;
    assert_int_equal(world.ops->report(cell, NULL, count_line, NULL), 0);
    assert_int_equal(lines, 0);
    assert_non_null(find_event("net.deny", "no_rule", "203.0.113.10", 81));
    for (i = 0; i < world.n_seen; i++) /* it would have come before the denial */
        assert_string_not_equal(world.seen[i].kind, "net.allow");
    world.ops->detach(cell);
    forget_events();
}

static void test_ends_by_itself(void **state)
{
    struct timespec nap = {1, 300000000};
    struct cella_attached at = {0};
    void *cell = attach_cell(0, POLICY, &at);

    (void)state;
    assert_int_equal(begin(cell, 100), 0);
    nanosleep(&nap, NULL); /* past the gate's deadline and the kernel's timeout */
    assert_int_equal(try("203.0.113.10", 81, TWIN, SOCK_STREAM, SAID), ECONNREFUSED);
    assert_int_equal(end(cell), -ETIMEDOUT);
    assert_int_equal(begin(cell, LONG), 0);
    assert_int_equal(end(cell), 0);
    world.ops->detach(cell);
    forget_events();
}

/* The gate answers what was given up, and then what is asked now. */
static void test_answers_that_come_too_late(void **state)
{
    struct cella_attached at = {0};
    void *cell = attach_cell(0, POLICY, &at);

    (void)state;
    kill((pid_t)at.gate_pid, SIGSTOP);
    assert_int_equal(begin(cell, 5000), -ETIMEDOUT);
    kill((pid_t)at.gate_pid, SIGCONT);
    assert_int_equal(begin(cell, LONG), 0);
    assert_int_equal(try("203.0.113.10", 80, JUDGED, SOCK_STREAM, SAID), 0);
    assert_int_equal(end(cell), 0);
    assert_int_equal(judged[0].bytes, strlen(SAID));
    world.ops->detach(cell);
    forget_events();
}

static void test_bad_requests(void **state)
{
    struct cella_reach r = {.hdr = CELLA_HDR_INIT(struct cella_reach, CELLA_KIND_REACH),
                            .nonce = NONCE,
                            .port_lo = 1000,
                            .port_hi = 1100,
                            .twin_lo = 1100,
                            .twin_hi = 1200,
                            .timeout_ms = 1000};
    struct cella_attached at = {0};
    void *cell = attach_cell(0, POLICY, &at);

    (void)state;
    assert_int_equal(world.ops->reach_begin(cell, &r, NULL), -EINVAL); /* they overlap */
    r.twin_lo = 1101;
    r.nonce = "short";
    assert_int_equal(world.ops->reach_begin(cell, &r, NULL), -EINVAL);
    r.nonce = NONCE;
    r.timeout_ms = 0;
    assert_int_equal(world.ops->reach_begin(cell, &r, NULL), -EINVAL);
    r.timeout_ms = 1000;
    r.held_lo = r.held_hi = 1300; /* not where the twins end */
    assert_int_equal(world.ops->reach_begin(cell, &r, NULL), -EINVAL);
    r.held_lo = 1201;
    assert_int_equal(world.ops->reach_begin(cell, &r, NULL), -EINVAL); /* too many */
    r.held_lo = r.held_hi = 0;
    r.port_hi = 70000;
    assert_int_equal(world.ops->reach_begin(cell, &r, NULL), -EINVAL);
    world.ops->detach(cell);
}

/* ---- what is expected ---- */

static struct {
    char id[64];
    uint32_t expected;
} rows[2048];
static size_t n_rows;

static void keep(void *ctx, const struct cella_reach_row *r)
{
    (void)ctx;
    snprintf(rows[n_rows].id, sizeof(rows[0].id), "%s", r->id);
    rows[n_rows++].expected = r->expected;
}

static unsigned expected(const char *prefix, uint32_t what)
{
    unsigned n = 0;
    size_t i;

    for (i = 0; i < n_rows; i++)
        n += !strncmp(rows[i].id, prefix, strlen(prefix)) && rows[i].expected == what;
    return n;
}

static void expect(const char *document)
{
    struct cella_attached at = {0};
    void *cell = attach_cell(0, document, &at);
    size_t i, k;

    n_rows = 0;
    assert_int_equal(world.ops->expect(cell, NULL, keep, NULL), 0);
    world.ops->detach(cell);
    for (i = 0; i < n_rows; i++)
        for (k = 0; k < i; k++)
            assert_string_not_equal(rows[i].id, rows[k].id);
}

static void test_expect(void **state)
{
    (void)state;
    expect("{}");
    assert_int_equal(expected("", CELLA_REACH_ALLOW), 0);
    assert_true(expected("metadata.", CELLA_REACH_DENY) >= 4);
    expect(POLICY);
    assert_int_equal(expected("rule.", CELLA_REACH_ALLOW), 1);
    assert_int_equal(expected("edge.", CELLA_REACH_DENY), 2);
    assert_int_equal(expected("tcp.80", CELLA_REACH_ALLOW), 1); /* 203.0.113.1:80 is in the rule */
    assert_int_equal(expected("tcp.443", CELLA_REACH_DENY), 1);
    expect("{\"version\":1,\"allow\":[{\"id\":\"a\",\"cidr\":\"203.0.113.0/28\",\"ports\":[80],"
           "\"layer\":\"raw\"}],\"deny\":[{\"id\":\"d\",\"cidr\":\"203.0.113.0/30\",\"ports\":[80],"
           "\"layer\":\"raw\"}]}");
    assert_int_equal(expected("deny-rule.", CELLA_REACH_DENY), 2); /* TCP and UDP */
    assert_int_equal(expected("tcp.80", CELLA_REACH_DENY), 1);
    assert_int_equal(expected("tighten.kept", CELLA_REACH_ALLOW), 1);
    assert_int_equal(expected("tighten.denied", CELLA_REACH_DENY), 2);
    expect("{\"version\":1,\"allow\":[{\"id\":\"a\",\"host\":\"*.example.com\",\"ports\":[443]}],"
           "\"deny\":[{\"id\":\"d\",\"host\":\"bad.example.com\"}]}");
    assert_int_equal(expected("names.", CELLA_REACH_ALLOW), 2);
    assert_true(expected("names.", CELLA_REACH_DENY) >= 9);
    assert_int_equal(expected("rest.", CELLA_REACH_ALLOW), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sink),           cmocka_unit_test(test_no_account),
        cmocka_unit_test(test_ends_by_itself), cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_expect),         cmocka_unit_test(test_tighten),
        cmocka_unit_test(test_no_limits),      cmocka_unit_test(test_answers_that_come_too_late),
    };

    return cmocka_run_group_tests(tests, group_up, group_down);
}
