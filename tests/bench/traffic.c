/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * traffic - both endpoints of the egress benchmark: the same program whatever lies between them.
 *
 *   traffic serve                                    says "ready", then serves until it is killed
 *   traffic up|down ADDR PORT FLOWS SECONDS [VIA]    bulk data; prints Gbit/s
 *   traffic connect ADDR PORT TIMES [VIA]            prints the median of microseconds to a first byte
 *   traffic idle ADDR PORT FLOWS [VIA]               opens them, says "ready", waits for end of stdin
 *
 * VIA is hello=FILE (sent first: a ClientHello) or proxy=HOST:PORT (HTTP CONNECT). Of the last digit
 * of a server's port: 1 discards, 2 sends without end, 3 sends one byte and waits. Each side is one
 * thread, so one flow and many cost the endpoints the same. Mustn't: be used for anything but the
 * benchmark; it trusts its peer.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHUNK (256 * 1024)
#define FLOWS_MOST 2048
#define WARM_NS 300000000u

static char chunk[CHUNK];
static uint8_t hello[4096];
static size_t n_hello;
static struct sockaddr_in proxy;

static uint64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "traffic: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void say(const char *text)
{
    puts(text);
    fflush(stdout);
}

static void must_not_block(int fd)
{
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        die("fcntl");
}

static struct sockaddr_in address(const char *addr, const char *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

    if (inet_pton(AF_INET, addr, &a.sin_addr) != 1) {
        errno = EINVAL;
        die(addr);
    }
    return a;
}

static void watch(int ep, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event ev = {.events = events, .data = {.u64 = data << 32 | (uint32_t)fd}};

    if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) < 0)
        die("epoll_ctl");
}

/* ------------------------------------------------------------------- server */

static void serve_accept(int ep, int fd, unsigned port)
{
    int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), on = 1;

    if (conn < 0)
        return;
    setsockopt(conn, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (port % 10 == 3 && write(conn, "x", 1) != 1)
        close(conn);
    else
        watch(ep, conn, port % 10 == 2 ? EPOLLOUT : EPOLLIN, 0);
}

static void serve_conn(int fd, uint32_t events)
{
    ssize_t n = events & EPOLLOUT ? write(fd, chunk, CHUNK) : read(fd, chunk, CHUNK);

    if (n == 0 || (n < 0 && errno != EAGAIN))
        close(fd);
}

static _Noreturn void serve(void)
{
    static const unsigned ports[] = {7001, 7002, 7003, 7011, 7012, 7013};
    struct epoll_event ev[64];
    int ep = epoll_create1(EPOLL_CLOEXEC), i, n, on = 1;
    size_t p;

    for (p = 0; p < sizeof(ports) / sizeof(ports[0]); p++) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)ports[p])};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 1024) < 0)
            die("listen");
        watch(ep, fd, EPOLLIN, ports[p]);
    }
    say("ready");
    for (;;) {
        n = epoll_wait(ep, ev, 64, -1);
        for (i = 0; i < n; i++) {
            int fd = (int)(uint32_t)ev[i].data.u64;
            if (ev[i].data.u64 >> 32)
                serve_accept(ep, fd, (unsigned)(ev[i].data.u64 >> 32));
            else
                serve_conn(fd, ev[i].events);
        }
    }
}

/* ------------------------------------------------------------------- client */

static void ask_proxy(int fd, const struct sockaddr_in *to)
{
    char text[256], addr[INET_ADDRSTRLEN];
    size_t at = 0;
    int n;

    inet_ntop(AF_INET, &to->sin_addr, addr, sizeof(addr));
    n = snprintf(text, sizeof(text), "CONNECT %s:%u HTTP/1.1\r\nHost: %s:%u\r\n\r\n", addr,
                 ntohs(to->sin_port), addr, ntohs(to->sin_port));
    if (write(fd, text, (size_t)n) != n)
        die("asking the proxy");
    while (at < 4 || memcmp(text + at - 4, "\r\n\r\n", 4) != 0) {
        if (at == sizeof(text) || read(fd, text + at, 1) != 1)
            die("the proxy's answer");
        at++;
    }
    if (memcmp(text + 9, "200", 3) != 0) {
        errno = ECONNREFUSED;
        die("the proxy");
    }
}

