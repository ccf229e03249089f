/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Fuzz target: the layout of control groups from three texts, separated by NUL bytes. */
#include "cgroup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cgroup_layout l;
    char *copy = malloc(size + 3);
    const char *own, *controllers;
    uint32_t i;

    if (!copy)
        return 0;
    if (size)
        memcpy(copy, data, size);
    memset(copy + size, 0, 3);
    own = copy + strlen(copy) + (strlen(copy) < size);
    controllers = own + strlen(own) + (own + strlen(own) < copy + size);
    if (cgroup_layout_parse(copy, own, controllers, &l) == 0) {
        if (l.n_v1 > CGROUP_N || (!l.n_v1 && !l.v2.path[0]))
            abort();
        for (i = 0; i < l.n_v1; i++)
            if (!l.v1[i].path[0] || !l.v1[i].controllers || strstr(l.v1[i].own, "/.."))
                abort();
        for (i = 0; i < CGROUP_N; i++)
            cgroup_layout_version(&l, (enum cgroup_controller)i);
    }
    free(copy);
    return 0;
}
