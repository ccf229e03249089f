/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A reserved member of a method is not zero. */
#include "honest.h"

static int32_t poke(void *self, struct cella_error *err)
{
    return 0;
}

static const struct cella_method methods[] = {
    {"poke", "-> i32", "does nothing", (cella_method_fn)poke, 0, 7}};
static const struct cella_backend_ops ops = {
    HONEST_BACKEND("method-reserved"),
    .methods = methods,
    .n_methods = 1,
    .method_stride = sizeof(methods[0]),
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
