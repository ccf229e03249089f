/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Built for another major; its constructor must never run. */
#include "honest.h"

MINE_CONSTRUCTOR
static const struct cella_backend_ops ops = {HONEST_BACKEND("future-major")};
REGISTER_NOTE(CELLA_KIND_BACKEND, CELLA_ABI_MAJOR + 1, 0, CELLA_NOTE_MAGIC, ops)
