/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * audit - event model, hash chain, fan-out to sinks. docs/audit-format.md is the contract.
 *
 * One chain per cell and one for the host. A line is a canonical JSON object
 *   {"v":1,"chain":"…","seq":N,"ts":"2026-01-01T00:00:00.000000Z","prev":"<sha256 of the line before>",
 *    "kind":"…", fields…}
 * The first line of a cell's chain has kind "chain.open" and carries the head of the host's chain;
 * the last one, "chain.close". Heads {chain, seq, sha256} are signed with Ed25519: in the line
 * "chain.head" at intervals and at close, and in <state_dir>/audit/<chain>.head, so that a cut tail is
 * noticed. The host's chain records the first and last head of every cell ("cell.open", "cell.close").
 */
#ifndef CELLA_AUDIT_H
#define CELLA_AUDIT_H

#include <cella/sink.h>

#include "config.h"

struct plugin; /* core/plugin/plugin.h */

struct audit_sink {
    const struct plugin *plugin;
    struct cella_options const *options;
    enum config_overflow overflow;
};

struct audit;
/* Opens the chain of `cell_id` (or continues it, when it exists, e.g. for gc) and writes chain.open.
   `dir` is <state_dir>/audit: heads, key pair (made on first use, 0600) and the host chain's lock. */
int audit_open(const char *dir, const char *cell_id, const struct cella_host *host,
               const struct audit_sink *sinks, size_t n_sinks, struct audit **ret,
               struct cella_error *err);
/* Where the chain of a copied cell's parent stood when the copy was taken. */
struct audit_parent {
    const char *chain; /* the parent's id */
    uint64_t seq;
    const char *head; /* 64 hex digits */
};
/* The same; chain.open of a new chain names the parent's head, too. NULL: no parent. */
int audit_open_child(const char *dir, const char *cell_id, const struct audit_parent *parent,
                     const struct cella_host *host, const struct audit_sink *sinks, size_t n_sinks,
                     struct audit **ret, struct cella_error *err);
/* Without a cell: for audit_host_emit() and audit_free() alone. */
int audit_open_host(const char *dir, const struct cella_host *host, const struct audit_sink *sinks,
                    size_t n_sinks, struct audit **ret, struct cella_error *err);
/* 0; or -errno when a fail-closed sink failed: the caller must refuse and stop the cell. */
/* Kinds "chain.*" and "audit.*" are the audit's own (-EPERM). -EBUSY from inside a sink, or from the log of the host
   that it complains to: nothing is recorded. */
int audit_event(struct audit *a, const struct cella_event *event, struct cella_error *err);
/* Convenience: name, type letter, value triples: audit_emit(a, err, "cell.exec", "s:cwd", cwd,
   "i:status", (int64_t)3, "b:tty", 1, NULL). NULL strings are left out. */
int audit_emit(struct audit *a, struct cella_error *err, const char *kind, ...);
/* One event on the host's chain (locked append). "cell.open" and "cell.close" are the audit's own there (-EPERM). */
int audit_host_emit(struct audit *a, struct cella_error *err, const char *kind, ...);
void audit_head(const struct audit *a, uint64_t *ret_seq, char ret_hex[65]);
/* chain.close, signed head, host chain's cell.close. Flushes. */
int audit_close(struct audit *a, struct cella_error *err);
void audit_free(struct audit *a); /* without closing the chain: a later audit_open continues it */

struct audit_verify_result {
    uint64_t lines;
    int closed;         /* chain.close seen */
    uint64_t first_bad; /* 0 = verified; else line number of the first line that does not fit */
    char why[256];
    char head[65];
};
/* Verifies one chain file against the public key, head and state in `dir` (NULL: only what the file holds). 0 with
   *ret filled, also when the file is bad; -errno when it cannot be read. `why` may hold a remark on a good file. */
int audit_verify(const char *dir, const char *file, struct audit_verify_result *ret,
                 struct cella_error *err);
/* Verifies that the cells' files in `cells_dir` (<cell>.jsonl) have the first and last lines that the host's chain
   recorded; a file that is gone is a mismatch. Lines are those of `host_file`, itself not verified here. */
int audit_verify_host_links(const char *host_file, const char *cells_dir,
                            struct audit_verify_result *ret, struct cella_error *err);

#endif
