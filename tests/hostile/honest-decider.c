/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Breaks no rule and allows. */
#include "honest.h"

static const struct cella_decider_ops ops = {HONEST_DECIDER("honest-decider")};
CELLA_REGISTER(CELLA_KIND_DECIDER, ops)
