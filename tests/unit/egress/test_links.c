/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Attaching and detaching: the kinds of link, what is refused, what a gate is and has, and that
 * nothing is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "net.h"

#define ALLOW                                                                                      \
    "{\"version\":1,\"allow\":["                                                                   \
    "{\"id\":\"doc\",\"cidr\":\"203.0.113.0/24\",\"ports\":[80],\"layer\":\"raw\"}]}"

static double ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int has_eth0(void *arg)
{
    (void)arg;
    return if_nametoindex("eth0") != 0;
}

static int open_fds(void)
{
    int i, n = 0;

    for (i = 0; i < 1024; i++)
        n += fcntl(i, F_GETFD) >= 0;
    return n;
}

static void test_nothing_left(void **state)
{
    struct cella_attached at = {0};
    void *cell = attach_cell(0, ALLOW, &at);
    int fds, i;

    (void)state;
    assert_int_equal(in_ns(world.cell_ns[0], has_eth0, NULL), 1);
    world.ops->detach(cell);
    fds = open_fds();
    cell = attach_cell(0, ALLOW, &at);
    world.ops->detach(cell);
    assert_int_equal(open_fds(), fds);
    assert_int_equal(kill((pid_t)at.gate_pid, 0), -1);
    for (i = 0; i < 1000 && in_ns(world.cell_ns[0], has_eth0, NULL); i++)
        usleep(10000); /* the kernel takes namespaces down in its own time */
    assert_true(i < 1000);
    forget_events();
}

/* ---- the other kinds of link ---- */

static int attach_link(uint32_t link, int netns, void **ret_self, struct cella_attached *ret)
{
    static char msg[512];
    struct cella_error err = {.hdr = CELLA_HDR_INIT(struct cella_error, CELLA_KIND_ERROR),
                              .msg = msg,
                              .msg_cap = sizeof(msg)};
    struct cella_policy policy = {.hdr = CELLA_HDR_INIT(struct cella_policy, CELLA_KIND_POLICY),
                                  .name = "test",
                                  .generation = 1};
    struct cella_attach at = {.hdr = CELLA_HDR_INIT(struct cella_attach, CELLA_KIND_ATTACH),
                              .cell_id = "cccccccccccc",
                              .scratch = "/tmp",
                              .link = link,
                              .slot = 5,
                              .borrow_netns_fd = netns,
                              .borrow_uplink_fd = world.uplink_ns,
                              .policy = &policy};
    int r = world.ops->attach(&world.host, &at, ret_self, ret, &err);

    if (r < 0)
        printf("attach: %s\n", msg);
    return r;
}

static int only_lo(void *arg)
{
    struct target t = {"203.0.113.10", 80, "x", 0}, own = {"127.0.0.1", 80, "x", 0};

    (void)arg;
    return if_nametoindex("eth0") == 0 && probe_tcp(&t) == ENETUNREACH &&
                   probe_tcp(&own) == ECONNREFUSED
               ? 0
               : 1;
}

static void test_link_none(void **state)
{
    struct cella_attached at = {0};
    void *cell = NULL;

    (void)state;
    fresh_cell(0);
    assert_int_equal(attach_link(CELLA_LINK_NONE, world.cell_ns[0], &cell, &at), 0);
    assert_int_equal(at.gate_pid, 0);
    assert_int_equal(at.borrow_exit_fd, -1);
    assert_string_equal(at.address, "");
    assert_int_equal(in_ns(world.cell_ns[0], only_lo, NULL), 0);
    world.ops->detach(cell);
    forget_events();
}

/* A guest at the tap asks for a name and dials out; both are refused in kind, seen as frames. */
static void test_link_tap(void **state)
{
    static const uint8_t syn[20] = {0x30, 0x39, 0, 80, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff};
    static const uint8_t head[10 + 14] = {2 /* checksum is good */,
                                          [10] = 0x02,
                                          0xce,
                                          0x11,
                                          0,
                                          5,
                                          1,
                                          0x02,
                                          0xce,
                                          0x11,
                                          0,
                                          5,
                                          2,
                                          8,
                                          0};
    struct cella_attached at = {0};
    uint8_t frame[256], ip[128];
    struct pollfd p = {.events = POLLIN};
    void *cell = NULL;
    ssize_t n = 0;
    size_t len;
    int tries, reset = 0;

    (void)state;
    assert_int_equal(attach_link(CELLA_LINK_TAP, -1, &cell, &at), 0);
    assert_string_equal(at.address, "10.200.0.22/30");
    assert_true(at.own_tap_fd >= 0);
    len = make_ip(ip, "10.200.0.22", "203.0.113.10", 6, syn, sizeof(syn));
    memcpy(frame, head, sizeof(head));
    memcpy(frame + sizeof(head), ip, len);
    assert_int_equal(write(at.own_tap_fd, frame, sizeof(head) + len), sizeof(head) + len);
    p.fd = at.own_tap_fd;
    for (tries = 0; tries < 10 && !reset && poll(&p, 1, 5000) == 1; tries++) {
        n = read(at.own_tap_fd, frame, sizeof(frame));
        reset = n >= 24 + 40 && frame[24] == 0x45 && frame[24 + 9] == 6 && frame[24 + 33] & 4;
    }
    assert_true(reset);
    close(at.own_tap_fd);
    world.ops->detach(cell);
    assert_non_null(find_event("net.deny", "no_rule", "203.0.113.10", 80));
    forget_events();
}

