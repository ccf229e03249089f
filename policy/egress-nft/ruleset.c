/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * ruleset - the first wall: table inet cella of the gate namespace, loaded as one transaction.
 *
 * Every base chain drops by policy. There is no uplink in this namespace, so even an empty rule set
 * would let nothing out; the rules decide what reaches the gate's own sockets, answer the rest at
 * once and report it.
 *
 * Order of chain `pre`, and why:
 *   1 mark cleared          start from nothing. Mustn't: trust a mark that came with the packet.
 *   2 other interfaces      dropped; there are none.
 *   3 IPv6                  never gets here (chain `wire` ends it), dropped again if it does.
 *   4 source check          Mustn't: answer a forged source, the answer would be an amplifier.
 *   5 special destinations  no answer exists for them.
 *   6 DNS                   before everything that could redirect or refuse port 53.
 *   7 mail                  TCP port 25, whatever a policy says.
 *   8 synthetic addresses   before the hard-deny set they are part of, and only ports some name has: to
 *                           the relay, which maps the address to its name and judges that.
 *   9 hard-deny set         Mustn't: come after the allow sets.
 *  10 allow sets            to the relay, which checks again.
 *  11 ports of names        only in mode "real"; the relay wants a pin for the address.
 *  12 everything else       logged, then refused with the answer its protocol knows.
 *
 * No connection tracking: nothing is accepted because it was accepted before.
 *
 * The whole is one transaction written by nft.c; `nft list ruleset` in the gate's namespace shows it.
 * Threads: none.
 */
#include <netinet/in.h>

#include <linux/netfilter.h>

#include "nft.h"
#include "rule.h"
#include "setup.h"

/* ---- sets ---- */

static int by_address(const void *a, const void *b)
{
    const struct nft_range *x = a, *y = b;

    return x->addr_lo < y->addr_lo ? -1 : x->addr_lo > y->addr_lo;
}

/* Disjoint ranges in order, from ranges in order that may overlap or touch. */
static size_t merge(struct nft_range *v, size_t n)
{
    size_t i, end = 0;

    for (i = 1; i < n; i++) {
        if (v[end].addr_hi == UINT32_MAX || v[i].addr_lo <= v[end].addr_hi + 1) {
            if (v[i].addr_hi > v[end].addr_hi)
                v[end].addr_hi = v[i].addr_hi;
        } else {
            v[++end] = v[i];
        }
    }
    return n ? end + 1 : 0;
}

/* What no policy opens, and this host's own addresses. */
static void add_hard(struct nft_batch *b, const char *set, const struct host_addrs *hosts)
{
    struct nft_range *v = calloc(policy_hard_count + hosts->n, sizeof(*v));
    size_t i, n = 0;

    if (!v) {
        b->bytes.oom = 1;
        return;
    }
    for (i = 0; i < policy_hard_count; i++)
        v[n++] = (struct nft_range){policy_hard_ranges[i].lo, policy_hard_ranges[i].hi, 0, 0};
    for (i = 0; i < hosts->n; i++)
        if (!policy_is_test_server(hosts->addr[i]))
            v[n++] = (struct nft_range){hosts->addr[i], hosts->addr[i], 0, 0};
    qsort(v, n, sizeof(*v), by_address);
    nft_elements(b, set, NFT_ADDRS, v, merge(v, n), 0);
    free(v);
}

static void add_allow(struct nft_batch *b, const char *set, const struct policy_entry *entries,
                      uint32_t n_entries)
{
    struct nft_range *v = calloc(n_entries + 1u, sizeof(*v));
    uint32_t i, n = 0;

    if (!v) {
        b->bytes.oom = 1;
        return;
    }
    for (i = 0; i < n_entries; i++) {
        const struct policy_entry *e = &entries[i];
        if (e->verdict == POLICY_ALLOW)
            v[n++] = (struct nft_range){e->lo, e->hi, e->port_lo, e->port_hi};
    }
    nft_elements(b, set, NFT_ADDR_PORTS, v, n, 0);
    free(v);
}

