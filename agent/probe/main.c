/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella-probe - reads rows, tries all of them, prints what each saw (probe.h).
 *
 * Each row has its patience, and all of them one deadline; connections and questions take turns, the rest
 * starts at once, so that what is answered by silence costs it once. Rows that are held wait for whoever started the
 * probe to tighten the rules, while the others go on. Every read is bounded; input and answers come from outside and are
 * only counted. One thread.
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

#define BUSY_MAX 32u /* more only wait for each other */
#define ANSWERED                                                                                   \
    3u /* times the patience with what is never answered by silence, where that is slow */

static struct row *rows;
static size_t n_rows, next_row;
static size_t active[ROWS_MAX]; /* begun and not over, in their order */
static size_t n_active;
static enum { HOLD_OPENING, HOLD_WAITING, HOLD_OVER } hold;

uint64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static int read_rows(unsigned *ret_ms, unsigned *ret_total)
{
    char line[LINE_MAX_];

    if (!fgets(line, sizeof(line), stdin) || head_parse(line, ret_ms, ret_total) < 0)
        return -1;
    while (fgets(line, sizeof(line), stdin) && strcmp(line, ".\n")) {
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

/* ---- rows that are held ---- */

/* Tells when all that are to be held are: they are the first rows, so the wait is short. */
static void hold_tell(void)
{
    size_t i, n = 0;

    if (hold != HOLD_OPENING)
        return;
    for (i = 0; i < n_rows && option(&rows[i], "held", NULL); i++) {
        if (rows[i].phase == ROW_HELD)
            n++;
        else if (rows[i].phase != ROW_DONE)
            return;
    }
    hold = n ? HOLD_WAITING : HOLD_OVER;
    if (n) {
        printf("{\"held\":%zu}\n", n);
        fflush(stdout);
    }
}

/* "tight": the second act of what is held. Anything else, or the end: there will be none. */
static void hold_release(void)
{
    char line[16];
    ssize_t n = read(0, line, sizeof(line));
    size_t i;

    if (n < 0 && errno == EINTR)
        return;
    hold = HOLD_OVER;
    for (i = 0; i < n_rows && option(&rows[i], "held", NULL); i++) {
        struct row *r = &rows[i];
        if (r->phase != ROW_HELD)
            continue;
        r->began = now_us();
        if (n == 6 && !memcmp(line, "tight\n", 6)) {
            r->act = 1;
            row_say(r);
        } else {
            row_end(r, ECANCELED);
        }
    }
}

/* ---- all of them ---- */

/* What an enforcer bounds, or answers one after the other: connections, and questions for names. */
static int in_turn(const struct row *r)
{
    return (r->phase == ROW_CONNECT || r->phase == ROW_READ) &&
           (row_stream(r) || r->lookup || !strcmp(r->kind, "dns-udp"));
}

/* Forgets what is over and starts rows in their order, few of those at a time. */
static void open_more(void)
{
    size_t i, n = 0, busy = 0;

    for (i = 0; i < n_active; i++) {
        const struct row *r = &rows[active[i]];
        if (r->phase == ROW_DONE)
            continue;
        active[n++] = active[i];
        busy += in_turn(r) != 0;
    }
    n_active = n;
    for (; next_row < n_rows && busy < BUSY_MAX; next_row++) {
        row_open(&rows[next_row]);
        if (rows[next_row].phase == ROW_DONE)
            continue;
        active[n_active++] = next_row;
        busy += in_turn(&rows[next_row]) != 0;
    }
    hold_tell();
}

/* When the row is given up. A connection or a question ends by itself where anything works. */
static uint64_t given_up(const struct row *r, uint64_t patience)
{
    return r->began + (in_turn(r) || !strcmp(r->kind, "redirect") ? ANSWERED : 1) * patience;
}

/* One wait; 0: nothing is left to wait for. */
static int turn(uint64_t patience, uint64_t end)
{
    static struct pollfd fds[ROWS_MAX + 1];
    uint64_t now, next = end;
    size_t i;

    open_more();
    now = now_us();
    if (!n_active || now >= end)
        return 0;
    for (i = 0; i < n_active; i++) {
        struct row *r = &rows[active[i]];
        int waits = r->phase == ROW_CONNECT || r->phase == ROW_READ;
        if (waits && now >= given_up(r, patience))
            row_end(r, ETIMEDOUT);
        fds[i] = (struct pollfd){r->phase == ROW_DONE ? -1 : r->fd,
                                 r->phase == ROW_CONNECT ? POLLOUT : POLLIN, 0};
        if (r->phase == ROW_DONE)
            next = now;
        else if (r->phase == ROW_HELD)
            fds[i].fd = -1;
        else if (given_up(r, patience) < next)
            next = given_up(r, patience);
    }
    fds[i] = (struct pollfd){hold == HOLD_WAITING ? 0 : -1, POLLIN, 0};
    if (poll(fds, n_active + 1, next > now ? (int)((next - now) / 1000u) + 1 : 0) < 0)
        return errno == EINTR;
    for (i = 0; i < n_active; i++)
        if (fds[i].revents)
            row_ready(&rows[active[i]], fds[i].revents);
    if (fds[n_active].revents)
        hold_release();
    return 1;
}

int main(void)
{
    struct rlimit files;
    unsigned ms = 0, total = 0;
    uint64_t began = now_us();
    size_t i;

    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    rows = calloc(ROWS_MAX, sizeof(*rows));
    if (!rows || read_rows(&ms, &total) < 0) {
        fputs("cella-probe: it is started by \"cella reach\"; its input is not what it knows\n",
              stderr);
        return 2;
    }
    while (turn(ms * UINT64_C(1000), began + total * UINT64_C(1000)))
        ;
    for (i = 0; i < n_rows; i++) {
        if (rows[i].phase == ROW_NEW)
            rows[i].began = now_us();
        if (rows[i].phase != ROW_DONE) { /* it did not have its time */
            row_end(&rows[i], ETIMEDOUT);
            rows[i].got = -1;
        }
        print_row(&rows[i]);
    }
    return fflush(stdout) != 0;
}
