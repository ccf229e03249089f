/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* copies - what the verbs snapshot, restore and fork share. */
#ifndef CELLA_CLI_COPIES_H
#define CELLA_CLI_COPIES_H

#include "cli.h"
#include "snapshot.h"
#include "stages.h"

/* What is under way, on a terminal; "" takes it away again. */
void copies_note(const char *text);
/* The create request of a copy that is started at once, the command line over the snapshot. NULL: cli_err. */
json_t *copies_request(const struct options *o, const struct snapshot *s);
/* `stages` may be NULL. */
int copies_restore(const struct options *o, struct config *c, const struct snapshot *s,
                   struct stages *stages, json_t **ret_created, int *ret_exit);

#endif
