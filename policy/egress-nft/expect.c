/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * expect - what the policy in force says can be reached, as rows for the probe.
 *
 * Every allow rule gives a row that must pass and its neighbours just outside that must not; every deny rule a row;
 * then a catalogue of ways out, each judged against the table, so that a policy which opens one of its destinations
 * expects it open. Public destinations are documentation addresses: were a wall broken, nothing would go to
 * somebody's server. Threads: none; no effect.
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "expect.h"

#define RULE_ROWS_MAX 32u /* and two neighbours each, for TCP and UDP */
#define ROWS_OF_RULE 4u   /* one after the other; a large network is many rectangles */
#define HOST_ROWS_MAX 4
#define OUTSIDE "203.0.113.1" /* any public address */
#define RESOLVER "203.0.113.53"
#define GATEWAY "@gateway"
#define NEIGHBOUR "@neighbour"

#define TCP(id, group, address, port, why)                                                         \
    {                                                                                              \
        id, group, "tcp", address, port, "", "", CELLA_REACH_BY_SINK, why, ""                      \
    }
#define UDP(id, group, address, port, why, twin)                                                   \
    {                                                                                              \
        id, group, "udp", address, port, "", "", CELLA_REACH_BY_SINK, why, twin                    \
    }
#define DNS(id, kind, address, type)                                                               \
    {                                                                                              \
        id, "dns", kind, address, 53, "cella-reach.example", "type=" type, CELLA_REACH_BY_SINK,    \
            type " question for a name of no rule", ""                                             \
    }
#define SIX(id, address, why)                                                                      \
    {                                                                                              \
        id, "ipv6", "tcp", address, 80, "", "", CELLA_REACH_BY_SINK, why, "::ffff:" OUTSIDE        \
    }
#define SOCKET(id, what, why)                                                                      \
    {                                                                                              \
        id, "sockets", "socket", "", 0, "", what, CELLA_REACH_BY_CELL, why, ""                     \
    }

