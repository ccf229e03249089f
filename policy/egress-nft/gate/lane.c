/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * lane - bytes of a flow, by splice through a pipe per direction, never into this process.
 *
 * A direction reads only when its pipe is empty and its rule has bytes and tokens left, so a slow
 * reader holds at most one pipe and two socket buffers, an idle flow holds no pipe at all, and a
 * gate with nothing to do for a second has none. FIN is passed on after the last byte. Bytes count
 * against the limits when they are read. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "flow.h"

#define PIPES_KEPT 8u
#define TURN_BYTES (2u << 20) /* of a direction, before the next descriptor has its turn */
#define TURN_STEPS 8

/* Unprivileged users share a limit over all their pipes, and every gate of the host is the same user. So the
   few largest go to whoever moves most just now, and when many flows stand still most of them hold little. */
static const struct {
    size_t bytes;
    unsigned most; /* of the cell at a time */
} classes[] = {{1024 * 1024, 2}, {256 * 1024, 32}, {32 * 1024, 2 * FLOWS_MAX}};
#define CLASSES (sizeof(classes) / sizeof(classes[0]))

static struct pipes kept[PIPES_KEPT]; /* empty */
static unsigned n_kept, n_open[CLASSES];
static int used; /* since the last lanes_tick() */

static void pipe_close(const struct pipes *p)
{
    close(p->fd[0]);
    close(p->fd[1]);
    n_open[p->class]--;
}

static int pipe_take(struct pipes *p)
{
    unsigned i, best = 0;

    used = 1;
    if (n_kept) {
        for (i = 1; i < n_kept; i++)
            if (kept[i].class < kept[best].class)
                best = i;
        *p = kept[best];
        kept[best] = kept[--n_kept];
        return 0;
    }
    if (pipe2(p->fd, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    for (p->class = 0; p->class < CLASSES - 1; p->class ++)
        if (n_open[p->class] < classes[p->class].most)
            break;
    n_open[p->class]++;
    fcntl(p->fd[0], F_SETPIPE_SZ, (int)classes[p->class].bytes); /* whatever it is does too */
    return 0;
}

/* Only large ones are kept, and the larger rather: else a busy gate would go on with small ones for ever. */
static void pipe_give(struct pipes *p, int empty)
{
    unsigned i, least = 0;

    if (p->fd[0] < 0)
        return;
    for (i = 1; i < n_kept; i++)
        if (kept[i].class > kept[least].class)
            least = i;
    if (!empty || p->class == CLASSES - 1) {
        pipe_close(p);
    } else if (n_kept < PIPES_KEPT) {
        kept[n_kept++] = *p;
    } else if (p->class < kept[least].class) {
        pipe_close(&kept[least]);
        kept[least] = *p;
    } else {
        pipe_close(p);
    }
    p->fd[0] = p->fd[1] = -1;
}

int lanes_keep(void)
{
    return n_kept != 0;
}

void lanes_tick(void)
{
    while (!used && n_kept)
        pipe_close(&kept[--n_kept]);
    used = 0;
}

void lane_pause(struct gate *g, struct lane *l, int on)
{
    if (l->paused == on)
        return;
    l->paused = on;
    g->n_paused += on ? 1u : -1u;
}

void lane_drop(struct gate *g, struct lane *l)
{
    lane_pause(g, l, 0);
    pipe_give(&l->pipe, !l->held);
}

/* The limit is reached: an end is still an end, a byte more is one too many. */
static int at_limit(struct lane *l, int from)
{
    char c;
    ssize_t n = recv(from, &c, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN ? 0 : -errno;
    if (n > 0)
        return -EDQUOT;
    l->eof = 1;
    return 0;
}

/* 1: the pipe holds something; 0: nothing to do now. */
static int lane_fill(struct gate *g, struct flow *f, struct lane *l, int from)
{
    long room = limits_budget(g, &f->limits, l->tx, classes[0].bytes);
    ssize_t n;

    lane_pause(g, l, room == 0);
    if (room < 0)
        return at_limit(l, from);
    if (room == 0)
        return 0;
    if (l->pipe.fd[0] < 0 && pipe_take(&l->pipe) < 0)
        return -ENFILE;
    n = splice(from, NULL, l->pipe.fd[1], NULL, (size_t)room, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n <= 0)
        pipe_give(&l->pipe, 1);
    if (n < 0)
        return errno == EAGAIN ? 0 : -errno;
    if (n == 0) {
        l->eof = 1;
        return 0;
    }
    limits_spend(g, &f->limits, l->tx, (size_t)n);
    l->held = (size_t)n;
    return 1;
}

/* One step of a lane: 1 something moved, 0 nothing to do now, -errno broken. */
static int lane_step(struct gate *g, struct flow *f, struct lane *l, int from, int to)
{
    ssize_t n;

    if (!l->held) {
        int r = l->eof ? 0 : lane_fill(g, f, l, from);
        if (r <= 0)
            return r;
    }
    n = splice(l->pipe.fd[0], NULL, to, NULL, l->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n < 0)
        return errno == EAGAIN ? 0 : -errno;
    l->held -= (size_t)n;
    l->moved += (uint64_t)n;
    if (!l->held)
        pipe_give(&l->pipe, 1);
    return n > 0;
}

static int lane_pump(struct gate *g, struct flow *f, struct lane *l, int from, int to)
{
    uint64_t turn = l->moved + TURN_BYTES;
    int i, r = 1;

    for (i = 0; r > 0 && i < TURN_STEPS && l->moved < turn; i++)
        r = lane_step(g, f, l, from, to);
    if (r < 0)
        return r;
    if (l->eof && !l->held && !l->done) {
        if (shutdown(to, SHUT_WR) < 0 && errno != ENOTCONN)
            return -errno;
        l->done = 1;
    }
    return 0;
}

/* `in` is the lane that reads from w, `out` the one that writes to it. */
static void side_update(struct gate *g, struct watch *w, const struct lane *in,
                        const struct lane *out)
{
    uint32_t want = 0;

    if (in->eof && out->done) { /* nothing more to learn here; EPOLLHUP would repeat for ever */
        watch_del(g, w);
        return;
    }
    if (!in->eof && !in->held && !in->paused)
        want |= EPOLLIN;
    if (out->held)
        want |= EPOLLOUT;
    /* Its last bytes may wait for the other side's reader: told once that it hung up, and once of a reset. */
    if (!want && out->done)
        want = EPOLLET;
    watch_set(g, w, want);
}

int lanes_pump(struct gate *g, struct flow *f)
{
    int r = lane_pump(g, f, &f->tx, f->cell.fd, f->up.fd);

    if (r == 0)
        r = lane_pump(g, f, &f->rx, f->up.fd, f->cell.fd);
    if (r < 0)
        return r;
    side_update(g, &f->cell, &f->tx, &f->rx);
    side_update(g, &f->up, &f->rx, &f->tx);
    return 0;
}