/* Ports that some name has. Synthetic addresses are one range; real ones can be any. */
static void add_name_ports(struct nft_batch *b, const char *set, const struct policy_table *t,
                           enum policy_proto proto)
{
    struct policy_ports *ports = NULL;
    struct nft_range *v = NULL;
    size_t n = 0, i;

    if (policy_name_ports(t, proto, &ports, &n) < 0 || !(v = calloc(n + 1, sizeof(*v)))) {
        b->bytes.oom = 1;
    } else {
        for (i = 0; i < n; i++)
            v[i] = (struct nft_range){.port_lo = ports[i].lo, .port_hi = ports[i].hi};
        nft_elements(b, set, NFT_PORTS, v, n, 0);
    }
    free(ports);
    free(v);
}

/* The sets that a policy fills. Each exists under two names, in turn: see ruleset_replace(). */
enum turned { HARD, ALLOW, ALLOW_UDP, NAME_TCP, NAME_UDP, REAL_TCP, REAL_UDP };

static const struct {
    const char *name[2];
    enum nft_set_kind kind;
} turned[] = {
    [HARD] = {{"hard", "hard2"}, NFT_ADDRS},
    [ALLOW] = {{"allow", "allow2"}, NFT_ADDR_PORTS},
    [ALLOW_UDP] = {{"allow_udp", "allow_udp2"}, NFT_ADDR_PORTS},
    [NAME_TCP] = {{"name_tcp", "name_tcp2"}, NFT_PORTS},
    [NAME_UDP] = {{"name_udp", "name_udp2"}, NFT_PORTS},
    [REAL_TCP] = {{"real_tcp", "real_tcp2"}, NFT_PORTS},
    [REAL_UDP] = {{"real_udp", "real_udp2"}, NFT_PORTS},
};

static void add_turned(struct nft_batch *b, int turn, const struct policy_table *t,
                       const struct host_addrs *hosts)
{
    int real = policy_mode(t) == POLICY_REAL;
    size_t i;

    for (i = 0; i < ARRAY_LEN(turned); i++)
        nft_set(b, turned[i].name[turn], turned[i].kind);
    add_hard(b, turned[HARD].name[turn], hosts);
    add_allow(b, turned[ALLOW].name[turn], t->entries, t->head.n_entries);
    add_allow(b, turned[ALLOW_UDP].name[turn], t->udp, t->head.n_udp);
    add_name_ports(b, turned[real ? REAL_TCP : NAME_TCP].name[turn], t, POLICY_TCP);
    add_name_ports(b, turned[real ? REAL_UDP : NAME_UDP].name[turn], t, POLICY_UDP);
}

static void drop_turned(struct nft_batch *b, int turn)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(turned); i++)
        nft_drop(b, turned[i].name[turn]);
}

/* ---- rules ---- */

/* clang-format off */
#define TCP {PROTO, IPPROTO_TCP, NULL}
#define UDP {PROTO, IPPROTO_UDP, NULL}
#define WITH(kind, set) {kind, 0, set}
#define DO(kind, value) {kind, value, NULL}
#define IS(kind) {kind, 0, NULL}
#define REPORT IS(COUNT), IS(LOG)
#define REFUSE WITH(GOTO, "deny")
#define END IS(STEP_END)

static const struct step deny[] = {
    REPORT, END,
    IS(IPV4), WITH(DEST_IN, "special"), IS(DROP), END,
    TCP, IS(TCP_RESET), END,
    IS(IPV4), IS(PROHIBITED), END,
    END,
};

static const struct step wire[] = {
    IS(FRAME_IPV4), IS(ACCEPT), END,
    REPORT, END,
    END,
};

