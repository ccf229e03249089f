/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* stages - where the time of a verb goes, for --timings. */
#ifndef CELLA_CLI_STAGES_H
#define CELLA_CLI_STAGES_H

#include "cli.h"

struct stages {
    int on;
    size_t n;
    struct {
        char name[32];
        uint64_t at;
    } v[48];
};

void stages_next(struct stages *s, const char *name);
/* For client_call(), with the stages as its context: nobody is told of stages that nobody will print. */
client_progress *stages_listener(const struct stages *s);
void stages_print(struct stages *s);

#endif
