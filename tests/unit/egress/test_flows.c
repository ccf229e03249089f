/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Bytes of allowed flows: all of them, in order, both ends of a flow told how it ended, and a gate
 * that outlives whatever either end does.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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
#include <unistd.h>

#include <cmocka.h>

#include "net.h"

#define ALLOW                                                                                      \
    "{\"version\":1,\"allow\":["                                                                   \
    "{\"id\":\"doc\",\"cidr\":\"203.0.113.0/24\",\"ports\":[80,7000,8081],\"layer\":\"raw\"}]}"

/* ---- bytes both ways, half-close ---- */

#define BULK (20u << 20)

/* 20 MiB to an echo server and back, FIN after the last byte; 0 when every byte came back. */
static int bulk(void *arg)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(80)};
    static uint8_t out[65536], in[65536];
    size_t sent = 0, got = 0, i;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    (void)arg;
    inet_pton(AF_INET, "203.0.113.10", &a.sin_addr);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        return errno;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (got < BULK) {
        struct pollfd p = {.fd = fd, .events = (short)(POLLIN | (sent < BULK ? POLLOUT : 0))};
        ssize_t n;
        if (poll(&p, 1, (int)patience().tv_sec * 1000) <= 0)
            return 250;
        if (p.revents & POLLOUT && sent < BULK) {
            for (i = 0; i < sizeof(out); i++)
                out[i] = (uint8_t)((sent + i) * 31 >> 3);
            n = write(fd, out, BULK - sent < sizeof(out) ? BULK - sent : sizeof(out));
            sent += n > 0 ? (size_t)n : 0;
            if (sent == BULK)
                shutdown(fd, SHUT_WR);
        }
        if (!(p.revents & (POLLIN | POLLHUP)))
            continue;
        n = read(fd, in, sizeof(in));
        if (n <= 0)
            return n == 0 ? 251 : errno;
        for (i = 0; i < (size_t)n; i++)
            if (in[i] != (uint8_t)((got + i) * 31 >> 3))
                return 252;
        got += (size_t)n;
    }
    fcntl(fd, F_SETFL, 0);
    return read(fd, in, 1) == 0 ? 0 : 253; /* and then the server's FIN */
}

static void test_bulk(void **state)
{
    struct cella_attached at = {0};
    void *cell = attach_cell(0, ALLOW, &at);
    const struct seen *flow;

    (void)state;
    assert_int_equal(in_ns(world.cell_ns[0], bulk, NULL), 0);
    world.ops->detach(cell);
    flow = find_event("net.flow", "", "203.0.113.10", 80);
    assert_non_null(flow);
    assert_int_equal(flow->tx, BULK);
    assert_int_equal(flow->rx, BULK);
    forget_events();
}

/* The server hears FIN while the other direction stays open: it reads all, then answers. */
static int half_close(void *arg)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(7000)};
    char c;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    (void)arg;
    inet_pton(AF_INET, "203.0.113.10", &a.sin_addr);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || write(fd, "abc", 3) != 3)
        return errno;
    shutdown(fd, SHUT_WR);
    return read(fd, &c, 1) == 0 ? 0 : 250; /* its FIN, because it saw ours */
}

static void test_half_close(void **state)
{
    struct cella_attached at = {0};
    void *cell = attach_cell(0, ALLOW, &at);
    long long before = world.sinks->bytes;

    (void)state;
    assert_int_equal(in_ns(world.cell_ns[0], half_close, NULL), 0);
    assert_int_equal(world.sinks->bytes - before, 3);
    world.ops->detach(cell);
    forget_events();
}

/* Connected to the gate, refused upstream: the cell gets a reset. */
static void test_upstream_refused(void **state)
{
    struct target t = {"203.0.113.10", 8081, "x", 0};
    struct cella_attached at = {0};
    void *cell = attach_cell(0, ALLOW, &at);

    (void)state;
    assert_int_equal(in_ns(world.cell_ns[0], probe_echo, &t), ECONNRESET);
    world.ops->detach(cell);
    assert_non_null(find_event("net.flow", "upstream_failed", "203.0.113.10", 8081));
    forget_events();
}