static const struct way ways[] = {
    DNS("dns.a", "dns-udp", GATEWAY, "A"),
    DNS("dns.aaaa", "dns-udp", GATEWAY, "AAAA"),
    DNS("dns.txt", "dns-udp", GATEWAY, "TXT"),
    DNS("dns.https", "dns-udp", GATEWAY, "HTTPS"),
    DNS("dns.svcb", "dns-udp", GATEWAY, "SVCB"),
    DNS("dns.any", "dns-udp", GATEWAY, "ANY"),
    DNS("dns.null", "dns-udp", GATEWAY, "NULL"),
    DNS("dns.tcp.a", "dns-tcp", GATEWAY, "A"),
    DNS("dns.tcp.txt", "dns-tcp", GATEWAY, "TXT"),
    DNS("dns.other.udp", "dns-udp", RESOLVER, "A"),
    DNS("dns.other.tcp", "dns-tcp", RESOLVER, "A"),
    DNS("dns.link-local", "dns-udp", "169.254.169.253", "A"),
    TCP("dns.dot", "dns", RESOLVER, 853, "DNS over TLS"),
    UDP("dns.doq", "dns", RESOLVER, 853, "DNS over QUIC", ""),
    TCP("dns.doh", "dns", RESOLVER, 443, "DNS over HTTPS at an address"),
    TCP("tcp.80", "outside", OUTSIDE, 80, "plain HTTP to an address no rule covers"),
    TCP("tcp.443", "outside", OUTSIDE, 443, "TLS to an address no rule covers"),
    TCP("tcp.22", "outside", OUTSIDE, 22, "SSH"),
    TCP("tcp.25", "outside", OUTSIDE, 25, "mail"),
    TCP("tcp.1", "outside", OUTSIDE, 1, "the lowest port"),
    TCP("tcp.8443", "outside", OUTSIDE, 8443, "a port besides 80 and 443"),
    TCP("tcp.65535", "outside", OUTSIDE, 65535, "the highest port"),
    {"tcp.fastopen", "outside", "tcp", OUTSIDE, 443, "", "fastopen", CELLA_REACH_BY_SINK,
     "data in the SYN", ""},
    {"tcp.from53", "outside", "tcp", OUTSIDE, 443, "", "sport=53", CELLA_REACH_BY_SINK,
     "from source port 53", ""},
    {"udp.from53", "outside", "udp", OUTSIDE, 9999, "", "sport=53", CELLA_REACH_BY_SINK,
     "from source port 53", ""},
    {"udp.fragments", "outside", "udp", OUTSIDE, 9999, "", "size=4000", CELLA_REACH_BY_SINK,
     "a datagram in fragments", ""},
    UDP("udp.quic", "outside", OUTSIDE, 443, "QUIC", ""),
    UDP("udp.ntp", "outside", OUTSIDE, 123, "network time", ""),
    UDP("udp.any", "outside", OUTSIDE, 40000, "any datagram", ""),
    TCP("metadata.aws", "metadata", "169.254.169.254", 80, "the metadata service of a cloud"),
    TCP("metadata.ecs", "metadata", "169.254.170.2", 80, "the credential service of a cloud"),
    TCP("metadata.alibaba", "metadata", "100.100.100.200", 80, "the metadata service of a cloud"),
    UDP("metadata.udp", "metadata", "169.254.169.254", 123, "the metadata address over UDP", ""),
    TCP("private.10", "private", "10.0.0.1", 80, "a private network"),
    TCP("private.172", "private", "172.16.0.1", 443, "a private network"),
    TCP("private.192", "private", "192.168.0.1", 80, "a private network"),
    TCP("private.100", "private", "100.64.0.1", 80, "a carrier's network"),
    TCP("private.198", "private", "198.19.255.1", 80, "the range of synthetic addresses"),
    TCP("private.240", "private", "240.0.0.1", 80, "a reserved network"),
    UDP("private.udp", "private", "10.0.0.1", 161, "a private network over UDP", ""),
    TCP("gateway.22", "gateway", GATEWAY, 22, "the gateway's own ports"),
    TCP("gateway.80", "gateway", GATEWAY, 80, "the gateway's own ports"),
    TCP("gateway.1", "gateway", GATEWAY, 1, "the relay's port, asked for by name"),
    TCP("gateway.2375", "gateway", GATEWAY, 2375, "a container engine on the host"),
    TCP("gateway.3128", "gateway", GATEWAY, 3128, "a proxy on the host"),
    TCP("gateway.1080", "gateway", GATEWAY, 1080, "a SOCKS proxy on the host"),
    UDP("gateway.udp", "gateway", GATEWAY, 69, "the gateway over UDP", ""),
    TCP("neighbour.80", "neighbours", NEIGHBOUR, 80, "the next cell"),
    TCP("neighbour.22", "neighbours", NEIGHBOUR, 22, "the next cell"),
    UDP("neighbour.udp", "neighbours", NEIGHBOUR, 5353, "the next cell over UDP", ""),
    UDP("multicast.mdns", "multicast", "224.0.0.251", 5353, "multicast DNS", OUTSIDE),
    UDP("multicast.ssdp", "multicast", "239.255.255.250", 1900, "service discovery", OUTSIDE),
    {"multicast.broadcast", "multicast", "udp", "255.255.255.255", 67, "", "broadcast",
     CELLA_REACH_BY_SINK, "broadcast", OUTSIDE},
    SIX("ipv6.global", "2001:db8:9::1", "a global IPv6 address"),
    SIX("ipv6.mapped", "::ffff:169.254.169.254", "an IPv4 address inside IPv6"),
    SIX("ipv6.translated", "::ffff:0:169.254.169.254", "an IPv4 address translated (SIIT)"),
    SIX("ipv6.nat64", "64:ff9b::a9fe:a9fe", "an IPv4 address through NAT64"),
    SIX("ipv6.nat64-local", "64:ff9b:1::a9fe:a9fe", "an IPv4 address through a local NAT64"),
    SIX("ipv6.6to4", "2002:a9fe:a9fe::1", "an IPv4 address through 6to4"),
    SIX("ipv6.teredo", "2001:0:a9fe:a9fe::1", "an IPv4 address through Teredo"),
    SIX("ipv6.compatible", "::169.254.169.254", "an IPv4-compatible address"),
    SIX("ipv6.metadata", "fd00:ec2::254", "the metadata service of a cloud"),
    SIX("ipv6.link-local", "fe80::1%eth0", "a neighbour on the link"),
    {"ipv6.multicast", "ipv6", "udp", "ff02::1%eth0", 5353, "", "", CELLA_REACH_BY_SINK,
     "every neighbour on the link", "::ffff:" OUTSIDE},
    {"icmp.outside", "icmp", "icmp", OUTSIDE, 0, "", "", CELLA_REACH_BY_CELL, "ping", ""},
    {"icmp.gateway", "icmp", "icmp", GATEWAY, 0, "", "", CELLA_REACH_BY_CELL, "ping", ""},
    {"icmp.raw", "icmp", "icmp", OUTSIDE, 0, "", "raw", CELLA_REACH_BY_CELL,
     "ping through a raw socket", ""},
    {"proto.gre", "protocols", "ip", OUTSIDE, 0, "", "proto=47", CELLA_REACH_BY_CELL, "GRE", ""},
    {"proto.esp", "protocols", "ip", OUTSIDE, 0, "", "proto=50", CELLA_REACH_BY_CELL, "ESP", ""},
    {"proto.ipip", "protocols", "ip", OUTSIDE, 0, "", "proto=4", CELLA_REACH_BY_CELL, "IP in IP",
     ""},
    {"proto.sctp", "protocols", "ip", OUTSIDE, 0, "", "proto=132", CELLA_REACH_BY_CELL, "SCTP", ""},
    SOCKET("socket.packet", "17,3,768", "raw Ethernet"),
    SOCKET("socket.vsock", "40,1,0", "the socket to a hypervisor"),
    SOCKET("socket.raw", "2,3,255", "raw IPv4"),
    SOCKET("socket.raw6", "10,3,255", "raw IPv6"),
    SOCKET("socket.sctp", "2,1,132", "SCTP"),
    SOCKET("socket.dccp", "2,6,33", "DCCP"),
    SOCKET("socket.udplite", "2,2,136", "UDP-Lite"),
    SOCKET("socket.alg", "38,5,0", "the kernel's crypto interface"),
    SOCKET("socket.netfilter", "16,3,12", "netfilter through netlink"),
    SOCKET("socket.xdp", "44,3,0", "XDP"),
    SOCKET("socket.key", "15,3,2", "IPsec keys"),
    SOCKET("socket.bluetooth", "31,3,1", "Bluetooth"),
    SOCKET("socket.can", "29,3,1", "CAN"),
    SOCKET("socket.tipc", "30,1,0", "TIPC"),
};

