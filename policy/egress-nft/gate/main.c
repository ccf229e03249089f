/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella-gate - start and loop.
 *
 * Started by cella-gate-setup as nobody, without capabilities, in the uplink namespace, with the
 * descriptors of ctl.h and an empty environment. Order: die with the warden -> not dumpable ->
 * policy -> ledger -> resolvers -> filter -> UP -> serve. Should: exit when the control socket closes. Mustn't: serve a
 * byte before the filter is installed. The kernel rules find no listener once this process is gone,
 * so its death closes everything.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../ledger.h"
#include "gate.h"

/* Takes fd. */
static int load_table(int own_fd, struct policy_table *ret)
{
    int r = policy_table_read(own_fd, ret);

    close(own_fd);
    return r;
}

/* The new table counts from here on; flows it does not allow are reset before the reply. */
static void publish(struct gate *g, int own_fd)
{
    struct ctl_msg m = {.type = CTL_PUBLISHED};
    struct policy_table t;
    int r = own_fd < 0 ? -EBADF : load_table(own_fd, &t);

    if (r < 0) {
        g->quit = 1; /* between two policies there is no safe one to go on with */
        return;
    }
    policy_table_fini(&g->table);
    g->table = t;
    m.tx = relay_judge(g, 0) + udp_judge(g);
    m.gen = t.head.generation;
    if (gate_tell(g, &m) < 0)
        g->quit = 1;
}

/* `final`: the cell is gone, so its flows end here and are accounted for. */
static void flush(struct gate *g, int final)
{
    struct ctl_msg m = {.type = CTL_FLUSHED, .count = final != 0};

    dns_udp_ready(g, &g->dns_udp, 0);
    nflog_flush(g);
    if (final) {
        relay_end_all(g);
        udp_end_all(g);
    } else {
        relay_progress(g);
        udp_progress(g);
    }
    events_close_account(g);
    gate_tell(g, &m);
}

static int ctl_read(struct gate *g, struct ctl_msg *m, int *ret_fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {m, sizeof(*m)};
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof(control)};
    struct cmsghdr *c;
    ssize_t n = recvmsg(g->ctl.fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    *ret_fd = -1;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    c = CMSG_FIRSTHDR(&h);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
    return n == (ssize_t)sizeof(*m) ? 1 : -EPIPE;
}

static void ctl_ready(struct gate *g, struct watch *w, uint32_t ready)
{
    struct ctl_msg m;
    int fd, r;

    (void)w;
    if (ready & EPOLLOUT)
        events_drain(g);
    if (!(ready & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    r = ctl_read(g, &m, &fd);
    if (r < 0)
        g->quit = 1;
    else if (r > 0 && m.type == CTL_PUBLISH)
        publish(g, fd);
    else if (r > 0 && m.type == CTL_FLUSH)
        flush(g, m.count != 0);
    else if (r > 0 &&
             (m.type == CTL_REACH_BEGIN || m.type == CTL_REACH_END || m.type == CTL_REACH_TIGHT))
        reach_control(g, &m);
    else if (r > 0 && m.type == CTL_ENGINE)
        engine_set(g, fd);
    else if (fd >= 0)
        close(fd);
}

#define RESUME_MS 20

/* Milliseconds until something must be looked at without a descriptor saying so. */
static int patience(struct gate *g)
{
    int ms =
        g->n_pending || g->n_dns_conns || g->n_assocs || !g->relay.want || lanes_keep() ? 1000 : -1;
    int asked = upstream_patience(), nap = -1;
    uint64_t now;

    if (g->n_paused)
        ms = RESUME_MS;
    if (g->nap_until) {
        now = watch_now();
        nap = now >= g->nap_until ? 0 : (int)((g->nap_until - now) / 1000000u) + 1;
    }
    if (asked >= 0 && (ms < 0 || asked < ms))
        ms = asked;
    return nap >= 0 && (ms < 0 || nap < ms) ? nap : ms;
}

static void tick(struct gate *g)
{
    uint64_t now = watch_now();
    static uint64_t last;

    if (g->nap_until && now >= g->nap_until) {
        g->nap_until = 0;
        watch_set(g, &g->nflog, EPOLLIN);
    }
    if (g->n_paused)
        relay_resume(g);
    upstream_tick();
    if (now - last < 500000000u)
        return;
    last = now;
    relay_tick(g);
    lanes_tick();
    udp_tick(g);
    dns_tick(g);
}

static void serve(struct gate *g)
{
    struct epoll_event ev[32];

    while (!g->quit) {
        int i, n = epoll_wait(g->ep, ev, sizeof(ev) / sizeof(ev[0]), patience(g));
        if (n < 0 && errno != EINTR)
            return;
        for (i = 0; i < n && !g->quit; i++) {
            struct watch *w = ev[i].data.ptr;
            if (w->armed)
                w->fn(g, w, ev[i].events);
        }
        tick(g);
        relay_reap(g);
        udp_reap(g);
        dns_reap(g);
    }
}

/* What the gate before this one, if there was one, has left behind. */
static int restore(struct gate *g)
{
    struct stat st;
    void *p = MAP_FAILED;

    if (fstat(FD_LEDGER, &st) == 0 && st.st_size == (off_t)sizeof(struct ledger))
        p = mmap(NULL, sizeof(struct ledger), PROT_READ | PROT_WRITE, MAP_SHARED, FD_LEDGER, 0);
    close(FD_LEDGER);
    if (p == MAP_FAILED)
        return -1;
    g->ledger = p;
    return uses_restore(g) < 0 || names_restore(g->ledger) < 0 ? -1 : 0;
}

static int start(struct gate *g, const char *resolvers)
{
    struct ctl_msg up = {.type = CTL_UP};
    struct {
        struct watch *w;
        void (*fn)(struct gate *, struct watch *, uint32_t);
        int fd;
    } const watches[] = {
        {&g->ctl, ctl_ready, FD_CTL},
        {&g->relay, relay_ready, FD_RELAY},
        {&g->dns_udp, dns_udp_ready, FD_DNS_UDP},
        {&g->dns_tcp, dns_tcp_ready, FD_DNS_TCP},
        {&g->nflog, nflog_ready, FD_NFLOG},
        {&g->udp, udp_ready, FD_UDP},
    };
    size_t i;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0);
    signal(SIGPIPE, SIG_IGN); /* splice() has no flag against it */
    close_range(FD_GATE_END, ~0u, 0);
    events_init(g);
    g->engine.fd = -1;
    g->raw_fd = FD_RAW;
    if (getuid() == 0 || load_table(FD_POLICY, &g->table) < 0 || restore(g) < 0 ||
        upstream_init(g, resolvers) < 0)
        return -1;
    g->ep = epoll_create1(EPOLL_CLOEXEC);
    if (g->ep < 0)
        return -1;
    for (i = 0; i < sizeof(watches) / sizeof(watches[0]); i++) {
        *watches[i].w = (struct watch){.fn = watches[i].fn, .fd = watches[i].fd};
        watch_set(g, watches[i].w, EPOLLIN);
    }
    if (g->quit || filter_install() < 0)
        return -1;
    up.gen = g->table.head.generation;
    return gate_tell(g, &up);
}

int main(int argc, char **argv)
{
    static struct gate g;
    char *end = NULL;

    if (argc != 3) {
        fputs("cella-gate: it is started by cella; it has no use of its own\n", stderr);
        return 2;
    }
    g.slot = (uint32_t)strtoul(argv[1], &end, 10);
    if (*end || g.slot > SLOT_MAX || start(&g, argv[2]) < 0)
        return 1;
    serve(&g);
    return 0;
}
