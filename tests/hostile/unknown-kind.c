/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A kind that no host knows; its constructor must never run. */
#include "honest.h"

MINE_CONSTRUCTOR
static const struct cella_backend_ops ops = {HONEST_BACKEND("unknown-kind")};
REGISTER_NOTE(CELLA_KIND_PROBE, CELLA_ABI_MAJOR, 0, CELLA_NOTE_MAGIC, ops)
