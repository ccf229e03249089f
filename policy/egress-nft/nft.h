/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* nft - one nftables transaction on table inet cella: collected, then sent whole. */
#ifndef CELLA_EGRESS_NFT_H
#define CELLA_EGRESS_NFT_H

#include "util.h"

#define NFT_TABLE "cella"

struct nftnl_rule;

struct nft_batch {
    struct buf bytes; /* its `oom`: something could not be written */
    uint32_t seq;     /* of the last message */
    size_t last;      /* where it begins */
};

enum nft_set_kind { NFT_ADDRS, NFT_PORTS, NFT_PORTS_TIMED, NFT_ADDR_PORTS };

/* Both ends included; `addr` in host byte order. Which halves count is a matter of the set's kind. */
struct nft_range {
    uint32_t addr_lo, addr_hi;
    uint16_t port_lo, port_hi;
};

struct nft_hook {
    const char *type; /* NULL: a chain that is only jumped to */
    uint32_t number;
    int32_t priority;
    const char *device; /* NULL: all */
};

void nft_batch_init(struct nft_batch *b);
void nft_batch_fini(struct nft_batch *b);
void nft_table(struct nft_batch *b);
void nft_set(struct nft_batch *b, const char *name, enum nft_set_kind kind);
void nft_flush(struct nft_batch *b, const char *set);
/* The set itself; no rule may use it any more. */
void nft_drop(struct nft_batch *b, const char *set);
/* Disjoint ranges. `seconds`: 0, or their life. */
void nft_elements(struct nft_batch *b, const char *set, enum nft_set_kind kind,
                  const struct nft_range *v, size_t n, uint32_t seconds);
/* A base chain drops by policy. */
void nft_chain(struct nft_batch *b, const char *name, const struct nft_hook *hook);
/* Without its rules, but still there. */
void nft_empty(struct nft_batch *b, const char *chain);
/* Takes the rule; NULL counts as out of memory. */
void nft_rule(struct nft_batch *b, const char *chain, struct nftnl_rule *rule);
/* All or nothing, in the current network namespace. `what` begins the message of a failure. */
int nft_commit(struct nft_batch *b, const char *what, struct cella_error *err);

#endif
