/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * rule - steps to nftables expressions. Each step loads what it judges into register 1 and compares
 * it there, so no step depends on what an earlier one left behind. Whatever reads an IPv4 or a
 * transport header first says which protocol it expects (IPV4, PROTO): ruleset.c writes that out.
 * Threads: none.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <linux/if.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "ctl.h"
#include "rule.h"
#include "table.h"
#include "util.h"

#define CELL_LINK "cell0"
#define LOG_BYTES 128
#define ADMIN_PROHIBITED 13 /* ICMP destination unreachable, code of RFC 1812 */
#define IP_SOURCE 12
#define IP_DEST 16
#define IP_FRAGMENT 6
#define PORT_SOURCE 0
#define PORT_DEST 2

struct build {
    struct nftnl_rule *rule;
    uint32_t cell;
    int oom;
};

static struct nftnl_expr *add(struct build *b, const char *name)
{
    struct nftnl_expr *e = nftnl_expr_alloc(name);

    if (!e) {
        b->oom = 1;
        return NULL;
    }
    nftnl_rule_add_expr(b->rule, e);
    return e;
}

static void put(struct build *b, struct nftnl_expr *e, uint16_t attr, const void *data, size_t len)
{
    if (e && nftnl_expr_set(e, attr, data, (uint32_t)len) < 0)
        b->oom = 1;
}

static void put_u32(struct nftnl_expr *e, uint16_t attr, uint32_t v)
{
    if (e)
        nftnl_expr_set_u32(e, attr, v);
}

static void put_str(struct build *b, struct nftnl_expr *e, uint16_t attr, const char *s)
{
    if (e && nftnl_expr_set_str(e, attr, s) < 0)
        b->oom = 1;
}

/* ---- loads and comparisons ---- */

static void load_meta(struct build *b, uint32_t key)
{
    struct nftnl_expr *e = add(b, "meta");

    put_u32(e, NFTNL_EXPR_META_KEY, key);
    put_u32(e, NFTNL_EXPR_META_DREG, NFT_REG_1);
}

static void load(struct build *b, uint32_t base, uint32_t offset, uint32_t len, uint32_t reg)
{
    struct nftnl_expr *e = add(b, "payload");

    put_u32(e, NFTNL_EXPR_PAYLOAD_BASE, base);
    put_u32(e, NFTNL_EXPR_PAYLOAD_OFFSET, offset);
    put_u32(e, NFTNL_EXPR_PAYLOAD_LEN, len);
    put_u32(e, NFTNL_EXPR_PAYLOAD_DREG, reg);
}

static void load_addr(struct build *b, uint32_t offset)
{
    load(b, NFT_PAYLOAD_NETWORK_HEADER, offset, 4, NFT_REG_1);
}

static void load_port(struct build *b, uint32_t offset)
{
    load(b, NFT_PAYLOAD_TRANSPORT_HEADER, offset, 2, NFT_REG_1);
}

static void compare(struct build *b, uint32_t op, const void *data, size_t len)
{
    struct nftnl_expr *e = add(b, "cmp");

    put_u32(e, NFTNL_EXPR_CMP_SREG, NFT_REG_1);
    put_u32(e, NFTNL_EXPR_CMP_OP, op);
    put(b, e, NFTNL_EXPR_CMP_DATA, data, len);
}

static void compare_u8(struct build *b, uint32_t op, uint8_t v)
{
    compare(b, op, &v, sizeof(v));
}

/* Network byte order. */
static void compare_be16(struct build *b, uint32_t op, uint32_t v)
{
    uint16_t be = htons((uint16_t)v);

    compare(b, op, &be, sizeof(be));
}

static void compare_be32(struct build *b, uint32_t op, uint32_t v)
{
    uint32_t be = htonl(v);

    compare(b, op, &be, sizeof(be));
}

static void compare_link(struct build *b, uint32_t key, uint32_t op)
{
    char name[IFNAMSIZ] = CELL_LINK;

    load_meta(b, key);
    compare(b, op, name, sizeof(name));
}

static void mask(struct build *b, const void *bits, size_t len)
{
    static const uint32_t none = 0;
    struct nftnl_expr *e = add(b, "bitwise");

    put_u32(e, NFTNL_EXPR_BITWISE_SREG, NFT_REG_1);
    put_u32(e, NFTNL_EXPR_BITWISE_DREG, NFT_REG_1);
    put_u32(e, NFTNL_EXPR_BITWISE_LEN, (uint32_t)len);
    put(b, e, NFTNL_EXPR_BITWISE_MASK, bits, len);
    put(b, e, NFTNL_EXPR_BITWISE_XOR, &none, len);
}

