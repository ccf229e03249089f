/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * table_int - what the files of the compiled policy share among themselves.
 *
 * table.c  networks, algebra    names.c  rules by name    path.c  request paths
 * wire.c   building, saving, loading    wire_check.c  what was loaded    hard.c  the hard-deny set
 */
#ifndef CELLA_POLICY_TABLE_INT_H
#define CELLA_POLICY_TABLE_INT_H

#include "table.h"

/* ---- path.c ---- */
#define POLICY_PATH_MAX 8192u
/* The one spelling that patterns are compared with; the query is cut. -EINVAL when ambiguous. */
int policy_path_canon(const char *path, char out[POLICY_PATH_MAX]);
/* 1: canonical `path` matches: exact, "*" for one segment, "/" "**" at the end for all below. */
int policy_path_match(const char *pattern, const char *path);
/* NULL, or what is wrong with a pattern. */
const char *policy_path_pattern(const char *pattern);

/* ---- names.c ---- */
/* 1: `host` is what policy_name_canon gives, or for POLICY_SUFFIX such a name or one label. */
int policy_host_valid(const char *host, int kind);
/* Sorted and disjoint, in place; returns how many are left. */
size_t policy_ports_merge(struct policy_ports *p, size_t n);
/* Fills t->index. 0 or -ENOMEM. */
int policy_index_build(struct policy_table *t);

/* ---- wire_check.c: 1 = as table.h says ---- */
int policy_head_valid(const struct policy_head *h, size_t len);
int policy_entries_valid(const struct policy_table *t, const struct policy_entry *e, uint32_t n);
int policy_rule_valid(const struct policy_table *t, const struct policy_rule *r);

#endif
