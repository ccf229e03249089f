/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* plugin_print - a plugin's description on standard output. */
#ifndef CELLA_PLUGIN_PRINT_H
#define CELLA_PLUGIN_PRINT_H

#include <jansson.h>

#define STATUS_FAILED 125

/* The text of a member; "" where there is none. */
const char *plugin_text(const json_t *o, const char *key);
void plugin_print(const json_t *about);
/* 0, or the status of a failure. */
int plugin_print_json(const json_t *j);

#endif