static void in_set(struct build *b, const char *set)
{
    struct nftnl_expr *e = add(b, "lookup");

    put_u32(e, NFTNL_EXPR_LOOKUP_SREG, NFT_REG_1);
    put_str(b, e, NFTNL_EXPR_LOOKUP_SET, set);
}

/* ---- actions ---- */

static void immediate(struct build *b, const void *data, size_t len)
{
    struct nftnl_expr *e = add(b, "immediate");

    put_u32(e, NFTNL_EXPR_IMM_DREG, NFT_REG_1);
    put(b, e, NFTNL_EXPR_IMM_DATA, data, len);
}

static void set_mark(struct build *b, uint32_t mark)
{
    struct nftnl_expr *e;

    immediate(b, &mark, sizeof(mark));
    e = add(b, "meta");
    put_u32(e, NFTNL_EXPR_META_KEY, NFT_META_MARK);
    put_u32(e, NFTNL_EXPR_META_SREG, NFT_REG_1);
}

static void verdict(struct build *b, int code, const char *chain)
{
    struct nftnl_expr *e = add(b, "immediate");

    put_u32(e, NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT);
    put_u32(e, NFTNL_EXPR_IMM_VERDICT, (uint32_t)code);
    if (chain)
        put_str(b, e, NFTNL_EXPR_IMM_CHAIN, chain);
}

static void reject(struct build *b, uint32_t type, uint8_t code)
{
    struct nftnl_expr *e = add(b, "reject");

    put_u32(e, NFTNL_EXPR_REJECT_TYPE, type);
    if (e)
        nftnl_expr_set_u8(e, NFTNL_EXPR_REJECT_CODE, code);
}

/* ---- steps ---- */

typedef void step_fn(struct build *b, const struct step *s);

static void in_is(struct build *b, const struct step *s)
{
    (void)s;
    compare_link(b, NFT_META_IIFNAME, NFT_CMP_EQ);
}

static void in_is_not(struct build *b, const struct step *s)
{
    (void)s;
    compare_link(b, NFT_META_IIFNAME, NFT_CMP_NEQ);
}

static void out_is(struct build *b, const struct step *s)
{
    (void)s;
    compare_link(b, NFT_META_OIFNAME, NFT_CMP_EQ);
}

static void frame_ipv4(struct build *b, const struct step *s)
{
    (void)s;
    load_meta(b, NFT_META_PROTOCOL);
    compare_be16(b, NFT_CMP_EQ, 0x0800);
}

static void ipv4(struct build *b, const struct step *s)
{
    load_meta(b, NFT_META_NFPROTO);
    compare_u8(b, s->kind == IPV4 ? NFT_CMP_EQ : NFT_CMP_NEQ, NFPROTO_IPV4);
}

static void proto(struct build *b, const struct step *s)
{
    load_meta(b, NFT_META_L4PROTO);
    compare_u8(b, NFT_CMP_EQ, (uint8_t)s->value);
}

static void source_not_cell(struct build *b, const struct step *s)
{
    (void)s;
    load_addr(b, IP_SOURCE);
    compare_be32(b, NFT_CMP_NEQ, b->cell);
}

static void dest_cell(struct build *b, const struct step *s)
{
    (void)s;
    load_addr(b, IP_DEST);
    compare_be32(b, NFT_CMP_EQ, b->cell);
}

static void dest_synthetic(struct build *b, const struct step *s)
{
    uint32_t bits = htonl(~(POLICY_SYNTHETIC_HI - POLICY_SYNTHETIC_LO));

    (void)s;
    load_addr(b, IP_DEST);
    mask(b, &bits, sizeof(bits));
    compare_be32(b, NFT_CMP_EQ, POLICY_SYNTHETIC_LO);
}

static void dest_in(struct build *b, const struct step *s)
{
    load_addr(b, IP_DEST);
    in_set(b, s->name);
}

/* One key of two fields: the address in register 1, the port in the word after it. */
static void dest_port_in(struct build *b, const struct step *s)
{
    load_addr(b, IP_DEST);
    load(b, NFT_PAYLOAD_TRANSPORT_HEADER, PORT_DEST, 2, NFT_REG32_01);
    in_set(b, s->name);
}

static void later_fragment(struct build *b, const struct step *s)
{
    uint16_t bits = htons(0x1fff);

    (void)s;
    load(b, NFT_PAYLOAD_NETWORK_HEADER, IP_FRAGMENT, 2, NFT_REG_1);
    mask(b, &bits, sizeof(bits));
    compare_be16(b, NFT_CMP_NEQ, 0);
}

