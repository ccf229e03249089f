/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* sections - the top-level keys of the file; internal to core/config. */
#ifndef CELLA_CONFIG_SECTIONS_H
#define CELLA_CONFIG_SECTIONS_H

#include "read.h"

/* Reads the whole document into r->config and checks what refers to what. */
int sections_read(struct reader *r);
/* What a file that leaves out "classes" or "audit" gets. -ENOMEM. */
int sections_defaults(struct config *c);
/* class.c */
int class_defaults(struct config_class *c, const char *name, const char *pointer);
int read_classes(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                 void *member);
/* Opens a file that decides what cells may do: regular, owned by root or this user, not
   world-writable. Returns its text. */
int trusted_file_read(const char *path, size_t max, char **ret_text, size_t *ret_len,
                      struct cella_error *err);

#endif
