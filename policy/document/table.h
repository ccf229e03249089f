/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * table - a compiled policy: what the kernel sets, the gate and the HTTP engine look things up in.
 *
 * Two halves, one list of rules. Networks: disjoint rectangles of (address range x port range) per
 * protocol, sorted by address and then port, each with one verdict. Names: rules by host, asked by
 * the functions below, which apply all precedence themselves; nobody else walks the rules to judge.
 * What neither half covers is denied. The hard-deny set stands above everything and is not part of
 * the table: policy_hard() answers for it. Depends on nothing, so that the gate stays small.
 *
 * Strata: rules come in layers that must all agree. Stratum 0 is the document, 1 the operator's
 * ceiling if there is one; an intersection of tables has those of both. A name is allowed when no
 * stratum denies it and every stratum allows it; the rule that counts (layer, limits, injection) is
 * stratum 0's.
 *
 * A table is immutable once built; everything it hands out lives as long as it does.
 */
#ifndef CELLA_POLICY_TABLE_H
#define CELLA_POLICY_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define POLICY_MAGIC 0x33746361u
#define POLICY_ENTRIES_MAX 65536u /* per protocol */
#define POLICY_RULES_MAX 65534u
#define POLICY_BLOB_MAX (64u << 20) /* bytes of rules in the serialised form */
#define POLICY_STRATA_MAX 8u
#define POLICY_ID_MAX 63u
#define POLICY_NAME_MAX 253u
#define POLICY_TEXT_MAX 1024u /* one path pattern, method, placeholder, … */
#define POLICY_LIST_MAX 4096u /* ports, methods, paths or injections of one rule */
#define POLICY_NO_RULE UINT16_MAX

enum policy_verdict { POLICY_DENY = 0, POLICY_ALLOW = 1 };
enum policy_proto { POLICY_TCP = 1, POLICY_UDP = 2 }; /* bits; a denial without proto has both */
/* By strictness. Of several allow rules for one (name, port) the strictest layer counts. */
enum policy_layer { POLICY_RAW = 0, POLICY_TLS = 1, POLICY_HTTP = 2 };
enum policy_host_kind { POLICY_HOST_NONE = 0 /* a cidr rule */, POLICY_EXACT, POLICY_SUFFIX };
enum policy_dns_mode { POLICY_SYNTHETIC = 0, POLICY_REAL = 1 };
enum policy_dns_type { POLICY_DNS_A = 1, POLICY_DNS_AAAA = 2 }; /* bits */
enum policy_surface {
    POLICY_SURFACE_HEADER = 1, /* in the header `name` */
    POLICY_SURFACE_BASIC = 2   /* inside the base64 of "Authorization: Basic" */
};
/* Bits of policy_rule.methods; other methods are in policy_rule.method. */
enum policy_method {
    POLICY_GET = 1,
    POLICY_HEAD = 2,
    POLICY_POST = 4,
    POLICY_PUT = 8,
    POLICY_DELETE = 16,
    POLICY_OPTIONS = 32,
    POLICY_PATCH = 64,
    POLICY_TRACE = 128
};

/* Addresses in host byte order, both ends included. */
struct policy_entry {
    uint32_t lo, hi;
    uint16_t port_lo, port_hi;
    uint16_t rule;    /* index into the rules */
    uint16_t verdict; /* enum policy_verdict; explicit denials are kept to name their rule */
};

struct policy_ports {
    uint16_t lo, hi; /* both included; 0 only in denials */
};

/* 0 = no limit. Bytes and rates as seen from the cell: tx leaves it. A rule's totals count for the rule's
   id over the life of the cell; those of the head for all flows together. */
struct policy_limits {
    uint64_t tx_bytes, rx_bytes; /* total */
    uint64_t conns;              /* at one time */
    uint64_t tx_bps, rx_bps;     /* bytes a second */
};

struct policy_inject {
    const char *secret;      /* name for the secret provider */
    const char *name;        /* header name, lower case; "" for SURFACE_BASIC */
    const char *placeholder; /* "" = set (replace) the header to prefix + secret */
    const char *prefix;      /* "Bearer "; only without placeholder */
    uint8_t surface;         /* enum policy_surface */
    uint8_t require;         /* 1: a request without the placeholder is refused */
};

struct policy_rule {
    const char *id;   /* the operator's begin with "operator." */
    const char *host; /* canonical; without "*." for POLICY_SUFFIX; "" for a cidr rule */
    const struct policy_ports *ports;   /* sorted, disjoint, at least one */
    const char *const *method;          /* n_methods others than the named ones */
    const char *const *path;            /* n_paths patterns; none = any path */
    const struct policy_inject *inject; /* n_inject */
    struct policy_limits limits;
    uint32_t methods; /* enum policy_method bits; 0 and n_methods 0 = any method but CONNECT */
    uint16_t n_ports, n_methods, n_paths, n_inject;
    uint8_t stratum, verdict, proto, layer, kind;
    uint8_t websocket; /* the upgrade is allowed; http only */
};

struct policy_dns {
    uint8_t mode;        /* enum policy_dns_mode */
    uint8_t types;       /* enum policy_dns_type bits that are answered with addresses */
    uint8_t max_label;   /* bytes of one label; 0 = 63 */
    uint8_t log_allowed; /* answered questions are events too */
    uint32_t max_qps;    /* questions a second; 0 = no limit */
};

struct policy_head {
    uint32_t magic;
    uint32_t n_entries; /* TCP */
    uint32_t n_udp;
    uint32_t n_rules;
    uint32_t n_strata;
    uint32_t blob_len;
    uint64_t generation;
    struct policy_limits limits;
    struct policy_dns dns;
};

