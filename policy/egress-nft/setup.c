/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella-gate-setup - builds the slot of one cell, then becomes its gate.
 *
 * attach SLOT netns|tap GATE-PROGRAM RESOLVERS  descriptors of ctl.h; ends in exec of the gate
 * ready GATE-PROGRAM RESOLVERS                  the same, waiting for CTL_ATTACH before it needs to know the cell
 * again, as attach                              in a gate namespace that is there and has no gate
 * apply SLOT                                    replaces the sets of an existing gate namespace
 * lo                                            brings lo of FD_CELL up
 * probe                                         loads a rule set in a namespace of its own
 *
 * It is the only program with privilege, it reads nothing hostile, and it is
 * gone before the cell starts. The gate namespace has no name: it lives as long as the descriptors
 * of the gate and the warden, so a crash of both leaves nothing to clean.
 *
 * Order of attach: host addresses -> gate namespace -> sockets (now the cell is known) -> link -> rules
 * -> link up -> READY -> exec. Mustn't: bring the link up before the rules are in. Threads: none.
 */
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "setup.h"

struct job {
    uint32_t slot;
    int tap;
    int home_fd;   /* namespace this program was started in */
    int gate_fd;   /* gate namespace */
    int uplink_fd; /* FD_UPLINK or home_fd */
    int tap_fd;
    int gate_exe;
    int relay, dns_udp, dns_tcp, nflog, udp, raw, ledger;
    const char *gate_path, *resolvers;
    struct policy_table table;
    struct host_addrs hosts;
};

static int enter(int ns, const char *what, struct cella_error *err)
{
    net_left();
    if (setns(ns, CLONE_NEWNET) < 0)
        return fail(err, -errno, "entering the %s network namespace: %s", what, strerror(errno));
    return 0;
}

static int own_ns(int *ret, struct cella_error *err)
{
    int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return fail(err, -errno, "opening /proc/self/ns/net: %s", strerror(errno));
    *ret = fd;
    return 0;
}

/* A knob that this kernel does not have (IPv6 not built in) is as good as off. */
static int knob(const char *name, const char *value, struct cella_error *err)
{
    char path[128];
    int r;

    snprintf(path, sizeof(path), "/proc/sys/net/%s", name);
    r = write_file_at(AT_FDCWD, path, value);
    if (r < 0 && r != -ENOENT)
        return fail(err, r, "writing %s to %s: %s", value, path, strerror(-r));
    return 0;
}

static int harden(struct cella_error *err)
{
    static const char *const knobs[][2] = {
        {"ipv6/conf/all/disable_ipv6",
         "1"}, /* and the default of links to come, Documentation/networking/ip-sysctl */
        {"ipv4/conf/all/accept_redirects", "0"},
        {"ipv4/conf/default/accept_redirects", "0"},
    };
    size_t i;
    int r = 0;

    for (i = 0; r == 0 && i < ARRAY_LEN(knobs); i++)
        r = knob(knobs[i][0], knobs[i][1], err);
    return r;
}

/* A new namespace starts with the host's own IPv4 settings, whatever they are; nothing is left to them. */
static int harden_gate(struct cella_error *err)
{
    static const char *const knobs[][2] = {
        {"ipv4/ip_forward", "0"},
        {"ipv4/conf/all/rp_filter", "1"},
        {"ipv4/conf/default/rp_filter", "1"},
        {"ipv4/conf/all/route_localnet", "0"},
        {"ipv4/conf/default/route_localnet", "0"},
        {"ipv4/conf/all/accept_local", "0"},
        {"ipv4/conf/default/accept_local", "0"},
        {"ipv4/conf/all/accept_source_route", "0"}, /* both must be 1 for it */
        {"ipv4/conf/all/proxy_arp", "0"},
        {"ipv4/conf/default/proxy_arp", "0"},
        {"ipv4/conf/all/arp_ignore", "1"},
        {"ipv4/icmp_ratelimit",
         "0"}, /* typed denial for every packet; the cell only slows itself */
    };
    size_t i;
    int r = harden(err);

    for (i = 0; r == 0 && i < ARRAY_LEN(knobs); i++)
        r = knob(knobs[i][0], knobs[i][1], err);
    return r;
}

static int read_table(struct job *j, struct cella_error *err)
{
    int r = policy_table_read(FD_POLICY, &j->table);

    return r < 0 ? fail(err, r, "the policy table handed over is not valid: %s", strerror(-r)) : 0;
}