/* ---- a reader that goes while bytes are on their way to it ---- */

#define LEFT (1u << 20)

static int leave(void *arg)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(80)};
    static char out[65536];
    size_t sent = 0;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    (void)arg;
    inet_pton(AF_INET, "203.0.113.10", &a.sin_addr);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        return errno;
    while (sent < LEFT) {
        ssize_t n = write(fd, out, sizeof(out));
        if (n <= 0)
            return errno;
        sent += (size_t)n;
    }
    return 0;
}

/* FIN, then RST in answer to what comes back: writing once more is EPIPE, and was a signal. */
static void test_reader_gone(void **state)
{
    struct cella_attached at = {0};
    void *cell = attach_cell(0, ALLOW, &at);
    struct pollfd p = {.fd = at.borrow_exit_fd, .events = POLLIN};
    int i, r = 0;

    (void)state;
    for (i = 0; i < 20 && r == 0; i++) {
        world.sinks->hold = 1; /* nothing is echoed before the client is gone */
        r = in_ns(world.cell_ns[0], leave, NULL);
        usleep(2000);
        world.sinks->hold = 0;
        host_turn(10);
    }
    assert_int_equal(r, 0);
    assert_int_equal(poll(&p, 1, 100), 0);
    world.ops->detach(cell);
    forget_events();
}

/* ---- what the data path leaves behind ---- */

static int pipes_of(pid_t pid)
{
    char dir[64], to[64];
    struct dirent *e;
    int n = 0;
    DIR *d;

    snprintf(dir, sizeof(dir), "/proc/%d/fd", (int)pid);
    d = opendir(dir);
    assert_non_null(d);
    while ((e = readdir(d))) {
        ssize_t len = readlinkat(dirfd(d), e->d_name, to, sizeof(to));
        n += len > 5 && !memcmp(to, "pipe:", 5);
    }
    closedir(d);
    return n;
}

/* All gates of a host share the limit on pipes, so one that has nothing to do holds none. */
static void test_pipes_given_back(void **state)
{
    struct cella_attached at = {0};
    void *cell = attach_cell(0, ALLOW, &at);
    int i, status, before = pipes_of((pid_t)at.gate_pid), most = before;
    pid_t pid = spawn_in_ns(world.cell_ns[0], bulk, NULL), ended;

    (void)state;
    do {
        ended = waitpid(pid, &status, WNOHANG);
        i = pipes_of((pid_t)at.gate_pid);
        most = i > most ? i : most;
        host_turn(5);
    } while (ended == 0);
    assert_int_equal(ended, pid);
    assert_int_equal(status, 0);
    assert_true(most > before);
    for (i = 0; i < turns_most() && pipes_of((pid_t)at.gate_pid) > before; i++)
        host_turn(100);
    assert_int_equal(pipes_of((pid_t)at.gate_pid), before);
    world.ops->detach(cell);
    forget_events();
}

/* What paces or drops for a network's sake has no place on the link inside the slot. */
static int congestion(void *arg)
{
    char name[16] = "";
    socklen_t len = sizeof(name);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    (void)arg;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) < 0)
        return errno;
    return strcmp(name, "reno") != 0;
}

static void test_local_link(void **state)
{
    struct cella_attached at = {0};
    void *cell = attach_cell(0, ALLOW, &at);

    (void)state;
    assert_int_equal(in_ns(world.cell_ns[0], congestion, NULL), 0);
    world.ops->detach(cell);
    forget_events();
}

/* ---- a change that leaves them allowed ---- */

#define CHANGES 30
#define NETS 1500

