/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * dns - questions of the cell read, answers to it written.
 *
 * Reading is done by libc's resolver library (ns_*), which is bounded by design; ldns, which would
 * do both, brings libcrypto into a process that has a budget of 1.5 MiB. An answer is the question
 * as it came, byte for byte (so the case of a 0x20 question survives), and address records that
 * point back to its name. Nothing here knows what is allowed. Pure functions, except for the
 * buffers they fill.
 */
#include <arpa/nameser.h>
#include <resolv.h>
#include <stdio.h>
#include <string.h>

#include "gate.h"

/* End of the first question, read without following pointers; 0 when it is not plain labels. */
static size_t question_end(const uint8_t *msg, size_t len)
{
    size_t at = NS_HFIXEDSZ, name;

    while (at < len && msg[at] && msg[at] < 64)
        at += 1u + msg[at];
    name = at + 1 - NS_HFIXEDSZ;
    if (at >= len || msg[at] || name > NS_MAXCDNAME || len - at < 1 + NS_QFIXEDSZ)
        return 0;
    return at + 1 + NS_QFIXEDSZ;
}

/* The labels at `p` as a host name; "" when they are none. A dot inside a label separates nothing. */
static void host_name(const uint8_t *p, char out[NAME_MAX_LEN + 1])
{
    char text[256];
    size_t n = 0;

    out[0] = 0;
    while (*p) {
        if (memchr(p + 1, '.', *p))
            return;
        if (n)
            text[n++] = '.';
        memcpy(text + n, p + 1, *p);
        n += *p;
        p += 1u + *p;
    }
    if (name_canon(text, n, out) < 0)
        out[0] = 0;
}

static int has_edns(ns_msg *m)
{
    ns_rr rr;
    int i;

    for (i = 0; i < ns_msg_count(*m, ns_s_ar); i++)
        if (ns_parserr(m, ns_s_ar, i, &rr) == 0 && ns_rr_type(rr) == ns_t_opt)
            return 1;
    return 0;
}

int dns_read(const uint8_t *msg, size_t len, struct dns_query *ret)
{
    ns_msg m;
    ns_rr q;
    size_t end;

    memset(ret, 0, sizeof(*ret));
    if (len < NS_HFIXEDSZ || len > DNS_MSG_MAX || msg[2] & 0x80)
        return -1;
    ret->end = NS_HFIXEDSZ;
    if ((msg[2] >> 3 & 15) != ns_o_query) {
        ret->rcode = ns_r_notimpl;
        return 0;
    }
    end = question_end(msg, len);
    if (!end || ns_initparse(msg, (int)len, &m) < 0 || ns_msg_count(m, ns_s_qd) != 1 ||
        ns_parserr(&m, ns_s_qd, 0, &q) < 0) {
        ret->rcode = ns_r_formerr;
        return 0;
    }
    snprintf(ret->name, sizeof(ret->name), "%.*s", CTL_NAME_MAX - 1, ns_rr_name(q));
    host_name(msg + NS_HFIXEDSZ, ret->host);
    ret->qtype = (uint16_t)ns_rr_type(q);
    ret->qclass = (uint16_t)ns_rr_class(q);
    ret->end = (uint16_t)end;
    ret->edns = has_edns(&m) != 0;
    return 0;
}

static size_t put_address(uint8_t *p, uint32_t addr, uint32_t ttl)
{
    const uint8_t rr[] = {0xc0,
                          NS_HFIXEDSZ, /* the question's name */
                          0,
                          ns_t_a,
                          0,
                          ns_c_in,
                          (uint8_t)(ttl >> 24),
                          (uint8_t)(ttl >> 16),
                          (uint8_t)(ttl >> 8),
                          (uint8_t)ttl,
                          0,
                          4,
                          (uint8_t)(addr >> 24),
                          (uint8_t)(addr >> 16),
                          (uint8_t)(addr >> 8),
                          (uint8_t)addr};

    memcpy(p, rr, sizeof(rr));
    return sizeof(rr);
}

static size_t put_edns(uint8_t *p, uint8_t ede)
{
    const uint8_t opt[] = {0,
                           0,
                           ns_t_opt,
                           DNS_MSG_MAX >> 8,
                           DNS_MSG_MAX & 255,
                           0,
                           0,
                           0,
                           0,
                           0,
                           6,
                           0,
                           15 /* extended error */,
                           0,
                           2,
                           0,
                           ede};
    size_t n = ede == 255 ? 11 : sizeof(opt);

    memcpy(p, opt, n);
    if (ede == 255)
        p[10] = 0;
    return n;
}

size_t dns_write(const uint8_t *msg, const struct dns_query *q, const struct dns_answer *a,
                 uint8_t out[DNS_REPLY_MAX])
{
    size_t n = q->end;
    unsigned i;

    memcpy(out, msg, n);
    memset(out + 2, 0, NS_HFIXEDSZ - 2);
    out[2] = (uint8_t)(0x80 | (msg[2] & 0x79)); /* answer; opcode and RD as asked */
    out[3] = (uint8_t)(0x80 | a->rcode);        /* recursion is to be had */
    out[5] = n > NS_HFIXEDSZ;
    for (i = 0; i < a->n && i < ADDRS_MAX; i++)
        n += put_address(out + n, a->addr[i], a->ttl);
    out[7] = (uint8_t)i;
    if (q->edns) {
        n += put_edns(out + n, a->ede);
        out[11] = 1;
    }
    return n;
}
