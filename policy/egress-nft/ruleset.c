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
 * libnftables is mapped here only, in a process that ends or becomes the gate by exec.
 */
#include <arpa/inet.h>

#include <nftables/libnftables.h>

#include "setup.h"

#define SYNTHETIC "198.18.0.0/15" /* POLICY_SYNTHETIC_LO, _HI */

static void add_addr(struct buf *b, uint32_t a)
{
    buf_addf(b, "%u.%u.%u.%u", a >> 24, a >> 16 & 255, a >> 8 & 255, a & 255);
}

static void add_range(struct buf *b, uint32_t lo, uint32_t hi)
{
    add_addr(b, lo);
    if (hi == lo)
        return;
    buf_addf(b, "-");
    add_addr(b, hi);
}

static void add_hard(struct buf *b, const struct host_addrs *hosts)
{
    size_t i;

    buf_addf(b, "{ ");
    for (i = 0; i < policy_hard_count; i++)
        buf_addf(b, "%s%s", i ? ", " : "", policy_hard_ranges[i].cidr);
    for (i = 0; i < hosts->n; i++) {
        if (policy_is_test_server(hosts->addr[i]) || policy_hard(hosts->addr[i], hosts->addr[i]))
            continue;
        buf_addf(b, ", ");
        add_addr(b, hosts->addr[i]);
    }
    buf_addf(b, " }");
}

/* "add element" lines; nothing at all for an empty set. */
static void add_allow(struct buf *b, const char *set, const struct policy_entry *entries,
                      uint32_t n_entries)
{
    uint32_t i, n = 0;

    for (i = 0; i < n_entries; i++) {
        const struct policy_entry *e = &entries[i];
        if (e->verdict != POLICY_ALLOW)
            continue;
        if (n++)
            buf_addf(b, ", ");
        else
            buf_addf(b, "add element inet cella %s { ", set);
        add_range(b, e->lo, e->hi);
        if (e->port_lo == e->port_hi)
            buf_addf(b, " . %u", e->port_lo);
        else
            buf_addf(b, " . %u-%u", e->port_lo, e->port_hi);
    }
    if (n)
        buf_addf(b, " }\n");
}

/* Ports that some name has. Synthetic addresses are one range; real ones can be any. */
static void add_name_ports(struct buf *b, const struct policy_table *t, enum policy_proto proto)
{
    struct policy_ports *ports = NULL;
    size_t n = 0, i;

    if (policy_name_ports(t, proto, &ports, &n) < 0) {
        b->oom = 1;
        return;
    }
    if (n)
        buf_addf(b, "add element inet cella %s_%s { ",
                 policy_mode(t) == POLICY_REAL ? "real" : "name",
                 proto == POLICY_TCP ? "tcp" : "udp");
    for (i = 0; i < n; i++)
        if (ports[i].lo == ports[i].hi)
            buf_addf(b, "%s%u", i ? ", " : "", ports[i].lo);
        else
            buf_addf(b, "%s%u-%u", i ? ", " : "", ports[i].lo, ports[i].hi);
    if (n)
        buf_addf(b, " }\n");
    free(ports);
}

static void add_sets(struct buf *b, const struct policy_table *t)
{
    add_allow(b, "allow", t->entries, t->head.n_entries);
    add_allow(b, "allow_udp", t->udp, t->head.n_udp);
    add_name_ports(b, t, POLICY_TCP);
    add_name_ports(b, t, POLICY_UDP);
}