/* Many networks of no interest, of which `last` differs, and the one that is dialled. */
static const char *many_networks(char *text, size_t room, int last)
{
    size_t at = (size_t)snprintf(text, room, "{\"version\":1,\"allow\":[");
    int i;

    for (i = 0; i < NETS; i++)
        at += (size_t)snprintf(text + at, room - at,
                               "{\"id\":\"n%d\",\"cidr\":\"20.%d.%d.%d/32\",\"ports\":[443],"
                               "\"layer\":\"raw\"},",
                               i, i >> 8, i & 255, last);
    snprintf(text + at, room - at,
             "{\"id\":\"doc\",\"cidr\":\"203.0.113.0/24\",\"ports\":[80],\"layer\":\"raw\"}]}");
    return text;
}

/* One flow, because each new one is an event, and a warden in the middle of a change reads none. */
static int ping(void *arg)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(80)};
    const volatile char *enough = arg;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char c = 'x';

    inet_pton(AF_INET, "203.0.113.10", &a.sin_addr);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        return errno;
    while (!*enough)
        if (write(fd, &c, 1) != 1 || read(fd, &c, 1) != 1)
            return errno ? errno : 250;
    return 0;
}

/* The rules are exchanged as a whole: not for one packet is a destination closed that both allow. */
static void test_no_gap(void **state)
{
    static char text[2][NETS * 96];
    struct cella_attached at = {0};
    struct cella_applied did = {0};
    void *cell = attach_cell(0, many_networks(text[0], sizeof(text[0]), 1), &at);
    uint64_t gen;
    pid_t pid;

    (void)state;
    many_networks(text[1], sizeof(text[1]), 2);
    world.sinks->report[0] = 0;
    pid = spawn_in_ns(world.cell_ns[0], ping, world.sinks->report);
    for (gen = 2; gen < 2 + CHANGES; gen++) {
        assert_int_equal(apply_to(cell, text[(gen + 1) % 2], gen, &did), 0);
        host_turn(2);
    }
    world.sinks->report[0] = 1;
    assert_int_equal(wait_child(pid), 0);
    world.ops->detach(cell);
    forget_events();
}

/* ---- many flows at once ---- */

#define MANY 300
/* How many of MANY connections held open at once answer. */
static int many_flows(void *arg)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(80)};
    int fds[MANY], i, alive = 0;

    inet_pton(AF_INET, "203.0.113.10", &a.sin_addr);
    for (i = 0; i < MANY; i++) {
        struct timeval limit = patience();
        char c;
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        if (connect(fds[i], (struct sockaddr *)&a, sizeof(a)) == 0 &&
            send(fds[i], "x", 1, MSG_NOSIGNAL) == 1 && read(fds[i], &c, 1) == 1)
            alive++;
    }
    *(int *)arg = alive;
    return 0;
}

static void test_flow_limit(void **state)
{
    struct cella_attached at = {0};
    void *cell = attach_cell(0, ALLOW, &at);
    int *alive = (int *)(void *)world.sinks->report;
    pid_t pid = spawn_in_ns(world.cell_ns[0], many_flows, alive);
    int status;

    (void)state;
    while (waitpid(pid, &status, WNOHANG) == 0)
        host_turn(5);
    assert_int_equal(*alive, 256);
    host_turn(50);
    assert_non_null(find_event("net.deny", "limit", "203.0.113.10", 80));
    world.ops->detach(cell);
    forget_events();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bulk),
        cmocka_unit_test(test_half_close),
        cmocka_unit_test(test_upstream_refused),
        cmocka_unit_test(test_reader_gone),
        cmocka_unit_test(test_no_gap),
        cmocka_unit_test(test_flow_limit),
        cmocka_unit_test(test_pipes_given_back),
        cmocka_unit_test(test_local_link),
    };

    if (getuid()) {
        puts("needs root to make network namespaces");
        return 77;
    }
    cmocka_set_test_filter(getenv("EGRESS_TEST_ONLY")); /* a pattern; all by default */
    return cmocka_run_group_tests(tests, group_up, group_down);
}
