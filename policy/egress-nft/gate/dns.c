/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * dns - the one answer this version gives: REFUSED, with the reason "Blocked" (RFC 8914) where the
 * query speaks EDNS.
 *
 * The wire format is read by libc's resolver library (ns_*): it is bounded by design, costs the
 * gate no further library, and a refusal needs no more than the question. Answering names, which
 * needs whole records, is where ldns comes in. Nothing here can lead to an upstream packet: there
 * is no upstream. Pure functions, except for the buffer they fill.
 */
#include <arpa/nameser.h>
#include <resolv.h>
#include <stdio.h>
#include <string.h>

#include "gate.h"

#define EDE_BLOCKED 15

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

static int has_edns(ns_msg *m)
{
    ns_rr rr;
    int i;

    for (i = 0; i < ns_msg_count(*m, ns_s_ar); i++)
        if (ns_parserr(m, ns_s_ar, i, &rr) == 0 && ns_rr_type(rr) == ns_t_opt)
            return 1;
    return 0;
}

static size_t put_edns(uint8_t *p)
{
    static const uint8_t opt[] = {0,
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
                                  EDE_BLOCKED};

    memcpy(p, opt, sizeof(opt));
    return sizeof(opt);
}

static int header(const uint8_t *msg, unsigned rcode, unsigned questions, uint8_t *out)
{
    memset(out, 0, NS_HFIXEDSZ);
    out[0] = msg[0];
    out[1] = msg[1];
    out[2] = (uint8_t)(0x80 | (msg[2] & 0x79)); /* answer; opcode and RD as asked */
    out[3] = (uint8_t)rcode;
    out[5] = (uint8_t)questions;
    return NS_HFIXEDSZ;
}

int dns_refuse(const uint8_t *msg, size_t len, uint8_t out[DNS_REPLY_MAX], struct dns_query *ret)
{
    ns_msg m;
    ns_rr q;
    size_t end, n;

    memset(ret, 0, sizeof(*ret));
    if (len < NS_HFIXEDSZ || len > DNS_MSG_MAX || msg[2] & 0x80)
        return -1;
    if ((msg[2] >> 3 & 15) != ns_o_query)
        return header(msg, ns_r_notimpl, 0, out);
    end = question_end(msg, len);
    if (!end || ns_initparse(msg, (int)len, &m) < 0 || ns_msg_count(m, ns_s_qd) != 1 ||
        ns_parserr(&m, ns_s_qd, 0, &q) < 0)
        return header(msg, ns_r_formerr, 0, out);
    snprintf(ret->name, sizeof(ret->name), "%.*s", CTL_NAME_MAX - 1, ns_rr_name(q));
    ret->qtype = (uint16_t)ns_rr_type(q);
    ret->refused = 1;
    n = (size_t)header(msg, ns_r_refused, 1, out);
    memcpy(out + n, msg + n, end - n);
    n = end;
    if (has_edns(&m)) {
        n += put_edns(out + n);
        out[11] = 1;
    }
    return (int)n;
}
