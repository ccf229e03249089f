/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Crashes in its constructor, with a note that is in order. */
#include "honest.h"

__attribute__((constructor)) static void mine(void)
{
    volatile int *volatile nowhere = NULL;

    *nowhere = 1;
}

static const struct cella_backend_ops ops = {HONEST_BACKEND("crash-load")};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