static int dial(const struct sockaddr_in *to)
{
    const struct sockaddr_in *first = proxy.sin_port ? &proxy : to;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    if (fd < 0)
        die("socket");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, (const struct sockaddr *)first, sizeof(*first)) < 0)
        die("connect");
    if (proxy.sin_port)
        ask_proxy(fd, to);
    if (n_hello && write(fd, hello, n_hello) != (ssize_t)n_hello)
        die("sending the hello");
    return fd;
}

static int bulk(const struct sockaddr_in *to, int up, int flows, double seconds)
{
    struct epoll_event ev[64];
    int ep = epoll_create1(EPOLL_CLOEXEC), i, n;
    uint64_t moved = 0, began = 0, end, t;

    for (i = 0; i < flows; i++) {
        int fd = dial(to);
        must_not_block(fd);
        watch(ep, fd, up ? EPOLLOUT : EPOLLIN, 0);
    }
    t = now();
    end = t + WARM_NS;
    while (t < end || !began) {
        if (t >= end) {
            began = t;
            end = t + (uint64_t)(seconds * 1e9);
            moved = 0;
        }
        n = epoll_wait(ep, ev, 64, 100);
        for (i = 0; i < n; i++) {
            int fd = (int)(uint32_t)ev[i].data.u64;
            ssize_t got = up ? write(fd, chunk, CHUNK) : read(fd, chunk, CHUNK);
            if (got == 0 || (got < 0 && errno != EAGAIN))
                die("a flow ended");
            moved += got > 0 ? (uint64_t)got : 0;
        }
        t = now();
    }
    printf("%.3f\n", (double)moved * 8 / (double)(t - began));
    return 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int latency(const struct sockaddr_in *to, int times)
{
    double *took = calloc((size_t)times, sizeof(*took));
    int i;

    for (i = 0; took && i < times; i++) {
        uint64_t began = now();
        int fd = dial(to);
        if (read(fd, chunk, 1) != 1)
            die("no first byte");
        took[i] = (double)(now() - began) / 1e3;
        close(fd);
    }
    if (!took)
        die("memory");
    qsort(took, (size_t)times, sizeof(*took), by_size);
    printf("%.1f\n", took[times / 2]);
    return 0;
}

static int idle(const struct sockaddr_in *to, int flows)
{
    int i;

    for (i = 0; i < flows; i++)
        if (read(dial(to), chunk, 1) != 1)
            die("no first byte");
    say("ready");
    while (read(STDIN_FILENO, chunk, CHUNK) > 0)
        ;
    return 0;
}

/* --------------------------------------------------------------------- main */

static void via(char *how)
{
    char *colon;

    if (!strncmp(how, "hello=", 6)) {
        FILE *f = fopen(how + 6, "re");
        if (!f)
            die(how);
        n_hello = fread(hello, 1, sizeof(hello), f);
        fclose(f);
    } else if (!strncmp(how, "proxy=", 6) && (colon = strchr(how + 6, ':'))) {
        *colon = 0;
        proxy = address(how + 6, colon + 1);
    } else {
        errno = EINVAL;
        die(how);
    }
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    int is_bulk = !strcmp(verb, "up") || !strcmp(verb, "down"), need = is_bulk ? 6 : 5, n;
    struct sockaddr_in to;

    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!strcmp(verb, "serve"))
        serve();
    if (argc < need || argc > need + 1) {
        fputs("traffic: serve | up|down ADDR PORT FLOWS SECONDS [VIA] | connect ADDR PORT TIMES "
              "[VIA] | idle ADDR PORT FLOWS [VIA]\n",
              stderr);
        return 2;
    }
    if (argc > need)
        via(argv[need]);
    to = address(argv[2], argv[3]);
    n = atoi(argv[4]);
    if (n < 1 || n > FLOWS_MOST) {
        errno = EINVAL;
        die("how many");
    }
    if (is_bulk)
        return bulk(&to, !strcmp(verb, "up"), n, atof(argv[5]));
    return !strcmp(verb, "connect") ? latency(&to, n) : idle(&to, n);
}
