/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * packet - the headers of what the kernel refused.
 *
 * The netlink framing comes from the kernel, the packet inside it from the cell: cut short
 * anywhere, with lying lengths. Every read is preceded by a length check; nothing is followed. Pure
 * functions.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>

#include "gate.h"

static uint16_t be16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void parse_l4(const uint8_t *p, size_t n, struct packet *ret)
{
    if (n < 4)
        return;
    if (ret->proto == IPPROTO_TCP || ret->proto == IPPROTO_UDP || ret->proto == IPPROTO_SCTP ||
        ret->proto == IPPROTO_UDPLITE || ret->proto == IPPROTO_DCCP) {
        ret->sport = be16(p);
        ret->dport = be16(p + 2);
    }
    if (ret->proto == IPPROTO_TCP && n >= 14) {
        ret->seq = be32(p + 4);
        ret->syn = (p[13] & 0x12) == 0x02; /* SYN without ACK */
    }
}

int packet_parse(const uint8_t *p, size_t n, struct packet *ret)
{
    size_t head;

    memset(ret, 0, sizeof(*ret));
    if (n < 1)
        return -EBADMSG;
    ret->version = p[0] >> 4;
    if (ret->version == 6) {
        if (n < 40)
            return -EBADMSG;
        memcpy(ret->dst6, p + 24, 16);
        return 0;
    }
    head = (size_t)(p[0] & 15) * 4;
    if (ret->version != 4 || head < 20 || n < head)
        return -EBADMSG;
    ret->proto = p[9];
    ret->src = be32(p + 12);
    ret->dst = be32(p + 16);
    ret->fragment = (be16(p + 6) & 0x1fff) != 0;
    if (!ret->fragment)
        parse_l4(p + head, n - head, ret);
    return 0;
}

static void take_attrs(const uint8_t *p, size_t n, struct nflog_msg *ret)
{
    struct nlattr a;

    while (n >= sizeof(a)) {
        size_t step;
        memcpy(&a, p, sizeof(a));
        if (a.nla_len < sizeof(a) || a.nla_len > n)
            return;
        if ((a.nla_type & NLA_TYPE_MASK) == NFULA_PAYLOAD) {
            ret->payload = p + sizeof(a);
            ret->len = a.nla_len - sizeof(a);
        } else if ((a.nla_type & NLA_TYPE_MASK) == NFULA_PREFIX && a.nla_len > sizeof(a)) {
            ret->marker = p[sizeof(a)] == 'm';
        } else if ((a.nla_type & NLA_TYPE_MASK) == NFULA_SEQ && a.nla_len == sizeof(a) + 4) {
            ret->seq = be32(p + sizeof(a));
            ret->has_seq = 1;
        }
        step = NLA_ALIGN(a.nla_len);
        if (step >= n)
            return;
        p += step;
        n -= step;
    }
}

int nflog_next(const uint8_t *buf, size_t len, size_t *at, struct nflog_msg *ret)
{
    struct nlmsghdr h;

    while (*at < len) {
        const uint8_t *p = buf + *at;
        size_t n = len - *at;

        if (n < sizeof(h))
            return -EBADMSG;
        memcpy(&h, p, sizeof(h));
        if (h.nlmsg_len < sizeof(h) || h.nlmsg_len > n)
            return -EBADMSG;
        *at += NLMSG_ALIGN(h.nlmsg_len) < n ? NLMSG_ALIGN(h.nlmsg_len) : n;
        if (h.nlmsg_type != (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET) ||
            h.nlmsg_len < NLMSG_HDRLEN + sizeof(struct nfgenmsg))
            continue;
        memset(ret, 0, sizeof(*ret));
        take_attrs(p + NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(struct nfgenmsg)),
                   h.nlmsg_len - NLMSG_HDRLEN - NLMSG_ALIGN(sizeof(struct nfgenmsg)), ret);
        if (ret->payload)
            return 1;
    }
    return 0;
}
