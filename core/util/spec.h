/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* spec - what every backend asks of the description of a cell before it makes one. `step`: the backend's, for the error. */
#ifndef CELLA_SPEC_H
#define CELLA_SPEC_H

#include <cella/backend.h>

#include "util.h"

static inline const struct cella_mount *spec_mount(const struct cella_spec *spec, uint32_t i)
{
    return (const void *)((const char *)spec->mounts + (size_t)i * spec->mount_stride);
}

/* The value of an option; def where it is not there. */
const char *option_str(const struct cella_options *o, const char *name, const char *def);
int64_t option_int(const struct cella_options *o, const char *name, int64_t def);

int spec_check_id(const struct cella_spec *spec, uint32_t step, struct cella_error *err);
/* Of a backend whose cell is processes of the host: root, ids, agent and the number of mounts. */
int spec_check_processes(const struct cella_spec *spec, uint32_t mounts_max, uint32_t step,
                         struct cella_error *err);
/* Its target, its type and what a bind shows. */
int spec_check_mount(const struct cella_mount *m, uint32_t step, struct cella_error *err);

#endif
