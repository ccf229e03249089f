/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Egress by name over time: changes of policy, limits, datagrams, the hand-over to an engine, memory.
 * The world is that of zone.h.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "zone.h"

static uint8_t hello[20000];

/* ------------------------------------------------------------------ change */

static int hold_flow(void *arg)
{
    struct talk *t = arg;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)t->port)};
    struct timeval limit = patience();
    uint8_t buf[20000];
    size_t got = 0;
    ssize_t n;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    inet_pton(AF_INET, t->addr, &to.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 || send(fd, t->bytes, t->n, 0) < 0)
        return 250;
    while (got < t->n) {
        n = recv(fd, buf, sizeof(buf), 0);
        if (n <= 0)
            return 251;
        got += (size_t)n;
    }
    if (write(t->finish, "r", 1) != 1)
        return 252;
    return recv(fd, buf, 1, 0) < 0 ? errno : 253;
}

static pid_t held_flow(const char *addr, int port, const uint8_t *bytes, size_t n)
{
    struct talk t = {addr, port, bytes, n, 0, 0, 0};
    int ready[2];
    char c;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    t.finish = ready[1];
    pid = spawn_in_ns(world.cell_ns[0], hold_flow, &t);
    close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return pid;
}

static void test_change(void **state)
{
    struct cella_applied did = {0};
    const char *good, *wild;
    pid_t one, two;
    size_t n;

    (void)state;
    up_with(WIDE);
    good = address_of("good.test.example");
    wild = address_of("a.wild.example");
    n = hello_for("good.test.example", hello, sizeof(hello));
    one = held_flow(good, 443, hello, n);
    two = held_flow(wild, 80, (const uint8_t *)"x", 1);
    assert_int_equal(apply(DOC(RAW("w", "*.wild.example", "80")), 2, &did), 0); /* rule removed */
    assert_int_equal(did.killed, 1);
    assert_int_equal(wait_child(one), ECONNRESET); /* cut: by itself it would say EAGAIN, later */
    host_turn(30);
    assert_string_equal(event("net.flow", "policy_changed", "good.test.example")->verdict, "kill");
    assert_int_equal(talk(good, 443, hello, n, 0),
                     ECONNREFUSED); /* its port is nobody's any more */
    assert_int_equal(lookup("good.test.example", 1), 5);
    assert_int_equal(apply(DOC(TLS("w", "*.wild.example", "80")), 3, &did), 0); /* layer changed */
    assert_int_equal(did.killed, 1);
    assert_int_equal(wait_child(two), ECONNRESET);
    assert_int_equal(talk(wild, 80, "x", 1, 0), ECONNRESET);
    assert_int_equal(apply(DOC(RAW("w", "*.wild.example", "80,81")), 4, &did), 0);
    two = held_flow(wild, 80, (const uint8_t *)"x", 1);
    assert_int_equal(apply(DOC(RAW("w2", "*.wild.example", "80")), 5, &did), 0); /* stays allowed */
    assert_int_equal(did.killed, 0);
    assert_int_equal(apply(DOC(RAW("w2", "*.wild.example", "81")), 6, &did), 0); /* port closed */
    assert_int_equal(did.killed, 1);
    assert_int_equal(wait_child(two), ECONNRESET);
    /* addresses keep their names through all of it */
    assert_int_equal(apply(WIDE, 7, &did), 0);
    assert_string_equal(address_of("good.test.example"), good);
    assert_true(echoed(good, 443, hello, n, 0));
    assert_int_equal(apply("{}", 8, &did), 0);
    assert_int_equal(talk(good, 443, hello, n, 0), ECONNREFUSED);
    done();
}

/* An address that somebody remembers means the same name after the gate was started again. */
static void test_restart(void **state)
{
    struct pollfd gone = {.events = POLLIN};
    char first[64], second[64];

    (void)state;
    up_with(WIDE);
    gone.fd = attached.borrow_exit_fd;
    snprintf(first, sizeof(first), "%s", address_of("good.test.example"));
    snprintf(second, sizeof(second), "%s", address_of("a.wild.example"));
    kill((pid_t)attached.gate_pid, SIGKILL);
    assert_int_equal(poll(&gone, 1, 10000), 1);
    host_turn(100);
    assert_int_equal(world.ops->restart(zone_cell, &attached, NULL), 0);
    assert_string_equal(address_of("b.wild.example"), "198.18.0.3");
    assert_true(echoed(first, 80, block, 100, 0));
    assert_string_equal(event("net.allow", "", "good.test.example")->rule, "raw");
    assert_string_equal(address_of("a.wild.example"), second);
    assert_string_equal(address_of("good.test.example"), first);
    done();
}

/* ------------------------------------------------------------------ limits */

