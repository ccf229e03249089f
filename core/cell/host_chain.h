/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* host_chain - the host's chain of the audit, for what a program does that concerns no cell. */
#ifndef CELLA_CELL_HOST_CHAIN_H
#define CELLA_CELL_HOST_CHAIN_H

#include "audit.h"

struct host_chain;
/* With the sinks of the config. */
int host_chain_open(const struct config *c, struct host_chain **ret, struct cella_error *err);
/* For audit_host_emit(). */
struct audit *host_chain_audit(const struct host_chain *h);
void host_chain_free(struct host_chain *h);

#endif
