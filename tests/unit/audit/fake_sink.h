/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A sink for tests of core/audit, in place of core/plugin: appends to files, fails on demand. */
#ifndef FAKE_SINK_H
#define FAKE_SINK_H

#include "../../../core/plugin/plugin.h"
#include "audit.h"

struct fake {
    struct plugin plugin;
    char dir[96];
    int fail_next;  /* this many events fail; -1 all */
    int fail_code;  /* default -ENOSPC */
    int die_before; /* _exit(9) at the event with this number, before storing; 0 never */
    int die_after;  /* the same, after storing */
    unsigned events, failures, flushes, open;
    char last_kind[64];
};

void fake_init(struct fake *f, const char *name, const char *dir);

#endif