const char *expect_dotted(uint32_t a, char buf[INET_ADDRSTRLEN])
{
    struct in_addr in = {htonl(a)};

    inet_ntop(AF_INET, &in, buf, INET_ADDRSTRLEN);
    return buf;
}

/* What the table says of the point: 1 allowed; *ret_rule is never NULL. */
static int allowed(const struct egress *e, int udp, uint32_t addr, uint16_t port,
                   const char **ret_rule)
{
    const struct policy_entry *p = udp ? policy_table_find_udp(&e->table, addr, port)
                                       : policy_table_find(&e->table, addr, port);

    *ret_rule = "";
    if (e->link == CELLA_LINK_NONE || policy_hard(addr, addr) ||
        (!udp && port == POLICY_HARD_PORT) || port == 53 || !p)
        return 0;
    *ret_rule = policy_table_rule(&e->table, p->rule);
    return p->verdict == POLICY_ALLOW;
}

void expect_put(struct out *o, const struct way *w, const char *address, int allow,
                const char *rule)
{
    /* Without a device nothing but loopback can show that the probe would see success. */
    int none = o->e->link == CELLA_LINK_NONE;
    struct cella_reach_row row = {.hdr =
                                      CELLA_HDR_INIT(struct cella_reach_row, CELLA_KIND_REACH_ROW),
                                  .id = w->id,
                                  .group = w->group,
                                  .kind = w->kind,
                                  .address = address,
                                  .twin_address = w->twin,
                                  .name = w->name,
                                  .options = w->options,
                                  .rule = rule,
                                  .why = w->why,
                                  .port = w->port,
                                  .expected = allow ? CELLA_REACH_ALLOW : CELLA_REACH_DENY,
                                  .proof = none ? CELLA_REACH_BY_CELL : w->proof};

    o->row(o->ctx, &row);
    o->n++;
}

static void put_way(struct out *o, const struct way *w)
{
    char buf[INET_ADDRSTRLEN];
    const char *address = w->address, *rule = "";
    struct in_addr in;
    int allow = 0;

    if (!strcmp(address, GATEWAY))
        address = expect_dotted(slot_gateway(o->e->slot), buf);
    else if (!strcmp(address, NEIGHBOUR))
        address = expect_dotted(slot_cell((o->e->slot + 1) % (SLOT_MAX + 1)), buf);
    if ((!strcmp(w->kind, "tcp") || !strcmp(w->kind, "udp")) &&
        inet_pton(AF_INET, address, &in) == 1)
        allow = allowed(o->e, w->kind[0] == 'u', ntohl(in.s_addr), w->port, &rule);
    if (allow && w->options[0])
        return; /* a trick to get where one may go anyway */
    expect_put(o, w, address, allow, rule);
}