static void port(struct build *b, const struct step *s)
{
    load_port(b, PORT_DEST);
    compare_be16(b, NFT_CMP_EQ, s->value);
}

static void port_in(struct build *b, const struct step *s)
{
    load_port(b, s->kind == PORT_IN ? PORT_DEST : PORT_SOURCE);
    in_set(b, s->name);
}

static void mark_is(struct build *b, const struct step *s)
{
    load_meta(b, NFT_META_MARK);
    compare(b, NFT_CMP_EQ, &s->value, sizeof(s->value));
}

static void mark_set(struct build *b, const struct step *s)
{
    set_mark(b, s->value);
}

static void count(struct build *b, const struct step *s)
{
    (void)s;
    add(b, "counter");
}

/* Every packet at once: the gate tells denials while they happen. */
static void log_packet(struct build *b, const struct step *s)
{
    struct nftnl_expr *e = add(b, "log");

    if (!e)
        return;
    nftnl_expr_set_u16(e, NFTNL_EXPR_LOG_GROUP, GATE_LOG_GROUP);
    nftnl_expr_set_u16(e, NFTNL_EXPR_LOG_QTHRESHOLD, 1);
    if (s->kind == LOG)
        nftnl_expr_set_u32(e, NFTNL_EXPR_LOG_SNAPLEN, LOG_BYTES);
    else
        put_str(b, e, NFTNL_EXPR_LOG_PREFIX, "m");
}

static void to_gate(struct build *b, const struct step *s)
{
    uint16_t be = htons((uint16_t)s->value);
    struct nftnl_expr *e;

    immediate(b, &be, sizeof(be));
    e = add(b, "tproxy");
    put_u32(e, NFTNL_EXPR_TPROXY_FAMILY, NFPROTO_IPV4);
    put_u32(e, NFTNL_EXPR_TPROXY_REG_PORT, NFT_REG_1);
    set_mark(b, GATE_MARK);
    verdict(b, NF_ACCEPT, NULL);
}

static void accept_it(struct build *b, const struct step *s)
{
    (void)s;
    verdict(b, NF_ACCEPT, NULL);
}

static void drop_it(struct build *b, const struct step *s)
{
    (void)s;
    verdict(b, NF_DROP, NULL);
}

static void go(struct build *b, const struct step *s)
{
    verdict(b, NFT_GOTO, s->name);
}

static void tcp_reset(struct build *b, const struct step *s)
{
    (void)s;
    reject(b, NFT_REJECT_TCP_RST, 0);
}

static void prohibited(struct build *b, const struct step *s)
{
    (void)s;
    reject(b, NFT_REJECT_ICMP_UNREACH, ADMIN_PROHIBITED);
}

static step_fn *const steps_fn[] = {
    [IN_IS] = in_is,
    [IN_IS_NOT] = in_is_not,
    [OUT_IS] = out_is,
    [FRAME_IPV4] = frame_ipv4,
    [IPV4] = ipv4,
    [IPV4_NOT] = ipv4,
    [PROTO] = proto,
    [SOURCE_NOT_CELL] = source_not_cell,
    [DEST_CELL] = dest_cell,
    [DEST_SYNTHETIC] = dest_synthetic,
    [DEST_IN] = dest_in,
    [DEST_PORT_IN] = dest_port_in,
    [LATER_FRAGMENT] = later_fragment,
    [PORT] = port,
    [PORT_IN] = port_in,
    [FROM_PORT_IN] = port_in,
    [MARK_IS] = mark_is,
    [SET_MARK] = mark_set,
    [COUNT] = count,
    [LOG] = log_packet,
    [LOG_MARKED] = log_packet,
    [TO_GATE] = to_gate,
    [ACCEPT] = accept_it,
    [DROP] = drop_it,
    [GOTO] = go,
    [TCP_RESET] = tcp_reset,
    [PROHIBITED] = prohibited,
};

struct nftnl_rule *rule_build(const struct step *steps, uint32_t cell)
{
    struct build b = {.rule = nftnl_rule_alloc(), .cell = cell};

    if (!b.rule)
        return NULL;
    nftnl_rule_set_u32(b.rule, NFTNL_RULE_FAMILY, NFPROTO_INET);
    for (; steps->kind != STEP_END; steps++)
        steps_fn[steps->kind](&b, steps);
    if (!b.oom)
        return b.rule;
    nftnl_rule_free(b.rule);
    return NULL;
}