struct policy_table {
    struct policy_head head;
    struct policy_entry *entries; /* owned, head.n_entries */
    struct policy_entry *udp;     /* owned, head.n_udp */
    struct policy_rule *rules;    /* owned, head.n_rules */
    void *pool;                   /* owned: what the rules point to */
    uint32_t *index;              /* owned: hash of hosts */
};

void policy_table_fini(struct policy_table *t);
/* malloc'ed bytes. */
int policy_table_save(const struct policy_table *t, void **ret, size_t *ret_len);
/* Copies out of `data`; -EBADMSG unless every invariant holds. */
int policy_table_load(const void *data, size_t len, struct policy_table *ret);
/* The same from the whole of a file, whose offset does not matter; a negative errno. */
int policy_table_read(int borrow_fd, struct policy_table *ret);

/* ---- networks ---- */
/* The TCP entry that covers the point, or NULL. */
const struct policy_entry *policy_table_find(const struct policy_table *t, uint32_t addr,
                                             uint16_t port);
const struct policy_entry *policy_table_find_udp(const struct policy_table *t, uint32_t addr,
                                                 uint16_t port);
/* Id of the rule, "" for POLICY_NO_RULE. */
const char *policy_table_rule(const struct policy_table *t, uint16_t rule);

/* ---- names ---- */
/* Lower case, one trailing dot dropped. -EINVAL unless it is a host name: LDH labels of 1 to 63, 253
   in all, at least two labels, the last one not a number (an address in some spelling). Two texts
   are one name exactly when this gives the same bytes. */
int policy_name_canon(const char *name, char out[POLICY_NAME_MAX + 1]);
/* 1: some port of the name is allowed; DNS may answer. Any spelling of the name. */
int policy_name_listed(const struct policy_table *t, const char *name);
/* The verdict before anything of the connection is read. POLICY_ALLOW: *ret is stratum 0's rule of the
   strictest layer, which the caller enforces: POLICY_TLS needs SNI == name, POLICY_HTTP asks
   policy_http_find() for each request. POLICY_DENY: *ret is the deny rule, or NULL when no rule
   allows. An address that the name resolved to must also pass policy_hard() and
   policy_addr_denied(). */
int policy_name_find(const struct policy_table *t, const char *name, uint16_t port,
                     enum policy_proto proto, const struct policy_rule **ret);
/* Deny rule for networks that covers the point, or NULL: it holds for addresses of names too. */
const struct policy_rule *policy_addr_denied(const struct policy_table *t, uint32_t addr,
                                             uint16_t port, enum policy_proto proto);
/* One request of a connection for which policy_name_find() gave POLICY_HTTP. `path` is the origin
   form as sent; the query is not looked at. websocket: the request asks for the upgrade. A path with
   ambiguities (dot segments, encoded or doubled separators, bad escapes, a fragment) matches no
   pattern but that of a denial and "any". */
int policy_http_find(const struct policy_table *t, const char *name, uint16_t port,
                     const char *method, const char *path, int websocket,
                     const struct policy_rule **ret);
/* Ports that some allow rule by name opens: malloc'ed, sorted, disjoint. 0 or -ENOMEM. */
int policy_name_ports(const struct policy_table *t, enum policy_proto proto,
                      struct policy_ports **ret, size_t *ret_n);
/* 1: some rule needs the HTTP engine. */
int policy_needs_http(const struct policy_table *t);
static inline enum policy_dns_mode policy_mode(const struct policy_table *t)
{
    return (enum policy_dns_mode)t->head.dns.mode;
}

/* ---- two tables ---- */
/* Allowed by both; rules that count are those of `a`. Different DNS modes: no name at all.
   -ENOMEM, -E2BIG. */
int policy_table_intersect(const struct policy_table *a, const struct policy_table *b,
                           struct policy_table *ret);
/* 1: all that the kernel lets through to the gate for `a` it lets through for `b`: the allowed points of
   both protocols, the ports of names, the DNS mode. */
int policy_table_within(const struct policy_table *a, const struct policy_table *b);

/* ---- hard-deny set: a broker constant no document can open ---- */
struct policy_hard_range {
    uint32_t lo, hi;
    const char *cidr;
    const char *what;
};
extern const struct policy_hard_range policy_hard_ranges[];
extern const size_t policy_hard_count;
#define POLICY_HARD_PORT 25 /* TCP, to any address */
/* Synthetic addresses of names, inside the hard-deny set: reachable only through the mapping. */
#define POLICY_SYNTHETIC_LO 0xc6120000u
#define POLICY_SYNTHETIC_HI 0xc613ffffu

/* First range that overlaps [lo, hi], or NULL. */
const struct policy_hard_range *policy_hard(uint32_t lo, uint32_t hi);
/* 1: in 198.51.100.0/24 or 203.0.113.0/24, where tests and the demo keep their servers. No real
   host has such an address, so it does not count as the host's own. */
int policy_is_test_server(uint32_t addr);

/* ---- for who builds tables: the compiler, tests ---- */
struct policy_builder; /* rules are appended in order; the first error sticks */
/* NULL: out of memory. The head's counts and magic are filled by finish. */
struct policy_builder *policy_builder_new(const struct policy_head *head);
/* Copies. `rule` points wherever it likes. */
void policy_builder_rule(struct policy_builder *b, const struct policy_rule *rule);
/* Copies; udp 0 or 1; in the order of the table. */
void policy_builder_entry(struct policy_builder *b, int udp, const struct policy_entry *e);
/* Frees b. Goes through policy_table_load(), so no invariant is taken on trust. */
int policy_builder_finish(struct policy_builder *b, struct policy_table *ret);

#endif