static const struct step pre[] = {
    DO(SET_MARK, 0), END,
    IS(IN_IS_NOT), IS(DROP), END,
    IS(IPV4_NOT), IS(DROP), END,
    IS(IPV4), IS(SOURCE_NOT_CELL), REPORT, IS(DROP), END,
    IS(IPV4), WITH(DEST_IN, "special"), REFUSE, END,
    IS(IPV4), IS(LATER_FRAGMENT), REFUSE, END,
    TCP, WITH(FROM_PORT_IN, "reach"), DO(TO_GATE, GATE_RELAY_PORT), END,
    UDP, WITH(FROM_PORT_IN, "reach"), DO(TO_GATE, 53), END,
    UDP, DO(PORT, 53), DO(TO_GATE, 53), END,
    TCP, DO(PORT, 53), DO(TO_GATE, 53), END,
    TCP, DO(PORT, POLICY_HARD_PORT), REFUSE, END,
    IS(IPV4), IS(DEST_SYNTHETIC), TCP, WITH(PORT_IN, "name_tcp"), DO(TO_GATE, GATE_RELAY_PORT), END,
    IS(IPV4), IS(DEST_SYNTHETIC), UDP, WITH(PORT_IN, "name_udp"), DO(TO_GATE, GATE_UDP_PORT), END,
    IS(IPV4), WITH(DEST_IN, "hard"), REFUSE, END,
    IS(IPV4), TCP, WITH(DEST_PORT_IN, "allow"), DO(TO_GATE, GATE_RELAY_PORT), END,
    IS(IPV4), UDP, WITH(DEST_PORT_IN, "allow_udp"), DO(TO_GATE, GATE_UDP_PORT), END,
    TCP, WITH(PORT_IN, "real_tcp"), DO(TO_GATE, GATE_RELAY_PORT), END,
    UDP, WITH(PORT_IN, "real_udp"), DO(TO_GATE, GATE_UDP_PORT), END,
    REFUSE, END,
    END,
};

static const struct step local_in[] = {
    IS(IN_IS), DO(MARK_IS, GATE_MARK), IS(ACCEPT), END,
    END,
};

static const struct step no_forward[] = {END};

static const struct step local_out[] = {
    IS(OUT_IS), IS(IPV4), IS(DEST_CELL), IS(ACCEPT), END,
    IS(LOG_MARKED), END,
    END,
};
/* clang-format on */

/* Destinations that have no answer: this network, loopback, multicast, broadcast. */
static const struct nft_range special[] = {
    {0x00000000, 0x00ffffff, 0, 0},
    {0x7f000000, 0x7fffffff, 0, 0},
    {0xe0000000, 0xefffffff, 0, 0},
    {0xffffffff, 0xffffffff, 0, 0},
};

/* Chains that are jumped to come first. */
static const struct {
    const char *name;
    const struct step *rules;
    struct nft_hook hook;
} chains[] = {
    {"deny", deny, {NULL, 0, 0, NULL}},
    {"wire", wire, {"filter", NF_INET_INGRESS, 0, "cell0"}},
    {"pre", pre, {"filter", NF_INET_PRE_ROUTING, -150, NULL}},
    {"local_in", local_in, {"filter", NF_INET_LOCAL_IN, 0, NULL}},
    {"no_forward", no_forward, {"filter", NF_INET_FORWARD, 0, NULL}},
    {"local_out", local_out, {"filter", NF_INET_LOCAL_OUT, 0, NULL}},
};

#define STEPS_MAX 16

/* The steps of one rule, with the names that the sets have in this turn; returns how many there were. */
static size_t rule_of(const struct step *steps, int turn, struct step out[STEPS_MAX])
{
    size_t n = 0, i;

    do {
        out[n] = steps[n];
        for (i = 0; steps[n].name && i < ARRAY_LEN(turned); i++)
            if (!strcmp(steps[n].name, turned[i].name[0]))
                out[n].name = turned[i].name[turn];
    } while (steps[n++].kind != STEP_END);
    return n;
}