static void test_limits(void **state)
{
    static const char doc[] =
        "{\"version\":1,\"limits\":{\"rx_bytes\":100000},\"allow\":["
        "{\"id\":\"few\",\"host\":\"good.test.example\",\"ports\":[80],\"layer\":\"raw\","
        "\"limits\":{\"tx_bytes\":1000}},"
        "{\"id\":\"one\",\"host\":\"good.test.example\",\"ports\":[8080],\"layer\":\"raw\","
        "\"limits\":{\"conns\":1}},"
        "{\"id\":\"all\",\"host\":\"a.wild.example\",\"ports\":[80],\"layer\":\"raw\"}]}";
    struct cella_applied did = {0};
    const char *good, *wild;
    long long before;
    pid_t flow;
    int tries;

    (void)state;
    up_with(doc);
    good = address_of("good.test.example");
    wild = address_of("a.wild.example");
    before = world.sinks->bytes;
    assert_true(echoed(good, 80, block, 600, 0));
    talk(good, 80, block, 5000, 0);
    assert_int_equal(shared->err, ECONNRESET);
    assert_in_range(world.sinks->bytes - before, 600, 1000); /* the reset may overtake the rest */
    assert_int_equal(event("net.flow", "limit", "good.test.example")->tx, 400); /* not one more */
    assert_int_equal(talk(good, 80, block, 1, 0), ECONNRESET); /* used up for ever */
    assert_int_equal(apply(doc, 2, &did), 0); /* a document put in force again fills nothing up */
    assert_int_equal(talk(good, 80, block, 1, 0), ECONNRESET);
    assert_string_equal(event("net.deny", "limit", "good.test.example")->rule, "few");
    flow = held_flow(good, 8080, block, 1);
    assert_int_equal(talk(good, 8080, block, 1, 0), ECONNRESET);
    kill(flow, SIGKILL);
    waitpid(flow, NULL, 0);
    for (tries = 0; !echoed(good, 8080, block, 1, 0); tries++)
        assert_true(tries < 100); /* the gate sees in its own time that the other has gone */
    /* the cell's own total, by other rules and names */
    assert_true(echoed(wild, 80, block, 60000, 0));
    talk(wild, 80, block, 60000, 0);
    assert_int_equal(shared->err, ECONNRESET);
    assert_int_equal(talk(good, 8080, block, 1, 0), ECONNRESET);
    done();
}

static void test_rate(void **state)
{
    static const char doc[] = "{\"version\":1,\"allow\":[{\"id\":\"slow\",\"host\":\"good.test."
                              "example\",\"ports\":[80],\"layer\":\"raw\","
                              "\"limits\":{\"tx_bps\":40000}}]}";
    struct timespec a, b;
    double took;
    const char *addr;

    (void)state;
    up_with(doc);
    addr = address_of("good.test.example");
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_true(echoed(addr, 80, block, 64000, 0));
    clock_gettime(CLOCK_MONOTONIC, &b);
    took = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
    printf("64000 bytes at 40000 a second: %.2f s\n", took);
    assert_true(took > 1.2 && took < 10); /* 10000 at once, then the rate; bits would take 10.8 s */
    done();
}

/* --------------------------------------------------------------------- UDP */

static int udp_child(void *arg)
{
    const struct target *t = arg;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)t->port)};
    struct timeval limit = patience();
    uint8_t buf[2000];
    size_t n = (size_t)t->expect;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    inet_pton(AF_INET, t->addr, &to.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 || send(fd, block, n, 0) < 0)
        return errno;
    return recv(fd, buf, sizeof(buf), 0) == (ssize_t)n && !memcmp(buf, block, n) ? 0 : errno;
}

static void test_udp(void **state)
{
    static const char doc[] = "{\"version\":1,\"allow\":["
                              "{\"id\":\"net\",\"cidr\":\"203.0.113.10/"
                              "32\",\"ports\":[4000],\"proto\":\"udp\",\"layer\":\"raw\"},"
                              "{\"id\":\"name\",\"host\":\"good.test.example\",\"ports\":[4000],"
                              "\"proto\":\"udp\",\"layer\":\"raw\"},"
                              "{\"id\":\"re\",\"host\":\"rebind.test.example\",\"ports\":[4000],"
                              "\"proto\":\"udp\",\"layer\":\"raw\"}]}";
    struct target t = {"203.0.113.10", 4000, NULL, 5};
    struct cella_applied did = {0};
    const char *name;

    (void)state;
    memset(block, 'u', sizeof(block));
    up_with(doc);
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), 0);
    t.expect = 1472;
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), 0);
    t.expect = 1001;
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), 0);
    host_turn(30);
    assert_string_equal(find_event("net.allow", "", "203.0.113.10", 4000)->proto, "udp");
    name = address_of("good.test.example");
    t.addr = name;
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), 0);
    host_turn(30);
    assert_string_equal(event("net.allow", "", "good.test.example")->rule, "name");
    /* negatives: another address, another port, TCP, a private answer */
    t.addr = "203.0.113.11";
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), EHOSTUNREACH);
    t.addr = "203.0.113.10";
    t.port = 4001;
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), EHOSTUNREACH);
    assert_int_equal(talk("203.0.113.10", 4000, "x", 1, 0), ECONNREFUSED);
    t.port = 4000;
    t.addr = address_of("rebind.test.example"); /* refused in the gate, answered all the same */
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), EHOSTUNREACH);
    host_turn(30);
    assert_string_equal(event("net.deny", "resolved_private", "rebind.test.example")->dst,
                        "10.1.2.3");
    /* associations end with their rule, and are accounted for */
    assert_int_equal(apply("{}", 2, &did), 0);
    assert_true(did.killed >= 4);
    host_turn(30);
    assert_non_null(event("net.flow", "policy_changed", "good.test.example"));
    t.addr = "203.0.113.10";
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), EHOSTUNREACH);
    done();
}

