/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * host - one spelling of a host rule, and no other.
 *
 * "example.com" is that name; "*.example.com" is every name with one or more labels before it, never
 * example.com itself. Whatever two readers could take for different names, or for an address, is
 * refused with what to write instead. Wildcards of a public suffix are refused because the names
 * below one belong to everybody. Threads: none needed.
 */
#include <arpa/inet.h>
#include <stdarg.h>

#include "parse_int.h"
#include "table_int.h"

static int CELLA_PRINTF(2, 3) bad(char why[DOCUMENT_WHY_MAX], const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, DOCUMENT_WHY_MAX, fmt, ap);
    va_end(ap);
    return -EINVAL;
}

/* Names with letters beyond ASCII. */
static int unicode(const char *text, char why[DOCUMENT_WHY_MAX])
{
    char ascii[POLICY_NAME_MAX + 1];
    int wild = !strncmp(text, "*.", 2);

    if (idn_to_ascii(text + (wild ? 2 : 0), ascii) == 0)
        return bad(why,
                   "has letters beyond ASCII, which look alike in many ways; if the name is meant, "
                   "write its A-label \"%s%s\"",
                   wild ? "*." : "", ascii);
    return bad(why, "has bytes beyond ASCII and is no international name either; write the ASCII "
                    "form that DNS uses (\"xn--…\")");
}

/* Anything a resolver, a C library or a URL parser takes for an address. */
static int address(const char *text)
{
    const char *last = strrchr(text, '.');
    struct in_addr a;

    last = last ? last + 1 : text;
    return strchr(text, ':') || *text == '[' || inet_aton(text, &a) ||
           (*last && !last[strspn(last, "0123456789")]) ||
           (!strncasecmp(last, "0x", 2) && !last[2 + strspn(last + 2, "0123456789abcdefABCDEF")]);
}

static int characters(const char *text, char why[DOCUMENT_WHY_MAX])
{
    const char *s;

    for (s = text; *s; s++)
        if ((unsigned char)*s >= 0x80)
            return unicode(text, why);
    if (strstr(text, "://") || strchr(text, '/'))
        return bad(why, "is a URL or a path; write the host alone, and paths into "
                        "\"http\": {\"paths\": […]}");
    return 0;
}

static int upper_case(const char *text)
{
    for (; *text; text++)
        if (*text >= 'A' && *text <= 'Z')
            return 1;
    return 0;
}

/* "name:443": a port that belongs elsewhere. */
static int with_port(const char *text)
{
    const char *colon = strchr(text, ':');

    return colon && colon == strrchr(text, ':') && colon != text && colon[1] &&
           !colon[1 + strspn(colon + 1, "0123456789")];
}

static int labels(const char *host, size_t min, char why[DOCUMENT_WHY_MAX])
{
    const char *s = host;
    size_t n, count = 0;

    if (strlen(host) > POLICY_NAME_MAX)
        return bad(why, "is %zu bytes long; a name has at most %u", strlen(host), POLICY_NAME_MAX);
    for (;; s++) {
        n = strcspn(s, ".");
        if (!n && !s[n] && count)
            return bad(why, "ends with a dot; every rule is for a full name, write it without");
        if (!n)
            return bad(why, "has an empty label; names have something between their dots");
        if (n > 63)
            return bad(why, "has a label of %zu bytes; a label has at most 63", n);
        if (memchr(s, '*', n))
            return bad(why, "has a \"*\" that is not its whole first label; only \"*.\" at the "
                            "front of a name is a wildcard");
        if (strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") < n)
            return bad(why, "has a character that no host name has; use letters, digits and "
                            "\"-\"");
        if (*s == '-' || s[n - 1] == '-')
            return bad(why, "has a label that begins or ends with \"-\", which no host name has");
        count++;
        s += n;
        if (!*s)
            break;
    }
    return count >= min ? 0
                        : bad(why, "is a single label; its meaning depends on search lists, write "
                                   "the full name");
}

static int wildcard(const char *host, struct suffixes *suffixes, char why[DOCUMENT_WHY_MAX])
{
    int r = suffixes ? suffixes_has(suffixes, host) : 0;

    if (r > 0)
        return bad(why,
                   "is a wildcard of \"%s\", a public suffix: anybody can register a name below "
                   "it; name the domains that are meant",
                   host);
    if (r < 0)
        return bad(why, "is a wildcard, and without the public suffix list (packages libpsl5, "
                        "publicsuffix) it cannot be checked; install it or name the hosts");
    return 0;
}

int host_read(const char *text, struct suffixes *suffixes, int *ret_kind, const char **ret_host,
              char why[DOCUMENT_WHY_MAX])
{
    int wild = !strncmp(text, "*.", 2);
    const char *host = text + (wild ? 2 : 0);

    if (!*text)
        return bad(why, "is empty; name a host such as \"api.example.com\"");
    if (characters(text, why) < 0)
        return -EINVAL;
    if (with_port(text))
        return bad(why, "has a port; ports go into \"ports\": [443]");
    if (!strcmp(text, "*") || !strcmp(text, "*."))
        return bad(why, "would open every name there is; name hosts or domains");
    if (!strncmp(text, "**", 2))
        return bad(why, "begins with \"**\"; \"*.\" already stands for one or more labels");
    if (address(text))
        return bad(why, "is an address in some spelling; use \"cidr\" with the canonical form, "
                        "such as \"203.0.113.7/32\"");
    if (upper_case(text))
        return bad(why, "has upper-case letters; names are compared in lower case, so write them "
                        "so");
    if (labels(host, wild ? 1 : 2, why) < 0 || (wild && wildcard(host, suffixes, why) < 0))
        return -EINVAL;
    if (!policy_host_valid(host, wild ? POLICY_SUFFIX : POLICY_EXACT))
        return bad(why, "is not a host name");
    *ret_kind = wild ? POLICY_SUFFIX : POLICY_EXACT;
    *ret_host = host;
    return 0;
}

int document_host(const char *text, int deny, int *ret_kind, const char **ret_host,
                  char why[DOCUMENT_WHY_MAX])
{
    struct suffixes suffixes = {0};
    int r = host_read(text, deny ? NULL : &suffixes, ret_kind, ret_host, why);

    suffixes_fini(&suffixes);
    return r;
}
