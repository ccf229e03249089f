/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Uses up the stack, in create: the handler needs one of its own. */
#include "honest.h"

static int deeper(volatile char *above, unsigned n)
{
    volatile char here[4096];

    here[0] = above[0];
    return n ? deeper(here, n - 1) + here[n % sizeof(here)] : here[0];
}

static int create(const struct cella_host *host, const struct cella_spec *spec, void **ret_self,
                  struct cella_error *err)
{
    volatile char top[1] = {0};

    return deeper(top, 1u << 20) & 1;
}

static const struct cella_backend_ops ops = {HONEST_BACKEND("deep-create"), .create = create};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