/* ------------------------------------------------------------------ engine */

/* A child of this process that runs cella-gate-http; 0 = none. */
static pid_t engine(void)
{
    char path[64], children[512] = "", comm[32], *p = children, *end;
    pid_t found = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    f = fopen(path, "re");
    assert_non_null(f);
    children[fread(children, 1, sizeof(children) - 1, f)] = 0;
    fclose(f);
    while (!found) {
        long pid = strtol(p, &end, 10);
        if (end == p)
            return 0;
        p = end;
        snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
        f = fopen(path, "re");
        if (f && fgets(comm, sizeof(comm), f) && !strncmp(comm, "cella-gate-http", 15))
            found = (pid_t)pid;
        if (f)
            fclose(f);
    }
    return found;
}

/* The gate judges before the engine sees a flow, and ends the flows of an engine that is gone. */
static void test_engine(void **state)
{
    static const char doc[] =
        "{\"version\":1,\"allow\":[" RULE("http", "h", "good.test.example", "80,443") "]}";
    static const char head[] = "GET / HTTP/1.1\r\nHost: good.test.example\r\n";
    struct talk t = {NULL, 80, (const uint8_t *)head, sizeof(head) - 1, 0, 0, 1000};
    int conns = world.sinks->conns, i;
    const char *addr;
    pid_t child, pid;
    size_t n;

    (void)state;
    up_with(doc);
    addr = t.addr = address_of("good.test.example");
    shared->queries = 0;
    n = hello_for("other.test.example", hello, sizeof(hello));
    talk(addr, 443, hello, n, 0);
    alert("other name, to the engine", 112);
    n = hello_for(NULL, hello, sizeof(hello));
    talk(addr, 443, hello, n, 0);
    alert("no name, to the engine", 49);
    assert_int_equal(shared->queries, 0);
    assert_int_equal(world.sinks->conns, conns);
    child = spawn_in_ns(world.cell_ns[0], talk_child, &t); /* the engine waits for the rest */
    for (i = 0; i < turns_most() && world.sinks->conns == conns; i++)
        host_turn(20);
    assert_int_equal(world.sinks->conns, conns + 1);
    host_turn(50);
    pid = engine();
    assert_true(pid > 0);
    kill(pid, SIGKILL);
    wait_child(child);
    assert_int_equal(shared->err, ECONNRESET);
    host_turn(50);
    assert_non_null(event("net.flow", "broker_down", "good.test.example"));
    assert_int_equal(talk(addr, 80, head, sizeof(head) - 1, 0), ECONNRESET);
    assert_non_null(event("net.deny", "broker_down", "good.test.example"));
    assert_int_equal(world.sinks->conns, conns + 1);
    done();
}

/* ------------------------------------------------------------------- memory */

static long pss(pid_t pid)
{
    char path[64], line[256];
    long kb = -1;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "Pss: %ld", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return kb;
}

static void test_memory(void **state)
{
    enum { FLOWS = 40 };
    pid_t flows[FLOWS];
    long idle, used, with_flows;
    const char *addr;
    int i;

    (void)state;
    up_with(WIDE);
    idle = pss((pid_t)attached.gate_pid);
    addr = address_of("good.test.example");
    assert_true(echoed(addr, 80, "x", 1, 0));
    used = pss((pid_t)attached.gate_pid);
    for (i = 0; i < FLOWS; i++)
        flows[i] = held_flow(addr, 80, block, 100);
    with_flows = pss((pid_t)attached.gate_pid);
    printf("gate: idle %ld kB, used %ld kB, with %d idle flows %ld kB PSS\n", idle, used, FLOWS,
           with_flows);
    if (!GATE_FILTERLESS) { /* a sanitizer has its own idea of memory */
        assert_true(idle < 1536);
        assert_true((with_flows - used) / FLOWS < 64);
    }
    for (i = 0; i < FLOWS; i++) {
        kill(flows[i], SIGKILL);
        waitpid(flows[i], NULL, 0);
    }
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_change), cmocka_unit_test(test_restart),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_rate),
        cmocka_unit_test(test_udp),    cmocka_unit_test(test_engine),
        cmocka_unit_test(test_memory),
    };

    if (getuid()) {
        puts("needs root to make network namespaces");
        return 77;
    }
    cmocka_set_test_filter(getenv("EGRESS_TEST_ONLY"));
    return cmocka_run_group_tests(tests, zone_up, zone_down);
}