/* The one set that is never empty comes with its elements: libnftables need not look it up. */
static void add_chains(struct buf *b, uint32_t slot, const struct host_addrs *hosts)
{
    uint32_t cell = slot_cell(slot);

    buf_addf(b, "table inet cella {\n"
                "  set hard { type ipv4_addr; flags interval; auto-merge;\n"
                "    elements = ");
    add_hard(b, hosts);
    buf_addf(b,
             " }\n"
             "  set allow { typeof ip daddr . tcp dport; flags interval; }\n"
             "  set reach { type inet_service; flags interval, timeout; }\n"
             "  set allow_udp { typeof ip daddr . udp dport; flags interval; }\n"
             "  set name_tcp { type inet_service; flags interval; }\n"
             "  set name_udp { type inet_service; flags interval; }\n"
             "  set real_tcp { type inet_service; flags interval; }\n"
             "  set real_udp { type inet_service; flags interval; }\n"
             "  set special { type ipv4_addr; flags interval;\n"
             "    elements = { 0.0.0.0/8, 127.0.0.0/8, 224.0.0.0/4, 255.255.255.255 } }\n"
             "  chain deny {\n"
             "    counter log group %d snaplen 128 queue-threshold 1\n"
             "    ip daddr @special drop\n"
             "    meta l4proto tcp reject with tcp reset\n"
             "    reject with icmp type admin-prohibited\n"
             "  }\n",
             GATE_LOG_GROUP);
    buf_addf(b,
             "  chain wire { type filter hook ingress device \"cell0\" priority 0; policy drop;\n"
             "    meta protocol ip accept\n"
             "    counter log group %d snaplen 128 queue-threshold 1\n"
             "  }\n"
             "  chain pre { type filter hook prerouting priority -150; policy drop;\n"
             "    meta mark set 0\n"
             "    iifname != \"cell0\" drop\n"
             "    meta nfproto != ipv4 drop\n"
             "    ip saddr != %u.%u.%u.%u counter log group %d snaplen 128 queue-threshold 1 drop\n"
             "    ip daddr @special goto deny\n"
             "    ip frag-off & 0x1fff != 0 goto deny\n",
             GATE_LOG_GROUP, cell >> 24, cell >> 16 & 255, cell >> 8 & 255, cell & 255,
             GATE_LOG_GROUP);
    buf_addf(b,
             "    tcp sport @reach tproxy ip to :%d meta mark set %u accept\n"
             "    udp sport @reach tproxy ip to :53 meta mark set %u accept\n"
             "    udp dport 53 tproxy ip to :53 meta mark set %u accept\n"
             "    tcp dport 53 tproxy ip to :53 meta mark set %u accept\n"
             "    tcp dport %d goto deny\n"
             "    ip daddr %s tcp dport @name_tcp tproxy ip to :%d meta mark set %u accept\n"
             "    ip daddr %s udp dport @name_udp tproxy ip to :%d meta mark set %u accept\n"
             "    ip daddr @hard goto deny\n",
             GATE_RELAY_PORT, GATE_MARK, GATE_MARK, GATE_MARK, GATE_MARK, POLICY_HARD_PORT,
             SYNTHETIC, GATE_RELAY_PORT, GATE_MARK, SYNTHETIC, GATE_UDP_PORT, GATE_MARK);
    buf_addf(b,
             "    ip daddr . tcp dport @allow tproxy ip to :%d meta mark set %u accept\n"
             "    ip daddr . udp dport @allow_udp tproxy ip to :%d meta mark set %u accept\n"
             "    tcp dport @real_tcp tproxy ip to :%d meta mark set %u accept\n"
             "    udp dport @real_udp tproxy ip to :%d meta mark set %u accept\n"
             "    goto deny\n"
             "  }\n"
             "  chain local_in { type filter hook input priority 0; policy drop;\n"
             "    iifname \"cell0\" meta mark %u accept\n"
             "  }\n"
             "  chain no_forward { type filter hook forward priority 0; policy drop; }\n"
             "  chain local_out { type filter hook output priority 0; policy drop;\n"
             "    oifname \"cell0\" ip daddr %u.%u.%u.%u accept\n"
             "    log group %d prefix \"m\" queue-threshold 1\n"
             "  }\n"
             "}\n",
             GATE_RELAY_PORT, GATE_MARK, GATE_UDP_PORT, GATE_MARK, GATE_RELAY_PORT, GATE_MARK,
             GATE_UDP_PORT, GATE_MARK, GATE_MARK, cell >> 24, cell >> 16 & 255, cell >> 8 & 255,
             cell & 255, GATE_LOG_GROUP);
}

void ruleset_text(struct buf *b, uint32_t slot, const struct policy_table *t,
                  const struct host_addrs *hosts)
{
    add_chains(b, slot, hosts);
    add_sets(b, t);
    buf_add(b, "", 1);
}

/* One transaction, all or nothing; a failure carries nft's first line. */
static int run(const struct buf *text, const char *what, struct cella_error *err)
{
    struct nft_ctx *nft;
    const char *said;
    int r = 0;

    if (text->oom)
        return fail(err, -ENOMEM, "out of memory while writing the rule set");
    nft = nft_ctx_new(NFT_CTX_DEFAULT);
    if (!nft || nft_ctx_buffer_error(nft) || nft_ctx_buffer_output(nft)) {
        nft_ctx_free(nft);
        return fail(err, -ENOMEM, "libnftables gives no context");
    }
    if (nft_run_cmd_from_buffer(nft, text->ptr)) {
        said = nft_ctx_get_error_buffer(nft);
        r = fail(err, -EPROTO,
                 "%s: nftables refused the rules: %.*s; nothing was changed. The kernel "
                 "needs nft with inet, tproxy, reject, log and concatenated interval sets",
                 what, said ? (int)strcspn(said, "\n") : 0, said ? said : "");
    }
    nft_ctx_free(nft);
    return r;
}

int ruleset_load(uint32_t slot, const struct policy_table *t, const struct host_addrs *hosts,
                 struct cella_error *err)
{
    auto_buf struct buf b = BUF_INIT;

    ruleset_text(&b, slot, t, hosts);
    return run(&b, "loading the rule set", err);
}

int ruleset_replace(const struct policy_table *t, const struct host_addrs *hosts,
                    struct cella_error *err)
{
    static const char *const sets[] = {"hard",     "allow",    "allow_udp", "name_tcp",
                                       "name_udp", "real_tcp", "real_udp"};
    auto_buf struct buf b = BUF_INIT;
    size_t i;

    for (i = 0; i < ARRAY_LEN(sets); i++)
        buf_addf(&b, "flush set inet cella %s\n", sets[i]);
    buf_addf(&b, "add element inet cella hard ");
    add_hard(&b, hosts);
    buf_addf(&b, "\n");
    add_sets(&b, t);
    buf_add(&b, "", 1);
    return run(&b, "changing the rule set", err);
}

int ruleset_reach(uint32_t lo, uint32_t hi, uint32_t seconds, struct cella_error *err)
{
    auto_buf struct buf b = BUF_INIT;

    buf_addf(&b, "flush set inet cella reach\n");
    if (seconds)
        buf_addf(&b, "add element inet cella reach { %u-%u timeout %us }\n", lo, hi, seconds);
    buf_add(&b, "", 1);
    return run(&b, "opening ports for a reach measurement", err);
}