static int read_hosts(struct job *j, struct cella_error *err)
{
    int r = 0;

    if (j->uplink_fd != j->home_fd)
        r = enter(j->uplink_fd, "uplink", err);
    if (r == 0)
        r = net_host_addrs(&j->hosts, err);
    return r;
}

/* Where it was started, where the gate will dial from, and which addresses are the host's own there. */
static int origin(struct job *j, struct cella_error *err)
{
    int r = own_ns(&j->home_fd, err);

    if (r < 0)
        return r;
    if (j->uplink_fd < 0)
        j->uplink_fd = j->home_fd;
    return read_hosts(j, err);
}

static int begin(struct job *j, struct cella_error *err)
{
    int r = read_table(j, err);

    return r < 0 ? r : origin(j, err);
}

static int make_link(const struct job *j, const struct link_end *gate, const struct link_end *cell,
                     int *tap_fd, struct cella_error *err)
{
    int r = j->tap ? net_tap(gate, tap_fd, err) : net_veth(gate, cell, FD_CELL, err);

    if (r == 0)
        r = ruleset_load(j->slot, &j->table, &j->hosts, err);
    if (r == 0)
        r = net_lo_up(err);
    if (r == 0)
        r = net_configure(gate, 0, err);
    if (r == 0)
        r = net_all_local(err);
    return r;
}

static int make_cell_end(const struct link_end *cell, uint32_t gateway, struct cella_error *err)
{
    int r = enter(FD_CELL, "cell's", err);

    if (r == 0)
        r = harden(err);
    if (r == 0) /* as the gate's end, and for the same reason (sockets.c) */
        r = knob("ipv4/tcp_congestion_control", GATE_CONGESTION, err);
    if (r == 0)
        r = net_lo_up(err);
    if (r == 0)
        r = net_configure(cell, gateway, err);
    if (r == 0)
        r = net_wait_up(cell->name, err);
    return r;
}

static int make_sockets(struct job *j, struct cella_error *err)
{
    int r = gate_listener(GATE_RELAY_PORT, SOCK_STREAM, &j->relay, err);

    if (r == 0)
        r = gate_listener(53, SOCK_DGRAM, &j->dns_udp, err);
    if (r == 0)
        r = gate_listener(53, SOCK_STREAM, &j->dns_tcp, err);
    if (r == 0)
        r = gate_nflog(&j->nflog, err);
    if (r == 0)
        r = gate_listener(GATE_UDP_PORT, SOCK_DGRAM, &j->udp, err);
    if (r == 0)
        r = gate_raw(&j->raw, err);
    return r;
}

/* A namespace with sockets and nothing to reach them by: all that can be made without knowing the cell. */
static int prepare(struct job *j, struct cella_error *err)
{
    int r = origin(j, err);

    if (r < 0)
        return r;
    net_left();
    if (unshare(CLONE_NEWNET) < 0)
        return fail(err, -errno, "making the gate's network namespace: %s", strerror(errno));
    r = own_ns(&j->gate_fd, err);
    if (r == 0)
        r = harden_gate(err);
    return r < 0 ? r : make_sockets(j, err);
}

static int build(struct job *j, struct cella_error *err)
{
    struct link_end gate = {"cell0", slot_gateway(j->slot), slot_cell(j->slot),
                            slot_mac(j->slot, 1), slot_mac(j->slot, 2)};
    struct link_end cell = {"eth0", slot_cell(j->slot), slot_gateway(j->slot), slot_mac(j->slot, 2),
                            slot_mac(j->slot, 1)};
    int r = make_link(j, &gate, &cell, &j->tap_fd, err);

    if (r == 0 && !j->tap)
        r = make_cell_end(&cell, slot_gateway(j->slot), err);
    if (r == 0 && !j->tap)
        r = enter(j->gate_fd, "gate", err);
    if (r == 0 && !j->tap)
        r = net_wait_up(gate.name, err);
    return r;
}

