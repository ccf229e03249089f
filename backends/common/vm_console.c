/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * console - what the guest's kernel says on its serial line: the last CONSOLE_KEPT bytes, for a person who asks why
 * a machine died. A guest that floods it is read at CONSOLE_ROUND bytes a quarter of a second; the pipe
 * behind it is full meanwhile, and what comes then is the guest's to wait for. Threads: one.
 */
#include "vm.h"

#define CONSOLE_ROUND 16384u
#define CONSOLE_REST 250000000ull

static void watch(struct console *c);

static void rested(void *data)
{
    struct console *c = data;

    c->timer = 0;
    watch(c);
}

static void keep(struct console *c, const char *s, size_t len)
{
    size_t i;

    for (i = 0; i < len; i++)
        c->kept[c->total++ % CONSOLE_KEPT] = s[i];
}

static void ready(void *data, int fd, uint32_t bits)
{
    struct console *c = data;
    uint64_t before = c->total;

    (void)fd;
    console_read(c, CONSOLE_ROUND);
    if (c->total == before && bits & CELLA_FD_HUP) {
        c->host->fd_unwatch(c->host->ctx, c->fd);
    } else if (c->total - before >= CONSOLE_ROUND) {
        c->host->fd_unwatch(c->host->ctx, c->fd);
        c->timer = c->host->timer(c->host->ctx, CONSOLE_REST, rested, c);
    }
}

static void watch(struct console *c)
{
    if (c->host->fd_watch(c->host->ctx, c->fd, CELLA_FD_IN, ready, c) < 0)
        c->host = NULL;
}

void console_start(struct console *c, const struct cella_host *host, int fd)
{
    c->fd = fd;
    c->host = CELLA_HOST_HAS(host, fd_watch) && CELLA_HOST_HAS(host, timer) ? host : NULL;
    if (c->host)
        watch(c);
}

void console_read(struct console *c, size_t most)
{
    char room[4096];

    while (c->fd >= 0 && most) {
        ssize_t n = read(c->fd, room, most < sizeof(room) ? most : sizeof(room));
        if (n <= 0)
            return;
        keep(c, room, (size_t)n);
        most -= (size_t)n;
    }
}

void console_stop(struct console *c)
{
    if (c->host) {
        if (c->timer > 0)
            c->host->timer_cancel(c->host->ctx, c->timer);
        c->host->fd_unwatch(c->host->ctx, c->fd);
    }
    console_read(c, CONSOLE_KEPT * 4);
    c->host = NULL;
    c->timer = 0;
    c->fd = -1;
}

size_t console_tail(const struct console *c, char *out, size_t cap)
{
    uint64_t have = c->total < CONSOLE_KEPT ? c->total : CONSOLE_KEPT, i;

    if (have > cap)
        have = cap;
    for (i = 0; i < have; i++)
        out[i] = c->kept[(c->total - have + i) % CONSOLE_KEPT];
    return (size_t)have;
}
