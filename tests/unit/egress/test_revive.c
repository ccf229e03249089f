/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * A gate that was killed and started again: nothing passes in between, what comes up has the policy that is in force, and no limit
 * has filled up again.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <cmocka.h>

#include "net.h"

#define NET(id, cidr, ports, more)                                                                 \
    "{\"id\":\"" id "\",\"cidr\":\"" cidr "\",\"ports\":[" ports "],\"layer\":\"raw\"" more "}"
#define DOC(rules) "{\"version\":1,\"allow\":[" rules "]}"
#define FIRST NET("a", "203.0.113.0/24", "80", "")
#define SECOND NET("b", "198.51.100.7/32", "443", "")
#define BOTH FIRST "," SECOND

static struct cella_attached at;

static int apply(void *cell, const char *document, uint64_t gen)
{
    struct cella_applied done = {.hdr = CELLA_HDR_INIT(struct cella_applied, CELLA_KIND_APPLIED)};
    struct cella_policy policy = {.hdr = CELLA_HDR_INIT(struct cella_policy, CELLA_KIND_POLICY),
                                  .name = "test",
                                  .document = {document, strlen(document)},
                                  .generation = gen};

    return world.ops->apply(cell, &policy, &done, NULL);
}

static void *up_with(const char *document)
{
    at = (struct cella_attached){.hdr = CELLA_HDR_INIT(struct cella_attached, CELLA_KIND_ATTACHED)};
    return attach_cell(0, document, &at);
}

static void wait_death(void)
{
    struct pollfd p = {.fd = at.borrow_exit_fd, .events = POLLIN};

    assert_int_equal(poll(&p, 1, 10000), 1);
}

static int restart(void *cell)
{
    struct pollfd p = {.fd = at.borrow_exit_fd, .events = POLLIN};
    char msg[512] = "";
    struct cella_error err = {.hdr = CELLA_HDR_INIT(struct cella_error, CELLA_KIND_ERROR),
                              .msg = msg,
                              .msg_cap = sizeof(msg)};
    uint64_t old = at.gate_pid;
    int r = world.ops->restart(cell, &at, &err);

    if (r < 0) {
        printf("restart: %s\n", msg);
        return r;
    }
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_int_equal(at.borrow_exit_fd, p.fd);
    assert_string_equal(at.address, "10.200.0.2/30");
    assert_int_not_equal(at.gate_pid, old);
    return 0;
}

static int reach(const char *addr, int port)
{
    struct target t = {addr, port, "x", 0};

    return in_ns(world.cell_ns[0], probe_echo, &t);
}

static int connects(const char *addr, int port)
{
    struct target t = {addr, port, NULL, 0};

    return in_ns(world.cell_ns[0], probe_tcp, &t);
}

static void test_closed_then_as_it_was(void **state)
{
    void *cell = up_with(DOC(BOTH));
    pid_t flow;
    int conns;

    (void)state;
    assert_int_equal(apply(cell, DOC(FIRST), 2), 0);
    flow = flow_start("hello");
    forget_events();
    kill((pid_t)at.gate_pid, SIGKILL);
    wait_death();
    assert_int_equal(wait_child(flow), ECONNRESET);
    conns = world.sinks->conns;
    assert_int_equal(reach("203.0.113.10", 80), ECONNREFUSED); /* at once, and to nobody */
    assert_int_equal(reach("198.51.100.7", 443), ECONNREFUSED);
    assert_int_equal(world.sinks->conns, conns);
    host_turn(50);
    assert_non_null(find_event("net.deny", "broker_down", NULL, -1));
    assert_int_equal(restart(cell), 0);
    assert_int_equal(reach("203.0.113.10", 80), 0);
    assert_int_equal(reach("198.51.100.7", 443),
                     ECONNREFUSED); /* not the policy it was born with */
    host_turn(50);
    assert_int_equal(find_event("net.deny", "no_rule", "198.51.100.7", 443)->gen, 2);
    assert_true(find_event("net.flow", "broker_down", NULL, -1)->tx >=
                5); /* of the flow that was cut */
    assert_int_equal(apply(cell, DOC(SECOND), 3), 0);
    assert_int_equal(reach("198.51.100.7", 443), 0);
    assert_int_equal(reach("203.0.113.10", 80), ECONNREFUSED);
    world.ops->detach(cell);
    forget_events();
}

