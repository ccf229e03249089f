/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * document - the egress policy document: parse, validate, compile.
 *
 * This version knows the half of the schema that raw TCP rules need:
 *
 *   {"version": 1, "revision": N, "default": "deny", "active": "install", "reopen": false,
 *    "phases": {"install": {"allow": [RULE…], "deny": [RULE…]}, "run": {…}}}
 * or, with a single nameless phase,
 *   {"version": 1, "allow": [RULE…], "deny": [RULE…]}
 *
 *   RULE = {"id": "db", "cidr": "203.0.113.0/28", "ports": [5432, "8000-8010"],
 *           "proto": "tcp", "layer": "raw"}
 *
 * Empty text and {} deny everything. Every member is checked, unknown ones are refused; a complaint
 * is "file:line:column: /json/pointer: what, what to do". Documents never widen the hard-deny set.
 */
#ifndef CELLA_DOCUMENT_H
#define CELLA_DOCUMENT_H

#include "table.h"
#include "util.h"

#define DOCUMENT_BYTES_MAX (1u << 20)
#define DOCUMENT_PHASES_MAX 16u
#define DOCUMENT_RANGES_MAX 4096u /* port ranges in one phase */

struct document_rule {
    char id[POLICY_ID_MAX + 1];
    uint32_t lo, hi;
    uint16_t port_lo, port_hi;
    uint16_t deny;
    uint16_t order; /* position among the rules of the phase; ranges of one rule share it */
};

struct document_phase {
    char name[POLICY_ID_MAX + 1]; /* "" for the nameless one */
    struct document_rule *rules;  /* one element per port range */
    size_t n_rules, cap_rules;
};

struct document {
    uint64_t revision;
    int reopen;
    struct document_phase *phases; /* in the order of the text */
    size_t n_phases;
    size_t active; /* index; meaningless when there is no phase */
};

/* `file` is for messages. *ret is untouched on failure. -EINVAL, -EFBIG, -ENOMEM. */
int document_parse(const char *file, const char *text, size_t len, struct document *ret,
                   struct cella_error *err);
void document_fini(struct document *d);
/* Index of the phase, or -ENOENT. */
int document_phase_find(const struct document *d, const char *name);
/* Precedence: ceiling deny, document deny, document allow within ceiling allow, deny. `ceiling` may
   be NULL: no further ceiling. */
int document_compile(const struct document *d, size_t phase, const struct document *ceiling,
                     uint64_t generation, struct policy_table *ret, struct cella_error *err);

/* "203.0.113.0/28". Only canonical dotted quads with a length; 0, or -EINVAL with *ret_why. */
int document_cidr(const char *text, uint32_t *ret_lo, uint32_t *ret_hi, const char **ret_why);

#endif
