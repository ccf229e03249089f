/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Needs a newer host; its constructor must never run. */
#include "honest.h"

MINE_CONSTRUCTOR
static const struct cella_backend_ops ops = {HONEST_BACKEND("future-minor")};
REGISTER_NOTE(CELLA_KIND_BACKEND, CELLA_ABI_MAJOR, CELLA_ABI_MINOR + 1, CELLA_NOTE_MAGIC, ops)
