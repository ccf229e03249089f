/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * document - the egress policy document: parse, validate, compile.
 *
 *   {"version": 1, "revision": N, "default": "deny", "active": "install", "reopen": false,
 *    "on_tighten": "kill", "dns": {…}, "limits": {…}, "observe": {…},
 *    "phases": {"install": {"allow": [RULE…], "deny": [RULE…]}, "run": {…}}}
 * or, with a single nameless phase, "allow" and "deny" beside the others. docs/policy-document.md
 * describes every member.
 *
 * Empty text, {} and [] deny everything. Every member is checked, unknown ones are refused; a
 * complaint is "file:line:column: /json/pointer: what, what to do". Documents never widen the
 * hard-deny set.
 */
#ifndef CELLA_DOCUMENT_H
#define CELLA_DOCUMENT_H

#include "table.h"
#include "util.h"

#define DOCUMENT_BYTES_MAX (1u << 20)
#define DOCUMENT_PHASES_MAX 16u
#define DOCUMENT_RULES_MAX 16000u  /* in one phase */
#define DOCUMENT_RANGES_MAX 32768u /* port ranges in one phase */
#define DOCUMENT_ALERTS_MAX 16u

struct document_rule {
    struct policy_rule rule; /* stratum 0; what it points to belongs to the document */
    uint32_t lo, hi;         /* POLICY_HOST_NONE: the network */
};

struct document_phase {
    char name[POLICY_ID_MAX + 1]; /* "" for the nameless one */
    struct document_rule *rules;  /* denials first, otherwise in the order of the text */
    size_t n_rules, cap_rules;
    size_t n_ranges; /* port ranges of all rules */
};

enum document_alert_on {
    DOCUMENT_NEW_NAME,
    DOCUMENT_TX_OVER,
    DOCUMENT_DENY_BURST,
    DOCUMENT_DNS_SUSPECT
};
struct document_alert {
    enum document_alert_on on;
    uint64_t amount; /* TX_OVER: bytes; DENY_BURST: denials */
    uint64_t per_ns; /* the same two: window */
};

/* How allowed flows become events. */
enum document_observe { DOCUMENT_EACH, DOCUMENT_AGGREGATE };

struct document_block;
struct document {
    uint64_t revision;
    int reopen;
    struct policy_dns dns;
    struct policy_limits limits;
    enum document_observe observe;
    struct document_alert alerts[DOCUMENT_ALERTS_MAX];
    size_t n_alerts;
    struct document_phase *phases; /* in the order of the text */
    size_t n_phases;
    size_t active;                 /* index; meaningless when there is no phase */
    struct document_block *blocks; /* memory of the rules */
};

/* `file` is for messages. *ret is untouched on failure. -EINVAL, -EFBIG, -ENOMEM. */
int document_parse(const char *file, const char *text, size_t len, struct document *ret,
                   struct cella_error *err);
void document_fini(struct document *d);
/* Index of the phase, or -ENOENT. */
int document_phase_find(const struct document *d, const char *name);
/* Precedence: ceiling deny, document deny, document allow within ceiling allow, deny. `ceiling` may
   be NULL: no further ceiling. -EINVAL: the ceiling holds what only a document may; -E2BIG. */
int document_compile(const struct document *d, size_t phase, const struct document *ceiling,
                     uint64_t generation, struct policy_table *ret, struct cella_error *err);

/* "203.0.113.0/28". Only canonical dotted quads with a length; 0, or -EINVAL with *ret_why. */
int document_cidr(const char *text, uint32_t *ret_lo, uint32_t *ret_hi, const char **ret_why);
/* "api.example.com" or "*.example.com" as a rule may say it. *ret_host points into `text`. 0, or -EINVAL
   with the reason and what to do in why[]. `deny`: a denial may also name a public suffix. */
#define DOCUMENT_WHY_MAX 400u
int document_host(const char *text, int deny, int *ret_kind, const char **ret_host,
                  char why[DOCUMENT_WHY_MAX]);

#endif
