/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * revive - starting a gate: the first one, and another in the place of one that died.
 *
 * What a dead gate leaves: the gate namespace with its link and rules (the warden holds a descriptor), and the
 * ledger. Without listeners every rule that would lead to one falls through to "refuse", so nothing is open in between.
 * Its flows are reset by the kernel when its descriptors go; the engine has copies of some, so it
 * ends first, and then the whole is accounted for. Order of a restart: engine and gate are dead -> what
 * they said last -> bytes nobody told -> rules and listeners from the table in force -> gate -> engine -> CA and secrets.
 *
 * Should: put the table of the plugin in force, whatever the dead gate had. Mustn't: believe a gate that says it serves another
 * generation; give a quota back. One thread, the warden's.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "egress.h"
#include "ledger.h"

#define UP_NS 10000000000u

static int ledger_new(void)
{
    auto_close int fd = memfd_create("cella-ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, sizeof(struct ledger)) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return -errno;
    return steal_fd(&fd);
}

int revive_init(struct egress *e, struct cella_error *err)
{
    struct epoll_event ev = {.events = EPOLLIN};

    e->ledger = ledger_new();
    if (e->ledger < 0)
        return fail(err, e->ledger, "no memory file for the gate: %s", strerror(-e->ledger));
    e->broken = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e->exits = epoll_create1(EPOLL_CLOEXEC);
    if (e->broken < 0 || e->exits < 0 || epoll_ctl(e->exits, EPOLL_CTL_ADD, e->broken, &ev) < 0)
        return fail(err, -errno, "watching the gate: %s", strerror(errno));
    return 0;
}

void revive_fini(struct egress *e)
{
    auto_close_(&e->ledger);
    auto_close_(&e->broken);
    auto_close_(&e->exits);
}

void revive_wanted(struct egress *e)
{
    uint64_t one = 1;

    if (write(e->broken, &one, sizeof(one)) < 0) /* the counter is full: it is readable */
        return;
}

static int spawn_now(struct egress *e, char *mode, int borrow_ns, struct cella_error *err)
{
    char *link = e->link == CELLA_LINK_TAP ? "tap" : "netns";
    char slot[16], gate[4096];
    char *argv[] = {"cella-gate-setup", mode, slot, link, gate, e->resolvers, NULL};
    int ns[3] = {borrow_ns, e->uplink, e->ledger},
        r = helper_program(e->host, "cella-gate", gate, err);

    snprintf(slot, sizeof(slot), "%u", e->slot);
    return r < 0 ? r : helper_spawn(e->host, argv, &e->table, ns, &e->pid, &e->ctl, err);
}

int gate_spawn(struct egress *e, char *mode, void *ready, int borrow_ns, struct cella_error *err)
{
    struct epoll_event ev = {.events = EPOLLIN};
    int r = ready ? ready_take(e, ready, borrow_ns, err) : spawn_now(e, mode, borrow_ns, err);

    if (r < 0)
        return r;
    e->pidfd = pidfd_open_(e->pid);
    if (e->pidfd < 0)
        return fail(err, e->pidfd, "no pidfd for the gate: %s", strerror(-e->pidfd));
    if (epoll_ctl(e->exits, EPOLL_CTL_ADD, e->pidfd, &ev) < 0)
        return fail(err, -errno, "watching the gate: %s", strerror(errno));
    return 0;
}

/* Its last message before it serves. */
int gate_wait_up(struct egress *e, uint64_t deadline, struct cella_error *err)
{
    struct ctl_msg m;
    int r = ctl_wait(e->ctl, deadline, &m, NULL, NULL);

    if (r == 0 && m.type == CTL_ERROR)
        return helper_failed(&m, err);
    if (r < 0 || m.type != CTL_UP)
        return fail(err, r < 0 ? r : -EPROTO, "the gate did not start: %s",
                    strerror(r < 0 ? -r : EPROTO));
    if (m.gen != e->table.head.generation)
        return fail(err, -EPROTO, "the gate started under generation %llu instead of %llu",
                    (unsigned long long)m.gen, (unsigned long long)e->table.head.generation);
    r = e->host->fd_watch(e->host->ctx, e->ctl, CELLA_FD_IN, gate_readable, e);
    e->watched = r == 0;
    return r < 0 ? fail(err, r, "watching the gate: %s", strerror(-r)) : 0;
}

void gate_reap(struct egress *e)
{
    siginfo_t si;

    if (e->pid <= 0)
        return;
    gate_kill(e);
    if (e->pidfd < 0)
        kill(e->pid, SIGKILL); /* our own child, not waited for yet */
    while (waitid(P_PID, (id_t)e->pid, &si, WEXITED) < 0 && errno == EINTR)
        ;
    e->pid = 0;
    auto_close_(&e->pidfd);
    e->pidfd = -1;
}

/* ------------------------------------------------------------ accounts */

static int dead(const struct egress *e)
{
    struct pollfd p = {.fd = e->pidfd, .events = POLLIN};

    return e->ctl < 0 || e->pidfd < 0 || poll(&p, 1, 0) == 1;
}

/* What it said before it died. */
static void last_words(struct egress *e)
{
    struct ctl_msg m;

    while (e->ctl >= 0 && recv(e->ctl, &m, sizeof(m), MSG_DONTWAIT) == (ssize_t)sizeof(m) &&
           gate_message(e, &m) == 0)
        ;
}

/* Bytes that the dead gate counted against a rule's limits and had not told. */
static int untold(struct egress *e, const struct ledger_use *u)
{
    struct ctl_msg m = {.type = CTL_FLOW,
                        .reason = REASON_BROKER_DOWN,
                        .count = 1,
                        .gen = e->table.head.generation};
    struct fields f = {.n = 0};
    uint64_t tx = 0, rx = 0;
    size_t i;

    memcpy(m.rule, u->rule, sizeof(m.rule));
    for (i = 0; i < e->n_lines; i++)
        if (!strcmp(e->lines[i].rule, m.rule)) {
            tx += e->lines[i].tx;
            rx += e->lines[i].rx;
        }
    m.tx = m.tx_delta = u->bytes[1] > tx && !(u->bytes[1] >> 60) ? u->bytes[1] - tx : 0;
    m.rx = m.rx_delta = u->bytes[0] > rx && !(u->bytes[0] >> 60) ? u->bytes[0] - rx : 0;
    if ((!m.tx && !m.rx) || account(e, &m, "unknown", "") < 0)
        return 0;
    put_str(&f, "verdict", "kill");
    put_str(&f, "reason", reason_word(m.reason));
    put_str(&f, "rule", m.rule);
    put_int(&f, "gen", m.gen);
    put_int(&f, "tx", m.tx);
    put_int(&f, "rx", m.rx);
    put_str(&f, "hint", "flows of this rule that ended with the gate, together");
    return emit(e, "net.flow", &f);
}

static int carry(struct egress *e, struct cella_error *err)
{
    struct ledger *l = mmap(NULL, sizeof(*l), PROT_READ, MAP_SHARED, e->ledger, 0);
    uint32_t i, n;
    int r = 0;

    if (l == MAP_FAILED)
        return fail(err, -errno, "mapping the ledger: %s", strerror(errno));
    n = l->n_uses < LEDGER_USES_MAX ? l->n_uses : LEDGER_USES_MAX;
    for (i = 1; r >= 0 && i < n; i++)
        if (memchr(l->uses[i].rule, 0, sizeof(l->uses[i].rule)) && name_valid(l->uses[i].rule))
            r = untold(e, &l->uses[i]);
    munmap(l, sizeof(*l));
    return r < 0 ? fail(err, -EIO, "what flowed through the dead gate could not be recorded") : 0;
}

/* ------------------------------------------------------------- restart */

static int gate_again(struct egress *e, struct cella_error *err)
{
    int r;

    last_words(e);
    gate_down(e);
    gate_reap(e);
    e->reach.lost = e->reach.on;
    r = carry(e, err);
    if (r == 0)
        r = gate_spawn(e, "again", NULL, e->gate_ns, err);
    return r < 0 ? r : gate_wait_up(e, now_ns() + UP_NS, err);
}

int egress_restart(void *self, struct cella_attached *ret, struct cella_error *err)
{
    struct egress *e = self;
    uint64_t told;
    int r = 0;

    if (e->link == CELLA_LINK_NONE)
        return fail(err, -EOPNOTSUPP, "a cell without a device has no gate");
    if (read(e->broken, &told, sizeof(told)) < 0)
        told = 0; /* it was the gate */
    if (dead(e)) {
        intercept_down(e); /* it holds copies of the flows' descriptors */
        r = gate_again(e, err);
    }
    if (r == 0)
        r = intercept_again(e, err);
    if (r < 0) { /* the exit descriptor must not stay silent about half a gate */
        intercept_down(e);
        gate_down(e);
        return r;
    }
    egress_describe(e, -1, ret);
    return 0;
}
