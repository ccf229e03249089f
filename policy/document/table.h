/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * table - a compiled policy: what both walls (kernel set and gate) look things up in.
 *
 * Entries are disjoint rectangles of (address range x port range), sorted by address and then port.
 * What no entry covers is denied. The hard-deny set stands above every entry and is not part of the
 * table: policy_hard() answers for it. Depends on nothing, so that the gate stays small.
 *
 * Serialised form (same machine, trusted writer, still checked by policy_table_load):
 *   struct policy_head, entries, rule ids as NUL-terminated strings.
 */
#ifndef CELLA_POLICY_TABLE_H
#define CELLA_POLICY_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define POLICY_MAGIC 0x32746361u
#define POLICY_ENTRIES_MAX 65536u
#define POLICY_RULES_MAX 4096u
#define POLICY_ID_MAX 63u
#define POLICY_NO_RULE UINT16_MAX

enum policy_verdict { POLICY_DENY = 0, POLICY_ALLOW = 1 };

/* Addresses in host byte order, both ends included. TCP only in this version. */
struct policy_entry {
    uint32_t lo, hi;
    uint16_t port_lo, port_hi;
    uint16_t rule;    /* index into the ids */
    uint16_t verdict; /* enum policy_verdict; explicit denials are kept to name their rule */
};

struct policy_head {
    uint32_t magic;
    uint32_t n_entries;
    uint32_t n_rules;
    uint32_t ids_len;
    uint64_t generation;
};

struct policy_table {
    struct policy_head head;
    struct policy_entry *entries; /* owned */
    char *ids;                    /* owned; head.ids_len bytes */
    const char **id;              /* owned; head.n_rules pointers into ids */
};

void policy_table_fini(struct policy_table *t);
/* The entry that covers the point, or NULL. */
const struct policy_entry *policy_table_find(const struct policy_table *t, uint32_t addr,
                                             uint16_t port);
/* "" for POLICY_NO_RULE. */
const char *policy_table_rule(const struct policy_table *t, uint16_t rule);
/* Allowed by both; rules are those of `a`. -ENOMEM, -E2BIG. */
int policy_table_intersect(const struct policy_table *a, const struct policy_table *b,
                           struct policy_table *ret);
/* malloc'ed bytes. */
int policy_table_save(const struct policy_table *t, void **ret, size_t *ret_len);
/* Copies out of `data`; -EBADMSG unless every invariant holds. */
int policy_table_load(const void *data, size_t len, struct policy_table *ret);
/* 1: every allowed point of `a` is allowed by `b`. */
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

/* First range that overlaps [lo, hi], or NULL. */
const struct policy_hard_range *policy_hard(uint32_t lo, uint32_t hi);
/* 1: in 198.51.100.0/24 or 203.0.113.0/24, where tests and the demo keep their servers. No real
   host has such an address, so it does not count as the host's own. */
int policy_is_test_server(uint32_t addr);

#endif