static int drop_privilege(struct cella_error *err)
{
    struct rlimit files = {8192, 8192}, none = {0, 0};

    if (setrlimit(RLIMIT_NOFILE, &files) < 0) {
        getrlimit(RLIMIT_NOFILE, &files);
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    setrlimit(RLIMIT_CORE, &none);
    if (setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 ||
        setresuid(65534, 65534, 65534) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return fail(err, -errno, "the gate cannot give up its privilege: %s", strerror(errno));
    return 0;
}

/* Moves fd to `to` and lets it survive exec. Every fd here was raised above FD_GATE_END first. */
static int place(int fd, int to)
{
    return dup3(fd, to, 0) < 0 ? -errno : 0;
}

static int become_gate(struct job *j, struct cella_error *err)
{
    int *const fds[] = {&j->relay, &j->dns_udp, &j->dns_tcp, &j->nflog,
                        &j->udp,   &j->raw,     &j->ledger,  &j->gate_exe};
    static const int to[] = {FD_RELAY, FD_DNS_UDP, FD_DNS_TCP, FD_NFLOG, FD_UDP, FD_RAW, FD_LEDGER};
    char slot[16], *envp[] = {NULL};
    char *argv[] = {"cella-gate", slot, (char *)(uintptr_t)j->resolvers, NULL};
    size_t i;
    int r;

    snprintf(slot, sizeof(slot), "%u", j->slot);
    r = enter(j->uplink_fd, "uplink", err);
    for (i = 0; r == 0 && i < ARRAY_LEN(fds); i++) {
        *fds[i] = fcntl(*fds[i], F_DUPFD_CLOEXEC, FD_GATE_END);
        if (*fds[i] < 0)
            r = fail(err, -errno, "out of descriptors: %s", strerror(errno));
    }
    for (i = 0; r == 0 && i < ARRAY_LEN(to); i++)
        if (place(*fds[i], to[i]) < 0)
            r = fail(err, -errno, "placing descriptors: %s", strerror(errno));
    if (r == 0)
        r = drop_privilege(err);
    if (r < 0)
        return r;
    fexecve(j->gate_exe, argv, envp);
    return fail(err, -errno, "starting the gate %s: %s; it must be executable by everybody",
                j->gate_path, strerror(errno));
}

static int open_gate(struct job *j, struct cella_error *err)
{
    j->gate_exe = open(j->gate_path, O_RDONLY | O_CLOEXEC);
    return j->gate_exe < 0
               ? fail(err, -errno, "opening the gate program %s: %s", j->gate_path, strerror(errno))
               : 0;
}

/* The namespace, its link and its chains are there; everything else is made as if for the first time. */
static int again(struct job *j, struct cella_error *err)
{
    int r = open_gate(j, err);

    if (r == 0)
        r = begin(j, err);
    if (r == 0)
        r = enter(FD_CELL, "gate", err);
    if (r == 0)
        r = ruleset_reach(0, 0, 0, err);
    if (r == 0)
        r = ruleset_replace(j->slot, &j->table, &j->hosts, err);
    if (r == 0)
        r = make_sockets(j, err);
    return r < 0 ? r : become_gate(j, err);
}

/* The cell's descriptors take the places they have when they are there from the start. */
static int hear_cell(struct job *j, struct cella_error *err)
{
    static const int to[3] = {FD_POLICY, FD_CELL, FD_LEDGER_SETUP};
    struct ctl_msg m;
    int fds[3] = {-1, -1, -1}, n = 3, i;
    long got = recv_fds(FD_CTL, &m, sizeof(m), fds, &n);

    if (got == 0)
        exit(0); /* there will be no cell */
    if (got != (long)sizeof(m) || m.type != CTL_ATTACH || n != 3 || m.count > SLOT_MAX)
        return fail(err, -EPROTO, "cella-gate-setup was not told which cell it is for");
    j->slot = m.count;
    j->tap = m.tx != 0;
    for (i = 0; i < 3; i++) {
        if (dup3(fds[i], to[i], 0) < 0)
            return fail(err, -errno, "placing descriptors: %s", strerror(errno));
        close(fds[i]);
    }
    return 0;
}

/* `told`: the cell is known from the start. */
static int attach(struct job *j, int told, struct cella_error *err)
{
    struct ctl_msg m = {.type = CTL_READY};
    int fds[2], n = 0, r = open_gate(j, err);

    if (r == 0)
        r = prepare(j, err);
    if (r == 0 && !told)
        r = hear_cell(j, err);
    if (r == 0)
        r = read_table(j, err);
    if (r == 0)
        r = build(j, err);
    if (r < 0)
        return r;
    fds[n++] = j->gate_fd;
    if (j->tap)
        fds[n++] = j->tap_fd;
    r = send_fds(FD_CTL, &m, sizeof(m), fds, n);
    if (r < 0)
        return fail(err, r, "reporting to the warden: %s", strerror(-r));
    return become_gate(j, err);
}

static int apply(struct job *j, struct cella_error *err)
{
    int r = begin(j, err);

    if (r == 0)
        r = enter(FD_CELL, "gate", err);
    if (r == 0)
        r = ruleset_replace(j->slot, &j->table, &j->hosts, err);
    return r;
}

/* Twin ports of a measurement: "reach SLOT LO HI SECONDS", in the gate's namespace. */
static int reach(char **argv, struct cella_error *err)
{
    int64_t v[3];
    int i, r;

    for (i = 0; i < 3; i++)
        if (parse_i64(argv[3 + i], &v[i]) < 0 || v[i] < 0 || v[i] > 65535)
            return fail(err, -EINVAL, "reach: \"%s\" is not a port or a time", argv[3 + i]);
    r = enter(FD_CELL, "gate", err);
    return r < 0 ? r : ruleset_reach((uint32_t)v[0], (uint32_t)v[1], (uint32_t)v[2], err);
}

static int bring_lo(struct cella_error *err)
{
    int r = enter(FD_CELL, "cell's", err);

    if (r == 0)
        r = harden(err);
    return r < 0 ? r : net_lo_up(err);
}

/* Everything attach needs, once, in a namespace that dies with this process. */
static int probe(struct job *j, struct cella_error *err)
{
    struct policy_entry e = {0xcb007100u, 0xcb00710fu, 80, 90, 0, POLICY_ALLOW};
    struct link_end gate = {"cell0", slot_gateway(0), slot_cell(0), slot_mac(0, 1), slot_mac(0, 2)};
    struct link_end cell = {"eth0", slot_cell(0), slot_gateway(0), slot_mac(0, 2), slot_mac(0, 1)};
    int r = prepare(j, err);

    j->table.entries = &e;
    j->table.head.n_entries = 1;
    if (r == 0)
        r = net_veth(&gate, &cell, j->gate_fd, err);
    if (r == 0)
        r = ruleset_load(0, &j->table, &j->hosts, err);
    if (r == 0)
        r = ruleset_replace(j->slot, &j->table, &j->hosts, err);
    return r;
}

static int usage(struct cella_error *err)
{
    return fail(err, -EINVAL, "cella-gate-setup is started by cella; it has no use of its own");
}

static int run(int argc, char **argv, struct job *j, struct cella_error *err)
{
    int64_t slot = 0;

    if (argc > 2 && strcmp(argv[1], "ready") &&
        (parse_i64(argv[2], &slot) < 0 || slot < 0 || slot > SLOT_MAX))
        return usage(err);
    j->slot = (uint32_t)slot;
    if (argc == 6 && (!strcmp(argv[1], "attach") || !strcmp(argv[1], "again"))) {
        j->tap = !strcmp(argv[3], "tap");
        j->gate_path = argv[4];
        j->resolvers = argv[5];
        return argv[1][1] == 't' ? attach(j, 1, err) : again(j, err);
    }
    if (argc == 4 && !strcmp(argv[1], "ready")) {
        j->gate_path = argv[2];
        j->resolvers = argv[3];
        return attach(j, 0, err);
    }
    if (argc == 3 && !strcmp(argv[1], "apply"))
        return apply(j, err);
    if (argc == 6 && !strcmp(argv[1], "reach"))
        return reach(argv, err);
    if (argc == 2 && !strcmp(argv[1], "lo"))
        return bring_lo(err);
    if (argc == 2 && !strcmp(argv[1], "probe"))
        return probe(j, err);
    return usage(err);
}

int main(int argc, char **argv)
{
    static struct job job;
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    struct ctl_msg m = {.type = CTL_PUBLISHED};
    int r;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    job.home_fd = job.gate_fd = job.tap_fd = -1;
    /* Before anything is opened: an absent descriptor's number would be taken. */
    job.uplink_fd = fcntl(FD_UPLINK, F_GETFD) < 0 ? -1 : FD_UPLINK;
    for (r = FD_POLICY; r <= FD_LEDGER_SETUP; r++)
        if (fcntl(r, F_GETFD) < 0 && dup3(STDIN_FILENO, r, O_CLOEXEC) < 0)
            return 1;
    job.ledger = FD_LEDGER_SETUP;
    r = run(argc, argv, &job, err);
    if (r < 0) {
        m.type = CTL_ERROR;
        m.count = (uint32_t)-r;
        snprintf(m.name, sizeof(m.name), "%.*s", (int)sizeof(m.name) - 1, eb.text);
    }
    send_fds(FD_CTL, &m, sizeof(m), NULL, 0);
    return r < 0;
}