/* What a measurement has no room for is said, and is not measured. */
void expect_rest(struct out *o, unsigned n, const char *what)
{
    char id[48], why[96];
    struct way w = {.id = id,
                    .group = "rule",
                    .kind = "none",
                    .name = "",
                    .options = "",
                    .proof = CELLA_REACH_BY_CELL,
                    .why = why,
                    .twin = ""};

    snprintf(id, sizeof(id), "rest.%s", what);
    snprintf(why, sizeof(why), "%u more networks or names of %s rules than one measurement holds",
             n, what);
    expect_put(o, &w, "", 1, "");
}

/* One point, whatever the table says of it. */
static void put_point(struct out *o, const char *group, int udp, uint32_t addr, uint16_t port,
                      const char *why)
{
    char id[48], buf[INET_ADDRSTRLEN];
    const char *rule;
    int allow = allowed(o->e, udp, addr, port, &rule);
    struct way w = {.id = id,
                    .group = group,
                    .kind = udp ? "udp" : "tcp",
                    .port = port,
                    .name = "",
                    .options = "",
                    .proof = CELLA_REACH_BY_SINK,
                    .why = why,
                    .twin = ""};

    snprintf(id, sizeof(id), "%s.%u", group, o->n);
    expect_put(o, &w, expect_dotted(addr, buf), allow, rule);
}

static void put_edges(struct out *o, int udp, const struct policy_entry *p)
{
    const char *rule;

    if (p->port_hi < 65535 && p->port_hi != 52 &&
        !allowed(o->e, udp, p->lo, (uint16_t)(p->port_hi + 1), &rule))
        put_point(o, "edge", udp, p->lo, (uint16_t)(p->port_hi + 1),
                  "one port above what the rule allows");
    if (p->hi < UINT32_MAX && !allowed(o->e, udp, p->hi + 1, p->port_lo, &rule))
        put_point(o, "edge", udp, p->hi + 1, p->port_lo, "one address above what the rule allows");
}

static void put_entries(struct out *o, int udp)
{
    const struct policy_entry *p = udp ? o->e->table.udp : o->e->table.entries;
    uint32_t n = udp ? o->e->table.head.n_udp : o->e->table.head.n_entries, i;
    uint16_t last = POLICY_NO_RULE;
    unsigned rows = 0, of_rule = 0;

    for (i = 0; i < n; i++) {
        const char *rule;
        of_rule = p[i].rule == last ? of_rule + 1 : 0;
        last = p[i].rule;
        if (of_rule >= ROWS_OF_RULE || p[i].port_lo == 53)
            continue;
        if (rows++ >= RULE_ROWS_MAX)
            continue;
        if (allowed(o->e, udp, p[i].lo, p[i].port_lo, &rule)) {
            put_point(o, "rule", udp, p[i].lo, p[i].port_lo, "a rule allows it");
            put_edges(o, udp, &p[i]);
        } else {
            put_point(o, "deny-rule", udp, p[i].lo, p[i].port_lo, "a rule denies it");
        }
    }
    if (rows > RULE_ROWS_MAX)
        expect_rest(o, rows - RULE_ROWS_MAX, udp ? "udp" : "tcp");
}

/* What listens on this host. */
static void put_hosts(struct out *o)
{
    struct ifaddrs *all = NULL, *i;
    unsigned n = 0;

    if (getifaddrs(&all) < 0)
        return;
    for (i = all; i && n < HOST_ROWS_MAX; i = i->ifa_next) {
        struct sockaddr_in a;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || i->ifa_flags & IFF_LOOPBACK)
            continue;
        memcpy(&a, i->ifa_addr, sizeof(a));
        put_point(o, "host", 0, ntohl(a.sin_addr.s_addr), 22, "an address of this host");
        put_point(o, "host", 0, ntohl(a.sin_addr.s_addr), 443, "an address of this host");
        n++;
    }
    freeifaddrs(all);
}

int egress_expect(void *self, void *ctx, void (*row)(void *, const struct cella_reach_row *),
                  struct cella_error *err)
{
    struct out o = {.e = self, .ctx = ctx, .row = row};
    size_t i;

    (void)err;
    if (o.e->link != CELLA_LINK_NONE) {
        put_entries(&o, 0);
        put_entries(&o, 1);
        expect_names(&o);
    }
    put_hosts(&o);
    for (i = 0; i < ARRAY_LEN(ways); i++)
        put_way(&o, &ways[i]);
    return 0;
}