/* What does not fit is refused and leaves nothing. */
static void test_attach_refused(void **state)
{
    struct cella_attached at = {0};
    void *cell = NULL, *first = attach_cell(0, "{}", &at);
    int fds = open_fds();

    (void)state;
    /* the link exists already: the helper fails half way */
    assert_true(attach_link(CELLA_LINK_NETNS, world.cell_ns[0], &cell, &at) < 0);
    assert_null(cell);
    assert_true(attach_link(CELLA_LINK_NETNS, -1, &cell, &at) < 0);
    assert_true(attach_link(9, -1, &cell, &at) < 0);
    assert_int_equal(open_fds(), fds);
    world.ops->detach(first);
    forget_events();
}

static int caps;
static void capability(void *ctx, const char *name, uint32_t answer, const char *reason)
{
    (void)ctx;
    printf("%s %u %s\n", name, answer, reason ? reason : "");
    caps += answer == CELLA_NATIVE;
    assert_true(answer == CELLA_NATIVE || reason);
}

static void test_probe(void **state)
{
    struct cella_probe_report report = {
        .hdr = CELLA_HDR_INIT(struct cella_probe_report, CELLA_KIND_PROBE_REPORT),
        .capability = capability};

    (void)state;
    caps = 0;
    assert_int_equal(world.ops->probe(&world.host, &report, NULL), 0);
    assert_int_equal(caps, 4);
}

/* Uid, capabilities, filter and namespaces of a live gate, as the kernel tells them. */
static void test_gate_privilege(void **state)
{
    static const char *const lines[] = {"Uid:\t65534\t65534\t65534\t65534",
                                        "Gid:\t65534\t65534\t65534\t65534",
                                        "CapPrm:\t0000000000000000",
                                        "CapEff:\t0000000000000000",
                                        "CapInh:\t0000000000000000",
                                        "CapAmb:\t0000000000000000",
                                        "NoNewPrivs:\t1",
                                        "Seccomp:\t2",
                                        "Threads:\t1",
                                        "Groups:\t \n"};
    struct cella_attached at = {0};
    void *cell = attach_cell(0, "{}", &at);
    char path[64], text[8192] = "";
    size_t i;
    FILE *f;

    (void)state;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)at.gate_pid);
    f = fopen(path, "re");
    assert_non_null(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = 0;
    fclose(f);
    for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (!strstr(text, lines[i]) && !(GATE_FILTERLESS && strstr(lines[i], "Seccomp")))
            fail_msg("the gate's status lacks \"%s\"", lines[i]);
    for (i = 11; i < 64; i++) { /* 11: its epoll */
        snprintf(path, sizeof(path), "/proc/%d/fd/%zu", (int)at.gate_pid, i);
        if (i > 11 && readlink(path, text, sizeof(text)) >= 0)
            fail_msg("the gate holds descriptor %zu", i);
    }
    world.ops->detach(cell);
    forget_events();
}

static void test_speed(void **state)
{
    double attach[9], detach[9];
    int i;

    (void)state;
    for (i = 0; i < 9; i++) {
        struct cella_attached at = {0};
        double a = ms(), b;
        void *cell = attach_cell(0, ALLOW, &at);
        b = ms();
        if (i == 0) {
            char cmd[128];
            snprintf(cmd, sizeof(cmd), "grep -E '^(Pss|Private_Dirty):' /proc/%d/smaps_rollup",
                     (int)at.gate_pid);
            if (system(cmd))
                printf("no smaps\n");
        }
        attach[i] = b - a;
        a = ms();
        world.ops->detach(cell);
        detach[i] = ms() - a;
    }
    for (i = 0; i < 9; i++)
        printf("attach %.2f ms detach %.2f ms\n", attach[i], detach[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link_none),      cmocka_unit_test(test_link_tap),
        cmocka_unit_test(test_attach_refused), cmocka_unit_test(test_nothing_left),
        cmocka_unit_test(test_probe),          cmocka_unit_test(test_gate_privilege),
        cmocka_unit_test(test_speed),
    };

    if (getuid()) {
        puts("needs root to make network namespaces");
        return 77;
    }
    cmocka_set_test_filter(getenv("EGRESS_TEST_ONLY"));
    return cmocka_run_group_tests(tests, group_up, group_down);
}
