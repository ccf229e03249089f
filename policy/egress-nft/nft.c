/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * nft - writes one nftables transaction with libnftnl and sends it in one piece.
 *
 * libnftnl and not libnftables: the rules are fixed (ruleset.c), so there is no text to parse and no
 * cache of the kernel's state to read first; this is a third of what a cell's start costs.
 * Invariants: every message is written into a buffer larger than any it can become (elements go
 * CHUNK at a time); a failure while writing is kept in `bytes.oom` and makes nft_commit() fail before
 * anything is sent. The kernel acknowledges the last message only, and reports each that failed;
 * both are in the socket's queue when send returns. Threads: none.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <libmnl/libmnl.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/rule.h>
#include <libnftnl/set.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include "nft.h"

#define MESSAGE_MAX 65536
#define CHUNK 256         /* elements of one message, each below 128 bytes */
#define TYPE_IPV4_ADDR 7u /* data types as nft(8) numbers them: what "nft list" shows */
#define TYPE_INET_SERVICE 13u

static const struct {
    uint32_t type, len, flags;
} kinds[] = {
    [NFT_ADDRS] = {TYPE_IPV4_ADDR, 4, NFT_SET_INTERVAL},
    [NFT_PORTS] = {TYPE_INET_SERVICE, 2, NFT_SET_INTERVAL},
    [NFT_PORTS_TIMED] = {TYPE_INET_SERVICE, 2, NFT_SET_INTERVAL | NFT_SET_TIMEOUT},
    [NFT_ADDR_PORTS] = {TYPE_IPV4_ADDR << 6 | TYPE_INET_SERVICE, 8,
                        NFT_SET_INTERVAL | NFT_SET_CONCAT},
};

static _Alignas(struct nlmsghdr) char message[MESSAGE_MAX];

/* ---- messages ---- */

static struct nlmsghdr *begin(struct nft_batch *b, uint16_t type, uint16_t flags)
{
    return nftnl_nlmsg_build_hdr(message, type, NFPROTO_INET, flags, ++b->seq);
}

static void end(struct nft_batch *b, const struct nlmsghdr *h)
{
    b->last = b->bytes.len;
    buf_add(&b->bytes, message, h->nlmsg_len);
}

static void no_memory(struct nft_batch *b)
{
    b->bytes.oom = 1;
}

void nft_batch_init(struct nft_batch *b)
{
    *b = (struct nft_batch){.bytes = BUF_INIT, .seq = 1};
    end(b, nftnl_batch_begin(message, b->seq));
}

void nft_batch_fini(struct nft_batch *b)
{
    buf_fini(&b->bytes);
}

void nft_table(struct nft_batch *b)
{
    struct nftnl_table *t = nftnl_table_alloc();
    struct nlmsghdr *h;

    if (!t || nftnl_table_set_str(t, NFTNL_TABLE_NAME, NFT_TABLE) < 0) {
        no_memory(b);
    } else {
        h = begin(b, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL);
        nftnl_table_nlmsg_build_payload(h, t);
        end(b, h);
    }
    if (t)
        nftnl_table_free(t);
}

void nft_chain(struct nft_batch *b, const char *name, const struct nft_hook *hook)
{
    struct nftnl_chain *c = nftnl_chain_alloc();
    struct nlmsghdr *h;
    int r = -1;

    if (c)
        r = nftnl_chain_set_str(c, NFTNL_CHAIN_TABLE, NFT_TABLE) |
            nftnl_chain_set_str(c, NFTNL_CHAIN_NAME, name);
    if (r == 0 && hook->type) {
        r = nftnl_chain_set_str(c, NFTNL_CHAIN_TYPE, hook->type);
        nftnl_chain_set_u32(c, NFTNL_CHAIN_HOOKNUM, hook->number);
        nftnl_chain_set_s32(c, NFTNL_CHAIN_PRIO, hook->priority);
        nftnl_chain_set_u32(c, NFTNL_CHAIN_POLICY, NF_DROP);
        if (hook->device)
            r |= nftnl_chain_set_str(c, NFTNL_CHAIN_DEV, hook->device);
    }
    if (r < 0) {
        no_memory(b);
    } else {
        h = begin(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL);
        nftnl_chain_nlmsg_build_payload(h, c);
        end(b, h);
    }
    if (c)
        nftnl_chain_free(c);
}

