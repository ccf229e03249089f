/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A name that could not be written in a config. */
#include "honest.h"

static const struct cella_backend_ops ops = {HONEST_BACKEND("../Bad Name")};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
