/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* image_audit - the records of `cella image` in the host's chain; docs/audit-format.md has the fields. */
#ifndef CELLA_CLI_IMAGE_AUDIT_H
#define CELLA_CLI_IMAGE_AUDIT_H

#include "cli.h"
#include "host_chain.h"

/* What is under way; strings are borrowed. */
struct asked {
    struct host_chain *chain;
    const char *verb, *name;
};

/* image.request: before anything is changed. Without the record nothing is done. */
int asked_begin(const struct config *c, const char *verb, const char *name, const char *source,
                struct asked *ret);
/* One more of what it does, before it is done. `name` or `digest` may be NULL. */
int asked_record(struct asked *a, const char *kind, const char *name, const char *digest,
                 const char *source);
/* With r < 0 (and cli_err) image.failed. Returns r, or that a record could not be made. */
int asked_end(struct asked *a, int r);

#endif