/* The gate dies over a change: what comes up has what both policies allow. */
static void test_in_the_middle_of_a_change(void **state)
{
    static const char old[] = DOC(FIRST "," NET("c", "203.0.113.10/32", "7000", ""));
    static const char new[] = DOC(FIRST "," SECOND);
    void *cell = up_with(old);

    (void)state;
    assert_int_equal(connects("203.0.113.10", 7000), 0);
    kill((pid_t)at.gate_pid, SIGSTOP); /* it never answers */
    assert_true(apply(cell, new, 2) < 0);
    wait_death();
    assert_int_equal(reach("203.0.113.10", 80), ECONNREFUSED);
    assert_int_equal(restart(cell), 0);
    assert_int_equal(reach("203.0.113.10", 80), 0);
    assert_int_equal(connects("203.0.113.10", 7000), ECONNREFUSED);
    assert_int_equal(reach("198.51.100.7", 443), ECONNREFUSED);
    assert_int_equal(apply(cell, new, 3), 0);
    assert_int_equal(reach("198.51.100.7", 443), 0);
    world.ops->detach(cell);
    forget_events();
}

static void test_limits_stay_used_up(void **state)
{
    void *cell = up_with(DOC(NET("few", "203.0.113.0/24", "80", ",\"limits\":{\"tx_bytes\":3}")));
    int i;

    (void)state;
    assert_int_equal(reach("203.0.113.10", 80), 0);
    assert_int_equal(reach("203.0.113.10", 80), 0);
    for (i = 0; i < 2; i++) {
        kill((pid_t)at.gate_pid, SIGKILL);
        wait_death();
        assert_int_equal(restart(cell), 0);
        assert_int_equal(reach("203.0.113.10", 80), i ? ECONNRESET : 0); /* the third byte */
    }
    world.ops->detach(cell);
    forget_events();
}

static void no_matter(void *ctx, const struct cella_flow *flow)
{
    (void)ctx;
    (void)flow;
}

/* It gets no processor for longer than anybody waits for a report, and its answer to that comes first; the cell's end
   still hears of its flows. */
static void test_last_words_of_a_slow_one(void **state)
{
    void *cell = up_with(DOC(FIRST));
    pid_t flow = flow_start("hello"), waker;

    (void)state;
    forget_events();
    kill((pid_t)at.gate_pid, SIGSTOP);
    assert_int_equal(world.ops->report(cell, NULL, no_matter, NULL), 0);
    waker = fork();
    if (waker == 0) {
        usleep(1500000); /* longer than who only asks waits */
        kill((pid_t)at.gate_pid, SIGCONT);
        _exit(0);
    }
    assert_int_equal(world.ops->finish(cell, NULL), 0);
    assert_int_equal(waitpid(waker, NULL, 0), waker);
    assert_int_equal(wait_child(flow), ECONNRESET);
    assert_non_null(find_event("net.flow", "", NULL, -1));
    assert_int_equal(find_event("net.flow", "", NULL, -1)->tx, 5);
    world.ops->detach(cell);
    forget_events();
}

static void test_what_has_no_gate(void **state)
{
    struct cella_policy policy = {.hdr = CELLA_HDR_INIT(struct cella_policy, CELLA_KIND_POLICY),
                                  .name = "none",
                                  .generation = 1};
    struct cella_attach in = {.hdr = CELLA_HDR_INIT(struct cella_attach, CELLA_KIND_ATTACH),
                              .cell_id = "aaaaaaaaaaaa",
                              .scratch = "/tmp",
                              .link = CELLA_LINK_NONE,
                              .borrow_netns_fd = -1,
                              .borrow_uplink_fd = -1,
                              .policy = &policy};
    void *cell = NULL;

    (void)state;
    assert_int_equal(world.ops->attach(&world.host, &in, &cell, &at, NULL), 0);
    assert_int_equal(world.ops->restart(cell, &at, NULL), -EOPNOTSUPP);
    world.ops->detach(cell);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_then_as_it_was),
        cmocka_unit_test(test_in_the_middle_of_a_change),
        cmocka_unit_test(test_limits_stay_used_up),
        cmocka_unit_test(test_last_words_of_a_slow_one),
        cmocka_unit_test(test_what_has_no_gate),
    };

    if (getuid()) {
        puts("needs root to make network namespaces");
        return 77;
    }
    return cmocka_run_group_tests(tests, group_up, group_down);
}
