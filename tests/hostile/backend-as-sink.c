/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A backend's table registered as a sink. */
#include "honest.h"

static const struct cella_backend_ops ops = {HONEST_BACKEND("backend-as-sink")};
CELLA_REGISTER(CELLA_KIND_SINK, ops)