void nft_rule(struct nft_batch *b, const char *chain, struct nftnl_rule *rule)
{
    struct nlmsghdr *h;

    if (!rule || nftnl_rule_set_str(rule, NFTNL_RULE_TABLE, NFT_TABLE) < 0 ||
        nftnl_rule_set_str(rule, NFTNL_RULE_CHAIN, chain) < 0) {
        no_memory(b);
    } else {
        h = begin(b, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
        nftnl_rule_nlmsg_build_payload(h, rule);
        end(b, h);
    }
    if (rule)
        nftnl_rule_free(rule);
}

void nft_empty(struct nft_batch *b, const char *chain)
{
    struct nftnl_rule *all = nftnl_rule_alloc();
    struct nlmsghdr *h;

    if (!all || nftnl_rule_set_str(all, NFTNL_RULE_TABLE, NFT_TABLE) < 0 ||
        nftnl_rule_set_str(all, NFTNL_RULE_CHAIN, chain) < 0) {
        no_memory(b);
    } else {
        h = begin(b, NFT_MSG_DELRULE, 0);
        nftnl_rule_nlmsg_build_payload(h, all);
        end(b, h);
    }
    if (all)
        nftnl_rule_free(all);
}

/* ---- sets ---- */

static struct nftnl_set *set_named(const char *name)
{
    struct nftnl_set *s = nftnl_set_alloc();

    if (s && (nftnl_set_set_str(s, NFTNL_SET_TABLE, NFT_TABLE) < 0 ||
              nftnl_set_set_str(s, NFTNL_SET_NAME, name) < 0)) {
        nftnl_set_free(s);
        s = NULL;
    }
    return s;
}

void nft_set(struct nft_batch *b, const char *name, enum nft_set_kind kind)
{
    static const uint8_t fields[2] = {4, 2};
    struct nftnl_set *s = set_named(name);
    struct nlmsghdr *h;

    if (!s) {
        no_memory(b);
        return;
    }
    nftnl_set_set_u32(s, NFTNL_SET_KEY_TYPE, kinds[kind].type);
    nftnl_set_set_u32(s, NFTNL_SET_KEY_LEN, kinds[kind].len);
    nftnl_set_set_u32(s, NFTNL_SET_FLAGS, kinds[kind].flags);
    nftnl_set_set_u32(s, NFTNL_SET_ID, b->seq + 1);
    if (kind == NFT_ADDR_PORTS &&
        nftnl_set_set_data(s, NFTNL_SET_DESC_CONCAT, fields, sizeof(fields)) < 0)
        no_memory(b);
    h = begin(b, NFT_MSG_NEWSET, NLM_F_CREATE | NLM_F_EXCL);
    nftnl_set_nlmsg_build_payload(h, s);
    end(b, h);
    nftnl_set_free(s);
}

void nft_drop(struct nft_batch *b, const char *set)
{
    struct nftnl_set *s = set_named(set);
    struct nlmsghdr *h;

    if (!s) {
        no_memory(b);
        return;
    }
    h = begin(b, NFT_MSG_DELSET, 0);
    nftnl_set_nlmsg_build_payload(h, s);
    end(b, h);
    nftnl_set_free(s);
}

void nft_flush(struct nft_batch *b, const char *set)
{
    struct nftnl_set *s = set_named(set);
    struct nlmsghdr *h;

    if (!s) {
        no_memory(b);
        return;
    }
    h = begin(b, NFT_MSG_DELSETELEM, 0);
    nftnl_set_elems_nlmsg_build_payload(h, s);
    end(b, h);
    nftnl_set_free(s);
}

static int add_element(struct nftnl_set *s, const void *key, size_t len, const void *key_end,
                       uint32_t flags, uint32_t seconds)
{
    struct nftnl_set_elem *e = nftnl_set_elem_alloc();

    if (!e)
        return -ENOMEM;
    nftnl_set_elem_add(s, e);
    if (flags)
        nftnl_set_elem_set_u32(e, NFTNL_SET_ELEM_FLAGS, flags);
    if (seconds)
        nftnl_set_elem_set_u64(e, NFTNL_SET_ELEM_TIMEOUT, 1000ull * seconds);
    if (key_end && nftnl_set_elem_set(e, NFTNL_SET_ELEM_KEY_END, key_end, (uint32_t)len) < 0)
        return -ENOMEM;
    return nftnl_set_elem_set(e, NFTNL_SET_ELEM_KEY, key, (uint32_t)len) < 0 ? -ENOMEM : 0;
}

/* A range of one field is its first value and, unless it goes to the end, the first value after it. */
static int add_field(struct nftnl_set *s, enum nft_set_kind kind, const struct nft_range *v,
                     uint32_t seconds)
{
    int ports = kind != NFT_ADDRS;
    uint32_t lo = ports ? v->port_lo : v->addr_lo, hi = ports ? v->port_hi : v->addr_hi;
    uint32_t key[2] = {htonl(lo), htonl(hi + 1)};
    uint16_t port[2] = {htons((uint16_t)lo), htons((uint16_t)(hi + 1))};
    int r = add_element(s, ports ? (void *)&port[0] : &key[0], kinds[kind].len, NULL, 0, seconds);

    if (r == 0 && hi != (ports ? 0xffffu : 0xffffffffu))
        r = add_element(s, ports ? (void *)&port[1] : &key[1], kinds[kind].len, NULL,
                        NFT_SET_ELEM_INTERVAL_END, 0);
    return r;
}

static int add_pair(struct nftnl_set *s, const struct nft_range *v)
{
    struct {
        uint32_t addr;
        uint16_t port, zero;
    } lo = {htonl(v->addr_lo), htons(v->port_lo), 0},
      hi = {htonl(v->addr_hi), htons(v->port_hi), 0};

    return add_element(s, &lo, sizeof(lo), &hi, 0, 0);
}

void nft_elements(struct nft_batch *b, const char *set, enum nft_set_kind kind,
                  const struct nft_range *v, size_t n, uint32_t seconds)
{
    size_t i, at;

    for (at = 0; at < n; at += CHUNK) {
        struct nftnl_set *s = set_named(set);
        struct nlmsghdr *h;
        int r = s ? 0 : -ENOMEM;

        for (i = at; r == 0 && i < n && i < at + CHUNK; i++)
            r = kind == NFT_ADDR_PORTS ? add_pair(s, &v[i]) : add_field(s, kind, &v[i], seconds);
        if (r == 0) {
            h = begin(b, NFT_MSG_NEWSETELEM, NLM_F_CREATE);
            nftnl_set_elems_nlmsg_build_payload(h, s);
            end(b, h);
        } else {
            no_memory(b);
        }
        if (s)
            nftnl_set_free(s);
    }
}

/* ---- the transaction ---- */

/* What kind of message an error is about; the kernel names it by its number in the batch. */
static const char *message_word(const struct nft_batch *b, uint32_t seq)
{
    static const char *const words[] = {
        [NFT_MSG_NEWTABLE] = "the table",      [NFT_MSG_NEWCHAIN] = "a chain",
        [NFT_MSG_NEWRULE] = "a rule",          [NFT_MSG_NEWSET] = "a set",
        [NFT_MSG_NEWSETELEM] = "the elements", [NFT_MSG_DELSETELEM] = "an emptied set",
    };
    const struct nlmsghdr *h = (const void *)b->bytes.ptr;
    int left = (int)b->bytes.len;

    for (; mnl_nlmsg_ok(h, left); h = mnl_nlmsg_next(h, &left)) {
        uint8_t type = (uint8_t)h->nlmsg_type;
        if (h->nlmsg_seq == seq && h->nlmsg_type >> 8 == NFNL_SUBSYS_NFTABLES)
            return type < ARRAY_LEN(words) && words[type] ? words[type] : "a message";
    }
    return "the transaction";
}

struct verdict {
    const struct nft_batch *batch;
    uint32_t acked;   /* messages */
    int code;         /* the first failure's */
    const char *word; /* and what it was about */
};

static void judge(struct verdict *v, const struct nlmsghdr *h)
{
    const struct nlmsgerr *e;

    if (h->nlmsg_type != NLMSG_ERROR || h->nlmsg_len < mnl_nlmsg_size(sizeof(*e)))
        return;
    e = mnl_nlmsg_get_payload(h);
    if (e->error == 0)
        v->acked++;
    else if (!v->code) {
        v->code = e->error;
        v->word = message_word(v->batch, h->nlmsg_seq);
    }
}

static int hear(struct mnl_socket *nl, struct verdict *v)
{
    static _Alignas(struct nlmsghdr) char answer[32768];
    const struct nlmsghdr *h;
    long n;
    int left;

    while ((n = recv(mnl_socket_get_fd(nl), answer, sizeof(answer), MSG_DONTWAIT)) > 0) {
        left = (int)n;
        for (h = (void *)answer; mnl_nlmsg_ok(h, left); h = mnl_nlmsg_next(h, &left))
            judge(v, h);
    }
    return n < 0 && errno != EAGAIN ? -errno : 0;
}

static int send_all(struct mnl_socket *nl, const struct nft_batch *b, struct verdict *v)
{
    int room = (int)(b->bytes.len < INT32_MAX / 4 ? 2 * b->bytes.len + MESSAGE_MAX : INT32_MAX);

    if (mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) < 0 ||
        (b->bytes.len > MESSAGE_MAX &&
         setsockopt(mnl_socket_get_fd(nl), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)) < 0) ||
        mnl_socket_sendto(nl, b->bytes.ptr, b->bytes.len) < 0)
        return -errno;
    return hear(nl, v);
}

int nft_commit(struct nft_batch *b, const char *what, struct cella_error *err)
{
    struct verdict v = {.batch = b, .word = "the transaction"};
    struct mnl_socket *nl;
    int r;

    if (!b->bytes.oom) /* the acknowledgement tells success from silence */
        ((struct nlmsghdr *)(void *)(b->bytes.ptr + b->last))->nlmsg_flags |= NLM_F_ACK;
    end(b, nftnl_batch_end(message, ++b->seq));
    if (b->bytes.oom)
        return fail(err, -ENOMEM, "%s: out of memory", what);
    nl = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC);
    r = nl ? send_all(nl, b, &v) : -errno;
    if (nl)
        mnl_socket_close(nl);
    if (r == 0 && v.code)
        r = v.code;
    else if (r == 0 && v.acked != 1)
        r = -EPROTO;
    if (r == 0)
        return 0;
    return fail(err, r,
                "%s: nftables refused %s: %s; nothing was changed. The kernel needs nft with inet, "
                "tproxy, reject, log and concatenated interval sets",
                what, v.word, strerror(-r));
}
