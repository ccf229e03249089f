/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * ledger - what must outlive a gate: how much of its limits a cell has used up, and which synthetic
 * address stands for which name.
 *
 * One memory file per cell, made by the plugin and mapped by each gate in turn, so that a gate that dies at any
 * moment leaves it as it was: a limit does not fill up again, and an address in somebody's cache cannot come to
 * mean another name. Counts grow after what they count is complete. The gate that wrote it may have been somebody
 * else's: the next one checks every entry and does not start when one cannot be. Pages that nobody
 * touched do not exist.
 */
#ifndef CELLA_EGRESS_LEDGER_H
#define CELLA_EGRESS_LEDGER_H

#include <stdint.h>

#define LEDGER_USES_MAX 16384u
#define LEDGER_NAMES_MAX 4096u

struct ledger_use {
    uint64_t bytes[2]; /* rx, tx */
    char rule[64];     /* "" for everything: the first */
};

struct ledger {
    uint32_t n_names, n_uses;
    struct ledger_use uses[LEDGER_USES_MAX];
    char names[LEDGER_NAMES_MAX][256];
};

#endif
