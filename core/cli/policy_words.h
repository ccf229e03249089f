/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* policy_words - what a document opens, in words on one screen and as JSON. */
#ifndef CELLA_CLI_POLICY_WORDS_H
#define CELLA_CLI_POLICY_WORDS_H

#include "document.h"

int policy_words(const char *file, const struct document *d);
int policy_json(const char *file, const struct document *d);

#endif
