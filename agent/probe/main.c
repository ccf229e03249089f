/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella-probe - reads rows, tries all of them at once, prints what each saw (probe.h).
 *
 * Each row has the same patience, and all of them three times that; connections and questions take turns, the
 * rest starts at once, so that what is answered by silence costs it once. Every read is bounded; input and
 * answers come from outside and are only counted. One thread.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

char probe_nonce[64];
#define BUSY_MAX 64u

static struct row rows[ROWS_MAX];
static size_t n_rows;

uint64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static void word(char out[256], const char *in)
{
    snprintf(out, 256, "%s", strcmp(in, "-") ? in : "");
}

static int port(const char *s, uint16_t *ret)
{
    char *end;
    unsigned long v = strtoul(s, &end, 10);

    *ret = (uint16_t)v;
    return *s && !*end && v <= 65535 ? 0 : -1;
}

/* 0, or -1: not a row. */
static int row_parse(char *line, struct row *r)
{
    char *w[7], *save = NULL, *at;
    size_t n = 0;

    for (at = strtok_r(line, " \n", &save); at && n < 7; at = strtok_r(NULL, " \n", &save))
        w[n++] = at;
    memset(r, 0, sizeof(*r));
    r->fd = -1;
    if (n != 7 || at || port(w[3], &r->port) < 0 || port(w[4], &r->sport) < 0)
        return -1;
    word(r->id, w[0]);
    word(r->kind, w[1]);
    word(r->address, w[2]);
    word(r->name, w[5]);
    word(r->options, w[6]);
    return 0;
}

static int read_rows(unsigned *ret_ms)
{
    char line[LINE_MAX_];

    if (!fgets(line, sizeof(line), stdin) ||
        sscanf(line, "cella-probe-1 %63s %u", probe_nonce, ret_ms) != 2 || *ret_ms > 60000)
        return -1;
    while (fgets(line, sizeof(line), stdin)) {
        if (n_rows == ROWS_MAX || row_parse(line, &rows[n_rows]) < 0)
            return -1;
        n_rows++;
    }
    return 0;
}

static void text(const char *s)
{
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            putchar('\\');
        if (*s > ' ' && *s < 127)
            putchar(*s);
    }
}

static void print_row(const struct row *r)
{
    fputs("{\"id\":\"", stdout);
    text(r->id);
    printf("\",\"errno\":%d,\"connected\":%d,\"got\":%ld,\"us\":%llu}\n", r->err, r->connected,
           r->got, (unsigned long long)(r->ended - r->began));
}

/* What an enforcer bounds, or answers one after the other: connections, and questions for names. */
static int in_turn(const struct row *r)
{
    return (r->phase == ROW_CONNECT || r->phase == ROW_READ) &&
           (row_stream(r) || r->lookup || !strcmp(r->kind, "dns-udp"));
}

/* Starts rows in their order, few of those at a time. */
static void open_more(void)
{
    static size_t next;
    size_t i, busy = 0;

    for (i = 0; i < next; i++)
        busy += in_turn(&rows[i]) != 0;
    for (; next < n_rows && busy < BUSY_MAX; next++) {
        row_open(&rows[next]);
        busy += in_turn(&rows[next]) != 0;
    }
}

/* One wait; 0: nothing is left to wait for. */
static int turn(uint64_t patience, uint64_t end)
{
    static struct pollfd fds[ROWS_MAX];
    uint64_t now, next = end;
    size_t i, waiting = 0;

    open_more();
    now = now_us();
    for (i = 0; i < n_rows; i++) {
        struct row *r = &rows[i];
        if ((r->phase == ROW_CONNECT || r->phase == ROW_READ) && now >= r->began + patience)
            row_end(r, ETIMEDOUT);
        fds[i] = (struct pollfd){r->phase == ROW_DONE || r->phase == ROW_NEW ? -1 : r->fd,
                                 r->phase == ROW_CONNECT ? POLLOUT : POLLIN, 0};
        waiting += r->phase != ROW_DONE;
        if (fds[i].fd >= 0 && r->began + patience < next)
            next = r->began + patience;
    }
    if (!waiting || now >= end)
        return 0;
    if (poll(fds, n_rows, next > now ? (int)((next - now) / 1000u) + 1 : 0) < 0)
        return errno == EINTR;
    for (i = 0; i < n_rows; i++)
        if (fds[i].revents)
            row_ready(&rows[i], fds[i].revents);
    return 1;
}

int main(void)
{
    struct rlimit files;
    unsigned ms = 0;
    uint64_t began = now_us();
    size_t i;

    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (read_rows(&ms) < 0) {
        fputs("cella-probe: it is started by \"cella reach\"; its input is not what it knows\n",
              stderr);
        return 2;
    }
    while (turn(ms * UINT64_C(1000), began + 3 * ms * UINT64_C(1000)))
        ;
    for (i = 0; i < n_rows; i++) {
        if (rows[i].phase == ROW_NEW) {
            rows[i].got = -1;
            rows[i].began = now_us();
        }
        if (rows[i].phase != ROW_DONE)
            row_end(&rows[i], ETIMEDOUT);
        print_row(&rows[i]);
    }
    return fflush(stdout) != 0;
}
