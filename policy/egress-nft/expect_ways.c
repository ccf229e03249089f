/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * expect_ways - the catalogue of ways out, each judged against the table, so that a policy which opens one of its
 * destinations expects it open. Public destinations are documentation addresses: were a wall broken, nothing would go to
 * somebody's server. Threads: none; no effect.
 */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "expect.h"

#define RESOLVER "203.0.113.53"

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
    DNS("dns.cname", "dns-udp", GATEWAY, "CNAME"),
    DNS("dns.mx", "dns-udp", GATEWAY, "MX"),
    DNS("dns.ns", "dns-udp", GATEWAY, "NS"),
    DNS("dns.soa", "dns-udp", GATEWAY, "SOA"),
    DNS("dns.srv", "dns-udp", GATEWAY, "SRV"),
    DNS("dns.ptr", "dns-udp", GATEWAY, "PTR"),
    DNS("dns.naptr", "dns-udp", GATEWAY, "NAPTR"),
    DNS("dns.caa", "dns-udp", GATEWAY, "CAA"),
    DNS("dns.dnskey", "dns-udp", GATEWAY, "DNSKEY"),
    DNS("dns.private", "dns-udp", GATEWAY, "PRIVATE"),
    DNS("dns.tcp.a", "dns-tcp", GATEWAY, "A"),
    DNS("dns.tcp.aaaa", "dns-tcp", GATEWAY, "AAAA"),
    DNS("dns.tcp.txt", "dns-tcp", GATEWAY, "TXT"),
    DNS("dns.tcp.https", "dns-tcp", GATEWAY, "HTTPS"),
    DNS("dns.tcp.svcb", "dns-tcp", GATEWAY, "SVCB"),
    DNS("dns.tcp.null", "dns-tcp", GATEWAY, "NULL"),
    DNS("dns.tcp.any", "dns-tcp", GATEWAY, "ANY"),
    DNS("dns.tcp.cname", "dns-tcp", GATEWAY, "CNAME"),
    DNS("dns.tcp.mx", "dns-tcp", GATEWAY, "MX"),
    DNS("dns.tcp.axfr", "dns-tcp", GATEWAY, "AXFR"),
    DNS("dns.tcp.ixfr", "dns-tcp", GATEWAY, "IXFR"),
    {"dns.tcp.second", "dns", "dns-tcp", GATEWAY, 53, "cella-reach.example", "reuse;type=A",
     CELLA_REACH_BY_SINK, "a second question on the connection of a first", ""},
    {"dns.metadata", "dns", "dns-udp", GATEWAY, 53, "metadata.google.internal", "type=A;exact",
     CELLA_REACH_BY_SINK, "the name of a metadata service", ""},
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
    TCP("tcp.3128", "outside", OUTSIDE, 3128, "an HTTP proxy"),
    TCP("tcp.1080", "outside", OUTSIDE, 1080, "a SOCKS proxy"),
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
    TCP("metadata.oracle", "metadata", "192.0.0.192", 80, "the metadata service of a cloud"),
    TCP("metadata.azure", "metadata", "168.63.129.16", 80, "the control address of a cloud"),
    UDP("metadata.udp", "metadata", "169.254.169.254", 123, "the metadata address over UDP", ""),
    TCP("private.10", "private", "10.0.0.1", 80, "a private network"),
    TCP("private.172", "private", "172.16.0.1", 443, "a private network"),
    TCP("private.192", "private", "192.168.0.1", 80, "a private network"),
    TCP("private.slirp", "private", "10.0.2.2", 80, "the host, as user-mode networks name it"),
    TCP("private.docker", "private", "172.17.0.1", 2375, "the host, as container engines name it"),
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
    UDP("multicast.llmnr", "multicast", "224.0.0.252", 5355, "names of the local network", OUTSIDE),
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
    SIX("ipv6.isatap", "2001:db8:9::5efe:a9fe:a9fe", "an IPv4 address through ISATAP"),
    SIX("ipv6.private", "::ffff:10.0.0.1", "a private IPv4 address inside IPv6"),
    SIX("ipv6.local", "fd12:3456::1", "a private IPv6 network"),
    SIX("ipv6.metadata", "fd00:ec2::254", "the metadata service of a cloud"),
    SIX("ipv6.link-local", "fe80::1%eth0", "a neighbour on the link"),
    {"ipv6.multicast", "ipv6", "udp", "ff02::1%eth0", 5353, "", "", CELLA_REACH_BY_SINK,
     "every neighbour on the link", "::ffff:" OUTSIDE},
    {"ipv6.udp", "ipv6", "udp", "2001:db8:9::1", 443, "", "", CELLA_REACH_BY_SINK, "IPv6 over UDP",
     "::ffff:" OUTSIDE},
    {"ipv6.dns", "ipv6", "dns-udp", "2001:db8:9::53", 53, "cella-reach.example", "type=A",
     CELLA_REACH_BY_SINK, "a resolver over IPv6", "::ffff:" RESOLVER},
    {"ipv6.ping", "ipv6", "icmp", "2001:db8:9::1", 0, "", "", CELLA_REACH_BY_CELL, "ping over IPv6",
     ""},
    {"ipv6.address", "ipv6", "address6", "", 0, "", "", CELLA_REACH_BY_CELL,
     "an IPv6 address on the link", ""},
    {"icmp.outside", "icmp", "icmp", OUTSIDE, 0, "", "", CELLA_REACH_BY_CELL, "ping", ""},
    {"icmp.gateway", "icmp", "icmp", GATEWAY, 0, "", "", CELLA_REACH_BY_CELL, "ping", ""},
    {"icmp.raw", "icmp", "icmp", OUTSIDE, 0, "", "raw", CELLA_REACH_BY_CELL,
     "ping through a raw socket", ""},
    {"proto.gre", "protocols", "ip", OUTSIDE, 0, "", "proto=47", CELLA_REACH_BY_CELL, "GRE", ""},
    {"proto.esp", "protocols", "ip", OUTSIDE, 0, "", "proto=50", CELLA_REACH_BY_CELL, "ESP", ""},
    {"proto.ipip", "protocols", "ip", OUTSIDE, 0, "", "proto=4", CELLA_REACH_BY_CELL, "IP in IP",
     ""},
    {"proto.6in4", "protocols", "ip", OUTSIDE, 0, "", "proto=41", CELLA_REACH_BY_CELL,
     "IPv6 in IPv4", ""},
    {"proto.ah", "protocols", "ip", OUTSIDE, 0, "", "proto=51", CELLA_REACH_BY_CELL, "AH", ""},
    {"proto.igmp", "protocols", "ip", OUTSIDE, 0, "", "proto=2", CELLA_REACH_BY_CELL, "IGMP", ""},
    {"proto.udplite", "protocols", "ip", OUTSIDE, 0, "", "proto=136", CELLA_REACH_BY_CELL,
     "UDP-Lite", ""},
    {"proto.private", "protocols", "ip", OUTSIDE, 0, "", "proto=253", CELLA_REACH_BY_CELL,
     "a protocol without a name", ""},
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
    SOCKET("socket.vsock-dgram", "40,2,0", "datagrams to a hypervisor"),
    SOCKET("socket.rds", "21,5,0", "RDS"),
    SOCKET("socket.smc", "43,1,0", "SMC"),
    SOCKET("socket.pppox", "24,1,0", "PPP over anything"),
    SOCKET("socket.llc", "26,1,0", "LLC"),
    SOCKET("socket.kcm", "41,5,0", "KCM"),
    SOCKET("socket.qrtr", "42,2,0", "the modem's router"),
    SOCKET("socket.nfc", "39,5,1", "NFC"),
    SOCKET("socket.x25", "9,5,0", "X.25"),
    SOCKET("socket.ax25", "3,5,0", "AX.25"),
    SOCKET("socket.mctp", "45,2,0", "management controllers"),
};

static void put_way(struct out *o, const struct way *w)
{
    char buf[INET_ADDRSTRLEN];
    const char *address = w->address, *rule = "";
    struct in_addr in;
    int allow = 0;

    address = expect_place(o, address, buf);
    if ((!strcmp(w->kind, "tcp") || !strcmp(w->kind, "udp")) &&
        inet_pton(AF_INET, address, &in) == 1)
        allow = expect_allowed(o->e, w->kind[0] == 'u', ntohl(in.s_addr), w->port, &rule);
    if (allow && w->options[0])
        return; /* a trick to get where one may go anyway */
    if (w->name[0] && expect_covered(o->e, w->name))
        return; /* the policy names it */
    expect_put(o, w, address, allow, rule);
}

void expect_ways(struct out *o)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(ways); i++)
        put_way(o, &ways[i]);
}
