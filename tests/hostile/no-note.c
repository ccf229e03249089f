/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A shared object that is no plugin; its constructor must never run. */
#include "honest.h"

MINE_CONSTRUCTOR
static const struct cella_backend_ops ops = {HONEST_BACKEND("no-note")};
CELLA_EXPORT const void *cella_plugin_entry_v1(void);
CELLA_EXPORT const void *cella_plugin_entry_v1(void)
{
    return &ops;
}
