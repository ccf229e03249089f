/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cidr - one spelling of an IPv4 network, and no other.
 *
 * inet_aton() and its children accept 0xA9FEA9FE, 2852039166, 0251.0376.1, 169.254.43518. Two
 * readers that disagree about such a text are a bypass, so only the canonical form "d.d.d.d/len"
 * passes: four decimal numbers without leading zeros, a length, no bits set behind it. Threads:
 * none needed.
 */
#include <ctype.h>

#include "document.h"

/* Decimal without leading zeros, at most `max`. Returns what follows, or NULL. */
static const char *number(const char *s, unsigned max, unsigned *ret)
{
    unsigned v = 0;

    if (!isdigit((unsigned char)*s) || (*s == '0' && isdigit((unsigned char)s[1])))
        return NULL;
    for (; isdigit((unsigned char)*s); s++) {
        v = v * 10 + (unsigned)(*s - '0');
        if (v > max)
            return NULL;
    }
    *ret = v;
    return s;
}

int document_cidr(const char *text, uint32_t *ret_lo, uint32_t *ret_hi, const char **ret_why)
{
    const char *s = text;
    uint32_t addr = 0, mask;
    unsigned part, len, i;

    if (strchr(s, ':')) {
        *ret_why = "IPv6 is closed in this version; only IPv4 networks can be opened";
        return -EINVAL;
    }
    *ret_why =
        "expected a network in canonical form, such as \"203.0.113.0/28\" or \"203.0.113.7/32\": "
        "four decimal numbers 0-255 without leading zeros, and a length 0-32";
    for (i = 0; i < 4; i++) {
        s = number(s, 255, &part);
        if (!s || *s != (i < 3 ? '.' : '/'))
            return -EINVAL;
        addr = addr << 8 | part;
        s++;
    }
    s = number(s, 32, &len);
    if (!s || *s)
        return -EINVAL;
    mask = len ? 0xffffffffu << (32 - len) : 0;
    if (addr & ~mask) {
        *ret_why =
            "has bits set behind its prefix length; write the network's first address, or /32 for "
            "one address";
        return -EINVAL;
    }
    *ret_lo = addr;
    *ret_hi = addr | ~mask;
    return 0;
}
