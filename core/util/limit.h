/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* limit - what a backend does about a limit that this host cannot keep. */
#ifndef CELLA_LIMIT_H
#define CELLA_LIMIT_H

#include <cella/host.h>

#include "util.h"

/* `code` and err->msg: why it could not be set. 0 = the audit knows; negative: the cell must not be made. */
int limit_unenforced(const struct cella_host *host, int best_effort, const char *name, int code,
                     struct cella_error *err);

/* `value` of a method that sets a limit: -EINVAL for 0. argument: its name there; name: of the limit. */
int limit_given(uint64_t value, const char *argument, const char *name, struct cella_error *err);

/* limit_<limit>(): a typed method of a backend that sets one limit of a running cell through its limits_resize(). */
#define LIMIT_METHOD(limit, field, argument)                                                       \
    static int32_t limit_##limit(void *self, uint64_t value, struct cella_error *err)              \
    {                                                                                              \
        struct cella_limits l = {.field = value};                                                  \
        int r = limit_given(value, #argument, #limit, err);                                        \
                                                                                                   \
        return r < 0 ? r : limits_resize(self, &l, err);                                           \
    }
#define LIMIT_MEMORY_METHOD                                                                        \
    {                                                                                              \
        "limit-memory", "u64 bytes -> i32", "set the memory limit of the running cell",            \
            (cella_method_fn)limit_memory, 0, 0                                                    \
    }
#define LIMIT_PIDS_METHOD                                                                          \
    {                                                                                              \
        "limit-pids", "u64 count -> i32", "set the task limit of the running cell",                \
            (cella_method_fn)limit_pids, 0, 0                                                      \
    }
#define LIMIT_CPU_METHOD                                                                           \
    {                                                                                              \
        "limit-cpu", "u64 millis -> i32",                                                          \
            "set the CPU limit of the running cell; 1000 is one CPU", (cella_method_fn)limit_cpu,  \
            0, 0                                                                                   \
    }

#endif
