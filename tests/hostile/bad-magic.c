/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A note with another magic number; its constructor must never run. */
#include "honest.h"

MINE_CONSTRUCTOR
static const struct cella_backend_ops ops = {HONEST_BACKEND("bad-magic")};
REGISTER_NOTE(CELLA_KIND_BACKEND, CELLA_ABI_MAJOR, 0, 0x12345678, ops)