static void add_rules(struct nft_batch *b, const char *chain, const struct step *steps, int turn,
                      uint32_t cell)
{
    struct step rule[STEPS_MAX];

    while (steps->kind != STEP_END) {
        steps += rule_of(steps, turn, rule);
        nft_rule(b, chain, rule_build(rule, cell));
    }
}

int ruleset_load(uint32_t slot, const struct policy_table *t, const struct host_addrs *hosts,
                 struct cella_error *err)
{
    struct nft_batch b;
    size_t i;
    int r;

    nft_batch_init(&b);
    nft_table(&b);
    nft_set(&b, "special", NFT_ADDRS);
    nft_set(&b, "reach", NFT_PORTS_TIMED);
    nft_elements(&b, "special", NFT_ADDRS, special, ARRAY_LEN(special), 0);
    add_turned(&b, 0, t, hosts);
    for (i = 0; i < ARRAY_LEN(chains); i++) {
        nft_chain(&b, chains[i].name, &chains[i].hook);
        add_rules(&b, chains[i].name, chains[i].rules, 0, slot_cell(slot));
    }
    r = nft_commit(&b, "loading the rule set", err);
    nft_batch_fini(&b);
    return r;
}

/* 0: no set has the names of this turn any more; -EBUSY: the rules use them. */
static int free_turn(int turn)
{
    struct nft_batch b;
    int r;

    nft_batch_init(&b);
    drop_turned(&b, turn);
    r = nft_commit(&b, "", NULL);
    nft_batch_fini(&b);
    return r == -ENOENT ? 0 : r;
}

/* The turn whose names are free. A helper that died on the way can have left sets that no rule uses. */
static int next_turn(struct cella_error *err)
{
    int turn = free_turn(0) == 0 ? 0 : 1, r = free_turn(turn);

    return r < 0 ? fail(err, r, "removing an old set: %s", strerror(-r)) : turn;
}

static int load_turned(int turn, const struct policy_table *t, const struct host_addrs *hosts,
                       struct cella_error *err)
{
    struct nft_batch b;
    int r;

    nft_batch_init(&b);
    add_turned(&b, turn, t, hosts);
    r = nft_commit(&b, "loading the new sets", err);
    nft_batch_fini(&b);
    return r;
}

/* The new elements become sets of other names first, and then the rules that use those take the place of the old
   rules. Taking elements one by one out of a large set takes the square of their number: seconds for ten thousand.
   Mustn't: be one transaction, or change an element of a set that a rule in force looks into. While the kernel
   commits, packets see a set that was made or refilled in the same transaction as empty, or half of it, and a packet of
   an allowed connection that is refused then resets it. Rules alone change at once. */
int ruleset_replace(uint32_t slot, const struct policy_table *t, const struct host_addrs *hosts,
                    struct cella_error *err)
{
    struct nft_batch b;
    int turn = next_turn(err), r = turn < 0 ? turn : load_turned(turn, t, hosts, err);

    if (r < 0)
        return r;
    nft_batch_init(&b);
    nft_empty(&b, "pre");
    add_rules(&b, "pre", pre, turn, slot_cell(slot));
    drop_turned(&b, !turn);
    r = nft_commit(&b, "changing the rule set", err);
    nft_batch_fini(&b);
    return r;
}

int ruleset_reach(uint32_t lo, uint32_t hi, uint32_t seconds, struct cella_error *err)
{
    struct nft_range ports = {.port_lo = (uint16_t)lo, .port_hi = (uint16_t)hi};
    struct nft_batch b;
    int r;

    nft_batch_init(&b);
    nft_flush(&b, "reach");
    if (seconds)
        nft_elements(&b, "reach", NFT_PORTS_TIMED, &ports, 1, seconds);
    r = nft_commit(&b, "opening ports for a reach measurement", err);
    nft_batch_fini(&b);
    return r;
}
